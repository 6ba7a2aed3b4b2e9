"""Arithmetic of a block, the head and the embedding: operators, their work, and their seconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from optplan.models.cost.arrays import Float, Int
from optplan.models.cost.tiles import alignment, tile_loss
from optplan.models.cost.utilization import rho
from optplan.models.spec.problem import Problem
from optplan.models.spec.workload import Workload

ELEMENT_BYTES = {"bf16": 2, "fp16": 2, "fp32": 4, "fp8": 2}
"""Bytes of one activation or weight, per number format."""

CORE_COLUMNS = 8
"""Columns of 16-bit numbers that matrix units work on at least (NVIDIA, Matrix Multiplication
Background User's Guide, section 4.1: multiples of 16 bytes)."""

WITHOUT_MATRIX_UNITS = 4.0
"""
Peak in 16 bits with matrix units over that without: 312 to 78 TFLOP/s (NVIDIA A100 data sheet);
125 to 31 on V100.
"""

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
    deep, wide
        Columns of its input and output, all shards together; 0 where it is no product of whole
        matrices.
    split
        Which of both the tensor group divides; empty for neither.
    """

    name: str
    flops: float
    weighted: bool = True
    reduced: bool = False
    routed: bool = False
    deep: int = 0
    wide: int = 0
    split: Literal["", "deep", "wide"] = ""


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
            _product("ffn_in", s, h, shape.ffn * into, "wide", reduced=True),
            _product("ffn_out", s, shape.ffn, h, "deep"),
        )
    routed = s * experts.per_token
    shared: tuple[Operator, ...] = ()
    if experts.shared_ffn:
        shared = (
            _product("shared_in", s, h, experts.shared_ffn * into, "wide", reduced=True),
            _product("shared_out", s, experts.shared_ffn, h, "deep"),
        )
    return (
        *attention,
        _product("router", s, h, experts.count),
        *shared,
        _product("experts_in", routed, h, experts.ffn * into, "wide", routed=True),
        _product("experts_out", routed, experts.ffn, h, "deep", routed=True),
    )


def _product(
    name: str,
    rows: float,
    deep: int,
    wide: int,
    split: Literal["", "deep", "wide"] = "",
    reduced: bool = False,
    routed: bool = False,
) -> Operator:
    """One product of ``rows`` by ``deep`` with weights of ``deep`` by ``wide``."""
    flops = 2.0 * rows * deep * wide
    return Operator(name, flops, True, reduced, routed, deep, wide, split)


def _projections(workload: Workload) -> tuple[Operator, ...]:
    """Matrix products around the scores."""
    shape, s = workload.architecture, workload.sequence_length
    h = shape.hidden
    if not shape.latent:
        q, kv = shape.query_width, shape.key_width
        return (
            _product("qkv", s, h, q + 2 * kv, "wide", reduced=True),
            _product("attention_out", s, q, h, "deep"),
        )
    latent, heads = shape.latent, shape.heads
    queries = heads * (latent.nope + latent.rope)
    keys = heads * (latent.nope + latent.value)
    return (
        _product("latent_down", s, h, latent.kv_rank + latent.rope + latent.q_rank),
        _product("latent_keys", s, latent.kv_rank, keys, "wide", reduced=True),
        _product("latent_queries", s, latent.q_rank or h, queries, "wide"),
        _product("attention_out", s, heads * latent.value, h, "deep"),
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
    return _product("head", workload.sequence_length, shape.hidden, shape.vocabulary, "wide")


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


@dataclass(frozen=True)
class Passes:
    """Seconds of something for one micro-batch: forward, gradient of its input, of its weights."""

    forward: Float = 0.0
    back: Float = 0.0
    weight: Float = 0.0

    def __add__(self, other: Passes) -> Passes:
        """Add pass by pass."""
        return Passes(
            self.forward + other.forward, self.back + other.back, self.weight + other.weight
        )

    @property
    def total(self) -> Float:
        """All three."""
        return self.forward + self.back + self.weight


def matmul_seconds(
    problem: Problem, flops: Float, micro_batch: Float, tp: Int, cp: Int = 1, narrow: bool = False
) -> Float:
    """
    Seconds that ``flops`` per sequence, split over tensor and context group, take a micro-batch.

    Returns ``flops * b * rho / (t c P)``; linear in ``b`` with a positive intercept.

    Parameters
    ----------
    narrow
        Whether its matrices are in FP8 where the precision is.
    """
    workload = problem.workload
    width = workload.architecture.hidden
    multiplier = _rho(problem, micro_batch, workload.sequence_length / cp, width, tp, narrow)
    return flops * micro_batch * multiplier / (tp * cp * _peak(problem, narrow))


def _peak(problem: Problem, narrow: bool) -> float:
    """Peak that a matrix product runs against; what is not narrow runs in 16 bits under FP8."""
    peak, precision = problem.cluster.accelerator.peak, problem.workload.precision
    return float(peak["bf16"] if precision == "fp8" and not narrow else peak[precision])


def _rho(
    problem: Problem, micro_batch: Float, sequence: Float, width: int, tp: Int, narrow: bool
) -> Float:
    """Time multiplier of a matrix product, of FP8 where its matrices are."""
    calibration = problem.calibration
    lump = calibration.lump if problem.prices == "paper" else None
    found = rho(lump or calibration, micro_batch, sequence, width, tp)
    own = calibration.utilization_fp8
    if narrow and problem.workload.precision == "fp8" and own is not None and lump is None:
        return found * (calibration.utilization_peak / own)
    return found


def operator_seconds(
    problem: Problem, operator: Operator, micro_batch: Float, degrees: tuple[Int, Int, Int, Int]
) -> Passes:
    """
    Price one matrix product of a block on one device for one micro-batch.

    Parameters
    ----------
    degrees
        ``tp, cp, ep, etp``.

    Returns
    -------
    Passes
        The backward pass multiplies the gradient of the output with the weights, and where they
        are trained with the input: as much work in products of other shapes.
    """
    tp, cp, ep, etp = degrees
    workload = problem.workload
    flops = _work(problem, operator)
    if operator.routed:
        base = expert_seconds(problem, flops, micro_batch, degrees)
        experts = workload.architecture.experts
        assert experts is not None
        share = experts.per_token * ep * etp / (tp * cp * experts.count)
        count, ways = -(-experts.count // ep), etp
    else:
        base = matmul_seconds(problem, flops, micro_batch, tp, cp, operator.wide > 0)
        share, count, ways = 1.0 / cp, 1, tp
    train = operator.weighted and not workload.lora
    if not operator.wide:
        return Passes(base, base, base if train else 0.0 * base)
    rows = np.maximum(1.0, micro_batch * workload.sequence_length * share)
    deep = operator.deep / (ways if operator.split == "deep" else 1)
    wide = operator.wide / (ways if operator.split == "wide" else 1)
    base = base * (1.0 + alignment(problem, deep) + alignment(problem, wide))
    weight = base * tile_loss(problem, wide, deep, count) if train else 0.0 * base
    return Passes(
        base * tile_loss(problem, rows, wide, count),
        base * tile_loss(problem, rows, deep, count),
        weight,
    )


def _work(problem: Problem, operator: Operator) -> float:
    """FLOP of an operator; those of attention's core count as many as take its time."""
    if operator.name != "scores" or problem.prices == "paper":
        return operator.flops
    if problem.workload.flash_attention:
        return operator.flops * problem.calibration.attention_loss
    odd = problem.workload.architecture.head_width % CORE_COLUMNS
    if odd and problem.cluster.accelerator.units is not None:
        return operator.flops * WITHOUT_MATRIX_UNITS
    return operator.flops


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
    tokens = workload.sequence_length * experts.per_token * ep * etp / (tp * cp * experts.count)
    width = min(workload.architecture.hidden, experts.ffn)
    multiplier = _rho(problem, micro_batch, tokens, width, etp, True)
    load = workload.expert_load
    return flops * load * micro_batch * multiplier / (tp * cp * _peak(problem, True))


def head_seconds(problem: Problem, micro_batch: Float, tp: Int, cp: Int = 1) -> Float:
    """Output head and, in canonical prices, the loss: forward and backward for one micro-batch."""
    workload = problem.workload
    passes = 2.0 if workload.lora else 3.0
    flops = passes * head_operator(workload).flops
    seconds = matmul_seconds(problem, flops, micro_batch, tp, cp)
    if problem.prices == "paper":
        return seconds
    shape = workload.architecture
    rows = np.maximum(1.0, micro_batch * workload.sequence_length / cp)
    seconds = seconds * tile_loss(problem, rows, shape.vocabulary / tp)
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
