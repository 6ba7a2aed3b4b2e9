"""One live model of each shipped example, solved by several solvers side by side."""

from __future__ import annotations

import time
from pathlib import Path

import pyomo.environ as pyo
from ortools.sat.python import cp_model as sat

from optplan.live import cp_of, part_of, pyomo_of
from optplan.models.errors import InputError
from optplan.solvers.milp_solver import require, run

WITHIN = 0.02
"""Share of the best within which all plans are in the model."""

SECONDS = 60.0
"""Wall-clock limit of each solver."""

SOLVERS = ("highs", "scip", "cbc", "glpk")

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def main() -> None:
    """Print wall-clock seconds to proof, the ratio to HiGHS, and the gap that is left."""
    print(f"one model of all plans within {WITHIN:.0%} of the best, at most {SECONDS:g} s each")
    head = ("example", "points", "variables", "solver", "seconds", "ratio", "goal")
    print(
        f"{head[0]:32} {head[1]:>6} {head[2]:>9} {head[3]:8} {head[4]:>8} {head[5]:>6}  {head[6]}"
    )
    for path in sorted(EXAMPLES.rglob("*.yaml")):
        part = part_of(path, WITHIN)
        model = pyomo_of(part)
        size = sum(1 for _ in model.component_data_objects(pyo.Var))
        took: dict[str, tuple[float, str]] = {}
        for solver in SOLVERS:
            try:
                require(solver)
            except InputError:
                continue
            start = time.monotonic()
            answer = run(model, solver, SECONDS)
            goal = f"{pyo.value(model.goal):.9g}" if answer.found else "nothing found"
            told = goal if answer.done else f"{goal}, stopped at {answer.bound or 0:.6g}"
            took[solver] = time.monotonic() - start, told
        took["cp-sat"] = _sat(part)
        for name, (seconds, told) in took.items():
            print(
                f"{path.relative_to(EXAMPLES).as_posix():32} {len(part.left):>6,} {size:>9,} "
                f"{name:8} {seconds:>8.2f} {seconds / took['highs'][0]:>6.2f}  {told}",
                flush=True,
            )


def _sat(part: object) -> tuple[float, str]:
    """Solve by CP-SAT with one worker."""
    model = cp_of(part)  # type: ignore[arg-type]
    solver = sat.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.max_time_in_seconds = SECONDS
    start = time.monotonic()
    status = solver.solve(model.raw)
    spent = time.monotonic() - start
    if status not in (sat.OPTIMAL, sat.FEASIBLE):
        return spent, "nothing found"
    goal = model.program.goal
    batches = {row[goal.per] for row in model.origin[1].points} if goal.per else {1}
    per = batches.pop() if len(batches) == 1 else 1
    told = f"{solver.objective_value * goal.scale / per:.9g}"
    done = status == sat.OPTIMAL
    return spent, told if done else f"{told}, stopped"
