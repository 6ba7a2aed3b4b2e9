"""Fronts of random problems against every single plan: ``python -m tests.pareto --count 100``."""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from optplan import planner
from optplan.certificate import goal_value
from optplan.judge import judge
from optplan.models.cost.estimate import estimate
from optplan.models.formulate import Formulation, formulate
from optplan.models.program import Table
from optplan.models.spec.problem import Problem
from optplan.result import Result
from optplan.solvers.boxes import strategies
from optplan.solvers.late import Late
from tests.brute import equal_chunks, handed_out, points
from tests.models import samples

GOALS = ("fastest", "cheapest", "least-energy", "most-headroom", "fewest-devices")

MOST_PLANS = 1_500
"""Plans up to which all of them are judged."""

SAME = 2e-9
"""Values that differ by less are one value: floats of one formula in two orders."""

Values = tuple[float, ...]


@dataclass(frozen=True)
class Judged:
    """A plan that every rule lets through: its values by goal, and what a search cannot price."""

    values: Values
    late: float


def weighed_spec(seed: int) -> dict[str, Any] | None:
    """Draw a problem small enough, with several goals; None where this seed has none."""
    rng = random.Random(f"front {seed}")
    spec = samples.random_problem(seed).model_dump(mode="json")
    spec["cluster"] |= {"price": f"{rng.choice(('0.37', '2.50', '11'))} EUR/h"}
    spec["cluster"]["held"] = rng.choice(("all", "nodes", "devices", "devices"))
    spec["cluster"]["accelerator"]["power"] = rng.choice(("400 W", "0.7 kW"))
    goals = rng.sample(GOALS, rng.choice((2, 2, 3, 3, 4, 5)))
    if goals[0] == "fewest-devices":
        goals.reverse()
    spec["goal"] = goals
    problem = planner.problem_of(spec)
    program = formulate(problem).program
    ways = strategies(program)
    return spec if 1 < ways <= MOST_PLANS and not Late(program).hard else None


def every(form: Formulation) -> list[Judged] | None:
    """Judge every plan of a problem; None where there are too many."""
    problem: Problem = form.problem
    tables = [s for s in form.program.statements if isinstance(s, Table) and not s.spans]
    asked = [t for t in tables if not t.gives and set(t.keys) <= set(form.program.domain)]
    found, seen = [], 0
    for point in points(form.program):
        if any(tuple(point[k] for k in t.keys) not in t.index for t in asked):
            continue
        for full in handed_out(form, point):
            seen += 1
            if seen > MOST_PLANS:
                return None
            plan = form.decode(full)
            if point["schedule"] != 0 and not equal_chunks(plan):
                continue
            price = estimate(problem, plan)
            if judge(problem, form.rules, plan, price).holds:
                values = tuple(goal_value(problem, g, plan, price) for g in problem.goals)
                found.append(Judged(values, price.late_seconds / price.step_seconds))
    return found


def no_worse(left: Values, right: Values, slack: float) -> bool:
    """Tell whether all of one plan's values are as small as another's, but for a share."""
    return all(a <= b * (1 + slack) for a, b in zip(left, right, strict=True))


def better(left: Values, right: Values, slack: float) -> bool:
    """Tell whether one plan beats another by more than a share somewhere, and is nowhere worse."""
    return no_worse(left, right, 0.0) and any(
        a < b * (1 - slack) for a, b in zip(left, right, strict=True)
    )


def front(plans: Sequence[Judged]) -> list[Judged]:
    """Keep the plans that no other beats, one of each kind."""
    kept: list[Judged] = []
    for one in sorted(plans, key=lambda plan: plan.values):
        if not any(no_worse(other.values, one.values, SAME) for other in kept):
            kept = [o for o in kept if not no_worse(one.values, o.values, SAME)]
            kept.append(one)
    return kept


def mismatches(spec: dict[str, Any]) -> tuple[str, list[str]]:
    """Compare the front of a spec with that of every plan; what became of it, what differs."""
    form, outcome = planner.run(planner.problem_of(spec))
    plans = every(form)
    if plans is None:
        return "too many", []
    if not plans or not outcome.best:
        differ = bool(plans) != bool(outcome.best)
        return "no plan", ["one finds a plan, the other none"] if differ else []
    result = planner.solve(spec, resolution=0, top=0)
    return f"{len(result.front)} points", list(_differences(result, front(plans), plans))


def _differences(result: Result, expected: list[Judged], plans: list[Judged]) -> list[str]:
    """Compare point for point."""
    assert result.front_claim is not None
    goals = result.problem.goals
    mine = [tuple(point.values[g] for g in goals) for point in result.front]
    # What only very uneven stages add to a step is not seen by a search, and told as a gap.
    slack = SAME + max((plan.late for plan in plans), default=0.0)
    found = []
    if not result.front_claim.complete:
        found.append(f"not complete: {result.front_claim.why}")
    for values in mine:
        if any(better(plan.values, values, 2 * slack) for plan in plans):
            found.append(f"beaten: {values}")
    for plan in expected:
        if not any(no_worse(values, plan.values, slack) for values in mine):
            found.append(f"missing: {plan.values}")
    if slack == SAME and len(mine) != len(expected):
        found.append(f"{len(mine)} points, {len(expected)} expected")
    assert result.certificate.goal is not None
    if result.front and abs(result.certificate.goal / mine[0][0] - 1) > SAME:
        found.append("the plan is not the first goal's best point")
    if any(point.gap > slack + 1e-6 for point in result.front):
        found.append(f"gaps {[point.gap for point in result.front]}")
    return found


def main() -> int:
    """Compare so many fronts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    asked = parser.parse_args()
    seed, done, wrong, many = asked.first - 1, 0, 0, 0
    while done < asked.count:
        seed += 1
        spec = weighed_spec(seed)
        if spec is None:
            continue
        came, differ = mismatches(spec)
        if came == "too many" or (came == "no plan" and not differ):
            continue
        done += 1
        many += came != "1 points"
        wrong += bool(differ)
        print(f"seed {seed}: {came} {'; '.join(differ) or 'as expected'}", flush=True)
    print(f"{done} fronts, {many} of several points, {wrong} differ")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
