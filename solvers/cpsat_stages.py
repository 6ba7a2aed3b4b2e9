"""CP-SAT: which of many pipelines, and how its layers are shared out, as a constraint model."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from math import floor

import numpy as np
from ortools.sat.python import cp_model

from optplan.models.stages import ALIKE, Share
from optplan.solvers.cpsat import EXACT_FLOAT
from optplan.solvers.cpsat_solver import new_solver, solved
from optplan.solvers.options import least_step
from optplan.solvers.prover import Proof
from optplan.solvers.stages import Shared

NEVER = 2**62
"""Bound where nothing can be shared out."""

FIRST = 0.02
"""Deterministic seconds of the first, plain search: a few tenths of a second."""

SCALE = 64
"""By what a row is multiplied whose factors are then rounded to whole numbers."""


def prove(
    shares: Sequence[Share],
    below: int | None = None,
    seconds: float | None = None,
    workers: int = 1,
    seed: int = 0,
    together: int = 1,
) -> Proof:
    """
    Find the fastest way to share out any of several pipelines, and prove it.

    Parameters
    ----------
    shares
        Pipelines, of which one is to be chosen.
    below
        Only a step of fewer ticks is of interest.
    seconds
        Wall-clock limit.
    workers, seed
        Threads and random seed of CP-SAT.
    together
        Pipelines in one model, once a way is known. One by one is fastest: rows that hold only
        where a share is selected leave the linear relaxation of several at once weak.

    Returns
    -------
    Proof
        The way has the shortest step; among equals it is any.
    """
    end = None if seconds is None else time.monotonic() + seconds
    best: tuple[int, Shared] | None = None
    open_, nodes, done, interrupted = NEVER, 0, True, False
    # Those that could be fastest first: what they come to leaves nothing to do for most others.
    places = sorted(range(len(shares)), key=lambda place: least_step(shares[place]))
    start = 0
    while start < len(places) and done:
        part = places[start : start + (1 if below is None else together)]
        start += len(part)
        while done:
            search = _Search([shares[place] for place in part], below, workers, seed)
            done, interrupted = search.run(end)
            nodes += search.nodes
            if search.best is None:
                break
            place, way = search.best
            best, below = (part[place], way), way.step
            if abs(way.step - search.base) < EXACT_FLOAT:
                break  # else floats may have hidden something better from it
        if not done:
            rest = places[start : start + 1]
            open_ = min([search.bound, *(least_step(shares[place]) for place in rest)])
    bound = open_ if below is None else min(open_, below)
    return Proof(best, bound, done, interrupted, nodes)


def add_rows(
    raw: cp_model.CpModel,
    shares: Sequence[Share],
    selectors: Sequence[cp_model.IntVar],
    step: cp_model.IntVar,
    peak: cp_model.IntVar,
) -> tuple[list[cp_model.IntVar], list[cp_model.IntVar]]:
    """
    Tie columns of a larger model to the way in which the share it selects is shared out.

    Parameters
    ----------
    raw
        Model that gets the rows.
    shares
        Pipelines.
    selectors
        A literal for each; the model sees to it that exactly one is true.
    step, peak
        Columns that are to equal ``Share.step`` and ``Share.peak`` of the selected share, exactly.

    Returns
    -------
    tuple[list[cp_model.IntVar], list[cp_model.IntVar]]
        Layers and layers computed again of every stage, 0 behind the last one.
    """
    columns = _Columns(raw, shares, selectors)
    busy = columns.largest("bottleneck", _seconds)
    once = columns.largest("once", _once)
    raw.add(peak == columns.largest("peak", _held))
    for share, selector in zip(shares, selectors, strict=True):
        columns.demand(step == columns.step(share, busy, once), selector)
    return columns.layers, columns.again


Row = tuple[int, int, int, int]
"""Constant, and factors of a stage's layers, of those computed again, of whether there are any."""


def _seconds(share: Share, stage: int) -> Row:
    """Ticks of one micro-batch on a stage."""
    return share.seconds(stage, 0, 0), share.layer, share.again, 0


def _once(share: Share, stage: int) -> Row:
    """Ticks that a stage spends once a step."""
    return share.once(stage, 0), share.once_layer, 0, 0


def _held(share: Share, stage: int) -> Row:
    """Bytes of a stage; the largest moment grows where any layer is computed again."""
    flying = share.in_flight(stage)
    last = stage == share.stages - 1
    moment = max(0, share.inside - max(share.working, share.working_last * last))
    layer = share.state_layer + flying * share.kept
    return share.held(stage, 0, 0), layer, -flying * share.saved, moment


def _most(share: Share, row: Row) -> int:
    """Most that a row comes to."""
    return row[0] + (row[1] + max(row[2], 0)) * share.layers + row[3]


class _Columns:
    """Layers of the stages of whichever share is selected, with all that limits them."""

    def __init__(
        self,
        raw: cp_model.CpModel,
        shares: Sequence[Share],
        selectors: Sequence[cp_model.IntVar],
    ) -> None:
        self.raw, self.shares, self.selectors = raw, shares, selectors
        most = max(0, *(min(share.most, share.layers) for share in shares))
        stages = range(max(share.stages for share in shares))
        self.layers = [raw.new_int_var(0, most, f"layers {i}") for i in stages]
        self.again = [raw.new_int_var(0, most, f"again {i}") for i in stages]
        self.any = [raw.new_bool_var(f"any again {i}") for i in stages]
        for layers, again, some in zip(self.layers, self.again, self.any, strict=True):
            raw.add(again <= layers)
            raw.add(again >= some)
            raw.add(again <= most * some)
        self.total = raw.new_int_var(0, max(share.layers for share in shares), "again")
        raw.add(sum(self.again) == self.total)
        self.each: cp_model.IntVar | None = None
        if any(share.mode == ALIKE for share in shares):
            self.each = raw.new_int_var(0, most, "again on every stage")
        same = len({share.layers for share in shares}) == 1
        if same:
            raw.add(sum(self.layers) == shares[0].layers)
        for share, selector in zip(shares, selectors, strict=True):
            if not same:
                self.demand(sum(self.layers) == share.layers, selector)
            if share.mode in (0, 2):
                # Follows from the stages, but not from one of them.
                total = share.layers * (share.mode == 2)
                self.demand(self.total == total, selector)
            for i in stages:
                self._limit(share, selector, i)

    def _limit(self, share: Share, selector: cp_model.IntVar, stage: int) -> None:
        """Keep a stage of a share to the layers it may take and to its room."""
        layers, again = self.layers[stage], self.again[stage]
        if stage >= share.stages:
            self.demand(layers == 0, selector)
            return
        least = share.least_first if stage == 0 else share.least
        self.demand(layers >= least, selector)
        self.demand(layers <= share.most, selector)
        if share.mode == 0:
            self.demand(again == 0, selector)
        if share.mode == 2:
            self.demand(again == layers, selector)
        if share.mode == ALIKE:
            self._alike(selector, stage)
        held = self.linear(stage, _held(share, stage))
        self.demand(held <= share.room, selector)
        if share.mode in (1, ALIKE):
            # Follows from again <= layers, but not before the two are tried.
            constant, layer, saved, _ = _held(share, stage)
            self.demand((layer + saved) * layers + constant <= share.room, selector)

    def _alike(self, selector: cp_model.IntVar, stage: int) -> None:
        """Have a stage compute as many layers again as every other, or all of fewer."""
        assert self.each is not None
        layers, again = self.layers[stage], self.again[stage]
        whole = self.raw.new_bool_var(f"all again {stage}")
        self.demand(again <= self.each, selector)
        self.raw.add(again == layers).only_enforce_if(selector, whole)
        self.raw.add(again == self.each).only_enforce_if(selector, ~whole)

    def demand(
        self, row: cp_model.BoundedLinearExpression | bool | np.bool, selector: cp_model.IntVar
    ) -> None:
        """Add a row that holds where a share is selected, and so always if it is the only one."""
        constraint = self.raw.add(row)
        if len(self.shares) > 1:
            constraint.only_enforce_if(selector)

    def linear(self, stage: int, row: Row) -> cp_model.LinearExprT:
        """Write a row of a stage as an expression."""
        constant, layer, again, some = row
        terms = layer * self.layers[stage] + again * self.again[stage] + some * self.any[stage]
        return terms + constant

    def cap(self, name: str, row: Callable[[Share, int], Row]) -> cp_model.IntVar:
        """Make a column that no stage's row exceeds."""
        rows = [(s, row(s, i)) for s in self.shares for i in range(s.stages)]
        low, high = min(one[0] for _, one in rows), max(_most(*one) for one in rows)
        column = self.raw.new_int_var(low, high, name)
        for share, selector in zip(self.shares, self.selectors, strict=True):
            for i in range(share.stages):
                held = self.linear(i, row(share, i))
                self.demand(held <= column, selector)
        return column

    def largest(self, name: str, row: Callable[[Share, int], Row]) -> cp_model.IntVar:
        """Make a column that equals the largest of the stages' rows."""
        rows = [(s, row(s, i)) for s in self.shares for i in range(s.stages)]
        low, high = min(one[0] for _, one in rows), max(_most(*one) for one in rows)
        each = [self.raw.new_int_var(low, high, f"{name} {i}") for i in range(len(self.layers))]
        for share, selector in zip(self.shares, self.selectors, strict=True):
            for i, column in enumerate(each):
                # A stage that the share does not have is never the only largest.
                value = self.linear(i, row(share, i)) if i < share.stages else low
                self.demand(column == value, selector)
        column = self.raw.new_int_var(low, high, name)
        self.raw.add_max_equality(column, each)
        return column

    def step(
        self, share: Share, busy: cp_model.IntVar, once: cp_model.IntVar
    ) -> cp_model.LinearExprT:
        """Ticks of a step of a share."""
        constant = share.layer * share.layers + share.front + share.back + share.fixed
        return share.turns * busy + share.again * self.total + once + constant


class _Search:
    """One run of CP-SAT over a few shares."""

    def __init__(self, shares: Sequence[Share], below: int | None, workers: int, seed: int) -> None:
        self.shares, self.workers, self.seed = shares, workers, seed
        self.best: tuple[int, Shared] | None = None
        self.bound = low = min(map(least_step, shares))
        self.nodes = 0
        # CP-SAT compares objectives as floats, which are exact only near zero.
        self.base = low if below is None else max(low, below - EXACT_FLOAT // 2)
        self.possible = below is None or low < below
        if not self.possible:
            return
        self.raw = raw = cp_model.CpModel()
        self.selectors = [raw.new_bool_var(f"share {k}") for k in range(len(shares))]
        raw.add_exactly_one(self.selectors)
        self.columns = columns = _Columns(raw, shares, self.selectors)
        busy, once = columns.cap("bottleneck", _seconds), columns.cap("once", _once)
        high = below - 1 if below is not None else max(map(_ceiling, shares))
        self.step = step = raw.new_int_var(low - self.base, high - self.base, "beyond the base")
        for share, selector in zip(shares, self.selectors, strict=True):
            whole = columns.step(share, busy, once) - self.base
            columns.demand(whole <= step, selector)
            columns.demand(step >= least_step(share) - self.base, selector)
            # What every stage has together, no more than the bottleneck has as often.
            ends = share.layer * share.layers + share.front + share.back
            taken = share.again * columns.total + ends
            columns.demand(taken <= share.stages * busy, selector)
            for i in range(share.stages if share.mode in (1, ALIKE) else 0):
                self._reach(share, selector, i, busy)
        raw.minimize(step)

    def _reach(
        self, share: Share, selector: cp_model.IntVar, stage: int, busy: cp_model.IntVar
    ) -> None:
        """
        Bound a stage's layers by the bottleneck alone.

        Memory asks for ``again >= (held layers - room) / saved``, which put into the row of time
        leaves ``again`` out: both rows together, that bounds of columns taken singly do not see.
        """
        constant, layer, saved, _ = _held(share, stage)
        if saved < 0:
            each = SCALE * share.layer + SCALE * share.again * layer // -saved
            spare = -(SCALE * share.again * (share.room - constant) // saved)
            spare -= SCALE * share.seconds(stage, 0, 0)
            # It only tightens; where its numbers leave 64 bits the model is right without it.
            if max(abs(spare), each * share.layers) > NEVER // 4:
                return
            free = SCALE * busy + spare
            self.columns.demand(each * self.columns.layers[stage] <= free, selector)

    def run(self, end: float | None) -> tuple[bool, bool]:
        """Search until a time; whether it went through, and whether Ctrl-C ended it."""
        if not self.possible:
            return True, False
        # Few stages are done at once without the linear relaxation, many hardly ever.
        done, interrupted = self._pass(end, FIRST)
        if done or interrupted or (end is not None and time.monotonic() >= end):
            return done, interrupted
        if self.best is not None:
            self.raw.add(self.step <= self.best[1].step - 1 - self.base)
        return self._pass(end, None)

    def _pass(self, end: float | None, work: float | None) -> tuple[bool, bool]:
        """Search until a time or for some work; whether it went through, whether Ctrl-C came."""
        left = None if end is None else end - time.monotonic()
        if left is not None and left <= 0:
            return False, False
        solver = new_solver(self.seed, self.workers if work is None else 1, left)
        if work is not None:
            solver.parameters.linearization_level = 0
            solver.parameters.max_deterministic_time = work
        else:
            # With and without the relaxation by turns, in an order that can be repeated.
            solver.parameters.interleave_search = True
            if self.workers == 1:
                solver.parameters.subsolvers.extend(["max_lp", "no_lp"])
        began = time.monotonic()
        status = solved(solver, self.raw)
        self.nodes += solver.num_branches
        if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            self.best = self._read(solver)
        if status == cp_model.FEASIBLE:
            # A bound that goes with no solution is whatever CP-SAT started from.
            low = solver.best_objective_bound
            self.bound = max(self.bound, self.base + floor(low - abs(low) * 1e-12))
        if status in (cp_model.OPTIMAL, cp_model.INFEASIBLE):
            return True, False
        # CP-SAT stops a little early when it sees that the time will not do, never so at work.
        timed = left is not None and time.monotonic() - began >= left / 2
        worked = work is not None and solver.response_proto.deterministic_time >= work
        return False, not timed and not worked

    def _read(self, solver: cp_model.CpSolver) -> tuple[int, Shared]:
        """Read the share and the way that were found."""
        place = next(k for k, one in enumerate(self.selectors) if solver.value(one))
        share = self.shares[place]
        stages = range(share.stages)
        layers = tuple(int(solver.value(self.columns.layers[i])) for i in stages)
        again = tuple(int(solver.value(self.columns.again[i])) for i in stages)
        return place, Shared(share.step(layers, again), share.peak(layers, again), layers, again)


def _ceiling(share: Share) -> int:
    """Ticks that no step exceeds."""
    stages = range(share.stages)
    busy = max(_most(share, _seconds(share, i)) for i in stages)
    once = max(_most(share, _once(share, i)) for i in stages)
    whole = (share.layer + share.again) * share.layers + share.front + share.back
    return share.turns * max(busy, 0) + whole + once + share.fixed
