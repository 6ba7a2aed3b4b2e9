"""Workers of a sweep on this machine: bounded in time and memory, replaced when they die."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import IO, Protocol, TypeAlias

import optplan
from optplan.models.errors import OwnFault
from optplan.models.units import seconds_text
from optplan.sweeps.points import Task, empty
from optplan.sweeps.worker import READY
from optplan.tables import Cell

TRIES = 3
"""Times that a problem is given to a worker before it is blamed for the worker's death."""

GRACE = 30.0
"""Seconds beyond twice the limit after which a worker that does not stop itself is stopped."""

START_SECONDS = 300.0
"""Seconds that a worker may take to begin; on a machine with nothing else to do it takes one."""

Row: TypeAlias = dict[str, Cell]

Done: TypeAlias = Callable[[Task, "Row | BaseException"], None]
"""Told of every task that is answered, from any thread."""


class Crew(Protocol):
    """Whoever solves the problems: processes here, or a cluster."""

    def room(self) -> int:
        """Return how many problems may be under way at once."""
        ...

    def submit(self, task: Task, done: Done) -> None:
        """Take a problem, and tell when it is answered."""
        ...

    def close(self) -> None:
        """Stop at once; what is under way is dropped."""
        ...


class Died(Exception):
    """A worker ended before it answered."""


class OutOfTime(Exception):
    """A worker was stopped because it did not stop itself."""


class Worker:
    """One worker process; it is started when it is first asked, and again after it has died."""

    def __init__(self, memory_limit: int) -> None:
        self._memory_limit = memory_limit
        self._process: subprocess.Popen[str] | None = None
        self._words: IO[bytes] | None = None
        self._ended = False

    def ask(self, line: str, seconds: float | None) -> Row:
        """
        Have one problem solved.

        Parameters
        ----------
        line
            The task as JSON.
        seconds
            Time after which the worker is stopped; None for never.

        Raises
        ------
        Died
            The worker ended; the next question gets a new one.
        OutOfTime
            The time was up.
        OwnFault
            No worker starts.
        """
        process = self._process or self._start()
        late = threading.Event()
        answer = _exchange(process, line, seconds, late)
        if not answer.endswith("\n"):
            status = self.stop()
            if late.is_set():
                raise OutOfTime
            raise Died(_ending(status))
        row: Row = json.loads(answer)
        if row["status"] == "memory-limit":  # what is left of it may be in pieces
            self.stop()
        return row

    def kill(self) -> None:
        """End the process from another thread; whoever waits for its answer gets none."""
        process = self._process
        self._ended = True
        if process is not None:
            process.kill()

    def stop(self) -> int:
        """End the process, if there is one, and return its status."""
        process, self._process = self._process, None
        if process is None:
            return 0
        status = process.poll()
        process.kill()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        found = process.wait()
        if self._words is not None:
            self._words.close()
        return found if status is None else status

    def _start(self) -> subprocess.Popen[str]:
        """Start a process and wait until it can be asked."""
        said = ""
        for _ in range(TRIES):
            if self._ended:
                break
            self._words = tempfile.TemporaryFile()  # noqa: SIM115 - closed by stop
            process = self._process = _launched(self._memory_limit, self._words)
            answer = _exchange(process, "", START_SECONDS, threading.Event())
            if answer.strip() == READY:
                return process
            self._words.seek(0)
            lines = self._words.read().decode(errors="replace").strip().splitlines()
            said = lines[-1] if lines else said
            self.stop()
        raise OwnFault(f"no worker of a sweep starts: {said or 'it says nothing'}")


def _launched(memory_limit: int, words: IO[bytes]) -> subprocess.Popen[str]:
    """Start a worker with the optplan that runs here, apart from the terminal's signals."""
    home = str(Path(optplan.__file__).parents[1])
    code = (
        f"import sys\nif {home!r} not in sys.path: sys.path.insert(0, {home!r})\n"
        f"from optplan.sweeps.worker import serve\nserve({memory_limit})"
    )
    # One thread a worker: there are as many workers as cores.
    alone = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    return subprocess.Popen(
        [sys.executable, "-P", "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=words,
        text=True,
        encoding="utf-8",
        env={**os.environ, **alone},
        start_new_session=True,
    )


def _exchange(
    process: subprocess.Popen[str], line: str, seconds: float | None, late: threading.Event
) -> str:
    """Write a line, if there is one, and read one; empty or cut off where the process ended."""
    assert process.stdin is not None
    assert process.stdout is not None

    def end() -> None:
        late.set()
        process.kill()

    timer = None if seconds is None else threading.Timer(seconds, end)
    if timer is not None:
        timer.daemon = True
        timer.start()
    try:
        if line:
            process.stdin.write(line + "\n")
            process.stdin.flush()
        return process.stdout.readline()
    except (OSError, ValueError):  # ValueError: the pipe was closed by stop()
        return ""
    finally:
        if timer is not None:
            timer.cancel()


def _ending(status: int) -> str:
    """Name how a process ended."""
    if status < 0:
        with contextlib.suppress(ValueError):
            return f"by {signal.Signals(-status).name}"
    return f"with status {status}"


def patience(time_limit: float | None) -> float | None:
    """Return the seconds after which a worker is stopped from outside."""
    return None if time_limit is None else 2 * time_limit + GRACE


def answer(worker: Worker, task: Task) -> Row:
    """
    Have a problem solved, with another try where its worker dies.

    A worker may die for reasons that are not the problem's: somebody kills it, the machine is out
    of memory. Only a problem whose workers die again and again is given up, as a row that says so.
    """
    reason = ""
    line = task.model_dump_json()
    for _ in range(TRIES):
        try:
            return worker.ask(line, patience(task.time_limit))
        except OutOfTime:
            waited = seconds_text(patience(task.time_limit) or 0.0)
            reason = f"no plan was found, and it did not stop by itself in {waited}"
            row = empty("time-limit", reason, task.fingerprint)
            return row | {"devices": task.problem.devices}
        except Died as death:
            reason = f"{TRIES} workers ended over it, the last one {death}"
    return empty("killed", reason, task.fingerprint) | {"devices": task.problem.devices}


def share(workers: int) -> int:
    """Return the bytes of this machine's memory that each worker may take; 0 where unknown."""
    try:
        whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 0
    return max(2**30, whole // workers)


class Local:
    """Workers on this machine."""

    def __init__(self, workers: int, memory_limit: int) -> None:
        self._tasks: queue.SimpleQueue[tuple[Task, Done] | None] = queue.SimpleQueue()
        self._closed = False
        self._workers = [Worker(memory_limit) for _ in range(workers)]
        self._threads = [
            threading.Thread(target=self._serve, args=(worker,), daemon=True)
            for worker in self._workers
        ]
        for thread in self._threads:
            thread.start()

    def room(self) -> int:
        """Return how many problems may be under way: one a worker, and one that waits."""
        return 2 * len(self._workers)

    def submit(self, task: Task, done: Done) -> None:
        """Take a problem, and tell when it is answered."""
        self._tasks.put((task, done))

    def close(self) -> None:
        """Stop every worker at once."""
        self._closed = True
        for _ in self._threads:
            self._tasks.put(None)
        for worker in self._workers:
            worker.kill()
        for thread in self._threads:
            thread.join(timeout=10)

    def _serve(self, worker: Worker) -> None:
        """Pass problems to one worker until there are no more."""
        while not self._closed:
            given = self._tasks.get()
            if given is None:
                break
            task, done = given
            try:
                row: Row | BaseException = answer(worker, task)
            except BaseException as error:
                row = error
            if not self._closed:  # an answer that came of our own closing is none
                done(task, row)
        worker.stop()
