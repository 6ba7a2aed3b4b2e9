"""Re-check a plan and its certificate without trusting the run that wrote them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Literal

from optplan.certificate import bound_seconds, gap_of, goal_of, goal_value, strategies_log10
from optplan.costs import costs_of
from optplan.front import front_of
from optplan.infeasible import explain_infeasible
from optplan.judge import judge, warnings
from optplan.models.cost.estimate import estimate
from optplan.models.formulate import Formulation, formulate
from optplan.models.record import Record
from optplan.models.rules.registry import Rule
from optplan.planner import run
from optplan.read_back import read_result
from optplan.result import Certificate, Explanation, Result
from optplan.solvers import exhaustive
from optplan.solvers.base import DONE, PROVEN, Census, Holding, Outcome, SolverConfig, Termination
from optplan.solvers.catalogue import engine as engine_named
from optplan.solvers.outside import outside_name
from optplan.solvers.recheck import recheck
from optplan.verify_sure import recheck_sure
from optplan.within import neighbourhood

ENGINE_NAMES = ("cp-sat", "cp-sat, search", "milp", "milp, search", "exhaustive", "paper")
"""How engines name themselves in a certificate, before their versions."""

EQUAL = 1e-9
"""Relative difference below which two floats of the same formula count as equal on two machines."""


MOST_EXACT = 5_000_000
"""A space up to this size has its bound derived anew in whole numbers."""

MOST_POINTS = 50_000_000
"""A space up to this size is priced anew, a larger one is not."""


class Check(Record):
    """One thing that was checked."""

    name: str
    """What was checked."""
    holds: bool | None
    """True, false, or none where it cannot be told."""
    text: str
    """The numbers."""


class Verification(Record):
    """The answer to ``verify``."""

    verdict: Literal["verified", "not verified", "cannot tell"]
    """All checks hold; some check fails; none fails and some cannot be told."""
    checks: tuple[Check, ...]
    """Every check, in order."""

    @property
    def exit_code(self) -> int:
        """0 verified, 1 not verified, 3 cannot tell."""
        return {"verified": 0, "not verified": 1, "cannot tell": 3}[self.verdict]

    def to_json(self) -> str:
        """Render as JSON."""
        return json.dumps(self.model_dump(mode="json"), indent=1)


def verify(plan: str | Path | Result, rules: Iterable[Rule] = ()) -> Verification:
    """
    Re-check a result: digest, fingerprint, rules, price, counts and bound.

    Parameters
    ----------
    plan
        Path of the JSON that ``solve`` wrote, its text, or a result.
    rules
        The user's own rules that the result was solved under; without them what rests on them
        cannot be told.

    Returns
    -------
    Verification
        What holds, what does not, and what cannot be told, each with its numbers.
    """
    result = plan if isinstance(plan, Result) else read_result(plan)
    checks = tuple(_checks(result, tuple(rules)))
    told = [check.holds for check in checks]
    verdict: Literal["verified", "not verified", "cannot tell"] = "verified"
    if False in told:
        verdict = "not verified"
    elif None in told:
        verdict = "cannot tell"
    return Verification(verdict=verdict, checks=checks)


def _checks(result: Result, rules: tuple[Rule, ...]) -> Iterator[Check]:
    """Run every check."""
    problem = result.problem
    digest = result.computed_digest()
    yield _check("digest", digest == result.digest, f"{digest[:16]} of all but the time spent")
    yield _engine(result.certificate.engine)
    own = problem.fingerprint
    yield _check("fingerprint", own == result.certificate.fingerprint, f"{own[:16]} of the problem")
    yield _status(result)
    rules = tuple(rule for rule in rules if rule.name in result.rules)
    missing = set(result.rules) - {rule.name for rule in rules}
    points = exhaustive.count(formulate(problem).program)
    yield _check("points", points == result.certificate.points, f"{points:,}")
    if missing:
        text = f"solved under rules that are not at hand: {', '.join(sorted(missing))}"
        if any(not name.startswith("constrain.") for name in missing):
            text += "; give their file by --rules, or install their package"
        yield _check("rules", None, text)
    elif points > MOST_POINTS and result.certificate.engine.startswith(("exhaustive", "paper")):
        yield _check("bound", None, f"{points:,} points are too many to price anew, one by one")
    else:
        yield from _anew(result, rules)


def _check(name: str, holds: bool | None, text: str) -> Check:
    """Write one check down."""
    return Check(name=name, holds=holds, text=text)


def _engine(told: str) -> Check:
    """Check that an engine of ours is named; another version of it may count otherwise."""
    name, _, versions = told.partition(" (")
    known = name in ENGINE_NAMES and versions.endswith(")")
    if outside_name(told) and versions.endswith(")"):
        return _check("engine", True, f"{told}: from outside, all it says is derived anew")
    return _check("engine", known, told if known else f"{told!r} is no engine of ours")


def _status(result: Result) -> Check:
    """Check that the words of the status fit each other and what the result holds."""
    termination, holding = result.status.termination, result.status.holding
    known = termination in set(Termination) and holding in set(Holding)
    done = termination in DONE
    held = (result.plan is not None) == (result.estimate is not None) == (holding != "nothing")
    fits = (holding != "optimal" or done) and (holding != "feasible" or not done)
    return _check("status", known and held and fits, f"{termination}, {holding}")


def _anew(result: Result, rules: tuple[Rule, ...]) -> Iterator[Check]:
    """Price the plan and the whole space anew."""
    problem, certificate = result.problem, result.certificate
    engine = "exhaustive" if certificate.engine.startswith("exhaustive") else "cp-sat"
    form, outcome = run(problem, rules, engine)
    if outcome.termination is Termination.INTERRUPTED:
        raise KeyboardInterrupt  # Half of a second opinion is none.
    best = None if outcome.goal is None else float(outcome.goal) * form.goal_scale
    done = result.status.termination in DONE
    if result.plan is not None:
        yield from _plan(result, form)
        yield from _front(result, form, outcome)
    elif done:
        yield _explanation(result, explain_infeasible(problem, rules) if best is None else None)
    if certificate.bound is not None and best is not None:
        text = f"{certificate.bound:.12g} <= {best:.12g}, priced anew"
        yield _check("bound", certificate.bound <= best * (1 + EQUAL), text)
        yield from _exactly(form, certificate)
    yield _check("unit", certificate.unit == form.program.goal.unit, certificate.unit)
    if done:
        tick = float(form.tick)
        yield _check("tick", certificate.tick_seconds == tick, f"{tick:g} s")
        ways = strategies_log10(form)
        same = _same(ways, certificate.strategies_log10)
        yield _check("strategies", same, f"10^{ways:g} ways, layers handed out any way")
        yield from _counts(result, form, outcome)


def _explanation(result: Result, expected: Explanation | None) -> Check:
    """Compare a clash and its ways out with those found anew, as far as the clock allowed both."""
    told = result.explanation
    if expected is None:
        return _check("explanation", False, "a plan exists")
    ways = {one.change: one for one in expected.ways_out}
    same = all(one.change in ways and alike(one, ways[one.change]) for one in told.ways_out)
    clash = {"ways_out": (), "complete": True}
    if not alike(told.model_copy(update=clash), expected.model_copy(update=clash)):
        return _check("explanation", False, "another clash is found anew")
    if same and len(ways) == len(told.ways_out):
        return _check("explanation", True, "no point obeys every rule")
    if told.complete and expected.complete:
        return _check("explanation", False, "other ways out are found anew")
    return _check("explanation", True if same else None, "ways out as far as time allowed")


def _exactly(form: Formulation, certificate: Certificate) -> Iterator[Check]:
    """Derive the bound anew from the factored tables, in whole numbers."""
    assert certificate.bound is not None
    if certificate.points > MOST_EXACT:
        return
    claim = Fraction(certificate.bound) / Fraction(form.goal_scale) * (1 - Fraction(EQUAL))
    found = recheck(form.program, claim)
    if found is None or not found.done:
        return
    if found.better is None:
        text = f"no plan below it, in whole numbers, {found.nodes:,} partial plans"
    else:
        text = f"{form.decode(found.better)} undercuts it"
    yield _check("bound, exactly", found.better is None, text)


def _plan(result: Result, form: Formulation) -> Iterator[Check]:
    """Price the plan anew, ask every rule, and compare what the result says of it."""
    problem, certificate, plan = result.problem, result.certificate, result.plan
    assert plan is not None
    price = estimate(problem, plan)
    text = f"{price.step_seconds:.9g} s, {price.memory.peak_bytes} bytes"
    yield _check("estimate", _same(_plain(price), _plain(result.estimate)), text)
    verdict = judge(problem, form.rules, plan, price)
    broken = "; ".join(f"{name}: {why}" for name, why in verdict.broken.items())
    yield _check("rules", verdict.holds, broken or f"{len(verdict.kept)} findings hold")
    yield _check("verdict", _same(_plain(verdict), _plain(result.verdict)), "as judged anew")
    said = warnings(problem, plan, price)
    yield _check("warnings", said == result.warnings, f"{len(said)}")
    goal = goal_of(form, plan, price)
    close = certificate.goal is not None and abs(goal - certificate.goal) <= EQUAL * goal
    yield _check("goal", close, f"{goal:.12g} {certificate.unit}")
    bound = certificate.bound
    gap = gap_of(goal, bound)
    right = certificate.gap is not None and abs(gap - certificate.gap) <= EQUAL * max(gap, 1e-6)
    proven = result.status.holding != "optimal" or gap <= PROVEN
    yield _check("gap", right and proven, f"{gap:.3g}")
    timed = bound_seconds(form, bound, plan)
    yield _check("bound_seconds", _same(timed, certificate.bound_seconds), f"{timed}")
    costs = _plain(costs_of(problem, plan, price))
    yield _check("costs", _same(costs, _plain(result.costs)), "as counted anew")
    if result.alternatives or result.within_error is not None:
        others, within = neighbourhood(form, plan, price, len(result.alternatives))
        same = _same([_plain(a) for a in others], [_plain(a) for a in result.alternatives])
        yield _check("alternatives", same, f"{len(result.alternatives)}")
        if result.within_error is not None:
            same = _same(_plain(within), _plain(result.within_error))
            yield _check("within the error", same, f"{result.within_error.shapes} shapes")
    for name, holds, numbers in recheck_sure(result, form.more):
        yield _check(name, holds, numbers)


def _front(result: Result, form: Formulation, outcome: Outcome) -> Iterator[Check]:
    """Price every point of a front anew, and where it is called complete walk along it again."""
    problem, claim = result.problem, result.front_claim
    if len(problem.goals) < 2 and not result.front and claim is None:
        return
    if claim is None:
        yield _check("front", not result.front, "no claim is made of the front")
        return
    wrong = []
    for number, point in enumerate(result.front):
        price = estimate(problem, point.plan)
        values = {goal: goal_value(problem, goal, point.plan, price) for goal in problem.goals}
        told = (point.values, point.step_seconds, point.peak_bytes, _plain(point.costs))
        true = (values, price.step_seconds, price.memory.peak_bytes)
        same = all(map(_same, told, (*true, _plain(costs_of(problem, point.plan, price)))))
        if not same or not judge(problem, form.rules, point.plan, price).holds:
            wrong.append(number + 1)
    text = f"{len(result.front)} points priced and judged anew"
    yield _check("front", not wrong, f"points {wrong} are not as told" if wrong else text)
    if result.plan is not None and result.front and result.status.holding == "optimal":
        first = result.front[0].plan == result.plan
        yield _check("front's first", first, "the plan is the first goal's best point")
    if not claim.complete:
        yield _check("front complete", None, f"not claimed: {claim.why}")
        return
    if not outcome.best:
        return
    more = tuple(form.more)
    config, apart = SolverConfig(), claim.resolution_bytes
    again = front_of(problem, more, "cp-sat", config, apart, outcome.best[0])
    mine = [point.values for point in result.front]
    theirs = [point.values for point in again.points]
    text = f"{len(theirs)} points found anew by {again.claim.solves} optima"
    yield _check("front complete", _same(mine, theirs), text)


def _counts(result: Result, form: Formulation, outcome: Outcome) -> Iterator[Check]:
    """Count anew where the points went."""
    certificate, census = result.certificate, outcome.census
    assert census is not None
    told = sum(certificate.removed_by_rule.values()) + sum(certificate.prunings.values())
    told += certificate.removed_by_bound + certificate.left
    text = f"{told:,} of {census.points:,} accounted for"
    yield _check("counts", told == census.points and not _below_nothing(certificate), text)
    if outside_name(certificate.engine):
        yield from _told_counts(result, form, census)
        return
    if certificate.engine.startswith("paper"):
        again = engine_named("paper")(form.program, SolverConfig())
        same = again.prunings == certificate.prunings and again.priced == certificate.priced
        yield _check("prunings", same, f"{sum(again.prunings.values()):,} points pruned")
        return
    refused = {name: n for name, n in census.removed_by_rule.items() if n}
    text = f"{sum(refused.values()):,} points refused by {len(refused)} rules"
    yield _check("rules' counts", refused == certificate.removed_by_rule, text)
    same = certificate.priced == outcome.priced
    yield _check("priced", same, f"{outcome.priced:,} points had their price computed")
    fell = certificate.removed_by_bound == outcome.removed_by_bound
    yield _check("bound's count", fell, f"{outcome.removed_by_bound:,} points fall to the bound")


def _told_counts(result: Result, form: Formulation, census: Census) -> Iterator[Check]:
    """Count points by rules as a search does, or one by one, where an engine from outside did."""
    told = result.certificate.removed_by_rule
    if not told:
        return
    same: bool | None = told == {name: n for name, n in census.removed_by_rule.items() if n}
    if not same:
        same = None
        if census.points <= MOST_POINTS:
            single = engine_named("exhaustive")(form.program, SolverConfig()).census
            assert single is not None
            same = told == {name: n for name, n in single.removed_by_rule.items() if n}
    yield _check("rules' counts", same, f"{sum(told.values()):,} points refused by {len(told)}")


def _below_nothing(certificate: Certificate) -> bool:
    """Tell whether some number of points is less than none."""
    several = (*certificate.removed_by_rule.values(), *certificate.prunings.values())
    counts = (*several, certificate.removed_by_bound, certificate.left, certificate.priced)
    return min(counts) < 0


def alike(left: Record, right: Record) -> bool:
    """Tell whether two records hold the same values, floats within rounding."""
    return _same(_plain(left), _plain(right))


def _plain(record: Record | None) -> object:
    """Turn a record into plain JSON values."""
    return None if record is None else record.model_dump(mode="json")


def _same(left: object, right: object) -> bool:
    """Compare two JSON values, floats within rounding."""
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_same(left[k], right[k]) for k in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_same, left, right))
    if isinstance(left, float) and isinstance(right, int | float):
        return abs(left - right) <= EQUAL * max(abs(left), abs(right))
    return left == right
