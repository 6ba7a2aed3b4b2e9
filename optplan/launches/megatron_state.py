"""What reading a layout of Megatron's comes to know on the way."""

from __future__ import annotations

from optplan.launches.reading import Reading

ARGUMENTS = "megatron/training/arguments.py"
"""Where Megatron checks most of what it is given."""


class State:
    """
    A layout as far as it is read.

    Parameters
    ----------
    reading
        Where it is noted.
    """

    def __init__(self, reading: Reading) -> None:
        self.reading = reading
        self.options = reading.options
        self.layers = 0
        self.tp = self.pp = self.cp = self.vpp = 1
        self.world: int | None = None
        self.node = 0
