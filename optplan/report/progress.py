"""A sign of life for whatever takes longer than two seconds."""

from __future__ import annotations

import logging
import sys
from types import TracebackType
from typing import Any

from optplan.models.units import seconds_text
from optplan.report.road import Road
from optplan.solvers.base import Progress

log = logging.getLogger("optplan.doing")

PATIENCE = 2.0
"""Seconds before anything is shown."""


class Watch:
    """
    A spinner on stderr with time, incumbent, bound and gap.

    Silent where stderr is no terminal or ``quiet`` is asked for; where ``verbose`` is, a log of
    lines that stay takes its place.
    """

    def __init__(self, quiet: bool = False, line: str = "searching", verbose: bool = False) -> None:
        self._quiet = quiet or verbose or not sys.stderr.isatty()
        self._road = Road() if verbose else None
        self._bar: Any = None  # a rich Progress, imported late
        self._line = line

    def __enter__(self) -> Watch:
        """Wait for news."""
        if self._road is not None:
            self._road.__enter__()
        if not self._quiet:
            import threading

            self._timer = threading.Timer(PATIENCE, self._show)
            self._timer.daemon = True
            self._timer.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Wipe the line."""
        if self._road is not None:
            self._road.__exit__(kind, error, trace)
        if self._quiet:
            return
        self._timer.cancel()
        if self._bar is not None:
            self._bar.stop()

    def tell(self, progress: Progress) -> None:
        """Take news from an engine; prices are per sequence."""
        if self._road is not None:
            return  # The engines' own log says more.
        parts = []
        if progress.incumbent is not None:
            parts.append(f"best {seconds_text(progress.incumbent)}/sequence")
        if progress.incumbent and progress.bound:
            parts.append(f"gap {max(0.0, 1 - progress.bound / progress.incumbent):.2%}")
        if progress.done is not None:
            parts.append(f"{progress.done:.0%} of the points")
        self.say(", ".join(parts) or "searching")

    def say(self, line: str) -> None:
        """Show another line."""
        if self._road is not None:
            log.info(line)
        self._line = line
        if self._bar is not None:
            self._bar.update(self._task, description=line)

    def _show(self) -> None:
        """Start the spinner."""
        from rich.console import Console
        from rich.progress import Progress as Bar
        from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

        bar = Bar(
            SpinnerColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.description}"),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = bar.add_task(self._line, total=None)
        bar.start()
        self._bar = bar
