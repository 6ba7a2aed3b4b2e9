"""Workers of a sweep on a Dask cluster, each bounded like those on this machine."""

from __future__ import annotations

import threading
import time
from importlib import import_module
from typing import Any

from optplan.models.errors import Fault, InputError
from optplan.sweeps.points import Task, empty, versions
from optplan.sweeps.pool import Done, Row, Worker, answer, share

FRESH_SECONDS = 5.0
"""Age after which the number of a cluster's workers is asked for again."""

CONNECT_SECONDS = 10
"""Seconds to wait for a scheduler."""

_own = threading.local()


def run_there(task: str, memory_limit: int, asked_by: str) -> Row:
    """
    Solve one problem on a worker of the cluster.

    Each thread of a Dask worker keeps one process of ours, which can be stopped when the time is
    up and may die without taking the Dask worker along.

    Parameters
    ----------
    task
        The task as JSON.
    memory_limit
        Bytes that the process may hold; 0 for no limit, below 0 for its share of the machine's.
    asked_by
        Versions of whoever asks; an answer by others would not be the same.

    Raises
    ------
    RuntimeError
        The versions here are others.
    """
    if asked_by != versions():
        raise RuntimeError(f"{versions()} there, {asked_by} here")
    worker: Worker | None = getattr(_own, "worker", None)
    if worker is None:
        if memory_limit < 0:
            memory_limit = share(import_module("distributed").get_worker().state.nthreads)
        worker = _own.worker = Worker(memory_limit)
    return answer(worker, Task.model_validate_json(task))


class Cluster:
    """
    A Dask cluster.

    Parameters
    ----------
    address
        Of its scheduler, such as ``tcp://10.0.0.1:8786``.
    memory_limit
        Bytes that each problem may take, as for ``run_there``.

    Raises
    ------
    InputError
        Dask is not installed, or nobody answers at the address.
    """

    def __init__(self, address: str, memory_limit: int) -> None:
        try:
            Client: Any = import_module("distributed").Client
        except ImportError:
            remedy = "pip install 'optplan[dask]'"
            raise InputError([Fault("--dask", "", "Dask is not installed", remedy)]) from None
        try:
            self._client = Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
        except (OSError, ValueError, TypeError) as error:
            said = " ".join(str(error).split())
            problem = f"no scheduler answers at {address!r}: {said}"
            remedy = "start one with dask scheduler, and name the address that it prints"
            raise InputError([Fault("--dask", "", problem, remedy)]) from None
        self._address, self._memory_limit = address, memory_limit
        self._closed = False
        self._under_way: set[Any] = set()
        self._counted, self._threads = -FRESH_SECONDS, 0

    def room(self) -> int:
        """Return how many problems may be under way: one a thread of the cluster, and one more."""
        if time.monotonic() - self._counted > FRESH_SECONDS:
            try:
                self._threads = sum(self._client.nthreads().values())
            except Exception as error:
                raise self._lost(error) from None
            self._counted = time.monotonic()
        return max(2, 2 * self._threads)

    def submit(self, task: Task, done: Done) -> None:
        """Take a problem, and tell when it is answered."""
        try:
            future = self._client.submit(
                run_there, task.model_dump_json(), self._memory_limit, versions(), pure=False
            )
        except Exception as error:
            raise self._lost(error) from None
        self._under_way.add(future)

        def tell(finished: Any) -> None:
            self._under_way.discard(finished)
            if not self._closed:
                done(task, self._row(task, finished))

        future.add_done_callback(tell)

    def close(self) -> None:
        """Let go of the cluster; what is under way is dropped."""
        self._closed = True
        try:
            if self._under_way:
                self._client.cancel(list(self._under_way), force=True)
            self._client.close(timeout=5)
        except Exception:  # a scheduler that is gone needs no goodbye
            return

    def _row(self, task: Task, future: Any) -> Row | BaseException:
        """Return what came of one problem."""
        try:
            row: Row = future.result(timeout=CONNECT_SECONDS)
            return row
        except Exception as error:
            # A scheduler gives a problem up when several workers were lost over it.
            if type(error).__name__ == "KilledWorker":
                row = empty(
                    "killed", "several workers of the cluster ended over it", task.fingerprint
                )
                return row | {"devices": task.problem.devices}
            if isinstance(error, ImportError) or future.status == "error":
                said = " ".join(f"{type(error).__name__}: {error}".split())
                problem = f"a worker of the cluster cannot solve: {said}"
                remedy = "install the same versions of optplan and its libraries on every worker"
                return InputError([Fault("--dask", "", problem, remedy)])
            return self._lost(error)

    def _lost(self, error: Exception) -> InputError:
        """Say that the cluster is gone; what is written stays."""
        said = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        problem = f"the scheduler at {self._address!r} went away ({said})"
        remedy = "start it again and give the same command: what is written is kept"
        return InputError([Fault("--dask", "", problem, remedy)])
