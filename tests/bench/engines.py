"""Time to proof of every engine on every shipped example, side by side."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import optplan
from optplan.models.errors import InputError
from optplan.models.formulate import formulate
from optplan.models.program import Program
from optplan.solvers import exhaustive, paper
from optplan.solvers.base import Outcome, SolverConfig
from optplan.solvers.catalogue import Proving, proving
from optplan.solvers.proved import proved
from optplan.solvers.search import Search

RUNS = 3
"""Odd, so that the median is a run."""

MOST = 20_000_000
"""Points up to which an example is also priced point by point."""

SLOW = 20.0
"""CPU seconds above which one run has to do."""

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

Road = Callable[[Program], Outcome]


def roads(program: Program) -> dict[str, Road]:
    """Ways to an answer that a program is not too large for, the exhaustive one last."""
    found: dict[str, Road] = {"cp-sat: search, proof": proved}
    for name in ("milp", "milp:scip"):
        if (how := _installed(name)) is not None:
            found[f"{name}: search, proof"] = partial(proved, prove_left=how.prove_left)
    found["search alone"] = lambda one: Search(one, SolverConfig()).outcome()
    if exhaustive.count(program) <= MOST:
        if program.facts:
            found["paper"] = paper.solve
        found["exhaustive"] = exhaustive.solve
    return found


def _installed(name: str) -> Proving | None:
    """How an engine proves, where it is installed."""
    try:
        return proving(name)
    except InputError:
        return None


def spent(road: Road, program: Program) -> tuple[float, Outcome]:
    """Median CPU seconds from program to proof, and the outcome."""
    runs: list[float] = []
    while len(runs) < RUNS:
        start = time.process_time()
        outcome = road(program)
        runs.append(time.process_time() - start)
        if runs[-1] > SLOW:
            break
    return statistics.median(runs), outcome


def main() -> None:
    """Print medians of CPU seconds, the ratio to the exhaustive engine, and the optimum."""
    print(f"CPU seconds from program to proof, median of {RUNS}; ratio to exhaustive")
    print(
        f"{'example':32} {'points':>13} {'engine':22} {'seconds':>9} {'ratio':>6} {'priced':>12}"
        "  best, s/sequence"
    )
    for path in sorted(EXAMPLES.rglob("*.yaml")):
        form = formulate(optplan.load(path))
        points = f"{exhaustive.count(form.program):,}"
        took = {name: spent(road, form.program) for name, road in roads(form.program).items()}
        for name, (seconds, outcome) in took.items():
            every = took.get("exhaustive")
            ratio = f"{seconds / every[0]:.2f}" if every else "-"
            best = float(outcome.goal * form.tick) if outcome.goal is not None else float("nan")
            print(
                f"{path.relative_to(EXAMPLES).as_posix():32} {points:>13} {name:22} "
                f"{seconds:>9.3f} {ratio:>6} {outcome.priced:>12,}  {best:.9g}"
            )
