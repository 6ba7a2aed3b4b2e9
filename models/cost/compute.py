"""Arithmetic of a stage: operators, their work, and their seconds."""

from __future__ import annotations

from dataclasses import dataclass

from optplan.models.cost.arrays import Bool, Float, Int, where
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
    One matrix product of the network.

    Parameters
    ----------
    name
        What it computes.
    flops
        Forward FLOP per sequence, all shards together, a multiply-add counted as two.
    reduced
        True where its input gradient is all-reduced over the tensor group, so that its weight
        gradient can hide that transfer (the two backward all-reduces of a block).
    """

    name: str
    flops: float
    reduced: bool = False


def layer_operators(workload: Workload) -> tuple[Operator, ...]:
    """
    Matrix products of one transformer block.

    This is the paper's Eq. 3, extended to grouped keys and to free head widths.

    A flash attention that is causal does half of the score work; without it the full square is
    computed.

    Examples
    --------
    A GPT block (``a`` heads of ``h / a``, ``f = 4 h``) without flash attention sums to ``24 s h^2
    + 4 s^2 h``.
    """
    shape, s = workload.architecture, workload.sequence_length
    h, q, kv, f = shape.hidden, shape.query_width, shape.key_width, shape.ffn
    square = (2 if workload.flash_attention else 4) * s * s * q
    matrices_in = 2 if shape.gated else 1
    return (
        Operator("qkv", 2.0 * s * h * (q + 2 * kv), reduced=True),
        Operator("scores", float(square)),
        Operator("attention_out", 2.0 * s * q * h),
        Operator("ffn_in", 2.0 * s * h * f * matrices_in, reduced=True),
        Operator("ffn_out", 2.0 * s * f * h),
    )


def head_operator(workload: Workload) -> Operator:
    """Output head: hidden states to logits."""
    shape = workload.architecture
    return Operator("head", 2.0 * workload.sequence_length * shape.hidden * shape.vocabulary)


def layer_flops(workload: Workload) -> float:
    """Forward FLOP of one block per sequence (F_layer)."""
    return sum(operator.flops for operator in layer_operators(workload))


def model_flops(workload: Workload) -> float:
    """FLOP of one sequence, forward and backward, nothing recomputed (numerator of MFU)."""
    return 3.0 * (
        workload.architecture.layers * layer_flops(workload) + head_operator(workload).flops
    )


def matmul_seconds(problem: Problem, flops: Float, micro_batch: Int, tp: Int) -> Float:
    """
    Seconds that ``flops`` per sequence, sharded over the tensor group, take for one micro-batch.

    Returns ``flops * b * rho / (t P)``; linear in ``b`` with a positive intercept.
    """
    workload = problem.workload
    peak = problem.cluster.accelerator.peak[workload.precision]
    multiplier = rho(
        problem.calibration, micro_batch, workload.sequence_length, workload.architecture.hidden, tp
    )
    return flops * micro_batch * multiplier / (tp * float(peak))


def layer_seconds(problem: Problem, micro_batch: Int, tp: Int, recomputed: Bool) -> Float:
    """Forward and backward of one block for one micro-batch; forward twice if recomputed."""
    passes = where(recomputed, 4.0, 3.0)
    return matmul_seconds(problem, passes * layer_flops(problem.workload), micro_batch, tp)


def weight_gradient_seconds(problem: Problem, micro_batch: Int, tp: Int) -> tuple[Float, ...]:
    """Seconds of the weight gradients that can hide an all-reduce: attention's, the FFN's."""
    return tuple(
        matmul_seconds(problem, operator.flops, micro_batch, tp)
        for operator in layer_operators(problem.workload)
        if operator.reduced
    )


def head_seconds(problem: Problem, micro_batch: Int, tp: Int) -> Float:
    """Output head and, in canonical prices, the loss: forward and backward for one micro-batch."""
    workload = problem.workload
    seconds = matmul_seconds(problem, 3.0 * head_operator(workload).flops, micro_batch, tp)
    if problem.prices == "paper":
        return seconds
    logits = workload.sequence_length * workload.architecture.vocabulary * micro_batch / tp
    return seconds + stream_seconds(problem, LOSS_BYTES_PER_LOGIT * logits)


def embedding_seconds(problem: Problem, micro_batch: Int) -> Float:
    """Input embedding, forward and backward for one micro-batch; the paper has no such term."""
    workload = problem.workload
    if problem.prices == "paper":
        return 0.0
    row = workload.architecture.hidden * ELEMENT_BYTES[workload.precision]
    return stream_seconds(problem, EMBEDDING_PASSES * row * workload.sequence_length * micro_batch)


def stream_seconds(problem: Problem, moved_bytes: Float) -> Float:
    """Seconds to move bytes through the device's memory."""
    rate = problem.cluster.accelerator.hbm_bandwidth * problem.calibration.hbm_efficiency
    return moved_bytes / rate
