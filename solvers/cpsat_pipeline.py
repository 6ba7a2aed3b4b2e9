"""CP-SAT on programs that hand out layers: the proof that no point left holds a better plan."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from ortools.sat.python import cp_model

from optplan.models.program import Program
from optplan.models.stages import Share
from optplan.solvers.base import Outcome, SolverConfig, Termination
from optplan.solvers.cpsat import ENGINE
from optplan.solvers.cpsat_model import Model, post
from optplan.solvers.cpsat_solver import new_solver, solved
from optplan.solvers.cpsat_stages import add_rows, prove
from optplan.solvers.prover import Constrain, Option, Proof, Prover
from optplan.solvers.search import Left
from optplan.solvers.settle import Point
from optplan.solvers.stages import Shared


def prove_left(
    program: Program,
    left: Left,
    incumbent: Point | None,
    config: SolverConfig,
    constrain: Constrain | None = None,
) -> Outcome:
    """
    Prove that none of the points left beats an incumbent, or find the one that does.

    Parameters
    ----------
    left
        Points whose bound does not exceed the incumbent.
    incumbent
        A plan's values with its layers; None for none.
    constrain
        Adds a user's own constraints to the `Model` of each point.

    Returns
    -------
    Outcome
        ``proved``, the incumbent being returned unless something better was found.
    """
    return _CpSat(program, left, incumbent, config, constrain).run()


def solve_whole(program: Program, left: Left, config: SolverConfig) -> Outcome:
    """
    Solve a program as one model: all its tables and rows, and layers handed out under selectors.

    Parameters
    ----------
    left
        Every point that no table refuses; the model asks all rules anew.
    """
    return _CpSat(program, left, None, config, whole=True).run()


class _CpSat(Prover):
    """A proof by CP-SAT."""

    engine = ENGINE

    def prove(self, shares: Sequence[Share], below: int | None) -> Proof:
        """Find the fastest way to share out any of several pipelines, and prove it."""
        return prove(shares, below, self.rest(), self.config.workers, self.config.seed)

    def better(
        self, points: Sequence[Point], options: Sequence[Option], batch: int
    ) -> tuple[Option, Shared] | None:
        """Look for something better in one model."""
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
        for statement in self.asked():
            for name in statement.defines:
                low, top = self.program.bounds[name]
                model.columns[name] = raw.new_int_var(low, top, name)
            post(model, statement)
        if self.constrain is not None:
            self.constrain(model)
        of = model.columns[self.program.goal.of]
        if self.goal is not None:
            raw.add(of <= ceil(self.goal * batch) - 1)
        raw.minimize(of)
        rest = self.rest()
        solver = new_solver(self.config.seed, self.config.workers, rest)
        status = solved(solver, raw)
        self.nodes += solver.num_branches
        if status in (cp_model.FEASIBLE, cp_model.UNKNOWN):
            self.stopped = Termination.TIME_LIMIT if rest else Termination.INTERRUPTED
        if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return None
        option = next(o for o, s in zip(options, selectors, strict=True) if solver.value(s))
        p = points[option.place]["pp"]
        found = tuple(int(solver.value(v)) for v in layers[:p])
        return option, Shared(0, 0, found, tuple(int(solver.value(v)) for v in again[:p]))

    def _columns(
        self,
        model: Model,
        points: Sequence[Point],
        options: Sequence[Option],
        selectors: Sequence[cp_model.IntVar],
    ) -> None:
        """Tie the columns that statements read to the selectors."""
        for name in self.names():
            values = sorted({points[o.place][name] for o in options})
            domain = cp_model.Domain.from_values(values)
            column = model.columns[name] = model.raw.new_int_var_from_domain(domain, name)
            if len(values) == 1:
                continue
            for option, selector in zip(options, selectors, strict=True):
                value = points[option.place][name]
                model.raw.add(column == value).only_enforce_if(selector)
