"""Bytes of one device: what blocks and ends hold, part by part."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from optplan.models.cost.arrays import Int, ceil_div, where_int
from optplan.models.cost.compute import ELEMENT_BYTES
from optplan.models.cost.optimizers import BLOCK, state_bytes
from optplan.models.cost.parameters import (
    adapter_parameters,
    back_parameters,
    expert_parameters,
    front_parameters,
    layer_parameters,
    moe_parameters,
    mtp_expert_parameters,
)
from optplan.models.spec.problem import Problem

FETCHED_LAYERS = 2
"""Layers whose whole weights a rank holds at once under ZeRO-3: the present and the next one."""


@dataclass(frozen=True)
class Counts:
    """
    Parameters on one device that are trained, and those that are frozen.

    ``dense`` are shared among the data ranks, ``experts`` among those of the experts.
    """

    dense: Int
    experts: Int
    frozen_dense: Int = 0
    frozen_experts: Int = 0

    def plus(self, other: Counts, times: int = 1) -> Counts:
        """Add a multiple, count by count."""
        return Counts(
            *(getattr(self, f.name) + times * getattr(other, f.name) for f in fields(self))
        )


def block_counts(problem: Problem, tp: Int, ep: Int, etp: Int, moe: bool) -> Counts:
    """Parameters of one block on one device."""
    shape = problem.workload.architecture
    if moe and shape.experts:
        dense, experts = moe_parameters(shape, tp), expert_parameters(shape, ep, etp)
    else:
        dense, experts = layer_parameters(shape, tp), 0
    if problem.workload.lora:
        return Counts(adapter_parameters(problem.workload, tp), 0, dense, experts)
    return Counts(dense, experts)


def front_counts(problem: Problem, tp: Int, ep: Int, etp: Int) -> Counts:
    """Parameters of the first stage besides its blocks; leading dense blocks as a difference."""
    shape = problem.workload.architecture
    table = front_parameters(shape, tp)
    ends = Counts(0 * table, 0, table) if problem.workload.lora else Counts(table, 0)
    if shape.experts and shape.experts.leading_dense:
        count = shape.experts.leading_dense
        ends = ends.plus(block_counts(problem, tp, ep, etp, moe=False), count)
        ends = ends.plus(block_counts(problem, tp, ep, etp, moe=True), -count)
    return ends


def back_counts(
    problem: Problem,
    tp: Int,
    ep: Int,
    etp: Int,
    alone: bool | np.ndarray[tuple[int, ...], np.dtype[np.bool_]],
) -> Counts:
    """Parameters of the last stage besides its blocks; ``alone`` where the first is the same."""
    shape = problem.workload.architecture
    dense, experts = back_parameters(shape, tp, alone), mtp_expert_parameters(shape, ep, etp)
    if problem.workload.lora:
        return Counts(0 * dense, 0, dense, experts)
    return Counts(dense, experts)


@dataclass(frozen=True)
class Shards:
    """
    Ranks that share the states of dense parameters and of experts, and the ZeRO stage.

    Parameters
    ----------
    dense, experts
        Ranks, at least 1.
    zero
        0 to 3.
    offload
        1 where the optimizer's state lies in the host's memory.
    """

    dense: Int
    experts: Int
    zero: Int
    offload: Int


@dataclass(frozen=True)
class Held:
    """Bytes of states on one device; each part rounded up for itself."""

    parameters: Int
    gradients: Int
    optimizer: Int
    host: Int

    @property
    def total(self) -> Int:
        """All that lies in the device's memory."""
        return self.parameters + self.gradients + self.optimizer


def states(problem: Problem, counts: Counts, shards: Shards) -> Held:
    """Bytes of weights, gradients and optimizer state of some parameters on one device."""
    unit = state_bytes(problem.workload)

    def share(width: int, from_stage: int, frozen: bool = False, constants: int = 0) -> Int:
        split = shards.zero >= from_stage
        dense = width * (counts.dense + (counts.frozen_dense if frozen else 0))
        experts = width * (counts.experts + (counts.frozen_experts if frozen else 0))
        if constants:
            dense = dense + ceil_div(constants * counts.dense, BLOCK)
            experts = experts + ceil_div(constants * counts.experts, BLOCK)
        return ceil_div(dense, where_int(split, shards.dense, 1)) + ceil_div(
            experts, where_int(split, shards.experts, 1)
        )

    calibration, copies = problem.calibration, problem.calibration.gradient_copies
    optimizer = share(unit.optimizer + calibration.step_bytes, 1, constants=unit.constants)
    away = shards.offload == 1
    weights = share(unit.parameters, 3, frozen=True)
    if calibration.weights_once:
        frozen = share(unit.parameters, 3, frozen=True) - share(unit.parameters, 3)
        weights = where_int(shards.zero >= 3, frozen, weights)
    return Held(
        weights,
        share(unit.gradients + (copies if problem.workload.precision == "bf16" else 0), 2),
        where_int(away, 0 * optimizer, optimizer),
        where_int(away, optimizer, 0 * optimizer),
    )


def fetched_bytes(problem: Problem, block: Counts, zero: Int) -> Int:
    """Whole weights that a rank of ZeRO-3 holds for a moment."""
    width = state_bytes(problem.workload).parameters
    whole = block.dense + block.experts + block.frozen_dense + block.frozen_experts
    return where_int(zero >= 3, FETCHED_LAYERS * width * whole, 0 * whole)


@dataclass(frozen=True)
class Slice:
    """
    What a device's part of the activations depends on, each a number or an array.

    Parameters
    ----------
    tp, cp, micro_batch
        Degrees, and sequences.
    sequence_parallel
        1 where norms and residuals are split over the tensor group.
    selective
        True where the attention's core is computed again.
    """

    tp: Int
    cp: Int
    micro_batch: Int
    sequence_parallel: Int
    selective: bool | np.ndarray[tuple[int, ...], np.dtype[np.bool_]] = False


def block_activations(problem: Problem, at: Slice, moe: bool) -> Int:
    """
    Bytes that one block keeps of one micro-batch for its backward pass when nothing is recomputed.

    Inputs of both norms and of both column-parallel layers, ``8 s b h``, lie on every tensor rank
    unless sequence parallelism divides them; queries, keys, values, the attention's output and the
    feed-forward's inner values are divided. Dropout adds a byte per masked element. For a GPT
    block this is ``s b h (10 + 24/t)`` and, sequence parallel, ``34 s b h / t``, plus ``5 a s^2 b
    / t`` without flash attention (Korthikanti et al. 2023, arXiv 2205.05198, section 4.1 and Table
    2). The busiest expert rank keeps input, inner values and output of each token it was sent.
    Context ranks divide all of it.
    """
    workload = problem.workload
    shape, s = workload.architecture, workload.sequence_length
    width = ELEMENT_BYTES[workload.precision]
    shared = s * shape.hidden * (4 * width + (2 if shape.dropout else 0))
    inner = 3 if shape.gated else 2
    columns = _attention_columns(problem)
    if moe and shape.experts:
        experts = shape.experts
        columns += inner * experts.shared_ffn
        each = 2 * shape.hidden + inner * experts.ffn
        columns += -int(-experts.per_token * workload.expert_load * each // 1)
    else:
        columns += inner * shape.ffn
    divided: Int = s * width * columns
    if not workload.flash_attention:
        square = (2 * width + 1) if shape.dropout else width
        divided = divided + where_int(at.selective, 0, s * s * shape.heads * square)
    # Rounded per sequence, so that memory is exactly proportional to the micro-batch.
    return at.micro_batch * (_spread(shared, at) + ceil_div(divided, at.tp * at.cp))


def _attention_columns(problem: Problem) -> int:
    """Columns that attention keeps per token: queries, keys, values and its output."""
    shape = problem.workload.architecture
    if not shape.latent:
        return 2 * shape.query_width + 2 * shape.key_width
    latent = shape.latent
    heads = shape.heads * (2 * (latent.nope + latent.rope) + 2 * latent.value)
    return heads + latent.q_rank + latent.kv_rank + latent.rope


def block_input(problem: Problem, at: Slice) -> Int:
    """Bytes of one block's input, all that full recomputation keeps of it."""
    workload = problem.workload
    width = ELEMENT_BYTES[workload.precision]
    whole = workload.sequence_length * workload.architecture.hidden * width
    return at.micro_batch * _spread(whole, at)


def _spread(whole: int, at: Slice) -> Int:
    """Bytes of a sequence on one rank: its context share, divided under sequence parallelism."""
    return ceil_div(whole, at.cp * where_int(at.sequence_parallel == 1, at.tp, 1))


def front_activations(problem: Problem, at: Slice) -> Int:
    """Bytes that leading dense blocks keep beyond what blocks with experts would."""
    experts = problem.workload.architecture.experts
    none: Int = 0 * at.micro_batch
    if not (experts and experts.leading_dense):
        return none
    dense, sparse = block_activations(problem, at, False), block_activations(problem, at, True)
    more = dense - sparse
    return experts.leading_dense * where_int(more > 0, more, none)


def back_activations(problem: Problem, at: Slice) -> Int:
    """Bytes that multi-token prediction keeps of one micro-batch."""
    shape = problem.workload.architecture
    if not shape.mtp:
        return 0 * at.micro_batch
    return shape.mtp * (
        block_activations(problem, at, shape.experts is not None) + 2 * block_input(problem, at)
    )


def inside_bytes(problem: Problem, at: Slice) -> Int:
    """Bytes a stage needs for a moment while it computes one block again."""
    moe = problem.workload.architecture.experts is not None
    return block_activations(problem, at, moe) - block_input(problem, at)


def logits_bytes(problem: Problem, at: Slice) -> Int:
    """Bytes of the logits of one micro-batch, on the last stage for a moment."""
    workload = problem.workload
    row = (
        workload.sequence_length
        * workload.architecture.vocabulary
        * problem.calibration.logit_bytes
    )
    return at.micro_batch * ceil_div(row, at.tp * at.cp)
