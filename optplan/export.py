"""A plan as the launch file of a framework's version."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from optplan import catalogue
from optplan.judge import judge
from optplan.launches.dialects import dialect
from optplan.launches.launch import Dialect
from optplan.models.cost.estimate import estimate
from optplan.models.cost.price import Estimate
from optplan.models.errors import Fault, InputError
from optplan.models.formulate import formulate
from optplan.models.rules.registry import Rule
from optplan.models.spec.plan import Plan
from optplan.models.spec.problem import Problem
from optplan.models.units import bytes_text, seconds_text
from optplan.places import Refusal
from optplan.read_back import read_result
from optplan.result import FORMAT, Reply, Result


class Export(Reply):
    """The answer to ``export``."""

    format: int = FORMAT
    """Version of this form."""
    framework: str
    """Name and version, such as ``megatron-core@0.15``."""
    text: str
    """The launch file."""
    plan: Plan
    """The plan that it launches."""
    estimate: Estimate
    """What that costs."""
    changed: tuple[str, ...] = ()
    """Fields in which it differs from the plan that was given."""
    behind: float = 0.0
    """Share by which its step is longer than that of the plan that was given."""

    @property
    def exit_code(self) -> int:
        """0: written."""
        return 0


def export(plan: str | Path | Result, to: str, *, nearest: bool = False) -> Export:
    """
    Write the launch file of a plan.

    Parameters
    ----------
    plan
        Path of the JSON that ``solve`` wrote, or a result.
    to
        Framework, with or without a version: ``megatron-core@0.15``.
    nearest
        Where the version cannot launch the plan, write the nearest that it can.

    Raises
    ------
    InputError
        The file is no plan or was changed, the framework is unknown, or its version cannot launch
        the plan; then the nearest that it can is named with its price.
    """
    result = plan if isinstance(plan, Result) else read_result(plan)
    place = "" if isinstance(plan, Result) else str(plan)
    if result.computed_digest() != result.digest:
        problem = "the file was changed since it was written"
        remedy = "write it anew with optplan solve SPEC --json"
        raise InputError([Fault(place, "digest", problem, remedy)])
    if result.plan is None:
        remedy = "see optplan explain SPEC for ways out"
        raise InputError([Fault(place, "plan", "there is no plan in it", remedy)])
    speaks, problem_ = launched_by(result.problem, to)
    return exported(problem_, result.plan, speaks, nearest)


def launched_by(problem: Problem, to: str) -> tuple[Dialect, Problem]:
    """
    Return the dialect of a framework, and the problem under what its version can do.

    Raises
    ------
    InputError
        The framework or its version is unknown, or lacks an overlap that the problem asks for.
    """
    speaks = dialect(to)
    _, at, version = to.partition("@")
    try:
        framework = catalogue.framework(f"{speaks.name}{at}{version}")
    except Refusal as refusal:
        raise InputError([Fault("", "--to", refusal.problem, refusal.remedy)]) from None
    missing = [f for f in problem.overlap or () if f not in framework.features]
    if missing:
        text = f"{framework.name} has no {', '.join(missing)}"
        remedy = "solve with an overlap that it has, or export to a later version"
        raise InputError([Fault("", "overlap", text, remedy)])
    return speaks, problem.model_copy(update={"framework": framework})


def exported(problem: Problem, plan: Plan, speaks: Dialect, nearest: bool) -> Export:
    """
    Write a plan, or the nearest that can be launched.

    Raises
    ------
    InputError
        It cannot be launched.
    """
    assert problem.framework is not None
    name, _, version = problem.framework.name.partition("@")
    rules = formulate(problem).rules
    price = estimate(problem, plan)
    refused = _refused(problem, rules, plan, price)
    if not refused:
        try:
            text = speaks.write(problem, plan, version)
        except InputError as error:
            refused = list(error.faults)
        else:
            return Export(framework=f"{name}@{version}", text=text, plan=plan, estimate=price)
    found = near(problem, plan, speaks, rules)
    if found is not None:
        other, text = found
        its = estimate(problem, other)
        behind = its.step_seconds / price.step_seconds - 1
        if nearest:
            changed = tuple(n for n in Plan.model_fields if getattr(plan, n) != getattr(other, n))
            return Export(
                framework=f"{name}@{version}",
                text=text,
                plan=other,
                estimate=its,
                changed=changed,
                behind=behind,
            )
        again = ", ".join(map(str, other.recomputed_layers_per_stage))
        refused[-1] = Fault(
            refused[-1].place,
            refused[-1].path,
            refused[-1].problem,
            f"--nearest writes the nearest it can: {again} recomputed, "
            f"{seconds_text(its.step_seconds)} a step ({behind:+.2%}), "
            f"peak memory {bytes_text(its.memory.peak_bytes)}",
        )
    raise InputError(refused)


def _refused(problem: Problem, rules: tuple[Rule, ...], plan: Plan, price: Estimate) -> list[Fault]:
    """Return what this version cannot launch, by the rules that speak of launchers."""
    verdict = judge(problem, rules, plan, price)
    faults = []
    for name, text in verdict.broken.items():
        if name.partition(".")[0] in ("capacity", "limits", "search"):
            continue
        said, _, legal = text.partition("; ")
        remedy = legal or "solve the spec again with this framework"
        faults.append(Fault("", name, said, f"{remedy}; or solve with this framework in the spec"))
    return faults


def near(
    problem: Problem, plan: Plan, speaks: Dialect, rules: tuple[Rule, ...]
) -> tuple[Plan, str] | None:
    """
    Find the nearest plan that a version can launch, and its file.

    What is tried is one number of recomputed layers for every stage or chunk, fewest first; the
    first that obeys every rule and can be written is taken.
    """
    assert problem.framework is not None
    version = problem.framework.name.partition("@")[2]
    for other in _uniform(plan):
        price = estimate(problem, other)
        if not judge(problem, rules, other, price).holds:
            continue
        try:
            return other, speaks.write(problem, other, version)
        except InputError:
            continue
    return None


def _uniform(plan: Plan) -> Iterator[Plan]:
    """Vary a plan by recomputing some layers of every stage, fewest first."""
    if not any(plan.recomputed_layers_per_stage):
        return
    layers, chunks = plan.layers_per_stage, plan.vpp
    for some in range(1, -(-max(layers) // chunks) + 1):
        again = tuple(min(n, some * chunks) for n in layers)
        yield plan.model_copy(update={"recompute": "full", "recomputed_layers_per_stage": again})
