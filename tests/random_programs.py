"""Random programs by seed, and what they mean when one asks every point in plain Python."""

from __future__ import annotations

import random
from collections.abc import Iterator
from fractions import Fraction
from itertools import product

import numpy as np

from optplan.models.program import (
    Choice,
    Divide,
    Extreme,
    Goal,
    Product,
    Program,
    Row,
    Statement,
    Sum,
    Table,
    Terms,
    Truth,
    spans,
)
from optplan.solvers.base import rank

Ranked = list[tuple[tuple[Fraction, ...], dict[str, int]]]
"""Plans with their rank (goal, then ties), best first."""


def every_point(program: Program) -> Iterator[dict[str, int]]:
    """Every combination of the choices' values, whether or not a space holds it."""
    for point in product(*program.domain.values()):
        yield dict(zip(program.domain, point, strict=True))


def every_plan(program: Program) -> Ranked:
    """All assignments that break nothing, found without any engine's help, best first."""
    plans = [p for p in every_point(program) if next(program.broken(p), None) is None]
    return sorted(
        ((rank(program, program.evaluate(p)), p) for p in plans), key=lambda pair: pair[0]
    )


def random_program(seed: int) -> Program:
    """A small program of every kind of statement: negative numbers, ties, nothing feasible."""
    return _Draw(random.Random(seed)).program()


class _Draw:
    """A program being drawn: what has been said so far, and how large every column may be."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.said: list[Statement] = []
        names = "abcde"[: rng.randint(2, 5)]
        self.choices = tuple(Choice(name, self._domain()) for name in names)
        self.bounds = {
            c.name: (min(c.values, default=0), max(c.values, default=0)) for c in self.choices
        }

    def _domain(self) -> tuple[int, ...]:
        """Draw a few whole numbers, hardly ever none."""
        size = self.rng.randint(0 if self.rng.random() < 0.02 else 1, 5)
        return tuple(sorted(self.rng.sample(range(-4, 10), size)))

    def program(self) -> Program:
        """Draw everything."""
        rng = self.rng
        self._spaces(rng.choice((0, 1, 2, 2)))
        for place in range(rng.randint(3, 9)):
            self._say(f"rule.{place}")
        of = rng.choice(list(self.bounds))
        per = self._lifted("goal", 1) if rng.random() < 0.4 else None
        most = self.bounds[per] if per else (1, 1)
        low = self.bounds[of][0]
        goal = Goal(of, per, 0.5, "s", Fraction(low, most[0] if low < 0 else most[1]))
        ties = rng.sample(list(self.bounds), rng.randint(0, 2))
        ties += [c.name for c in self.choices] if rng.random() < 0.7 else []
        return Program(self.choices, tuple(self.said), goal, tuple(ties))

    def _add(self, statement: Statement) -> None:
        self.said.append(statement)
        self.bounds.update(spans(statement, self.bounds))

    def _spaces(self, count: int) -> None:
        """Span all or some of the choices; two spaces mostly share one."""
        names = [c.name for c in self.choices]
        cut = self.rng.randint(1, len(names) - 1)
        parts = [names[: cut + self.rng.randint(0, 1)], names[cut:]]
        for place, keys in enumerate(parts[:count]):
            rows = self._rows(keys, self.rng.choice((0.0, 0.5, 0.8, 0.8, 0.9, 1.0, 1.0)))
            rows += [[77] * len(keys)] if self.rng.random() < 0.2 else []
            self._add(Table(f"space.{place}", tuple(keys), (), _array(rows, len(keys)), spans=True))

    def _rows(self, keys: list[str], share: float) -> list[list[int]]:
        """Draw a share of all combinations of some columns' values."""
        domain = {c.name: c.values for c in self.choices}
        values = [domain.get(k, range(self.bounds[k][0], self.bounds[k][1] + 1)) for k in keys]
        return [list(row) for row in product(*values) if self.rng.random() < share]

    def _columns(self, most: int) -> list[str]:
        """Columns that stay within a size."""
        return [n for n, (low, high) in self.bounds.items() if max(-low, high) <= most]

    def _terms(self) -> Terms:
        """Draw a linear combination, now and then an empty one."""
        some = self._columns(10**6)
        names = self.rng.sample(some, self.rng.randint(self.rng.random() > 0.05, min(3, len(some))))
        return tuple((self.rng.choice((-4, -2, -1, 1, 1, 2, 3)), name) for name in names)

    def _ends(self, terms: Terms) -> tuple[int | None, int | None]:
        """Draw bounds that a fair share of the points keep; now and then nothing can."""
        ends = [sorted(k * v for v in self.bounds[c]) for k, c in terms]
        low, high = sum(e[0] for e in ends), sum(e[1] for e in ends)
        middle = self.rng.randint(low, high)
        kind = self.rng.random()
        if kind < 0.4:
            return None, max(middle, (low + high) // 2)
        if kind < 0.8:
            return min(middle, (low + high) // 2), None
        if kind < 0.9:
            return middle - (high - low) // 3, middle + (high - low) // 3
        return (None, None) if kind < 0.95 else (middle, middle - (kind < 0.97))

    def _lifted(self, name: str, least: int) -> str:
        """Return a column that is never below a value, defining one if need be."""
        column = self.rng.choice(self._columns(10**3))
        low, _ = self.bounds[column]
        if low >= least:
            return column
        self._add(Sum(name, f"{name}.from{least}", ((1, column),), least - low))
        return f"{name}.from{least}"

    def _say(self, name: str) -> None:
        """Draw one statement."""
        rng, small = self.rng, self._columns(10**3)
        match rng.choice(("row", "row", "table", "sum", "times", "end", "divide", "truth")):
            case "row":
                terms, choice = self._terms(), rng.choice(self.choices)
                when = (choice.name, rng.choice((*choice.values, 50)))
                self._add(
                    Row(name, terms, *self._ends(terms), when if rng.random() < 0.4 else None)
                )
            case "table":
                few = [c for c in small if self.bounds[c][1] - self.bounds[c][0] < 30]
                keys = rng.sample(few, min(len(few), rng.randint(1, 2)))
                gives = tuple(f"{name}.{i}" for i in range(rng.randint(0, 2)))
                rows = [
                    [*row, *(rng.randint(-5, 20) for _ in gives)]
                    for row in self._rows(keys, rng.choice((0.6, 0.9, 1.0)))
                ]
                array = _array(rows, len(keys) + len(gives))
                self._add(Table(name, tuple(keys), gives, array))
            case "sum":
                self._add(Sum(name, f"{name}.sum", self._terms(), rng.randint(-9, 9)))
            case "times":
                self._add(Product(name, f"{name}.times", rng.choice(small), rng.choice(small)))
            case "end":
                of = tuple(rng.choice(list(self.bounds)) for _ in range(rng.randint(1, 3)))
                self._add(Extreme(name, f"{name}.end", of, rng.choice(("max", "min"))))
            case "divide":
                left, right = self._lifted(f"{name}.left", 0), self._lifted(f"{name}.right", 1)
                self._add(Divide(name, f"{name}.quotient", f"{name}.rest", left, right))
            case _:
                terms = self._terms()
                self._add(Truth(name, f"{name}.truth", terms, *self._ends(terms)))


def _array(rows: list[list[int]], width: int) -> np.typing.NDArray[np.int64]:
    """Rows as a table holds them."""
    return np.array(rows, dtype=np.int64).reshape(-1, width)
