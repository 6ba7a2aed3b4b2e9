"""The meaning of limits: random trees are read back as shown, and hold where an oracle says."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from optplan.models.expression import (
    And,
    Binary,
    Comparison,
    Condition,
    Dimension,
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
    Value,
    evaluate,
    leaves,
    parse,
    scanner,
    show,
)

CHOICES = ["tp", "pp", "dp", "devices"]
WHOLES = st.builds(Number, st.integers(0, 12) | st.integers(0, 10**18 - 1))
DECIMALS = st.builds(lambda n: leaves.literal(Fraction(n, 8)), st.integers(0, 80))
LEAVES: st.SearchStrategy[Value] = WHOLES | st.sampled_from(CHOICES).map(Name)


def _values(children: st.SearchStrategy[Value]) -> st.SearchStrategy[Value]:
    several = st.lists(children, min_size=2, max_size=3).map(tuple)
    return (
        st.builds(Binary, st.sampled_from(Operation), children, children)
        | st.builds(Negative, children)
        | st.builds(Least, several)
        | st.builds(Greatest, several)
    )


WHOLE_VALUES = st.recursive(LEAVES, _values, max_leaves=6)
VALUES: st.SearchStrategy[Value] = WHOLE_VALUES | st.builds(
    Binary,
    st.sampled_from([Operation.SUM, Operation.DIFFERENCE, Operation.PRODUCT]),
    WHOLE_VALUES,
    DECIMALS,
)
MEASURED: st.SearchStrategy[tuple[Name, Number]] = st.tuples(
    st.just(Name("peak_memory")),
    st.builds(Number, st.integers(1, 2**40), st.just(Dimension.BYTES)),
) | st.tuples(
    st.just(Name("step_seconds")),
    st.integers(0, 80).map(lambda n: leaves.seconds(n / 8)),
)
WORDY = st.sampled_from(
    [
        parse(f"{name} {sign} {word}")
        for sign in ("==", "!=")
        for name, word in (
            ("recompute", "none"),
            ("recompute", "full"),
            ("recompute", "partial"),
            ("schedule", "zb-v"),
            ("context", "ulysses"),
            ("order", "pipeline_inside"),
            ("sequence_parallel", "true"),
            ("hsdp", "false"),
        )
    ]
)
COMPARISONS: st.SearchStrategy[Condition] = (
    st.builds(Comparison, st.sampled_from(Relation), VALUES, VALUES)
    | st.builds(lambda r, pair: Comparison(r, *pair), st.sampled_from(Relation), MEASURED)
    | WORDY
    | st.lists(VALUES, min_size=2, max_size=3).map(
        lambda xs: Or(tuple(Comparison(Relation.EQUAL, xs[0], x) for x in xs))
    )
    | st.lists(VALUES, min_size=3, max_size=4).map(
        lambda xs: And(tuple(Comparison(Relation.LESS, a, b) for a, b in pairwise(xs)))
    )
)


def _conditions(children: st.SearchStrategy[Condition]) -> st.SearchStrategy[Condition]:
    several = st.lists(children, min_size=2, max_size=3).map(tuple)
    return st.builds(And, several) | st.builds(Or, several) | st.builds(Not, children)


CONDITIONS = st.recursive(COMPARISONS, _conditions, max_leaves=4)


@given(CONDITIONS)
def test_shown_tree_is_read_back(node: Condition) -> None:
    """`parse` undoes `show`."""
    text = show(node)
    if len(text) <= scanner.LENGTH:
        assert parse(text) == node


ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
}


def _oracle(node: Node, values: Mapping[str, Any]) -> Any:
    """Compute one point naively, in exact fractions."""
    match node:
        case Number(value, _):
            return Fraction(value)
        case Name(name):
            return Fraction(values[name])
        case Negative(part):
            return -_oracle(part, values)
        case Binary(operation, left, right):
            one, other = _oracle(left, values), _oracle(right, values)
            function = ARITHMETIC[operation.value]
            return Fraction(function(one, other))
        case Least(parts):
            return min(_oracle(part, values) for part in parts)
        case Greatest(parts):
            return max(_oracle(part, values) for part in parts)
        case Comparison(relation, left, right):
            signs = {"==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}
            try:
                one, other = _oracle(left, values), _oracle(right, values)
            except ZeroDivisionError:
                return False
            return getattr(operator, signs[relation.value])(one, other)
        case And(parts):
            return all([_oracle(part, values) for part in parts])
        case Or(parts):
            return any([_oracle(part, values) for part in parts])
        case Not(part):
            return not _oracle(part, values)


POINT = st.fixed_dictionaries(
    {
        **{name: st.integers(0, 9) | st.integers(0, 2**40) for name in CHOICES},
        "peak_memory": st.integers(0, 2**41),
        "step_seconds": st.integers(0, 80).map(lambda n: n / 8),
        "recompute": st.integers(0, 3),
        "schedule": st.integers(0, 5),
        "context": st.integers(0, 1),
        "order": st.integers(0, 1),
        "sequence_parallel": st.booleans(),
        "hsdp": st.booleans(),
    }
)


@given(CONDITIONS, POINT)
def test_scalars_mean_what_the_oracle_says(node: Condition, point: dict[str, Any]) -> None:
    """Plain numbers give a plain truth value."""
    assert evaluate(node, point) is _oracle(node, point)


@given(CONDITIONS, st.lists(POINT, min_size=1, max_size=4))
def test_arrays_mean_what_the_oracle_says(node: Condition, points: list[dict[str, Any]]) -> None:
    """Arrays are taken elementwise, without wrapping around at 64 bits."""
    arrays = {name: np.array([point[name] for point in points]) for name in points[0]}
    found = np.broadcast_to(evaluate(node, arrays), len(points))
    assert found.tolist() == [_oracle(node, point) for point in points]


def test_arrays_are_broadcast() -> None:
    """A column and a row give a table; scalars go with either."""
    tp, pp = np.array([[1], [2], [4]], dtype=np.uint8), np.array([1, 200], dtype=np.uint8)
    found = evaluate(parse("tp * pp <= devices"), {"tp": tp, "pp": pp, "devices": 256})
    assert isinstance(found, np.ndarray)
    assert found.dtype == np.bool_
    assert found.tolist() == [[True, True], [True, False], [True, False]]


def test_numbers_beyond_64_bits() -> None:
    """Neither products nor the least of several wrap around or fail."""
    huge = " * ".join(["999999999999999999"] * 3)
    values = {"tp": np.array([0, 2**62])}
    for text in (f"min(tp, {huge}) == tp", f"tp < {huge}", "tp * 4 // 4 == tp"):
        assert np.all(evaluate(parse(text), values)), text
    assert evaluate(parse(f"step_seconds < {huge} * 1 s"), {"step_seconds": 0.5}) is True


def test_division_by_zero_fails_the_comparison() -> None:
    """It does so elementwise, and `not` of it holds."""
    values = {"tp": np.array([0, 1, 2])}
    for text, expected in (
        ("4 // tp >= 0", [False, True, True]),
        ("4 % tp != 9", [False, True, True]),
        ("not 4 // tp == 4", [True, False, True]),
    ):
        found = evaluate(parse(text), values)
        assert isinstance(found, np.ndarray)
        assert found.tolist() == expected
    assert evaluate(parse("1 // tp == 0"), {"tp": 0}) is False


def test_decimals_beside_floats() -> None:
    """A float that prints as the decimal equals it."""
    assert evaluate(parse("step_seconds <= 0.1"), {"step_seconds": 0.1}) is True
    found = evaluate(parse("step_seconds == 100 ms"), {"step_seconds": np.array([0.1, 0.2])})
    assert isinstance(found, np.ndarray)
    assert found.tolist() == [True, False]
    assert evaluate(parse("step_seconds < 9"), {"step_seconds": np.float32(1)}) is True
    assert evaluate(parse("tp < 2"), {"tp": np.array(1)}) is True
