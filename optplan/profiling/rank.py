"""What every process of a profile does: each sample in step with the others, timed and repeated."""

from __future__ import annotations

import gc
import os
import time
from typing import Any

import torch
import torch.distributed as dist

from optplan.measuring.train import finish, forget_peak, most_bytes
from optplan.profiling.operators import Bench, Once
from optplan.profiling.samples import Sample, Timing
from optplan.ranks.limits import resident_bytes
from optplan.ranks.rank import Here

WINDOW = 0.03
"""Seconds that one repeat takes at least: longer than a scheduler's slice of a few milliseconds."""

SHARED_WINDOW = 0.12
"""The same where processes take turns on too few processors."""

REPEATS = 7
"""Repeats of a sample; fewer where one takes long."""

FEWEST = 3
"""Repeats of a sample at least."""

PATIENCE = 1.2
"""Seconds after which no further repeat of a sample is begun."""


def profile(here: Here, arguments: dict[str, Any]) -> dict[str, Any]:
    """
    Time samples until all are done or the budget is spent.

    Parameters
    ----------
    here
        This process.
    arguments
        ``samples``, how many of them are ``needed`` whatever they take, ``budget`` in seconds,
        ``precision``.

    Returns
    -------
    dict
        ``timings`` in the first process, ``skipped`` samples, ``refused`` ones with the reason,
        and facts about the machine.
    """
    start = time.monotonic()
    torch.manual_seed(here.rank)
    bench = Bench(here, arguments["precision"])
    crowded = here.device == "cpu" and here.ranks > (os.cpu_count() or 1)
    window = SHARED_WINDOW if crowded else WINDOW
    samples = [Sample.model_validate(one) for one in arguments["samples"]]
    timings: list[Timing] = []
    refused: dict[str, str] = {}
    done = 0
    for sample in samples:
        spent = time.monotonic() - start > arguments["budget"]
        if done >= arguments["needed"] and not _agreed(not spent, here):
            break
        here.say(f"{done + 1} of {len(samples)}: {sample.label}")
        try:
            timings.append(
                _memory(bench, sample) if "memory" in sample.kind else _timed(bench, sample, window)
            )
        except (NotImplementedError, RuntimeError, ValueError) as error:
            if "onnection" in str(error):
                raise
            # A backend that lacks a collective says so in every process.
            refused[sample.label] = str(error).splitlines()[0][:200]
        done += 1
        gc.collect()
    return {
        "timings": [one.model_dump(mode="json") for one in timings] if here.rank == 0 else [],
        "skipped": [sample.label for sample in samples[done:]],
        "refused": refused,
        "machine": _machine(here),
    }


def _agreed(mine: bool, here: Here) -> bool:
    """Let the first process decide for all."""
    word = torch.tensor([1.0 if mine else 0.0], device=here.device)
    dist.broadcast(word, 0)
    return bool(word.item())


def _timed(bench: Bench, sample: Sample, window: float) -> Timing:
    """Time one sample."""
    once, here = bench.build(sample), bench.here
    for _ in range(2):
        once()
    finish(here.device)
    guess = _slowest([_span(once, 1, here)], here)[0]
    inner = max(1, min(10_000, int(window / max(guess, 1e-7)) + 1))
    spans: list[float] = []
    begin = time.monotonic()
    while len(spans) < REPEATS:
        more = len(spans) < FEWEST or time.monotonic() - begin < PATIENCE
        if not _agreed(more, here):
            break
        spans.append(_span(once, inner, here))
    spans = sorted(_slowest(spans, here))
    each = 0.5 if sample.kind == "p2p" else 1.0
    middle = len(spans) // 2
    median = spans[middle] if len(spans) % 2 else (spans[middle - 1] + spans[middle]) / 2
    quarter = len(spans) // 4
    return Timing(
        sample=sample,
        seconds=each * median,
        low=each * spans[quarter],
        high=each * spans[-1 - quarter],
        repeats=len(spans),
        inner=inner,
    )


def _span(once: Once, inner: int, here: Here) -> float:
    """Run a sample some times in step with the other processes; seconds of one."""
    dist.barrier()
    start = time.perf_counter()
    for _ in range(inner):
        once()
    finish(here.device)
    return (time.perf_counter() - start) / inner


def _slowest(spans: list[float], here: Here) -> list[float]:
    """Take the slowest process of every repeat."""
    kind = torch.float64 if here.device == "cpu" else torch.float32
    told = torch.tensor(spans, dtype=kind, device=here.device)
    dist.all_reduce(told, op=dist.ReduceOp.MAX)
    return [float(span) for span in told.tolist()]


def _memory(bench: Bench, sample: Sample) -> Timing:
    """Read bytes: of a process that holds nothing, or of what a head adds for a moment."""
    here = bench.here
    if sample.kind == "idle_memory":
        found = resident_bytes() if here.device == "cpu" else _reserved(here.device)
    else:
        once = bench.build(sample)
        gc.collect()
        before = resident_bytes() if here.device == "cpu" else _held(here.device)
        forget_peak(here.device)
        once()
        finish(here.device)
        found = max(0, most_bytes(here.device) - before)
    most = _slowest([float(found)], here)[0]
    return Timing(sample=sample, seconds=most, low=most, high=most, repeats=1, inner=1)


def _reserved(device: str) -> int:
    """Memory of an accelerator that is gone before anything is held: context and libraries."""
    free, total = getattr(torch, device).mem_get_info()
    return int(total - free)


def _held(device: str) -> int:
    """Memory that the allocator has given out."""
    return int(getattr(torch, device).memory_allocated())


def _machine(here: Here) -> dict[str, Any]:
    """Tell what the processes ran on."""
    facts: dict[str, Any] = {
        "torch": torch.__version__,
        "processors": os.cpu_count() or 1,
        "memory": 0,
        "name": "",
    }
    if here.device == "cpu":
        try:
            facts["memory"] = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        except (ValueError, OSError, AttributeError):
            facts["memory"] = 0
    else:
        module = getattr(torch, here.device)
        facts["memory"] = int(module.mem_get_info()[1])
        facts["name"] = str(module.get_device_name())
    return facts
