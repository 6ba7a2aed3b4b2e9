"""The user's own limits, each a named rule."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from optplan.models.builder import Builder
from optplan.models.cost.price import Estimate
from optplan.models.domains import CHOICES, WORDS
from optplan.models.expression import evaluate, names, parse, show
from optplan.models.lowering import Lowering
from optplan.models.rules.registry import Finding, Rule, code_of, codes_of
from optplan.models.spec.plan import Plan
from optplan.models.spec.problem import Problem
from optplan.models.spec.space import Limit
from optplan.models.tabulate import blurred
from optplan.models.units import bytes_text, seconds_text

TOLERANCE = 3e-9
"""Share by which the verifier lets a step time pass a limit: above the program's own tolerance."""


class UserLimit(Rule):
    """
    A limit from the spec, the command line or the API.

    Unlike the shipped rules it is made for one problem: its name and sentence are the user's.
    """

    def __init__(self, limit: Limit) -> None:
        self.name = f"limits.{limit.name}"
        self.sentence = limit.rule
        self.source = "the spec"
        self._node = parse(limit.rule)
        self._blur_seconds = 0.0

    def post(self, say: Builder, problem: Problem) -> None:
        """Write the condition into the program."""
        columns: dict[str, tuple[str, Fraction] | Fraction] = {
            choice: (choice, Fraction(1)) for choice in say.domain
        }
        columns["devices"] = Fraction(problem.devices)
        columns["peak_memory"] = ("peak_bytes", Fraction(1))
        columns["step_seconds"] = ("step_ticks", say.tick)
        # Prices are floored to ticks, each of them added up as often as micro-batches and layers.
        blur = {"step_ticks": blurred(problem, say.bounds["micro_batches"][1])}
        # The verifier may not be stricter than the program that the plan comes from.
        self._blur_seconds = 2 * blur["step_ticks"] * float(say.tick)
        Lowering(say, self.name, columns, blur).demand(self._node)

    def holds(self, problem: Problem, plan: Plan, estimate: Estimate) -> Iterator[Finding]:
        """Ask the condition of the plan's own values, a step time within its tolerance."""
        values: dict[str, int | float] = {name: code_of(plan, name) for name in CHOICES}
        values["devices"] = problem.devices
        values["peak_memory"] = estimate.memory.peak_bytes
        seconds = estimate.step_seconds
        blur = TOLERANCE * seconds + self._blur_seconds
        ok = any(
            bool(evaluate(self._node, {**values, "step_seconds": near, "recompute": code}))
            for near in (seconds, seconds - blur, seconds + blur)
            for code in codes_of(plan, "recompute")
        )
        shown = {
            "peak_memory": bytes_text(estimate.memory.peak_bytes),
            "step_seconds": seconds_text(seconds),
            **{name: words[int(values[name])] for name, words in WORDS.items()},
        }
        facts = ", ".join(f"{n} = {shown.get(n, values.get(n))}" for n in sorted(names(self._node)))
        yield Finding(self.name, ok, f"{show(self._node)}: {facts}" if facts else show(self._node))
