"""The layout in the options of Megatron: degrees, batches, stages, overlap, machine."""

from __future__ import annotations

from optplan.launches.megatron_degrees import Degrees
from optplan.launches.megatron_machine import Machine
from optplan.launches.megatron_numbers import Numbers
from optplan.launches.megatron_recompute import Recompute
from optplan.launches.megatron_sharding import Sharding
from optplan.launches.megatron_stages import Stages


class Layout(Machine, Degrees, Stages, Recompute, Sharding, Numbers):
    """Reads a layout, one part after the other; each part may ask what an earlier one read."""

    def read(self) -> None:
        """State everything."""
        self.machine()
        self.degrees()
        self.batches()
        self.stages()
        self.recompute()
        self.sharding()
        self.number_format()
        self.surroundings()

    def surroundings(self) -> None:
        """Look at the environment and at what the shell made of the script."""
        for flag, line in self.options.lost:
            self.reading.remark(
                "shell.cut-off",
                "error",
                f"{flag} and what follows is a command of its own: the line before it ends without "
                "a backslash, or with a comment or a blank behind it",
                "end the line before with a backslash and nothing behind it",
                line,
            )
        for word in self.options.loose:
            self.reading.remark(
                "launch.unknown",
                "note",
                f"{word.text} may hold more options, and nobody sets it",
                "give it, as in --set NAME='--option 1'",
                word.line,
            )
