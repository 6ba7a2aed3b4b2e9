"""A plan's pipeline, run by the event simulation, and how much of it is drawn."""

from __future__ import annotations

from dataclasses import dataclass

from optplan.models.cost.estimate import chunk_passes
from optplan.models.cost.schedule import SPLIT, allowed
from optplan.models.cost.simulation import Pass, simulate, step_seconds
from optplan.models.spec.plan import Plan
from optplan.models.spec.problem import Problem

MOST_PASSES = 100_000
"""Passes simulated; of a longer step, fewer micro-batches are."""

LEAST_ROUNDS = 2
"""Micro-batches simulated at least, in multiples of the stages, so that it fills and drains."""


@dataclass(frozen=True)
class Run:
    """
    A simulated step.

    Parameters
    ----------
    passes
        Every pass with its times in seconds.
    seconds
        From the first start to the last end.
    micro_batches
        Simulated, of ``of``.
    """

    passes: tuple[Pass, ...]
    seconds: float
    micro_batches: int
    of: int


def run(problem: Problem, plan: Plan, most: int = MOST_PASSES) -> Run | None:
    """
    Simulate a plan's step; none where its schedule cannot run it, or where it is too large.

    A step of more than ``most`` passes is simulated with fewer micro-batches: whole rounds of the
    stages, as many as there are passes for, and at least ``LEAST_ROUNDS`` of them.
    """
    p, v, m = plan.pp, plan.vpp, plan.micro_batches
    if not allowed(plan.schedule, p, v, m):
        return None
    each = p * v * (3 if plan.schedule in SPLIT else 2)
    if m * each > most:
        fewer = most // each // p * p
        if fewer < LEAST_ROUNDS * p:
            return None
        m = fewer
    times = chunk_passes(problem, plan)
    forward, backward, weight = ([[c[i] for c in stage] for stage in times] for i in range(3))
    passes = simulate(plan.schedule, forward, backward, weight, m)
    return Run(tuple(passes), float(step_seconds(passes, barrier=True)), m, plan.micro_batches)
