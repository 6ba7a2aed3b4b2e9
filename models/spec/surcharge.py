"""Seconds that the user's own reckoning adds to every step."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Field, Strict

from optplan.models.record import Record


def _as_text(seconds: object) -> object:
    """Take a term built in Python (``0.2 * choice("dp")``) by its text."""
    return str(seconds) if hasattr(seconds, "node") else seconds


class Surcharge(Record):
    """A price of the user's own, once a step; it becomes a table ``surcharges.<name>``."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_.-]*$", max_length=80)]
    """Its name in the program."""
    seconds: Annotated[
        str, Strict(), Field(min_length=1, max_length=1000), BeforeValidator(_as_text)
    ]
    """A time such as ``40 ms`` or ``2 us * dp * tp``, of choices that are numbers."""
