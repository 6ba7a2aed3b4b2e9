"""Every declared movement of every program is true, point by point."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import cache
from itertools import pairwise

import pytest

from optplan.models.formulate import formulate
from optplan.models.money import Price
from optplan.models.program import Fact, Program, Table
from tests.models import samples

ROUNDING = Fraction(1, 10**9)
"""Prices are whole ticks: a movement is meant up to this share."""

SEEDS = range(12)


def keeps(shape: str, values: Sequence[Fraction]) -> bool:
    """Whether a sequence moves as a fact says, up to rounding."""
    room = ROUNDING * max(map(abs, values))
    falls = [two <= one + room for one, two in pairwise(values)]
    rises = [two >= one - room for one, two in pairwise(values)]
    match shape:
        case "rises":
            return all(rises)
        case "falls":
            return all(falls)
        case _:
            low = min(range(len(values)), key=values.__getitem__)
            return all(falls[:low]) and all(rises[low:])


@cache
def lines(seed: int, goal: str) -> list[tuple[Fact, list[Fraction]]]:
    """
    What each fact says of points that differ only in its choice and in what moves along, in order.

    Of the goal its value, of a rule whether it refuses. Only degrees that divide heads and layers:
    the prices of others are cut off, since none of their points is a plan. The paper's prices are
    the only ones with facts.
    """
    problem = samples.random_problem(seed, prices="paper")
    problem = problem.with_cluster(price=Price(2.5, "USD"), held="devices")
    form = formulate(problem.model_copy(update={"goal": goal}))
    program = form.program
    assert program.facts
    degrees = {s.name: s.rows for s in program.statements if isinstance(s, Table) and not s.gives}
    tps, pps = degrees["degrees.heads"], degrees["pipeline.layers"][:, 0]
    points = [p for p in samples.points(program) if p["tp"] in tps and p["pp"] in pps]
    asked = [value(program, samples.even(form, point)) for point in points]
    made = []
    for fact in program.facts:
        moving = {fact.along, *fact.free}
        found: dict[tuple[int, ...], list[tuple[int, Fraction]]] = defaultdict(list)
        for point, known in zip(points, asked, strict=True):
            held = tuple(v for name, v in point.items() if name not in moving)
            found[held].append((point[fact.along], known.get(fact.column, Fraction(0))))
        for line in found.values():
            steps = [step for step, _ in line]
            assert len(set(steps)) == len(steps), "the fact leaves a choice free that it omits"
            if len(line) > 1:
                made.append((fact, [known for _, known in sorted(line)]))
    return made


def value(program: Program, point: Mapping[str, int]) -> dict[str, Fraction]:
    """Goal of a point, and for each rule whether it refuses the point."""
    broken = set(program.broken(point))
    found = {name: Fraction(name in broken) for name in program.constraints}
    if "goal" in {fact.column for fact in program.facts}:
        known = program.evaluate(point)
        found["goal"] = known[program.goal.of] / program.goal.divisor(known)
    return found


@pytest.mark.parametrize(
    ("goal", "seed"),
    [("fastest", s) for s in SEEDS]
    + [(g, s) for g in ("most-headroom", "cheapest") for s in range(3)],
)
def test_every_declared_movement_is_true(goal: str, seed: int) -> None:
    """Along the fact's choice, all else held, over every line of points of a random problem."""
    for fact, values in lines(seed, goal):
        assert keeps(fact.shape, values), f"seed {seed}: {fact}: {values}"


def test_canonical_prices_declare_nothing() -> None:
    """Uneven layers and recomputation to fit make no movement certain."""
    assert not formulate(samples.problem()).program.facts


def test_each_fact_is_seen_to_move() -> None:
    """The random problems do not keep facts by standing still: strict falls, rises and both."""
    strict: dict[tuple[str, str], set[str]] = defaultdict(set)
    for seed in SEEDS:
        for fact, values in lines(seed, "fastest"):
            low = values.index(min(values))
            if low > 0 and values[0] > values[low] * (1 + 2 * ROUNDING):
                strict[fact.column, fact.shape].add("falls")
            if low < len(values) - 1 and values[-1] > values[low] * (1 + 2 * ROUNDING):
                strict[fact.column, fact.shape].add("rises")
    assert strict["goal", "dips"] == {"falls", "rises"}
    assert strict["goal", "falls"] == {"falls"}
    memory = {name: moved for (name, shape), moved in strict.items() if shape == "rises"}
    assert set(memory) == {"capacity.activations", "capacity.hbm"}
    assert all(moved == {"rises"} for moved in memory.values())


@pytest.mark.parametrize(
    ("shape", "values", "truth"),
    [
        ("rises", (1, 1, 2), True),
        ("rises", (1, 2, 1), False),
        ("falls", (3, 3, 1), True),
        ("falls", (3, 1, 2), False),
        ("dips", (3, 1, 1, 2), True),
        ("dips", (1, 2), True),
        ("dips", (2, 3, 1, 4), False),
        ("dips", (2, 1, 3, 2), False),
    ],
)
def test_the_question_itself_tells_the_shapes_apart(
    shape: str, values: tuple[int, ...], truth: bool
) -> None:
    """So that no fact passes because nothing is asked."""
    assert keeps(shape, [Fraction(value) for value in values]) is truth
