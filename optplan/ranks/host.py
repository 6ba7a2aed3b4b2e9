"""The process that starts groups: PyTorch is imported once, and every process is forked from it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path

from optplan.ranks.ending import Death, ending_of
from optplan.ranks.job import Ending, Job
from optplan.ranks.limits import kernel_kills
from optplan.ranks.rank import die_with_parent, run_rank

GLANCE = 0.03
"""Seconds between two looks at the processes."""

GRACE = 2.0
"""Seconds that the others get to end by themselves after one has failed."""

AHEAD = ("torch", "optplan.measuring.train")
"""Modules that take seconds to import, and are the same in every process."""


def main() -> int:
    """Read jobs, one a line, and answer each with its ending until the input ends."""
    die_with_parent()
    for module in AHEAD:
        import_module(module)
    answers = os.dup(1)
    os.dup2(2, 1)
    while line := sys.stdin.readline():
        found = run(Job.model_validate_json(line))
        os.write(answers, (found.model_dump_json() + "\n").encode())
    return 0


def run(job: Job) -> Ending:
    """Start the processes of a job, watch them, and say how they ended."""
    folder, start, kills = Path(job.folder), time.monotonic(), kernel_kills()
    pids = {_started(job, rank, folder): rank for rank in range(job.ranks)}
    (folder / "pids").write_text(" ".join(map(str, pids)), encoding="ascii")
    deaths: list[Death] = []
    failed: float | None = None
    while pids:
        for pid in list(pids):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                deaths.append(Death(pids.pop(pid), os.waitstatus_to_exitcode(status)))
                if deaths[-1].code and failed is None:
                    failed = time.monotonic()
        now = time.monotonic()
        hung = now - start > job.seconds
        if pids and (hung or (failed is not None and now - failed > GRACE)):
            deaths += _ended(pids, hung and failed is None)
            pids = {}
        if pids:
            time.sleep(GLANCE)
    spent = time.monotonic() - start
    return ending_of(job, deaths, kernel_kills() > kills, spent)


def _started(job: Job, rank: int, folder: Path) -> int:
    """Start one process and return its number."""
    if job.spawn:
        file = folder / "job.json"
        if rank == 0:
            file.write_text(job.model_dump_json(), encoding="utf-8")
        command = [sys.executable, "-m", "optplan.ranks.rank", str(file), str(rank)]
        return subprocess.Popen(command, stdin=subprocess.DEVNULL).pid
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        os.close(0)
        os.open(os.devnull, os.O_RDONLY)
        status = run_rank(job, rank)
    finally:
        # Nothing of the parent's may be flushed or closed a second time.
        os._exit(status)


def _ended(pids: dict[int, int], hung: bool) -> list[Death]:
    """End the processes that are left, which this program started, and wait for them."""
    for pid in pids:
        os.kill(pid, 9)
    found = []
    for pid, rank in pids.items():
        os.waitpid(pid, 0)
        found.append(Death(rank, None if hung else 0, ended=True))
    return found


if __name__ == "__main__":
    sys.exit(main())
