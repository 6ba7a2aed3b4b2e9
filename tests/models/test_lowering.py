"""Limits as statements of the program: random conditions allow the points that they are true of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optplan.models import lowering
from optplan.models.builder import Builder
from optplan.models.cost.estimate import estimate
from optplan.models.errors import InputError
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
    leaves,
    parse,
    show,
)
from optplan.models.formulate import CHOICES, Formulation, formulate
from optplan.models.program import Divide, Program, Row, Table
from optplan.models.spec.problem import Problem
from optplan.solvers.grid import Grid
from tests.models import samples

CHANGES: Mapping[str, object] = {
    "search.global_batch": [4, 6],
    "search.zero": 0,
    "workload.architecture.layers": 8,
}


@cache
def plain() -> Formulation:
    """The problem without limits."""
    return formulate(samples.problem(CHANGES))


@cache
def values() -> list[dict[str, int | float]]:
    """Every point of the space with all that a limit may name, step time in exact ticks."""
    form, found = plain(), []
    for point in samples.points(form.program):
        known = form.program.evaluate(point)
        seconds = known["step_ticks"] * form.tick
        found.append(
            {name: known[name] for name in CHOICES}
            | {"devices": form.problem.devices, "peak_memory": known["peak_bytes"]}
            | {"step_seconds": seconds}
        )
    return found  # type: ignore[return-value]


def limited(texts: list[str]) -> Problem:
    """The problem with limits."""
    return samples.problem(CHANGES, limits=texts)


def lets_through(program: Program) -> list[bool]:
    """Whether each point, in order, breaks none of the limits."""
    return [
        not any(name.startswith("limits.") for name in program.broken(point))
        for point in samples.points(program)
    ]


def true_of(node: Condition) -> list[bool]:
    """Whether the condition is true of each point, in order, by its own meaning."""
    return [bool(evaluate(node, point)) for point in values()]


def by_arrays(program: Program) -> int:
    """Points that the limits let through when whole arrays are evaluated."""
    others = frozenset(n for n in program.constraints if not n.startswith("limits."))
    grid, left = Grid(program.without(others)), 0
    for block in grid.blocks():
        for _ in grid.judge(block, {}):
            pass
        left += block.count(block.alive)
    return left


@pytest.fixture(params=[200_000, 0], ids=["tabulated", "in rows"])
def tabulated(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Conditions on choices as tables, and as rows and definitions."""
    most: int = request.param
    monkeypatch.setattr(lowering, "LARGEST_TABULATED", most)
    return most


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


def lowered(node: Condition) -> Program:
    """The program without limits and one condition, written below it as a limit is."""
    form = plain()
    say = Builder()
    for known in form.program.choices:
        say.choice(known.name, list(known.values), known.words)  # type: ignore[arg-type]
    for statement in form.program.statements:
        say._add(statement)
    columns: dict[str, tuple[str, Fraction] | Fraction] = {
        name: (name, Fraction(1)) for name in CHOICES
    }
    columns |= {
        "devices": Fraction(form.problem.devices),
        "peak_memory": ("peak_bytes", Fraction(1)),
        "step_seconds": ("step_ticks", form.tick),
    }
    lowering.Lowering(say, "limits.it", columns, {}).demand(node)
    return say.program(form.program.goal, ())


@pytest.mark.parametrize("most", [200_000, 0], ids=["tabulated", "in rows"])
@settings(max_examples=150)
@given(node=CONDITIONS)
def test_a_condition_allows_the_points_that_it_is_true_of(most: int, node: Condition) -> None:
    """All points of a small space, one by one and as arrays; engines divide numbers >= 0 alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lowering, "LARGEST_TABULATED", most)
        program = lowered(node)
    truths = true_of(node)
    assert lets_through(program) == truths, show(node)
    assert by_arrays(program) == sum(truths), show(node)
    for statement in program.statements:
        if isinstance(statement, Divide):
            assert program.bounds[statement.left][0] >= 0, show(node)
            assert program.bounds[statement.right][0] >= 1, show(node)


TEXTS = [
    "tp * pp <= 4",
    "tp == 2 or pp == 2",
    "not (tp == 2 and pp == 2)",
    "not (tp < 4 or peak_memory > 3 MB)",
    "micro_batch in [1, 3]",
    "micro_batch not in [1, 3] and tp != 4",
    "tp != pp",
    "2 <= tp * dp < 8",
    "min(tp, pp, 3) >= 2",
    "max(tp - 3, 2 - pp) <= 0",
    "-tp + pp >= -1",
    "(tp - 5) // 2 == -1",
    "(pp - 7) % 4 == 2",
    "-tp // pp <= -2",
    "global_batch // micro_batches // dp > 1",
    "global_batch % (tp * 2) == 0",
    "0.5 * tp + 0.25 * pp <= 2.25",
    "tp * 1.5 == 3",
    "tp * 0.3 == 1",
    "tp * pp * dp == devices",
    "(tp - 3) * (pp - 3) < 0",
    "devices >= 8",
    "devices < 8",
    "peak_memory < 2 MB",
    "peak_memory * 2 <= 4 MB or tp == 8",
    "max(peak_memory, 2 MB) <= 2 MB",
    "peak_memory * tp <= 5 MB",
    "step_seconds <= 30 ms",
    "step_seconds * dp > 100 ms and recompute == none",
    "min(step_seconds, 0.05 s) < 50 ms",
    "step_seconds >= 40 ms or sequence_parallel",
    "recompute == full or peak_memory <= 1.8 MB",
]


@pytest.mark.parametrize("text", TEXTS)
def test_a_written_limit_allows_the_points_that_it_is_true_of(text: str, tabulated: int) -> None:
    """Through the whole of ``formulate``, and each of these really divides the space."""
    node, program = parse(text), formulate(limited([text])).program
    truths = true_of(node)
    assert lets_through(program) == truths
    assert by_arrays(program) == sum(truths)
    assert any(truths) or text in ("tp * 0.3 == 1", "devices < 8")
    assert not all(truths) or text in ("tp * pp * dp == devices", "devices >= 8")


@pytest.mark.parametrize("text", TEXTS)
def test_the_second_face_of_a_limit_says_the_same(text: str) -> None:
    """The verdict on every plan, from the estimate's own floats."""
    form = formulate(limited([text]))
    rule = next(known for known in form.rules if known.name == "limits.l0")
    for point, truth in zip(samples.points(form.program), true_of(parse(text)), strict=True):
        if form.problem.workload.architecture.layers % point["pp"] == 0:
            plan = form.decode(point)
            (finding,) = rule.holds(form.problem, plan, estimate(form.problem, plan))
            assert finding.holds == truth


def own(program: Program) -> Iterator[object]:
    """Statements of the limit."""
    return (s for s in program.statements if s.name.startswith("limits."))


def test_a_condition_on_choices_is_a_table_while_it_is_small(tabulated: int) -> None:
    """One that reads a price never is."""
    kinds = {type(s) for s in own(formulate(limited(["tp * pp <= 4"])).program)}
    assert (Table in kinds) == (tabulated > 0)
    assert (Row in kinds) == (tabulated == 0)
    assert Table not in {type(s) for s in own(formulate(limited(["peak_memory < 9 MB"])).program)}


def test_a_limit_that_may_divide_by_zero_is_refused_where_it_is_no_table(tabulated: int) -> None:
    """As a table it is False where it divides by zero; in rows there is no such value."""
    text = "tp // (pp - 1) >= 1"
    if tabulated:
        assert lets_through(formulate(limited([text])).program) == true_of(parse(text))
    else:
        with pytest.raises(InputError, match="which may be 0"):
            formulate(limited([text]))


def test_a_product_beyond_64_bits_is_refused() -> None:
    """Where it is no table: tp is at most 8, and 8 to the 21st is 2^63."""
    power = " * ".join(["tp"] * 21)
    with pytest.raises(InputError, match="beyond 64 bits"):
        formulate(limited([f"{power} <= 5 or peak_memory <= 1 GB"]))


@pytest.mark.parametrize(
    "text",
    [
        "peak_memory * 12345678912345 <= 1 GB",
        "peak_memory * 0.12345678912345678 <= 123456789 B",
        "peak_memory * micro_batch * 100000000000 * tp <= 1 GB",
        "max(step_seconds, 1000000 s) <= 2000000 s",
        "(tp - 900000000000000000) // (pp * dp * micro_batch) < -100000000000000000"
        " or peak_memory <= 1 MB",
    ],
)
def test_a_limit_that_needs_more_than_64_bits_is_refused(text: str) -> None:
    """Never a silent wrap: the remedy names fewer digits."""
    with pytest.raises(InputError, match=r"limits\.l0: .* beyond 64 bits; use fewer digits"):
        formulate(limited([text]))


@pytest.mark.parametrize("text", ["step_seconds <= 3 h", "step_seconds <= 10000 s or tp == 1"])
def test_a_bound_far_beyond_every_plan_is_no_bound(text: str) -> None:
    """Large constants are brought into reach instead of overflowing."""
    program = formulate(limited([text])).program
    assert all(lets_through(program))
    assert by_arrays(program) == len(lets_through(program))
