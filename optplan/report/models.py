"""Engines side by side, and models that were written, on a screen."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from optplan.compare import Comparison, Row
from optplan.models.units import bytes_text, seconds_text
from optplan.report.layouts import plain_table, short
from optplan.written import Written


def show_comparison(console: Console, comparison: Comparison) -> None:
    """Print the answer to ``compare``."""
    columns = ("engine", "optimum", "bound", "gap", "time", "ratio", "nodes", "points priced")
    table = plain_table("Engines side by side", *columns, "ended", right=columns[1:])
    for row in comparison.engines:
        table.add_row(
            Text(row.engine, "bold green" if row.proved else "bold yellow"),
            goal_text(row.goal, comparison.unit),
            goal_text(row.bound, comparison.unit),
            "" if row.gap is None else f"{row.gap:.1e}",
            seconds_text(row.seconds),
            "" if row.ratio is None else f"{row.ratio:.1f}",
            f"{row.nodes:,}",
            f"{row.priced:,}",
            Text(_ended(row), "" if row.proved else "yellow"),
        )
    console.print(table)
    for plan in dict.fromkeys(row.plan for row in comparison.engines if row.plan):
        names = ", ".join(row.engine for row in comparison.engines if row.plan == plan)
        console.print(Text(f"\n  {names}: ", "dim").append(short(plan), "bold green"))
    console.print(_agreement(comparison))
    for row in comparison.engines:
        if row.version:
            console.print(Text(f"  {row.engine}: {row.version}", "dim"))


def _ended(row: Row) -> str:
    """Say how an engine ended."""
    if row.detail:
        return f"{row.termination}: {row.detail}"
    return "no plan exists" if row.goal is None and row.holding == "nothing" else row.termination


def _agreement(comparison: Comparison) -> Text:
    """Say whether the engines agree."""
    proved = [row for row in comparison.engines if row.proved]
    if not comparison.agree:
        return Text("\n  they do NOT agree: a fault of optplan itself or of a solver", "bold red")
    if len(proved) < 2:
        return Text("\n  fewer than two have an answer to compare", "bold yellow")
    if all(row.goal is None for row in proved):
        return Text(f"\n  {len(proved)} engines agree: there is no plan", "bold")
    return Text(f"\n  {len(proved)} engines agree on the optimum", "bold")


def goal_text(goal: float | None, unit: str) -> str:
    """Render a goal in its unit."""
    if goal is None:
        return ""
    if unit == "bytes":
        return bytes_text(round(goal))
    seconds, _, per = unit.partition("/")
    return f"{goal:.9g} {seconds}{'/' + per if per else ''}"


def show_written(console: Console, written: Written) -> None:
    """Print what ``model`` wrote."""
    text = Text(f"\n  {written.path}", "bold green")
    text.append(f"  {written.form}, {written.variables:,} ", "dim")
    counted = ("choices", "statements") if written.form == "text" else ("variables", "constraints")
    text.append(f"{counted[0]}, {written.constraints:,} {counted[1]}\n", "dim")
    if written.names:
        text.append(f"  {written.names}  what each name in it stands for\n", "dim")
    held = f"{written.kept:,} of {written.points:,} points"
    if written.within is None:
        text.append(f"  every plan is in it ({held}), the best at ")
    else:
        text.append(f"  every plan within {written.within:.3%} of the best is in it ({held});\n")
        text.append("  with constraints added its optimum is the true one up to there. The best: ")
    best = goal_text(written.best, written.unit) or "not known beforehand"
    console.print(text.append(best, "bold"))
