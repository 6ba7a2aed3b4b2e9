"""One problem under other constants: its best plan there, and what may come close to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from optplan.box import with_constants
from optplan.certificate import goal_of
from optplan.exactly import Clock, Key, OutOfTime
from optplan.judge import judge
from optplan.models.cost.estimate import estimate, step_seconds
from optplan.models.cost.price import Estimate
from optplan.models.domains import CHOICES
from optplan.models.formulate import Formulation, formulate
from optplan.models.rules.registry import Rule
from optplan.models.spec.plan import Plan
from optplan.models.spec.problem import Problem
from optplan.planner import checked
from optplan.solvers.base import SolverConfig, Termination
from optplan.solvers.left import Left
from optplan.within import SHAPE, Near

CLOSE = 1e-9
"""Share by which prices of one plan from the program and from the estimate may differ."""


class TooHard(Exception):
    """A limit asks more of time or memory than to be small, which a search cannot settle."""


@dataclass(frozen=True)
class Scenario:
    """
    A problem under some constants, solved.

    Parameters
    ----------
    constants
        Values of the constants that move.
    form
        The problem there as a program.
    search
        What settles points of it.
    left
        Points whose bound lies within ``share`` of the best plan.
    share
        How far points were kept.
    plan, price
        The best plan and what it costs; none where no plan exists.
    bound
        No plan has a smaller goal there.
    pool
        The best plan and the next ones of other shapes.
    """

    constants: Mapping[str, float]
    form: Formulation
    search: Near
    left: Left
    share: float
    plan: Plan | None
    price: Estimate | None
    bound: float
    pool: tuple[Plan, ...]

    @property
    def problem(self) -> Problem:
        """The problem there."""
        return self.form.problem

    @cached_property
    def goal(self) -> float:
        """Price of the best plan."""
        assert self.plan is not None
        assert self.price is not None
        return goal_of(self.form, self.plan, self.price)

    @cached_property
    def rows(self) -> dict[Key, int]:
        """Where each choice of everything but layers lies among the points left."""
        columns = [self.left.columns[name].tolist() for name in CHOICES]
        return {key: i for i, key in enumerate(zip(*columns, strict=True))}

    def lowest(self, row: int) -> float:
        """Regret that no way to hand out the layers of a point undercuts, by its bound."""
        return float(self.left.bound[row]) * self.form.goal_scale / self.goal - 1 - CLOSE

    def settled(self, row: int, most: float) -> tuple[float, Plan] | None:
        """
        Hand out the layers of a point as well as possible here.

        Returns
        -------
        tuple
            Least regret of the point, and the plan; None where it is larger than ``most``.
        """
        below = self.goal * (1 + most) * (1 + CLOSE) / self.form.goal_scale
        full = self.search.settler.settle(self.left.at(row), Fraction(below))
        if full is None:
            return None
        least = float(self.search.settler.goal(full)) * self.form.goal_scale / self.goal - 1
        return least - CLOSE, self.form.decode(full)

    def price_of(self, plan: Plan) -> float:
        """Price of a plan here in the goal's unit, whatever the rules say of it."""
        if self.problem.main_goal == "fastest":
            return step_seconds(self.problem, plan) / plan.global_batch
        return goal_of(self.form, plan, estimate(self.problem, plan))

    def regret(self, plan: Plan) -> float:
        """Largest regret that a plan can have here, whatever the rules say of it."""
        return self.price_of(plan) / self.bound - 1

    def holds(self, plan: Plan) -> bool:
        """Tell whether a plan keeps every rule here."""
        price = estimate(self.problem, plan)
        return judge(self.problem, self.form.rules, plan, price).holds


def scenario(
    problem: Problem,
    constants: Mapping[str, float],
    rules: Sequence[Rule],
    clock: Clock,
    share: float = 0.0,
    top: int = 1,
) -> Scenario:
    """
    Solve a problem under some constants, and keep what lies within a share of the best plan.

    Raises
    ------
    OutOfTime
        The time was up before.
    TooHard
        The search cannot settle the problem's limits.
    """
    form = formulate(with_constants(problem, constants), rules)
    config = SolverConfig(seconds=clock.left, top=top, distinct=SHAPE if top > 1 else ())
    search = Near(form.program, config, share)
    found = search.run()
    if found.hard:
        raise TooHard
    if found.outcome.termination is not Termination.EXHAUSTED:
        raise OutOfTime
    plan = price = None
    bound = 0.0
    pool: list[Plan] = []
    for assignment in found.outcome.best:
        other, its, _ = checked(form, assignment)
        pool.append(other)
        if plan is None:
            plan, price = other, its
            bound = min(
                float(found.outcome.bound or 0) * form.goal_scale, goal_of(form, other, its)
            )
    left = found.left
    if plan is not None:
        ceiling = float(found.outcome.goal or 0) * (1 + share) * (1 + CLOSE)
        left = left.take(np.asarray(left.bound <= ceiling))
    return Scenario(constants, form, search, left, share, plan, price, bound, tuple(pool))
