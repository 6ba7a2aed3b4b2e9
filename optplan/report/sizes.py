"""The screens of ``size`` beyond the fewest devices."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Group, RenderableType
from rich.text import Text

from optplan.cheapest import Cheapest
from optplan.models.units import bytes_text, seconds_text
from optplan.report.fronts import money_text
from optplan.report.layouts import plain_table, short
from optplan.size import AtHand

DAY = 86_400.0
"""Seconds."""


def time_text(seconds: float) -> str:
    """Render a long time."""
    if seconds < DAY / 12:
        return seconds_text(seconds)
    if seconds < 3 * DAY:
        return f"{24 * seconds / DAY:.1f} h"
    return f"{seconds / DAY:,.1f} days"


def cheapest_table(found: Iterable[Cheapest]) -> RenderableType:
    """Show the cheapest cluster of each accelerator."""
    rows = list(found)
    one = rows[0]
    within = f" within {time_text(one.seconds_allowed)}" if one.seconds_allowed else ""
    right = ("nodes", "devices", "time", "money")
    table = plain_table(
        f"Cheapest cluster for {one.tokens:.4g} tokens{within}",
        *("accelerator", "nodes", "devices", "time", "finishes", "money", "layout"),
        right=right,
    )
    notes = []
    for row in rows:
        if row.plan is None or row.seconds is None or row.money is None:
            table.add_row(Text(row.accelerator), "none", "", "", "", "", Text(row.why))
            if row.nearest_seconds is not None:
                when = f", {row.nearest}" if row.nearest else ""
                notes.append(
                    f"  {row.accelerator}: at the earliest in {time_text(row.nearest_seconds)}"
                    f"{when}, on {row.nearest_nodes:,} nodes"
                )
            continue
        table.add_row(
            Text(row.accelerator),
            f"{row.nodes:,}",
            f"{row.devices:,}",
            time_text(row.seconds),
            row.finishes or "",
            f"{money_text(row.money)} {row.currency}",
            Text(("" if row.proved else f"not proved: {row.why}; ") + short(row.plan)),
        )
    if all(row.proved for row in rows):
        most = ", ".join(sorted({f"{row.most_nodes:,}" for row in rows}))
        notes.append(f"  proved over every number of nodes up to {most} (--most-nodes)")
    return Group(table, *(Text(note, "dim") for note in notes))


def at_hand_text(use: AtHand) -> Text:
    """Say what the devices at hand are best used for."""
    memory = use.estimate.memory
    text = Text(f"\nBest use of the {use.devices:,} devices at hand\n", "bold")
    text.append(f"  {short(use.plan)}, step {seconds_text(use.estimate.step_seconds)}, ")
    text.append(
        f"{bytes_text(memory.peak_bytes)} of {bytes_text(memory.capacity_bytes)}; "
        f"{use.idle_devices:,} left idle"
    )
    if use.why:
        text.append(f": {use.why}", "dim")
    return text
