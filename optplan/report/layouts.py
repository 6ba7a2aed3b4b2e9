"""A plan in words, and the look of every table."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from optplan.models.spec.plan import Plan
from optplan.models.spec.problem import Problem


def plan_text(problem: Problem, plan: Plan) -> Text:
    """Name the layout as a Megatron user would type it; what has no meaning here is left out."""
    text = Text("\n  ")

    def say(name: str, value: object) -> None:
        text.append(f"{name} ", "dim").append(f"{value}  ", "bold green")

    for name in ("tp", "pp", "dp"):
        say(name, getattr(plan, name))
    if plan.cp > 1:
        say("cp", f"{plan.cp} ({plan.context})")
    if problem.workload.architecture.experts:
        say("ep", plan.ep)
        say("etp", plan.etp)
    if plan.vpp > 1:
        say("vpp", plan.vpp)
    text.append("micro-batch ", "dim").append(f"{plan.micro_batch}", "bold green")
    text.append(f" x {plan.micro_batches} x dp {plan.dp} = global batch ", "dim")
    text.append(f"{plan.global_batch}\n  ", "bold green")
    say("recompute", recomputed(plan))
    say("sequence parallel", "on" if plan.sequence_parallel else "off")
    say("zero", f"{plan.zero}{' inside nodes' if plan.hsdp else ''}")
    say("schedule", plan.schedule)
    if plan.offload:
        say("optimizer", "on the host")
    if plan.order != "data_inside":
        say("order", plan.order)
    idle = problem.devices - plan.devices
    if idle > 0:
        say("idle devices", idle)
    if plan.pp > 1:
        text.append("\n  ")
        say("layers per stage", per_stage(plan.layers_per_stage))
        if 0 < sum(plan.recomputed_layers_per_stage) < sum(plan.layers_per_stage):
            text.append("\n  ")
            say("of them recomputed", per_stage(plan.recomputed_layers_per_stage))
    return text


def recomputed(plan: Plan) -> str:
    """Say how many layers are recomputed where that is not all or none."""
    some, every = sum(plan.recomputed_layers_per_stage), sum(plan.layers_per_stage)
    whole = some == every or plan.recompute != "full"
    return plan.recompute if whole else f"{some} of {every} layers"


def per_stage(numbers: tuple[int, ...]) -> str:
    """Render one number a stage, runs of the same one together: ``7 8*14 7``."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][0] == number:
            runs[-1][1] += 1
        else:
            runs.append([number, 1])
    return " ".join(f"{n}*{times}" if times > 1 else f"{n}" for n, times in runs)


def short(plan: Plan) -> str:
    """Name a layout in a few words."""
    more = "".join(
        f"{name} {getattr(plan, name)} "
        for name in ("cp", "ep", "etp", "vpp")
        if getattr(plan, name) > 1
    )
    return (
        f"tp {plan.tp} pp {plan.pp} dp {plan.dp} {more}micro-batch {plan.micro_batch} "
        f"recompute {recomputed(plan)} zero {plan.zero}"
    )


def plain_table(title: str, *columns: str, right: tuple[str, ...] = ()) -> Table:
    """Make a plain table in the house's look."""
    table = Table(
        title=f"\n{title}" if title else None,
        title_justify="left",
        title_style="bold",
        box=None,
        pad_edge=True,
        padding=(0, 1),
        header_style="dim",
    )
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left", overflow="fold")
    return table
