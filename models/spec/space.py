"""What may be chosen, what is fixed, and the user's own limits."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Discriminator, Field, Strict, Tag, model_validator

from optplan.models.record import Count, Flag, Record

Recompute = Literal["none", "full"]

RECOMPUTES: tuple[Recompute, ...] = ("none", "full")
"""Recomputation, in the order of its code in the program."""

ZEROS = (0, 1)
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


def _kind(value: object) -> str:
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
    Discriminator(_kind),
]
"""One value, a list of values, or a range ``{min, max, multiple_of}``."""

Flags = Annotated[
    Annotated[Flag, Tag("value")]
    | Annotated[Annotated[tuple[Flag, ...], Field(min_length=1, max_length=2)], Tag("list")],
    Discriminator(_kind),
]
Recomputes = Annotated[
    Annotated[Recompute, Tag("value")]
    | Annotated[Annotated[tuple[Recompute, ...], Field(min_length=1, max_length=2)], Tag("list")],
    Discriminator(_kind),
]
Zero = Annotated[int, Strict(), Field(ge=0, le=1)]
Zeros = Annotated[
    Annotated[Zero, Tag("value")]
    | Annotated[Annotated[tuple[Zero, ...], Field(min_length=1, max_length=2)], Tag("list")],
    Discriminator(_kind),
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
    sequence_parallel: Flags | None = None
    """Split norms and residuals along the sequence inside the tensor group."""
    recompute: Recomputes | None = None
    """What the backward pass computes again instead of keeping."""
    zero: Zeros | None = None
    """ZeRO stage: 0 keeps the whole optimizer state on every rank, 1 shards it over data ranks."""


def _as_text(rule: object) -> object:
    """Take a condition built in Python (``choice("tp") <= 8``) by its text."""
    return str(rule) if hasattr(rule, "node") else rule


class Limit(Record):
    """A constraint the user adds; it becomes a rule ``limits.<name>``."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_.-]*$", max_length=80)]
    """The rule's name in every print."""
    rule: Annotated[str, Strict(), Field(min_length=1, max_length=1000), BeforeValidator(_as_text)]
    """A condition such as ``pp * tp <= 32`` or ``peak_memory <= 72 GB``."""
