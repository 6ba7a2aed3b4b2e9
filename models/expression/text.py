"""From a tree back to text, in the standard form."""

from __future__ import annotations

from decimal import Context, Decimal
from itertools import pairwise

from optplan.models import units
from optplan.models.expression.tree import (
    And,
    Binary,
    Comparison,
    Condition,
    Greatest,
    Least,
    Name,
    Negative,
    Node,
    Not,
    Number,
    Operation,
    Or,
    Relation,
)
from optplan.models.expression.vocabulary import NAMES, Dimension

_OR, _AND, _NOT, _COMPARE, _ADD, _MULTIPLY, _SIGN, _ATOM = range(8)
_EXACT = Context(prec=50)


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
        case Number():
            return _constant(node), _ATOM
        case Name(name):
            return name, _ATOM
        case Negative(part):
            return f"-{_at(part, _SIGN)}", _SIGN
        case Binary(operation, left, right):
            additive = operation in (Operation.SUM, Operation.DIFFERENCE)
            level = _ADD if additive else _MULTIPLY
            return f"{_at(left, level)} {operation.value} {_at(right, level + 1)}", level
        case Least(parts) | Greatest(parts):
            word = "min" if isinstance(node, Least) else "max"
            return f"{word}({', '.join(map(show, parts))})", _ATOM
        case Comparison(relation, left):
            return f"{_at(left, _ADD)} {relation.value} {_right(node)}", _COMPARE
        case Not(Or(parts)) if (listed := _members(parts)) is not None:
            return " not in ".join(listed), _COMPARE
        case Not(part):
            return f"not {_at(part, _NOT)}", _NOT
        case And(parts):
            if (chain := _chain(parts)) is not None:
                return chain, _COMPARE
            return " and ".join(_at(part, _NOT) for part in parts), _AND
        case Or(parts):
            if (listed := _members(parts)) is not None:
                return " in ".join(listed), _COMPARE
            return " or ".join(_at(part, _AND) for part in parts), _OR


def _at(node: Node, level: int) -> str:
    """Render a node for a place that needs at least this binding."""
    text, own = _show(node)
    return text if own >= level else f"({text})"


def _right(node: Comparison) -> str:
    """Render the right side; the code of a word as that word."""
    match node:
        case Comparison(_, Name(name), Number(value)) if NAMES[name].words:
            return NAMES[name].words[int(value)]
    return _at(node.right, _ADD)


def _members(parts: tuple[Condition, ...]) -> tuple[str, str] | None:
    """Render ``x == a or x == b`` as the two sides of the membership it came from."""
    found = [p for p in parts if isinstance(p, Comparison) and p.relation is Relation.EQUAL]
    if len(found) < len(parts) or any(part.left != found[0].left for part in found):
        return None
    return _at(found[0].left, _ADD), f"[{', '.join(map(_right, found))}]"


def _chain(parts: tuple[Condition, ...]) -> str | None:
    """Render ``a <= x and x <= b`` as the chain it came from."""
    found = [part for part in parts if isinstance(part, Comparison)]
    if len(found) < len(parts) or any(a.right != b.left for a, b in pairwise(found)):
        return None
    rest = (f" {part.relation.value} {_right(part)}" for part in found)
    return _at(found[0].left, _ADD) + "".join(rest)


def _constant(number: Number) -> str:
    """Render a constant, with a unit if it has a dimension."""
    value = number.value
    if number.dimension is Dimension.BYTES:
        return units.show(int(value), "bytes")
    if number.dimension is Dimension.SECONDS:
        return units.show(float(value), "seconds")
    if isinstance(value, int):
        return str(value)
    return f"{_EXACT.divide(Decimal(value.numerator), Decimal(value.denominator)):f}"
