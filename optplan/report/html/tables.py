"""The one form of every table on the page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Column:
    """
    One column.

    Parameters
    ----------
    label
        Its head.
    right
        Numbers, set flush right.
    tip
        More on the head, in plain words.
    told
        Whether its cells repeat the label on a phone, where an unsorted table has no heads.
    """

    label: str
    right: bool = False
    tip: str = ""
    told: bool = False


@dataclass(frozen=True)
class Cell:
    """
    One cell.

    Parameters
    ----------
    text
        What stands in it.
    key
        What it is sorted by; left out: its text.
    tone
        ``dim``, ``bad``, ``good`` or ``code``; never the only carrier of a meaning.
    bar
        Share of the cell that a bar under the text fills, 0 to 1; none for no bar.
    tip
        More on it, in plain words.
    """

    text: str
    key: float | None = None
    tone: str = ""
    bar: float | None = None
    tip: str = ""


@dataclass(frozen=True)
class Table:
    """
    A table whose first cell of a row is the row's head.

    Parameters
    ----------
    caption
        What it shows, for who cannot see it.
    sortable
        Whether a click on a head sorts.
    """

    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...] = field(default=())
    sortable: bool = True


def cells(*texts: str | Cell) -> tuple[Cell, ...]:
    """Make a row of texts and cells."""
    return tuple(one if isinstance(one, Cell) else Cell(one) for one in texts)


def columns(*labels: str, right: Sequence[str] = ()) -> tuple[Column, ...]:
    """Make plain columns."""
    return tuple(Column(label, label in right) for label in labels)
