"""Fits and validations on a screen."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from optplan.calibrate import CalibrationFit
from optplan.models.numbers import counted
from optplan.models.units import bytes_text, seconds_text
from optplan.report.layouts import plain_table
from optplan.runs.predict import Prediction
from optplan.validate import TableScore, Validation

WEAK = 0.25
"""Share of the prior's variance below which the runs have taught next to nothing."""


def show_fit(console: Console, found: CalibrationFit, output: str) -> None:
    """Print the answer to ``calibrate``."""
    runs = sum(source.runs for source in found.sources)
    told = f"{counted(len(found.constants), 'constant')} from {counted(runs, 'run')}"
    console.print(
        Text(f"\n{', '.join(found.accelerators)} under {found.stack}: ", "bold").append(
            f"{told}, from the prior {found.prior}", "default"
        )
    )
    table = plain_table(
        "Constants",
        "constant",
        "prior",
        "value",
        "95 % interval",
        "learned",
        "",
        right=("prior", "value", "95 % interval", "learned"),
    )
    for one in found.constants:
        table.add_row(
            one.name,
            f"{one.prior:.4g}",
            Text(f"{one.value:.4g}", "bold green"),
            f"{one.low:.3g} to {one.high:.3g}",
            f"{one.learned:.0%}",
            Text("the prior speaks", "yellow") if one.learned < WEAK else "",
        )
    console.print(table)
    table = plain_table(
        "Step time against the runs",
        "source",
        "runs",
        "error",
        "bias",
        "left out of the fit",
        right=("runs", "error", "bias", "left out of the fit"),
    )
    for source in found.sources:
        held = "" if source.held_out is None else f"{source.held_out:.1%}"
        table.add_row(
            source.source, f"{source.runs:,}", f"{source.error:.1%}", f"{source.bias:+.1%}", held
        )
    console.print(table)
    console.print(Text(f"\n  {found.calibration.error}", "bold"))
    for far in found.far[:5]:
        console.print(Text(f"  missed: {far.source_id} by {far.error:+.0%}", "yellow"))
    for reason, count in found.left_out.items():
        console.print(Text(f"  not fitted: {counted(count, 'row')}, {reason}", "dim"))
    console.print(Text(f"\n  written to {output}, constants {found.hash[:16]}", "dim"))


def show_validation(console: Console, found: Validation, rows: bool) -> None:
    """Print the answer to ``validate``."""
    if rows:
        _show_rows(console, found.rows)
    every = [(Text(name), one) for name, one in found.files.items()]
    if len(every) > 1:
        every.append((Text("all rows alike", "bold"), found.all))
    table = plain_table("Step time against the runs, percent", *_TIME, right=_TIME[1:])
    for name, one in every:
        table.add_row(name, *_time_cells(one))
    console.print(table)
    more = [(name, cells) for name, one in every if any(cells := _more_cells(one))]
    if more:
        table = plain_table("Memory (percent), out of memory, and order", *_MORE, right=_MORE[1:])
        for name, cells in more:
            table.add_row(name, *cells)
        console.print(table)
    if found.all.ablations:
        _show_ablations(console, found)
    _show_left_out(console, found)
    named = ", ".join(f"{name} ({count:,})" for name, count in sorted(found.calibrations.items()))
    if named:
        console.print(Text(f"\n  calibrations: {named}", "dim"))


_TIME = ("table", "priced", "timed", "mean", "median", "p90", "max", "bias")

_MORE = ("table", "peaks", "error", "OOM", "foretold", "false", "groups", "tau", "regret")


def _time_cells(one: TableScore) -> list[str]:
    """Write a table's line about step times."""
    time = one.score.time
    return [
        f"{one.priced:,}/{one.rows:,}",
        f"{time.n:,}",
        *(_number(v) for v in (time.mean_abs_pct, time.median, time.p90, time.max)),
        _number(time.bias, "+.1f"),
    ]


def _more_cells(one: TableScore) -> list[str]:
    """Write a table's line about everything else; empty cells where there is nothing to say."""
    memory, oom, ranks = one.score.memory, one.score.oom, one.score.ranking
    told = oom.labels or oom.false_alarms
    return [
        f"{memory.n:,}" if memory.n else "",
        _number(memory.mean_abs_pct),
        *((f"{oom.labels}", f"{oom.foretold}", f"{oom.false_alarms}") if told else ("", "", "")),
        f"{ranks.groups}" if ranks.groups else "",
        _number(ranks.kendall_tau, ".2f"),
        _number(ranks.top1_regret_pct),
    ]


def _number(value: float | None, form: str = ".1f") -> str:
    """Write a number that may be missing."""
    return "" if value is None else format(value, form)


def _show_ablations(console: Console, found: Validation) -> None:
    """Tell what parts of the model are worth."""
    names = list(found.all.ablations)
    table = plain_table(
        "Mean error of the step time with a part switched off, nothing fitted anew, percent",
        "table",
        "whole",
        *names,
        right=("whole", *names),
    )
    whole = [*found.files.items(), ("all rows alike", found.all)]
    for name, one in whole:
        if one.score.time.n:
            parts = [_number(one.ablations[part].mean_abs_pct) for part in names]
            table.add_row(name, _number(one.score.time.mean_abs_pct), *parts)
    console.print(table)


def _show_left_out(console: Console, found: Validation) -> None:
    """Say which rows could not be priced, and why."""
    for reason, count in found.all.left_out.items():
        named = [one.source_id or one.place for one in found.left_out if one.reason == reason]
        some = ", ".join(named[:3]) + (", ..." if len(named) > 3 else "")
        console.print(Text(f"  not priced: {counted(count, 'row')}, {reason} ({some})", "yellow"))


def _show_rows(console: Console, rows: tuple[Prediction, ...]) -> None:
    """List every row."""
    columns = (
        "row",
        "layout",
        "predicted",
        "measured",
        "error",
        "memory",
        "its peak",
        "fits",
        "outcome",
    )
    table = plain_table("Rows", *columns, right=columns[2:7])
    for one in rows:
        measured = one.measured_step_seconds
        memory = one.measured_peak_bytes
        table.add_row(
            one.source_id or one.place,
            one.layout,
            seconds_text(one.predicted_step_seconds),
            "" if measured is None else seconds_text(measured),
            "" if one.error is None else f"{one.error:+.1%}",
            bytes_text(one.predicted_peak_bytes),
            "" if memory is None else bytes_text(memory),
            "yes" if one.predicted_fits else "no",
            one.measured_outcome,
        )
    console.print(table)
