"""What a sweep shows: series along one axis, where the layout changes, and what failed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from optplan.models.record import Record
from optplan.tables import Cell, Table

LAYOUT = ("tp", "pp", "cp", "ep", "etp", "vpp", "micro_batch", "schedule", "recompute", "zero")
"""Columns in which two layouts differ; ``dp`` follows from the devices and is left out."""

ALWAYS = ("tp", "pp", "micro_batch", "zero")
"""Columns that a layout's name has in any case."""

MACHINE = ("nodes", "devices_per_node")
"""Axes that a machine grows along; the first that is varied is drawn to the right."""

HOUR = 3600.0

FAILED = ("input", "time-limit", "memory-limit", "killed", "fault")
"""Statuses of rows that have no proven answer."""


class Point(Record):
    """One problem in a series."""

    number: int
    """Its place in the sweep."""
    x: Cell
    """Where it stands along the axis."""
    status: str
    """What came of it."""
    devices: int | None
    """Devices of the cluster."""
    tokens_per_second: float | None
    """Throughput of all devices."""
    tokens_per_second_per_device: float | None
    """Throughput of one."""
    device_hours_per_billion_tokens: float | None
    """What the tokens cost, in hours of one device."""
    layout: str
    """The best layout in a few words; empty where there is none."""
    changed: bool
    """Whether the layout is another one than that of the last solved problem before it."""


class Series(Record):
    """Problems that differ along one axis only."""

    along: str
    """The axis."""
    label: str
    """Values on the other axes."""
    points: tuple[Point, ...]
    """In the order of the axis."""


class Span(Record):
    """Neighbouring values of an axis over which the best layout stays the same."""

    axis: str
    """The axis."""
    first: Cell
    """First value."""
    last: Cell
    """Last value."""
    values: int
    """How many there are."""
    solved: int
    """Problems with a plan."""
    failed: int
    """Problems without any answer: wrong input, no time, a worker that died."""
    layout: str
    """The layout of the best plan of each value; empty where no value has a plan."""
    tokens_per_second_per_device: float | None
    """The best throughput of a device among them."""
    tokens_per_second: float | None
    """Throughput of all devices there."""
    best_at: str
    """Where it is reached, on all axes."""


def axes_in(table: Table) -> tuple[str, ...]:
    """Return the columns of a sweep's table that are its axes."""
    return table.columns[1 : table.columns.index("status")]


def layout_of(row: Mapping[str, Cell]) -> str:
    """Name a layout in a few words; empty where there is none."""
    if row["tp"] is None:
        return ""
    parts = []
    for name in LAYOUT:
        value = row[name]
        if name in ALWAYS or value not in (1, "1f1b", "none"):
            word = "micro-batch" if name == "micro_batch" else name
            shown = f"{value}" if name in ("schedule", "recompute") else f"{word} {value}"
            parts.append(f"recompute {value}" if name == "recompute" else shown)
    return " ".join(parts)


def at(row: Mapping[str, Cell], axes: Iterable[str]) -> str:
    """Say where a row stands on some axes."""
    return ", ".join(f"{name} {_word(row[name])}" for name in axes)


def _word(value: Cell) -> str:
    """Name a value of an axis; none is written as a spec writes it."""
    return "null" if value is None else str(value)


def along_of(table: Table) -> str:
    """Name the axis that is drawn to the right: nodes, or the first one that has numbers."""
    axes = axes_in(table)
    for name in MACHINE:
        if name in axes:
            return name
    numeric = [
        name for name in axes if all(isinstance(cell, int | float) for cell in table.column(name))
    ]
    return (*numeric, *axes)[0]


def series(table: Table, along: str = "") -> tuple[Series, ...]:
    """
    Sort the rows of a sweep into series along one axis.

    Parameters
    ----------
    table
        Of a sweep.
    along
        The axis; left out, the number of nodes or the first axis of numbers.

    Returns
    -------
    tuple of Series
        One for each combination of the other axes, in the order of the sweep.
    """
    along = along or along_of(table)
    others = [name for name in axes_in(table) if name != along]
    groups: dict[str, list[dict[str, Cell]]] = {}
    for row in table.to_dicts():
        groups.setdefault(at(row, others), []).append(row)
    found = []
    for label, rows in groups.items():
        rows.sort(key=lambda row: _order(row[along]))
        last = ""
        points = []
        for row in rows:
            layout = layout_of(row)
            points.append(_point(row, along, layout, bool(layout and last and layout != last)))
            last = layout or last
        found.append(Series(along=along, label=label, points=tuple(points)))
    return tuple(found)


def _order(value: Cell) -> tuple[int, float]:
    """Order numbers by size, and leave the rest as it comes."""
    return (0, float(value)) if isinstance(value, int | float) else (1, 0.0)


def _number(value: Cell) -> float | None:
    """Return a cell of a column of numbers."""
    return float(value) if isinstance(value, int | float) else None


def _whole(value: Cell) -> int | None:
    """Return a cell of a column of whole numbers."""
    return value if isinstance(value, int) else None


def _point(row: Mapping[str, Cell], along: str, layout: str, changed: bool) -> Point:
    """Write one problem down as a point."""
    rate = _number(row["tokens_per_second_per_device"])
    return Point(
        number=_whole(row["number"]) or 0,
        x=row[along],
        status=str(row["status"]),
        devices=_whole(row["devices"]),
        tokens_per_second=_number(row["tokens_per_second"]),
        tokens_per_second_per_device=rate,
        device_hours_per_billion_tokens=1e9 / rate / HOUR if rate else None,
        layout=layout,
        changed=changed,
    )


def spans(table: Table, axis: str) -> tuple[Span, ...]:
    """Cut an axis where the layout of the best plan changes; all other axes are free."""
    axes = axes_in(table)
    by_value: dict[Cell, list[dict[str, Cell]]] = {}
    for row in table.to_dicts():
        by_value.setdefault(row[axis], []).append(row)
    if all(isinstance(value, int | float) for value in by_value):
        by_value = dict(sorted(by_value.items(), key=lambda item: _order(item[0])))
    found: list[Span] = []
    for value, rows in by_value.items():
        best = max(rows, key=_rate)
        layout = layout_of(best)
        rate = _rate(best) if layout else None
        here = Span(
            axis=axis,
            first=value,
            last=value,
            values=1,
            solved=sum(row["tp"] is not None for row in rows),
            failed=sum(row["status"] in FAILED for row in rows),
            layout=layout,
            tokens_per_second_per_device=rate,
            tokens_per_second=_number(best["tokens_per_second"]),
            best_at=at(best, axes) if layout else "",
        )
        if found and found[-1].layout == layout:
            here = _joined(found.pop(), here)
        found.append(here)
    return tuple(found)


def _rate(row: Mapping[str, Cell]) -> float:
    """Return a row's throughput, below any where it has no plan."""
    rate = _number(row["tokens_per_second_per_device"])
    return -1.0 if rate is None else rate


def _joined(left: Span, right: Span) -> Span:
    """Put two neighbours of the same layout together."""
    one, other = left.tokens_per_second_per_device, right.tokens_per_second_per_device
    best = right if (other or 0.0) > (one or 0.0) else left
    return best.model_copy(
        update={
            "first": left.first,
            "last": right.last,
            "values": left.values + right.values,
            "solved": left.solved + right.solved,
            "failed": left.failed + right.failed,
        }
    )


def counts(table: Table) -> dict[str, int]:
    """Count the rows by status, most first."""
    found = Counter(str(status) for status in table.column("status"))
    return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))


def reasons(table: Table) -> tuple[tuple[str, str, int], ...]:
    """Count why there is no plan: status, what it is about, and how often, most often first."""
    found: Counter[tuple[str, str]] = Counter()
    for row in table.to_dicts():
        if row["status"] != "optimal":
            found[str(row["status"]), _about(str(row["status"]), str(row["reason"]))] += 1
    ranked = sorted(found.items(), key=lambda item: (-item[1], item[0]))
    return tuple((status, about, count) for (status, about), count in ranked)


def _about(status: str, reason: str) -> str:
    """Shorten a reason to what many rows share: of a clash the names of its rules."""
    if status != "infeasible":
        return reason
    rules = [part.partition(": ")[0] for part in reason.split("; ")]
    named = [rule.partition("[")[0] for rule in rules if "." in rule and " " not in rule]
    return ", ".join(named) or "no plan obeys every rule"
