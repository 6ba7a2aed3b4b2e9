"""MILP engines on programs that hand out layers: the proof that no point left is better."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import ceil, floor

import numpy as np
import pyomo.environ as pyo

from optplan.models.program import Program
from optplan.models.stages import Share
from optplan.solvers.base import Outcome, SolverConfig, Termination
from optplan.solvers.left import Left
from optplan.solvers.milp import TRUST, name_of
from optplan.solvers.milp_forms import Form, Sheet, goal_unit
from optplan.solvers.milp_hull import Hull
from optplan.solvers.milp_solver import DEFAULT, Answer, hushed, run, why_stopped
from optplan.solvers.milp_stages import write_stages
from optplan.solvers.options import SAFE, Option, least_step, passing
from optplan.solvers.prover import Constrain, Proof, Prover
from optplan.solvers.settle import Point
from optplan.solvers.stages import Shared

NEVER = 2**62
"""Bound where nothing can be shared out."""


def prove_left(
    program: Program,
    left: Left,
    incumbent: Point | None,
    config: SolverConfig,
    constrain: Constrain | None = None,
    solver: str = DEFAULT,
) -> Outcome:
    """
    Prove that none of the points left beats an incumbent, or find the one that does.

    Parameters
    ----------
    left
        Points whose bound does not exceed the incumbent.
    incumbent
        A plan's values with its layers; None for none.
    constrain
        Adds a user's own constraints to the Pyomo model of each point.
    solver
        A name that Pyomo has.

    Returns
    -------
    Outcome
        ``proved``, the incumbent being returned unless something better was found.
    """
    return _Milp(program, left, incumbent, config, constrain, solver=solver).run()


def solve_whole(
    program: Program, left: Left, config: SolverConfig, solver: str = DEFAULT
) -> Outcome:
    """
    Solve a program as one model of all its points.

    Parameters
    ----------
    left
        Every point that no table refuses.
    """
    points = [left.at(i) for i in range(len(left))]
    left = left.take(np.array(passing(program, points), dtype=np.int64))
    return _Milp(program, left, None, config, whole=True, solver=solver).run()


def live(
    program: Program,
    left: Left,
    held: Point | None = None,
    exact: bool = False,
    name: str = "program",
) -> Hull:
    """
    Write points and their pipelines as one live Pyomo model, with the program's goal.

    Parameters
    ----------
    held
        A plan's values with its layers, for the model's variables to start from.
    exact
        Whether time and peak must be exactly what the layers make of them; without it they are no
        less, which is all that matters to whoever wants them small.
    """
    prover = _Milp(program, left, None, SolverConfig())
    points = [left.at(i) for i in range(len(left))]
    options = list(prover.options(points, every=True))
    exact = exact or prover.settler.late.hard
    hull = Hull(program, points, options, left.bound.tolist(), exact, name)
    for statement in prover.settler.late.statements:
        hull.post(statement)
    hull.raw.goal = pyo.Objective(expr=hull.goal(1 / program.goal.scale))
    if held is not None:
        hull.start(held)
    return hull


class _Milp(Prover):
    """A proof by a MILP solver."""

    trust = Fraction(TRUST).limit_denominator(10**12)

    def __init__(
        self,
        program: Program,
        left: Left,
        incumbent: Point | None,
        config: SolverConfig,
        constrain: Constrain | None = None,
        whole: bool = False,
        solver: str = DEFAULT,
    ) -> None:
        super().__init__(program, left, incumbent, config, constrain, whole)
        self.solver = solver
        self.engine = name_of(solver)

    def _solve(self, raw: pyo.ConcreteModel, warm: bool = False) -> Answer:
        """Run the solver on a model with what is left of the time."""
        answer = run(raw, self.solver, self.rest(), self.config.workers, self.config.seed, warm)
        self.nodes += answer.nodes
        if not answer.done:
            self.stopped = why_stopped(answer)
        return answer

    def prove(self, shares: Sequence[Share], below: int | None) -> Proof:
        """Find the fastest way to share out any of several pipelines, and prove it."""
        best: tuple[int, Shared] | None = None
        start = self.nodes
        for place in sorted(range(len(shares)), key=lambda k: least_step(shares[k])):
            share = shares[place]
            while self.stopped is None:
                low = least_step(share)
                if below is not None and low >= below * (1 - TRUST):
                    break
                shared = self._share(share, below)
                if shared is None:
                    break
                best, below = (place, shared), shared.step
            if self.stopped is not None:
                break
        nodes, self.nodes = self.nodes - start, start
        done = self.stopped is None
        bound = min(map(least_step, shares)) if not done else NEVER if below is None else below
        interrupted = self.stopped is Termination.INTERRUPTED
        return Proof(best, bound, done, interrupted, nodes)

    def _share(self, share: Share, below: int | None) -> Shared | None:
        """Share out one pipeline in fewer ticks than given, as far as floats can see."""
        sheet = Sheet("pipeline")
        made = write_stages(sheet, share, Form(constant=1), "capacity.hbm")
        if below is not None:
            # Floats cannot tell what is closer; the bound is lowered by as much.
            most = min(below - 1, floor(below * (1 - TRUST)))
            sheet.demand("better", made.step, None, most)
        bare = made.step.less(made.step.constant)
        sheet.raw.goal = pyo.Objective(expr=sheet.expression(bare, goal_unit(bare)))
        answer = self._solve(sheet.raw)
        if not answer.found:
            return None
        layers, again = made.read(sheet)
        shared = Shared(share.step(layers, again), share.peak(layers, again), layers, again)
        fits = sum(layers) == share.layers and shared.peak <= share.room
        if not fits or (below is not None and shared.step >= below):
            # What the solver calls better is not so, by more than floats should be off.
            self.stopped = self.stopped or Termination.FAILED
            return None
        return shared

    def better(
        self, points: Sequence[Point], options: Sequence[Option], per: Fraction
    ) -> tuple[Option, Shared] | None:
        """Look for something better in one model."""
        exact = not self.whole or self.settler.late.hard
        hull = Hull(self.program, points, options, None, exact)
        for statement in self.settler.late.statements:
            hull.post(statement)
        if self.constrain is not None:
            with hushed():
                self.constrain(hull.raw)
            if hull.moved():
                return None
        of = hull.columns[self.program.goal.of]
        if self.known is not None:
            low = floor(self.known[self.program.goal.of] * SAFE)
            hull.sheet.demand("bound", of, low, None)
            hull.start(self.known)
        if self.goal is not None:
            most = ceil(self.goal * per) - 1
            hull.sheet.demand("better", of, None, min(most, floor(most * (1 - TRUST))))
        bare = of.less(of.constant)
        hull.raw.goal = pyo.Objective(expr=hull.sheet.expression(bare, goal_unit(bare)))
        answer = self._solve(hull.raw, self.known is not None)
        if not answer.found:
            return None
        option, shared = hull.found()
        full = self.settler.handed_out(points[option.place], shared)
        held = self.settler.goal(full)
        if not self.settler.passes(full) or (self.goal is not None and held >= self.goal):
            self.stopped = self.stopped or Termination.FAILED
            return None
        return option, shared
