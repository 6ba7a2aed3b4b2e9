"""What a rule is, and the list of all of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from optplan.models.builder import Builder
from optplan.models.cost.price import Estimate
from optplan.models.domains import coded
from optplan.models.program import Integers
from optplan.models.spec.plan import Plan
from optplan.models.spec.problem import Problem


@dataclass(frozen=True)
class Finding:
    """
    What one rule says of one finished plan.

    Parameters
    ----------
    name
        The rule, with its instance: ``capacity.hbm[stage=3]``.
    holds
        Whether the plan obeys it.
    text
        The numbers behind the answer, and where it is broken what would be legal.
    """

    name: str
    holds: bool
    text: str


class Rule(ABC):
    """
    Something that must hold.

    A rule has two faces: ``post`` writes it into the program over choices, ``holds`` asks a
    finished plan. A user's rule is a subclass handed to ``optplan.solve(spec, rules=[...])``.
    """

    name: str
    """``family.rule``, the same string in program, log, explanation, verdict and README."""
    sentence: str
    """What it demands, in one sentence."""
    source: str
    """Who says so."""

    def applies(self, problem: Problem) -> bool:
        """Tell whether the rule has anything to say about a problem."""
        return True

    @abstractmethod
    def post(self, say: Builder, problem: Problem) -> None:
        """Write the rule into the program."""

    @abstractmethod
    def holds(self, problem: Problem, plan: Plan, estimate: Estimate) -> Iterable[Finding]:
        """Ask a finished plan."""


class Legal(Rule):
    """A rule over a few choices that one question settles; both faces come from the question."""

    keys: ClassVar[tuple[str, ...]]
    """Choices the question is about."""

    @abstractmethod
    def legal(self, problem: Problem, *values: Integers) -> NDArray[np.bool_]:
        """Answer elementwise, one array per key."""

    @abstractmethod
    def why(self, problem: Problem, *values: int) -> str:
        """Say in numbers what the question weighs, for one tuple of values."""

    def post(self, say: Builder, problem: Problem) -> None:
        """Tabulate the legal tuples."""
        say.allow(self.name, self.keys, lambda *columns: self.legal(problem, *columns))

    def holds(self, problem: Problem, plan: Plan, estimate: Estimate) -> Iterator[Finding]:
        """Ask the question of the plan's own values."""
        values = [code_of(plan, key) for key in self.keys]
        ok = bool(self.legal(problem, *(np.array([v], dtype=np.int64) for v in values))[0])
        yield Finding(self.name, ok, self.why(problem, *values))


def code_of(plan: Plan, choice: str) -> int:
    """Value of a choice in a plan, as the program codes it."""
    if choice == "recompute" and plan.recompute == "full":
        # A launcher's "full" is a granularity; here it is all layers, and fewer are "partial".
        every = plan.layers_per_stage == plan.recomputed_layers_per_stage
        return coded(choice, "full" if every else "partial")
    return coded(choice, getattr(plan, choice))


def codes_of(plan: Plan, choice: str) -> tuple[int, ...]:
    """
    Values of a choice that a plan may stand for.

    One where all layers are recomputed is also one that recomputes some number of them.
    """
    code = code_of(plan, choice)
    every = choice == "recompute" and code == coded(choice, "full")
    return (code, coded(choice, "partial")) if every else (code,)


R = TypeVar("R", bound=type[Rule])

_RULES: list[Rule] = []


def rule(kind: R) -> R:
    """Enter a rule into the registry; order of entry is order of posting."""
    if any(known.name == kind.name for known in _RULES):
        raise ValueError(f"two rules are called {kind.name}")
    _RULES.append(kind())
    return kind


def rules() -> tuple[Rule, ...]:
    """All shipped rules, in the order in which they are posted."""
    from optplan.models.rules import (  # noqa: F401 - they register
        batch,
        capacity,
        degrees,
        experts,
        framework,
        pipeline,
    )

    order = {"degrees": 0, "experts": 1, "batch": 2, "pipeline": 3, "framework": 4, "capacity": 5}
    return tuple(sorted(_RULES, key=lambda known: order.get(known.name.split(".")[0], 9)))
