"""The best plan of one problem by the per-stage search alone: what many changed problems need."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from optplan.certificate import goal_of
from optplan.models.cost.price import Estimate
from optplan.models.domains import CHOICES, decoded
from optplan.models.formulate import Formulation, formulate
from optplan.models.rules.registry import Rule
from optplan.models.spec.plan import Plan
from optplan.models.spec.problem import Problem
from optplan.planner import FINE, checked, run
from optplan.solvers.base import DONE, Holding, SolverConfig, Termination
from optplan.solvers.search import Search

Key = tuple[int, ...]
"""Values of all choices, in the order of ``CHOICES``; layers are not part of it."""


class OutOfTime(Exception):
    """A problem was not settled in time."""


@dataclass(frozen=True)
class Best:
    """
    The best plan of a problem.

    Parameters
    ----------
    key
        What was chosen.
    plan, price
        The plan, judged by every rule, and what it costs.
    goal
        Its price in the goal's unit, in floats.
    bound
        No plan has a smaller goal.
    """

    key: Key
    plan: Plan
    price: Estimate
    goal: float
    bound: float


class Clock:
    """Time that several solves share."""

    def __init__(self, seconds: float | None) -> None:
        self._end = None if seconds is None else time.monotonic() + seconds

    @property
    def left(self) -> float | None:
        """
        Seconds left; None for no limit.

        Raises
        ------
        OutOfTime
            None is left.
        """
        if self._end is None:
            return None
        rest = self._end - time.monotonic()
        if rest <= 0:
            raise OutOfTime
        return rest

    def check(self) -> None:
        """Raise ``OutOfTime`` where no time is left."""
        _ = self.left


def key_of(assignment: dict[str, int]) -> Key:
    """Values of all choices."""
    return tuple(assignment[name] for name in CHOICES)


def best_at(problem: Problem, rules: Sequence[Rule], clock: Clock) -> Best | None:
    """
    Solve a problem to the end by the per-stage search; None where it has no plan.

    Raises
    ------
    OutOfTime
        The time was up before.
    """
    form = formulate(problem, rules)
    found = Search(form.program, SolverConfig(seconds=clock.left)).run()
    if found.hard:
        return _by_engine(problem, rules, clock)
    if found.outcome.termination is not Termination.EXHAUSTED:
        raise OutOfTime
    if not found.outcome.best:
        return None
    plan, price, _ = checked(form, found.outcome.best[0])
    if form.rounding_seconds(plan) > FINE * price.step_seconds:
        return _by_engine(problem, rules, clock)
    return _best(form, found.outcome.best[0], plan, price, float(found.outcome.bound or 0))


def _by_engine(problem: Problem, rules: Sequence[Rule], clock: Clock) -> Best | None:
    """Solve a problem that needs finer ticks, or has limits that a search cannot settle alone."""
    form, outcome = run(problem, tuple(rules), config=SolverConfig(seconds=clock.left))
    if outcome.termination not in DONE or (outcome.best and outcome.holding != Holding.OPTIMAL):
        raise OutOfTime
    if not outcome.best:
        return None
    plan, price, _ = checked(form, outcome.best[0])
    return _best(form, outcome.best[0], plan, price, float(outcome.bound or 0))


def _best(
    form: Formulation, assignment: dict[str, int], plan: Plan, price: Estimate, bound: float
) -> Best:
    """Write down what was found; a bound is never above the price."""
    goal = goal_of(form, plan, price)
    return Best(key_of(assignment), plan, price, goal, min(goal, bound * form.goal_scale))


def narrowed(problem: Problem, key: Key) -> Problem:
    """Return the problem with every choice fixed, so that only layers are left to hand out."""
    values = {name: decoded(name, value) for name, value in zip(CHOICES, key, strict=True)}
    return problem.model_copy(update={"search": problem.search.model_copy(update=values)})


def allowed(problem: Problem, key: Key, rules: Sequence[Rule], clock: Clock) -> Best | None:
    """Hand out the layers of one choice of everything else as well as possible."""
    return best_at(narrowed(problem, key), rules, clock)
