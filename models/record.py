"""The frozen, strict base of every input and output record."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, Strict

LARGEST_COUNT = 2**31 - 1
"""No count in a spec may exceed this; products of two still fit in 64 bits."""

Count = Annotated[int, Strict(), Field(ge=1, le=LARGEST_COUNT)]
"""A whole number, at least 1; ``true``, ``2.0`` and ``"2"`` are refused."""

Whole = Annotated[int, Strict(), Field(ge=0, le=LARGEST_COUNT)]
"""A whole number, at least 0."""

Flag = Annotated[bool, Strict()]
"""``true`` or ``false`` and nothing that merely looks like it."""

ONE_LINE = r"^[^\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]*$"
"""No line breaks, no sequences for a terminal, nothing that turns the direction of writing."""

Text = Annotated[str, Strict(), Field(min_length=1, max_length=200, pattern=ONE_LINE)]
"""A short text on one line."""

Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
"""A fraction between 0 and 1."""


class Record(BaseModel):
    """A frozen record that refuses unknown keys and documents each field by its docstring."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        use_attribute_docstrings=True,
        allow_inf_nan=False,
    )
