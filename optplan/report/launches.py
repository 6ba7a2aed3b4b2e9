"""The screens of ``doctor`` and ``export``."""

from __future__ import annotations

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from optplan.doctor import Diagnosis
from optplan.export import Export
from optplan.models.numbers import counted
from optplan.models.units import bytes_text, seconds_text
from optplan.proposals import Proposal
from optplan.report.layouts import plan_text

COLOURS = {"error": "bold red", "warning": "yellow", "note": "dim"}


def show_diagnosis(console: Console, found: Diagnosis) -> None:
    """Print the answer to ``doctor``."""
    problem = found.problem
    workload, cluster = problem.workload, problem.cluster
    head = Text(f"{workload.architecture.name} with {found.framework}", "bold")
    head.append(
        f"  ({counted(cluster.nodes, 'node')} of {cluster.devices_per_node}"
        + (f" {cluster.accelerator.name}" if found.estimate else "")
        + f", sequence {workload.sequence_length}, {workload.precision})"
    )
    console.print(head)
    console.print(plan_text(problem, found.plan))
    if found.estimate is not None:
        price = found.estimate
        console.print(
            Text(
                f"  step {seconds_text(price.step_seconds)}   MFU {price.mfu:.1%}   peak memory "
                f"{bytes_text(price.memory.peak_bytes)} of "
                f"{bytes_text(price.memory.capacity_bytes)}   [{problem.calibration.name}: "
                f"{problem.accuracy.error}]"
            )
        )
    for line in found.groups:
        console.print(Text(f"  {line}", "dim"))
    for line in found.taken:
        console.print(Text(f"  not in the launch: {line}", "dim"))
    console.print()
    for one in found.findings:
        text = Text(f"{one.severity:<8}", COLOURS.get(one.severity, ""))
        text.append(f"line {one.line}: " if one.line else "")
        text.append(f"{one.problem}; ")
        text.append(one.remedy, "green" if one.severity != "note" else "")
        text.append(f"  [{one.rule}]", "dim")
        console.print(Padding(text, (0, 0, 0, 0)))
    if found.exit_code == 0:
        console.print(Text("nothing is wrong with it", "green"))
    for line in found.lacks:
        console.print(Text(f"to learn more, add {line}", "yellow"))
    if found.corrected is not None:
        _proposal(console, "The nearest legal launch", found.corrected, found.source)
    if found.best is not None:
        word = "The best launch, proved," if found.best.proven else "The best launch found"
        _proposal(console, f"{word} for the same job", found.best, found.source)


def _proposal(console: Console, title: str, one: Proposal, source: str) -> None:
    """Print a launch as a patch, with what it gains."""
    console.print()
    text = Text(title, "bold")
    changed = ", ".join(f"{name} {value}" for name, value in one.changes.items())
    text.append(f": {changed}" if changed else "")
    console.print(text)
    if one.step_seconds is not None and one.tokens_per_second is not None:
        said = f"  step {seconds_text(one.step_seconds)}   {one.tokens_per_second:,.0f} tokens/s"
        if one.gain is not None:
            said += f"   {one.gain:+.1%} of the step saved"
            if one.within_error:
                said += ", which is inside the model's error"
        said += f"   (error of the model: {one.error})"
        console.print(Text(said))
    if one.patch:
        for line in one.patch.splitlines():
            style = "green" if line.startswith("+") else "red" if line.startswith("-") else "dim"
            console.print(Text(f"  {line}", style), soft_wrap=True)
    elif one.text != source:
        console.print(
            Text("  too much differs for a patch; --json holds it whole, -o FILE writes it", "dim")
        )


def show_export(console: Console, found: Export, output: str) -> None:
    """Say what was written."""
    console.print(Text(f"{output}: {found.framework}", "bold"))
    if found.changed:
        console.print(
            Text(
                f"  changed: {', '.join(found.changed)}; {found.behind:+.2%} a step, "
                f"{seconds_text(found.estimate.step_seconds)} in all",
                "yellow",
            )
        )
