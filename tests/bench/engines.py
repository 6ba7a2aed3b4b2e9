"""Time to proof of every engine on every shipped example, side by side."""

from __future__ import annotations

import statistics
import time
from pathlib import Path

import optplan
from optplan.models.formulate import formulate
from optplan.models.program import Program
from optplan.solvers import exhaustive
from optplan.solvers.base import Outcome, SolverConfig
from optplan.solvers.catalogue import ENGINES, engine
from optplan.solvers.reduction import reduce_by_bound

RUNS = 5
"""Odd, so that the median is a run."""

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def reduced(program: Program, config: SolverConfig) -> Outcome:
    """Bound, reduce, prove: what ``solve`` does for cp-sat."""
    from optplan.solvers import cpsat

    less = reduce_by_bound(program, config)
    return cpsat.solve(less.program, config, less.outcome.best[0])


def main() -> None:
    """Print medians of CPU seconds, the ratio to the exhaustive engine, and the optimum."""
    roads = {"cp-sat, reduced": reduced, **{f"{name}, whole": engine(name) for name in ENGINES}}
    print(f"CPU seconds from program to proof, median of {RUNS}; ratio to exhaustive")
    print(
        f"{'example':26} {'points':>9} {'engine':19} {'seconds':>8} {'ratio':>6}  best, s/sequence"
    )
    for path in sorted(EXAMPLES.rglob("*.yaml")):
        form = formulate(optplan.load(path))
        points = f"{exhaustive.count(form.program):,}"
        medians, goals = {}, {}
        for name, road in roads.items():
            runs = []
            for _ in range(RUNS):
                start = time.process_time()
                goal = road(form.program, SolverConfig()).goal
                runs.append(time.process_time() - start)
            medians[name] = statistics.median(runs)
            goals[name] = float(goal * form.tick) if goal is not None else float("nan")
        for name, seconds in medians.items():
            ratio = seconds / medians["exhaustive, whole"]
            example = path.relative_to(EXAMPLES).as_posix()
            print(
                f"{example:26} {points:>9} {name:19} {seconds:>8.4f} {ratio:>6.1f}"
                f"  {goals[name]:.9g}"
            )
