"""What a step pays once: reducing gradients and updating weights."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from optplan.models.cost.arrays import Float, Int, where
from optplan.models.cost.compute import stream_seconds
from optplan.models.cost.memory import STATES
from optplan.models.cost.traffic import all_reduce_seconds, group
from optplan.models.spec.problem import Problem

OPTIMIZER_BYTES = 40
"""
Bytes that mixed-precision Adam moves per parameter it owns: reads gradient, master copy and two
moments (16), writes master copy and moments (12), reads and zeroes the gradient once more (8),
writes the 16-bit copy (2), rounded up.
"""


@dataclass(frozen=True)
class StepTime:
    """
    Seconds that a step pays once, whatever the number of micro-batches.

    Parameters
    ----------
    reduce
        Exposed data-parallel collectives (TCD).
    arithmetic
        Additions inside them (TAD).
    update
        Optimizer step (T_opt); the paper has none.
    """

    reduce: Float
    arithmetic: Float
    update: Float

    @property
    def total(self) -> Float:
        """All of it."""
        return self.reduce + self.arithmetic + self.update


def step_time(problem: Problem, parameters: Int, tp: Int, dp: Int, zero: Int) -> StepTime:
    """
    Price the end of a step on the stage with the most parameters.

    Without ZeRO the gradients are all-reduced; with ZeRO-1 they are reduce-scattered and the
    updated weights, in their own width, all-gathered, and each rank updates its share.

    Parameters
    ----------
    parameters
        Of the fullest stage, on one tensor rank.
    tp, dp, zero
        Degrees and ZeRO stage.
    """
    unit = STATES[problem.workload.precision]
    wide = where(zero >= 1, (unit.gradients + unit.parameters) / 2, unit.gradients)
    payload = wide * parameters
    reduce = all_reduce_seconds(problem, payload, group(problem, dp, tp))
    exposed = reduce * (1.0 - problem.calibration.overlap_dp)
    if problem.prices == "paper":
        update: Float = np.zeros_like(exposed) if isinstance(exposed, np.ndarray) else 0.0
    else:
        update = stream_seconds(problem, OPTIMIZER_BYTES * parameters / where(zero >= 1, dp, 1))
    return StepTime(exposed, exposed * problem.calibration.kappa, update)
