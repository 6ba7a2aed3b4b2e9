"""The table of questions as a page, and the cases behind it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import tests.cases.degrees
import tests.cases.estimators
import tests.cases.layouts
import tests.cases.memory  # noqa: F401  importing enters the cases
from tests.cases.case import CASES, Answer, Case

TABLE = Path(__file__).with_name("README.md")
"""The page."""

FAMILIES = ("D", "M", "E", "T", "B")
"""First letters of the rows, in the order of the table."""


def cases() -> list[Case]:
    """Return every case: by family, then by number."""
    return sorted(CASES.values(), key=lambda c: (FAMILIES.index(c.name[0]), int(c.name[1:])))


def row(one: Case, ours: Answer) -> str:
    """Write one row."""
    agrees = "yes" if ours.agrees else f"no: {one.why}"
    cells = (one.name, one.thread, one.asked, one.right, ours.text, agrees)
    return "| " + " | ".join(cell.replace("|", "/") for cell in cells) + " |"


def written(rows: Sequence[tuple[Case, Answer]]) -> str:
    """Write the whole page."""
    right = sum(ours.agrees for _, ours in rows)
    lines = [
        "# What people asked in public threads",
        "",
        "Each row is a public issue, pull request or discussion, in few words: what was asked,",
        "the right answer, and ours, computed by `python -m tests.cases`. The kind of each row is",
        "also a test (`tests/optplan/test_thread*.py`, `tests/optplan/test_cases.py`).",
        "",
        f"Agreement: {right} of {len(rows)}.",
        "",
        "| row | thread | asked | right | ours | agrees |",
        "| --- | --- | --- | --- | --- | --- |",
        *(row(one, ours) for one, ours in rows),
    ]
    return "\n".join(lines) + "\n"
