"""Seconds that the user's own reckoning adds to every step."""

from __future__ import annotations

from optplan.models.record import Record
from optplan.models.spec.space import OwnName, OwnText


class Surcharge(Record):
    """A price of the user's own, once a step; it becomes a table ``surcharges.<name>``."""

    name: OwnName
    """Its name in the program."""
    seconds: OwnText
    """A time such as ``40 ms`` or ``2 us * dp * tp``, of choices that are numbers."""
