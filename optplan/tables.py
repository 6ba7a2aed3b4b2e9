"""Answers as plain tables: columns and rows, ready for a file, a notebook or a data frame."""

from __future__ import annotations

import csv
import html
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from optplan.models.errors import Fault, InputError
from optplan.models.record import Record

if TYPE_CHECKING:
    from pandas import DataFrame

    from optplan.models.cost.price import Estimate
    from optplan.models.spec.plan import Plan

Cell: TypeAlias = bool | int | float | str | None
"""What stands in one cell; nothing where there is no value."""

SHOWN = 60
"""Rows that a notebook shows; the middle of a longer table is left out."""


class Table(Record):
    """A table: names of the columns, and rows of as many cells."""

    columns: tuple[str, ...]
    """Names, no two alike."""
    rows: tuple[tuple[Cell, ...], ...]
    """Cells by row, in the order of the columns."""

    def __len__(self) -> int:
        """Count the rows."""
        return len(self.rows)

    def column(self, name: str) -> tuple[Cell, ...]:
        """
        Return one column.

        Raises
        ------
        KeyError
            There is none of that name.
        """
        if name not in self.columns:
            raise KeyError(f"no column {name!r}; there are {', '.join(self.columns)}")
        at = self.columns.index(name)
        return tuple(row[at] for row in self.rows)

    def to_dicts(self) -> list[dict[str, Cell]]:
        """Return every row as a mapping from column to value."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]

    def to_csv(self) -> str:
        """Render as CSV with a header line; cells without a value are empty."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows(self.rows)
        return text.getvalue()

    def to_parquet(self) -> bytes:
        """
        Render as a Parquet file; a column of mixed kinds becomes text.

        Raises
        ------
        InputError
            Pyarrow is not installed.
        """
        try:
            import pyarrow
            from pyarrow import parquet
        except ImportError:
            remedy = "pip install 'optplan[parquet]', or take to_csv()"
            raise InputError(
                [Fault("", "to_parquet", "pyarrow is not installed", remedy)]
            ) from None
        held = pyarrow.table({name: _alike(self.column(name)) for name in self.columns})
        file = io.BytesIO()
        parquet.write_table(held, file)
        return file.getvalue()

    def to_frame(self) -> DataFrame:
        """
        Return a pandas data frame, one column each.

        Raises
        ------
        InputError
            Pandas is not installed.
        """
        try:
            import pandas
        except ImportError:
            remedy = "pip install pandas, or take to_dicts() or to_csv()"
            raise InputError([Fault("", "to_frame", "pandas is not installed", remedy)]) from None
        return pandas.DataFrame(list(self.rows), columns=list(self.columns))

    def _repr_html_(self) -> str:
        """Render for a notebook; every text is escaped."""
        rows = list(self.rows)
        head = "".join(f"<th>{html.escape(name)}</th>" for name in self.columns)
        half = SHOWN // 2
        left_out = len(rows) - 2 * half
        shown = rows if left_out <= 1 else rows[:half]
        lines = [_html_row(row) for row in shown]
        if left_out > 1:
            note = f"{left_out:,} rows are not shown"
            lines.append(f'<tr><td colspan="{len(self.columns)}"><i>{note}</i></td></tr>')
            lines += [_html_row(row) for row in rows[-half:]]
        body = "\n".join(lines)
        return f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>"


def _alike(cells: tuple[Cell, ...]) -> list[Cell]:
    """Bring the cells of a column to one kind: whole numbers among fractions, or else text."""
    kinds = {type(cell) for cell in cells if cell is not None}
    if kinds <= {int, float} or len(kinds) == 1:
        return list(cells)
    return [None if cell is None else str(cell) for cell in cells]


def _html_row(row: Sequence[Cell]) -> str:
    """Render one row; numbers stand to the right."""
    cells = []
    for cell in row:
        number = isinstance(cell, int | float) and not isinstance(cell, bool)
        style = ' style="text-align:right"' if number else ""
        cells.append(f"<td{style}>{html.escape(_shown(cell))}</td>")
    return f"<tr>{''.join(cells)}</tr>"


def _shown(cell: Cell) -> str:
    """Render a cell for people: six digits of a fraction are enough."""
    if cell is None:
        return ""
    return f"{cell:.6g}" if isinstance(cell, float) else str(cell)


def table_from(rows: Iterable[Mapping[str, Cell]], columns: Sequence[str] = ()) -> Table:
    """Make a table of mappings; its columns are those given, or all in the order first seen."""
    rows = list(rows)
    names = tuple(columns) or tuple(dict.fromkeys(name for row in rows for name in row))
    return Table(columns=names, rows=tuple(tuple(row.get(name) for name in names) for row in rows))


def plan_cells(plan: Plan | None) -> dict[str, Cell]:
    """Return the values of a plan by name; numbers of every stage as text, ``7 8*14 7``."""
    from optplan.models.spec.plan import Plan as Form

    if plan is None:
        return dict.fromkeys(Form.model_fields)
    return {name: _plain(getattr(plan, name)) for name in Form.model_fields}


def price_cells(price: Estimate | None) -> dict[str, Cell]:
    """Return the figures of a price that matter most."""
    if price is None:
        return dict.fromkeys(("step_seconds", "tokens_per_second_per_device", "mfu", "peak_bytes"))
    return {
        "step_seconds": price.step_seconds,
        "tokens_per_second_per_device": price.tokens_per_second_per_device,
        "mfu": price.mfu,
        "peak_bytes": price.memory.peak_bytes,
    }


def _plain(value: object) -> Cell:
    """Return one value as a cell."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tuple | list) and all(type(one) is int for one in value):
        from optplan.report.layouts import per_stage

        return per_stage(tuple(value))
    return str(value)


def table_of(reply: Any) -> Table:
    """
    Return the rows of an answer: plans best first, changes dearest first, or engines.

    An answer without rows of its own becomes one row of its plain values.
    """
    from optplan.compare import Comparison
    from optplan.explain import Answer
    from optplan.result import Evaluation, Result
    from optplan.size import Sizing

    if isinstance(reply, Result):
        return _result(reply)
    if isinstance(reply, Evaluation):
        return _evaluation(reply)
    if isinstance(reply, Answer):
        return _answer(reply)
    if isinstance(reply, Sizing):
        return _sizing(reply)
    if isinstance(reply, Comparison):
        return _comparison(reply)
    plain = {name: getattr(reply, name) for name in type(reply).model_fields}
    kinds = (bool, int, float, str, type(None))
    return table_from([{name: value for name, value in plain.items() if isinstance(value, kinds)}])


def _result(result: Any) -> Table:
    """List the best plan and the next-best ones."""
    rows: list[dict[str, Cell]] = []
    if result.plan is not None:
        best: dict[str, Cell] = {"rank": 0, "behind": 0.0}
        rows.append(best | price_cells(result.estimate) | plan_cells(result.plan))
    for rank, other in enumerate(result.alternatives, 1):
        told: dict[str, Cell] = {
            "rank": rank,
            "behind": other.behind,
            "step_seconds": other.step_seconds,
            "tokens_per_second_per_device": other.tokens_per_second_per_device,
            "mfu": None,
            "peak_bytes": other.peak_bytes,
        }
        rows.append(told | plan_cells(other.plan))
    return table_from(rows, ("rank", "behind", *price_cells(None), *plan_cells(None)))


def _evaluation(evaluation: Any) -> Table:
    """List the terms of the step, and how far each is beyond the best plan's."""
    behind = evaluation.terms_behind
    return table_from(
        (
            {"term": name, "seconds": seconds, "seconds_behind": behind.get(name)}
            for name, seconds in evaluation.estimate.terms.items()
        ),
        ("term", "seconds", "seconds_behind"),
    )


def _answer(answer: Any) -> Table:
    """List what every change would buy, or every way out where there is no plan."""
    ways = (*answer.result.explanation.ways_out, *answer.more_ways_out)
    columns = ("change", "rule", "saved", "step_seconds", "tokens_per_second_per_device")
    rows = []
    for one in (*answer.worth, *ways):
        told = {name: _plain(getattr(one, name, None)) for name in columns}
        rows.append(told | plan_cells(one.plan))
    return table_from(rows, (*columns, *plan_cells(None)))


def _sizing(sizing: Any) -> Table:
    """List the fewest devices of each kind."""
    columns = ("accelerator", "devices", "nodes", "proved", "why")
    rows = []
    for one in (sizing.fewest, *sizing.others):
        told = {name: _plain(getattr(one, name)) for name in columns}
        rows.append(told | price_cells(one.estimate) | plan_cells(one.plan))
    return table_from(rows, (*columns, *price_cells(None), *plan_cells(None)))


def _comparison(comparison: Any) -> Table:
    """List what every engine came to."""
    from optplan.compare import Row

    columns = tuple(name for name in Row.model_fields if name != "plan")
    rows = [
        {name: _plain(getattr(row, name)) for name in columns} | plan_cells(row.plan)
        for row in comparison.engines
    ]
    return table_from(rows, (*columns, *(n for n in plan_cells(None) if n not in columns)))
