"""Memory, per stage: what must fit into a device."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import ClassVar

from optplan.models.builder import Builder
from optplan.models.cost.estimate import Estimate
from optplan.models.program import Terms
from optplan.models.rules.registry import Finding, Rule, rule
from optplan.models.spec.plan import Plan
from optplan.models.spec.problem import Problem
from optplan.models.units import bytes_text

ENDS = ("first", "last")
"""
Stages that stand in the program. Under 1F1B with equal stages the first holds the most
micro-batches in flight and the embedding, the last the logits and the head; every stage between
holds no more than the first.
"""


class _Fits(Rule):
    """Some parts of a stage's memory, together with the reserve, fit into a device."""

    parts: ClassVar[tuple[str, ...]]
    """Parts of the memory table that are added up."""

    @abstractmethod
    def terms(self, end: str) -> Terms:
        """Columns of the program that are added up for one end of the pipeline."""

    def post(self, say: Builder, problem: Problem) -> None:
        """Bound the sum at both ends of the pipeline."""
        room = problem.cluster.accelerator.hbm - problem.calibration.reserve
        for end in ENDS:
            say.row(f"{self.name}[stage={end}]", self.terms(end), high=room)

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

    def terms(self, end: str) -> Terms:
        """Weights and gradients."""
        return ((1, f"weights_{end}"),)


@rule
class Optimizer(_Fits):
    """Model states alone."""

    name = "capacity.optimizer"
    sentence = (
        "parameters, gradients and optimizer state of a stage fit into a device beside the reserve"
    )
    source = "arXiv 2501.00254, Eq. 17; sharding by arXiv 1910.02054"
    parts = ("parameters", "gradients", "optimizer")

    def terms(self, end: str) -> Terms:
        """Weights, gradients and optimizer state."""
        return ((1, f"weights_{end}"), (1, f"optimizer_{end}"))


@rule
class Activations(_Fits):
    """Activations alone."""

    name = "capacity.activations"
    sentence = (
        "activations in flight and working memory of a stage fit into a device beside the reserve"
    )
    source = "arXiv 2501.00254, Eqs. 18-19; arXiv 2205.05198"
    parts = ("activations", "working")

    def terms(self, end: str) -> Terms:
        """Activations in flight and working memory."""
        return ((1, f"activations_{end}"), (1, f"working_{end}"))


@rule
class Hbm(_Fits):
    """Everything together."""

    name = "capacity.hbm"
    sentence = "everything a stage holds at its worst moment fits into a device"
    source = "arXiv 2501.00254, Eq. 20"
    parts = ("parameters", "gradients", "optimizer", "activations", "working")

    def terms(self, end: str) -> Terms:
        """All parts."""
        return tuple(
            (1, f"{part}_{end}") for part in ("weights", "optimizer", "activations", "working")
        )
