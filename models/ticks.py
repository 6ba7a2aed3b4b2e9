"""What one unit of time is worth in a program."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from math import ceil, log10
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optplan.models.cost.layout import Owned
from optplan.models.program import Integers
from optplan.models.spec.problem import Problem

Reals = NDArray[np.float64]

LONGEST_TICKS = 2**48
"""Ticks of the longest step that has to be told apart; a limit's product with it fits."""


def longest_step(
    problem: Problem,
    keys: Mapping[str, Integers],
    busy: Mapping[str, Reals],
    held: Owned,
    hops: Mapping[str, Reals],
    batch: float,
) -> float:
    """Seconds of a step that no legal plan exceeds by much: everything on one device in turn."""
    shape = problem.workload.architecture
    b = keys["micro_batch"].astype(np.float64)
    again = np.where(keys["recompute"] >= 2, busy["again"], 0.0)
    fetch = float(np.max(held.fetch_layer, initial=0.0)) if np.ndim(held.fetch_layer) else 0.0
    ends = np.maximum(busy["front_busy"], 0.0) + busy["back_busy"]
    legal = np.asarray(shape.heads % keys["tp"] == 0)
    each = (shape.layers * (busy["layer_busy"] + again) + ends) / b
    sequence = _most(each, legal) + shape.layers * fetch
    hop = float(np.max(np.maximum(hops["hop_near"], hops["hop_far"]), initial=0.0))
    once = shape.layers * _most(np.asarray(held.once_layer.total))
    once += _most(np.asarray(held.once_front.total)) + _most(np.asarray(held.once_back.total))
    return (
        2.0 * batch * sequence
        + 2.0 * shape.layers * hop
        + once
        + _most(np.asarray(held.latency.total))
    )


def _most(seconds: Any, legal: NDArray[np.bool_] | None = None) -> float:
    """Largest of some seconds; all of them where no row is legal."""
    some = np.atleast_1d(seconds)
    chosen = some if legal is None or not legal.any() else some[legal]
    return float(chosen.max(initial=0.0))


def tick_of(longest: float) -> Fraction:
    """
    Choose what one unit of time is worth: a power of ten, as fine as 64 bits allow.

    ``longest`` are the seconds of the longest step that must be told apart from others.
    """
    return Fraction(10) ** ceil(log10(max(longest / LONGEST_TICKS, 1e-21)))
