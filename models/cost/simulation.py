"""Pipeline schedules as orders of passes, and the event simulation that says how long they take."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from optplan.models.cost.arrays import Float, largest
from optplan.models.cost.schedule import SPLIT, allowed
from optplan.models.spec.framework import Schedule

Kind = Literal["F", "B", "W"]
"""Forward, backward (towards the input alone where ``SPLIT``), gradients of the weights."""

Op = tuple[Kind, int, int]
"""What a device runs: kind, chunk of the device, micro-batch."""


def place(schedule: Schedule, p: int, device: int, chunk: int) -> int:
    """Tell where in the model a chunk stands: round after round, but in a V on the way back."""
    return 2 * p - 1 - device if schedule == "zb-v" and chunk else chunk * p + device


def order(schedule: Schedule, p: int, v: int, m: int, device: int) -> list[Op]:
    """
    List what a device runs, first to last; it depends on no time.

    Parameters
    ----------
    schedule
        One that ``allowed`` takes with the rest.
    p, v, m
        Stages, chunks per device, micro-batches.
    device
        From 0, which holds the first chunk of the model.
    """
    return [op for op in _ORDERS[schedule](p, v, m, device) if op[2] < m]


def _gpipe(p: int, v: int, m: int, device: int) -> Iterator[Op]:
    """All forwards, then all backwards (Huang et al. 2019, arXiv 1811.06965)."""
    yield from (("F", 0, k) for k in range(m))
    yield from (("B", 0, k) for k in range(m))


def _one_by_one(p: int, v: int, m: int, device: int) -> Iterator[Op]:
    """``p - 1 - device`` forwards, then forward and backward in turn (arXiv 2006.09503)."""
    warm = p - 1 - device
    yield from (("F", 0, k) for k in range(warm))
    for k in range(m):
        yield "F", 0, warm + k
        yield "B", 0, k


def _interleaved(p: int, v: int, m: int, device: int) -> Iterator[Op]:
    """
    Megatron-LM's order: ``p`` micro-batches through a chunk, then through the next.

    Backwards take the chunks from the last to the first. ``2 (p - 1 - device) + (v - 1) p``
    forwards to warm up, then a forward and a backward in turn (Narayanan et al. 2021, arXiv
    2104.04473, section 2.2).
    """
    turns = [(c, r + k) for r in range(0, m, p) for c in range(v) for k in range(p)]
    warm = min(2 * (p - 1 - device) + (v - 1) * p, m * v)
    yield from (("F", c, k) for c, k in turns[:warm])
    for i, (c, k) in enumerate(turns):
        yield from (("F", one, other) for one, other in turns[warm + i : warm + i + 1])
        yield "B", v - 1 - c, k


def _split(warm: int, late: int, m: int) -> Iterator[Op]:
    """Warm up by forwards; then forward, backward and the weights of ``late`` backwards ago."""
    yield from (("F", 0, k) for k in range(warm))
    for k in range(m):
        yield "F", 0, warm + k
        yield "B", 0, k
        if k >= late:
            yield "W", 0, k - late
    yield from (("W", 0, k) for k in range(max(m - late, 0), m))


def _zb_h1(p: int, v: int, m: int, device: int) -> Iterator[Op]:
    """1F1B whose weights wait for ``device`` backwards (Qi et al., arXiv 2401.10241, 2.1)."""
    return _split(p - 1 - device, device, m)


def _zb_h2(p: int, v: int, m: int, device: int) -> Iterator[Op]:
    """Twice as many forwards to warm up, and twice the wait for the weights (2.2 there)."""
    return _split(2 * (p - 1 - device), 2 * device, m)


def _zb_v(p: int, v: int, m: int, device: int) -> Iterator[Op]:
    """
    Two chunks in a V: the first of every device on the way down, the second on the way back.

    After ``2 (p - device) - 1`` forwards of the first chunk, the second joins in; both then take
    turns, weights right behind their backward, until no forward is left; from there the weights
    wait for the last ``device`` backwards of either chunk (section 6 there). Fewer micro-batches
    than ``2 p - 1`` run the same order, with those left out that do not exist.
    """
    most = max(m, 2 * p - 1)
    warm, end = 2 * (p - device) - 1, most - device
    yield from (("F", 0, k) for k in range(warm))
    for k in range(device):
        yield "F", 1, k
        yield "F", 0, warm + k
    ahead, behind = warm + device, p - device
    for k in range(behind):
        yield "F", 1, device + k
        yield "B", 1, k
        yield "W", 1, k
    for k in range(end - behind):
        yield "F", 0, ahead + k
        yield "B", 0, k
        yield "W", 0, k
        yield "F", 1, p + k
        yield "B", 1, behind + k
        yield "W", 1, behind + k
    for k in range(device):
        yield "B", 0, end - behind + k
        yield "B", 1, end + k
    for k in range(behind):
        yield "B", 0, most - behind + k
        yield "W", 0, end - behind + k
    yield from (("W", 1, k) for k in range(end, most))
    yield from (("W", 0, k) for k in range(end, most))


_ORDERS: dict[Schedule, Callable[[int, int, int, int], Iterator[Op]]] = {
    "1f1b": _one_by_one,
    "gpipe": _gpipe,
    "interleaved": _interleaved,
    "zb-h1": _zb_h1,
    "zb-h2": _zb_h2,
    "zb-v": _zb_v,
}


@dataclass(frozen=True)
class Pass:
    """
    One op of one micro-batch on one chunk: who, what, when.

    Parameters
    ----------
    device, chunk, micro_batch
        Counted from 0; a second step counts its micro-batches on.
    kind
        ``F``, ``B`` or ``W``.
    start, end
        Seconds, one or many, as ``simulate`` was asked.
    """

    device: int
    chunk: int
    micro_batch: int
    kind: Kind
    start: Float
    end: Float


def simulate(
    schedule: Schedule,
    forward: Sequence[Sequence[Float]],
    backward: Sequence[Sequence[Float]],
    weight: Sequence[Sequence[Float]],
    micro_batches: int,
    steps: int = 1,
) -> list[Pass]:
    """
    Run a schedule event by event: each op starts when its device is free and its input is there.

    Transfers take no time of their own; nothing waits between steps.

    Parameters
    ----------
    schedule
        One that ``allowed`` takes with the rest.
    forward, backward, weight
        Seconds of one micro-batch, ``[device][chunk]``: numbers, or arrays for as many pipelines
        at once. ``backward`` is the gradient of the input alone; schedules that do not ``SPLIT``
        run ``weight`` right with it, as one ``B``.
    micro_batches
        Of one step.
    steps
        How many steps follow each other.

    Returns
    -------
    list of Pass
        Every op with its times; those of one device in the order it runs them.
    """
    p, v, split = len(forward), len(forward[0]), schedule in SPLIT
    passes: list[Pass] = []
    for device, (kind, chunk, batch), needs, before in _network(
        schedule, p, v, micro_batches, steps
    ):
        ready: Float = passes[needs].end if needs >= 0 else 0.0
        start = largest(ready, passes[before].end) if before >= 0 else ready
        work = {"F": forward, "B": backward, "W": weight}[kind][device][chunk]
        if kind == "B" and not split:
            work = work + weight[device][chunk]
        passes.append(Pass(device, chunk, batch, kind, start, start + work))
    return passes


@lru_cache(maxsize=512)
def _network(
    schedule: Schedule, p: int, v: int, m: int, steps: int
) -> tuple[tuple[int, Op, int, int], ...]:
    """
    List every op after those it waits for: device, op, which it needs and which runs before it.

    Both are places in the list, -1 for none.
    """
    if not allowed(schedule, p, v, m):
        raise ValueError(f"{schedule} does not run p={p}, v={v}, m={m}")
    at = {place(schedule, p, d, c): (d, c) for d in range(p) for c in range(v)}
    todo = [
        [(kind, c, k + s * m) for s in range(steps) for kind, c, k in order(schedule, p, v, m, d)]
        for d in range(p)
    ]
    done: dict[tuple[int, Op], int] = {}
    listed: list[tuple[int, Op, int, int]] = []
    turn, last = [0] * p, [-1] * p
    while len(listed) < sum(map(len, todo)):
        found = len(listed)
        for d in range(p):
            while turn[d] < len(todo[d]):
                op = todo[d][turn[d]]
                asked = _needs(at, place(schedule, p, d, op[1]), op)
                if asked is not None and asked not in done:
                    break
                done[d, op] = len(listed)
                listed.append((d, op, -1 if asked is None else done[asked], last[d]))
                last[d] = done[d, op]
                turn[d] += 1
        if len(listed) == found:
            raise AssertionError(f"{schedule} waits for ever at p={p}, v={v}, m={m}")
    return tuple(listed)


def _needs(at: dict[int, tuple[int, int]], stage: int, op: Op) -> tuple[int, Op] | None:
    """Name the op whose result an op of a stage waits for; None for the first."""
    kind, chunk, batch = op
    if kind == "W":
        return at[stage][0], ("B", chunk, batch)
    if kind == "B" and stage + 1 not in at:
        return at[stage][0], ("F", chunk, batch)
    other = at.get(stage + 1 if kind == "B" else stage - 1)
    return None if other is None else (other[0], (kind, other[1], batch))


def step_seconds(passes: Sequence[Pass], barrier: bool = False) -> Float:
    """
    Read a step's seconds off its passes.

    Parameters
    ----------
    passes
        Of one step.
    barrier
        Whether all devices wait for the last before the next step, as they do for a norm of all
        gradients: then from the first start to the last end. Otherwise the longest that a device
        is at it, from its own first start to its own last end, which is what Qi et al. (arXiv
        2401.10241, section 5) call the cost: steps can follow each other that fast, each device
        starting the next when it is done.
    """
    first: dict[int, Float] = {}
    last: dict[int, Float] = {}
    for event in passes:
        first.setdefault(event.device, event.start)
        last[event.device] = event.end
    longest: Float = 0.0
    for device, end in last.items():
        longest = largest(longest, end if barrier else end - first[device])
    return longest


def held(schedule: Schedule, p: int, v: int, m: int, device: int, until: Kind = "W") -> int:
    """
    Count the most activations that a device holds at once, in chunks of one micro-batch.

    Each is held from the start of its forward to the end of its backward, or of its weights. As a
    device runs one op at a time in a fixed order, no time enters.

    Parameters
    ----------
    schedule, p, v, m, device
        As ``order`` takes them.
    until
        ``B`` or ``W``; one thing where the schedule does not ``SPLIT``.
    """
    alive = most = 0
    free = until if schedule in SPLIT else "B"
    for kind, _, _ in order(schedule, p, v, m, device):
        alive += (kind == "F") - (kind == free)
        most = max(most, alive)
    return most
