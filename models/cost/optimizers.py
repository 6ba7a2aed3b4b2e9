"""Bytes per parameter that an optimizer holds and moves, by number format and kind of moments."""

from __future__ import annotations

from dataclasses import dataclass, replace

from optplan.models.spec.workload import Optimizer, Workload


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
    sent
        A weight that data ranks gather.
    stepped
        Of ``optimizer`` what only its step needs, when no activation is held.
    constants
        Bytes besides for every `BLOCK` parameters: the scales of quantized moments.
    """

    parameters: int
    gradients: int
    optimizer: int
    sent: int = 2
    stepped: int = 0
    constants: int = 0


STATES = {
    "bf16": StateBytes(2, 4, 12),
    "fp16": StateBytes(2, 2, 16, stepped=4),
    "fp32": StateBytes(4, 4, 8, sent=4),
    "fp8": StateBytes(4, 4, 12),
}
"""
Per number format. bf16: Megatron-LM's 18 bytes, 6 + 12/d with a distributed optimizer
(``report_theoretical_memory``); fp16: 2 + 2 + 16 = 20 as in MindSpeed's memory model and ZeRO
(arXiv 1910.02054,
section 3.1, plus an fp32 gradient); fp32: weight, gradient and two moments; fp8: as bf16, with an
FP8 copy of each weight and of its transpose (NVIDIA/TransformerEngine#257, #1261).
"""

FULL_MOMENT = 4
"""Bytes of a moment in fp32."""

MOMENTS: dict[Optimizer, int] = {"adam": 4, "adam-bf16-moments": 2, "adam-8bit": 1}
"""
Bytes of each of the two moments. bf16: Megatron-Core's precision-aware optimizer
(``--exp-avg-dtype bf16 --exp-avg-sq-dtype bf16`` of Megatron-LM's training/arguments.py); 8 bits:
block-wise quantization, arXiv 2110.02861, section 2. The master copy stays as it is.
"""

BLOCK = 2048
"""Parameters that share a scale in the 8-bit optimizer (arXiv 2110.02861, section 2.1)."""

SCALE_BYTES = 4
"""Bytes of a scale: the largest absolute value of a block, in fp32."""

UPDATE_BYTES = 40
"""
Bytes that mixed-precision Adam moves per parameter it owns: reads gradient, master copy and two
moments (16), writes master copy and moments (12), reads and zeroes the gradient once more (8),
writes the 16-bit copy (2), rounded up.
"""


def state_bytes(workload: Workload) -> StateBytes:
    """
    Return what a trained parameter of a workload takes.

    Every parameter is counted alike; that the 8-bit optimizer's authors keep the moments of
    embeddings in 32 bits is left out.

    Examples
    --------
    bf16 takes 12 bytes of optimizer state with ``adam``, 8 with ``adam-bf16-moments``, 6 and 8
    bytes for every 2,048 parameters with ``adam-8bit``.
    """
    unit = STATES[workload.precision]
    if workload.optimizer == "adam":
        return unit
    saved = 2 * (FULL_MOMENT - MOMENTS[workload.optimizer])
    scales = 2 * SCALE_BYTES if workload.optimizer == "adam-8bit" else 0
    return replace(unit, optimizer=unit.optimizer - saved, constants=scales)


def update_bytes(workload: Workload) -> int:
    """Return the bytes that a step moves per parameter it owns: moments are read and written."""
    return UPDATE_BYTES - 4 * (FULL_MOMENT - MOMENTS[workload.optimizer])
