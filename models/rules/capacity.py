"""Memory, per stage: what must fit into a device."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from optplan.models.builder import Builder
from optplan.models.cost.estimate import host_bytes
from optplan.models.cost.price import Estimate
from optplan.models.pipeline import Fits
from optplan.models.rules.registry import Finding, Rule, rule
from optplan.models.spec.plan import Plan
from optplan.models.spec.problem import Problem
from optplan.models.units import bytes_text


class _Fits(Rule):
    """Some parts of every stage's memory, together with the reserve, fit into a device."""

    parts: ClassVar[tuple[str, ...]]
    """Parts of the memory table that are added up."""
    counts: ClassVar[tuple[str, ...]]
    """The same as the program knows them."""

    def post(self, say: Builder, problem: Problem) -> None:
        """Demand that some way of handing out layers fits."""
        say.fits(Fits(self.name, say.handed_out, self.counts))

    def holds(self, problem: Problem, plan: Plan, estimate: Estimate) -> Iterator[Finding]:
        """Ask every stage."""
        capacity, reserve = problem.cluster.accelerator.hbm, problem.calibration.reserve
        for use in estimate.memory.stages:
            held = sum(use.parts[part] for part in self.parts)
            text = (
                f"{' + '.join(self.parts)} {bytes_text(held)} + reserve {bytes_text(reserve)} "
                f"of {bytes_text(capacity)}"
            )
            yield Finding(f"{self.name}[stage={use.stage}]", held + reserve <= capacity, text)


@rule
class Parameters(_Fits):
    """Weights and gradients alone."""

    name = "capacity.parameters"
    sentence = "parameters and gradients of a stage fit into a device beside the reserve"
    source = (
        "arXiv 2501.00254, Eq. 13 (p t M_NPU >= M_m): necessary, cheap, independent of the batch"
    )
    parts = ("parameters", "gradients")
    counts = ("weights",)


@rule
class Optimizer(_Fits):
    """Model states alone."""

    name = "capacity.optimizer"
    sentence = (
        "parameters, gradients and optimizer state of a stage fit into a device beside the reserve"
    )
    source = "arXiv 2501.00254, Eq. 17; sharding by arXiv 1910.02054"
    parts = ("parameters", "gradients", "optimizer")
    counts = ("weights", "optimizer")


@rule
class Activations(_Fits):
    """Activations alone."""

    name = "capacity.activations"
    sentence = (
        "activations in flight and working memory of a stage fit into a device beside the reserve"
    )
    source = "arXiv 2501.00254, Eqs. 18-19; arXiv 2205.05198"
    parts = ("activations", "working")
    counts = ("activations",)


@rule
class Hbm(_Fits):
    """Everything together."""

    name = "capacity.hbm"
    sentence = "everything a stage holds at its worst moment fits into a device"
    source = "arXiv 2501.00254, Eq. 20"
    parts = ("parameters", "gradients", "optimizer", "activations", "working")
    counts = ("weights", "optimizer", "activations")


@rule
class Host(Rule):
    """An optimizer on the host needs the host's memory."""

    name = "capacity.host"
    sentence = "optimizer states on the host fit into its memory, all devices of a node together"
    source = "QwenLM/Qwen3 issue 804: 72 B parameters at 12 bytes are 864 GB, 800 GB were too few"

    def applies(self, problem: Problem) -> bool:
        """Ask for a host."""
        return problem.cluster.host is not None and problem.prices != "paper"

    def post(self, say: Builder, problem: Problem) -> None:
        """Bound an even share of the layers and both ends, on every device of a node."""
        assert problem.cluster.host is not None
        pp = say.domain["pp"]
        layers = problem.workload.architecture.layers
        say.price(self.name, {"pp": pp}, {"even_layers": -(-layers // pp)})
        say.multiply(self.name, "host_layers", "even_layers", "host_layer")
        devices = problem.cluster.devices_per_node
        terms = tuple((devices, c) for c in ("host_layers", "host_front", "host_back"))
        say.row(self.name, terms, high=problem.cluster.host.memory)

    def holds(self, problem: Problem, plan: Plan, estimate: Estimate) -> Iterator[Finding]:
        """Ask the same of the plan."""
        assert problem.cluster.host is not None
        held, room = host_bytes(problem, plan), problem.cluster.host.memory
        yield Finding(self.name, held <= room, f"{bytes_text(held)} of {bytes_text(room)}")
