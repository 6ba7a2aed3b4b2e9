"""
The language of a user's own limits: its names, its tree, its meaning and its text.

A limit is a condition over the choices of a plan and what follows from them, such as
``tp * pp <= 32``, ``peak_memory <= 72 GB`` or ``recompute in [none, full]``.  The tree is plain
data: text becomes a tree in `optplan.models.expression_parser`, never through Python's own reader.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from functools import reduce
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from optplan.models import units
from optplan.models.errors import OptplanError
from optplan.models.spec.space import RECOMPUTES


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


class Dimension(Enum):
    """What a value measures; only values of one dimension can be added or compared."""

    NUMBER = "a number"
    BYTES = "a size in bytes"
    SECONDS = "a time in seconds"
    WORD = "one of a few words"
    TRUTH = "true or false"


@dataclass(frozen=True, slots=True)
class Known:
    """What the language knows of one name."""

    dimension: Dimension = Dimension.NUMBER
    alias: str = ""
    words: tuple[str, ...] = ()
    """Words for the codes 0, 1, ...; a name that has words is compared with nothing else."""


NAMES: Final[Mapping[str, Known]] = {
    "tp": Known(alias="t"),
    "pp": Known(alias="p"),
    "dp": Known(alias="d"),
    "micro_batch": Known(alias="b"),
    "micro_batches": Known(alias="m"),
    "global_batch": Known(alias="G"),
    "sequence_parallel": Known(Dimension.TRUTH, words=("false", "true")),
    "recompute": Known(Dimension.WORD, words=RECOMPUTES),
    "zero": Known(),
    "devices": Known(),
    "peak_memory": Known(Dimension.BYTES),
    "step_seconds": Known(Dimension.SECONDS),
}
"""Every name a limit may use; a new one needs a line here and nothing else in the language."""

ALIASES: Final = {known.alias: name for name, known in NAMES.items() if known.alias}
WORDS: Final = frozenset(word for known in NAMES.values() for word in known.words)

DIGITS = 18
"""Digits a number may have; any such whole number fits in 64 bits."""


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


def parse(text: str) -> Condition:
    """
    Read one limit.

    Raises
    ------
    ExpressionError
        With the column and the remedy, for everything that is not a condition of this language.
    """
    node: Condition = _grammar().parse(text)
    return node


def _grammar() -> Any:
    """Return the parser, which builds on this module and so cannot be imported before it."""
    from optplan.models import expression_parser

    return expression_parser


# -- text ------------------------------------------------------------------------------------------

_OR, _AND, _NOT, _COMPARE, _ADD, _MULTIPLY, _SIGN, _ATOM = range(8)
_ADDITIVE = (Operation.SUM, Operation.DIFFERENCE)


def show(node: Node) -> str:
    """
    Render the tree as text.

    Whatever `parse` returned is read back as an equal tree, provided that the long names and the
    blanks keep the text within the length that `parse` takes.
    """
    return _show(node)[0]


def _show(node: Node) -> tuple[str, int]:
    """Render one node, and say how tightly its outermost operator binds."""
    match node:
        case Number(value, dimension):
            return _constant(value, dimension), _ATOM
        case Name(name):
            return name, _ATOM
        case Negative(part):
            return f"-{_at(part, _SIGN)}", _SIGN
        case Binary(operation, left, right):
            level = _ADD if operation in _ADDITIVE else _MULTIPLY
            return f"{_at(left, level)} {operation.value} {_at(right, level + 1)}", level
        case Least(parts) | Greatest(parts):
            word = "min" if isinstance(node, Least) else "max"
            return f"{word}({', '.join(map(show, parts))})", _ATOM
        case Comparison(relation, left, right):
            return f"{_at(left, _ADD)} {relation.value} {_right(node)}", _COMPARE
        case Not(part):
            listed = _members(part) if isinstance(part, Or) else None
            if listed is not None:
                return f"{listed[0]} not in {listed[1]}", _COMPARE
            return f"not {_at(part, _NOT)}", _NOT
        case And(parts):
            chain = _chain(parts)
            if chain is not None:
                return chain, _COMPARE
            return " and ".join(_at(part, _NOT) for part in parts), _AND
        case Or(parts):
            listed = _members(node)
            if listed is not None:
                return f"{listed[0]} in {listed[1]}", _COMPARE
            return " or ".join(_at(part, _AND) for part in parts), _OR


def _at(node: Node, level: int) -> str:
    """Render a node for a place that needs at least this binding."""
    text, own = _show(node)
    return text if own >= level else f"({text})"


def _right(node: Comparison) -> str:
    """Render the right side; the code of a word as that word."""
    match node:
        case Comparison(_, Name(name), Number(value, _)) if NAMES[name].words:
            return NAMES[name].words[int(value)]
    return _at(node.right, _ADD)


def _members(node: Or) -> tuple[str, str] | None:
    """Render ``x == a or x == b`` as the membership it came from."""
    found = [
        part
        for part in node.parts
        if isinstance(part, Comparison) and part.relation is Relation.EQUAL
    ]
    if len(found) < len(node.parts) or any(part.left != found[0].left for part in found):
        return None
    return _at(found[0].left, _ADD), f"[{', '.join(map(_right, found))}]"


def _chain(parts: tuple[Condition, ...]) -> str | None:
    """Render ``a <= x and x <= b`` as the chain it came from."""
    found = [part for part in parts if isinstance(part, Comparison)]
    if len(found) < len(parts) or any(
        first.right != second.left for first, second in pairwise(found)
    ):
        return None
    rest = (f" {part.relation.value} {_right(part)}" for part in found)
    return _at(found[0].left, _ADD) + "".join(rest)


def _constant(value: int | Fraction, dimension: Dimension) -> str:
    """Render a constant, with a unit if it has a dimension."""
    if dimension is Dimension.BYTES:
        return units.show(int(value), "bytes")
    if dimension is Dimension.SECONDS:
        return units.show(float(value), "seconds")
    places = 0
    while (value * 10**places).denominator != 1:
        places += 1
    digits = str(int(value * 10**places)).rjust(places + 1, "0")
    return f"{digits[: len(digits) - places]}.{digits[len(digits) - places :]}".rstrip(".")


# -- meaning ---------------------------------------------------------------------------------------

Scalar = int | float | Fraction
Values = Scalar | NDArray[Any]
Given = int | float | np.generic | NDArray[Any]
Truths = bool | NDArray[np.bool_]

_RELATIONS: Final[Mapping[Relation, Callable[..., Any]]] = {
    Relation.EQUAL: np.equal,
    Relation.UNEQUAL: np.not_equal,
    Relation.LESS: np.less,
    Relation.AT_MOST: np.less_equal,
    Relation.MORE: np.greater,
    Relation.AT_LEAST: np.greater_equal,
}
_SCALAR_RELATIONS: Final[Mapping[Relation, Callable[..., bool]]] = {
    Relation.EQUAL: operator.eq,
    Relation.UNEQUAL: operator.ne,
    Relation.LESS: operator.lt,
    Relation.AT_MOST: operator.le,
    Relation.MORE: operator.gt,
    Relation.AT_LEAST: operator.ge,
}
_OPERATIONS: Final[Mapping[Operation, Callable[..., Any]]] = {
    Operation.SUM: operator.add,
    Operation.DIFFERENCE: operator.sub,
    Operation.PRODUCT: operator.mul,
    Operation.QUOTIENT: operator.floordiv,
    Operation.REMAINDER: operator.mod,
}


def evaluate(node: Condition, values: Mapping[str, Given]) -> Truths:
    """
    Tell whether the condition holds, elementwise where values are arrays.

    Arithmetic on whole numbers is exact, also beyond 64 bits.  Decimals are exact fractions until
    they meet a float.  A comparison whose value divides by zero is False where it does, whichever
    way it compares; `not` of it is then True, as usual in constraint languages.

    Parameters
    ----------
    node
        What `parse` returned.
    values
        A number or an array for every name in ``names(node)``; arrays are broadcast.  Words are
        given as their codes.

    Returns
    -------
    A plain truth value if no array with a dimension took part, else an array of truth values.
    """
    match node:
        case Comparison(relation, left, right):
            undefined: list[Truths] = []
            one, other = _level(_number(left, values, undefined), _number(right, values, undefined))
            arrays = isinstance(one, np.ndarray) or isinstance(other, np.ndarray)
            table = _RELATIONS if arrays else _SCALAR_RELATIONS
            holds: Truths = table[relation](one, other)
            return reduce(lambda truth, zero: _plain(np.greater(truth, zero)), undefined, holds)
        case And(parts):
            every = (evaluate(part, values) for part in parts)
            return reduce(lambda a, b: _plain(np.logical_and(a, b)), every)
        case Or(parts):
            every = (evaluate(part, values) for part in parts)
            return reduce(lambda a, b: _plain(np.logical_or(a, b)), every)
        case Not(part):
            return _plain(np.logical_not(evaluate(part, values)))


def _plain(truth: Any) -> Truths:
    """Turn NumPy's scalar truth into Python's."""
    return truth if isinstance(truth, np.ndarray) else bool(truth)


def _number(node: Value, values: Mapping[str, Any], undefined: list[Truths]) -> Values:
    """Compute a value, and note in `undefined` where it divided by zero."""
    match node:
        case Number(value, _):
            return value
        case Name(name):
            return _given(values[name])
        case Negative(part):
            return _join(operator.sub, 0, _number(part, values, undefined))
        case Binary(operation, left, right):
            one, other = (_number(part, values, undefined) for part in (left, right))
            if operation in (Operation.QUOTIENT, Operation.REMAINDER):
                zero = other == 0
                if np.any(zero):
                    undefined.append(zero)
                    other = np.where(zero, 1, other) if isinstance(other, np.ndarray) else 1
            return _join(_OPERATIONS[operation], one, other)
        case Least(parts) | Greatest(parts):
            least = isinstance(node, Least)
            several = (_number(part, values, undefined) for part in parts)
            return reduce(lambda a, b: _extreme(least, a, b), several)


def _given(value: Any) -> Values:
    """Widen what the caller gave, so that narrow or unsigned integers do not wrap around."""
    array = np.asarray(value)
    if array.ndim == 0:
        scalar: Scalar = value.item() if isinstance(value, np.ndarray | np.generic) else value
        return scalar
    if array.dtype.kind == "f":
        return array.astype(np.float64)
    if array.dtype.kind == "u" and array.dtype.itemsize == 8:
        return array.astype(object)
    return array.astype(np.int64) if array.dtype.kind in "biu" else array


def _join(function: Callable[..., Any], one: Values, other: Values) -> Values:
    """Apply arithmetic to two values, elementwise."""
    one, other = _level(one, other)
    sizes = (_size(one), _size(other))
    bound = sizes[0] * sizes[1] if function is operator.mul else sum(sizes)
    result: Values = function(*_roomy(one, other, bound))
    return result


def _extreme(least: bool, one: Values, other: Values) -> Values:
    """Return the lesser or the greater of two, elementwise."""
    function: Callable[..., Values] = np.minimum if least else np.maximum
    one, other = _level(one, other)
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        return function(*_roomy(one, other, max(_size(one), _size(other))))
    return one if (one < other) is least else other


def _roomy(one: Values, other: Values, bound: Scalar) -> tuple[Values, Values]:
    """Switch to Python's own integers where 64 bits might not hold the outcome."""
    if bound < 2**63:
        return one, other
    return _unbounded(one), _unbounded(other)


def _unbounded(value: Values) -> Values:
    """Let an array of integers hold integers of any size."""
    if isinstance(value, np.ndarray) and value.dtype.kind == "i":
        return value.astype(object)
    return value


def _size(value: Values) -> Scalar:
    """Return the greatest distance from zero; 0 for floats, which never wrap around."""
    if _floats(value):
        return 0
    if isinstance(value, np.ndarray):
        return max(abs(int(value.min())), abs(int(value.max()))) if value.size else 0
    return value if value >= 0 else -value


def _level(one: Values, other: Values) -> tuple[Values, Values]:
    """Turn both into floats if either is, so that 0.1 as written equals 0.1 as computed."""
    if _floats(one) == _floats(other):
        return one, other
    return _float(one), _float(other)


def _floats(value: Values) -> bool:
    """Tell whether this is computed in floats."""
    return isinstance(value, float) or (isinstance(value, np.ndarray) and value.dtype.kind == "f")


def _float(value: Values) -> Values:
    if isinstance(value, np.ndarray):
        return (
            np.array([_float(v) for v in value.flat]).reshape(value.shape)
            if (value.dtype == object)
            else value.astype(np.float64)
        )
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


# -- limits built in Python ------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, slots=True)
class Formula:
    """A condition built in Python; joined by ``&``, ``|`` and ``~``."""

    node: Condition

    def __str__(self) -> str:
        """Render as text of the language."""
        return show(self.node)

    def __bool__(self) -> bool:
        """Refuse the silent loss that ``and``, ``or`` and chained comparisons would cause."""
        raise ExpressionError(
            0, "a limit is neither true nor false by itself", "join limits by & and | instead"
        )

    def __and__(self, other: Formula | Term) -> Formula:
        """Demand both."""
        left = self.node.parts if isinstance(self.node, And) else (self.node,)
        return Formula(_grammar().bounded(And((*left, _condition(other)))))

    def __or__(self, other: Formula | Term) -> Formula:
        """Demand at least one."""
        left = self.node.parts if isinstance(self.node, Or) else (self.node,)
        return Formula(_grammar().bounded(Or((*left, _condition(other)))))

    def __invert__(self) -> Formula:
        """Demand that it does not hold."""
        return Formula(_grammar().bounded(Not(self.node)))


def _arithmetic(operation: Operation, swap: bool = False) -> Callable[[Term, Operand], Term]:
    def method(self: Term, other: Operand) -> Term:
        pair = (self.node, _operand(other))
        return Term(_grammar().combine(operation, *(reversed(pair) if swap else pair)))

    return method


def _comparison(relation: Relation) -> Callable[[Term, Operand], Formula]:
    def method(self: Term, other: Operand) -> Formula:
        return Formula(_grammar().compare(relation, self.node, _operand(other)))

    return method


class Term:
    """
    A value built in Python; arithmetic gives terms, comparison gives a `Formula`.

    Equality builds a limit too, so terms can be neither hashed nor looked for in a list; compare
    ``term.node`` for that.
    """

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, node: Value) -> None:
        self.node: Final = node

    def __str__(self) -> str:
        """Render as text of the language."""
        return show(self.node)

    def __neg__(self) -> Term:
        """Change the sign."""
        return Term(_grammar().negative(self.node))

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
        return Formula(_grammar().membership(self.node, [_operand(v) for v in values]))

    def __and__(self, other: Formula | Term) -> Formula:
        """Demand both, where this is a condition by itself, such as ``sequence_parallel``."""
        return Formula(_condition(self)) & other

    def __or__(self, other: Formula | Term) -> Formula:
        """Demand at least one."""
        return Formula(_condition(self)) | other

    def __invert__(self) -> Formula:
        """Demand that it does not hold."""
        return ~Formula(_condition(self))


Operand = Term | int | float | Fraction | str
"""What a `Term` takes part with; a text is a quantity such as ``"72 GB"`` or a word."""


def choice(name: str) -> Term:
    """Start a limit in Python: ``choice("tp") * choice("pp") <= 32``."""
    return Term(_grammar().named(name))


def _condition(given: Formula | Term) -> Condition:
    node: Condition = _grammar().condition(given.node)
    return node


def _operand(given: Operand) -> Any:
    """Turn what stands beside a term into a node, or into a word that awaits its name."""
    if isinstance(given, Term):
        return given.node
    if isinstance(given, bool):
        given = str(given).lower()
    if isinstance(given, str):
        return _grammar().operand(given)
    if isinstance(given, float) and not np.isfinite(given):
        raise ExpressionError(0, f"{given} is not a number", "give a finite number")
    exact = Fraction(repr(given)) if isinstance(given, float) else Fraction(given)
    node = _grammar().literal(abs(exact))
    return Negative(node) if exact < 0 else node
