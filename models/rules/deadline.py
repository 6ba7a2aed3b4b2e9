"""A training has to be finished in time: so many seconds a sequence, and no more."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from math import ceil

from optplan.models.builder import Builder
from optplan.models.cost.price import Estimate
from optplan.models.program import LARGEST
from optplan.models.rules.limits import TOLERANCE
from optplan.models.rules.registry import Finding, Rule
from optplan.models.spec.plan import Plan
from optplan.models.spec.problem import Problem
from optplan.models.tabulate import blurred
from optplan.models.units import seconds_text


class Deadline(Rule):
    """
    A limit on the seconds of a sequence, for one question; any number of digits will do.

    Parameters
    ----------
    pace
        Seconds that a sequence may take, above 0.
    """

    def __init__(self, pace: float) -> None:
        self.name = "limits.deadline"
        self.sentence = f"a sequence takes at most {seconds_text(pace)}"
        self.source = "the deadline"
        self.pace = pace
        self._blur_seconds = 0.0

    def post(self, say: Builder, problem: Problem) -> None:
        """Bound the ticks of a step by those of its sequences."""
        # Fine parts of a tick, as far as 64 bits hold the longest step in them.
        most = max(say.bounds["step_ticks"][1], 1)
        parts = 2 ** max(0, (LARGEST // (4 * most)).bit_length() - 1)
        each = ceil(Fraction(self.pace) * parts / say.tick)
        batch = say.bounds["global_batch"][1]
        # A longer time than any step takes forbids nothing.
        each = min(each, LARGEST // (4 * max(1, batch)))
        blur = blurred(problem, say.bounds["micro_batches"][1])
        self._blur_seconds = 2 * blur * float(say.tick)
        say.row(self.name, ((parts, "step_ticks"), (-each, "global_batch")), None, 0)

    def holds(self, problem: Problem, plan: Plan, estimate: Estimate) -> Iterator[Finding]:
        """Ask it of the plan's own time, within the tolerance of limits."""
        most = self.pace * plan.global_batch
        ok = estimate.step_seconds <= most * (1 + TOLERANCE) + self._blur_seconds
        text = f"step {seconds_text(estimate.step_seconds)} of at most {seconds_text(most)}"
        yield Finding(self.name, ok, text)
