"""Profiles and measured layouts on a screen."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from optplan.measuring.measure import Measured
from optplan.models.numbers import counted
from optplan.models.units import bytes_text, seconds_text
from optplan.profiling.profile import Profiled
from optplan.report.layouts import plain_table


def show_profile(console: Console, found: Profiled) -> None:
    """Print the answer to ``profile``."""
    spread = f"median spread of the repeats {found.spread:.0%}"
    console.print(
        Text(f"\n{found.accelerator.name}: ", "bold").append(
            f"{counted(found.timed, 'sample')} timed, {spread}", "default"
        )
    )
    table = plain_table("Constants", "constant", "value", "from", right=("value",))
    for one in found.constants:
        table.add_row(one.name, Text(f"{one.value:.4g}", "bold green"), one.origin)
    console.print(table)
    table = plain_table(
        "One layer, forward and backward, against the cost model",
        *("shape", "measured", "spread", "error"),
        right=("measured", "spread", "error"),
    )
    for layer in found.layers:
        table.add_row(
            layer.label, seconds_text(layer.seconds), f"{layer.spread:.0%}", f"{layer.error:+.1%}"
        )
    console.print(table)
    console.print(Text(f"\n  {found.calibration.error}", "bold"))
    for note in found.notes:
        console.print(Text(f"  {note}", "yellow"))
    if found.skipped:
        console.print(Text(f"  not timed for want of time: {', '.join(found.skipped)}", "yellow"))
    for label, reason in found.refused.items():
        console.print(Text(f"  not timed: {label}, {reason}", "yellow"))
    console.print(Text(f"\n  written to {found.output}, timings to {found.raw}", "dim"))


def show_measured(console: Console, found: Measured) -> None:
    """Print the answer to ``measure``."""
    table = plain_table(
        "Layouts, the fastest in the model first",
        *("layout", "predicted", "measured", "spread", "error", "memory", "losses", ""),
        right=("predicted", "measured", "spread", "error", "memory", "losses"),
    )
    for one in found.measurements:
        low, high = one.spread or (0.0, 0.0)
        step = one.step_seconds
        table.add_row(
            one.layout,
            seconds_text(one.predicted_step_seconds),
            "" if step is None else seconds_text(step),
            "" if step is None else f"{(high - low) / step:.0%}",
            "" if one.error is None else f"{one.error:+.1%}",
            "" if one.peak_bytes is None else bytes_text(one.peak_bytes),
            "" if one.loss_error is None else f"{one.loss_error:.0e}",
            "" if step is not None else Text(f"{one.outcome} {one.detail}".strip(), "yellow"),
        )
    if found.measurements:
        console.print(table)
    compared = [one for one in found.measurements if one.loss_error is not None]
    equal = sum((one.loss_error or 0.0) <= found.loss_tolerance for one in compared)
    console.print(
        Text(
            f"\n  losses of {equal} of {counted(len(compared), 'layout')} equal those of one "
            f"process to {found.loss_tolerance:g}",
            "bold",
        )
    )
    if found.before:
        console.print(Text(f"  {counted(found.before, 'layout')} measured before", "dim"))
    if found.left:
        console.print(Text(f"  {counted(found.left, 'layout')} not reached", "yellow"))
    for reason, count in found.left_out.items():
        console.print(Text(f"  left out: {counted(count, 'layout')}, {reason}", "dim"))
    for note in found.notes:
        console.print(Text(f"  {note}", "yellow"))
    console.print(Text(f"\n  written to {found.output}; optplan validate scores it", "dim"))
