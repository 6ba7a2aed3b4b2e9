"""What a page is made of: its first screen, and sections with a template each."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from optplan.report.html.facts import Figure
from optplan.report.html.tables import Table


@dataclass(frozen=True)
class Head:
    """The first screen."""

    eyebrow: str
    title: str
    sub: str
    chips: list[tuple[str, str]] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)
    warnings: tuple[str, ...] = ()
    says: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Section:
    """One part of the page: where it is linked to, its head and first sentence, its template."""

    id: str
    title: str
    lead: str
    template: str
    data: dict[str, Any]


def of_tables(id: str, title: str, lead: str, *tables: Table, note: str = "") -> Section:
    """Make a section of tables alone, or of its first sentence."""
    return Section(id, title, lead, "_tables.html.j2", {"tables": tables, "note": note})
