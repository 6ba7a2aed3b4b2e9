"""The smallest parts of a limit: names, words, numbers and quantities with a unit."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from optplan.models import units
from optplan.models.errors import QuantityError
from optplan.models.expression.text import show
from optplan.models.expression.tree import ExpressionError, Name, Node, Number
from optplan.models.expression.vocabulary import ALIASES, NAMES, WORDS, Dimension

DIGITS: Final = 18
"""Digits a number may have; any such whole number fits in 64 bits."""


@dataclass(frozen=True, slots=True)
class Word:
    """A word such as ``full`` before it is clear that it is compared with its name."""

    text: str


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a limit that is being built, and where in the text it begins."""

    node: Node | Word
    column: int = 0


def named(name: str, column: int = 0) -> Name:
    """Return the node of a name or an alias."""
    full = ALIASES.get(name, name)
    if full in NAMES:
        return Name(full)
    known = [*NAMES, *ALIASES, *sorted(WORDS)]
    near = [k for k in known if k.lower() == name.lower()] or difflib.get_close_matches(
        name, known, n=1, cutoff=0.7
    )
    remedy = f"did you mean {near[0]}?" if near else f"known are {', '.join(NAMES)}"
    raise ExpressionError(column, f"{name!r} is not a name", remedy)


def literal(value: Fraction, column: int = 0) -> Number:
    """Return the node of a plain number that can be written down."""
    if 10 ** value.denominator.bit_length() % value.denominator:
        problem = f"{value} has endless decimals"
        raise ExpressionError(column, problem, "multiply the other side instead")
    node = _number(value, Dimension.NUMBER)
    few_digits(show(node), column)
    return node


def few_digits(text: str, column: int = 0) -> None:
    """Refuse a number of more than `DIGITS` digits."""
    if sum(c.isdigit() for c in text) > DIGITS:
        problem = f"a number has more than {DIGITS} digits"
        raise ExpressionError(column, problem, "write a shorter number")


def seconds(value: float) -> Number:
    """Return a time as exactly the decimal that its float is printed as."""
    return _number(Fraction(repr(value)), Dimension.SECONDS)


def quantity(number: str, unit: str, columns: tuple[int, int]) -> Number:
    """
    Return a number with its unit as bytes or seconds.

    Parameters
    ----------
    number, unit
        As they were written.
    columns
        Where either begins.
    """
    if unit in NAMES or unit in ALIASES or unit in WORDS:
        remedy = "remove one" if unit in WORDS else f"write {number} * {unit}"
        raise ExpressionError(columns[1], f"{unit!r} is not a unit", remedy)
    if unit.startswith("_"):
        raise ExpressionError(columns[1], "'_' stands inside a number", "write the digits only")
    text = f"{number} {unit}"
    try:
        if unit.lower().endswith(("b", "bytes", "byte")):
            return Number(units.parse(text, "bytes"), Dimension.BYTES)
        return seconds(units.parse(text, "seconds"))
    except QuantityError as error:
        problem, _, remedy = str(error).rpartition("; ")
        raise ExpressionError(columns[0], problem, remedy) from error


def _number(value: Fraction, dimension: Dimension) -> Number:
    """Return a constant, as an integer where it is whole."""
    return Number(int(value) if value.denominator == 1 else value, dimension)
