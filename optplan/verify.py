"""Re-check a plan and its certificate without trusting the run that wrote them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from optplan.judge import judge
from optplan.models.cost.estimate import estimate
from optplan.models.errors import Fault, InputError
from optplan.models.formulate import formulate
from optplan.models.record import Record
from optplan.planner import goal_of, run
from optplan.result import FORMAT, Result
from optplan.solvers import exhaustive

EQUAL = 1e-9
"""Relative difference below which two floats of the same formula count as equal on two machines."""

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


def read_result(path: str | Path) -> Result:
    """
    Read the JSON that ``optplan solve --json`` wrote.

    Raises
    ------
    InputError
        The file is missing, no JSON, or not of this form.
    """
    try:
        data: Any = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(
            [
                Fault(
                    str(path), "", f"cannot read the file: {error.strerror}", "name a readable file"
                )
            ]
        ) from None
    except (ValueError, RecursionError):
        remedy = "write it with optplan solve SPEC --json > plan.json"
        raise InputError([Fault(str(path), "", "this is no JSON", remedy)]) from None
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        remedy = f"take a file with format {FORMAT}, written with optplan solve SPEC --json"
        raise InputError([Fault(str(path), "format", "this is no plan of this version", remedy)])
    try:
        return Result.model_validate(data)
    except ValidationError as error:
        faults = []
        for item in error.errors():
            where = ".".join(map(str, item["loc"]))
            faults.append(
                Fault(
                    str(path),
                    where,
                    "the value does not fit the form",
                    "take the file as it was written",
                )
            )
        raise InputError(faults) from None


def verify(plan: str | Path | Result) -> Verification:
    """
    Re-check a result: fingerprint, rules, price, counts and bound.

    Parameters
    ----------
    plan
        Path of the JSON that ``solve`` wrote, or a result.

    Returns
    -------
    Verification
        What holds, what does not, and what cannot be told, each with its numbers.
    """
    result = plan if isinstance(plan, Result) else read_result(plan)
    checks = tuple(_checks(result))
    told = [check.holds for check in checks]
    verdict: Literal["verified", "not verified", "cannot tell"] = "verified"
    if False in told:
        verdict = "not verified"
    elif None in told:
        verdict = "cannot tell"
    return Verification(verdict=verdict, checks=checks)


def _checks(result: Result) -> list[Check]:
    """Run every check."""
    problem, certificate = result.problem, result.certificate
    own = problem.fingerprint
    checks = [
        Check(
            name="fingerprint",
            holds=own == certificate.fingerprint,
            text=f"{own[:16]} of the problem",
        )
    ]
    form = formulate(problem)
    plan, claimed = result.plan, result.estimate
    if plan is not None and claimed is not None:
        price = estimate(problem, plan)
        same = _same(price.model_dump(mode="json"), claimed.model_dump(mode="json"))
        checks.append(
            Check(
                name="estimate",
                holds=same,
                text=f"{price.step_seconds:.9g} s, {price.memory.peak_bytes} bytes",
            )
        )
        verdict = judge(problem, form.rules, plan, price)
        text = (
            "; ".join(f"{n}: {t}" for n, t in verdict.broken.items())
            or f"{len(verdict.kept)} findings hold"
        )
        checks.append(Check(name="rules", holds=verdict.holds, text=text))
        goal = goal_of(form, plan, price)
        held = certificate.goal is not None and abs(goal - certificate.goal) <= EQUAL * goal
        checks.append(Check(name="goal", holds=held, text=f"{goal:.12g} {certificate.unit}"))
        checks.append(_gap(result, goal))
    checks += _space(result)
    return checks


def _gap(result: Result, goal: float) -> Check:
    """Check that gap, bound and plan fit together."""
    certificate = result.certificate
    if certificate.bound is None:
        return Check(name="gap", holds=certificate.gap in (None, 1.0), text="no bound is claimed")
    gap = max(0.0, (goal - certificate.bound) / goal)
    right = certificate.gap is not None and abs(gap - certificate.gap) <= 1e-12
    proven = result.status.holding != "optimal" or gap <= 1e-6
    return Check(name="gap", holds=right and proven, text=f"{gap:.3g}")


def _space(result: Result) -> list[Check]:
    """Count and price the space anew."""
    problem, certificate = result.problem, result.certificate
    points = exhaustive.count(formulate(problem).program)
    checks = [Check(name="points", holds=points == certificate.points, text=f"{points:,}")]
    if points > MOST_POINTS:
        return [
            *checks,
            Check(name="bound", holds=None, text=f"{points:,} points are too many to price anew"),
        ]
    form, outcome = run(problem)
    assert outcome.census is not None
    removed = sum(outcome.census.removed_by_rule.values())
    claimed = sum(certificate.removed_by_rule.values()) + sum(certificate.prunings.values())
    claimed += certificate.removed_by_bound + certificate.left
    stopped = result.status.termination not in ("proved", "exhausted")
    checks.append(
        Check(
            name="counts",
            holds=claimed == points or stopped,
            text=f"{claimed:,} of {points:,} accounted for",
        )
    )
    if not certificate.prunings and not stopped:
        again = {name: n for name, n in outcome.census.removed_by_rule.items() if n}
        text = f"{removed:,} points refused by {len(again)} rules"
        checks.append(
            Check(name="rules' counts", holds=again == certificate.removed_by_rule, text=text)
        )
    if outcome.goal is None:
        none = result.plan is None
        checks.append(Check(name="bound", holds=none, text="no point obeys every rule"))
    elif result.plan is None:
        claims = result.status.termination in ("proved", "exhausted")
        checks.append(Check(name="bound", holds=not claims, text="a plan exists"))
    elif certificate.bound is not None:
        scale = float(form.tick) if form.program.goal.unit == "s/sequence" else 1.0
        best = float(outcome.goal) * scale
        below = certificate.bound <= best * (1 + EQUAL)
        checks.append(
            Check(
                name="bound",
                holds=below,
                text=f"{certificate.bound:.12g} <= {best:.12g}, priced anew",
            )
        )
    return checks


def _same(left: object, right: object) -> bool:
    """Compare two JSON values, floats within rounding."""
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_same(left[k], right[k]) for k in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_same, left, right))
    if isinstance(left, float) and isinstance(right, int | float):
        return abs(left - right) <= EQUAL * max(abs(left), abs(right))
    return left == right
