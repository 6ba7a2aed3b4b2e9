"""The table of rules, for the screen and for the README."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from optplan.models.rules.registry import rules


def rulebook() -> list[dict[str, str]]:
    """List every shipped rule with its sentence and its source."""
    return [
        {"name": rule.name, "sentence": rule.sentence, "source": rule.source} for rule in rules()
    ]


def markdown() -> str:
    """Render the table as the README shows it."""
    lines = ["| rule | what must hold | who says so |", "| --- | --- | --- |"]
    lines += [f"| `{row['name']}` | {row['sentence']} | {row['source']} |" for row in rulebook()]
    return "\n".join(lines) + "\n"


def show_rules(console: Console) -> None:
    """Print the table."""
    table = Table(box=None, header_style="dim")
    table.add_column("rule", no_wrap=True)
    table.add_column("what must hold", overflow="fold")
    table.add_column("who says so", overflow="fold")
    for row in rulebook():
        table.add_row(Text(row["name"]), Text(row["sentence"]), Text(row["source"], "dim"))
    console.print(table)
