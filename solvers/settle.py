"""Points whose layers are yet to be handed out, many at once: bounds, and exact answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from optplan.models.columns import FULL, PARTIAL, PARTS, READS, Columns
from optplan.models.pipeline import Pipeline, handed
from optplan.models.program import Fits, Integers, Program, Row, row_holds, value
from optplan.models.stages import ALIKE, Share
from optplan.solvers.base import rank, ratio
from optplan.solvers.grid import Mask
from optplan.solvers.late import Late
from optplan.solvers.stages import Shared, first_enough, least_room, share_out
from optplan.solvers.stages_many import NEVER, Shares, fit_many, memory_bound

ENDLESS = 2**60
"""Bytes beside the reserve where no rule asks for room."""

Reals = NDArray[np.float64]
Point = dict[str, int]


def shares_of(pipeline: Pipeline, c: Mapping[str, Integers], room: Integers | int) -> Shares:
    """Gather the free pipelines of many points; columns are flat."""
    n = len(c["pp"])
    first_flying: Integers = np.minimum(c["micro_batches"], c["flight_first"])
    # Where layers are fixed and equal, no stage may hold more or less.
    equal = pipeline.even & (c["light_first"] + c["light_last"] == 0)
    each = np.where(c["pp"] == 1, pipeline.layers, c["chunk"])
    least = np.where(equal, each, 1)
    return Shares(
        layers=pipeline.layers,
        least=least,
        most=np.where(equal, each, pipeline.layers),
        least_first=np.maximum(least, max(1, pipeline.least_first)),
        room=np.broadcast_to(np.asarray(room, dtype=np.int64), (n,)) - c["fetched"],
        working=np.zeros(n, dtype=np.int64),
        **pipeline.share_parts(c, first_flying),
    )


def fitting(statement: Fits, columns: Mapping[str, Integers]) -> Mask:
    """Tell for many points whether some way of handing out layers keeps within the room."""
    pipeline = statement.pipeline
    c = statement.part(columns)
    ok: Mask = np.zeros(len(c["pp"]), dtype=bool)
    free = np.flatnonzero(c["free"] == 1)
    if len(free):
        some = {n: c[n][free] for n in READS}
        ok[free] = _free_fit(pipeline, some)
    bound = np.flatnonzero(c["free"] == 0)
    if len(bound):
        some = Columns({n: c[n][bound] for n in READS})
        ok[bound] = pipeline.least_again(some, float(pipeline.room)) < 2.0**60
    return ok


def _free_fit(pipeline: Pipeline, some: Mapping[str, Integers]) -> Mask:
    """Tell for many free pipelines whether layers can be handed out within the room."""
    ok = fit_many(shares_of(pipeline, some, pipeline.room))
    if not pipeline.even and not pipeline.given:
        return ok
    # Equal layers are bounds of the shares already; those short of a layer are asked one by one.
    short = some["light_first"] + some["light_last"] > 0
    for i in np.flatnonzero(ok & (short | bool(pipeline.given))).tolist():
        at = {name: int(column[i]) for name, column in some.items()}
        ok[i] = share_fixed(pipeline, at, pipeline.room) is not None
    return ok


def share_fixed(pipeline: Pipeline, at: Point, room: int) -> Shared | None:
    """Hand out layers that are fixed, every stage recomputing as little as its room allows."""
    share, layers = pipeline.share(at, room), pipeline.fixed_layers(at)
    if len(layers) != share.stages or min(layers) < 0:
        return None
    if share.mode == ALIKE:
        return _alike_fixed(share, layers)
    again = []
    for stage, held in enumerate(layers):
        few = _recomputed(share, stage, held)
        if few is None:
            return None
        again.append(few)
    shared = tuple(again)
    return Shared(share.step(layers, shared), share.peak(layers, shared), layers, shared)


def _alike_fixed(share: Share, layers: tuple[int, ...]) -> Shared | None:
    """Recompute as few layers as will do, as many on every stage; more only take longer."""
    for each in range(max(layers) + 1):
        again = tuple(min(each, held) for held in layers)
        if all(
            share.held(i, *pair) <= share.room
            for i, pair in enumerate(zip(layers, again, strict=True))
        ):
            return Shared(share.step(layers, again), share.peak(layers, again), layers, again)
    return None


def _recomputed(share: Share, stage: int, held: int) -> int | None:
    """Count the fewest layers that a stage has to recompute; None where no number will do."""
    few = held if share.mode == 2 else 0
    if share.mode == 1 and share.held(stage, held, 0) > share.room:
        few = first_enough(1, held, lambda some: share.held(stage, held, some) <= share.room)
    return few if few <= held and share.held(stage, held, few) <= share.room else None


@dataclass
class Settler:
    """
    Gives points their exact time and memory.

    Parameters
    ----------
    program
        A program with a pipeline.
    """

    program: Program
    _known: dict[tuple[Share, int | None], Shared | None] = field(default_factory=dict)

    @cached_property
    def pipeline(self) -> Pipeline:
        """How layers are handed out."""
        assert self.program.pipeline is not None
        return self.program.pipeline

    @cached_property
    def late(self) -> Late:
        """What is asked after that."""
        return Late(self.program)

    @cached_property
    def room(self) -> int:
        """Bytes beside the reserve that the program's rules leave: endless where none asks."""
        asked = any(isinstance(s, Fits) and s.parts == PARTS for s in self.program.statements)
        return self.pipeline.room if asked else ENDLESS

    @property
    def headroom(self) -> bool:
        """Whether memory is to be small, rather than time."""
        return self.program.goal.of == "peak_bytes"

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """Columns that points have to carry."""
        read = {c for s in self.late.statements for c in s.reads}
        early = {n for s in self.program.statements for n in s.defines} | set(self.program.domain)
        late = {n for s in self.late.statements for n in s.defines} | set(self.pipeline.defines)
        if self.program.goal.times:
            read.add(self.program.goal.times)
        named = [*READS, *self.program.domain, *sorted((read & early) - late)]
        return tuple(dict.fromkeys(named))

    def rooms(self, c: Mapping[str, Integers]) -> Integers:
        """Bytes beside the reserve that a rule or a limit of the user's leaves to each point."""
        reserve = self.pipeline.reserve
        return self._most(c, "peak_bytes", self.room + reserve) - reserve

    def longest(self, c: Mapping[str, Integers]) -> Integers:
        """Ticks that a limit of the user's leaves to each point."""
        return self._most(c, "step_ticks", self.pipeline.most)

    def _most(self, c: Mapping[str, Integers], of: str, known: int) -> Integers:
        """Lower what is known of a quantity's most to what limits of the user's leave of it."""
        most = np.full(len(c["pp"]), known, dtype=np.int64)
        for row in self.late.easy:
            factor = sum(k for k, name in row.terms if name == of)
            if factor:
                rest = sum(
                    (k * c[name] for k, name in row.terms if name != of),
                    start=np.zeros_like(most),
                )
                assert row.high is not None
                most = np.minimum(most, (row.high - rest) // factor)
        return most

    def bounds(self, c: Mapping[str, Integers]) -> tuple[Reals, Mask]:
        """
        Bound goals from below with memory in mind, in program units.

        Returns
        -------
        tuple
            Bounds, and whether any way of handing out layers fits at all.
        """
        n = len(c["pp"])
        step, fits = np.zeros(n), np.ones(n, dtype=bool)
        room = self.rooms(c)
        free = np.flatnonzero(c["free"] == 1)
        if len(free):
            some = {name: c[name][free] for name in READS}
            low = memory_bound(shares_of(self.pipeline, some, room[free]))
            fits[free] = low < NEVER
            step[free] = low
        bound = np.flatnonzero(c["free"] == 0)
        if len(bound):
            some = Columns({name: c[name][bound] for name in READS})
            each = self.pipeline.least_again(some, room[bound].astype(np.float64))
            fits[bound] = each < 2.0**60
            few = np.where(fits[bound], each, 0).astype(np.int64)
            exact = self.pipeline.uniform_many(some, few)
            step[bound] = exact * (1 - 1e-12)
        fits &= step <= self.longest(c)
        if self.headroom:
            peak = self.pipeline.quick_peak(Columns(c)) + self.pipeline.reserve + c["fetched"]
            return np.floor(peak), fits
        step = np.minimum(step, float(self.pipeline.most))
        return self.program.goal.rates(step, c), fits

    def settle(self, at: Point, below: Fraction | None = None) -> Point | None:
        """
        Hand out the layers of one point as well as possible.

        Parameters
        ----------
        at
            Values of ``columns``.
        below
            A point whose goal is larger is of no interest.

        Returns
        -------
        dict or None
            The point with ``layers[i]``, ``again[i]`` and everything that follows from them.
        """
        room, most = self.room, self.pipeline.most
        if self.late.easy:
            one = {name: np.array([v], dtype=np.int64) for name, v in at.items()}
            room, most = int(self.rooms(one)[0]), int(self.longest(one)[0])
        if below is not None and not self.headroom:
            most = min(most, int(below * self.program.goal.divisor(at)))
        found = self._shared(at, room, most)
        if found is None:
            return None
        full = self.handed_out(at, found)
        return full if self.passes(full) else None

    def handed_out(self, at: Point, found: Shared) -> Point:
        """Return a point with what is handed out, and the time and memory that follow."""
        full = at | handed(found.layers, found.again)
        return full | self.pipeline.value(full)

    def passes(self, full: Point) -> bool:
        """Ask what is asked after the layers are handed out, and define what is defined there."""
        for statement in self.late.statements:
            if isinstance(statement, Row):
                if not row_holds(statement, full):
                    return False
            elif not isinstance(statement, Fits):
                full.update(value(statement, full))
        return True

    def _shared(self, at: Point, room: int, most: int) -> Shared | None:
        """Hand out layers within a room and a time."""
        pipeline = self.pipeline
        if not at["free"]:
            return self._chunks(at, room, most)
        if pipeline.even or pipeline.given:
            found = share_fixed(pipeline, at, room)
            return found if found is not None and found.step <= most else None
        share = pipeline.share(at, room)
        if not self.headroom:
            key = (share, most)
            if key not in self._known:
                self._known[key] = share_out(share, most + 1)
            return self._known[key]
        smallest = least_room(share)
        if smallest is None or smallest.step <= most:
            return smallest

        # Less memory means more time: find the smallest room that leaves enough of it.
        def within(some: int) -> Shared | None:
            return share_out(pipeline.share(at, some + at["fetched"]), most + 1)

        enough = first_enough(smallest.peak, share.room, lambda some: within(some) is not None)
        return within(enough)

    def _chunks(self, at: Point, room: int, most: int) -> Shared | None:
        """Recompute as little per chunk as a room allows, or as leaves the most room."""
        pipeline, code = self.pipeline, at["recompute"]
        chunk = at["chunk"]
        options = [0] if code not in (PARTIAL, FULL) else [chunk] if code == FULL else None
        each = np.arange(chunk + 1) if options is None else np.array(options, dtype=np.int64)
        columns = Columns({n: np.full(len(each), at[n], dtype=np.int64) for n in READS})
        step, peak = pipeline.uniform_many(columns, each), pipeline.peak_many(columns, each)
        best: tuple[tuple[float, float], int] | None = None
        for few, time, size in zip(each.tolist(), step.tolist(), peak.tolist(), strict=True):
            if size + at["fetched"] > room or time > most:
                continue
            order = (size, time) if self.headroom else (time, size)
            if best is None or order < best[0]:
                best = (order, few)
        if best is None:
            return None
        few = best[1]
        layers = pipeline.fixed_layers(at)
        again = layers if code == FULL else pipeline.again_of(at, few)
        return Shared(int(step[list(each).index(few)]), 0, layers, again)

    def rank(self, full: Point) -> tuple[Fraction, ...]:
        """Order of a settled point among others."""
        return rank(self.program, full)

    def goal(self, full: Point) -> Fraction:
        """Goal of a settled point."""
        return ratio(self.program, full)
