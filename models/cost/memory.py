"""Bytes of one device: what each stage holds, part by part."""

from __future__ import annotations

from dataclasses import dataclass

from optplan.models.cost.arrays import Bool, Int, ceil_div, where_int
from optplan.models.cost.compute import ELEMENT_BYTES
from optplan.models.cost.parameters import stage_parameters
from optplan.models.spec.problem import Problem


@dataclass(frozen=True)
class StateBytes:
    """
    Bytes per parameter of mixed-precision Adam.

    Parameters
    ----------
    parameters
        The copy that forward and backward read.
    gradients
        What is accumulated over micro-batches and reduced over data ranks.
    optimizer
        Master copy and both moments (and, for fp16, the fp32 gradient); divided over data ranks by
        ZeRO-1.
    """

    parameters: int
    gradients: int
    optimizer: int


STATES = {"bf16": StateBytes(2, 4, 12), "fp16": StateBytes(2, 2, 16), "fp32": StateBytes(4, 4, 8)}
"""
Per number format. bf16: Megatron-LM's 18 bytes, 6 + 12/d with a distributed optimizer
(``report_theoretical_memory``); fp16: 2 + 2 + 16 = 20 as in MindSpeed's memory model and ZeRO
(arXiv 1910.02054,
section 3.1, plus an fp32 gradient); fp32: weight, gradient and two moments.
"""

LOGIT_BYTES = 6
"""Bytes per logit alive at once on the last stage: 16-bit value and the loss's fp32 copy."""


@dataclass(frozen=True)
class StageMemory:
    """
    Bytes on one device of one stage, by part; whole numbers, each rounded up.

    ``activations`` are those of all micro-batches in flight; ``working`` lives only for a moment:
    the logits of the last stage, or the inner activations of the one block that is being
    recomputed.
    """

    parameters: Int
    gradients: Int
    optimizer: Int
    activations: Int
    working: Int
    reserve: int

    @property
    def states(self) -> Int:
        """Parameters, gradients and optimizer together."""
        return self.parameters + self.gradients + self.optimizer

    @property
    def peak(self) -> Int:
        """Everything together."""
        return self.states + self.activations + self.working + self.reserve


def states(
    problem: Problem, layers: Int, first: Bool, last: Bool, tp: Int, dp: Int, zero: Int
) -> tuple[Int, Int, Int]:
    """Bytes of parameters, gradients and optimizer state on one device of a stage."""
    unit = STATES[problem.workload.precision]
    count = stage_parameters(problem.workload.architecture, layers, first, last, tp)
    shards = where_int(zero >= 1, dp, 1)
    return count * unit.parameters, count * unit.gradients, ceil_div(count * unit.optimizer, shards)


def layer_activations(problem: Problem, micro_batch: Int, tp: Int, sequence_parallel: Int) -> Int:
    """
    Bytes that one block keeps of one micro-batch for its backward pass when nothing is recomputed.

    Inputs of both norms and of both column-parallel layers, ``8 s b h``, lie on every tensor rank
    unless sequence parallelism divides them; queries, keys, values, the attention's output and the
    feed-forward's inner values are divided. Dropout adds a byte per masked element. For a GPT
    block this is ``s b h (10 + 24/t)`` and, sequence parallel, ``34 s b h / t``, plus ``5 a s^2 b
    / t`` without flash attention (Korthikanti et al. 2023, arXiv 2205.05198, section 4.1 and Table
    2).
    """
    workload = problem.workload
    shape, s = workload.architecture, workload.sequence_length
    width = ELEMENT_BYTES[workload.precision]
    shared = s * shape.hidden * (4 * width + (2 if shape.dropout else 0))
    inner = 3 if shape.gated else 2
    divided = s * width * (2 * shape.query_width + 2 * shape.key_width + inner * shape.ffn)
    if not workload.flash_attention:
        square = (2 * width + 1) if shape.dropout else width
        divided += s * s * shape.heads * square
    # Rounded per sequence, so that memory is exactly proportional to the micro-batch.
    return micro_batch * (_sequence_shard(shared, tp, sequence_parallel) + ceil_div(divided, tp))


def block_input(problem: Problem, micro_batch: Int, tp: Int, sequence_parallel: Int) -> Int:
    """Bytes of one block's input, all that full recomputation keeps of it."""
    workload = problem.workload
    width = ELEMENT_BYTES[workload.precision]
    whole = workload.sequence_length * workload.architecture.hidden * width
    return micro_batch * _sequence_shard(whole, tp, sequence_parallel)


def _sequence_shard(whole: int, tp: Int, sequence_parallel: Int) -> Int:
    """Bytes of a sequence on one tensor rank: all, or its share under sequence parallelism."""
    return ceil_div(whole, where_int(sequence_parallel == 1, tp, 1))


def kept_activations(
    problem: Problem,
    layers: Int,
    recomputed: Int,
    micro_batch: Int,
    tp: Int,
    sequence_parallel: Int,
) -> Int:
    """Bytes a stage keeps of each micro-batch in flight; recomputed blocks keep their input."""
    whole = layer_activations(problem, micro_batch, tp, sequence_parallel)
    return (layers - recomputed) * whole + recomputed * block_input(
        problem, micro_batch, tp, sequence_parallel
    )


def working_bytes(
    problem: Problem, recomputed: Int, last: Bool, micro_batch: Int, tp: Int, sequence_parallel: Int
) -> Int:
    """Bytes a stage needs for a moment: a recomputed block's inside or the logits, the larger."""
    workload = problem.workload
    inside = layer_activations(problem, micro_batch, tp, sequence_parallel) - block_input(
        problem, micro_batch, tp, sequence_parallel
    )
    row = workload.sequence_length * workload.architecture.vocabulary * LOGIT_BYTES
    logits = micro_batch * ceil_div(row, tp)
    again, output = where_int(recomputed > 0, inside), where_int(last, logits)
    return where_int(again > output, again, output)


def in_flight(pp: Int, micro_batches: Int, stage: Int = 0) -> Int:
    """Micro-batches a stage holds at once under 1F1B: ``min(p - stage, m)`` (paper, Eq. 18)."""
    ahead = pp - stage
    return where_int(micro_batches < ahead, micro_batches, ahead)
