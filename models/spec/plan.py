"""One answer in plain values."""

from __future__ import annotations

from pydantic import model_validator

from optplan.models.record import Count, Flag, Record, Whole
from optplan.models.spec.framework import Context, Schedule
from optplan.models.spec.space import Order, Recompute, Zero


class Plan(Record):
    """A layout of one training job, complete enough to launch it."""

    tp: Count
    """Tensor-parallel degree."""
    pp: Count
    """Pipeline-parallel degree."""
    dp: Count
    """Data-parallel degree."""
    cp: Count = 1
    """Context-parallel degree."""
    ep: Count = 1
    """Expert-parallel degree."""
    etp: Count = 1
    """Tensor-parallel degree of the experts."""
    micro_batch: Count
    """Sequences per micro-batch and data-parallel rank."""
    micro_batches: Count
    """Micro-batches per step and data-parallel rank."""
    global_batch: Count
    """Sequences per optimizer step."""
    vpp: Count = 1
    """Virtual stages per device."""
    schedule: Schedule = "1f1b"
    """Order of forward and backward passes."""
    sequence_parallel: Flag = False
    """Norms and residuals split along the sequence inside the tensor group."""
    zero: Zero = 0
    """ZeRO stage."""
    hsdp: Flag = False
    """Sharding among the data ranks of a node only."""
    context: Context = "ring"
    """How context parallelism exchanges; without meaning at cp 1."""
    order: Order = "data_inside"
    """Which of data and pipeline groups lies closer to the node's links."""
    offload: Flag = False
    """Optimizer state and step on the host."""
    recompute: Recompute = "none"
    """What the backward pass computes again; how many layers is in the counts below."""
    layers_per_stage: tuple[Whole, ...]
    """Transformer blocks of each stage, first to last; length ``pp``."""
    recomputed_layers_per_stage: tuple[Whole, ...]
    """Blocks of each stage that are recomputed; length ``pp``."""

    @model_validator(mode="after")
    def _consistent(self) -> Plan:
        if not len(self.layers_per_stage) == len(self.recomputed_layers_per_stage) == self.pp:
            raise ValueError(f"layers per stage must be given for each of pp {self.pp} stages")
        pairs = zip(self.recomputed_layers_per_stage, self.layers_per_stage, strict=True)
        if any(again > held for again, held in pairs):
            raise ValueError("a stage recomputes more layers than it holds")
        return self

    @property
    def devices(self) -> int:
        """Devices that the layout occupies."""
        return self.tp * self.pp * self.dp * self.cp
