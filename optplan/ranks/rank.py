"""One process of a group: joins the others, does its work, writes down what came of it."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

from optplan.ranks.job import BACKENDS, Job
from optplan.ranks.limits import is_out_of_memory, limit_memory

FAILED = 1
"""Exit status of a process whose work raised; its file says what."""

PATIENCE = 1.5
"""A collective waits for others this many times as long as the group may take in all."""


@dataclass(frozen=True)
class Here:
    """
    Where a piece of work runs.

    Parameters
    ----------
    rank, ranks
        Number of this process, and how many there are.
    device
        ``cpu``, ``cuda`` or ``npu``.
    say
        Tells the starter how far the work is; only the first process is heard.
    """

    rank: int
    ranks: int
    device: str
    say: Callable[[str], None]


def run_rank(job: Job, rank: int) -> int:
    """
    Do the work of one process.

    Returns
    -------
    int
        Exit status; result or error lie in ``rank-N.json`` of the job's folder.
    """
    folder = Path(job.folder)
    die_with_parent()
    _redirect(folder / f"rank-{rank}.log")
    if job.memory_bytes is not None:
        limit_memory(job.memory_bytes)
    try:
        found: dict[str, Any] = {"result": _work(job, rank, folder)}
        status = 0
    except BaseException as error:
        traceback.print_exc()
        limited = job.memory_bytes is not None
        found = {"error": _short(error), "oom": is_out_of_memory(error, limited)}
        status = FAILED
    with contextlib.suppress(OSError, MemoryError):
        part = folder / f".rank-{rank}.json"
        part.write_text(json.dumps(found), encoding="utf-8")
        part.replace(folder / f"rank-{rank}.json")
    sys.stdout.flush()
    sys.stderr.flush()
    return status


def _work(job: Job, rank: int, folder: Path) -> Any:
    """Join the group and call the function."""
    import torch
    import torch.distributed as dist

    if job.device == "cpu":
        torch.set_num_threads(1)
    elif job.device == "cuda":
        torch.cuda.set_device(rank)
    else:
        import_module("torch_npu")
        torch.npu.set_device(rank)
    # All processes are on this machine, whose own name may lead nowhere.
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo0" if sys.platform == "darwin" else "lo")
    dist.init_process_group(
        BACKENDS[job.device],
        init_method=f"file://{(folder / 'store').resolve()}",
        rank=rank,
        world_size=job.ranks,
        timeout=timedelta(seconds=PATIENCE * job.seconds),
    )
    module, _, name = job.work.partition(":")
    function = getattr(import_module(module), name)

    def say(line: str) -> None:
        if rank == 0:
            with (folder / "progress").open("a", encoding="utf-8") as file:
                file.write(line + "\n")

    found = function(Here(rank, job.ranks, job.device, say), job.arguments)
    dist.barrier()
    dist.destroy_process_group()
    return found


def _short(error: BaseException) -> str:
    """Say what went wrong in one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = " ".join(lines[:3]) if lines else ""
    return f"{type(error).__name__}: {text}"[:400]


def die_with_parent() -> None:
    """Ask the kernel to end this process when its parent ends; Linux alone can."""
    with contextlib.suppress(Exception):
        import ctypes
        import signal

        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def _redirect(log: Path) -> None:
    """Send what the process prints into a file."""
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    os.close(handle)


def main() -> int:
    """Run one process of a job that lies in a file: ``python -m optplan.ranks.rank FILE RANK``."""
    job = Job.model_validate_json(Path(sys.argv[1]).read_text(encoding="utf-8"))
    return run_rank(job, int(sys.argv[2]))


if __name__ == "__main__":
    sys.exit(main())
