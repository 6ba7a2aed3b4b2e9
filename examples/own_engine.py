"""An engine of one's own: every point by its bound, the lowest first, until none can be better."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np

import optplan
from optplan.models.program import Program
from optplan.solvers.base import Outcome, SolverConfig, Termination, holding, ratio
from optplan.solvers.search import Search
from optplan.solvers.settle import Settler

CAREFUL = 1 - 1e-9
"""Bounds are floats; lowered by this they stay bounds."""


def best_bound_first(program: Program, config: SolverConfig) -> Outcome:
    """Hand out the layers of one point after the other."""
    # Every choice but the layers, point by point; a settler hands out the layers of a point.
    points, settler = Search(program, config, bounded=False).everything(), Settler(program)
    # For each point: what no way to hand out layers can beat, and whether any fits into memory.
    bounds, fits = settler.bounds(points.columns)
    best: dict[str, int] | None = None
    goal: Fraction | None = None
    for i in np.argsort(bounds).tolist():
        if goal is not None and bounds[i] * CAREFUL > goal:
            break  # neither this point nor any behind it can be better
        found = settler.settle(points.at(i), goal) if fits[i] else None
        if found is not None and (goal is None or ratio(program, found) < goal):
            best, goal = found, ratio(program, found)
    return Outcome(
        termination=Termination.EXHAUSTED,
        # Whether a plan was found, and whether every point was looked at or is bounded away.
        holding=holding(best is not None, True),
        best=(best,) if best else (),
        bound=goal,
    )


def main() -> None:
    """Solve the first example with it, and have the answer checked."""
    spec = Path(__file__).parent / "paper" / "baichuan2-7b.yaml"
    ours = optplan.solve(spec, engine=best_bound_first)
    theirs = optplan.solve(spec)
    assert ours.plan is not None
    assert ours.plan == theirs.plan
    print(f"{ours.certificate.engine}: pp {ours.plan.pp}, as {theirs.certificate.engine} has it")
    for check in optplan.verify(ours.to_json()).checks:
        print(f"{check.name}: {check.text}")


if __name__ == "__main__":
    main()
