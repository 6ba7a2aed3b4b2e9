"""The time line of a pipeline: boxes, what is left out, and the figures beside it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from math import floor, log10
from typing import NamedTuple

from optplan.models.cost.estimate import chunk_passes
from optplan.models.cost.price import Estimate
from optplan.models.cost.schedule import SPLIT, allowed
from optplan.models.cost.simulation import Pass
from optplan.models.spec.plan import Plan
from optplan.models.spec.problem import Problem
from optplan.models.units import seconds_text
from optplan.report.html.pipeline import Run, run
from optplan.report.html.words import KINDS

MOST_BOXES = 3000
"""Boxes drawn; of more, as many each from the beginning, the middle and the end."""

MOST_LANES = 48
"""Stages drawn; of more, the first and the last half of so many."""

WIDE = 100_000
"""Units of the drawing's width."""

GAP = 2_000
"""Units of what is left out between two windows."""

APART = 9.0
"""Percent of the width between two ticks, at least."""

PARTED = 40
"""Units of room between two boxes, at most."""

LANE = 20
"""Units of a lane's height."""


@dataclass(frozen=True)
class Window:
    """A piece of the time axis: units ``x0`` to ``x1`` show seconds ``t0`` to ``t1``."""

    x0: int
    x1: int
    t0: float
    t1: float

    def x(self, seconds: float) -> int:
        """Place of a moment."""
        share = (seconds - self.t0) / (self.t1 - self.t0) if self.t1 > self.t0 else 0.0
        return round(self.x0 + (self.x1 - self.x0) * min(1.0, max(0.0, share)))


class Box(NamedTuple):
    """One pass: lane, kind, chunk and micro-batch by number, place and width in units."""

    lane: int
    kind: int
    chunk: int
    micro_batch: int
    x: int
    width: int


@dataclass(frozen=True)
class Tick:
    """A mark of the time axis, in percent."""

    x: float
    label: str


@dataclass(frozen=True)
class Line:
    """
    The drawing.

    Parameters
    ----------
    lanes
        Numbers of the stages, top to bottom; -1 where some are left out.
    paths
        One SVG path for each kind of pass.
    data
        What a hover needs beyond the paths: ``lanes``, ``chunks``, ``kinds``; of every lane and
        kind the ``order`` of its boxes (chunk times ``most`` and micro-batch), the ``seconds`` by
        chunk and kind, and the ``windows`` of the axis.
    gaps
        Place and width of what is left out, in percent.
    """

    lanes: tuple[int, ...]
    height: int
    paths: tuple[tuple[str, str], ...]
    ticks: tuple[Tick, ...]
    gaps: tuple[tuple[float, float], ...]
    data: dict[str, object]
    notes: tuple[str, ...]
    lead: str


def line(problem: Problem, plan: Plan, estimate: Estimate) -> Line | None:
    """Draw a plan's pipeline; none where it cannot be simulated."""
    simulated = run(problem, plan)
    if simulated is None:
        return None
    lanes = _lanes(plan.pp)
    row = {stage: i for i, stage in enumerate(lanes) if stage >= 0}
    passes = sorted(
        (one for one in simulated.passes if one.device in row and one.end > one.start),
        key=lambda one: (one.start, one.device),
    )
    windows = _windows(passes, simulated.seconds)
    boxes: list[Box] = [
        box for one in passes if (box := _box(one, row[one.device], windows)) is not None
    ]
    drawn = [(kind, _path(boxes, i)) for i, kind in enumerate(KINDS)]
    gaps = tuple(
        (round(100 * left.x1 / WIDE, 3), round(100 * (right.x0 - left.x1) / WIDE, 3))
        for left, right in pairwise(windows)
    )
    return Line(
        lanes,
        LANE * len(lanes),
        tuple((kind, path) for kind, path in drawn if path),
        tuple(_ticks(windows)),
        gaps,
        _data(problem, plan, lanes, boxes, windows),
        tuple(_notes(plan, estimate, simulated, windows)),
        _lead(plan, estimate, simulated),
    )


def why_none(plan: Plan) -> str:
    """Say why there is no drawing."""
    if allowed(plan.schedule, plan.pp, plan.vpp, plan.micro_batches):
        return f"Not drawn: {plan.pp:,} stages are too many to simulate pass by pass."
    return (
        f"Not drawn: {plan.schedule} does not run {plan.micro_batches:,} micro-batches on "
        f"{plan.pp:,} stages with {plan.vpp:,} chunks each."
    )


def _lanes(stages: int) -> tuple[int, ...]:
    """Choose the stages to draw."""
    if stages <= MOST_LANES:
        return tuple(range(stages))
    half = MOST_LANES // 2
    return (*range(half), -1, *range(stages - half, stages))


def _windows(passes: list[Pass], seconds: float) -> list[Window]:
    """Show the whole step, or as much of its beginning, middle and end as there are boxes for."""
    whole = [Window(0, WIDE, 0.0, seconds)]
    if len(passes) <= MOST_BOXES:
        return whole
    some = MOST_BOXES // 3
    starts, ends = [float(one.start) for one in passes], sorted(float(one.end) for one in passes)
    half = len(passes) // 2
    shown = [
        (0.0, starts[some]),
        (starts[half - some // 2], starts[half + some // 2]),
        (ends[-some], seconds),
    ]
    if any(left >= right for (_, left), (right, _) in pairwise(shown)):
        return whole
    room = (WIDE - 2 * GAP) / sum(t1 - t0 for t0, t1 in shown)
    found: list[Window] = []
    x = 0
    for t0, t1 in shown:
        wide = round(room * (t1 - t0))
        found.append(Window(x, x + wide, t0, t1))
        x += wide + GAP
    return found


def _box(one: Pass, lane: int, windows: list[Window]) -> Box | None:
    """Place one pass; none where it lies in what is left out."""
    start, end = float(one.start), float(one.end)
    at = next((w for w in windows if start < w.t1 and end > w.t0), None)
    if at is None:
        return None
    x0, x1 = at.x(start), at.x(end)
    return Box(lane, list(KINDS).index(one.kind), one.chunk, one.micro_batch, x0, max(1, x1 - x0))


def _path(boxes: list[Box], kind: int) -> str:
    """Write the boxes of one kind as strokes, a little shorter than they are to part them."""
    return "".join(
        f"M{b.x} {b.lane * LANE + LANE // 2}h{max(1, b.width - min(PARTED, b.width // 8))}"
        for b in boxes
        if b.kind == kind
    )


def _data(
    problem: Problem,
    plan: Plan,
    lanes: tuple[int, ...],
    boxes: list[Box],
    windows: list[Window],
) -> dict[str, object]:
    """Pack what a hover needs."""
    times = chunk_passes(problem, plan)
    split = plan.schedule in SPLIT
    most = plan.micro_batches
    order: list[list[list[int]]] = [[[] for _ in KINDS] for _ in lanes]
    for b in boxes:
        order[b.lane][b.kind].append(b.chunk * most + b.micro_batch)
    seconds = [
        [
            float(f"{one:.3g}")
            for forward, backward, weight in (times[stage] if stage >= 0 else [])
            for one in (forward, backward if split else backward + weight, weight)
        ]
        for stage in lanes
    ]
    return {
        "order": order,
        "most": most,
        "chunks": plan.vpp,
        "kinds": list(KINDS.values()),
        "lanes": lanes,
        "seconds": seconds,
        "windows": [[w.x0, w.x1, w.t0, w.t1] for w in windows],
    }


def _ticks(windows: list[Window]) -> list[Tick]:
    """Mark round times, about eight over the whole width."""
    shown = sum(window.t1 - window.t0 for window in windows)
    if shown <= 0:
        return []
    raw = shown / 7
    scale = 10.0 ** floor(log10(raw))
    step = next(scale * n for n in (1, 2, 5, 10) if scale * n >= raw)
    found: list[Tick] = []
    for window in windows:
        number = -(-window.t0 // step) if window.t0 else 0.0
        while number * step <= window.t1:
            seconds = number * step
            x = round(100 * window.x(seconds) / WIDE, 3)
            if x <= 92 and (not found or x - found[-1].x >= APART):
                found.append(Tick(x, seconds_text(float(f"{seconds:.6g}"))))
            number += 1
    return found


def _lead(plan: Plan, estimate: Estimate, simulated: Run) -> str:
    """Say how busy the pipeline is."""
    busy = [0.0] * plan.pp
    for one in simulated.passes:
        busy[one.device] += float(one.end - one.start)
    slowest = max(range(plan.pp), key=busy.__getitem__)
    most, least = max(busy) / simulated.seconds, min(busy) / simulated.seconds
    if plan.pp == 1:
        return "One stage: micro-batch after micro-batch, nothing to wait for."
    return (
        f"Stage {slowest} works {most:.1%} of the time, the least busy stage {least:.1%}. "
        "Where a lane is empty, the stage waits."
    )


def priced_seconds(plan: Plan, estimate: Estimate) -> float:
    """
    Price of the passes alone: those of the slowest stage, and the bubble.

    What a micro-batch exchanges of weights (ZeRO 2 and 3) is inside; transfers between stages and
    what comes once a step are not.
    """
    slowest = max(use.micro_batch_seconds for use in estimate.memory.stages)
    return plan.micro_batches * slowest + estimate.terms["TB"]


def _notes(plan: Plan, estimate: Estimate, simulated: Run, windows: list[Window]) -> list[str]:
    """Say what is drawn, what is not, and how it compares with the price."""
    priced = priced_seconds(plan, estimate)
    more = max(0.0, estimate.step_seconds - priced)
    notes = []
    if simulated.micro_batches < simulated.of:
        longest = max(use.micro_batch_seconds for use in estimate.memory.stages)
        notes.append(
            f"Simulated with {simulated.micro_batches:,} of {simulated.of:,} micro-batches: each "
            f"further one repeats the steady pattern and takes about {seconds_text(longest)}."
        )
    else:
        notes.append(
            f"The simulation takes {seconds_text(simulated.seconds)}; the price of the same "
            f"passes in the step time is {seconds_text(priced)}."
        )
    if len(windows) > 1:
        left = sum(right.t0 - before.t1 for before, right in pairwise(windows))
        notes.append(
            f"Shown are beginning, middle and end. Left out between them (hatched): "
            f"{seconds_text(left)}, in which the pattern repeats. optplan report --trace writes "
            "every pass that was simulated."
        )
    if plan.pp > MOST_LANES:
        notes.append(f"Left out: {plan.pp - MOST_LANES} stages in the middle.")
    notes.append(
        "Not drawn: transfers between stages (TCP) and what comes once a step, the exchange of "
        f"gradients (TCD, TAD) and the optimizer (T_opt); {seconds_text(more)} together."
    )
    return notes
