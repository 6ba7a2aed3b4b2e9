"""Arithmetic of a block, the head and the embedding: operators, their work, and their seconds."""

from __future__ import annotations

from dataclasses import dataclass

from optplan.models.cost.arrays import Float, Int
from optplan.models.cost.utilization import rho
from optplan.models.spec.problem import Problem
from optplan.models.spec.workload import Workload

ELEMENT_BYTES = {"bf16": 2, "fp16": 2, "fp32": 4}
"""Bytes of one activation or weight, per number format."""

LOSS_BYTES_PER_LOGIT = 24
"""
Memory traffic of an unfused cross-entropy in fp32, per logit: 2 read and 4 written for the cast, 4
read for the maximum, 4 + 4 for the exponential and its sum, 4 + 2 for the gradient (counted pass
by pass, vocabulary-parallel form of Megatron-LM ``core/tensor_parallel/cross_entropy.py``).
"""

EMBEDDING_PASSES = 5
"""Passes over a token's row: read, write forward; read gradient, read and write sum backward."""


@dataclass(frozen=True)
class Operator:
    """
    One matrix product of a block.

    Parameters
    ----------
    name
        What it computes.
    flops
        Forward FLOP per sequence, all shards together, a multiply-add counted as two.
    weighted
        True where it has weights, whose gradient is as much work again.
    reduced
        True where its input gradient is all-reduced over the tensor group, so that its weight
        gradient can hide that transfer (the two backward all-reduces of a block).
    routed
        True where its tokens are spread over the experts.
    """

    name: str
    flops: float
    weighted: bool = True
    reduced: bool = False
    routed: bool = False


def block_operators(workload: Workload, moe: bool) -> tuple[Operator, ...]:
    """
    Matrix products of one block, with experts or with a plain feed-forward layer.

    Plain blocks are the paper's Eq. 3, extended to grouped keys and to free head widths; latent
    attention follows arXiv 2405.04434, section 2.1, with keys and values expanded.

    A flash attention that is causal does half of the score work; without it the full square is
    computed. Where only some layers have a window, every layer is given their mean.

    Examples
    --------
    A GPT block (``a`` heads of ``h / a``, ``f = 4 h``) without flash attention sums to ``24 s h^2
    + 4 s^2 h``.
    """
    shape, s = workload.architecture, workload.sequence_length
    h, into = shape.hidden, 2 if shape.gated else 1
    attention = (
        *_projections(workload),
        Operator("scores", _score_flops(workload), weighted=False),
    )
    experts = shape.experts
    if not (moe and experts):
        return (
            *attention,
            Operator("ffn_in", 2.0 * s * h * shape.ffn * into, reduced=True),
            Operator("ffn_out", 2.0 * s * shape.ffn * h),
        )
    routed = 2.0 * s * h * experts.ffn * experts.per_token
    shared: tuple[Operator, ...] = ()
    if experts.shared_ffn:
        shared = (
            Operator("shared_in", 2.0 * s * h * experts.shared_ffn * into, reduced=True),
            Operator("shared_out", 2.0 * s * experts.shared_ffn * h),
        )
    return (
        *attention,
        Operator("router", 2.0 * s * h * experts.count),
        *shared,
        Operator("experts_in", routed * into, routed=True),
        Operator("experts_out", routed, routed=True),
    )


def _projections(workload: Workload) -> tuple[Operator, ...]:
    """Matrix products around the scores."""
    shape, s = workload.architecture, workload.sequence_length
    h = shape.hidden
    if not shape.latent:
        q, kv = shape.query_width, shape.key_width
        return (
            Operator("qkv", 2.0 * s * h * (q + 2 * kv), reduced=True),
            Operator("attention_out", 2.0 * s * q * h),
        )
    latent, heads = shape.latent, shape.heads
    queries = heads * (latent.nope + latent.rope)
    down = h * (latent.kv_rank + latent.rope + latent.q_rank)
    up = latent.kv_rank * heads * (latent.nope + latent.value) + (latent.q_rank or h) * queries
    return (
        Operator("latent_down", 2.0 * s * down),
        Operator("latent_up", 2.0 * s * up, reduced=True),
        Operator("attention_out", 2.0 * s * heads * latent.value * h),
    )


def score_width(workload: Workload) -> int:
    """Columns of a query and of a value over all heads, together: what a score costs."""
    shape = workload.architecture
    if shape.latent:
        return shape.heads * (shape.latent.nope + shape.latent.rope + shape.latent.value)
    return 2 * shape.query_width


def _score_flops(workload: Workload) -> float:
    """Forward FLOP of scores and their product with the values, of a mean layer."""
    shape, s = workload.architecture, workload.sequence_length
    square = float(s * s)
    pairs = square / 2 if workload.flash_attention else square
    if shape.sliding_window and shape.sliding_window < s and workload.flash_attention:
        window = shape.sliding_window
        count = shape.layers if shape.windowed_layers is None else shape.windowed_layers
        inside = float(s * window) - window * window / 2
        pairs += count / shape.layers * (inside - pairs)
    return 2.0 * pairs * score_width(workload)


def head_operator(workload: Workload) -> Operator:
    """Output head: hidden states to logits."""
    shape = workload.architecture
    return Operator("head", 2.0 * workload.sequence_length * shape.hidden * shape.vocabulary)


def block_flops(workload: Workload, moe: bool) -> float:
    """Forward FLOP of one block per sequence (F_layer)."""
    return sum(operator.flops for operator in block_operators(workload, moe))


def layer_flops(workload: Workload) -> float:
    """Forward FLOP per sequence of a block of the kind that the network ends with."""
    return block_flops(workload, workload.architecture.experts is not None)


def joint_flops(workload: Workload) -> float:
    """Forward FLOP per sequence that joins state and embedding in one multi-token prediction."""
    return 4.0 * workload.sequence_length * workload.architecture.hidden**2


def model_flops(workload: Workload) -> float:
    """
    FLOP of one sequence, forward and backward, nothing recomputed (numerator of MFU).

    Backward is twice forward, or with frozen weights as much again.
    """
    shape = workload.architecture
    dense = shape.experts.leading_dense if shape.experts else 0
    forward = (shape.layers - dense) * layer_flops(workload) + dense * block_flops(workload, False)
    forward += (1 + shape.mtp) * head_operator(workload).flops
    forward += shape.mtp * (layer_flops(workload) + joint_flops(workload))
    return (2.0 if workload.lora else 3.0) * forward


def matmul_seconds(
    problem: Problem, flops: Float, micro_batch: Float, tp: Int, cp: Int = 1
) -> Float:
    """
    Seconds that ``flops`` per sequence, split over tensor and context group, take a micro-batch.

    Returns ``flops * b * rho / (t c P)``; linear in ``b`` with a positive intercept.
    """
    workload = problem.workload
    peak = problem.cluster.accelerator.peak[workload.precision]
    width = workload.architecture.hidden
    multiplier = rho(problem.calibration, micro_batch, workload.sequence_length / cp, width, tp)
    return flops * micro_batch * multiplier / (tp * cp * float(peak))


def expert_seconds(
    problem: Problem, flops: Float, micro_batch: Float, degrees: tuple[Int, Int, Int, Int]
) -> Float:
    """
    Seconds of the routed experts on the busiest rank for one micro-batch.

    Each rank works on its even share times the load of the busiest one. The utilization is that
    of one expert's matrix product: its tokens, and the narrower of its two widths divided over
    ``etp``.

    Parameters
    ----------
    flops
        Of all routed experts per sequence.
    degrees
        ``tp, cp, ep, etp``.
    """
    workload, (tp, cp, ep, etp) = problem.workload, degrees
    experts = workload.architecture.experts
    assert experts is not None
    peak = problem.cluster.accelerator.peak[workload.precision]
    tokens = workload.sequence_length * experts.per_token * ep * etp / (tp * cp * experts.count)
    width = min(workload.architecture.hidden, experts.ffn)
    multiplier = rho(problem.calibration, micro_batch, tokens, width, etp)
    load = workload.expert_load
    return flops * load * micro_batch * multiplier / (tp * cp * float(peak))


def head_seconds(problem: Problem, micro_batch: Float, tp: Int, cp: Int = 1) -> Float:
    """Output head and, in canonical prices, the loss: forward and backward for one micro-batch."""
    workload = problem.workload
    passes = 2.0 if workload.lora else 3.0
    flops = passes * head_operator(workload).flops
    seconds = matmul_seconds(problem, flops, micro_batch, tp, cp)
    if problem.prices == "paper":
        return seconds
    logits = workload.sequence_length * workload.architecture.vocabulary * micro_batch / (tp * cp)
    return seconds + stream_seconds(problem, LOSS_BYTES_PER_LOGIT * logits)


def embedding_seconds(problem: Problem, micro_batch: Float, cp: Int = 1) -> Float:
    """Input embedding, forward and backward for one micro-batch; the paper has no such term."""
    workload = problem.workload
    row = workload.architecture.hidden * ELEMENT_BYTES[workload.precision]
    if problem.prices == "paper":
        return 0.0 * micro_batch
    tokens = workload.sequence_length * micro_batch / cp
    return stream_seconds(problem, EMBEDDING_PASSES * row * tokens)


def stream_seconds(problem: Problem, moved_bytes: Float) -> Float:
    """Seconds to move bytes through the device's memory."""
    rate = problem.cluster.accelerator.hbm_bandwidth * problem.calibration.hbm_efficiency
    return moved_bytes / rate
