"""A result as a small card, for notebooks."""

from __future__ import annotations

from optplan.report.html.render import render
from optplan.report.html.solved import head
from optplan.result import Result


def card(result: Result) -> str:
    """Render the first screen of a result as a piece of HTML without style sheet or script."""
    clash = [f"{one.rule}: {one.sentence} {one.text}".strip() for one in result.explanation.core]
    return render("card.html.j2", head=head(result), lines=clash)
