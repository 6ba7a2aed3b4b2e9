"""Re-check of what an answer says about how sure it is: regrets at every corner, flip points."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from optplan.box import corners, with_constants
from optplan.certificate import goal_of
from optplan.exactly import Best, Clock, best_at
from optplan.flips import Line
from optplan.models.cost.estimate import estimate
from optplan.models.formulate import formulate
from optplan.models.rules.registry import Rule
from optplan.models.spec.plan import Plan
from optplan.models.spec.problem import Problem
from optplan.parameters import parameters
from optplan.result import Result
from optplan.sureness import Along, Robust

CLOSE = 1e-9
"""Share by which two prices of one plan may differ on two machines."""

Finding = tuple[str, bool, str]
"""Name of a check, whether it holds, and its numbers."""


def recheck_sure(result: Result, rules: Sequence[Rule]) -> Iterator[Finding]:
    """Solve every corner and both sides of every flip point anew."""
    if result.robust is not None and result.robust.plan is not None:
        yield _robust(result.problem, result.robust, result.robust.plan, rules)
    if result.flips is None:
        return
    best = best_at(result.problem, rules, Clock(None))
    by = {one.name: one for one in parameters(result.problem)}
    wrong, count = [], 0
    for along in result.flips.along:
        known = along.parameter in by and best is not None
        if known and best is not None:
            line = Line(result.problem, tuple(rules), by[along.parameter], best, Clock(None))
            known = _flips(line, along, best)
        count += (along.falls is not None) + (along.rises is not None)
        if not known:
            wrong.append(along.parameter)
    text = f"{count} flip points, both sides solved anew"
    yield "flips", not wrong, f"not so along {', '.join(wrong)}" if wrong else text


def _robust(problem: Problem, robust: Robust, plan: Plan, rules: Sequence[Rule]) -> Finding:
    """Solve every corner anew, and compare the plan there."""
    most, form = 0.0, formulate(problem, rules)
    for constants in [{axis.constant: axis.value for axis in robust.box}, *corners(robust.box)]:
        there = with_constants(problem, constants)
        best = best_at(there, rules, Clock(None))
        if best is None:
            return "robust", False, "a corner has no plan"
        own = goal_of(form, plan, estimate(there, plan))
        most = max(most, own / best.goal - 1)
    stated = robust.worst_regret if robust.worst_regret is not None else -1.0
    text = f"at most {most:.3%} at every corner, solved anew; stated {stated:.3%}"
    return "robust", most <= stated + CLOSE, text


def _flips(line: Line, along: Along, best: Best) -> bool:
    """Solve on either side of the flip points of one parameter."""
    for flip, rising in ((along.falls, False), (along.rises, True)):
        if flip is None:
            continue
        near, far = (flip.below, flip.above) if rising else (flip.above, flip.below)
        if not line.holds(near) or line.holds(far):
            return False
        beyond = line.at(far)
        if (beyond is None) != (flip.plan is None):
            return False
        if beyond is not None and flip.plan is not None and beyond.plan != flip.plan:
            return False
    return along.now == line.parameter.about(line.parameter.now) and best.goal > 0
