"""A process that solves one problem after the other, and ends when whoever asks is gone."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import sys
import threading
from typing import BinaryIO, TextIO

READY = "ready"
"""First line of a worker that can be asked."""


def serve(memory_limit: int) -> None:
    """
    Read a task a line from standard input, and write a row a line to standard output.

    Parameters
    ----------
    memory_limit
        Bytes that the process may hold beyond its code; 0 for no limit.
    """
    for name in ("SIGINT", "SIGTERM"):  # a terminal's Ctrl-C is for whoever asks
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print must not land between the answers
    tasks: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    import optplan.planner  # noqa: F401 - imported before the clock of the first task runs
    from optplan.sweeps.points import Task, solved

    threading.Thread(target=_listen, args=(sys.stdin.buffer, tasks), daemon=True).start()
    _limit_memory(memory_limit)
    _say(answers, READY)
    while True:
        task = Task.model_validate_json(tasks.get())
        _say(answers, json.dumps(solved(task)))


def _listen(asked: BinaryIO, tasks: queue.SimpleQueue[bytes]) -> None:
    """Pass tasks on; end the process at once, whatever it is doing, when no more can come."""
    with contextlib.suppress(OSError, ValueError):
        for line in asked:
            tasks.put(line)
    os._exit(0)


def _say(answers: TextIO, line: str) -> None:
    """Write one line; end quietly where nobody reads it."""
    try:
        answers.write(line + "\n")
        answers.flush()
    except OSError:
        os._exit(0)


def _limit_memory(size: int) -> None:
    """Bound what the process may allocate, where the system can."""
    if not size:
        return
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
        most = size if hard == resource.RLIM_INFINITY else min(size, hard)
        resource.setrlimit(resource.RLIMIT_DATA, (most, hard))
