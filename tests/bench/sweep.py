"""Problems that a sweep solves in a CPU second, and whether its memory stays flat."""

from __future__ import annotations

import contextlib
import os
import resource
import tempfile
from pathlib import Path

import optplan
from optplan.sweep import Progress
from tests.sweep_kills import SPEC

PROBLEMS = 600
"""Distinct problems of one run, solved by one worker."""

LOOKS = 6
"""Times that memory is looked at, evenly over the run."""


def spent() -> tuple[float, float]:
    """CPU seconds of this process, and of those that it started and that have ended."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    others = resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime, others.ru_utime + others.ru_stime


def held(process: int) -> float:
    """MiB that a process holds; nothing where the system does not tell."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        pages = int(Path(f"/proc/{process}/statm").read_text(encoding="ascii").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20
    return float("nan")


def workers() -> list[int]:
    """Processes that this one started, as far as the system tells."""
    found: list[int] = []
    for task in Path(f"/proc/{os.getpid()}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += map(int, task.read_text(encoding="ascii").split())
    return found


def main() -> None:
    """Run one sweep, and print its rate and its memory."""
    looks: list[tuple[int, float, float]] = []

    def look(news: Progress) -> None:
        if news.done >= (len(looks) + 1) * news.total // LOOKS and len(looks) < LOOKS:
            inside = sum(map(held, workers()))
            looks.append((news.done, held(os.getpid()), inside))

    before = spent()
    with tempfile.TemporaryDirectory() as folder:
        spec = Path(folder) / "spec.yaml"
        spec.write_text(SPEC, encoding="utf-8")
        over = [f"global_batch=64..{64 * PROBLEMS // 4}+64", "nodes=1, 2", "tp=1, 2"]
        found = optplan.sweep(spec, over, path=Path(folder) / "t.sqlite", workers=1, progress=look)
        size = (Path(folder) / "t.sqlite").stat().st_size
    after = spent()
    own, others = after[0] - before[0], after[1] - before[1]
    told = ", ".join(f"{n:,} {status}" for status, n in found.counts().items())
    number = len(found.rows)
    print(f"{number:,} problems ({told}), one worker, {size / number:,.0f} bytes a row on disk")
    print(f"{number / (own + others):.1f} problems a CPU second, start of the worker included")
    print(f"  worker {others / number * 1e3:.1f} ms each: solve, verify")
    print(f"  this process {own / number * 1e3:.1f} ms each: load, write to disk, sync")
    print("memory over the run, MiB")
    for done, mine, theirs in looks:
        print(f"  after {done:>5,}: this process {mine:6.0f}, worker {theirs:6.0f}")
    if len(looks) > 2:
        mine, theirs = looks[-1][1] - looks[1][1], looks[-1][2] - looks[1][2]
        each = (looks[-1][0] - looks[1][0]) / 1000
        print(f"  growth a thousand problems: {mine / each:+.1f} and {theirs / each:+.1f}")
