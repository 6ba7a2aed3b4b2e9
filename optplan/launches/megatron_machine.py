"""Nodes and devices of a launch of Megatron's, as torchrun, srun or a log has them."""

from __future__ import annotations

from optplan.launches.megatron_options import Given
from optplan.launches.megatron_state import State
from optplan.launches.reading import MOST

_PER_NODE = ("nproc_per_node", "gpus_per_node", "ntasks_per_node")


class Machine(State):
    """Reads the machine."""

    def machine(self) -> None:
        """State nodes and devices of a node, as torchrun, srun or a log has them."""
        reading, started = self.reading, self.options.launcher
        each = next((started[n] for n in _PER_NODE if n in started), None)
        nodes = next((started[n] for n in ("nnodes", "nodes") if n in started), None)
        reading.used.update((*_PER_NODE, "nnodes", "nodes", "ntasks", "node_rank"))
        world = reading.find("world_size") if self.options.kind == "log" else None
        per = self._machine("devices_per_node", each)
        count = self._machine("nodes", nodes)
        tasks = started.get("ntasks")
        if count is None and per and tasks is not None and _plain(tasks):
            total = int(tasks.words[0].text)
            if total % per == 0:
                count = total // per
                reading.state("nodes", count, tasks, literal=False)
        if nodes is None and tasks is None and each is not None and per:
            # torchrun starts one node unless told otherwise.
            reading.assume("nodes", 1, "no --nnodes: one node")
            count = 1
        self.node = per or 0
        if count and per:
            self.world = count * per
        elif world is not None:
            self.world = reading.whole(world)
            reading.state("devices", self.world, world)
        if each is None and nodes is None and world is None and self.options.has("num_gpus"):
            reading.find("num_gpus")

    def _machine(self, name: str, given: Given | None) -> int | None:
        """State a number of the machine; what nobody sets is left to the caller."""
        if given is None or not given.words:
            return None
        word = given.words[0]
        if word.unknown:
            names = " and ".join(f"${n}" for n in word.unknown)
            self.reading.remark(
                "launch.unknown",
                "note",
                f"{given.flag} depends on {names}, which nobody sets",
                f"give it, as in --set {word.unknown[0]}=8",
                given,
            )
            return None
        if not _plain(given):
            self.reading.remark(
                "launch.unknown",
                "note",
                f"{given.written} is no number",
                "give the number with a spec's cluster",
                given,
            )
            return None
        value = self.reading.whole(given)
        if value is not None and value > MOST[name]:
            self.reading.refuse(given, f"{value} is out of range", "write a smaller number")
            return None
        self.reading.state(name, value, given)
        return value


def _plain(given: Given) -> bool:
    """Tell whether an option's value is a number and nothing else."""
    return bool(given.words) and given.words[0].text.isdigit()
