"""Layers in equal chunks: what each pipeline and schedule makes of a number of layers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from optplan.models.cost.schedule import enough, flight
from optplan.models.pipeline import less_ends
from optplan.models.program import Integers
from optplan.models.spec.framework import SCHEDULES, Framework
from optplan.models.spec.problem import Problem

FOLDED = SCHEDULES.index("zb-v")
FREE = SCHEDULES.index("1f1b")

MANY = 2**24
"""More micro-batches than any step has."""


@dataclass(frozen=True)
class Shape:
    """
    How layers lie in a pipeline, each an array.

    Parameters
    ----------
    free
        1 where every stage may hold any number of layers.
    chunk
        Layers of a chunk where they are equal, rounded up.
    light_first, light_last
        Layers that the first and the last chunk are short, embedding and head taking their place.
    folded
        1 where first and last chunk lie on the first stage.
    legal
        True where the layers can be laid out at all.
    """

    free: Integers
    chunk: Integers
    light_first: Integers
    light_last: Integers
    folded: Integers
    legal: NDArray[np.bool_]

    def layers(self, pp: int, vpp: int) -> tuple[int, ...]:
        """Layers of each stage of the first pipeline in the arrays, in equal chunks."""
        light = int(self.light_first[0]), int(self.light_last[0])
        return less_ends(pp, vpp * int(self.chunk[0]), *light, bool(self.folded[0]))


def fixed_shape(problem: Problem, pp: Integers, vpp: Integers, schedule: Integers) -> Shape:
    """
    Lay the layers out in equal chunks.

    Where the framework counts embedding and head as layers, one or two may be missing to equal
    chunks: the head takes the place of the first, the embedding that of the second.
    """
    layers = problem.workload.architecture.layers
    framework, paper = problem.framework, problem.prices == "paper"
    wanted = problem.search.layers_per_stage
    ends = not paper and (framework is None or framework.ends_count_as_layers)
    uneven = not paper and (framework is None or framework.uneven_layers)
    experts = problem.workload.architecture.experts
    dense = experts.leading_dense if experts else 0
    stages = pp * vpp
    chunk = -(-layers // stages)
    short = stages * chunk - layers
    light_last = np.where(ends & (short >= 1), 1, 0)
    light_first = np.where(ends & (short >= 2), 1, 0)
    free = np.asarray(schedule == FREE).astype(np.int64)
    equal = (short == light_first + light_last) & (chunk - light_first >= dense)
    # A single device has nothing to be made equal; a chunk without layers only where an end is.
    equal &= (chunk >= 1) & ((pp > 1) | (short == 0))
    equal &= (chunk > light_last) | (vpp > 1)
    legal = equal
    if uneven and wanted == "any":
        first = max(1, dense)
        legal = np.where(free == 1, layers - first >= pp - 1, equal)
    elif isinstance(wanted, tuple):
        whole = sum(wanted) == layers and min(wanted) >= 1 and wanted[0] >= dense
        uneven = uneven or (_ends_differ(framework) and len(set(wanted[1:-1])) <= 1)
        same = pp == len(wanted)
        each = np.where(pp == 1, layers, vpp * chunk)
        first_, last_ = each - light_first, each - light_last
        as_asked = equal & same
        if len(wanted) > 1:
            middle = all(n == wanted[1] for n in wanted[1:-1])
            as_asked = as_asked & (first_ == wanted[0]) & (last_ == wanted[-1]) & middle
            if len(wanted) > 2:
                as_asked = as_asked & (each == wanted[1])
        legal = np.where(free == 1, same & whole & uneven, as_asked & (schedule != FOLDED))
    folded = np.asarray((schedule == FOLDED) & (pp > 1)).astype(np.int64)
    return Shape(free, chunk, light_first, light_last, folded, np.asarray(legal, dtype=bool))


def _ends_differ(framework: Framework | None) -> bool:
    """Tell whether the first and the last stage may hold any number of layers."""
    return framework is not None and framework.uneven_ends


def flying(pp: Integers, vpp: Integers, schedule: Integers) -> tuple[Integers, Integers]:
    """
    Chunks that the first stage keeps of a long step, and how many fewer each next one keeps.

    An activation counts until its weight gradient is done.
    """
    first, slope = np.zeros_like(pp), np.zeros_like(pp)
    for code, word in enumerate(SCHEDULES):
        here = schedule == code
        start, fall, _ = flight(word, pp, vpp, MANY)
        first = np.where(here, start, first)
        slope = np.where(here, fall, slope)
    return first, slope


def idle_forms() -> tuple[tuple[tuple[int, ...], ...], ...]:
    """
    Write bubbles as the largest of linear forms, by schedule, for enough micro-batches.

    Each form is ``(f1, f0, b1, b0, w1, w0)``: ``f1 (p - 1) + f0`` times the forward pass and so on.
    Read off `cost.schedule` at two lengths of pipeline, since every one is linear in ``p``.
    """
    from optplan.models.cost import schedule as price

    forms: list[tuple[tuple[int, ...], ...]] = []
    for word in SCHEDULES:
        known = []
        for q in (8, 9):
            k = int(enough(word, q + 1)) - 1
            known.append(price.forms(word, q, k))
        pairs = zip(known[0], known[1], strict=True)
        found = []
        for one, two in pairs:
            line: list[int] = []
            for a, b in zip(map(int, one), map(int, two), strict=True):
                line += [b - a, a - 8 * (b - a)]
            found.append(tuple(line))
        forms.append(tuple(dict.fromkeys(found)))
    return tuple(forms)
