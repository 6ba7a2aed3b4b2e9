"""What may be chosen, what is fixed, and the user's own limits."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Discriminator, Field, Strict, Tag, model_validator

from optplan.models.record import Count, Flag, Record, Whole
from optplan.models.spec.framework import Context, Schedule

Recompute = Literal["none", "selective", "partial", "full"]

RECOMPUTES: tuple[Recompute, ...] = ("none", "selective", "partial", "full")
"""
Recomputation, in the order of its code in the program: nothing, the attention's core, some layers
of each stage, all layers.
"""

Order = Literal["data_inside", "pipeline_inside"]

ORDERS: tuple[Order, ...] = ("data_inside", "pipeline_inside")
"""
Which degree lies closer to the links of a node, after tensor and context ranks; Megatron-LM's
usual order tp-cp-ep-dp-pp is the first, its ``--use-tp-pp-dp-mapping`` the second.
"""

ZEROS = (0, 1, 2, 3)
"""ZeRO stages that may be chosen."""


class Span(Record):
    """All whole numbers from ``min`` to ``max`` that ``multiple_of`` divides."""

    min: Count = 1
    """Smallest value, itself allowed."""
    max: Count | None = None
    """Largest value, itself allowed; left out: as far as the problem allows."""
    multiple_of: Count = 1
    """Only multiples of this."""

    @model_validator(mode="after")
    def _holds_a_value(self) -> Span:
        if self.max is not None and self.max // self.multiple_of * self.multiple_of < self.min:
            raise ValueError(
                f"no multiple of {self.multiple_of} lies between {self.min} and {self.max}; "
                "widen the range"
            )
        return self


def kind_of_value(value: object) -> str:
    """Tell the three ways of writing a domain apart."""
    if isinstance(value, dict | Span):
        return "range"
    if isinstance(value, list | tuple):
        return "list"
    return "value"


Values = Annotated[
    Annotated[Count, Tag("value")]
    | Annotated[Annotated[tuple[Count, ...], Field(min_length=1, max_length=100_000)], Tag("list")]
    | Annotated[Span, Tag("range")],
    Discriminator(kind_of_value),
]
"""One value, a list of values, or a range ``{min, max, multiple_of}``."""

Zero = Annotated[int, Strict(), Field(ge=0, le=3)]

Flags = Annotated[
    Annotated[Flag, Tag("value")]
    | Annotated[Annotated[tuple[Flag, ...], Field(min_length=1, max_length=2)], Tag("list")],
    Discriminator(kind_of_value),
]
Recomputes = Annotated[
    Annotated[Recompute, Tag("value")]
    | Annotated[Annotated[tuple[Recompute, ...], Field(min_length=1, max_length=4)], Tag("list")],
    Discriminator(kind_of_value),
]
Zeros = Annotated[
    Annotated[Zero, Tag("value")]
    | Annotated[Annotated[tuple[Zero, ...], Field(min_length=1, max_length=4)], Tag("list")],
    Discriminator(kind_of_value),
]
Schedules = Annotated[
    Annotated[Schedule, Tag("value")]
    | Annotated[Annotated[tuple[Schedule, ...], Field(min_length=1, max_length=6)], Tag("list")],
    Discriminator(kind_of_value),
]
Contexts = Annotated[
    Annotated[Context, Tag("value")]
    | Annotated[Annotated[tuple[Context, ...], Field(min_length=1, max_length=2)], Tag("list")],
    Discriminator(kind_of_value),
]
Orders = Annotated[
    Annotated[Order, Tag("value")]
    | Annotated[Annotated[tuple[Order, ...], Field(min_length=1, max_length=2)], Tag("list")],
    Discriminator(kind_of_value),
]
PerStage = Annotated[
    Annotated[Literal["any", "even"], Tag("value")]
    | Annotated[Annotated[tuple[Whole, ...], Field(min_length=1, max_length=4096)], Tag("list")],
    Discriminator(kind_of_value),
]


class Search(Record):
    """What may be chosen; a single value fixes it, leaving it out allows everything legal."""

    global_batch: Values
    """Sequences per optimizer step."""
    micro_batch: Values | None = None
    """Sequences per micro-batch and data-parallel rank."""
    micro_batches: Values | None = None
    """Micro-batches per step and data-parallel rank."""
    tp: Values | None = None
    """Tensor-parallel degree."""
    pp: Values | None = None
    """Pipeline-parallel degree."""
    dp: Values | None = None
    """Data-parallel degree."""
    cp: Values | None = None
    """Context-parallel degree."""
    ep: Values | None = None
    """Expert-parallel degree."""
    etp: Values | None = None
    """Tensor-parallel degree of the experts."""
    vpp: Values | None = None
    """Virtual stages (model chunks) per device."""
    schedule: Schedules | None = None
    """Order of forward and backward passes."""
    sequence_parallel: Flags | None = None
    """Split norms and residuals along the sequence inside the tensor group."""
    recompute: Recomputes | None = None
    """What the backward pass computes again: nothing, the attention's core, some layers, all."""
    zero: Zeros | None = None
    """ZeRO stage: what data ranks share: 0 nothing, 1 optimizer state, 2 gradients, 3 weights."""
    hsdp: Flags | None = None
    """Share only among the data ranks of a node, and keep copies between nodes."""
    context: Contexts | None = None
    """How context parallelism exchanges: keys and values in a ring, or heads (Ulysses)."""
    order: Orders | None = None
    """Which of data and pipeline groups lies closer to the node's links."""
    offload: Flags | None = None
    """Optimizer state and step on the host."""
    layers_per_stage: PerStage = "any"
    """``any`` number per stage, ``even``, or the numbers, first stage to last."""
    idle_devices: Flag = True
    """Devices may be left idle where that is faster."""


def _as_text(said: object) -> object:
    """Take what was built in Python (``choice("tp") <= 8``) by its text."""
    return str(said) if hasattr(said, "node") else said


OwnName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_.-]*$", max_length=80)]
"""What a person calls something of their own."""

OwnText = Annotated[str, Strict(), Field(min_length=1, max_length=1000), BeforeValidator(_as_text)]
"""A text in the language of limits, or what was built in Python for one."""


class Limit(Record):
    """A constraint the user adds; it becomes a rule ``limits.<name>``."""

    name: OwnName
    """The rule's name in every print."""
    rule: OwnText
    """A condition such as ``pp * tp <= 32`` or ``peak_memory <= 72 GB``."""
