"""CP-SAT: the program as a constraint model, solved to a proof."""

from __future__ import annotations

import time
from collections.abc import Mapping
from fractions import Fraction
from importlib.metadata import version
from math import floor

from ortools.sat.python import cp_model

from optplan.models.program import LARGEST, Program, Terms
from optplan.solvers.base import (
    Holding,
    Outcome,
    Progress,
    SolverConfig,
    Termination,
    chosen,
    holding,
    ratio,
)
from optplan.solvers.cpsat_model import cloned, translate
from optplan.solvers.cpsat_solver import new_solver, solved

ENGINE = f"cp-sat (ortools {version('ortools')})"

EXACT_FLOAT = 2**52
"""Whole numbers below this are exact as floats."""


def solve(
    program: Program, config: SolverConfig | None = None, incumbent: Mapping[str, int] | None = None
) -> Outcome:
    """
    Prove the best plan of a program.

    A goal per unit of another column is minimised by Dinkelbach's method: with the best plan so
    far at ``T0 / G0``, minimise ``G0 T - T0 G`` in whole numbers; a minimum of zero is the proof,
    anything below is a better plan.

    Parameters
    ----------
    program
        Any program.
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


class _Search:
    """One run of CP-SAT over a program: several solves of one model under a shared clock."""

    def __init__(self, program: Program, config: SolverConfig) -> None:
        self.program, self.config = program, config
        self.model = translate(program)
        self.start = time.monotonic()
        self.nodes = 0
        self.stopped: Termination | None = None

    def run(self, incumbent: dict[str, int] | None) -> Outcome:
        """Prove the best plan, then the next ones."""
        best: list[dict[str, int]] = []
        goal = bound = None
        for place in range(max(1, self.config.top)):
            held, low = self._best(incumbent if place == 0 else None)
            if place == 0:
                bound = low
                goal = ratio(self.program, held) if held else None
            if held is None:
                break
            if self.stopped is None:
                held = self._settle_ties(held)
            best.append(held)
            if self.stopped is not None:
                break
            self._forbid(held)
        if self.stopped is not None:
            known = [b for b in (bound, self.program.goal.least) if b is not None]
            bound = max(known, default=None)
        proved = self.stopped is None or (goal is not None and goal == bound)
        return Outcome(
            termination=Termination.PROVED if proved else self.stopped or Termination.FAILED,
            holding=holding(bool(best), proved),
            best=tuple(chosen(self.program, plan) for plan in best),
            goal=goal,
            bound=bound,
            engine=ENGINE,
            seconds=time.monotonic() - self.start,
            nodes=self.nodes,
        )

    def _best(
        self, incumbent: dict[str, int] | None
    ) -> tuple[dict[str, int] | None, Fraction | None]:
        """Minimise the goal; the best plan and a bound that nothing beats."""
        of, per = self.program.goal.of, self.program.goal.per
        held = self.program.evaluate(incumbent) if incumbent else None
        if per is None or len(set(self.program.bounds[per])) == 1:
            unit = self.program.bounds[per][0] if per else 1
            found, low = self._minimise(((1, of),), held)
            return found, None if low is None else Fraction(low, unit)
        if held is None:
            held, low = self._minimise(((1, of),), None)
            if held is None or self.stopped:
                return held, None if low is None else Fraction(low, self.program.bounds[per][1])
        return self._dinkelbach(held)

    def _dinkelbach(self, held: dict[str, int]) -> tuple[dict[str, int], Fraction]:
        """Minimise a ratio, starting from a plan; the best plan and a bound that nothing beats."""
        of, per = self.program.goal.of, str(self.program.goal.per)
        low, high = self.program.bounds[per]
        while True:
            here = ratio(self.program, held)
            slope = self._slope(held)
            terms: Terms = ((slope.denominator, of), (-slope.numerator, per))
            found, least = self._minimise(terms, held)
            if found is not None and ratio(self.program, found) < here:
                held = found
            # of / per >= slope + least / (denominator * per), whatever per is
            rest = Fraction(least or 0, slope.denominator * (high if (least or 0) > 0 else low))
            if self.stopped or found is None or found is not held:
                return held, min(ratio(self.program, held), slope + rest)

    def _slope(self, held: dict[str, int]) -> Fraction:
        """Return a plan's ratio, or the whole number below where products would leave 64 bits."""
        of, per = self.program.goal.of, str(self.program.goal.per)
        exact = Fraction(held[of], held[per])
        size = exact.denominator * self.program.bounds[of][1]
        size += exact.numerator * self.program.bounds[per][1]
        return exact if size <= 2 * LARGEST else Fraction(exact.numerator // exact.denominator)

    def _minimise(
        self, terms: Terms, hint: dict[str, int] | None
    ) -> tuple[dict[str, int] | None, int | None]:
        """
        Minimise a linear combination; the values found and a lower bound, both exact.

        CP-SAT compares objectives as floats, which are exact only near zero, so each round counts
        from the best value of the round before until a round finds nothing better.
        """
        base = self._at(terms, hint) if hint else self._least(terms)
        while True:
            values, least, done = self._round(terms, hint, base)
            if not done or values is None or abs(self._at(terms, values) - base) < EXACT_FLOAT:
                return values, least
            hint, base = values, self._at(terms, values)

    def _at(self, terms: Terms, values: dict[str, int]) -> int:
        """Value of a linear combination."""
        return sum(k * values[c] for k, c in terms)

    def _least(self, terms: Terms) -> int:
        """Smallest value that the bounds of the columns allow."""
        bounds = self.program.bounds
        return sum(min(k * bounds[c][0], k * bounds[c][1]) for k, c in terms)

    def _round(
        self, terms: Terms, hint: dict[str, int] | None, base: int
    ) -> tuple[dict[str, int] | None, int | None, bool]:
        """Minimise once, counting from a base; values, bound, and whether it was finished."""
        kept, self.model = self.model, cloned(self.model)
        raw, least = self.model.raw, self._least(terms)
        try:
            # A hint is a plan, so that nothing dearer need be looked at.
            most = 0 if hint else -self._least(tuple((-k, c) for k, c in terms)) - base
            beyond = raw.new_int_var(least - base, most, "beyond the base")
            raw.add(self.model.linear(terms) - base == beyond)
            raw.minimize(beyond)
            for name, value in (hint or {}).items():
                raw.add_hint(self.model.columns[name], value)
            values, status, low = self._call(self._printed(terms), base)
        finally:
            self.model = kept
        if status == cp_model.OPTIMAL:
            assert values is not None
            return values, self._at(terms, values), True
        if status == cp_model.INFEASIBLE:
            return None, None, True
        if status == cp_model.FEASIBLE and low is not None:
            # A bound that goes with no plan is whatever CP-SAT started from.
            least = max(least, base + floor(low - abs(low) * 1e-12))
        return values or hint, least, False

    def _printed(self, terms: Terms) -> float | None:
        """Factor from an objective to the goal's printed unit; None for any other objective."""
        of, per = self.program.goal.of, self.program.goal.per
        plain = terms == ((1, of),) and (per is None or len(set(self.program.bounds[per])) == 1)
        return (
            self.program.goal.scale / (self.program.bounds[per][0] if per else 1) if plain else None
        )

    def _call(
        self, unit_scale: float | None = None, base: int = 0
    ) -> tuple[dict[str, int] | None, cp_model.CpSolverStatus, float | None]:
        """Run CP-SAT once within what is left of the time."""
        left = None
        if self.config.seconds is not None:
            left = max(self.config.seconds - (time.monotonic() - self.start), 0.001)
        solver = new_solver(self.config.seed, self.config.workers, left)
        if self.config.workers > 1:
            solver.parameters.interleave_search = True
        watcher = _Watcher(self, unit_scale, base) if self.config.progress and unit_scale else None
        status = solved(solver, self.model.raw, watcher)
        self.nodes += solver.num_branches
        if status in (cp_model.FEASIBLE, cp_model.UNKNOWN):
            spent = time.monotonic() - self.start
            # CP-SAT stops a little early when it sees that the time will not do.
            timed = self.config.seconds is not None and spent >= self.config.seconds / 2
            self.stopped = Termination.TIME_LIMIT if timed else Termination.INTERRUPTED
        values = None
        if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            values = {
                name: int(solver.value(column)) for name, column in self.model.columns.items()
            }
        return values, status, solver.best_objective_bound

    def _settle_ties(self, held: dict[str, int]) -> dict[str, int]:
        """Among plans of the same goal return the first by the program's ties."""
        of, per = self.program.goal.of, self.program.goal.per
        top, bottom = held[of], held[per] if per else 1
        kept, self.model = self.model, cloned(self.model)
        same, columns = self.model.raw, self.model.columns
        try:
            if per is None or self._slope(held) != Fraction(top, bottom):
                same.add(columns[of] == top)
                same.add(columns[per or of] == held[per or of])
            else:
                slope = self._slope(held)
                terms: Terms = ((slope.denominator, of), (-slope.numerator, per))
                self.model.demand(terms, None, 0)
            if self._alone(held):
                return held
            for tie in self.program.ties:
                found, _ = self._minimise(((1, tie),), held)
                if found is None or self.stopped:
                    return held
                held = found
                same.add(columns[tie] == held[tie])
            return held
        finally:
            self.model = kept

    def _alone(self, held: dict[str, int]) -> bool:
        """Tell whether no other plan of the present model exists."""
        kept = self.model
        self.model = cloned(kept)
        try:
            self._forbid(held)
            _, status, _ = self._call()
            return status == cp_model.INFEASIBLE
        finally:
            self.model = kept

    def _forbid(self, held: dict[str, int]) -> None:
        """Rule out one assignment of the choices."""
        values = chosen(self.program, held)
        columns = [self.model.columns[name] for name in values]
        self.model.raw.add_forbidden_assignments(columns, [list(values.values())])


class _Watcher(cp_model.CpSolverSolutionCallback):
    """Hands incumbents and bounds to whoever shows them."""

    def __init__(self, search: _Search, scale: float, base: int) -> None:
        super().__init__()
        self._search, self._scale, self._base = search, scale, base

    def on_solution_callback(self) -> None:
        """Report one solution."""
        told = self._search.config.progress
        if told:
            spent = time.monotonic() - self._search.start
            held = (self.objective_value + self._base) * self._scale
            bound = (self.best_objective_bound + self._base) * self._scale
            told(Progress(spent, held, bound))
