"""What every process of a measured layout does: a few steps of training, each timed."""

from __future__ import annotations

import time
from typing import Any

import torch
import torch.distributed as dist

from optplan.measuring.engine import Trainer
from optplan.measuring.network import batch
from optplan.models.spec.plan import Plan
from optplan.models.spec.workload import Architecture
from optplan.ranks.limits import peak_bytes, reset_peak
from optplan.ranks.rank import Here


def train(here: Here, arguments: dict[str, Any]) -> dict[str, Any]:
    """
    Train on one batch after another.

    Parameters
    ----------
    here
        This process.
    arguments
        ``architecture``, ``plan``, ``sequence_length``, ``precision``, ``seed``, ``warm_up`` and
        ``steps``.

    Returns
    -------
    dict
        ``losses`` and ``seconds`` of every step, ``peak_bytes`` of the steps, ``torch``.
    """
    shape = Architecture.model_validate(arguments["architecture"])
    plan = Plan.model_validate(arguments["plan"])
    length, seed = arguments["sequence_length"], arguments["seed"]
    trainer = Trainer(shape, plan, here.rank, here.device, arguments["precision"], seed)
    forget_peak(here.device)
    losses, seconds = [], []
    for step in range(arguments["warm_up"] + arguments["steps"]):
        tokens, labels = batch(shape, plan.global_batch, length, seed + step)
        dist.barrier()
        start = time.perf_counter()
        found = trainer.step(tokens, labels)
        finish(here.device)
        seconds.append(time.perf_counter() - start)
        losses.append(trainer.mean(found))
        here.say(f"step {step + 1}")
    return {
        "losses": losses,
        "seconds": seconds,
        "peak_bytes": most_bytes(here.device),
        "torch": torch.__version__,
    }


def finish(device: str) -> None:
    """Wait until a device has done everything that was launched."""
    if device == "cuda":
        torch.cuda.synchronize()
    elif device == "npu":
        torch.npu.synchronize()


def forget_peak(device: str) -> None:
    """Begin to watch for the most memory held anew."""
    if device == "cpu":
        reset_peak()
    else:
        getattr(torch, device).reset_peak_memory_stats()


def most_bytes(device: str) -> int:
    """Most memory held since then: resident on a CPU, of the allocator on an accelerator."""
    if device == "cpu":
        return peak_bytes()
    return int(getattr(torch, device).max_memory_allocated())
