"""A rule of one's own: stages deep enough in the mean to hide their transfers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

import optplan

LEAST = 20


class EnoughLayers(optplan.Rule):
    """Stages have at least twenty transformer blocks in the mean."""

    name = "house.enough_layers"
    sentence = f"layers / pp is at least {LEAST}"
    source = "our own experience"

    def post(self, say: optplan.Builder, problem: optplan.Problem) -> None:
        """Write it into the program, as a table of legal pipeline degrees."""
        layers = problem.workload.architecture.layers
        say.allow(self.name, ("pp",), lambda pp: np.asarray(layers // pp >= LEAST))

    def holds(
        self, problem: optplan.Problem, plan: optplan.Plan, estimate: optplan.Estimate
    ) -> Iterator[optplan.Finding]:
        """Ask a finished plan."""
        mean = sum(plan.layers_per_stage) // plan.pp
        yield optplan.Finding(self.name, mean >= LEAST, f"a stage has {mean} blocks in the mean")


def main() -> None:
    """Solve the 70B example with and without the rule."""
    spec = Path(__file__).parent / "llama-3-70b-64-h100.yaml"
    for rules in ((), (EnoughLayers(),)):
        result = optplan.solve(spec, rules=rules)
        assert result.plan is not None
        assert result.estimate is not None
        removed = result.certificate.removed_by_rule.get(EnoughLayers.name, 0)
        print(
            f"{len(rules)} rules of our own: pp {result.plan.pp}, "
            f"{result.estimate.step_seconds:.1f} s a step, {removed} points removed by them"
        )


if __name__ == "__main__":
    main()
