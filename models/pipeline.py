"""The pipeline of a program: layers handed out to stages, in whole numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import comb, prod
from typing import TypeVar

import numpy as np

from optplan.models.columns import FULL, PARTIAL, READS, Columns, Integers
from optplan.models.pipeline_many import Many
from optplan.models.stages import ALIKE, Share

Whole = TypeVar("Whole", int, Integers)
"""One whole number, or a column of them: a formula of sums and products serves both."""

_SAME = (
    *("layer", "again", "front", "back", "once_layer", "once_front", "once_back"),
    *("kept", "saved", "inside", "flight_first", "flight_slope"),
)
"""What a share and a point call alike."""


def handed(layers: Sequence[int], again: Sequence[int]) -> dict[str, int]:
    """Write what every stage holds and recomputes the way an assignment carries it."""
    return {f"layers[{i}]": n for i, n in enumerate(layers)} | {
        f"again[{i}]": n for i, n in enumerate(again)
    }


def handed_of(at: Mapping[str, int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """
    Read what every stage holds and recomputes from an assignment.

    Raises
    ------
    KeyError
        The assignment does not say what is handed out.
    """
    stages = range(at["pp"])
    return tuple(at[f"layers[{i}]"] for i in stages), tuple(at[f"again[{i}]"] for i in stages)


def alike(layers: Sequence[int], again: Sequence[int]) -> bool:
    """Tell whether every stage recomputes as many layers, or all of fewer."""
    most = max(again)
    return all(r == min(most, n) for n, r in zip(layers, again, strict=True))


def less_ends(pp: int, each: int, first: int, last: int, folded: bool) -> tuple[int, ...]:
    """Take something off the stages that hold the first and the last chunk, equal otherwise."""
    stages = [each] * pp
    stages[0] -= first
    stages[0 if folded else pp - 1] -= last
    return tuple(stages)


@dataclass(frozen=True)
class Pipeline(Many):
    """
    Defines the time and the memory of a step from layers handed out to stages.

    What is handed out is no choice of the program's own: an assignment may carry it as
    ``layers[i]`` and ``again[i]``, and an engine that finds a point finds it too.

    With ``free`` 1 every stage takes any number of layers and recomputes any number of them
    (`Share`). With ``free`` 0 the layers are fixed: ``vpp`` chunks of ``chunk`` layers on every
    stage, the first and the last one ``light_first`` and ``light_last`` layers short (both on the
    first stage where ``folded``), and every chunk recomputes the same number ``r``. Then a step
    takes

        ``m v (chunk layer + r again) + idle + m (over_front + over_back + hop_steady) + hop_fill``

    and what is paid once, where ``over`` is what an end takes beyond a chunk and ``idle`` the
    largest of some linear forms in a chunk's forward pass, input and weight gradients.

    Parameters
    ----------
    name
        What the definition is called.
    layers
        Layers to hand out.
    least_first
        Fewest layers of the first stage.
    paper
        True where every stage is as slow as the slowest, as Eq. 1 of arXiv 2501.00254 has it.
    even
        True where stages that are free to recompute still hold the fixed numbers of layers.
    alike
        True where stages that may hold any number of layers recompute as many each, or all they
        have.
    room
        Bytes of a device beside the reserve.
    reserve
        Bytes of a device that no part of a plan may use; they count towards the peak.
    most
        Ticks at which the time of a step is cut off.
    most_bytes
        Bytes at which the peak is cut off.
    idle
        By the code of the schedule, forms ``(f1, f0, b1, b0, w1, w0)``: ``f1 (p - 1) + f0`` times
        the forward pass of a chunk, and so on.
    few
        By the code of the schedule, ``(n1, n0, k)``: with fewer micro-batches than ``n1 (p - 1) +
        n0`` the idle time is ``k (p - 1)`` times forward and input gradient.
    """

    name: str
    layers: int
    least_first: int
    even: bool
    alike: bool
    given: tuple[int, ...]
    paper: bool
    room: int
    reserve: int
    most: int
    most_bytes: int
    idle: tuple[tuple[tuple[int, ...], ...], ...]
    few: tuple[tuple[int, int, int], ...]

    defines = ("step_ticks", "peak_bytes")

    @property
    def reads(self) -> tuple[str, ...]:
        """Columns that this statement looks at."""
        return READS

    def __str__(self) -> str:
        """Render with what is fixed."""
        how = (
            f"as {' '.join(map(str, self.given))}" if self.given else "even" if self.even else "any"
        )
        return (
            f"step_ticks, peak_bytes := pipeline of {self.layers} layers, {how}, "
            f"{'recomputed alike, ' if self.alike else ''}"
            f"at least {self.least_first} first, room {self.room} beside {self.reserve}"
        )

    # -- one point -------------------------------------------------------------------------------

    def share(self, at: Mapping[str, int], room: int | None = None) -> Share:
        """Return the free pipeline of one point."""
        return Share(
            layers=self.layers,
            least=1,
            most=self.layers,
            least_first=max(1, self.least_first),
            room=(self.room if room is None else room) - at["fetched"],
            working=0,
            **self.share_parts(at, min(at["micro_batches"], at["flight_first"])),
        )

    def share_parts(self, at: Mapping[str, Whole], first_flying: Whole) -> dict[str, Whole]:
        """
        Return what a `Share` takes from a point, of one point or of many.

        Parameters
        ----------
        at
            Values of the columns read.
        first_flying
            Micro-batches that the first stage holds at once.
        """
        m, p = at["micro_batches"], at["pp"]
        partly = ALIKE if self.alike else 1
        # What makes the slowest of equal stages, both ends on it, of every one: Eq. 1 has it so.
        front, several = at["front"], (p > 1) * self.paper
        as_slow = (p - 1) * at["back"] * self.paper
        as_slow = as_slow + several * (p * front * (front > 0) - front)
        as_slow = as_slow + several * (m - 1) * at["back"] * (front > 0)
        return {
            "stages": p,
            "mode": (at["recompute"] == PARTIAL) * partly + (at["recompute"] == FULL) * 2,
            "turns": m - 1,
            **{name: at[name] for name in _SAME},
            "fixed": at["once_fixed"] + at["hop_fill"] + m * at["hop_steady"] + as_slow,
            "state_layer": at["weights_layer"] + at["optimizer_layer"],
            "state_front": at["weights_front"]
            + at["optimizer_front"]
            + first_flying * at["kept_front"],
            "state_back": at["weights_back"] + at["optimizer_back"] + at["kept_back"],
            "working_last": at["logits"],
            "flight_most": m,
        }

    def fixed_layers(self, at: Mapping[str, int]) -> tuple[int, ...]:
        """Layers of each stage of one point whose layers are fixed."""
        if self.given:
            return self.given
        each, light = at["vpp"] * at["chunk"], (at["light_first"], at["light_last"])
        return less_ends(at["pp"], each, *light, bool(at["folded"]))

    def is_fixed(self, at: Mapping[str, int]) -> bool:
        """Tell whether a point's layers are fixed."""
        return not at["free"] or self.even or bool(self.given)

    def again_of(self, at: Mapping[str, int], each: int) -> tuple[int, ...]:
        """Layers that each stage of equal chunks recomputes, ``each`` of every chunk."""
        first, last = (
            max(0, each - (at["chunk"] - at[light])) for light in ("light_first", "light_last")
        )
        return less_ends(at["pp"], at["vpp"] * each, first, last, bool(at["folded"]))

    def uniform(self, at: Mapping[str, int], each: int) -> tuple[int, int]:
        """Ticks and bytes (reserve included) of one point that is not free."""
        columns = Columns({name: np.array([at[name]], dtype=np.int64) for name in READS})
        few = np.array([each], dtype=np.int64)
        peak = self.peak_many(columns, few)
        whole = int(peak[0]) + self.reserve + at["fetched"]
        return int(self.uniform_many(columns, few)[0]), whole

    def value(self, at: Mapping[str, int]) -> dict[str, int]:
        """
        Compute time and memory of a point that carries what is handed out.

        Raises
        ------
        KeyError
            The point does not say what is handed out.
        """
        layers, again = handed_of(at)
        if at["free"]:
            share = self.share(at)
            step = share.step(layers, again)
            peak = share.peak(layers, again) + self.reserve + at["fetched"]
        else:
            step, peak = self.uniform(at, -(-max(again) // at["vpp"]))
        return {"step_ticks": min(step, self.most), "peak_bytes": min(peak, self.most_bytes)}

    def holds(self, at: Mapping[str, int]) -> bool:
        """Tell whether what a point carries hands out every layer; `Fits` asks for the room."""
        layers, again = handed_of(at)
        sound = sum(layers) == self.layers and all(
            0 <= r <= n for r, n in zip(again, layers, strict=True)
        )
        sound = sound and layers[0] >= self.least_first
        if at["recompute"] == FULL:
            sound = sound and again == layers
        elif at["recompute"] != PARTIAL:
            sound = sound and not any(again)
        elif self.alike and at["free"]:
            sound = sound and alike(layers, again)
        if self.is_fixed(at):
            sound = sound and layers == self.fixed_layers(at)
        else:
            sound = sound and min(layers) >= 1
        return sound

    def ways(self, pp: int, vpp: int, free: bool, recompute: int) -> int:
        """
        Count the ways to hand out the layers of a point, memory no object.

        Examples
        --------
        Two layers on two stages, any of them recomputed: one way to share them out, four to choose
        those to recompute.
        """
        total = self.layers
        if not free:
            return -(-total // (pp * vpp)) + 1 if recompute == PARTIAL else 1
        fixed = self.even or bool(self.given)
        if recompute != PARTIAL:
            return 1 if fixed else comb(total - 1, pp - 1)
        held = self.given or tuple(total // pp + (i < total % pp) for i in range(pp))
        if self.alike:
            return max(held) + 1 if fixed else _alike_ways(total, pp)
        if fixed:
            return prod(n + 1 for n in held)
        # Coefficient of x^L in (1 / (1 - x)^2 - 1)^p: each stage takes l layers in l + 1 ways.
        signs = ((-1) ** (pp - k) * comb(pp, k) for k in range(pp + 1))
        terms = (comb(total + 2 * k - 1, total) if k else 0 for k in range(pp + 1))
        return sum(sign * term for sign, term in zip(signs, terms, strict=True))


def _alike_ways(total: int, pp: int) -> int:
    """Count hand-outs of layers, each as often as numbers of them can be recomputed everywhere."""

    def within(most: int) -> int:
        """Hand-outs in which no stage holds more."""
        signs = ((-1) ** k * comb(pp, k) for k in range(pp + 1))
        left = (total - k * most - 1 for k in range(pp + 1))
        return sum(s * comb(n, pp - 1) for s, n in zip(signs, left, strict=True) if n >= pp - 1)

    # One with a largest stage of n layers has n + 1 numbers: it is counted for each 0 <= k <= n.
    every = comb(total - 1, pp - 1)
    return every + sum(every - within(k) for k in range(total))


@dataclass(frozen=True)
class Fits:
    """
    Demands that some way of handing out the layers keeps some parts of every stage within the room.

    Parameters
    ----------
    name
        Rule.
    pipeline
        What is handed out.
    parts
        What counts, of `PARTS`.
    """

    name: str
    pipeline: Pipeline
    parts: tuple[str, ...]

    defines = ()

    @property
    def reads(self) -> tuple[str, ...]:
        """Columns that this statement looks at."""
        return READS

    def __str__(self) -> str:
        """Render with the parts."""
        return f"fits {' + '.join(self.parts)} in {self.pipeline.room}"

    def part(self, at: Mapping[str, Whole]) -> dict[str, Whole]:
        """Return one point or many with the parts that do not count set to nothing."""
        nothing = 0 * at["pp"]
        known = dict(at)
        for part in ("weights", "optimizer"):
            if part not in self.parts:
                known |= {f"{part}_{end}": nothing for end in ("layer", "front", "back")}
        if "activations" not in self.parts:
            moment = ("kept", "saved", "kept_front", "kept_back", "fetched", "logits", "inside")
            known |= dict.fromkeys(moment, nothing)
        return known

    def holds(self, at: Mapping[str, int]) -> bool:
        """Tell whether what a point carries keeps within the room."""
        known = self.pipeline.value(self.part(at))
        return known["peak_bytes"] <= self.pipeline.room + self.pipeline.reserve
