"""One stage and one micro-batch: the seconds that the pipeline is made of."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from optplan.models.cost.arrays import Bool, Float, Int, where
from optplan.models.cost.compute import (
    embedding_seconds,
    head_seconds,
    layer_seconds,
    weight_gradient_seconds,
)
from optplan.models.cost.traffic import block_all_reduce_seconds
from optplan.models.spec.problem import Problem


@dataclass(frozen=True)
class StageTime:
    """
    Seconds of forward and backward of one micro-batch on one stage.

    Parameters
    ----------
    compute
        Arithmetic (share of TF).
    reduce
        Tensor-parallel all-reduces (share of TCT).
    arithmetic
        Additions inside them (share of TAT).
    hidden
        What of both runs behind weight gradients (share of TO); at most half of them.
    """

    compute: Float
    reduce: Float
    arithmetic: Float
    hidden: Float

    @property
    def total(self) -> Float:
        """Seconds that the stage is busy."""
        return self.compute + self.reduce + self.arithmetic - self.hidden


def stage_time(
    problem: Problem,
    layers: Int,
    recomputed: Int,
    first: Bool,
    last: Bool,
    tp: Int,
    micro_batch: Int,
) -> StageTime:
    """
    Price one stage.

    Parameters
    ----------
    layers, recomputed
        Blocks of the stage, and how many of them the backward pass computes again.
    first, last
        Whether the stage holds the input embedding, and the output head with the loss.
    tp, micro_batch
        Degree t and sequences b.

    Notes
    -----
    A block all-reduces four times, twice forward and twice backward, and twice more when its
    forward runs again. The embedding adds one forward and the head one backward (none of these
    two, nor the repeats, in ``paper`` prices).
    """
    plain = layer_seconds(problem, micro_batch, tp, recomputed=False)
    again = layer_seconds(problem, micro_batch, tp, recomputed=True)
    compute = (layers - recomputed) * plain + recomputed * again
    compute = compute + where(last, head_seconds(problem, micro_batch, tp))
    compute = compute + where(first, embedding_seconds(problem, micro_batch))
    tau = block_all_reduce_seconds(problem, micro_batch, tp)
    reductions: Float = 4.0 * layers
    if problem.prices == "canonical":
        reductions = reductions + 2.0 * recomputed + where(first, 1.0) + where(last, 1.0)
    kappa = problem.calibration.kappa
    cover = weight_gradient_seconds(problem, micro_batch, tp)
    behind = layers * sum(np.minimum(tau * (1.0 + kappa), seconds) for seconds in cover)
    hidden = problem.calibration.overlap_tp * behind
    return StageTime(compute, reductions * tau, reductions * tau * kappa, hidden)
