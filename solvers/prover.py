"""The proof that no point left holds a better plan, whatever engine proves it."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil
from typing import Any

import numpy as np

from optplan.models.columns import PARTIAL
from optplan.models.errors import OwnFault
from optplan.models.program import Program
from optplan.models.stages import Share
from optplan.solvers.base import Outcome, SolverConfig, Termination, holding
from optplan.solvers.left import Left
from optplan.solvers.options import Option, known, ways
from optplan.solvers.settle import Point, Settler
from optplan.solvers.stages import Shared

NO_TIME = 0.001
"""Seconds that an engine is given where none are left."""

EDGE = 1 + 1e-9
"""Only what is bounded above the incumbent by this factor need not be looked at."""

Constrain = Callable[[Any], object]
"""A user's own function, which adds constraints to a live model."""


@dataclass(frozen=True)
class Proof:
    """
    What a search over pipelines found and proved.

    Parameters
    ----------
    best
        Place of a share among those given and a way to share it out; None if none was found.
    bound
        No way takes fewer ticks; where all is done, the ticks of ``best``, without one what
        was asked to be undercut, and a number beyond all where nothing was.
    done
        Whether the search went through.
    interrupted
        Whether Ctrl-C ended it.
    nodes
        Branches of the search.
    """

    best: tuple[int, Shared] | None
    bound: int
    done: bool
    interrupted: bool
    nodes: int


class Prover:
    """
    One proof: several models under one clock.

    An engine says how pipelines are proved (`prove`), and how a model of everything is (`better`).

    Parameters
    ----------
    program
        A program that hands out layers.
    left
        Points that may hold a better plan.
    incumbent
        A plan's values with its layers; None for none.
    config
        Limits, workers and seed.
    constrain
        Adds a user's own constraints to every model; then each point has a model of its own.
    whole
        True for one model of all points, for comparison.
    """

    engine: str
    trust: Fraction = Fraction(0)
    """Share by which a bound that rests on floats is lowered before it is believed."""

    def __init__(
        self,
        program: Program,
        left: Left,
        incumbent: Point | None,
        config: SolverConfig,
        constrain: Constrain | None = None,
        whole: bool = False,
    ) -> None:
        self.program, self.left, self.config = program, left, config
        self.settler = Settler(program)
        self.incumbent = incumbent
        self.constrain, self.whole = constrain, whole
        self.start = time.monotonic()
        self.nodes = 0
        self.stopped: Termination | None = None
        self.known: Point | None = None
        """Best way to hand out the layers of the one point that is looked at, where known."""
        self.hard = self.settler.late.hard or whole or constrain is not None

    # -- what an engine says ---------------------------------------------------------------------

    def prove(self, shares: Sequence[Share], below: int | None) -> Proof:
        """Find the fastest way to share out any of several pipelines, and prove it."""
        raise NotImplementedError

    def better(
        self, points: Sequence[Point], options: Sequence[Option], per: Fraction
    ) -> tuple[Option, Shared] | None:
        """
        Look for a plan better than the incumbent in a model of everything that is asked.

        Sets ``stopped`` where it could not be looked at to the end. ``per`` is what the goal of
        all these points is divided by.
        """
        raise NotImplementedError

    # -- what all engines do ---------------------------------------------------------------------

    @property
    def goal(self) -> Fraction | None:
        """Goal of the best plan so far."""
        return self.settler.goal(self.incumbent) if self.incumbent else None

    def run(self) -> Outcome:
        """Go through the points left."""
        points = [self.left.at(i) for i in range(len(self.left))]
        try:
            one = self.hard and not self.whole
            low = self._one_by_one(points) if one else self._batches(points)
        except KeyboardInterrupt:  # between two solves
            self.stopped = Termination.INTERRUPTED
            low = Fraction(float(min(self.left.bound, default=0.0)))
        goal = self.goal
        known = [bound for bound in (goal, low) if bound is not None]
        bound = min(known, default=None)
        proved = self.stopped is None
        if bound is not None:
            bound -= abs(bound) * self.trust
        best = (self.program.carried(self.incumbent),) if self.incumbent else ()
        return Outcome(
            termination=Termination.PROVED if proved else self.stopped or Termination.FAILED,
            holding=holding(bool(best), proved),
            best=best,
            goal=goal,
            bound=bound,
            engine=self.engine,
            seconds=time.monotonic() - self.start,
            nodes=self.nodes,
        )

    def _batches(self, points: Sequence[Point]) -> Fraction | None:
        """Prove the points of one divisor together; a bound where that was not finished."""
        groups: dict[Fraction, list[int]] = defaultdict(list)
        for i, point in enumerate(points):
            groups[self.program.goal.divisor(point)].append(i)
        open_: list[Fraction] = []
        for per, index in sorted(groups.items()):
            if self.stopped:
                open_.append(Fraction(float(self.left.bound[index].min())))
                continue
            low = self._batch([points[i] for i in index], per)
            if low is not None:
                open_.append(low)
        return min(open_, default=None)

    def _batch(self, points: Sequence[Point], per: Fraction) -> Fraction | None:
        """Prove the points of one divisor; a bound where that was not finished."""
        timed = any(c == "step_ticks" for row in self.settler.late.easy for _, c in row.terms)
        if self.settler.headroom and not self.hard and not timed and self.incumbent:
            return self._less_memory(points, per)
        if self.settler.headroom and not self.hard:
            return self._one_by_one(points)
        options = list(self.options(points, every=self.hard))
        if not options:
            return None
        if self.hard:
            self._improve(points, options, per)
            return Fraction(float(min(self.left.bound))) if self.stopped else None
        below = None if self.goal is None else ceil(self.goal * per)
        distinct: dict[Share, Option] = {}
        for option in options:
            distinct.setdefault(option.share, option)
        found = self._prove(points, distinct, below)
        return None if found.done else found.bound / per

    def _prove(
        self, points: Sequence[Point], distinct: Mapping[Share, Option], below: int | None
    ) -> Proof:
        """Prove over pipelines that differ, and take what is better."""
        found = self.prove(list(distinct), below)
        self.nodes += found.nodes
        if not found.done:
            timed = Termination.INTERRUPTED if found.interrupted else Termination.TIME_LIMIT
            self.stopped = self.stopped or timed
        if found.best is not None:
            place, shared = found.best
            option = list(distinct.values())[place]
            self._take(points[option.place], option.handed or shared)
        return found

    def _less_memory(self, points: Sequence[Point], per: Fraction) -> Fraction | None:
        """Prove that no way of handing out keeps below the incumbent's peak, point by point."""
        assert self.goal is not None
        most = ceil(self.goal * per * (1 - self.trust)) - 1 - self.settler.pipeline.reserve
        distinct: dict[Share, Option] = {}
        for option in self.options(points, every=False):
            room = min(option.share.room, most - points[option.place]["fetched"])
            distinct.setdefault(replace(option.share, room=room), option)
        found = self._prove(points, distinct, None)
        return None if found.done else Fraction(float(self.left.bound.min()))

    def _one_by_one(self, points: Sequence[Point]) -> Fraction | None:
        """Ask everything of one point after the other, those bounded lowest first."""
        order = np.argsort(self.left.bound, kind="stable").tolist()
        for i in order:
            low, goal = float(self.left.bound[i]), self.goal
            if goal is not None and low >= float(goal) * EDGE:
                return None
            if self.config.seconds is not None and (self.rest() or 0.0) <= NO_TIME:
                # The smallest models are solved in no time at all, so that no solver says so.
                self.stopped = Termination.TIME_LIMIT
                return Fraction(low)
            at = points[i]
            if not self.settler.late.hard:
                # The best way to hand out its layers: no constraint added makes a better one.
                self.known = self.settler.settle(at)
                if self.known is None or (
                    goal is not None and self.settler.goal(self.known) >= goal
                ):
                    continue
            for option in self.options([at], every=True):
                self._improve([at], [option], self.program.goal.divisor(at))
                if self.stopped:
                    return Fraction(low)
        return None

    def _improve(self, points: Sequence[Point], options: Sequence[Option], per: Fraction) -> None:
        """Take better plans until there is none."""
        while (found := self.better(points, options, per)) is not None:
            option, shared = found
            self._take(points[option.place], option.handed or shared)
            if self.stopped:
                return

    def rest(self) -> float | None:
        """Seconds left."""
        if self.config.seconds is None:
            return None
        return max(NO_TIME, self.config.seconds - (time.monotonic() - self.start))

    def _take(self, point: Point, shared: Shared) -> None:
        """Make a plan the incumbent."""
        full = self.settler.handed_out(point, shared)
        if not self.settler.passes(full):
            raise OwnFault(f"{self.engine} hands out layers against the rules: {shared}")
        self.incumbent = full

    def options(self, points: Sequence[Point], every: bool) -> Iterator[Option]:
        """Yield the pipelines of points; of fixed ones the best, or every way of recomputing."""
        pipeline = self.settler.pipeline
        for place, at in enumerate(points):
            one = {name: np.array([v], dtype=np.int64) for name, v in at.items()}
            room = self.settler.room if every else int(self.settler.rooms(one)[0])
            most = pipeline.most if every else int(self.settler.longest(one)[0])
            if at["free"] and not (pipeline.even or pipeline.given):
                yield Option(place, pipeline.share(at, room), None)
                continue
            if every and at["free"] and at["recompute"] == PARTIAL:
                layers = pipeline.fixed_layers(at)
                if len(layers) == at["pp"] and min(layers) >= 0:
                    yield Option(place, pipeline.share(at, room), None, layers)
                continue
            for shared, peak in ways(self.settler, at, room, every):
                if shared.step <= most:
                    yield Option(place, known(shared, peak, room), shared)
