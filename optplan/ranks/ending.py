"""From the deaths of processes to the one reason why a group ended."""

from __future__ import annotations

import json
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from optplan.ranks.job import Ending, Job


@dataclass(frozen=True)
class Death:
    """
    End of one process.

    Parameters
    ----------
    rank
        Its number.
    code
        Exit status, below 0 a signal; None where it was still at work when time ran out.
    ended
        Whether it was ended from outside because of others, or of time.
    """

    rank: int
    code: int | None
    ended: bool = False


def ending_of(job: Job, deaths: Sequence[Death], kernel: bool, seconds: float) -> Ending:
    """
    Say how a group ended, in the order in which its processes did.

    Memory that ran out anywhere comes first, since it makes others lose their connections; then a
    process that was killed; then time that ran out; then the first error.

    Parameters
    ----------
    deaths
        One of each process, the earliest first.
    kernel
        Whether the kernel killed a process for want of memory meanwhile.
    """
    files = {death.rank: _file(job, death.rank) for death in deaths}
    for death in deaths:
        if files[death.rank].get("oom"):
            text = str(files[death.rank].get("error"))
            return Ending(outcome="oom", rank=death.rank, detail=text, seconds=seconds)
    for death in deaths:
        if death.code is not None and death.code < 0 and not death.ended:
            name = _signal(-death.code)
            if -death.code == signal.SIGKILL and kernel:
                detail = "the kernel ended the process for want of memory"
                return Ending(outcome="oom", rank=death.rank, detail=detail, seconds=seconds)
            detail = f"the process was ended by {name}"
            return Ending(outcome="killed", rank=death.rank, detail=detail, seconds=seconds)
    if any(death.code is None for death in deaths):
        detail = f"not finished after {job.seconds:g} s"
        return Ending(outcome="hung", detail=detail, seconds=seconds)
    for death in deaths:
        if death.code or "result" not in files[death.rank]:
            text = files[death.rank].get("error") or f"exit status {death.code}"
            return Ending(outcome="failed", rank=death.rank, detail=str(text), seconds=seconds)
    found = [files[rank]["result"] for rank in range(job.ranks)]
    return Ending(outcome="ok", results=tuple(found), seconds=seconds)


def _file(job: Job, rank: int) -> dict[str, Any]:
    """Read what a process wrote down; nothing where it could not."""
    try:
        text = (Path(job.folder) / f"rank-{rank}.json").read_text(encoding="utf-8")
        found = json.loads(text)
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _signal(number: int) -> str:
    """Name a signal."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
