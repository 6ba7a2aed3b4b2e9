"""How every CP-SAT model of this project is run."""

from __future__ import annotations

import signal
import threading

from ortools.sat.python import cp_model

from optplan.models.errors import OwnFault


def new_solver(seed: int, workers: int, seconds: float | None) -> cp_model.CpSolver:
    """
    Make a solver that loses no solution.

    Parameters
    ----------
    seconds
        Wall-clock limit, above 0; None for none.
    """
    solver = cp_model.CpSolver()
    solver.parameters.random_seed = seed
    solver.parameters.num_workers = workers
    # OR-Tools 9.15 loses solutions of some programs in presolve, and more while it looks for
    # "at least one of" (tests/solvers/programs.py, "a product beside what moves against it",
    # and seed 10766 of tests.cross). Slower and right is better.
    solver.parameters.cp_model_presolve = False
    solver.parameters.auto_detect_greater_than_at_least_one_of = False
    if seconds is not None:
        solver.parameters.max_time_in_seconds = seconds
    return solver


def solved(
    solver: cp_model.CpSolver,
    raw: cp_model.CpModel,
    watcher: cp_model.CpSolverSolutionCallback | None = None,
) -> cp_model.CpSolverStatus:
    """
    Run CP-SAT, which takes Ctrl-C for itself, and give Ctrl-C back to Python afterwards.

    Raises
    ------
    OwnFault
        CP-SAT calls the model invalid; nothing is proved by that.
    """
    handler = None
    if threading.current_thread() is threading.main_thread():
        handler = signal.getsignal(signal.SIGINT)
    try:
        status = solver.solve(raw, watcher)
    finally:
        if handler is not None:
            signal.signal(signal.SIGINT, handler)
    if status == cp_model.MODEL_INVALID:
        raise OwnFault(f"cp-sat calls the model invalid: {raw.validate()}")
    return status
