"""The proof of an answer, written down in numbers that another machine can recompute."""

from __future__ import annotations

from math import log10

from optplan.models.cost.price import Estimate
from optplan.models.formulate import Formulation, worth
from optplan.models.spec.plan import Plan
from optplan.models.spec.problem import GoalName, Problem
from optplan.result import Certificate
from optplan.solvers import exhaustive
from optplan.solvers.base import Outcome, SolverConfig
from optplan.solvers.boxes import strategies


def goal_of(form: Formulation, plan: Plan, price: Estimate) -> float:
    """Price of a plan in the goal's unit, in floats."""
    return goal_value(form.problem, form.problem.main_goal, plan, price)


def goal_value(problem: Problem, goal: GoalName, plan: Plan, price: Estimate) -> float:
    """Price of a plan by any goal, in that goal's unit, in floats."""
    if goal == "most-headroom":
        return float(price.memory.peak_bytes)
    if goal == "fewest-devices":
        return float(plan.devices)
    held = 1 if goal == "fastest" else problem.cluster.held_devices(plan.devices)
    return price.step_seconds * held * worth(problem, goal)[0] / plan.global_batch


def gap_of(goal: float, bound: float | None) -> float:
    """Share of a goal that could at most be saved: 1 where nothing is known."""
    return 1.0 if bound is None else max(0.0, (goal - bound) / goal)


def certificate_of(
    form: Formulation,
    outcome: Outcome,
    plan: Plan | None,
    price: Estimate | None,
    config: SolverConfig,
) -> Certificate:
    """Write down the proof; the bound is in whole ticks rounded down, the goal in floats."""
    goal = goal_of(form, plan, price) if plan and price else None
    bound = None if outcome.bound is None else float(outcome.bound) * form.goal_scale
    seconds = bound_seconds(form, bound, plan) if plan is not None else None
    census = outcome.census
    removed = {name: n for name, n in census.removed_by_rule.items() if n} if census else {}
    points = census.points if census else exhaustive.count(form.program)
    pruned = sum(outcome.prunings.values())
    left = points - sum(removed.values()) - outcome.removed_by_bound - pruned if census else points
    return Certificate(
        fingerprint=form.problem.fingerprint,
        goal=goal,
        bound=bound,
        unit=form.program.goal.unit,
        bound_seconds=seconds,
        gap=None if goal is None else gap_of(goal, bound),
        tick_seconds=float(form.tick),
        points=points,
        strategies_log10=strategies_log10(form),
        removed_by_rule=removed,
        removed_by_bound=outcome.removed_by_bound,
        left=left,
        prunings=outcome.prunings,
        priced=outcome.priced,
        engine=outcome.engine,
        seed=config.seed,
    )


def bound_seconds(form: Formulation, bound: float | None, plan: Plan) -> float | None:
    """Turn a bound of the goal into seconds of a step at a plan's batch, where time is the goal."""
    if bound is None or form.problem.main_goal != "fastest":
        return None
    return bound * plan.global_batch


def strategies_log10(form: Formulation) -> float:
    """Decimal logarithm of the joint strategies of a problem."""
    return _log10(strategies(form.program))


def _log10(number: int) -> float:
    """Decimal logarithm of a whole number that may be far beyond any float; 0 for none."""
    digits = len(str(number))
    return 0.0 if number < 1 else round(log10(number / 10**digits) + digits, 3)
