"""The tree of a limit: plain data that text is read into and that everything else walks."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from typing import Final, TypeVar

from optplan.models.errors import OptplanError
from optplan.models.expression.vocabulary import Dimension

DEPTH: Final = 50
"""Levels a limit may nest; every walk over a tree may recurse because of this."""

NODES: Final = 10_000
"""Parts a limit may have once chains and lists are written out."""


class ExpressionError(OptplanError, ValueError):
    """
    A limit that cannot be read.

    Parameters
    ----------
    column
        Where in the text, counted from 0; 0 for a limit that was built in Python.
    problem
        What is wrong.
    remedy
        What would be right.
    """

    def __init__(self, column: int, problem: str, remedy: str) -> None:
        super().__init__(f"{problem}; {remedy}")
        self.column = column
        self.problem = problem
        self.remedy = remedy


class Operation(Enum):
    """Arithmetic of two values; `QUOTIENT` and `REMAINDER` round towards minus infinity."""

    SUM = "+"
    DIFFERENCE = "-"
    PRODUCT = "*"
    QUOTIENT = "//"
    REMAINDER = "%"


class Relation(Enum):
    """Comparison of two values."""

    EQUAL = "=="
    UNEQUAL = "!="
    LESS = "<"
    AT_MOST = "<="
    MORE = ">"
    AT_LEAST = ">="


@dataclass(frozen=True, slots=True)
class Number:
    """A constant, never below 0; whole unless decimals were written, in bytes or seconds if so."""

    value: int | Fraction
    dimension: Dimension = Dimension.NUMBER


@dataclass(frozen=True, slots=True)
class Name:
    """A name of `NAMES`, in its long form."""

    name: str


@dataclass(frozen=True, slots=True)
class Negative:
    """A value with its sign changed."""

    part: Value


@dataclass(frozen=True, slots=True)
class Binary:
    """Two values joined by arithmetic."""

    operation: Operation
    left: Value
    right: Value


@dataclass(frozen=True, slots=True)
class Least:
    """The least of two values or more."""

    parts: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Greatest:
    """The greatest of two values or more."""

    parts: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two values compared; a word is always on the right, as the `Number` of its code."""

    relation: Relation
    left: Value
    right: Value


@dataclass(frozen=True, slots=True)
class And:
    """True where all parts are."""

    parts: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """True where any part is."""

    parts: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Not:
    """True where its part is not."""

    part: Condition


Value = Number | Name | Negative | Binary | Least | Greatest
Condition = Comparison | And | Or | Not
Node = Value | Condition

_N = TypeVar("_N", bound=Node)


def children(node: Node) -> tuple[Node, ...]:
    """Return the nodes right below this one."""
    match node:
        case Number() | Name():
            return ()
        case Negative(part) | Not(part):
            return (part,)
        case Binary(_, left, right) | Comparison(_, left, right):
            return (left, right)
        case Least(parts) | Greatest(parts) | And(parts) | Or(parts):
            return parts


def names(node: Node) -> frozenset[str]:
    """Return every name that the tree mentions."""
    if isinstance(node, Name):
        return frozenset((node.name,))
    return frozenset[str]().union(*map(names, children(node)))


def bounded(node: _N, column: int = 0) -> _N:
    """
    Return the node itself if walks over it stay cheap and shallow.

    Raises
    ------
    ExpressionError
        If it nests more than `DEPTH` levels or has more than `NODES` parts.
    """
    level: list[Node] = [node]
    depth = total = 0
    while level:
        depth, total = depth + 1, total + len(level)
        if depth > DEPTH:
            raise too_deep(column)
        if total > NODES:
            problem = f"this has more than {NODES} parts"
            raise ExpressionError(column, problem, "split it into several limits")
        level = [child for parent in level for child in children(parent)]
    return node


def too_deep(column: int) -> ExpressionError:
    """Return the error for a limit that nests beyond `DEPTH`."""
    problem = f"this nests more than {DEPTH} levels"
    return ExpressionError(column, problem, "split it into several limits")
