"""The machines that a written launch runs on, and how its processes find each other."""

from __future__ import annotations

from dataclasses import dataclass

from optplan.launches.notes import refuse
from optplan.models.errors import Fault
from optplan.models.spec.plan import Plan
from optplan.models.spec.problem import Problem


@dataclass(frozen=True)
class Machines:
    """Nodes and processes a node of a launch."""

    nodes: int
    per_node: int

    @property
    def rendezvous(self) -> str:
        """Lines of a script that say where processes meet."""
        first = "127.0.0.1" if self.nodes == 1 else ""
        address = f":-{first}" if first else ":?address of the first node"
        return (
            f"MASTER_ADDR=${{MASTER_ADDR{address}}}\nMASTER_PORT=${{MASTER_PORT:-29500}}\n"
            f"NNODES={self.nodes}\nDEVICES_PER_NODE={self.per_node}\n"
        )

    @property
    def torchrun(self) -> str:
        """Options of torchrun."""
        return (
            '--nnodes "$NNODES" --nproc_per_node "$DEVICES_PER_NODE" --rdzv_backend c10d '
            '--rdzv_endpoint "$MASTER_ADDR:$MASTER_PORT"'
        )


def machines_of(problem: Problem, plan: Plan, faults: list[Fault]) -> Machines | None:
    """
    Return what a plan runs on; whole nodes that it leaves idle are left out.

    Launchers start equally many processes on every node.
    """
    nodes, node = problem.cluster.nodes, problem.cluster.devices_per_node
    used = plan.devices
    if used == nodes * node:
        return Machines(nodes, node)
    if used % node == 0:
        return Machines(used // node, node)
    if nodes == 1:
        return Machines(1, used)
    what = f"{used} of {nodes * node} devices, which are no whole nodes of {node}"
    near = used // node * node
    legal = f"{near} or {near + node}" if near else f"{node}"
    faults.append(refuse("devices", what, f"take a plan on {legal} devices"))
    return None
