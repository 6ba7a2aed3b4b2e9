"""Price one plan, complete what it leaves open, and say how far it is from the best."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from optplan.certificate import goal_of
from optplan.judge import judge, warnings
from optplan.models.cost.estimate import estimate
from optplan.models.cost.price import Estimate
from optplan.models.domains import FLAGS, WORDS, asked_values, coded
from optplan.models.errors import Fault, InputError
from optplan.models.formulate import CHOICES, Formulation, formulate, plan_of
from optplan.models.numbers import listed
from optplan.models.program import Program
from optplan.models.rules.registry import Rule
from optplan.models.spec.plan import Plan
from optplan.models.spec.problem import Problem
from optplan.planner import Condition, Spec, checked, problem_of, run
from optplan.result import Evaluation
from optplan.solvers import exhaustive
from optplan.solvers.nearest import nearest
from optplan.solvers.proved import proved
from optplan.within import alternative

WHOLE = ("tp", "pp", "dp", "cp", "micro_batch", "micro_batches", "global_batch")
"""Choices that are tied by the products ``tp pp dp cp = N`` and ``b m d = G``."""

PER_STAGE = ("layers_per_stage", "recomputed_layers_per_stage")
"""Parts of a plan that are lists, one number a stage."""

SMALL = 2_000_000
"""Points up to which the one that breaks fewest rules is looked for one by one."""


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
    problem, own = problem_of(spec, sets, limits), tuple(rules)
    full, given = completed(problem, plan, own)
    form, best = run(problem, own)
    held = checked(form, best.best[0])[:2] if best.best else None
    return judged(form, full, given, held)


def completed(
    problem: Problem, plan: Mapping[str, Any] | Plan, rules: tuple[Rule, ...] = ()
) -> tuple[Plan, dict[str, int]]:
    """
    Complete a plan as ``evaluate`` does.

    Returns
    -------
    tuple
        The whole plan, and the values that were given, as codes.

    Raises
    ------
    InputError
        As ``evaluate``.
    """
    plan = _sound(plan) if isinstance(plan, Plan) else plan
    given = _given(plan)
    if isinstance(plan, Plan):
        return plan, given
    return _complete(problem, rules, given, _staged(plan)), given


def judged(
    form: Formulation, plan: Plan, given: dict[str, int], best: tuple[Plan, Estimate] | None
) -> Evaluation:
    """Price a whole plan, ask every rule, and compare it with the best plan where there is one."""
    problem = form.problem
    price = estimate(problem, plan)
    optimum = behind = None
    terms: dict[str, float] = {}
    if best is not None:
        its_plan, its_price = best
        optimum = alternative(form, its_plan, its_price, goal_of(form, its_plan, its_price))
        behind = goal_of(form, plan, price) / goal_of(form, its_plan, its_price) - 1
        scale = plan.global_batch / its_plan.global_batch
        terms = {name: price.terms[name] - scale * its_price.terms[name] for name in price.terms}
    return Evaluation(
        plan=plan,
        chosen=tuple(
            name
            for name in CHOICES
            if name not in _multiplied(problem, dict(given)) and _matters(problem, name)
        ),
        estimate=price,
        verdict=judge(problem, form.rules, plan, price),
        optimum=optimum,
        behind=behind,
        terms_behind=terms,
        warnings=warnings(problem, plan, price),
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


def _matters(problem: Problem, name: str) -> bool:
    """Tell whether a choice is one that the workload and the cluster leave."""
    if name in ("ep", "etp"):
        return problem.workload.architecture.experts is not None
    return name != "offload" or problem.cluster.host is not None


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
        elif name not in PER_STAGE:
            given[name] = coded(name, value)
    if faults:
        raise InputError(faults)
    return given


def _staged(plan: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Return the lists of a plan, one number a stage."""
    return {name: tuple(plan[name]) for name in PER_STAGE if name in plan}


def _refusal(name: str, value: object) -> tuple[str, str]:
    """Say what is wrong with one value of a plan; empty where nothing is."""
    if name in PER_STAGE:
        fits = isinstance(value, list | tuple) and 0 < len(value) <= 4096
        numbers = value if isinstance(value, list | tuple) else ()
        fits = fits and all(type(n) is int and 0 <= n <= 10_000 for n in numbers)
        remedy = "one whole number a stage, such as 24,24,24,22"
        return ("", "") if fits else (f"cannot read {value!r}", remedy)
    if name not in CHOICES:
        near = difflib.get_close_matches(str(name), [*CHOICES, *PER_STAGE], n=1)
        hint = f"did you mean {near[0]}?" if near else f"known choices: {', '.join(CHOICES)}"
        return f"unknown choice {name!r}", hint
    words = WORDS.get(name)
    if words:
        wrong = value not in words
        return (f"cannot read {value!r}", f"one of {', '.join(words)}") if wrong else ("", "")
    if name in FLAGS:
        wrong = not isinstance(value, bool)
        return (f"cannot read {value!r}", "true or false") if wrong else ("", "")
    least, most = (0, 3) if name == "zero" else (1, 2**31 - 1)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        return f"cannot read {value!r}", f"a whole number from {least} to {most}"
    return "", ""


def _complete(
    problem: Problem,
    rules: tuple[Rule, ...],
    given: dict[str, int],
    staged: dict[str, tuple[int, ...]],
) -> Plan:
    """Fill in what a plan leaves open."""
    layers = staged.get("layers_per_stage")
    if layers is not None:
        given = {"pp": len(layers), **given}
    found = _completed(problem, rules, given, layers)
    again = staged.get("recomputed_layers_per_stage")
    if layers is None and again is None:
        return found
    layers = layers if layers is not None else found.layers_per_stage
    if again is None:
        same = found.layers_per_stage == layers
        again = found.recomputed_layers_per_stage if same else _again(found, layers)
    changed = {"layers_per_stage": layers, "recomputed_layers_per_stage": again}
    if any(again) and found.recompute != "full":
        changed["recompute"] = "full"  # type: ignore[assignment]
    return _sound(found.model_copy(update=changed))


def _again(plan: Plan, layers: tuple[int, ...]) -> tuple[int, ...]:
    """Recompute all layers of other stages where a plan recomputes all of its own."""
    return layers if plan.recompute == "full" else (0,) * len(layers)


def _completed(
    problem: Problem,
    rules: tuple[Rule, ...],
    given: dict[str, int],
    layers: tuple[int, ...] | None,
) -> Plan:
    """Fill in the choices that a plan leaves open."""
    values = _multiplied(problem, dict(given))
    if set(WHOLE) <= set(values):
        direct = _follow_flags(problem, values)
        if direct:
            return direct
    search = problem.search
    if "global_batch" in given:
        search = search.model_copy(update={"global_batch": given["global_batch"]})
    if layers is not None:
        search = search.model_copy(update={"layers_per_stage": layers})
    wanted = problem.model_copy(update={"search": search})
    form = formulate(wanted, rules, widened=True)
    fixed = form.program.fixed({name: (value,) for name, value in given.items()})
    point = proved(fixed).best
    if point:
        return form.decode(point[0])
    if 0 < exhaustive.count(fixed) <= SMALL:
        near = nearest(fixed)
        if near is not None:
            return _fastest(form, fixed, form.decode(near))
    if set(values) & set(WHOLE) and (len(values) >= 3 or exhaustive.count(fixed)):
        usual = _usual(problem, values)
        if usual is not None:
            return plan_of(problem, usual)
    raise InputError([_nothing(form, given)])


def _fastest(form: Formulation, fixed: Program, near: Plan) -> Plan:
    """
    Find the fastest plan that breaks no more rules than the nearest one, layers handed out well.

    Where memory is among them the nearest plan stays: a faster one would only need more of it.
    """
    verdict = judge(form.problem, form.rules, near, estimate(form.problem, near))
    names = frozenset(name.split("[")[0] for name in verdict.broken)
    if any(name.startswith("capacity.") for name in names):
        return near
    best = proved(fixed.without(names)).best
    return form.decode(best[0]) if best else near


def _usual(problem: Problem, values: dict[str, int]) -> dict[str, int] | None:
    """Fill the products with what is left, every other choice plain; None where nothing fits."""
    asked = asked_values(problem)
    alone = {n: int(v[0]) for n, v in asked.items() if v is not None and len(v) == 1}
    values = alone | values
    full = _plain(values)
    full["dp"] = values.get("dp", problem.devices // (full["tp"] * full["pp"] * full["cp"]))
    batch = values.get("global_batch")
    if not full["dp"] or batch is None:
        return None
    full["global_batch"] = batch
    left = batch // (full["dp"] * full["micro_batch"])
    full["micro_batches"] = values.get("micro_batches", left)
    return full if full["micro_batches"] else None


def _plain(values: dict[str, int]) -> dict[str, int]:
    """Give every choice that is left open its plainest value; chunks come interleaved."""
    full = {name: values.get(name, 0) for name in CHOICES}
    for name in ("tp", "pp", "cp", "ep", "etp", "vpp", "micro_batch"):
        full[name] = values.get(name, 1)
    if full["vpp"] > 1 and "schedule" not in values:
        full["schedule"] = coded("schedule", "interleaved")
    return full


def _multiplied(problem: Problem, values: dict[str, int]) -> dict[str, int]:
    """Add what the two products settle."""
    batch = problem.search.global_batch
    if "global_batch" not in values and isinstance(batch, int):
        values["global_batch"] = batch
    if problem.prices == "paper" or (problem.devices == 1):
        values.setdefault("cp", 1)
    devices = None if problem.search.idle_devices and problem.prices != "paper" else problem.devices
    for product, factors in (
        (devices, ("tp", "pp", "dp", "cp")),
        (None, ("micro_batch", "micro_batches", "dp")),
    ):
        total = product if product is not None else values.get("global_batch")
        if factors[0] == "tp" and product is None:
            continue
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
    product = values["tp"] * values["pp"] * values["dp"] * values["cp"]
    idle = problem.search.idle_devices and problem.prices != "paper"
    fits = product <= problem.devices if idle else product == problem.devices
    splits = (
        values["micro_batch"] * values["micro_batches"] * values["dp"] == values["global_batch"]
    )
    if fits and splits:
        return None
    return plan_of(problem, _plain(values))


def _nothing(form: Formulation, given: dict[str, int]) -> Fault:
    """Say that no layout of the cluster has the given values."""
    text = " ".join(f"{n}={WORDS[n][v] if n in WORDS else v}" for n, v in given.items())
    domain = form.program.domain
    wrong = [n for n, v in given.items() if v not in domain[n]]
    words = {n: [WORDS[n][v] for v in domain[n]] if n in WORDS else domain[n] for n in domain}
    legal = "; ".join(
        f"{n} in {listed(words[n])}" for n in wrong or [n for n in WHOLE if n in domain]
    )
    devices = form.problem.devices
    return Fault("", text, f"no layout of {devices} devices has these values", f"legal: {legal}")
