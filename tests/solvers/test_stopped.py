"""A search that is stopped between two steps proves nothing."""

from __future__ import annotations

from fractions import Fraction

import pytest
from ortools.sat.python import cp_model

from optplan.solvers import cpsat
from optplan.solvers.base import Holding, SolverConfig, Termination
from tests.solvers.programs import FEASIBLE


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
