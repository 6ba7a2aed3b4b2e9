"""What a group of processes is asked to do, and how it ended."""

from __future__ import annotations

from typing import Any, Literal

from optplan.models.record import Record

Device = Literal["cpu", "cuda", "npu"]

DEVICES: tuple[Device, ...] = ("cpu", "cuda", "npu")

BACKENDS: dict[Device, str] = {"cpu": "gloo", "cuda": "nccl", "npu": "hccl"}
"""Library that carries collectives on each kind of device."""

Outcome = Literal["ok", "oom", "killed", "hung", "failed"]

OUTCOMES: tuple[Outcome, ...] = ("ok", "oom", "killed", "hung", "failed")
"""
Ends of a run: it finished; memory ran out; a process was killed; time ran out; anything else.
"""


class Job(Record):
    """One piece of work for a group of processes."""

    work: str
    """Function that every process runs, ``module:name``; takes its ``Here`` and the arguments."""
    ranks: int
    """Processes."""
    arguments: dict[str, Any]
    """Plain data handed to the function."""
    seconds: float
    """Time after which the group counts as hung and is ended."""
    device: Device = "cpu"
    """Where it computes."""
    memory_bytes: int | None = None
    """Memory that each process may allocate; none for no limit."""
    spawn: bool = False
    """Start every process anew instead of forking it; drivers of accelerators survive no fork."""
    folder: str
    """Empty folder for what the processes write."""


class Ending(Record):
    """How a group of processes ended."""

    outcome: Outcome
    """The whole group's."""
    rank: int | None = None
    """Process that ended it; none where all are alike."""
    detail: str = ""
    """The reason in a line."""
    results: tuple[Any, ...] = ()
    """What the function returned, one entry a process; empty unless ``ok``."""
    seconds: float = 0.0
    """From the start of the first process to the end of the last."""
