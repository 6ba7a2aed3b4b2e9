"""Memory of a plan by stage and phase."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from optplan.models.cost.price import PHASES, Estimate
from optplan.models.spec.problem import Problem
from optplan.models.units import bytes_text
from optplan.report.layouts import plain_table

SHOWN_STAGES = 8
"""Stages that are shown before the middle is left out."""

WORDS = {
    "start": "start",
    "forward": "forward",
    "backward": "backward",
    "step": "optimizer step",
}
"""What each phase is called in print."""


def phases_table(problem: Problem, estimate: Estimate) -> RenderableType:
    """Show what each stage has allocated phase by phase, the worst phase of each marked."""
    memory = estimate.memory
    reserve = problem.calibration.reserve
    room = memory.capacity_bytes - reserve + (problem.calibration.workspace or 0)
    names = [WORDS[phase] for phase in PHASES]
    table = plain_table(
        f"Memory by phase, allocated, of {bytes_text(room)} beside the reserve (* worst)",
        *("stage", *names, "left at worst"),
        right=(*names, "left at worst"),
    )
    stages = list(memory.stages)
    ends = {0, 1, memory.binding_stage, len(stages) - 2, len(stages) - 1}
    shown = [s for s in stages if len(stages) <= SHOWN_STAGES or s.stage in ends]
    last = -1
    for use in shown:
        if use.stage != last + 1:
            table.add_row("...")
        last = use.stage
        worst = max(use.phases.values())
        cells = []
        for phase in PHASES:
            held = use.phases[phase]
            mark = "*" if held == worst else ""
            cells.append(Text(f"{bytes_text(held)}{mark}", "red" if held > room else ""))
        left = room - worst
        colour = "red" if left < 0 else ""
        table.add_row(str(use.stage), *cells, Text(bytes_text(left), colour))
    said = (
        "  start: states alone; forward: with the activations in flight; backward: with logits or "
        "a block computed again; optimizer step: no activation is held"
    )
    return Group(table, Text(said, "dim"))
