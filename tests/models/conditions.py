"""Random conditions over a small space, whose every point is known."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from functools import cache

from hypothesis import strategies as st

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
    leaves,
    parse,
)
from optplan.models.formulate import CHOICES, Formulation, formulate
from optplan.models.program import Program
from tests.models import samples

CHANGES: Mapping[str, object] = {
    **samples.CLASSIC,
    "search.global_batch": [4, 6],
    "search.zero": 0,
    "workload.architecture.layers": 8,
}
"""Small, and with one way only to hand out the layers of a point."""


def points(program: Program) -> list[dict[str, int]]:
    """Every point of the space, layers handed out."""
    return [samples.even(plain(), point) for point in samples.points(program)]


@cache
def plain() -> Formulation:
    """The problem without limits."""
    return formulate(samples.problem(CHANGES))


@cache
def evaluated() -> dict[tuple[int, ...], dict[str, int]]:
    """Every column of every point, by its choices."""
    every = (plain().program.evaluate(point) for point in points(plain().program))
    return {tuple(known[name] for name in CHOICES): known for known in every}


@cache
def values() -> list[dict[str, int | float]]:
    """Every point of the space with all that a limit may name, step time in exact ticks."""
    form, found = plain(), []
    for known in evaluated().values():
        seconds = known["step_ticks"] * form.tick
        found.append(
            {name: known[name] for name in CHOICES}
            | {"devices": form.problem.devices, "peak_memory": known["peak_bytes"]}
            | {"step_seconds": seconds}
        )
    return found  # type: ignore[return-value]


WHOLES = st.builds(Number, st.integers(0, 20))
DECIMALS = st.integers(0, 80).map(lambda n: leaves.literal(Fraction(n, 8)))
NAMED = st.sampled_from(
    ["tp", "pp", "dp", "micro_batch", "micro_batches", "global_batch", "devices"]
).map(Name)
POSITIVE: st.SearchStrategy[Value] = NAMED | st.builds(Number, st.integers(1, 9))


def _parts(children: st.SearchStrategy[Value]) -> st.SearchStrategy[Value]:
    several = st.lists(children, min_size=2, max_size=3).map(tuple)
    steady = [Operation.SUM, Operation.DIFFERENCE, Operation.PRODUCT]
    divided = [Operation.QUOTIENT, Operation.REMAINDER]
    return (
        st.builds(Binary, st.sampled_from(steady), children, children)
        | st.builds(Binary, st.sampled_from(divided), children, POSITIVE)
        | st.builds(Negative, children)
        | st.builds(Least, several)
        | st.builds(Greatest, several)
    )


WHOLE_VALUES = st.recursive(NAMED | WHOLES, _parts, max_leaves=5)
VALUES: st.SearchStrategy[Value] = WHOLE_VALUES | st.builds(
    Binary,
    st.sampled_from([Operation.SUM, Operation.DIFFERENCE, Operation.PRODUCT]),
    WHOLE_VALUES,
    DECIMALS,
)


def _near(name: str) -> st.SearchStrategy[Condition]:
    """Compare a measured name with a value of some point, a little more or a little less."""
    seen = sorted({Fraction(point[name]) for point in values()})
    return st.builds(
        lambda relation, at, shift, name_on_left, factor: _compared(
            relation, name, seen[at % len(seen)] * factor, shift, name_on_left
        ),
        st.sampled_from(Relation),
        st.integers(0, 10**6),
        st.integers(-1, 1),
        st.booleans(),
        st.sampled_from([1, 1, 2]),
    )


def _compared(
    relation: Relation, name: str, at: Fraction, shift: int, name_on_left: bool
) -> Condition:
    """Write ``name * factor relation value + shift`` in the smallest units, either way round."""
    unit = "B" if name == "peak_memory" else "s"
    step = Fraction(1) if unit == "B" else plain().tick
    exact = at + shift * step
    dimension = parse(f"{name} == 1 {unit}")
    assert isinstance(dimension, Comparison)
    assert isinstance(dimension.right, Number)
    number = Number(int(exact) if exact.denominator == 1 else exact, dimension.right.dimension)
    sides: tuple[Value, Value] = (Name(name), number)
    return Comparison(relation, *(sides if name_on_left else sides[::-1]))


WORDY = st.sampled_from(
    [
        parse(text)
        for text in (
            "recompute == full", "recompute != none", "sequence_parallel", "not sequence_parallel",
            "zero == 0", "zero in [0, 1]",
        )
    ]
)  # fmt: skip
MEASURED = st.deferred(lambda: _near("peak_memory") | _near("step_seconds"))
COMPARISONS: st.SearchStrategy[Condition] = (
    st.builds(Comparison, st.sampled_from(Relation), VALUES, VALUES)
    | st.builds(Comparison, st.sampled_from(Relation), VALUES, VALUES)
    | WORDY
    | MEASURED
)
CONDITIONS: st.SearchStrategy[Condition] = st.recursive(
    COMPARISONS,
    lambda c: (
        st.builds(And, st.lists(c, min_size=2, max_size=3).map(tuple))
        | st.builds(Or, st.lists(c, min_size=2, max_size=3).map(tuple))
        | st.builds(Not, c)
    ),
    max_leaves=4,
)
