"""Operators that only move bytes: norms, residuals, activations, softmax, and their traffic."""

from __future__ import annotations

from optplan.models.cost.arrays import Float, Int, where
from optplan.models.spec.problem import Problem

WIDTH = 2
"""Bytes of an activation in 16 bits, in which they are kept under FP8 too."""

NORMS = 2 * (1 + 1)
"""Times that the two norms of a block read or write the hidden states."""

RESIDUALS = 2 * (2 + 1)
"""Times that its two sums read or write them."""

DROPOUTS = 2 * (1 + 1)
"""Times that its two dropouts read or write them."""

SCORES = 2 * (1 + 1)
"""Times that softmax and dropout of unfused attention read or write the scores."""


def pointwise_bytes(
    problem: Problem, micro_batch: Float, tp: Int, cp: Int, split: bool, moe: bool
) -> Float:
    """
    Memory traffic of one block's forward pass on one device, matrix products left out.

    Each operator reads its inputs and writes its output once. The backward pass moves twice as
    much. Hidden states are whole on every tensor rank unless sequence parallelism splits them;
    queries, keys, values (rotated or copied once) and the feed-forward layer are split. The routed
    experts of a token are counted with it, and the token's way to and from them.

    Parameters
    ----------
    split
        Whether norms and residuals are split over the tensor group.
    """
    workload = problem.workload
    shape, s = workload.architecture, workload.sequence_length
    tokens = micro_batch * s / cp
    hidden = shape.hidden * (NORMS + RESIDUALS + (DROPOUTS if shape.dropout else 0))
    inner = 3 if shape.gated else 2
    if moe and shape.experts:
        experts = shape.experts
        width = experts.shared_ffn + experts.per_token * experts.ffn * workload.expert_load
        travel = 4 * experts.per_token * shape.hidden
    else:
        width, travel = float(shape.ffn), 0
    columns = 2 * _attention_width(problem) + inner * width + travel
    whole: Float = tokens * WIDTH * hidden / where(split, tp, 1)
    moved = whole + tokens * WIDTH * columns / tp
    return moved + softmax_bytes(problem, micro_batch, tp, cp)


def softmax_bytes(problem: Problem, micro_batch: Float, tp: Int, cp: Int) -> Float:
    """Memory traffic of one block's scores, forward; none where attention is fused."""
    workload = problem.workload
    if workload.flash_attention:
        return 0.0 * micro_batch
    scores = workload.sequence_length**2 * workload.architecture.heads
    return micro_batch * scores * (SCORES * WIDTH) / (tp * cp)


def _attention_width(problem: Problem) -> int:
    """Columns of queries, keys and values."""
    shape = problem.workload.architecture
    if shape.latent:
        return shape.heads * (2 * (shape.latent.nope + shape.latent.rope) + shape.latent.value)
    return shape.query_width + 2 * shape.key_width
