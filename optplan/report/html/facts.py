"""What stands on the first screen: the job, the plan in a line, the figures that matter most."""

from __future__ import annotations

from dataclasses import dataclass

from optplan.models.cost.price import Estimate
from optplan.models.numbers import counted
from optplan.models.spec.plan import Plan
from optplan.models.spec.problem import Problem
from optplan.models.units import bytes_text, seconds_text
from optplan.report.html.tables import Cell, Table, cells, columns
from optplan.report.layouts import per_stage, recomputed


@dataclass(frozen=True)
class Figure:
    """
    One number of the first screen.

    Parameters
    ----------
    label, value, note
        What it is, the number, and what it is measured against.
    bar
        Share that a bar below it fills; none for no bar.
    tone
        ``good`` or ``bad``; the value says the same in words.
    """

    label: str
    value: str
    note: str
    bar: float | None = None
    tone: str = ""


def share_text(share: float) -> str:
    """Print a share in whole percent, or finer where it would seem full and is not."""
    text = f"{share:.0%}"
    return f"{share:.1%}" if text == "100%" and share != 1 else text


def heading(problem: Problem) -> str:
    """Name the job and the machine."""
    return (
        f"{problem.workload.architecture.name} on {problem.devices:,} \u00d7 "
        f"{problem.cluster.accelerator.name}"
    )


def subheading(problem: Problem) -> str:
    """Say what else matters to the job."""
    cluster, workload = problem.cluster, problem.workload
    launcher = problem.framework.name if problem.framework else "any framework"
    return (
        f"{counted(cluster.nodes, 'node')} of {cluster.devices_per_node}, sequence "
        f"{workload.sequence_length:,}, {workload.precision}, {launcher}, "
        f"{problem.prices} prices"
    )


def chips(problem: Problem, plan: Plan) -> list[tuple[str, str]]:
    """Name the layout in a line, as a Megatron user would type it."""
    degrees = ["tp", "pp", "dp", *(("cp",) if plan.cp > 1 else ())]
    if problem.workload.architecture.experts:
        degrees += ["ep", "etp"]
    degrees += ["vpp"] if plan.vpp > 1 else []
    named = [(name, f"{getattr(plan, name):,}") for name in degrees]
    named += [
        ("micro-batch", f"{plan.micro_batch:,}"),
        ("global batch", f"{plan.global_batch:,}"),
        ("recompute", recomputed(plan)),
        ("zero", str(plan.zero)),
    ]
    if plan.pp > 1:
        named.append(("schedule", plan.schedule))
    return named


def figures(problem: Problem, estimate: Estimate) -> list[Figure]:
    """Give step time, throughput and memory."""
    memory = estimate.memory
    peak = problem.cluster.accelerator.peak[problem.workload.precision] / 1e12
    filled = memory.peak_bytes / memory.capacity_bytes
    return [
        Figure(
            "Step time",
            seconds_text(estimate.step_seconds),
            f"{estimate.tokens_per_second_per_device:,.0f} tokens/s/device",
        ),
        Figure(
            "MFU", f"{estimate.mfu:.1%}", f"of {peak:,.0f} TFLOP/s a device", min(1, estimate.mfu)
        ),
        Figure(
            "Peak memory",
            bytes_text(memory.peak_bytes),
            f"{share_text(filled)} of {bytes_text(memory.capacity_bytes)}"
            + (", does NOT fit" if filled > 1 else ""),
            min(1.0, filled),
            "bad" if filled > 1 else "",
        ),
    ]


def choices(problem: Problem, plan: Plan) -> Table:
    """List every choice of a plan with what it means."""
    rows = [
        ("tp", plan.tp, _split(plan.tp, "every layer", "tensor parallel")),
        ("pp", plan.pp, _stages(plan)),
        ("dp", plan.dp, _copies(plan)),
    ]
    if plan.cp > 1:
        how = {"ring": "in a ring", "ulysses": "by heads (Ulysses)"}[plan.context]
        text = f"every sequence is split over {plan.cp} devices, which exchange {how}"
        rows.append(("cp", plan.cp, text))
    if problem.workload.architecture.experts:
        rows.append(("ep", plan.ep, _split(plan.ep, "the experts of a layer", "expert parallel")))
        rows.append(("etp", plan.etp, _split(plan.etp, "every expert", "expert tensor parallel")))
    table = [cells(Cell(n, tone="code"), f"{v:,}", text) for n, v, text in rows]
    table += [cells(Cell(n, tone="code"), value, text) for n, value, text in _rest(problem, plan)]
    heads = columns("choice", "value", "what it means")
    return Table("Every choice of the plan", heads, tuple(table), sortable=False)


def _split(ranks: int, what: str, how: str) -> str:
    """Say over how many devices something is split."""
    return f"{what} is split over {ranks} devices ({how})" if ranks > 1 else f"{what} stays whole"


def _stages(plan: Plan) -> str:
    """Say how the layers are cut."""
    if plan.pp == 1:
        return "all layers on every device: no pipeline"
    return f"the layers are cut into {plan.pp} stages on devices of their own (pipeline parallel)"


def _copies(plan: Plan) -> str:
    """Say how many copies work side by side."""
    if plan.dp == 1:
        return "one copy of the model works on the whole batch"
    return f"{plan.dp:,} copies of the model work on different sequences (data parallel)"


def _rest(problem: Problem, plan: Plan) -> list[tuple[str, str, str]]:
    """Say what is no degree."""
    zero = {
        0: "every data rank holds all states",
        1: "data ranks share the optimizer state",
        2: "data ranks share optimizer state and gradients",
        3: "data ranks share optimizer state, gradients and weights",
    }[plan.zero] + (", inside a node only" if plan.hsdp else "")
    again = {
        "none": "nothing is computed again",
        "selective": "the attention's core is computed again in the backward pass",
    }.get(plan.recompute, "so many layers are computed again in the backward pass")
    product = f"{plan.micro_batch:,} x {plan.micro_batches:,} x dp {plan.dp:,}"
    rows = [
        ("micro_batch", f"{plan.micro_batch:,}", "sequences in one pass of one data rank"),
        ("micro_batches", f"{plan.micro_batches:,}", "passes of one data rank per step"),
        ("global_batch", f"{plan.global_batch:,}", f"sequences per step: {product}"),
    ]
    if plan.pp > 1:
        chunks = f", {plan.vpp} chunks of layers a stage" if plan.vpp > 1 else ""
        rows.append(("schedule", plan.schedule, f"order of forward and backward passes{chunks}"))
        layers = per_stage(plan.layers_per_stage)
        rows.append(("layers_per_stage", layers, "first stage to last; 8*4 is four times 8"))
    rows.append(("recompute", recomputed(plan), again))
    if plan.pp > 1 and 0 < sum(plan.recomputed_layers_per_stage) < sum(plan.layers_per_stage):
        some = per_stage(plan.recomputed_layers_per_stage)
        rows.append(("recomputed_layers_per_stage", some, "layers computed again, by stage"))
    rows.append(("zero", str(plan.zero), zero))
    flag = "on" if plan.sequence_parallel else "off"
    split = "split over the tensor group" if plan.sequence_parallel else "whole on every device"
    rows.append(("sequence_parallel", flag, f"norms and residuals are {split}"))
    if plan.offload:
        rows.append(("offload", "on", "optimizer state and step live on the host"))
    if plan.order != "data_inside":
        rows.append(("order", plan.order, "pipeline groups lie closer to the links of a node"))
    idle = problem.devices - plan.devices
    if idle > 0:
        rows.append(("idle devices", f"{idle:,}", "left idle because that is faster, or legal"))
    return rows
