"""CP-SAT on programs that hand out layers: the proof that no point left holds a better plan."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil, floor

import numpy as np
from ortools.sat.python import cp_model

from optplan.models.columns import FULL, PARTIAL, READS, Columns
from optplan.models.errors import OwnFault
from optplan.models.program import Fits, Pipeline, Program, Row, Table
from optplan.models.stages import Share
from optplan.solvers.base import Outcome, SolverConfig, Termination, holding
from optplan.solvers.cpsat import ENGINE
from optplan.solvers.cpsat_model import Model, post
from optplan.solvers.cpsat_solver import new_solver, solved
from optplan.solvers.cpsat_stages import Proof, add_rows, prove
from optplan.solvers.search import Left
from optplan.solvers.settle import Point, Settler, share_fixed
from optplan.solvers.stages import Shared

EDGE = 1 + 1e-9
"""Only what is bounded above the incumbent by this factor need not be looked at."""

TOGETHER = 1
"""Points in one model: each by itself is proved faster than several under selectors."""


def prove_left(
    program: Program, left: Left, incumbent: Point | None, config: SolverConfig
) -> Outcome:
    """
    Prove that none of the points left beats an incumbent, or find the one that does.

    Parameters
    ----------
    left
        Points whose bound does not exceed the incumbent.
    incumbent
        A plan's values with its layers; None for none.

    Returns
    -------
    Outcome
        ``proved``, the incumbent being returned unless something better was found.
    """
    return _Proof(program, left, incumbent, config).run()


def solve_whole(program: Program, left: Left, config: SolverConfig) -> Outcome:
    """
    Solve a program as one model: all its tables and rows, and layers handed out under selectors.

    Parameters
    ----------
    left
        Every point that no table refuses; the model asks all rules anew.
    """
    proof = _Proof(program, left, None, config)
    proof.whole = True
    return proof.run()


@dataclass(frozen=True)
class _Option:
    """One pipeline that a selector stands for; what a fixed one holds is known already."""

    place: int
    share: Share
    handed: Shared | None


class _Proof:
    """One proof: several models under one clock."""

    def __init__(
        self, program: Program, left: Left, incumbent: Point | None, config: SolverConfig
    ) -> None:
        self.program, self.left, self.config = program, left, config
        self.settler = Settler(program)
        self.incumbent = incumbent
        self.start = time.monotonic()
        self.nodes = 0
        self.whole = False
        self._lows: dict[int, float] = {}
        self.stopped: Termination | None = None

    @property
    def goal(self) -> Fraction | None:
        """Goal of the best plan so far."""
        return self.settler.goal(self.incumbent) if self.incumbent else None

    def run(self) -> Outcome:
        """Go through the points left, those of one batch together."""
        per = self.program.goal.per
        batches = self.left.columns[per] if per else np.ones(len(self.left), dtype=np.int64)
        open_: list[Fraction] = []
        for batch in np.unique(batches).tolist():
            index = np.flatnonzero(batches == batch)
            if self.stopped:
                open_.append(Fraction(float(self.left.bound[index].min())))
                continue
            low = self._batch(index, int(batch))
            if low is not None:
                open_.append(low)
        goal = self.goal
        known = [bound for bound in (goal, *open_) if bound is not None]
        bound = min(known, default=None)
        proved = self.stopped is None
        best = (self.program.carried(self.incumbent),) if self.incumbent else ()
        return Outcome(
            termination=Termination.PROVED if proved else self.stopped or Termination.FAILED,
            holding=holding(bool(best), proved),
            best=best,
            goal=goal,
            bound=goal if proved else bound,
            engine=ENGINE,
            seconds=time.monotonic() - self.start,
            nodes=self.nodes,
        )

    def _batch(
        self, index: np.ndarray[tuple[int, ...], np.dtype[np.int64]], batch: int
    ) -> Fraction | None:
        """Prove the points of one batch; a bound where that was not finished."""
        points = [self.left.at(int(i)) for i in index]
        bounds = self.left.bound[index].tolist()
        self._lows = {id(at): low for at, low in zip(points, bounds, strict=True)}
        hard = self.settler.late.hard or self.whole
        timed = any(c == "step_ticks" for row in self.settler.late.easy for _, c in row.terms)
        if self.settler.headroom and not hard and not timed and self.incumbent:
            return self._less_memory(points, batch)
        hard = hard or self.settler.headroom
        options = list(self._options(points, every=hard))
        if not options:
            return None
        if hard:
            return self._models(points, options, batch)
        below = None if self.goal is None else ceil(self.goal * batch)
        distinct: dict[Share, _Option] = {}
        for option in options:
            distinct.setdefault(option.share, option)
        found = self._prove(points, distinct, below)
        return None if found.done else Fraction(found.bound, batch)

    def _prove(
        self, points: Sequence[Point], distinct: Mapping[Share, _Option], below: int | None
    ) -> Proof:
        """Prove over pipelines that differ, and take what is better."""
        found = prove(list(distinct), below, self._rest(), self.config.workers, self.config.seed)
        self.nodes += found.nodes
        if not found.done:
            self.stopped = Termination.INTERRUPTED if found.interrupted else Termination.TIME_LIMIT
        if found.best is not None:
            place, shared = found.best
            option = list(distinct.values())[place]
            self._take(points[option.place], option.handed or shared)
        return found

    def _less_memory(self, points: Sequence[Point], batch: int) -> Fraction | None:
        """Prove that no way of handing out keeps below the incumbent's peak, point by point."""
        assert self.goal is not None
        most = ceil(self.goal * batch) - 1 - self.settler.pipeline.reserve
        distinct: dict[Share, _Option] = {}
        for option in self._options(points, every=False):
            room = min(option.share.room, most - points[option.place]["fetched"])
            distinct.setdefault(replace(option.share, room=room), option)
        found = self._prove(points, distinct, None)
        return None if found.done else Fraction(float(self.left.bound.min()))

    def _rest(self) -> float | None:
        """Seconds left."""
        if self.config.seconds is None:
            return None
        return max(0.001, self.config.seconds - (time.monotonic() - self.start))

    def _take(self, point: Point, shared: Shared) -> None:
        """Make a plan the incumbent."""
        full = self.settler.handed_out(point, shared)
        if not self.settler.passes(full):
            raise OwnFault(f"cp-sat hands out layers against the rules: {shared}")
        self.incumbent = full

    def _options(self, points: Sequence[Point], every: bool) -> Iterator[_Option]:
        """Yield the pipelines of points; of fixed ones the best, or every way of recomputing."""
        pipeline = self.settler.pipeline
        for place, at in enumerate(points):
            one = {name: np.array([v], dtype=np.int64) for name, v in at.items()}
            room = self.settler.room if every else int(self.settler.rooms(one)[0])
            most = pipeline.most if every else int(self.settler.longest(one)[0])
            if at["free"] and not (pipeline.even or pipeline.given):
                yield _Option(place, pipeline.share(at, room), None)
                continue
            for shared, peak in _ways(self.settler, at, room, every):
                if shared.step <= most:
                    yield _Option(place, _known(shared, peak, room), shared)

    # -- one model of everything -----------------------------------------------------------------

    def _models(
        self, points: Sequence[Point], options: Sequence[_Option], batch: int
    ) -> Fraction | None:
        """Prove with everything that is asked of time and memory inside the model."""
        size = len(options) if self.whole else TOGETHER
        low = {id(o): float(self._low(points[o.place])) for o in options}
        options = options if self.whole else sorted(options, key=lambda o: low[id(o)])
        for start in range(0, len(options), size):
            part = options[start : start + size]
            goal = self.goal
            if goal is not None and not self.whole and low[id(part[0])] >= float(goal) * EDGE:
                break
            while self._model(points, part, batch):
                pass
            if self.stopped:
                return Fraction(float(min(self.left.bound, default=0.0)))
        return None

    def _low(self, point: Point) -> float:
        """Bound of a point, as the search left it."""
        return self._lows.get(id(point), 0.0)

    def _model(self, points: Sequence[Point], options: Sequence[_Option], batch: int) -> bool:
        """Look for something better in one model; True where there was."""
        raw = cp_model.CpModel()
        model = Model(self.program, raw)
        pipeline = self.settler.pipeline
        selectors = [raw.new_bool_var(f"option {i}") for i in range(len(options))]
        raw.add_exactly_one(selectors)
        high = 2**58
        step, peak = raw.new_int_var(0, high, "step"), raw.new_int_var(0, high, "peak")
        shares = [o.share for o in options]
        layers, again = add_rows(raw, shares, selectors, step, peak)
        self._columns(model, points, options, selectors)
        whole = model.columns["step_ticks"] = raw.new_int_var(0, pipeline.most, "step_ticks")
        raw.add_min_equality(whole, [step, pipeline.most])
        size = model.columns["peak_bytes"] = raw.new_int_var(0, pipeline.most_bytes, "peak_bytes")
        # The fetched weights of ZeRO-3 are taken off the room, and count towards the peak.
        more = raw.new_int_var(0, pipeline.most_bytes, "peak with the reserve")
        raw.add(more == peak + model.columns["fetched"] + pipeline.reserve)
        raw.add_min_equality(size, [more, pipeline.most_bytes])
        for statement in self._asked():
            for name in statement.defines:
                low, top = self.program.bounds[name]
                model.columns[name] = raw.new_int_var(low, top, name)
            post(model, statement)
        of = model.columns[self.program.goal.of]
        if self.goal is not None:
            raw.add(of <= ceil(self.goal * batch) - 1)
        raw.minimize(of)
        rest = self._rest()
        solver = new_solver(self.config.seed, self.config.workers, rest)
        status = solved(solver, raw)
        self.nodes += solver.num_branches
        if status in (cp_model.FEASIBLE, cp_model.UNKNOWN):
            self.stopped = Termination.TIME_LIMIT if rest else Termination.INTERRUPTED
        if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return False
        option = next(o for o, s in zip(options, selectors, strict=True) if solver.value(s))
        held = option.handed
        if held is None:
            p = points[option.place]["pp"]
            found = tuple(int(solver.value(v)) for v in layers[:p])
            held = Shared(0, 0, found, tuple(int(solver.value(v)) for v in again[:p]))
        self._take(points[option.place], held)
        return self.stopped is None

    def _asked(self) -> Iterator[Table | Row]:
        """Statements that a model has to hold: those after the layers, or all of them."""
        late = self.settler.late
        for statement in self.program.statements:
            if isinstance(statement, Pipeline | Fits):
                continue
            if statement in late or (
                self.whole and not (isinstance(statement, Table) and statement.spans)
            ):
                yield statement  # type: ignore[misc]

    def _columns(
        self,
        model: Model,
        points: Sequence[Point],
        options: Sequence[_Option],
        selectors: Sequence[cp_model.IntVar],
    ) -> None:
        """Tie the columns that statements read to the selectors."""
        names = [*self.program.domain, "fetched"]
        if not self.whole:
            names = list(self.settler.columns)
        for name in dict.fromkeys(names):
            values = sorted({points[o.place][name] for o in options})
            domain = cp_model.Domain.from_values(values)
            column = model.columns[name] = model.raw.new_int_var_from_domain(domain, name)
            if len(values) == 1:
                continue
            for option, selector in zip(options, selectors, strict=True):
                value = points[option.place][name]
                model.raw.add(column == value).only_enforce_if(selector)


def _known(shared: Shared, peak: int, room: int) -> Share:
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


def _ways(settler: Settler, at: Point, room: int, every: bool) -> Iterator[tuple[Shared, int]]:
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
