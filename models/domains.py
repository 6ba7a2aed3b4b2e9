"""Which values each choice may take: what the spec asks, and what is natural."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from optplan.models.builder import too_large
from optplan.models.errors import Fault, InputError
from optplan.models.numbers import divisors, factor_pairs
from optplan.models.program import Integers
from optplan.models.spec.problem import Problem
from optplan.models.spec.space import RECOMPUTES, ZEROS, Span

CHOICES = (
    "tp",
    "pp",
    "dp",
    "micro_batch",
    "micro_batches",
    "global_batch",
    "sequence_parallel",
    "recompute",
    "zero",
)
"""Every choice, in the order in which ties are settled (smaller first)."""

MOST_BATCHES = 100_000
"""Global batches that one problem may leave open."""


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
            codes = [RECOMPUTES.index(i) if isinstance(i, str) else int(i) for i in items]
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


def natural_values(problem: Problem, asked: Mapping[str, Integers | None]) -> dict[str, Integers]:
    """Values each choice could have if the spec were silent; global batches are always its own."""
    batches = asked["global_batch"]
    assert batches is not None
    degrees = np.array(divisors(problem.devices), dtype=np.int64)
    parts = np.unique(factor_pairs(batches)[:, 0])
    return {
        "tp": degrees,
        "pp": degrees,
        "dp": degrees,
        "micro_batch": parts,
        "micro_batches": parts,
        "global_batch": batches,
        "sequence_parallel": np.array([0, 1], dtype=np.int64),
        "recompute": np.arange(len(RECOMPUTES), dtype=np.int64),
        "zero": np.array(ZEROS, dtype=np.int64),
    }
