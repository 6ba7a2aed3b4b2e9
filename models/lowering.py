"""A user's condition as rows, tables and definitions of the neutral program."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from optplan.models.builder import Builder
from optplan.models.errors import Fault, InputError
from optplan.models.expression import (
    And,
    Binary,
    Comparison,
    Condition,
    Greatest,
    Least,
    Name,
    Negative,
    Not,
    Number,
    Operation,
    Or,
    Relation,
    Value,
    evaluate,
    names,
    show,
)
from optplan.models.program import LARGEST, Integers, Terms

SAME_TIME = Fraction(1, 10**9)
"""Times that differ by less than this share are equal to a limit."""

LARGEST_TABULATED = 200_000
"""A condition on choices alone is tabulated up to this many combinations, else spelt in rows."""


@dataclass(frozen=True)
class Linear:
    """A linear combination of program columns with exact coefficients."""

    terms: dict[str, Fraction] = field(default_factory=dict)
    constant: Fraction = Fraction(0)

    def plus(self, other: Linear, factor: Fraction = Fraction(1)) -> Linear:
        """Add a multiple of another."""
        terms = dict(self.terms)
        for column, k in other.terms.items():
            terms[column] = terms.get(column, Fraction(0)) + factor * k
        terms = {column: k for column, k in terms.items() if k}
        return Linear(terms, self.constant + factor * other.constant)

    def times(self, factor: Fraction) -> Linear:
        """Multiply by a number."""
        return Linear().plus(self, factor)

    def whole(self) -> tuple[Terms, Fraction]:
        """Terms with whole coefficients, and the constant on the same scale."""
        scale = math.lcm(*(k.denominator for k in self.terms.values())) if self.terms else 1
        terms = tuple((int(k * scale), column) for column, k in self.terms.items())
        return terms, self.constant * scale


class Lowering:
    """
    Writes conditions into a program under one rule's name.

    Parameters
    ----------
    say
        The program being written.
    name
        Rule name that every statement carries.
    columns
        What each name of the language is: a column and the worth of one of its units, or a plain
        number.
    blur
        Columns that hold times, each with the units by which it may be rounded down.
    """

    def __init__(
        self,
        say: Builder,
        name: str,
        columns: Mapping[str, tuple[str, Fraction] | Fraction],
        blur: Mapping[str, int],
    ) -> None:
        self._say, self._name, self._columns = say, name, columns
        self._blur = dict(blur)
        self._made = 0

    def demand(self, node: Condition) -> None:
        """Write that a condition must hold."""
        if isinstance(node, And):
            for part in node.parts:
                self.demand(part)
        elif not self._tabulate(node):
            match node:
                case Comparison(relation, left, right) if relation is not Relation.UNEQUAL:
                    self._row(relation, self._linear(left).plus(self._linear(right), Fraction(-1)))
                case _:
                    self._say.row(self._name, ((1, self._flag(node)),), low=1)

    def _tabulate(self, node: Condition) -> bool:
        """Restrict by a table of legal tuples, where the condition has few enough combinations."""
        asked = sorted(names(node))
        keys = tuple(n for n in asked if not isinstance(self._columns[n], Fraction))
        if not keys or any(k not in self._say.domain for k in keys):
            return False
        if math.prod(len(self._say.domain[k]) for k in keys) > LARGEST_TABULATED:
            return False
        fixed = {n: int(c) for n in asked if isinstance(c := self._columns[n], Fraction)}

        def legal(*values: Integers) -> NDArray[np.bool_]:
            answer = evaluate(node, fixed | dict(zip(keys, values, strict=True)))
            return np.broadcast_to(np.asarray(answer, dtype=bool), values[0].shape)

        self._say.allow(self._name, keys, legal)
        return True

    def _row(self, relation: Relation, difference: Linear) -> None:
        """Demand that a linear combination compares with zero as asked."""
        terms, low, high = self._bounds(relation, difference)
        self._say.row(self._name, terms, *self._clipped(terms, low, high))

    def _flag(self, node: Condition) -> str:
        """Define a 0/1 column by a condition."""
        match node:
            case And(parts):
                return self._truth(tuple((1, self._flag(p)) for p in parts), low=len(parts))
            case Or(parts):
                return self._truth(tuple((1, self._flag(p)) for p in parts), low=1)
            case Not(part):
                return self._truth(((1, self._flag(part)),), high=0)
            case Comparison(Relation.UNEQUAL, left, right):
                return self._truth(
                    ((1, self._flag(Comparison(Relation.EQUAL, left, right))),), high=0
                )
            case Comparison(relation, left, right):
                difference = self._linear(left).plus(self._linear(right), Fraction(-1))
                return self._truth(*self._bounds(relation, difference))

    def _truth(self, terms: Terms, low: int | None = None, high: int | None = None) -> str:
        """Define a 0/1 column by bounds."""
        result = self._new("holds")
        self._say.truth(self._name, result, terms, *self._clipped(terms, low, high))
        return result

    def _bounds(
        self, relation: Relation, difference: Linear
    ) -> tuple[Terms, int | None, int | None]:
        """
        Turn ``difference relation 0`` into whole terms with bounds.

        Times count as equal within ``SAME_TIME`` of each other and of their rounding to ticks, so
        that ``<=`` and ``==`` hold at a plan's own printed step time and ``<`` does not.
        """
        terms, constant = difference.whole()
        zero = -constant
        slack = 0
        if any(column in self._blur for _, column in terms):
            slack = math.floor(abs(zero) * SAME_TIME)
            slack += sum(abs(k) * self._blur.get(column, 0) for k, column in terms)
        match relation:
            case Relation.AT_MOST:
                return terms, None, math.floor(zero) + slack
            case Relation.LESS:
                return terms, None, math.ceil(zero) - 1 - slack
            case Relation.AT_LEAST:
                return terms, math.ceil(zero) - slack, None
            case Relation.MORE:
                return terms, math.floor(zero) + 1 + slack, None
            case _:
                # No whole number equals a fraction: an empty range says so.
                return terms, math.ceil(zero) - slack, math.floor(zero) + slack

    def _clipped(
        self, terms: Terms, low: int | None, high: int | None
    ) -> tuple[int | None, int | None]:
        """Bring bounds beyond 64 bits into the reach of a linear combination."""
        least, most = self._reach(terms, 0)
        if low is not None and abs(low) > LARGEST:
            low = least if low < 0 else most + 1
        if high is not None and abs(high) > LARGEST:
            high = most if high > 0 else least - 1
        return low, high

    def _reach(self, terms: Terms, constant: int) -> tuple[int, int]:
        """Smallest and largest value of a linear combination; refuses one beyond 64 bits."""
        ends = [sorted(k * end for end in self._say.bounds[column]) for k, column in terms]
        least, most = sum(e[0] for e in ends) + constant, sum(e[1] for e in ends) + constant
        # Partial sums count too: an engine may add the terms in any order.
        size = sum(max(abs(e[0]), abs(e[1])) for e in ends) + abs(constant)
        if size > LARGEST:
            raise self._refuse(f"adds up to {size:.3g}")
        return least, most

    def _linear(self, node: Value) -> Linear:
        """Bring a value into linear form, defining columns for what is not linear."""
        match node:
            case Number(value, _):
                return Linear(constant=Fraction(value))
            case Name(name):
                known = self._columns[name]
                return (
                    Linear(constant=known)
                    if isinstance(known, Fraction)
                    else Linear({known[0]: known[1]})
                )
            case Negative(part):
                return self._linear(part).times(Fraction(-1))
            case Least(parts) | Greatest(parts):
                return self._extreme([self._linear(p) for p in parts], isinstance(node, Least))
            case Binary(operation, left, right):
                return self._binary(operation, self._linear(left), self._linear(right), node)

    def _binary(self, operation: Operation, left: Linear, right: Linear, node: Value) -> Linear:
        """Join two linear forms."""
        match operation:
            case Operation.SUM:
                return left.plus(right)
            case Operation.DIFFERENCE:
                return left.plus(right, Fraction(-1))
            case Operation.PRODUCT:
                if not left.terms or not right.terms:
                    return (
                        right.times(left.constant) if not left.terms else left.times(right.constant)
                    )
                one, other = self._column(left), self._column(right)
                result = self._new("product")
                ends = [self._say.bounds[c[0]] for c in (one, other)]
                size = max(abs(a * b) for a in ends[0] for b in ends[1])
                if size > LARGEST:
                    raise self._refuse(f"multiplies up to {size:.3g}")
                self._say.multiply(self._name, result, one[0], other[0])
                self._follows(result, one[0], other[0])
                return Linear({result: one[1] * other[1]})
            case _:
                return self._divided(operation, left, right, node)

    def _divided(self, operation: Operation, left: Linear, right: Linear, node: Value) -> Linear:
        """Floor division or its remainder; a negative dividend is lifted first."""
        if not left.terms and not right.terms and right.constant > 0:
            quotient = Fraction(left.constant // right.constant)
            rest = left.constant - quotient * right.constant
            return Linear(constant=quotient if operation is Operation.QUOTIENT else rest)
        (one, one_scale), (other, other_scale) = self._column(left), self._column(right)
        # The language only divides whole numbers, so both scales are reciprocals of whole numbers.
        scale = math.lcm(one_scale.denominator, other_scale.denominator)
        one, other = self._scaled(one, one_scale * scale), self._scaled(other, other_scale * scale)
        low, _ = self._say.bounds[one]
        least, _ = self._say.bounds[other]
        if least < 1:
            problem = f"divides by {show(node)}, which may be {least}"
            raise InputError([Fault("", self._name, problem, "divide by something of at least 1")])
        lift = max(0, -(low // least))
        lifted = self._sum(((1, one), (lift, other))) if lift else one
        quotient_, remainder = self._new("quotient"), self._new("remainder")
        self._say.divide(self._name, quotient_, remainder, lifted, other)
        self._follows(quotient_, lifted, other)
        if operation is Operation.REMAINDER:
            return Linear({remainder: Fraction(1, scale)})
        return Linear({quotient_: Fraction(1)}, Fraction(-lift))

    def _extreme(self, parts: list[Linear], least: bool) -> Linear:
        """Smallest or largest of linear forms, on one common scale."""
        scale = math.lcm(
            *(k.denominator for part in parts for k in (*part.terms.values(), part.constant))
        )
        columns = tuple(self._on_scale(part, scale) for part in parts)
        result = self._new("least" if least else "greatest")
        (self._say.smallest if least else self._say.largest)(self._name, result, columns)
        self._follows(result, *columns)
        return Linear({result: Fraction(1, scale)})

    def _column(self, form: Linear) -> tuple[str, Fraction]:
        """Return one column that holds a linear form, and the worth of its unit."""
        if len(form.terms) == 1 and not form.constant:
            ((column, k),) = form.terms.items()
            return column, k
        scale = math.lcm(*(k.denominator for k in (*form.terms.values(), form.constant)))
        return self._on_scale(form, scale), Fraction(1, scale)

    def _on_scale(self, form: Linear, scale: int) -> str:
        """Define a column that holds a linear form times a scale that makes it whole."""
        terms = tuple((int(k * scale), c) for c, k in form.terms.items())
        return self._sum(terms, int(form.constant * scale))

    def _scaled(self, column: str, factor: Fraction) -> str:
        """Return a column times a whole number."""
        return column if factor == 1 else self._sum(((int(factor), column),))

    def _sum(self, terms: Terms, constant: int = 0) -> str:
        """Define a linear combination."""
        self._reach(terms, constant)
        result = self._new("sum")
        self._say.sum(self._name, result, terms, constant)
        self._follows(result, *(column for _, column in terms))
        return result

    def _follows(self, result: str, *columns: str) -> None:
        """Mark a column that is made of times as a time too."""
        if any(column in self._blur for column in columns):
            self._blur[result] = max(self._blur.get(column, 0) for column in columns)

    def _refuse(self, problem: str) -> InputError:
        """Refuse a limit that cannot be written down in whole numbers of 64 bits."""
        remedy = "use fewer digits, smaller numbers, or conditions on the choices themselves"
        return InputError([Fault("", self._name, f"the limit {problem}, beyond 64 bits", remedy)])

    def _new(self, what: str) -> str:
        """Name a fresh column."""
        self._made += 1
        return f"{self._name}.{what}{self._made}"
