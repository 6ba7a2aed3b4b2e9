"""MILP engines through Pyomo, HiGHS or any other; what they find is asked again exactly."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from math import ceil

import pyomo.environ as pyo

from optplan.models.program import Program, Row, Terms, row_holds
from optplan.solvers.base import Holding, Outcome, Progress, SolverConfig, Termination
from optplan.solvers.milp_forms import EXACT, Form, added, goal_unit
from optplan.solvers.milp_model import read, translate
from optplan.solvers.milp_solver import DEFAULT, known_version, run, why_stopped
from optplan.solvers.rounds import Held, Rounds

TRUST = 1e-7
"""Share by which a solver's bound, found in floats, is lowered before it is believed."""

NEAR = 400
"""Solutions that floats cannot tell from the best and that are asked exactly, one by one."""


def name_of(solver: str) -> str:
    """Name an engine of this kind, with the versions behind it."""
    return f"milp ({known_version(solver)}, pyomo {version('pyomo')})"


def solve(
    program: Program,
    config: SolverConfig | None = None,
    incumbent: Mapping[str, int] | None = None,
    solver: str = DEFAULT,
) -> Outcome:
    """
    Prove the best plan of a program by mixed-integer linear optimisation.

    Solvers of this kind count in floats. What they find is asked again of the program itself;
    where it breaks a rule by less than floats can see it is ruled out and the next is looked at,
    and all that floats cannot tell from the best is looked at too. So goal and plan are exact; a
    bound is the solver's, lowered by ``TRUST``, unless nothing was left.

    Parameters
    ----------
    program
        Any program.
    config
        Limits, workers, seed; ``top`` further plans are found one by one.
    incumbent
        Values of all choices of a plan that is known to pass every constraint.
    solver
        A name that Pyomo has.
    """
    config = config or SolverConfig()
    if any(not choice.values for choice in program.choices):
        return Outcome(Termination.PROVED, Holding.NOTHING, engine=name_of(solver))
    return _Search(program, config, solver).run(dict(incumbent) if incumbent else None)


class _Search(Rounds):
    """One run of a MILP solver over a program."""

    def __init__(self, program: Program, config: SolverConfig, solver: str) -> None:
        super().__init__(program, config)
        self.solver = solver
        self.engine = name_of(solver)
        self.written = translate(self.program)
        self.added: list[pyo.Constraint] = []
        self.asked: list[Row] = []

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Take back afterwards what is added to the model meanwhile."""
        kept, asked = self.added, self.asked
        self.added, self.asked = [], [*asked]
        try:
            yield
        finally:
            for row in self.added:
                row.deactivate()
            self.added, self.asked = kept, asked

    def demand(self, terms: Terms, low: int | None, high: int | None) -> None:
        """Narrow the model."""
        self.asked.append(Row("search", terms, low, high))
        self._demand(self.written.linear(terms), low, high)

    def _demand(self, form: Form, low: int | None, high: int | None) -> None:
        """Narrow the model by a row that can be taken back."""
        row = self.written.sheet.demand("search", form, low, high)
        if row is not None:
            self.added.append(row)

    def forbid(self, held: Held) -> None:
        """Rule out one assignment of the choices."""
        on = [self.written.known[c.name][held[c.name]] for c in self.program.choices]
        self._demand(added((1, form) for form in on), None, len(on) - 1)

    def exists(self) -> bool:
        """Tell whether the model has any plan."""
        with self.aside():
            for _ in range(NEAR):
                values, done, _ = self._call(Form())
                if values is None or self.stopped:
                    return not done
                if self._evaluated(values) is not None:
                    return True
                self.forbid(values)
        return True

    def minimise(self, terms: Terms, hint: Held | None) -> tuple[Held | None, int | None]:
        """Minimise a linear combination, asking everything again that floats may have misjudged."""
        form = self.written.linear(terms)
        best, bound = hint, self.least(terms)
        with self.aside():
            if hint is not None:
                self._demand(form, None, self.at(terms, hint) - 1)
            for _ in range(NEAR):
                values, done, low = self._call(form)
                if low is not None:
                    bound = max(bound, low)
                if values is None:
                    return best, self._known(terms, best, bound, done)
                full = self._evaluated(values)
                if full is not None and (
                    best is None or self.at(terms, full) < self.at(terms, best)
                ):
                    best = full
                    self._tell(terms, full)
                if self.stopped:
                    break
                if best is not None:
                    # Floats are sure of nothing closer than this.
                    if bound >= self.at(terms, best):
                        return best, self.at(terms, best)
                    self._demand(form, None, self.at(terms, best) - 1)
                self.forbid(values)
        if self.stopped is None:
            self.stopped = Termination.FAILED
        return best, self._known(terms, best, bound, False)

    def _known(self, terms: Terms, best: Held | None, bound: int, done: bool) -> int | None:
        """Return what bounds a combination: its best value where nothing is left."""
        if best is None:
            return None if done else bound
        return self.at(terms, best) if done else min(bound, self.at(terms, best))

    def _evaluated(self, values: Held) -> Held | None:
        """Work everything out exactly; None where the program refuses what floats let through."""
        if any(True for _ in self.program.broken(values)):
            return None
        full = self.program.evaluate(values)
        return full if all(row_holds(row, full) for row in self.asked) else None

    def _call(self, form: Form) -> tuple[Held | None, bool, int | None]:
        """Run the solver once: choices found, whether it is done, and a bound as a whole number."""
        raw, sheet = self.written.raw, self.written.sheet
        bare = form.less(form.constant)
        unit = goal_unit(bare)
        raw.add_component("goal", pyo.Objective(expr=sheet.expression(bare, unit)))
        try:
            answer = run(raw, self.solver, self.rest, self.config.workers, self.config.seed)
        finally:
            raw.del_component("goal")
        self.nodes += answer.nodes
        if not answer.done:
            self.stopped = why_stopped(answer)
        low = None
        if answer.bound is not None:
            # Nothing is exact beyond what the goal's own columns can differ by.
            least, most = sheet.reach(bare)
            slack = TRUST * (most - least) + (most - least) / EXACT
            low = ceil(answer.bound * unit - slack) + form.constant
        return (dict(read(self.written)) if answer.found else None), answer.done, low

    def _tell(self, terms: Terms, full: Held) -> None:
        """Report a plan."""
        scale = self.printed(terms)
        if self.config.progress and scale is not None:
            held = self.at(terms, full) * scale
            self.config.progress(Progress(self.spent, held, None))
