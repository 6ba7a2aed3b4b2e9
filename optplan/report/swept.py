"""The screens of ``sweep``: how far it is, and what came of it."""

from __future__ import annotations

import sys
import time

from rich.console import Console
from rich.text import Text

from optplan.report.layouts import plain_table
from optplan.report.progress import Watch
from optplan.sweep import Progress, Sweep
from optplan.sweeps.summary import counts, reasons, spans
from optplan.tables import Cell

EVERY = 60.0
"""Seconds between two lines of progress where standard error is no terminal."""

MOST_SPANS = 24
"""Lines of one axis; the middle of a longer one is left out."""

MOST_REASONS = 8
"""Reasons that are told."""


def progress_line(news: Progress) -> str:
    """Say how far a sweep is on one line."""
    parts = [f"{news.done:,} of {news.total:,} done", f"{news.failed:,} failed"]
    parts.append(f"{news.left:,} left")
    if news.rate > 0:
        parts.append(f"{news.rate:.3g} a second")
    if news.left and news.seconds_left is not None:
        parts.append(f"{_span(news.seconds_left)} to go")
    return ", ".join(parts)


def _span(seconds: float) -> str:
    """Render a time to wait: no more than two units."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, whole = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {whole} s"
    return f"{minutes // 60} h {minutes % 60} min"


class Teller:
    """Tells people how far a sweep is: a line that moves, or one a minute in a log."""

    def __init__(self, watch: Watch, quiet: bool) -> None:
        self._watch = watch
        self._log = not quiet and not sys.stderr.isatty()
        self._last = time.monotonic()

    def tell(self, news: Progress) -> None:
        """Take news."""
        line = progress_line(news)
        self._watch.say(line)
        if self._log and time.monotonic() - self._last > EVERY:
            self._last = time.monotonic()
            sys.stderr.write(line + "\n")
            sys.stderr.flush()


def show_sweep(console: Console, sweep: Sweep) -> None:
    """Print what came of a sweep."""
    table = sweep.table()
    axes = " x ".join(f"{axis.column} ({len(axis.values):,})" for axis in sweep.axes)
    console.print(Text(f"{sweep.total:,} problems over {axes}", "bold"))
    told = ", ".join(f"{n:,} {status}" for status, n in counts(table).items())
    console.print(Text(f"  {told or 'none solved yet'}"))
    left = sweep.total - len(table)
    if left:
        word = "stopped: " if sweep.interrupted else ""
        console.print(
            Text(f"  {word}{left:,} are left; the same command goes on with them", "yellow")
        )
    for axis in sweep.axes:
        if len(table):
            _show_axis(console, sweep, axis.column)
    _show_reasons(console, sweep)
    if sweep.path is not None:
        console.print(Text(f"\n  every row: {sweep.path}, table sweep", "dim"))


def _show_axis(console: Console, sweep: Sweep, axis: str) -> None:
    """Print the best along one axis, a line for each stretch of the same layout."""
    found = list(spans(sweep.table(), axis))
    table = plain_table(
        f"Best by {axis}, a line for each layout",
        *(axis, "solved", "failed", "tokens/s/device", "tokens/s", "at", "layout"),
        right=("solved", "failed", "tokens/s/device", "tokens/s"),
    )
    half = MOST_SPANS // 2
    for at, span in enumerate(found):
        if len(found) > MOST_SPANS and half <= at < len(found) - half:
            if at == half:
                table.add_row("...")
            continue
        rate = span.tokens_per_second_per_device
        ends = _value(span.first)
        if span.values > 1:
            ends = f"{ends} .. {_value(span.last)}"
        table.add_row(
            Text(ends),
            f"{span.solved:,}",
            f"{span.failed:,}" if span.failed else "",
            "" if rate is None else f"{rate:,.0f}",
            "" if span.tokens_per_second is None else f"{span.tokens_per_second:,.0f}",
            Text(span.best_at),
            Text(span.layout or "no plan", "" if span.layout else "dim"),
        )
    console.print(table)


def _show_reasons(console: Console, sweep: Sweep) -> None:
    """Print why there is no plan, where there is none."""
    found = reasons(sweep.table())
    if not found:
        return
    table = plain_table("Without a plan, or not settled", "rows", "status", "why", right=("rows",))
    for status, about, number in found[:MOST_REASONS]:
        table.add_row(f"{number:,}", status, Text(about))
    if len(found) > MOST_REASONS:
        rest = sum(number for _, _, number in found[MOST_REASONS:])
        table.add_row(f"{rest:,}", "...", Text(f"{len(found) - MOST_REASONS:,} more reasons"))
    console.print(table)


def _value(value: Cell) -> str:
    """Render a value of an axis."""
    if value is None:
        return "null"
    return f"{value:,}" if isinstance(value, int) and value > 99_999 else str(value)
