"""Where rules and prices write the program down."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optplan.models.errors import Fault, InputError, OwnFault
from optplan.models.pipeline import Fits, Pipeline
from optplan.models.program import (
    Choice,
    Divide,
    Extreme,
    Fact,
    Goal,
    Integers,
    Product,
    Program,
    Row,
    Statement,
    Sum,
    Table,
    Terms,
    Truth,
    spans,
)

LARGEST_TABLE = 4_000_000
"""Rows a table may have; beyond it the input is refused with the choice to narrow."""


class Builder:
    """
    A program in the making.

    Statements are kept in the order in which they are said. ``domain`` gives the values of every
    choice said so far, ``bounds`` the range of every column, ``spaces`` the rows of every spanning
    table, ``tick`` the seconds that one unit of a time column is worth.
    """

    def __init__(self) -> None:
        self._choices: list[Choice] = []
        self._statements: list[Statement] = []
        self._facts: list[Fact] = []
        self.sentences: dict[str, str] = {}
        self.domain: dict[str, Integers] = {}
        self.bounds: dict[str, tuple[int, int]] = {}
        self.spaces: dict[str, Integers] = {}
        self.tick = Fraction(1)
        self._handed_out: Pipeline | None = None
        self.branching: tuple[tuple[str, ...], ...] = ()

    def choice(self, name: str, values: Integers, words: tuple[str, ...] = ()) -> None:
        """Say what may be chosen."""
        ordered = np.unique(np.asarray(values, dtype=np.int64))
        self._choices.append(Choice(name, tuple(ordered.tolist()), words))
        self.domain[name] = ordered
        self.bounds[name] = (int(ordered.min()), int(ordered.max())) if len(ordered) else (0, 0)

    def _add(self, statement: Statement) -> None:
        for name in statement.defines:
            if name in self.bounds:
                raise OwnFault(f"{statement.name} defines {name} a second time")
        self._statements.append(statement)
        self.bounds.update(spans(statement, self.bounds))

    def space(self, name: str, keys: tuple[str, ...], rows: Integers) -> None:
        """Say which tuples make up the space."""
        self.spaces[name] = _tidy(rows, len(keys))
        self._add(Table(name, keys, (), self.spaces[name], spans=True))

    def allow(
        self, name: str, keys: tuple[str, ...], legal: Callable[..., NDArray[np.bool_]]
    ) -> None:
        """
        Restrict a few choices to the tuples that pass a question.

        Parameters
        ----------
        name
            Rule.
        keys
            Choices it asks about.
        legal
            Takes one flat array per key and answers elementwise.
        """
        columns = self.product(name, keys)
        rows = np.stack(columns, axis=1)
        self._add(Table(name, keys, (), rows[np.asarray(legal(*columns), dtype=bool)]))

    def product(self, name: str, keys: tuple[str, ...]) -> list[Integers]:
        """Every combination of some choices' values, one flat array per choice."""
        size = math.prod(len(self.domain[k]) for k in keys)
        if size > LARGEST_TABLE:
            longest = max(keys, key=lambda k: len(self.domain[k]))
            raise too_large(name, size, longest)
        mesh = np.meshgrid(*(self.domain[k] for k in keys), indexing="ij")
        return [axis.ravel() for axis in mesh]

    def price(self, name: str, keys: Mapping[str, Integers], gives: Mapping[str, Integers]) -> None:
        """Tabulate quantities that follow from choices; arrays are flat and equally long."""
        rows = np.stack([*keys.values(), *gives.values()], axis=1).astype(np.int64)
        self._add(Table(name, tuple(keys), tuple(gives), rows))

    def row(
        self,
        name: str,
        terms: Terms,
        low: int | None = None,
        high: int | None = None,
        when: tuple[str, int] | None = None,
    ) -> None:
        """Demand that a linear combination stays within bounds, or does where a choice says so."""
        self._add(Row(name, terms, low, high, when))

    def pipeline(self, statement: Pipeline) -> None:
        """Define time and memory of a step by handing out layers."""
        self._handed_out = statement
        self._add(statement)

    @property
    def handed_out(self) -> Pipeline:
        """How layers are handed out, once that has been said."""
        assert self._handed_out is not None
        return self._handed_out

    def fits(self, statement: Fits) -> None:
        """Demand that some way of handing out layers fits."""
        self._add(statement)

    def sum(self, name: str, result: str, terms: Terms, constant: int = 0) -> None:
        """Define a linear combination."""
        self._add(Sum(name, result, terms, constant))

    def multiply(
        self, name: str, result: str, left: str, right: str, most: int | None = None
    ) -> None:
        """Define a product, with a bound that every point is known to keep."""
        self._add(Product(name, result, left, right, most))

    def largest(self, name: str, result: str, of: tuple[str, ...]) -> None:
        """Define a maximum."""
        self._add(Extreme(name, result, of, "max"))

    def smallest(self, name: str, result: str, of: tuple[str, ...]) -> None:
        """Define a minimum."""
        self._add(Extreme(name, result, of, "min"))

    def divide(self, name: str, quotient: str, remainder: str, left: str, right: str) -> None:
        """Define quotient and remainder."""
        self._add(Divide(name, quotient, remainder, left, right))

    def truth(
        self, name: str, result: str, terms: Terms, low: int | None = None, high: int | None = None
    ) -> None:
        """Define a 0/1 quantity by an inequality."""
        self._add(Truth(name, result, terms, low, high))

    def fact(self, fact: Fact) -> None:
        """Declare how a column moves."""
        self._facts.append(fact)

    def program(self, goal: Goal, ties: tuple[str, ...]) -> Program:
        """Finish."""
        return Program(
            choices=tuple(self._choices),
            statements=tuple(self._statements),
            goal=goal,
            ties=ties,
            facts=tuple(self._facts),
            sentences=dict(self.sentences),
            branching=self.branching,
        )


def too_large(name: str, size: int, choice: str) -> InputError:
    """Refuse a table that would not fit, naming the choice to narrow."""
    return InputError(
        [
            Fault(
                "",
                f"search.{choice}",
                f"{name} would need {size:,} combinations, more than {LARGEST_TABLE:,}",
                f"give {choice} a shorter list, a smaller max or a larger multiple_of",
            )
        ]
    )


def _tidy(rows: Any, width: int) -> Integers:
    """Rows as a sorted array without repeats."""
    array = np.asarray(rows, dtype=np.int64).reshape(-1, width)
    return np.unique(array, axis=0)
