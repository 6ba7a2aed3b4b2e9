"""A search that is stopped between two steps proves nothing."""

from __future__ import annotations

import os
import signal
import sys
import threading
from fractions import Fraction

import pytest
from ortools.sat.python import cp_model

from optplan.solvers import cpsat, milp
from optplan.solvers.base import Holding, SolverConfig, Termination
from tests.solvers.programs import FEASIBLE, long_search, spanned


def test_a_ratio_stopped_after_its_first_step_is_no_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    program, _, goal = FEASIBLE["a goal per unit of another column"]
    solve, calls = cp_model.CpSolver.solve, []

    def stopped(
        solver: cp_model.CpSolver, model: cp_model.CpModel, callback: object = None
    ) -> cp_model.CpSolverStatus:
        calls.append(solver)
        if len(calls) > 1:
            solver.parameters.max_time_in_seconds = 0.0
        return solve(solver, model)

    monkeypatch.setattr(cp_model.CpSolver, "solve", stopped)
    outcome = cpsat.solve(program, SolverConfig(seconds=60.0))
    assert len(calls) > 1
    assert outcome.goal == Fraction(4)
    assert outcome.holding is Holding.FEASIBLE
    assert outcome.termination is not Termination.PROVED
    assert outcome.bound is not None
    assert outcome.bound <= goal


@pytest.mark.skipif(sys.platform == "win32", reason="SIGINT as on POSIX")
def test_ctrl_c_in_the_midst_of_highs_keeps_what_is_known() -> None:
    """A little later each time, until it comes while HiGHS is at work and has a plan."""
    if threading.current_thread() is not threading.main_thread():
        pytest.skip("signals reach the main thread only")
    program = spanned(long_search())
    # What comes at any other moment shall not end the test itself.
    outside = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        for wait in (1.0, 2.0, 3.0, 4.0):
            timer = threading.Timer(wait, os.kill, (os.getpid(), signal.SIGINT))
            timer.start()
            outcome = milp.solve(program, SolverConfig(seconds=60.0))
            timer.cancel()
            timer.join()
            if outcome.termination is not Termination.INTERRUPTED:
                continue  # it came too early or too late
            assert outcome.holding is not Holding.OPTIMAL
            assert outcome.bound is not None
            assert outcome.bound <= Fraction(36)
            assert all(not list(program.broken(plan)) for plan in outcome.best)
    finally:
        signal.signal(signal.SIGINT, outside)
