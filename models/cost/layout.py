"""Everything a plan's price is made of, for one layout or for arrays of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast

import numpy as np
from numpy.typing import NDArray

from optplan.models.cost.arrays import Float, Int
from optplan.models.cost.block import Busy, Ranks, again_busy, back_busy, block_busy, front_busy
from optplan.models.cost.memory import (
    Held,
    Slice,
    back_activations,
    back_counts,
    block_activations,
    block_counts,
    block_input,
    fetched_bytes,
    front_activations,
    front_counts,
    inside_bytes,
    logits_bytes,
    states,
)
from optplan.models.cost.step import Data, Once, fetch_seconds, once_latency, once_seconds
from optplan.models.cost.traffic import Group, expert_data
from optplan.models.spec.problem import Problem


@dataclass(frozen=True)
class Pieces:
    """
    Seconds of one micro-batch: of a block, of the same computed again, and of both ends.

    ``over_front`` and ``over_back`` are what an end takes beyond a block whose place it takes,
    forward, input gradient and weight gradient each for itself.
    """

    layer: Busy
    again: Busy
    front: Busy
    back: Busy

    @property
    def over_front(self) -> Float:
        """Seconds of the front end beyond those of a block."""
        return _beyond(self.front, self.layer)

    @property
    def over_back(self) -> Float:
        """Seconds of the back end beyond those of a block."""
        return _beyond(self.back, self.layer)


def _beyond(end: Busy, block: Busy) -> Float:
    """Sum of what an end takes beyond a block, pass by pass."""
    total: Float = 0.0
    for one, other in zip(end.passes, block.passes, strict=True):
        total = total + np.maximum(0.0, one - other)
    return total


def excess(end: Busy) -> Float:
    """Sum of the passes of an end, none below nothing."""
    return _beyond(end, Busy())


def pieces(problem: Problem, at: Ranks) -> Pieces:
    """Price a micro-batch piece by piece."""
    moe = problem.workload.architecture.experts is not None
    return Pieces(
        block_busy(problem, at, moe),
        again_busy(problem, at, moe),
        front_busy(problem, at),
        back_busy(problem, at),
    )


@dataclass(frozen=True)
class Place:
    """
    Degrees and flags that states and their exchange depend on, each a number or an array.

    Parameters
    ----------
    inside
        Members of the dense data-parallel group that share a node.
    single
        1 where there is one pipeline stage.
    """

    tp: Int
    cp: Int
    dp: Int
    inside: Int
    ep: Int
    etp: Int
    zero: Int
    hsdp: Int
    offload: Int
    single: Int


@dataclass(frozen=True)
class Owned:
    """
    Bytes and seconds of states: of a block, and of both ends.

    ``once`` are the parts of a step's end that grow with parameters, ``latency`` what does not;
    ``fetch`` is what each micro-batch exchanges of weights and gradients; ``fetched`` the whole
    weights that lie in memory meanwhile.
    """

    layer: Held
    front: Held
    back: Held
    once_layer: Once
    once_front: Once
    once_back: Once
    latency: Once
    fetch_layer: Float
    fetch_front: Float
    fetch_back: Float
    fetched: Int


def owned(problem: Problem, at: Place) -> Owned:
    """Count and price the states of a block and of both ends."""
    moe = problem.workload.architecture.experts is not None
    dense = Group(at.dp * at.cp, at.inside)
    experts = expert_data(at.tp, at.cp, at.dp, at.ep, at.etp, at.inside)
    data = Data(dense, experts, at.zero, at.hsdp, at.offload)
    tp, ep, etp = _wide(at.tp), _wide(at.ep), _wide(at.etp)
    block = block_counts(problem, tp, ep, etp, moe)
    front = front_counts(problem, tp, ep, etp)
    single = np.asarray(at.single) == 1
    alone: bool | NDArray[np.bool_] = single if single.ndim else bool(single)
    back = back_counts(problem, tp, ep, etp, alone)
    shards = data.shards
    return Owned(
        states(problem, block, shards),
        states(problem, front, shards),
        states(problem, back, shards),
        once_seconds(problem, block, data),
        once_seconds(problem, front, data),
        once_seconds(problem, back, data),
        once_latency(problem, block, data),
        fetch_seconds(problem, block, data),
        fetch_seconds(problem, front, data),
        fetch_seconds(problem, back, data),
        fetched_bytes(problem, block, at.zero),
    )


@dataclass(frozen=True)
class Kept:
    """
    Bytes of one micro-batch: what a block keeps, what recomputing it saves, what the ends add.

    ``inside`` and ``logits`` are needed for a moment only.
    """

    kept: Int
    saved: Int
    front: Int
    back: Int
    inside: Int
    logits: Int


def _wide(degree: Int) -> Int:
    """Turn arrays of whole numbers into floats, which cannot wrap around and are exact to 2^53."""
    return cast(Int, degree.astype(np.float64)) if isinstance(degree, np.ndarray) else degree


def kept(problem: Problem, at: Slice) -> Kept:
    """Count the activations of one micro-batch."""
    moe = problem.workload.architecture.experts is not None
    at = replace(at, tp=_wide(at.tp), cp=_wide(at.cp), micro_batch=_wide(at.micro_batch))
    whole = block_activations(problem, at, moe)
    return Kept(
        whole,
        whole - block_input(problem, at),
        front_activations(problem, at),
        back_activations(problem, at),
        inside_bytes(problem, at),
        logits_bytes(problem, at),
    )
