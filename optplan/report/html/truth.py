"""How true the prices are on hardware: the calibration, its error and its range."""

from __future__ import annotations

from typing import Any

from optplan.models.cost.calibration import Calibration
from optplan.models.spec.problem import Problem
from optplan.report.html.tables import Cell, Column, Table, cells, columns

TOLD = ("name", "fitted_on", "range", "error", "notes", "sources", "seen", "accelerators", "lump")
"""Fields that are words, or have a place of their own."""


def lead(problem: Problem) -> str:
    """Say whose error holds."""
    calibration = problem.calibration
    kind = "fitted to measured runs" if calibration.measured else "a prior, not a measurement"
    error = problem.accuracy.error or "unknown"
    return f"Calibration {calibration.name}, {kind}. Error of the step time: {error}."


def about(problem: Problem) -> Table:
    """List what the calibration says of itself."""
    calibration = problem.calibration
    held = problem.accuracy.held_out
    rows = [
        ("fitted on", calibration.fitted_on),
        ("holds for", calibration.range),
        ("devices", ", ".join(calibration.accelerators) or "none in particular"),
        ("error of the step time", "unknown" if held is None else f"{held:.1%} mean, held out"),
        (
            "error of allocated memory",
            "unknown"
            if calibration.memory_error is None
            else f"{calibration.memory_error:.0%} mean, held out",
        ),
        ("notes", calibration.notes),
    ]
    if calibration.seen:
        low_high = calibration.seen.model_dump()
        names = {"tokens": "tokens of a micro-batch", "shard": "hidden columns of a tensor rank"}
        rows += [
            (f"seen: {names.get(name, name)}", f"{low:,} to {high:,}")
            for name, (low, high) in low_high.items()
        ]
    shown = tuple(cells(name, text) for name, text in rows if text)
    return Table("What the calibration is", columns("what", "value"), shown, sortable=False)


def constants(problem: Problem) -> Table:
    """List every constant with its value, interval and origin."""
    calibration = problem.calibration
    data = calibration.model_dump(mode="json")
    intervals = _intervals(calibration)
    fields = [
        name
        for name, value in data.items()
        if name not in TOLD and name != "intervals" and value is not None
    ]
    # An optional field of a later version may hold an interval for each constant.
    heads = [Column("constant"), Column("value", True)]
    heads += [Column("interval", True)] if intervals else []
    heads += [Column("what it is"), Column("where it is from")]
    rows = []
    for name in fields:
        said = Calibration.model_fields[name].description or ""
        row = [Cell(name, tone="code"), _value(data[name])]
        row += [Cell(intervals.get(name, ""))] if intervals else []
        row += [Cell(" ".join(said.split())), Cell(calibration.sources.get(name, ""), tone="dim")]
        rows.append(tuple(row))
    return Table("Constants of the calibration", tuple(heads), tuple(rows))


def _value(value: Any) -> Cell:
    """Print a constant."""
    if isinstance(value, bool):
        return Cell("yes" if value else "no")
    return Cell(f"{value:g}", float(value)) if isinstance(value, int | float) else Cell(str(value))


def _intervals(calibration: Calibration) -> dict[str, str]:
    """Print the interval of each constant that has one."""
    found = getattr(calibration, "intervals", None)
    if not isinstance(found, dict):
        return {}
    return {
        str(name): f"{ends[0]:.4g} to {ends[1]:.4g}"
        for name, ends in found.items()
        if isinstance(ends, tuple | list) and len(ends) == 2
    }
