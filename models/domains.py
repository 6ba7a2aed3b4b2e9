"""Which values each choice may take: what the spec asks, and what is natural."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from optplan.models.builder import too_large
from optplan.models.errors import Fault, InputError
from optplan.models.numbers import divisors, factor_pairs
from optplan.models.program import Integers
from optplan.models.spec.framework import CONTEXTS, SCHEDULES
from optplan.models.spec.problem import Problem
from optplan.models.spec.space import ORDERS, RECOMPUTES, ZEROS, Span

CHOICES = (
    "tp",
    "pp",
    "dp",
    "cp",
    "ep",
    "etp",
    "vpp",
    "micro_batch",
    "micro_batches",
    "global_batch",
    "schedule",
    "sequence_parallel",
    "recompute",
    "zero",
    "hsdp",
    "context",
    "order",
    "offload",
)
"""Every choice, in the order in which ties are settled (smaller first)."""

WORDS: Mapping[str, tuple[str, ...]] = {
    "schedule": SCHEDULES,
    "recompute": RECOMPUTES,
    "context": CONTEXTS,
    "order": ORDERS,
}
"""Choices that are words; a value of the program is the place of its word."""

FLAGS = ("sequence_parallel", "hsdp", "offload")
"""Choices that are on or off."""

MOST_BATCHES = 100_000
"""Global batches that one problem may leave open."""

MOST_STAGES = 512
"""Pipelines of any length up to this are natural, longer ones where they divide the cluster."""


def coded(name: str, value: object) -> int:
    """Return the program's value for a value as a person writes it."""
    words = WORDS.get(name)
    return words.index(str(value)) if words else int(value)  # type: ignore[call-overload]


def decoded(name: str, value: int) -> bool | int | str:
    """Return the value of a spec for one of the program; the reverse of `coded`."""
    if name in WORDS:
        return WORDS[name][value]
    return bool(value) if name in FLAGS else value


def word(name: str, value: int) -> str:
    """Write a value of the program for people: a flag is on or off."""
    if name in FLAGS:
        return "on" if value else "off"
    return str(decoded(name, value))


def asked_values(problem: Problem) -> dict[str, Integers | None]:
    """Values that the spec allows, by choice; None where it leaves the choice open."""
    search = problem.search
    asked: dict[str, Integers | None] = {}
    for name in CHOICES:
        wanted = getattr(search, name)
        if wanted is None:
            asked[name] = None
        elif isinstance(wanted, Span):
            asked[name] = _span(name, wanted, problem)
        else:
            items = wanted if isinstance(wanted, tuple) else (wanted,)
            codes = [coded(name, item) for item in items]
            asked[name] = np.unique(np.array(codes, dtype=np.int64))
    return asked


def _span(name: str, span: Span, problem: Problem) -> Integers:
    """List the values of a range."""
    step = span.multiple_of
    start = -(-span.min // step) * step
    if span.max is None and name == "global_batch":
        remedy = "add max, such as {min: 256, max: 1024, multiple_of: 64}"
        raise InputError(
            [Fault("", "search.global_batch", "a range without max has no end", remedy)]
        )
    stop = span.max if span.max is not None else max(problem.devices, _largest_batch(problem))
    if (stop - start) // step >= MOST_BATCHES and name == "global_batch":
        raise too_large("search.global_batch", (stop - start) // step + 1, "global_batch")
    if name != "global_batch":
        # Only divisors of something can be chosen; natural domains do the rest.
        stop = min(stop, max(problem.devices, _largest_batch(problem)))
    return np.arange(start, stop + 1, step, dtype=np.int64)


def _largest_batch(problem: Problem) -> int:
    """Largest global batch that the spec allows."""
    wanted = problem.search.global_batch
    if isinstance(wanted, Span):
        return wanted.max or 0
    return max(wanted) if isinstance(wanted, tuple) else wanted


def framed_values(problem: Problem) -> dict[str, tuple[int, ...]]:
    """Values that the framework can launch, for the choices that it narrows."""
    known = problem.framework
    if known is None:
        return {}
    framed = {
        "schedule": tuple(SCHEDULES.index(s) for s in known.schedules),
        "recompute": tuple(RECOMPUTES.index(r) for r in known.recompute),
        "zero": tuple(known.zero),
        "context": tuple(CONTEXTS.index(c) for c in known.context) or (0,),
    }
    for name, has in (
        ("hsdp", known.hsdp),
        ("offload", known.offload),
        ("tp", known.tensor),
        ("pp", known.pipeline),
        ("ep", known.experts),
        ("cp", bool(known.context)),
    ):
        if not has:
            framed[name] = (0,) if name in ("hsdp", "offload") else (1,)
    return framed


def natural_values(problem: Problem, asked: Mapping[str, Integers | None]) -> dict[str, Integers]:
    """Values each choice could have if the spec were silent; global batches are always its own."""
    batches = asked["global_batch"]
    assert batches is not None
    shape, devices = problem.workload.architecture, problem.devices
    paper = problem.prices == "paper"
    parts = np.unique(factor_pairs(batches)[:, 0])
    whole = np.array(divisors(devices), dtype=np.int64)
    idle = problem.search.idle_devices and not paper
    one, off = np.array([1], dtype=np.int64), np.array([0], dtype=np.int64)
    heads = _divisors(shape.heads, devices) if idle else whole
    sequence = _divisors(problem.workload.sequence_length, devices)
    longest = min(shape.layers, devices, MOST_STAGES)
    natural = {
        "tp": np.union1d(whole[whole <= 2 * shape.heads], heads) if idle else whole,
        "pp": np.union1d(whole, np.arange(1, longest + 1)) if idle else whole,
        "dp": np.union1d(whole, parts[parts <= devices]) if idle else whole,
        "cp": one if paper else sequence if idle else np.intersect1d(whole, sequence),
        "ep": one,
        "etp": one,
        "vpp": one if paper else _chunks(shape.layers),
        "micro_batch": parts,
        "micro_batches": parts,
        "global_batch": batches,
        "schedule": off if paper else np.arange(len(SCHEDULES), dtype=np.int64),
        "sequence_parallel": np.array([0, 1], dtype=np.int64),
        "recompute": np.array([0, 3]) if paper else np.arange(len(RECOMPUTES), dtype=np.int64),
        "zero": np.array([0, 1] if paper else ZEROS, dtype=np.int64),
        "hsdp": off if paper or problem.cluster.nodes == 1 else np.array([0, 1]),
        "context": off if paper else np.arange(len(CONTEXTS), dtype=np.int64),
        "order": off if paper or shape.experts else np.arange(len(ORDERS), dtype=np.int64),
        "offload": off if problem.cluster.host is None or paper else np.array([0, 1]),
    }
    if shape.experts and not paper:
        natural["ep"] = _divisors(shape.experts.count, devices)
        natural["etp"] = np.intersect1d(_divisors(shape.experts.ffn, devices), natural["tp"])
    if idle:
        for name in ("tp", "pp", "dp", "cp"):
            wanted = asked[name]
            if wanted is not None:
                natural[name] = np.union1d(natural[name], wanted[wanted <= devices])
    return {name: values.astype(np.int64) for name, values in natural.items()}


def _divisors(number: int, most: int) -> Integers:
    """Divisors up to a bound."""
    return np.array([d for d in divisors(number) if d <= most], dtype=np.int64)


def _chunks(layers: int) -> Integers:
    """Virtual stages that some pipeline of two stages or more can have: one, and what divides."""
    found = {1}
    for taken in range(3):
        found |= {d for d in divisors(layers + taken) if 2 * d <= layers + taken}
    return np.array(sorted(found), dtype=np.int64)
