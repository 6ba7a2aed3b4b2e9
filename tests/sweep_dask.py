"""
A sweep on a Dask cluster of two workers, one of which is killed midway, against one at home.

``python -m tests.sweep_dask --count 2000`` compares the tables row for row. The worker is ended by
SIGKILL and does not come back.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import optplan
from optplan.sweep import Progress
from optplan.tables import Table
from tests.sweep_kills import SPEC, Found, axes, differences, undisturbed


@contextlib.contextmanager
def cluster(folder: Path) -> Iterator[tuple[str, list[int]]]:
    """Start a scheduler and two workers without nannies; its address and the workers."""
    Client: Any = import_module("distributed").Client

    told = folder / "scheduler.json"
    home = str(Path(optplan.__file__).parents[1])
    path = os.pathsep.join(filter(None, (home, os.environ.get("PYTHONPATH", ""))))
    common = ["--scheduler-file", str(told)]
    here = ["--host", "127.0.0.1", "--port", "0", "--no-dashboard"]
    alone = ["--no-nanny", "--nthreads", "1", "--host", "127.0.0.1", "--no-dashboard"]
    calls = [["scheduler", *here], ["worker", *alone], ["worker", *alone]]
    started = []
    try:
        for call in calls:
            started.append(
                subprocess.Popen(
                    [sys.executable, "-m", "dask", *call, *common],
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    env={**os.environ, "PYTHONPATH": path},
                    cwd=folder,
                )
            )
            start = time.monotonic()
            while not told.exists():
                assert time.monotonic() - start < 120, "the scheduler does not start"
                time.sleep(0.1)
        with Client(scheduler_file=str(told), set_as_default=False) as client:
            client.wait_for_workers(2, timeout=120)
            address = client.scheduler.address
        yield address, [process.pid for process in started[1:]]
    finally:
        for process in reversed(started):
            process.kill()
            process.wait()


def compare(folder: Path, count: int, whole: Table | None = None) -> Found:
    """Run both, kill one worker when half of the rows are there, and compare."""
    whole = whole or undisturbed(folder, count)
    kills = 0
    with cluster(folder) as (address, workers):

        def watch(news: Progress) -> None:
            nonlocal kills
            if not kills and news.done * 2 >= news.total:
                kills += 1
                os.kill(workers[0], signal.SIGKILL)

        spec = folder / "spec.yaml"
        spec.write_text(SPEC, encoding="utf-8")
        path = folder / "dask.sqlite"
        found = optplan.sweep(spec, axes(count), path=path, dask=address, progress=watch)
    faults = differences(whole, found.table())
    if not kills:
        faults.append("no worker was killed")
    return Found(len(found.rows), kills, faults, found.counts())


def main(arguments: list[str] | None = None) -> int:
    """Print what came of it; 1 where a row differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=2000, help="problems, at least")
    asked = parser.parse_args(arguments)
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        found = compare(Path(folder), asked.count)
    told = ", ".join(f"{n:,} {status}" for status, n in found.counts.items())
    print(f"{found.problems:,} problems ({told}) on two Dask workers, {found.kills} of them killed")
    for fault in found.faults[:20]:
        print(f"  {fault}")
    print(f"{len(found.faults)} differences, {time.monotonic() - start:.0f} s")
    return 1 if found.faults else 0


if __name__ == "__main__":
    sys.exit(main())
