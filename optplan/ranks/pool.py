"""Groups of processes for whoever asks: one host is kept, and started anew when it dies."""

from __future__ import annotations

import contextlib
import os
import selectors
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import optplan
from optplan.models.errors import OptplanError
from optplan.ranks.job import Device, Ending, Job

STARTING_SECONDS = 300.0
"""Time that the host gets beyond a job's own to import PyTorch on a slow machine."""


class HostFailed(OptplanError):
    """The host of the processes cannot be started."""


class Pool:
    """
    Runs jobs one after another.

    Parameters
    ----------
    device
        Where the processes compute.
    spawn
        Whether processes are started anew, which takes seconds, instead of forked; left out: on
        accelerators only.
    """

    def __init__(self, device: Device = "cpu", spawn: bool | None = None) -> None:
        self.device: Device = device
        self.spawn = device != "cpu" if spawn is None else spawn
        self._host: subprocess.Popen[bytes] | None = None
        self._said = b""
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the pool)

    def __enter__(self) -> Pool:
        """Start nothing yet."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the host and all that it started."""
        self.close()
        self._errors.close()

    def close(self) -> None:
        """End the host and all that it started."""
        host, self._host = self._host, None
        self._said = b""
        if host is None:
            return
        host.kill()  # its processes die with it
        host.wait()
        for pipe in (host.stdin, host.stdout):
            if pipe is not None:
                pipe.close()

    def run(
        self,
        work: str,
        ranks: int,
        arguments: dict[str, Any],
        seconds: float,
        *,
        memory_bytes: int | None = None,
        progress: Callable[[str], None] | None = None,
        started: Callable[[list[int]], None] | None = None,
    ) -> Ending:
        """
        Run one job and wait for its end.

        Parameters
        ----------
        work, ranks, arguments, seconds, memory_bytes
            As of ``Job``.
        progress
            Called with what the first process says.
        started
            Called once with the numbers of the processes.

        Returns
        -------
        Ending
            Whatever happens to the processes, or to their host.
        """
        with tempfile.TemporaryDirectory(prefix="optplan-ranks-") as folder:
            job = Job(
                work=work,
                ranks=ranks,
                arguments=arguments,
                seconds=seconds,
                device=self.device,
                memory_bytes=memory_bytes,
                spawn=self.spawn,
                folder=folder,
            )
            return self._answer(job, progress, started)

    def _answer(
        self,
        job: Job,
        progress: Callable[[str], None] | None,
        started: Callable[[list[int]], None] | None,
    ) -> Ending:
        """Hand a job to the host and wait for its answer."""
        host = self._alive()
        assert host.stdin is not None
        assert host.stdout is not None
        begin, heard = time.monotonic(), 0
        host.stdin.write((job.model_dump_json() + "\n").encode())
        host.stdin.flush()
        with selectors.DefaultSelector() as waiting:
            waiting.register(host.stdout, selectors.EVENT_READ)
            while b"\n" not in self._said:
                if waiting.select(timeout=0.2):
                    data = os.read(host.stdout.fileno(), 1 << 16)
                    if not data:
                        return self._lost(time.monotonic() - begin)
                    self._said += data
                folder = Path(job.folder)
                if started is not None and (pids := _pids(folder)):
                    started(pids)
                    started = None
                if progress is not None:
                    heard = _hear(folder, heard, progress)
                if time.monotonic() - begin > job.seconds + STARTING_SECONDS:
                    return self._lost(time.monotonic() - begin)
        line, _, self._said = self._said.partition(b"\n")
        return Ending.model_validate_json(line)

    def _lost(self, seconds: float) -> Ending:
        """End a host that no longer answers."""
        assert self._host is not None
        # Its output ends a moment before it does.
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._host.wait(timeout=5.0)
        code = self._host.poll()
        self.close()
        if code is not None and code > 0:
            raise HostFailed(f"the process that starts others ended: {self._last_words()}")
        detail = "the process that had started them ended"
        return Ending(outcome="killed", detail=detail, seconds=seconds)

    def _last_words(self) -> str:
        """Return the last line that the host wrote to its errors."""
        self._errors.seek(0)
        lines = self._errors.read()[-4096:].decode("utf-8", "replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "no reason given")

    def _alive(self) -> subprocess.Popen[bytes]:
        """Return the host, started anew where there is none."""
        if self._host is not None and self._host.poll() is None:
            return self._host
        self.close()
        home = str(Path(optplan.__file__).resolve().parents[1])
        paths = [home, *filter(None, [os.environ.get("PYTHONPATH")])]
        single = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
        if self.device == "cpu":
            environment |= single
        self._host = subprocess.Popen(
            [sys.executable, "-m", "optplan.ranks.host"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=environment,
            start_new_session=True,
        )
        return self._host


def _pids(folder: Path) -> list[int]:
    """Read the numbers of the processes, once they are known."""
    try:
        return [int(word) for word in (folder / "pids").read_text(encoding="ascii").split()]
    except (OSError, ValueError):
        return []


def _hear(folder: Path, heard: int, progress: Callable[[str], None]) -> int:
    """Pass on what the first process has said since."""
    try:
        lines = (folder / "progress").read_text(encoding="utf-8").splitlines()
    except OSError:
        return heard
    for line in lines[heard:]:
        progress(line)
    return len(lines)
