"""Layers into stages."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from optplan.models.cost.estimate import Estimate
from optplan.models.numbers import divisors, listed
from optplan.models.program import Integers
from optplan.models.rules.registry import Finding, Legal, rule
from optplan.models.spec.plan import Plan
from optplan.models.spec.problem import Problem


@rule
class Layers(Legal):
    """No layer is lost and no stage is empty."""

    name = "pipeline.layers"
    sentence = "pp divides the layers, and the stages hold all of them"
    source = "arXiv 2501.00254, Eq. 13: p | L; Megatron-LM asserts the same for equal stages"
    keys = ("pp",)

    def legal(self, problem: Problem, *values: Integers) -> NDArray[np.bool_]:
        """Divide."""
        return np.equal(problem.workload.architecture.layers % values[0], 0)

    def why(self, problem: Problem, *values: int) -> str:
        """Name count, degree and legal degrees."""
        layers = problem.workload.architecture.layers
        if layers % values[0] == 0:
            return f"pp {values[0]} divides {layers} layers"
        legal = [d for d in divisors(layers) if problem.devices % d == 0]
        return f"pp {values[0]} does not divide {layers} layers; legal: pp in {listed(legal)}"

    def holds(self, problem: Problem, plan: Plan, estimate: Estimate) -> Iterator[Finding]:
        """Divide, and count the layers that the stages really hold."""
        yield from super().holds(problem, plan, estimate)
        layers, held = problem.workload.architecture.layers, sum(plan.layers_per_stage)
        text = f"stages hold {held} of {layers} layers"
        yield Finding(f"{self.name}[all]", held == layers and min(plan.layers_per_stage) > 0, text)
