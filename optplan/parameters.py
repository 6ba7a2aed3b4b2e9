"""Quantities that a flip point can be looked for along, and the digits that they print with."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal

from optplan.box import with_constants
from optplan.models.cost.calibration import UNCERTAIN
from optplan.models.cost.estimate import step_seconds
from optplan.models.spec.plan import Plan
from optplan.models.spec.problem import Problem

TIMES = 4.0
"""How far below and above its present value a quantity is looked at, unless it has ends."""

MOVES = 1e-9
"""Share of a price that a quantity must move to be of interest."""

CONSTANTS = {
    "network_efficiency": "network efficiency",
    "link_efficiency": "link efficiency",
    "utilization_peak": "utilization of the peak",
    "hbm_efficiency": "efficiency of the device's memory",
    "attention_loss": "attention loss",
    "launch_seconds": "launch floor of a layer",
    "step_latency": "latency of a collective's step",
    "overlap_dp": "overlap of data-parallel exchange",
    "overlap_fsdp": "overlap of fetched weights",
    "overlap_tp": "overlap of tensor-parallel exchange",
    "fused_tp": "fused tensor-parallel exchange",
    "overlap_cp": "overlap of context-parallel exchange",
    "overlap_ep": "overlap of expert exchange",
    "p2p_exposed": "exposed share of transfers between stages",
}
"""Constants of a calibration that are looked along, and how they are called in print."""

_RATES = (("TB/s", 10**12), ("GB/s", 10**9), ("MB/s", 10**6), ("kB/s", 10**3), ("B/s", 1))
_TIMES = (("s", 1), ("ms", Decimal("1e-3")), ("us", Decimal("1e-6")), ("ns", Decimal("1e-9")))
_SIZES = (("GiB", 2**30),)
_PLAIN = (("", 1),)


@dataclass(frozen=True)
class Parameter:
    """
    One quantity of a problem that may be moved.

    Parameters
    ----------
    name
        How it is called in print.
    now, low, high
        Present value, and the range that is looked at, in SI units.
    put
        Returns the problem with another value of it.
    units
        Units that it may print in, largest first.
    fixed
        True for a share, which prints with a fixed number of decimals; else digits count.
    priced
        False for memory, which moves no price and yet what is possible.
    """

    name: str
    now: float
    low: float
    high: float
    put: Callable[[Problem, float], Problem]
    units: tuple[tuple[str, int | Decimal], ...] = _PLAIN
    fixed: bool = False
    priced: bool = True

    @property
    def size(self) -> Decimal:
        """SI units in what a printed digit counts: only binary units are no power of ten."""
        return Decimal(2**30) if self.units is _SIZES else Decimal(1)

    def text(self, number: Decimal) -> str:
        """Print a number of ``size`` with all of its digits."""
        if self.units is _SIZES:
            return f"{number:f} GiB"
        units = self.units
        unit, size = next((u for u in units if abs(number) >= u[1]), units[-1])
        return f"{number / Decimal(size):f} {unit}".rstrip()

    def about(self, value: float) -> str:
        """Print a value in SI units with four digits at most."""
        return self.text(Decimal(f"{float(Decimal(value) / self.size):.4g}"))


def parameters(problem: Problem) -> Iterator[Parameter]:
    """List every quantity that is looked along, those that people ask about most first."""
    cluster = problem.cluster
    link = cluster.accelerator.link
    if cluster.devices_per_node > 1:
        yield _scaled(
            "links inside a node",
            link.bandwidth,
            lambda before, value: before.with_accelerator(
                link=link.model_copy(update={"bandwidth": round(value)})
            ),
            _RATES,
        )
    if cluster.nodes > 1:
        yield _scaled(
            "network",
            cluster.network,
            lambda before, value: before.with_cluster(network=round(value)),
            _RATES,
        )
    hbm = cluster.accelerator.hbm
    yield Parameter(
        "memory of a device",
        float(hbm),
        hbm / TIMES,
        hbm * TIMES,
        lambda before, value: before.with_accelerator(hbm=round(value)),
        _SIZES,
        priced=False,
    )
    for name, words in CONSTANTS.items():
        yield from _constant(problem, name, words)


def _scaled(
    name: str,
    now: float,
    put: Callable[[Problem, float], Problem],
    units: tuple[tuple[str, int | Decimal], ...],
) -> Parameter:
    """Look from a quarter of a quantity to four times it."""
    return Parameter(name, float(now), now / TIMES, now * TIMES, put, units)


def _constant(problem: Problem, name: str, words: str) -> Iterator[Parameter]:
    """Look along a constant as far as it can go, at most four times as far as it is."""
    reach = UNCERTAIN[name]
    source = problem.calibration
    if problem.prices == "paper" and source.lump is not None:
        own = getattr(source.lump, name, None)
        now = float(getattr(source, name) if own is None else own)
    else:
        now = float(getattr(source, name))

    def put(before: Problem, value: float) -> Problem:
        return with_constants(before, {name: value})

    if reach.most == 1.0 and reach.dimension is None:
        low = now / TIMES if reach.least > 0 else 0.0
        yield Parameter(words, now, max(low, reach.least), 1.0, put, fixed=True)
    elif now > 0:
        low, high = max(reach.least, now / TIMES), min(reach.most, now * TIMES)
        units = _TIMES if reach.dimension == "seconds" else _PLAIN
        yield Parameter(words, now, low, high, put, units)


def touches(problem: Problem, parameter: Parameter, pool: Sequence[Plan]) -> bool:
    """Tell whether a parameter moves the price of any plan of a pool, or what is possible."""
    if not parameter.priced:
        return True
    for end in (parameter.low, parameter.high):
        changed = parameter.put(problem, end)
        for plan in pool:
            now, there = step_seconds(problem, plan), step_seconds(changed, plan)
            if abs(there / now - 1) > MOVES:
                return True
    return False


class Ladder:
    """
    Values on one side of a parameter at which the printed value changes, nearest first.

    Rung 0 is the present value and the last one the end of the range. All others lie half a unit of
    the last printed digit from the values that print.

    Parameters
    ----------
    rising
        True for values above the present one.
    digits
        Digits, or decimals of a share.
    """

    def __init__(self, parameter: Parameter, rising: bool, digits: int) -> None:
        self.parameter, self.rising, self.digits = parameter, rising, digits
        self._size = parameter.size
        self._now = Decimal(repr(parameter.now)) / self._size
        self._end = Decimal(repr(parameter.high if rising else parameter.low)) / self._size
        start, end = self._index(self._now), self._index(self._end)
        step = 1 if rising else -1
        # Boundary i lies above printed value i.
        self._first = start if rising else start - 1
        while (self._boundary(self._first) - self._now) * step <= 0:
            self._first += step
        last = end
        while (self._boundary(last) - self._end) * step >= 0:
            last -= step
        self.rungs = max(0, (last - self._first) * step + 1) + 2

    def exact(self, rung: int) -> Decimal:
        """Value of a rung, in the printed unit."""
        if rung <= 0:
            return self._now
        if rung >= self.rungs - 1:
            return self._end
        return self._boundary(self._first + (rung - 1) * (1 if self.rising else -1))

    def value(self, rung: int) -> float:
        """Value of a rung in SI units."""
        return float(self.exact(rung) * self._size)

    def printed(self, rung: int) -> Decimal:
        """Return the printed value between a rung and the one before it."""
        return self._printed(self._index((self.exact(rung - 1) + self.exact(rung)) / 2))

    def _index(self, value: Decimal) -> int:
        """Count the printed values up to the one nearest to a value."""
        if self.parameter.fixed:
            return round(value.scaleb(self.digits))
        if value <= 0:
            return 0
        base: int = 10 ** (self.digits - 1)
        exponent = value.adjusted() - self.digits + 1
        head = round(value.scaleb(-exponent))
        return int(exponent * 9 * base + head - base)

    def _printed(self, index: int) -> Decimal:
        """Return the printed value with a number."""
        if self.parameter.fixed:
            return Decimal(index).scaleb(-self.digits)
        base = 10 ** (self.digits - 1)
        exponent, head = divmod(index, 9 * base)
        return Decimal(head + base).scaleb(exponent)

    def _boundary(self, index: int) -> Decimal:
        """Value half a unit of the last digit above a printed value."""
        if self.parameter.fixed:
            return (Decimal(index) + Decimal("0.5")).scaleb(-self.digits)
        base = 10 ** (self.digits - 1)
        exponent, head = divmod(index, 9 * base)
        return (Decimal(head + base) + Decimal("0.5")).scaleb(exponent)
