"""CP-SAT: the program as a constraint model, solved to a proof."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from math import floor

from ortools.sat.python import cp_model

from optplan.models.program import Program, Terms
from optplan.solvers.base import (
    Holding,
    Outcome,
    Progress,
    SolverConfig,
    Termination,
    chosen,
)
from optplan.solvers.cpsat_model import cloned, translate
from optplan.solvers.cpsat_solver import new_solver, solved
from optplan.solvers.rounds import Held, Rounds

ENGINE = f"cp-sat (ortools {version('ortools')})"

EXACT_FLOAT = 2**52
"""Whole numbers below this are exact as floats."""


def solve(
    program: Program, config: SolverConfig | None = None, incumbent: Mapping[str, int] | None = None
) -> Outcome:
    """
    Prove the best plan of a program.

    Parameters
    ----------
    program
        Any program that hands out no layers.
    config
        Limits, workers, seed; ``top`` further plans are found one by one, each proven next best.
    incumbent
        Values of all choices of a plan that is known to pass every constraint; it warm-starts the
        search and cuts off everything dearer.

    Returns
    -------
    Outcome
        ``proved`` with the optimum or with nothing; the ties of the program are settled too.
    """
    config = config or SolverConfig()
    if any(not choice.values for choice in program.choices):
        return Outcome(Termination.PROVED, Holding.NOTHING, engine=ENGINE)
    search = _Search(program, config)
    return search.run(dict(incumbent) if incumbent else None)


class _Search(Rounds):
    """One run of CP-SAT over a program."""

    engine = ENGINE

    def __init__(self, program: Program, config: SolverConfig) -> None:
        super().__init__(program, config)
        self.model = translate(self.program)

    def minimise(self, terms: Terms, hint: Held | None) -> tuple[Held | None, int | None]:
        """
        Minimise a linear combination; the values found and a lower bound, both exact.

        CP-SAT compares objectives as floats, which are exact only near zero, so each round counts
        from the best value of the round before until a round finds nothing better.
        """
        base = self.at(terms, hint) if hint else self.least(terms)
        while True:
            values, least, done = self._round(terms, hint, base)
            if not done or values is None or abs(self.at(terms, values) - base) < EXACT_FLOAT:
                return values, least
            hint, base = values, self.at(terms, values)

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Narrow a copy of the model for a while."""
        kept, self.model = self.model, cloned(self.model)
        try:
            yield
        finally:
            self.model = kept

    def demand(self, terms: Terms, low: int | None, high: int | None) -> None:
        """Narrow the model."""
        self.model.demand(terms, low, high)

    def forbid(self, held: Held) -> None:
        """Rule out one assignment of the choices."""
        values = chosen(self.program, held)
        columns = [self.model.columns[name] for name in values]
        self.model.raw.add_forbidden_assignments(columns, [list(values.values())])

    def exists(self) -> bool:
        """Tell whether the model has any plan."""
        _, status, _ = self._call()
        return status != cp_model.INFEASIBLE

    def _round(
        self, terms: Terms, hint: Held | None, base: int
    ) -> tuple[Held | None, int | None, bool]:
        """Minimise once, counting from a base; values, bound, and whether it was finished."""
        least = self.least(terms)
        with self.aside():
            raw = self.model.raw
            # A hint is a plan, so that nothing dearer need be looked at.
            most = 0 if hint else -self.least(tuple((-k, c) for k, c in terms)) - base
            beyond = raw.new_int_var(least - base, most, "beyond the base")
            raw.add(self.model.linear(terms) - base == beyond)
            raw.minimize(beyond)
            for name, value in (hint or {}).items():
                raw.add_hint(self.model.columns[name], value)
            values, status, low = self._call(self.printed(terms), base)
        if status == cp_model.OPTIMAL:
            assert values is not None
            return values, self.at(terms, values), True
        if status == cp_model.INFEASIBLE:
            return None, None, True
        if status == cp_model.FEASIBLE and low is not None:
            # A bound that goes with no plan is whatever CP-SAT started from.
            least = max(least, base + floor(low - abs(low) * 1e-12))
        return values or hint, least, False

    def _call(
        self, unit_scale: float | None = None, base: int = 0
    ) -> tuple[Held | None, cp_model.CpSolverStatus, float | None]:
        """Run CP-SAT once within what is left of the time."""
        solver = new_solver(self.config.seed, self.config.workers, self.rest)
        if self.config.workers > 1:
            solver.parameters.interleave_search = True
        watcher = _Watcher(self, unit_scale, base) if self.config.progress and unit_scale else None
        status = solved(solver, self.model.raw, watcher)
        self.nodes += solver.num_branches
        if status in (cp_model.FEASIBLE, cp_model.UNKNOWN):
            # CP-SAT stops a little early when it sees that the time will not do.
            timed = self.config.seconds is not None and self.spent >= self.config.seconds / 2
            self.stopped = Termination.TIME_LIMIT if timed else Termination.INTERRUPTED
        values = None
        if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            values = {
                name: int(solver.value(column)) for name, column in self.model.columns.items()
            }
        return values, status, solver.best_objective_bound


class _Watcher(cp_model.CpSolverSolutionCallback):
    """Hands incumbents and bounds to whoever shows them."""

    def __init__(self, search: _Search, scale: float, base: int) -> None:
        super().__init__()
        self._search, self._scale, self._base = search, scale, base

    def on_solution_callback(self) -> None:
        """Report one solution."""
        told = self._search.config.progress
        if told:
            held = (self.objective_value + self._base) * self._scale
            bound = (self.best_objective_bound + self._base) * self._scale
            told(Progress(self._search.spent, held, bound))
