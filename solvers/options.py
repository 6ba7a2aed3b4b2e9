"""Pipelines that points may have: what is known of them, and what is yet to be handed out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import floor

import numpy as np

from optplan.models.columns import FULL, PARTIAL, READS, Columns
from optplan.models.program import Fits, Pipeline, Program, Row, follows
from optplan.models.stages import Share
from optplan.solvers.settle import Point, Settler, share_fixed
from optplan.solvers.stages import Shared

SAFE = 1 - 1e-9
"""Share of a bound found in floats that a model may rest on."""


@dataclass(frozen=True)
class Option:
    """
    One pipeline that a selector stands for.

    Parameters
    ----------
    place
        Its point's place.
    share
        What is handed out.
    handed
        What is known to be handed out; None where that is to be found.
    layers
        Layers of every stage, where only recomputation is to be found.
    """

    place: int
    share: Share
    handed: Shared | None
    layers: tuple[int, ...] | None = None


def known(shared: Shared, peak: int, room: int) -> Share:
    """Write a way of sharing out that is known already as a pipeline that has no other."""
    nothing = dict.fromkeys(
        ("turns", "layer", "again", "front", "back", "once_layer", "once_front", "once_back"), 0
    )
    empty = dict.fromkeys(
        ("state_layer", "state_back", "kept", "saved", "working", "working_last", "inside"), 0
    )
    return Share(
        stages=1,
        layers=1,
        least=1,
        most=1,
        least_first=1,
        mode=0,
        fixed=shared.step,
        room=max(room, peak),
        state_front=peak,
        flight_first=1,
        flight_slope=0,
        flight_most=1,
        **nothing,
        **empty,
    )


def ways(settler: Settler, at: Point, room: int, every: bool) -> Iterator[tuple[Shared, int]]:
    """Yield ways to recompute where layers are fixed, and the bytes of each beside the reserve."""
    pipeline = settler.pipeline
    if at["free"]:
        found = share_fixed(pipeline, at, room)
        if found is not None:
            yield found, found.peak
        return
    code, chunk = at["recompute"], at["chunk"]
    each = range(chunk + 1) if code == PARTIAL else [chunk if code == FULL else 0]
    several = np.array(list(each), dtype=np.int64)
    columns = Columns({n: np.full(len(several), at[n], dtype=np.int64) for n in READS})
    steps, peaks = pipeline.uniform_many(columns, several), pipeline.peak_many(columns, several)
    layers = pipeline.fixed_layers(at)
    for few, step, peak in zip(several.tolist(), steps.tolist(), peaks.tolist(), strict=True):
        if peak + at["fetched"] <= room:
            again = layers if code == FULL else pipeline.again_of(at, few)
            yield Shared(floor(step), int(peak), layers, again), int(peak)
            if not every:
                return


def least_step(share: Share) -> int:
    """Ticks below which no step falls: what is largest is never below the mean of the stages."""
    again = share.layers * (share.mode == 2)
    busy = share.layer * share.layers + share.again * again + share.front + share.back
    once = share.once_layer * share.layers + share.once_front + share.once_back
    mean, mean_once = -(-busy // share.stages), -(-once // share.stages)
    return share.turns * mean + busy + mean_once + share.fixed


def passing(program: Program, points: Sequence[Point]) -> list[int]:
    """Places of the points that break no row that is asked before layers are handed out."""
    late = Settler(program).late
    early = [
        s
        for s in program.statements
        if s not in late
        and not isinstance(s, Pipeline | Fits)
        and (s.defines or isinstance(s, Row))
    ]
    return [place for place, at in enumerate(points) if follows(early, dict(at))]
