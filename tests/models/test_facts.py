"""Every declared movement of every program is true, point by point."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import pairwise

import pytest

from optplan.models.formulate import formulate
from optplan.models.program import Fact, Program, Table
from tests.models import samples

ROUNDING = Fraction(1, 10**9)
"""Prices are whole ticks: a movement is meant up to this share."""

SEEDS = range(60)


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


def column(program: Program, name: str, point: Mapping[str, int]) -> Fraction:
    """Value of a column, or of the goal, at one point."""
    known = program.evaluate(point)
    if name != "goal":
        return Fraction(known[name])
    return Fraction(known[program.goal.of], known[program.goal.per] if program.goal.per else 1)


def lines(program: Program, fact: Fact) -> Iterator[list[dict[str, int]]]:
    """
    Points that differ only in a fact's choice and in what moves along, in order.

    Only degrees that divide heads and layers: the prices of others are cut off, since none of
    their points is a plan.
    """
    degrees = {s.name: s.rows for s in program.statements if isinstance(s, Table) and not s.gives}
    tps, pps = degrees["degrees.heads"], degrees["pipeline.layers"]
    found: dict[tuple[int, ...], list[dict[str, int]]] = defaultdict(list)
    moving = {fact.along, *fact.free}
    for point in samples.points(program):
        if point["tp"] not in tps or point["pp"] not in pps:
            continue
        found[tuple(v for name, v in point.items() if name not in moving)].append(point)
    for line in found.values():
        ordered = sorted(line, key=lambda point: point[fact.along])
        steps = [point[fact.along] for point in ordered]
        assert len(set(steps)) == len(steps), "the fact leaves a choice free that it does not name"
        if len(line) > 1:
            yield ordered


@pytest.mark.parametrize("goal", ["fastest", "most-headroom"])
@pytest.mark.parametrize("seed", SEEDS)
def test_every_declared_movement_is_true(seed: int, goal: str) -> None:
    """Along the fact's choice, all else held, over every line of points of a random problem."""
    program = formulate(samples.random_problem(seed, goal=goal)).program
    assert program.facts
    for fact in program.facts:
        for line in lines(program, fact):
            values = [column(program, fact.column, point) for point in line]
            assert keeps(fact.shape, values), f"seed {seed}: {fact} over {line}: {values}"


def test_each_fact_is_seen_to_move() -> None:
    """The random problems do not keep facts by standing still: strict falls, rises and both."""
    strict: dict[tuple[str, str], set[str]] = defaultdict(set)
    for seed in SEEDS:
        program = formulate(samples.random_problem(seed)).program
        for fact in program.facts:
            for line in lines(program, fact):
                values = [column(program, fact.column, point) for point in line]
                low = values.index(min(values))
                if low > 0 and values[0] > values[low] * (1 + 2 * ROUNDING):
                    strict[fact.column, fact.shape].add("falls")
                if low < len(values) - 1 and values[-1] > values[low] * (1 + 2 * ROUNDING):
                    strict[fact.column, fact.shape].add("rises")
    assert strict["goal", "dips"] == {"falls", "rises"}
    assert strict["goal", "falls"] == {"falls"}
    memory = {name: moved for (name, shape), moved in strict.items() if shape == "rises"}
    assert set(memory) == {
        f"{part}_{end}" for part in ("peak", "activations", "working") for end in ("first", "last")
    }
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
