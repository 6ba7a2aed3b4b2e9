"""Limits as statements of the program: random conditions allow the points that they are true of."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings

from optplan.models import lowering
from optplan.models.builder import Builder
from optplan.models.cost.estimate import estimate
from optplan.models.cost.price import Estimate
from optplan.models.errors import InputError
from optplan.models.expression import Condition, evaluate, parse, show
from optplan.models.formulate import CHOICES, formulate
from optplan.models.program import (
    Divide,
    Fits,
    Program,
    Row,
    Statement,
    Table,
    row_holds,
    value,
)
from optplan.models.spec.plan import Plan
from optplan.models.spec.problem import Problem
from optplan.solvers.grid import Grid
from optplan.solvers.settle import Settler
from tests.models import samples
from tests.models.conditions import CHANGES, CONDITIONS, evaluated, plain, points, values


@cache
def priced() -> list[tuple[Plan, Estimate]]:
    """Every point as a plan with its estimate."""
    form = plain()
    plans = [form.decode(point) for point in points(form.program)]
    return [(plan, estimate(form.problem, plan)) for plan in plans]


def limited(texts: list[str]) -> Problem:
    """The problem with limits."""
    return samples.problem(CHANGES, limits=texts)


def lets_through(program: Program) -> list[bool]:
    """Whether each point, in order, breaks none of the limits."""
    return [
        not any(name.startswith("limits.") for name in program.broken(point))
        for point in points(program)
    ]


def true_of(node: Condition) -> list[bool]:
    """Whether the condition is true of each point, in order, by its own meaning."""
    return [bool(evaluate(node, point)) for point in values()]


MEASURED_BY = ("step_ticks", "peak_bytes")


def quickly(program: Program) -> list[bool]:
    """The same of a program that adds one condition to the plain one, by its statements alone."""
    own = [s for s in program.statements if s.name.startswith("limits.")]
    assert len(program.statements) == len(plain().program.statements) + len(own)
    return [passes(own, dict(known)) for known in evaluated().values()]


def passes(own: list[Statement], known: dict[str, int]) -> bool:
    """Whether statements let a point through whose other columns are known."""
    for statement in own:
        if isinstance(statement, Row):
            if not row_holds(statement, known):
                return False
        elif isinstance(statement, Table):
            if tuple(known[key] for key in statement.keys) not in statement.index:
                return False
        else:
            assert not isinstance(statement, Fits)
            known.update(value(statement, known))
    return True


def by_arrays(program: Program) -> int:
    """
    Points that the limits let through when whole arrays are evaluated.

    Limits on time and memory are asked once the layers are handed out, point by point.
    """
    others = frozenset(n for n in program.constraints if not n.startswith("limits."))
    alone = program.without(others)
    grid, settler, left = Grid(alone), Settler(alone), 0
    for block in grid.blocks():
        for _, ok in grid.judge(block):
            block.alive = block.alive & ok
        if not block.alive.any():
            continue
        if not settler.late.statements:
            left += block.count(block.alive)
            continue
        flat = np.flatnonzero(np.broadcast_to(block.alive, block.shape))
        columns = block.at(flat, settler.columns)
        for row in zip(*(column.tolist() for column in columns.values()), strict=True):
            point = dict(zip(columns, row, strict=True))
            known = evaluated()[tuple(point[name] for name in CHOICES)]
            left += settler.passes(point | {name: known[name] for name in MEASURED_BY})
    return left


@pytest.fixture(params=[200_000, 0], ids=["tabulated", "in rows"])
def tabulated(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Conditions on choices as tables, and as rows and definitions."""
    most: int = request.param
    monkeypatch.setattr(lowering, "LARGEST_TABULATED", most)
    return most


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
@settings(max_examples=60)
@given(node=CONDITIONS)
def test_a_condition_allows_the_points_that_it_is_true_of(most: int, node: Condition) -> None:
    """All points of a small space, one by one and as arrays; engines divide numbers >= 0 alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lowering, "LARGEST_TABULATED", most)
        program = lowered(node)
    truths = true_of(node)
    assert quickly(program) == truths, show(node)
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
    assert quickly(program) == truths
    assert by_arrays(program) == sum(truths)
    assert any(truths) or text in ("tp * 0.3 == 1", "devices < 8")
    assert not all(truths) or text in ("tp * pp * dp == devices", "devices >= 8")


@pytest.mark.parametrize("text", TEXTS)
def test_the_second_face_of_a_limit_says_the_same(text: str) -> None:
    """The verdict on every plan, from the estimate's own floats."""
    form = formulate(limited([text]))
    rule = next(known for known in form.rules if known.name == "limits.l0")
    for (plan, price), truth in zip(priced(), true_of(parse(text)), strict=True):
        if form.problem.workload.architecture.layers % plan.pp == 0:
            (finding,) = rule.holds(form.problem, plan, price)
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
