"""The log of the road: what each step came to, a line each, on stderr."""

from __future__ import annotations

import logging
import sys
import time

from optplan.models.errors import printable


class _Line(logging.Formatter):
    """Seconds since the start, the step, what it came to."""

    def __init__(self) -> None:
        super().__init__()
        self._start = time.time()

    def format(self, record: logging.LogRecord) -> str:
        """Write a line; names out of a spec can neither end it nor begin another."""
        step = record.name.rpartition(".")[2]
        seconds = max(0.0, record.created - self._start)
        return f"{seconds:8.2f} s  {step:<9} {printable(record.getMessage())}"


class Road:
    """Shows the log of optplan on stderr while it is entered."""

    def __enter__(self) -> Road:
        """Begin."""
        self._log = logging.getLogger("optplan")
        self._handler = logging.StreamHandler(sys.stderr)
        self._handler.setFormatter(_Line())
        self._level = self._log.level
        self._log.setLevel(logging.INFO)
        self._log.addHandler(self._handler)
        return self

    def __exit__(self, *ended: object) -> None:
        """Leave the log as it was."""
        self._log.removeHandler(self._handler)
        self._log.setLevel(self._level)
