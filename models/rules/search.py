"""What the spec fixes or lists, as rules that an explanation can name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from optplan.models.builder import Builder
from optplan.models.cost.price import Estimate
from optplan.models.domains import WORDS
from optplan.models.numbers import listed
from optplan.models.program import Integers
from optplan.models.rules.registry import Finding, Rule, code_of, codes_of
from optplan.models.spec.plan import Plan
from optplan.models.spec.problem import Problem

MEANING: Mapping[str, tuple[str, ...]] = {"context": ("cp",), "order": ("pp", "dp")}
"""Choices that mean nothing where one of some degrees is 1; the space then holds one value."""


def meaningless(problem: Problem, choice: str, *degrees: Integers) -> NDArray[np.bool_]:
    """Tell where a choice has no meaning; an order of groups has none on one node either."""
    only = problem.workload.architecture.experts is not None and choice == "order"
    if choice not in MEANING or problem.prices == "paper" or only:
        return np.zeros((), dtype=bool)  # It has one value for good.
    one = np.asarray(reduce(np.logical_or, [degree == 1 for degree in degrees]))
    return np.asarray(one | (choice == "order" and problem.cluster.nodes == 1), dtype=bool)


class Listed(Rule):
    """One choice that may take listed values only; made for one problem."""

    def __init__(self, choice: str, values: Sequence[int]) -> None:
        self.choice, self.values = choice, values
        known = WORDS.get(choice)
        self.words = listed([known[v] for v in values] if known else list(values))

    def post(self, say: Builder, problem: Problem) -> None:
        """Restrict the choice, except where its value has no meaning."""
        asks = MEANING.get(self.choice, ())

        def allowed(column: Integers, *degrees: Integers) -> NDArray[np.bool_]:
            idle = meaningless(problem, self.choice, *degrees)
            return np.asarray(np.isin(column, self.values) | idle, dtype=bool)

        say.allow(self.name, (self.choice, *asks), allowed)

    def shown(self, plan: Plan) -> object:
        """Return the plan's value as a person writes it."""
        return getattr(plan, self.choice)

    def holds(self, problem: Problem, plan: Plan, estimate: Estimate) -> Iterator[Finding]:
        """Look the plan's value up."""
        ok = any(code in self.values for code in codes_of(plan, self.choice))
        degrees = [np.array(code_of(plan, name)) for name in MEANING.get(self.choice, ())]
        ok = ok or bool(meaningless(problem, self.choice, *degrees))
        yield Finding(self.name, ok, f"{self.choice} = {self.shown(plan)}; {self.sentence}")


class Asked(Listed):
    """One line of the spec's ``search``."""

    def __init__(self, choice: str, values: Integers) -> None:
        super().__init__(choice, values.tolist())
        self.name = f"search.{choice}"
        self.sentence = f"{choice} is in {self.words}, as the spec asks"
        self.source = "the spec"
