"""What the spec fixes or lists, as rules that an explanation can name."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from optplan.models.builder import Builder
from optplan.models.cost.estimate import Estimate
from optplan.models.domains import WORDS
from optplan.models.numbers import listed
from optplan.models.program import Integers
from optplan.models.rules.registry import Finding, Rule, codes_of
from optplan.models.spec.plan import Plan
from optplan.models.spec.problem import Problem


class Asked(Rule):
    """One line of the spec's ``search``; made for one problem."""

    def __init__(self, choice: str, values: Integers) -> None:
        self.choice, self.values = choice, values
        self.name = f"search.{choice}"
        known = WORDS.get(choice)
        words = [known[v] for v in values.tolist()] if known else values.tolist()
        self.sentence = f"{choice} is in {listed(words)}, as the spec asks"
        self.source = "the spec"

    def post(self, say: Builder, problem: Problem) -> None:
        """Restrict the choice."""
        say.allow(self.name, (self.choice,), lambda column: np.isin(column, self.values))

    def holds(self, problem: Problem, plan: Plan, estimate: Estimate) -> Iterator[Finding]:
        """Look the plan's value up."""
        value = getattr(plan, self.choice)
        ok = bool(np.isin(codes_of(plan, self.choice), self.values).any())
        yield Finding(self.name, ok, f"{self.choice} = {value}; {self.sentence}")
