"""What the spec fixes or lists, as rules that an explanation can name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from optplan.models.builder import Builder
from optplan.models.cost.price import Estimate
from optplan.models.domains import WORDS
from optplan.models.numbers import listed
from optplan.models.program import Integers
from optplan.models.rules.registry import Finding, Rule, codes_of
from optplan.models.spec.plan import Plan
from optplan.models.spec.problem import Problem


class Listed(Rule):
    """One choice that may take listed values only; made for one problem."""

    def __init__(self, choice: str, values: Sequence[int]) -> None:
        self.choice, self.values = choice, values
        known = WORDS.get(choice)
        self.words = listed([known[v] for v in values] if known else list(values))

    def post(self, say: Builder, problem: Problem) -> None:
        """Restrict the choice."""
        say.allow(self.name, (self.choice,), lambda column: np.isin(column, self.values))

    def shown(self, plan: Plan) -> object:
        """Return the plan's value as a person writes it."""
        return getattr(plan, self.choice)

    def holds(self, problem: Problem, plan: Plan, estimate: Estimate) -> Iterator[Finding]:
        """Look the plan's value up."""
        ok = any(code in self.values for code in codes_of(plan, self.choice))
        yield Finding(self.name, ok, f"{self.choice} = {self.shown(plan)}; {self.sentence}")


class Asked(Listed):
    """One line of the spec's ``search``."""

    def __init__(self, choice: str, values: Integers) -> None:
        super().__init__(choice, values.tolist())
        self.name = f"search.{choice}"
        self.sentence = f"{choice} is in {self.words}, as the spec asks"
        self.source = "the spec"
