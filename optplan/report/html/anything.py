"""Plain data of any shape as tables and text, for fields that have no drawing of their own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from optplan.models.spec.plan import Plan
from optplan.models.units import bytes_text, seconds_text
from optplan.report.html.tables import Cell, Column, Table, cells, columns
from optplan.report.layouts import short

DEEPEST = 4
"""Levels of plain data that are looked into; what lies deeper is printed as it is."""

MOST_ROWS = 400
"""Rows of a list that are shown."""


@dataclass(frozen=True)
class Piece:
    """A heading, and a table, a text or pieces below it."""

    title: str
    table: Table | None = None
    text: str = ""
    pieces: tuple[Piece, ...] = ()


def pieces(value: Any, title: str = "", depth: int = 0) -> Piece:
    """Turn a record, a mapping, a list or a plain value into something to show."""
    if isinstance(value, Plan) or not isinstance(value, BaseModel | dict | list | tuple):
        return Piece(title, text=_cell("", value).text)
    if isinstance(value, list | tuple):
        return Piece(title, _listed(title, list(value)[:MOST_ROWS]))
    fields = _fields(value)
    flat = {name: one for name, one in fields.items() if _is_flat(one)}
    deep = {name: one for name, one in fields.items() if name not in flat}
    table = None
    if flat:
        rows = tuple(cells(name.replace("_", " "), _cell(name, one)) for name, one in flat.items())
        table = Table(title or "Values", columns("what", "value"), rows, sortable=False)
    if depth >= DEEPEST:
        return Piece(title, table, "; ".join(f"{name}: {one}" for name, one in deep.items()))
    below = tuple(pieces(one, name.replace("_", " "), depth + 1) for name, one in deep.items())
    return Piece(title, table, "", below)


def _fields(value: BaseModel | dict[Any, Any]) -> dict[str, Any]:
    """Name what a record or a mapping holds, what is nothing left out."""
    if isinstance(value, BaseModel):
        found = {name: getattr(value, name) for name in type(value).model_fields}
    else:
        found = {str(name): one for name, one in value.items()}
    return {name: one for name, one in found.items() if one not in (None, (), [], {}, "")}


def _is_flat(value: Any) -> bool:
    """Tell whether a value fits into one cell."""
    if isinstance(value, Plan):
        return True
    if isinstance(value, list | tuple):
        return not any(isinstance(one, BaseModel | dict | list | tuple) for one in value)
    return not isinstance(value, BaseModel | dict)


def _listed(title: str, rows: list[Any]) -> Table:
    """Put a list of records into a table, a list of anything else into one column."""
    if not rows or not all(isinstance(row, BaseModel | dict) for row in rows):
        shown = tuple((_cell("", row),) for row in rows)
        return Table(title or "Values", columns(title or "value"), shown)
    held = [_fields(row) for row in rows]
    names = list(dict.fromkeys(name for row in held for name in row))
    numeric = {
        name for name in names if all(isinstance(row.get(name, 0), int | float) for row in held)
    }
    heads = tuple(Column(name.replace("_", " "), name in numeric) for name in names)
    return Table(
        title or "Values",
        heads,
        tuple(tuple(_cell(name, row.get(name)) for name in names) for row in held),
    )


def _cell(name: str, value: Any) -> Cell:
    """Print one value, by its unit where its name ends in one."""
    if value is None:
        return Cell("")
    if isinstance(value, bool):
        return Cell("yes" if value else "no")
    if isinstance(value, Plan):
        return Cell(short(value))
    if isinstance(value, int | float):
        return Cell(_number(name, value), float(value))
    if isinstance(value, list | tuple):
        return Cell(", ".join(_cell(name, one).text for one in value))
    if isinstance(value, BaseModel | dict):
        return Cell(", ".join(f"{n} {_cell(n, one).text}" for n, one in _fields(value).items()))
    return Cell(str(value))


def _number(name: str, value: float) -> str:
    """Print a number by the unit in its name."""
    if name.endswith("_seconds") or name == "seconds":
        return seconds_text(value)
    if name.endswith("_bytes") or name == "bytes":
        return bytes_text(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"
