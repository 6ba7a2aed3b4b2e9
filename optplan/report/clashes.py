"""Why there is no plan: the clash with its numbers, and the ways out with their price."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from optplan.models.units import seconds_text
from optplan.report.layouts import plain_table, short
from optplan.result import Explanation, Reason, WayOut
from optplan.ways import sorted_ways


def explained(explanation: Explanation, more: Iterable[WayOut] = ()) -> RenderableType:
    """Show the clashes rule by rule, and every way out, cheapest change first."""
    count = len(explanation.core)
    what = "these rules clash" if count > 1 else "this rule cannot be met"
    parts: list[RenderableType] = [Text(f"\n  no plan exists: {what}", "bold red")]
    for clash in (explanation.core, *explanation.further):
        if clash is not explanation.core:
            parts.append(Text("  and besides", "dim"))
        parts += [_reason(reason) for reason in clash]
    if count > 1:
        parts.append(Text("  without any one of them the others can hold", "dim"))
    ways = sorted_ways([*explanation.ways_out, *more])
    if ways:
        parts.append(ways_table("Ways out, each one solved, cheapest change first", ways))
        parts += notes(ways)
    else:
        parts.append(Text("\n  no change that was tried helps", "dim"))
    if not explanation.complete:
        parts.append(Text("  some changes were not settled in time", "dim"))
    return Group(*parts)


def _reason(reason: Reason) -> RenderableType:
    """Show one rule: what it demands, by how much it is missed, and by which plan."""
    head = Text("  ").append(reason.rule, "red").append(f"  {reason.sentence}", "dim")
    lines: list[RenderableType] = [Text(reason.text)] if reason.text else []
    if reason.plan is not None:
        lines.append(Text(f"nearest plan: {short(reason.plan)}"))
    lines += [Text(f"- {text}", "dim") for text in reason.details]
    return Group(head, Padding(Group(*lines), (0, 0, 0, 6)))


def ways_table(title: str, ways: Iterable[WayOut]) -> Table:
    """Show changes that help: what sort they are, what they cost, and against the fastest."""
    found = list(ways)
    right = ("step", "tokens/s/device", "against the fastest")
    table = plain_table(title, "change", "kind", *right, "layout", right=right)
    each = [way.step_seconds / way.plan.global_batch for way in found]
    marks = marked(found)
    for way, seconds, mark in zip(found, each, marks, strict=True):
        slower = seconds / min(each) - 1
        table.add_row(
            Text(f"{way.change}{mark}"),
            way.kind,
            seconds_text(way.step_seconds),
            f"{way.tokens_per_second_per_device:,.0f}",
            f"+{slower:.0%} a sequence" if slower >= 0.005 else "",
            short(way.plan),
        )
    return table


def marked(ways: Iterable[WayOut]) -> list[str]:
    """Give a number to each way out that rests on something."""
    marks, count = [], 0
    for way in ways:
        count += bool(way.note)
        marks.append(f" [{count}]" if way.note else "")
    return marks


def notes(ways: Iterable[WayOut]) -> list[RenderableType]:
    """Say what ways out rest on, by their numbers."""
    every = list(ways)
    pairs = zip(marked(every), every, strict=True)
    return [
        Padding(Text(f"{mark.strip()} {way.note}", "dim"), (0, 0, 0, 2))
        for mark, way in pairs
        if mark
    ]
