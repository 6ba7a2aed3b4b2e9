"""Limits that are built in Python, by the operators that the text has."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction

from optplan.models.expression.dimensions import combine, compare, condition, membership, negative
from optplan.models.expression.grammar import operand
from optplan.models.expression.leaves import Part, literal, named
from optplan.models.expression.text import show
from optplan.models.expression.tree import (
    And,
    Condition,
    ExpressionError,
    Negative,
    Not,
    Operation,
    Or,
    Relation,
    Value,
    bounded,
)


class _Limit:
    """What formulas and terms share: both show as text, and join by ``&``, ``|`` and ``~``."""

    __slots__ = ()
    node: Value | Condition

    def __str__(self) -> str:
        """Render as text of the language."""
        return show(self.node)

    def __bool__(self) -> bool:
        """Refuse the silent loss that ``and``, ``or`` and chained comparisons would cause."""
        problem = "a limit is neither true nor false by itself"
        raise ExpressionError(0, problem, "join limits by & and | instead")

    def __and__(self, other: Formula | Term) -> Formula:
        """Demand both."""
        return _joined(And, self, other)

    def __or__(self, other: Formula | Term) -> Formula:
        """Demand at least one."""
        return _joined(Or, self, other)

    def __invert__(self) -> Formula:
        """Demand that it does not hold."""
        return Formula(bounded(Not(condition(Part(self.node)))))


@dataclass(frozen=True, eq=False, slots=True)
class Formula(_Limit):
    """
    A condition built in Python.

    Parameters
    ----------
    node
        Its tree.
    """

    node: Condition


def _joined(kind: type[And | Or], left: _Limit, right: _Limit) -> Formula:
    first, last = condition(Part(left.node)), condition(Part(right.node))
    parts = first.parts if isinstance(first, And | Or) and type(first) is kind else (first,)
    return Formula(bounded(kind((*parts, last))))


def _arithmetic(operation: Operation, swap: bool = False) -> Callable[[Term, Operand], Term]:
    def method(self: Term, other: Operand) -> Term:
        left, right = Part(self.node), _part(other)
        return Term(combine(operation, *((right, left) if swap else (left, right))))

    return method


def _comparison(relation: Relation) -> Callable[[Term, Operand], Formula]:
    def method(self: Term, other: Operand) -> Formula:
        return Formula(compare(relation, Part(self.node), _part(other)))

    return method


@dataclass(frozen=True, eq=False, slots=True)
class Term(_Limit):
    """
    A value built in Python; arithmetic gives terms, comparison gives a `Formula`.

    Equality builds a limit too, so terms can be neither hashed nor looked for in a list; compare
    ``term.node`` for that.

    Parameters
    ----------
    node
        Its tree.
    """

    node: Value
    __hash__ = None  # type: ignore[assignment]

    def __neg__(self) -> Term:
        """Change the sign."""
        return Term(negative(Part(self.node)))

    __add__ = _arithmetic(Operation.SUM)
    __radd__ = _arithmetic(Operation.SUM, swap=True)
    __sub__ = _arithmetic(Operation.DIFFERENCE)
    __rsub__ = _arithmetic(Operation.DIFFERENCE, swap=True)
    __mul__ = _arithmetic(Operation.PRODUCT)
    __rmul__ = _arithmetic(Operation.PRODUCT, swap=True)
    __floordiv__ = _arithmetic(Operation.QUOTIENT)
    __rfloordiv__ = _arithmetic(Operation.QUOTIENT, swap=True)
    __mod__ = _arithmetic(Operation.REMAINDER)
    __rmod__ = _arithmetic(Operation.REMAINDER, swap=True)
    __eq__ = _comparison(Relation.EQUAL)  # type: ignore[assignment]
    __ne__ = _comparison(Relation.UNEQUAL)  # type: ignore[assignment]
    __lt__ = _comparison(Relation.LESS)
    __le__ = _comparison(Relation.AT_MOST)
    __gt__ = _comparison(Relation.MORE)
    __ge__ = _comparison(Relation.AT_LEAST)

    def among(self, values: Iterable[Operand]) -> Formula:
        """Equal to one of the values, as ``in`` says it in text."""
        return Formula(membership(Part(self.node), list(map(_part, values))))


Operand = Term | int | float | Fraction | str
"""What a `Term` takes part with; a text is a quantity such as ``"72 GB"`` or a word."""


def choice(name: str) -> Term:
    """Start a limit in Python: ``choice("tp") * choice("pp") <= 32``."""
    return Term(named(name))


def _part(given: Operand) -> Part:
    """Turn what stands beside a term into a part of the limit."""
    if isinstance(given, Term):
        return Part(given.node)
    if isinstance(given, bool):
        given = str(given).lower()
    if isinstance(given, str):
        return operand(given)
    if isinstance(given, float) and not math.isfinite(given):
        raise ExpressionError(0, f"{given} is not a number", "give a finite number")
    exact = Fraction(repr(given)) if isinstance(given, float) else Fraction(given)
    node = literal(abs(exact))
    return Part(Negative(node) if exact < 0 else node)
