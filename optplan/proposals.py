"""Better launches for the job of one: the nearest legal one, and the best."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence

from optplan.export import near
from optplan.findings import DoctorFinding
from optplan.launches.job import Prepared
from optplan.launches.launch import Dialect, Value
from optplan.launches.megatron_amend import ENVIRONMENT
from optplan.launches.values import plan_from
from optplan.models.cost.estimate import estimate
from optplan.models.cost.price import Estimate
from optplan.models.errors import InputError
from optplan.models.formulate import formulate
from optplan.models.record import Record
from optplan.models.spec.plan import Plan
from optplan.nearest_launch import KEPT

SHOWN = (*KEPT, "global_batch", "layers_per_stage", "recomputed_layers_per_stage")
"""Values that a proposal lists as changed."""

MENDED_BY = {
    "layers-lost": ("layers_per_stage", "vpp", "schedule"),
    "last-stage-alone": ("layers_per_stage",),
    "chunks": ("vpp", "schedule", "layers_per_stage"),
    "layout": ("layers_per_stage",),
    "recompute-incomplete": ("recompute", "recomputed_layers_per_stage"),
    "recompute-refused": ("recompute",),
    "offload-refused": ("offload",),
    "experts-missing": ("ep",),
    "overlap": ("zero", "sequence_parallel"),
}
"""Values that are written anew where a dialect refuses how they are written, by its rule."""


EXPORT = r"export (\w+)=(\w+)"
"""A remedy that is one line of a script."""

SET = "--set "
"""What a value begins with that the caller gave, where others name their option."""


class Proposal(Record):
    """Another launch for the same job."""

    plan: Plan
    """The plan that it launches."""
    changes: dict[str, str]
    """What it changes: ``8 -> 4`` by name."""
    patch: str
    """Unified diff to the file that was read; empty where it is written anew."""
    text: str
    """The whole file."""
    step_seconds: float | None = None
    """Predicted step; none without a machine."""
    tokens_per_second: float | None = None
    """Predicted throughput of all devices."""
    gain: float | None = None
    """Share of the step that it saves against the launch that was read; none where that one
    cannot run."""
    error: str = ""
    """Held-out error of the cost model, as printed beside every answer."""
    within_error: bool = False
    """Whether the gain is smaller than that error."""
    proven: bool = True
    """Whether it is proved to be the best (for the best one)."""


def corrected(
    prepared: Prepared,
    speaks: Dialect,
    source: str,
    findings: Sequence[DoctorFinding],
    plan: Plan,
) -> Proposal | None:
    """
    Write the nearest legal plan as a launch; None where what is wrong is none of a layout.

    Parameters
    ----------
    plan
        As ``nearest_plan`` finds it.
    """
    forced = _forced(findings)
    return proposed(prepared, speaks, source, plan, forced)


def best(
    prepared: Prepared,
    speaks: Dialect,
    source: str,
    plans: Sequence[Plan],
    proven: bool,
) -> Proposal | None:
    """
    Find the best launch for the same job among good plans; None where it is the one that was read.

    Parameters
    ----------
    plans
        Plans to choose from, the best of the spec first. A framework may launch it only in part, as
        with layers recomputed on some stages alone; then one behind it may be better.
    proven
        Whether the first is proved to be the best.
    """
    problem = prepared.problem
    assert problem.framework is not None
    version = problem.framework.name.partition("@")[2]
    rules_ = formulate(problem).rules
    able: list[Plan] = []
    for plan in dict.fromkeys(plans):
        try:
            speaks.write(problem, plan, version)
            able.append(plan)
        except InputError:
            found = near(problem, plan, speaks, rules_)
            if found is not None:
                able.append(found[0])
    if not able:
        return None
    chosen = min(able, key=lambda plan: estimate(problem, plan).step_seconds)
    if chosen == prepared.plan:
        return None
    proposal = proposed(prepared, speaks, source, chosen, ())
    if proposal is None or not proposal.changes:
        return None
    return proposal.model_copy(update={"proven": proven and chosen == plans[0]})


def proposed(
    prepared: Prepared,
    speaks: Dialect,
    source: str,
    plan: Plan,
    forced: Iterable[str],
) -> Proposal | None:
    """
    Write a plan into the launch's own file, or anew where that would not launch it.

    None where its framework launches nothing near, or no file is free of errors.
    """
    problem = prepared.problem
    assert problem.framework is not None
    version = problem.framework.name.partition("@")[2]
    form_rules = formulate(problem).rules
    try:
        whole = speaks.write(problem, plan, version)
    except InputError:
        found = near(problem, plan, speaks, form_rules)
        if found is None:
            return None
        plan, whole = found
    changes = _changes(prepared, plan)
    # What the caller set instead of the file goes into the file.
    given = [one.name for one in prepared.launch.stated if one.written.startswith(SET)]
    more: dict[str, Value] = {
        name: getattr(plan, name) for name in (*forced, *given) if name in Plan.model_fields
    }
    environment = {n: n.partition("=")[2] for n in forced if n.startswith(ENVIRONMENT)}
    more |= {n.partition("=")[0]: value for n, value in environment.items()}
    values = {name: getattr(plan, name) for name in changes}
    text = _amended(prepared, speaks, source, {**values, **more}, plan)
    if text is None and not _launches(prepared, speaks, whole, plan):
        return None
    patch = ""
    if text is not None:
        patch = "".join(
            difflib.unified_diff(
                source.splitlines(keepends=True),
                text.splitlines(keepends=True),
                "launch",
                "launch, mended",
            )
        )
    shown = {
        name: f"{_said(getattr(prepared.plan, name))} -> {_said(getattr(plan, name))}"
        for name in changes
    }
    shown |= {n.partition("=")[0].removeprefix(ENVIRONMENT): v for n, v in environment.items()}
    found_ = Proposal(plan=plan, changes=shown, patch=patch, text=whole if text is None else text)
    return _with_price(prepared, found_) if prepared.priced else found_


def _amended(
    prepared: Prepared, speaks: Dialect, source: str, values: Mapping[str, Value], plan: Plan
) -> str | None:
    """Change the file; None where it must be written anew."""
    try:
        text = speaks.amend(source, values) if values else source
        # What is changed may ask for another environment.
        asked = [re.fullmatch(EXPORT, one.remedy) for one in speaks.read(text).remarks]
        more: dict[str, Value] = {f"{ENVIRONMENT}{one[1]}": one[2] for one in asked if one}
        text = speaks.amend(text, more) if more else text
    except InputError:
        return None
    return text if _launches(prepared, speaks, text, plan) else None


def _launches(prepared: Prepared, speaks: Dialect, text: str, plan: Plan) -> bool:
    """Tell whether a text launches a plan, and its dialect finds no error in it."""
    try:
        launch = speaks.read(text)
    except InputError:
        return False
    if any(one.severity == "error" for one in launch.remarks):
        return False
    # What the file leaves to its caller stays as the caller, or the usual machine, has it.
    left = [one for one in prepared.launch.stated if one.written.startswith(SET)]
    left = [one for one in left if not hasattr(plan, one.name)]
    launch = launch.model_copy(update={"stated": (*launch.stated, *left)})
    problem = prepared.problem
    machine: dict[str, Value] = {
        "nodes": problem.cluster.nodes,
        "devices_per_node": problem.cluster.devices_per_node,
        "layers": problem.workload.architecture.layers,
    }
    if launch.value("global_batch") is None:
        machine["global_batch"] = plan.global_batch
    return plan_from(launch, machine) == plan


def _changes(prepared: Prepared, plan: Plan) -> list[str]:
    """Return what of a launch a plan changes."""
    old = prepared.plan
    names = [n for n in SHOWN if n != "dp" and getattr(old, n) != getattr(plan, n)]
    if "pp" in names and "layers_per_stage" in names and len(set(plan.layers_per_stage)) == 1:
        names.remove("layers_per_stage")
    if plan.recompute != "full" and "recomputed_layers_per_stage" in names:
        names.remove("recomputed_layers_per_stage")
    return names


def _forced(findings: Iterable[DoctorFinding]) -> list[str]:
    """Return what must be written anew though its value is right."""
    found: list[str] = []
    for one in findings:
        if one.severity != "error":
            continue
        found += MENDED_BY.get(one.rule.partition(".")[2], ())
        told = re.fullmatch(EXPORT, one.remedy)
        if told:
            found.append(f"{ENVIRONMENT}{told[1]}={told[2]}")
    return list(dict.fromkeys(found))


def _with_price(prepared: Prepared, proposal: Proposal) -> Proposal:
    """Add time, throughput, and what is gained against the launch as it is."""
    problem, old = prepared.problem, prepared.plan
    price = estimate(problem, proposal.plan)
    tokens = proposal.plan.global_batch * problem.workload.sequence_length / price.step_seconds
    gain = None
    if runs(prepared):
        before = estimate(problem, old)
        same = proposal.plan.global_batch / old.global_batch
        gain = 1 - price.step_seconds / (before.step_seconds * same)
    accuracy = problem.accuracy
    error = accuracy.held_out
    within = gain is not None and error is not None and abs(gain) <= error
    return proposal.model_copy(
        update={
            "step_seconds": price.step_seconds,
            "tokens_per_second": tokens,
            "gain": gain,
            "error": accuracy.error,
            "within_error": within,
        }
    )


def runs(prepared: Prepared, price: Estimate | None = None) -> bool:
    """Tell whether a launch's own plan could run at all: its products fit and it has memory."""
    problem, plan = prepared.problem, prepared.plan
    whole = sum(plan.layers_per_stage) == problem.workload.architecture.layers
    fits = plan.devices == problem.devices
    split = plan.micro_batch * plan.micro_batches * plan.dp == plan.global_batch
    if not (whole and fits and split):
        return False
    return (price or estimate(problem, plan)).memory.fits


def _said(value: object) -> str:
    """Write a value of a plan."""
    if isinstance(value, tuple):
        parts: list[str] = []
        for one in value:
            if parts and parts[-1].split("*")[0] == str(one):
                count = int(parts[-1].partition("*")[2] or 1) + 1
                parts[-1] = f"{one}*{count}"
            else:
                parts.append(str(one))
        return ",".join(parts)
    return (
        {True: "on", False: "off"}.get(value, str(value)) if isinstance(value, bool) else str(value)
    )


__all__ = ["Proposal", "best", "corrected", "runs"]
