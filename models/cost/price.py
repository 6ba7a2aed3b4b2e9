"""What a plan costs: terms of its step, memory of its stages."""

from __future__ import annotations

from pydantic import Field

from optplan.models.record import Record

TERMS = {
    "TF": "arithmetic of the slowest stage, forward and backward",
    "TCT": "tensor-parallel all-reduces",
    "TAT": "additions inside them",
    "TCC": "exchange of context parallelism",
    "TCE": "exchange of experts",
    "TL": "waiting for the host to launch what layers are too small to hide",
    "TO": "communication hidden behind arithmetic (subtracted)",
    "TCD": "data-parallel collectives, as far as exposed",
    "TAD": "additions inside them",
    "TB": "pipeline bubble",
    "TCP": "transfers between stages",
    "T_opt": "optimizer step",
    "T_own": "surcharges of the spec",
}
"""
Terms of the step time, in the order of Eq. 1 of arXiv 2501.00254; it lacks TCC, TCE, TL, T_opt and
T_own.
"""

NEW_TERMS = ("TCC", "TCE", "TL", "T_own")
"""Terms beyond Eq. 1 that people are shown only where they are something."""

PARTS = ("parameters", "gradients", "optimizer", "activations", "working", "reserve")
"""Parts of a stage's memory, in the order they print."""

PHASES = ("start", "forward", "backward", "step")
"""
Moments at which a device may be fullest: before the first micro-batch, at the end of the forward
passes it holds, in a backward pass with logits or with a block computed again, and in the
optimizer's step, when no activation is held.
"""


class StageUse(Record):
    """Memory and time of one stage."""

    stage: int
    """Number of the stage, from 0."""
    layers: int
    """Blocks it holds."""
    recomputed: int = 0
    """Blocks of them that it computes again in the backward pass."""
    peak_bytes: int
    """Bytes on each of its devices at the worst moment, reserve included."""
    parts: dict[str, int]
    """Bytes by part."""
    phases: dict[str, int]
    """Bytes allocated by phase, reserve left out."""
    in_flight: int
    """Micro-batches whose activations it holds at once, counted chunk by chunk."""
    micro_batch_seconds: float
    """Forward and backward of one micro-batch."""


class Memory(Record):
    """Memory of a plan."""

    peak_bytes: int
    """Of the fullest stage."""
    allocated_bytes: int
    """Of the stage that allocates most, at its worst phase, reserve left out."""
    capacity_bytes: int
    """Of one device."""
    risk: float | None = None
    """Probability that the fullest device runs out of memory, were the error of what is counted
    normal with the calibration's mean; none where that is unknown."""
    binding_stage: int
    """Number of the fullest stage."""
    stages: tuple[StageUse, ...]
    """Every stage, first to last."""

    @property
    def fits(self) -> bool:
        """Whether a device holds the worst phase beside the reserve."""
        return self.allocated_bytes + self.stages[0].parts["reserve"] <= self.capacity_bytes


class Estimate(Record):
    """What a plan costs under the cost model."""

    step_seconds: float
    """One optimizer step."""
    tokens_per_second_per_device: float
    """Throughput, over all devices of the cluster."""
    mfu: float
    """Model FLOP (nothing recomputed; flash attention counts half the square) over peak FLOP."""
    terms: dict[str, float] = Field(
        description="Seconds by term; TO is subtracted, all others add up."
    )
    late_seconds: float = 0.0
    """Part of the bubble that only very uneven stages have, and that a search does not price."""
    memory: Memory
    """Bytes by stage."""
