"""Price one plan, complete what it leaves open, and say how far it is from the best."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from optplan.judge import judge, warnings
from optplan.models.cost.estimate import estimate
from optplan.models.errors import Fault, InputError
from optplan.models.formulate import CHOICES, Formulation, formulate, plan_of
from optplan.models.numbers import listed
from optplan.models.rules.registry import Rule
from optplan.models.spec.plan import Plan
from optplan.models.spec.problem import Problem
from optplan.models.spec.space import RECOMPUTES
from optplan.planner import Condition, Spec, alternative, checked, goal_of, problem_of, run
from optplan.result import Evaluation
from optplan.solvers import exhaustive
from optplan.solvers.nearest import nearest

WHOLE = ("tp", "pp", "dp", "micro_batch", "micro_batches", "global_batch")
"""Choices that are tied by the two products ``tp pp dp = N`` and ``b m d = G``."""


def evaluate(
    spec: Spec,
    plan: Mapping[str, Any] | Plan,
    *,
    sets: Sequence[str] = (),
    limits: Sequence[Condition] = (),
    rules: Iterable[Rule] = (),
) -> Evaluation:
    """
    Price a full or partial plan.

    Parameters
    ----------
    spec
        As for ``solve``.
    plan
        Values of choices (``{"tp": 8, "recompute": "full"}``) or a plan. What is left out follows
        from the products or is chosen as well as the rules allow; where no completion obeys them,
        it breaks as few as possible.
    sets, limits, rules
        As for ``solve``.

    Returns
    -------
    Evaluation
        Estimate, every rule with its verdict, and the distance to the optimum of the spec.

    Raises
    ------
    InputError
        A value is no value of its choice, or no layout of this cluster has all the given values.
    """
    problem = problem_of(spec, sets, limits)
    plan = _sound(plan) if isinstance(plan, Plan) else plan
    given = _given(plan)
    own = tuple(rules)
    complete = plan if isinstance(plan, Plan) else _complete(problem, own, given)
    price = estimate(problem, complete)
    form, best = run(problem, own)
    verdict = judge(problem, form.rules, complete, price)
    optimum = behind = None
    terms: dict[str, float] = {}
    if best.best:
        its_plan, its_price, _ = checked(form, best.best[0])
        optimum = alternative(form, its_plan, its_price, goal_of(form, its_plan, its_price))
        behind = goal_of(form, complete, price) / goal_of(form, its_plan, its_price) - 1
        scale = complete.global_batch / its_plan.global_batch
        terms = {name: price.terms[name] - scale * its_price.terms[name] for name in price.terms}
    return Evaluation(
        plan=complete,
        chosen=tuple(name for name in CHOICES if name not in _multiplied(problem, dict(given))),
        estimate=price,
        verdict=verdict,
        optimum=optimum,
        behind=behind,
        terms_behind=terms,
        warnings=warnings(problem, complete, price),
        problem=problem,
    )


def _sound(plan: Plan) -> Plan:
    """
    Check a plan anew: a changed copy of a record is not checked by itself.

    Raises
    ------
    InputError
        The plan contradicts itself.
    """
    try:
        return Plan.model_validate(plan.model_dump())
    except ValidationError as error:
        problem = error.errors()[0]["msg"].removeprefix("Value error, ")
        remedy = "change pp, layers_per_stage and recomputed_layers_per_stage together"
        raise InputError([Fault("", "layers_per_stage", problem, remedy)]) from None


def _given(plan: Mapping[str, Any] | Plan) -> dict[str, int]:
    """Values of the choices that a plan names, as codes."""
    if isinstance(plan, Plan):
        return {name: 0 for name in CHOICES}
    faults = []
    given: dict[str, int] = {}
    for name, value in plan.items():
        problem, remedy = _refusal(name, value)
        if problem:
            faults.append(Fault("", str(name), problem, remedy))
        else:
            given[name] = RECOMPUTES.index(value) if name == "recompute" else int(value)
    if faults:
        raise InputError(faults)
    return given


def _refusal(name: str, value: object) -> tuple[str, str]:
    """Say what is wrong with one value of a plan; empty where nothing is."""
    if name not in CHOICES:
        near = difflib.get_close_matches(str(name), CHOICES, n=1)
        hint = f"did you mean {near[0]}?" if near else f"known choices: {', '.join(CHOICES)}"
        return f"unknown choice {name!r}", hint
    if name == "recompute":
        wrong = value not in RECOMPUTES
        return (f"cannot read {value!r}", f"one of {', '.join(RECOMPUTES)}") if wrong else ("", "")
    if name == "sequence_parallel":
        wrong = not isinstance(value, bool)
        return (f"cannot read {value!r}", "true or false") if wrong else ("", "")
    least, most = (0, 1) if name == "zero" else (1, 2**31 - 1)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        return f"cannot read {value!r}", f"a whole number from {least} to {most}"
    return "", ""


def _complete(problem: Problem, rules: tuple[Rule, ...], given: dict[str, int]) -> Plan:
    """Fill in what a plan leaves open."""
    values = _multiplied(problem, dict(given))
    if set(WHOLE) <= set(values):
        direct = _follow_flags(problem, values)
        if direct:
            return direct
    wanted = problem
    if "global_batch" in given:
        search = problem.search.model_copy(update={"global_batch": given["global_batch"]})
        wanted = problem.model_copy(update={"search": search})
    form = formulate(wanted, rules, widened=True)
    fixed = form.program.fixed({name: (value,) for name, value in given.items()})
    point = exhaustive.solve(fixed).best
    if point:
        return form.decode(point[0])
    near = nearest(fixed)
    if near is not None:
        return form.decode(near)
    raise InputError([_nothing(form, given)])


def _multiplied(problem: Problem, values: dict[str, int]) -> dict[str, int]:
    """Add what the two products settle."""
    batch = problem.search.global_batch
    if "global_batch" not in values and isinstance(batch, int):
        values["global_batch"] = batch
    for product, factors in (
        (problem.devices, ("tp", "pp", "dp")),
        (None, ("micro_batch", "micro_batches", "dp")),
    ):
        total = product if product is not None else values.get("global_batch")
        missing = [f for f in factors if f not in values]
        if total is None or len(missing) != 1:
            continue
        known = 1
        for factor in factors:
            known *= values.get(factor, 1)
        if total % known == 0:
            values[missing[0]] = total // known
    if "global_batch" not in values and {"micro_batch", "micro_batches", "dp"} <= set(values):
        values["global_batch"] = values["micro_batch"] * values["micro_batches"] * values["dp"]
    return values


def _follow_flags(problem: Problem, values: dict[str, int]) -> Plan | None:
    """Build the plan directly when its flags are given too or its products do not fit."""
    fits = values["tp"] * values["pp"] * values["dp"] == problem.devices
    splits = (
        values["micro_batch"] * values["micro_batches"] * values["dp"] == values["global_batch"]
    )
    flags = ("sequence_parallel", "recompute", "zero")
    if fits and splits and not set(flags) <= set(values):
        return None
    full = {name: values.get(name, 0) for name in CHOICES}
    return plan_of(problem, full)


def _nothing(form: Formulation, given: dict[str, int]) -> Fault:
    """Say that no layout of the cluster has the given values."""
    text = " ".join(f"{name}={value}" for name, value in given.items())
    domain = form.program.domain
    wrong = [n for n, v in given.items() if v not in domain[n]]
    legal = "; ".join(
        f"{n} in {listed(domain[n])}" for n in wrong or [n for n in WHOLE if n in domain]
    )
    devices = form.problem.devices
    return Fault("", text, f"no layout of {devices} devices has these values", f"legal: {legal}")
