"""Is this plan what it says: every rule's second face, and nothing of the solver."""

from __future__ import annotations

from collections.abc import Iterable

from optplan.models.cost.price import Estimate
from optplan.models.cost.traffic import group
from optplan.models.numbers import counted, divisors
from optplan.models.rules.registry import Rule
from optplan.models.spec.plan import Plan
from optplan.models.spec.problem import Problem
from optplan.result import Verdict

TIGHT = 0.95
"""A plan that fills more of the memory than this is warned about."""


def judge(problem: Problem, rules: Iterable[Rule], plan: Plan, estimate: Estimate) -> Verdict:
    """
    Ask every rule of a finished plan.

    Parameters
    ----------
    problem
        What was asked.
    rules
        All rules the plan must obey.
    plan, estimate
        The plan and its price, from ``cost.estimate``.
    """
    broken: dict[str, str] = {}
    kept: dict[str, str] = {}
    for rule in rules:
        for finding in rule.holds(problem, plan, estimate):
            (kept if finding.holds else broken)[finding.name] = finding.text
    return Verdict(holds=not broken, broken=broken, kept=kept)


def _outside(problem: Problem, plan: Plan) -> list[str]:
    """Say where a plan leaves the range of its calibration."""
    seen, workload = problem.calibration.seen, problem.workload
    if seen is None:
        return []
    columns = -(-workload.architecture.hidden // plan.tp)
    values = {
        "tokens of a micro-batch": (plan.micro_batch * workload.sequence_length, seen.tokens),
        "hidden columns of a tensor rank": (columns, seen.shard),
        "devices": (problem.devices, seen.devices),
    }
    return [
        f"{what}: {value}, outside the {low} to {high} that calibration "
        f"{problem.calibration.name} has seen; its error is unknown there"
        for what, (value, (low, high)) in values.items()
        if not low <= value <= high
    ]


def far_experts(problem: Problem, plan: Plan) -> list[str]:
    """Say where experts exchange tokens between nodes, and what would keep them inside."""
    experts, node = problem.workload.architecture.experts, problem.cluster.devices_per_node
    if experts is None or int(group(problem, plan.ep, plan.etp).inside) == plan.ep:
        return []
    text = f"the expert group of ep {plan.ep} * etp {plan.etp} crosses nodes of {node} devices"
    near = [
        ep
        for ep in divisors(experts.count)
        if ep < plan.ep
        and plan.tp * plan.cp * plan.dp % (ep * plan.etp) == 0
        and int(group(problem, ep, plan.etp).inside) == ep
    ]
    if near and near[-1] > 1:
        text += f"; ep {near[-1]} with more recomputation stays inside"
    return [f"{text}; where links reach further, raise devices_per_node"]


def warnings(problem: Problem, plan: Plan, estimate: Estimate) -> tuple[str, ...]:
    """Say what a careful reader of a plan should know."""
    said = []
    calibration = problem.calibration
    if not calibration.measured:
        said.append(
            f"calibration {calibration.name} is a prior, not a measurement: {calibration.error}"
        )
    device = problem.cluster.accelerator.name
    if calibration.accelerators and device not in calibration.accelerators:
        known = ", ".join(calibration.accelerators)
        said.append(f"calibration {calibration.name} is of {known}, not of {device}")
    said += _outside(problem, plan)
    said += far_experts(problem, plan)
    if plan.pp > 1 and plan.micro_batches < plan.pp:
        share = estimate.terms["TB"] / estimate.step_seconds
        said.append(
            f"{counted(plan.micro_batches, 'micro-batch')} for {plan.pp} stages: the pipeline is "
            f"empty {share:.0%} of the time; more micro-batches or a smaller pp would help"
        )
    filled = estimate.memory.peak_bytes / estimate.memory.capacity_bytes
    if TIGHT < filled <= 1:
        room = int(TIGHT * estimate.memory.capacity_bytes / 2**30)
        said.append(
            f"the fullest stage fills {filled:.1%} of its device; fragmentation may tip it over, "
            f"a limit such as peak_memory <= {room} GiB keeps headroom"
        )
    if estimate.mfu > 1:
        said.append(f"MFU {estimate.mfu:.0%} is above 100 %: peak or calibration cannot be right")
    return tuple(said)
