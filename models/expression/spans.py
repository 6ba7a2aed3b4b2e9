"""Between what a value lies, whatever the choices are."""

from __future__ import annotations

from fractions import Fraction
from math import inf

from optplan.models.expression.tree import (
    Binary,
    ExpressionError,
    Greatest,
    Least,
    Name,
    Negative,
    Number,
    Operation,
    Value,
)

Bound = Fraction | float
"""An exact number, or infinity of either sign."""

_LEAST = {"zero": 0}
"""Least value of a choice, where that is not 1."""

_MOST = {"zero": 3}


def span(node: Value) -> tuple[Bound, Bound]:
    """
    Return bounds of a value, from what its parts may be.

    Raises
    ------
    ExpressionError
        It may divide by zero.
    """
    match node:
        case Number(value, _):
            return Fraction(value), Fraction(value)
        case Name(name):
            most: Bound = Fraction(_MOST[name]) if name in _MOST else inf
            return Fraction(_LEAST.get(name, 1)), most
        case Negative(part):
            low, high = span(part)
            return -high, -low
        case Least(parts):
            both = [span(part) for part in parts]
            return min(low for low, _ in both), min(high for _, high in both)
        case Greatest(parts):
            both = [span(part) for part in parts]
            return max(low for low, _ in both), max(high for _, high in both)
        case Binary(operation, left, right):
            return _joined(operation, span(left), span(right))


def _joined(
    operation: Operation, left: tuple[Bound, Bound], right: tuple[Bound, Bound]
) -> tuple[Bound, Bound]:
    """Return bounds of two values joined."""
    (a, b), (c, d) = left, right
    if operation is Operation.SUM:
        return a + c, b + d
    if operation is Operation.DIFFERENCE:
        return a - d, b - c
    if operation is Operation.PRODUCT:
        ends = [_times(x, y) for x in (a, b) for y in (c, d)]
        return min(ends), max(ends)
    if c <= 0 <= d:
        raise ExpressionError(0, f"'{operation.value}' may divide by zero", "divide by 1 or more")
    if operation is Operation.REMAINDER:
        # It has the sign of what divides, and is smaller.
        return (Fraction(0), d) if c > 0 else (c, Fraction(0))
    ends = [_over(x, y) for x in (a, b) for y in (c, d)]
    return min(ends), max(ends)


def _times(x: Bound, y: Bound) -> Bound:
    """Multiply; nothing of infinity is nothing."""
    return Fraction(0) if x == 0 or y == 0 else x * y


def _over(x: Bound, y: Bound) -> Bound:
    """Divide and round down; a share of infinity is nothing, or just below it."""
    if abs(y) == inf:
        return Fraction(0) if x == 0 or (x > 0) == (y > 0) else Fraction(-1)
    if abs(x) == inf:
        return x if y > 0 else -x
    return Fraction(x // y)
