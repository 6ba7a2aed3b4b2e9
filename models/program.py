"""The neutral language: choices, tables, rows and one goal, for engines and people alike."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, Literal

from optplan.models.pipeline import Fits, Pipeline
from optplan.models.statements import (
    LARGEST,
    Choice,
    Divide,
    Extreme,
    Integers,
    Product,
    Row,
    Statement,
    Sum,
    Table,
    Terms,
    Truth,
    follows,
    lookup,
    restricts,
    row_holds,
    spans,
    value,
)

__all__ = [
    "LARGEST",
    "Assignment",
    "Choice",
    "Divide",
    "Extreme",
    "Fact",
    "Fits",
    "Goal",
    "Integers",
    "Pipeline",
    "Product",
    "Program",
    "Row",
    "Statement",
    "Sum",
    "Table",
    "Terms",
    "Truth",
    "follows",
    "restricts",
    "row_holds",
    "spans",
    "value",
]

Assignment = Mapping[str, int]


@dataclass(frozen=True)
class Goal:
    """
    What is to be small: one quantity, or one quantity per unit of another.

    Parameters
    ----------
    of
        Column to be made small.
    per
        Positive column it is divided by, or None.
    scale
        What one unit of ``of`` is worth in the printed unit.
    unit
        The printed unit.
    least
        No point's goal is smaller, in program units, where that is known: a bound that costs
        nothing, for a search that is stopped before it has a better one.
    times
        Positive column that ``of`` is multiplied by, which follows from choices, or None.
    """

    of: str
    per: str | None
    scale: float
    unit: str
    least: Fraction | None = None
    times: str | None = None

    def divisor(self, at: Assignment) -> Fraction:
        """Return what ``of`` is divided by at given values, factors and all."""
        return Fraction(at[self.per] if self.per else 1, at[self.times] if self.times else 1)

    def rates(self, of: Any, columns: Mapping[str, Any]) -> Any:
        """Turn many values of ``of``, as floats, into goals in program units."""
        goal = of * columns[self.times] if self.times else of
        return goal / columns[self.per] if self.per else goal


@dataclass(frozen=True)
class Fact:
    """
    Something declared about how a column moves, on which a pruning engine may rest.

    Parameters
    ----------
    name
        What to call the pruning in print.
    column
        A quantity, or ``goal`` for the goal itself.
    along
        The choice that moves, all other choices being held (save ``free``).
    shape
        ``rises`` and ``falls`` are meant weakly; ``dips`` is falling, then rising. All are meant
        for real values too, so that they also compare points between which the space has gaps.
    free
        Choices that move along with it because the space leaves them no freedom.
    """

    name: str
    column: str
    along: str
    shape: Literal["rises", "falls", "dips"]
    free: tuple[str, ...] = ()


@dataclass(frozen=True)
class Program:
    """
    A finite optimisation problem that knows its own meaning.

    Statements stand in the order in which they can be evaluated: each reads choices and earlier
    quantities.

    Parameters
    ----------
    choices
        The decisions.
    statements
        Definitions and constraints.
    goal
        What is minimised.
    ties
        Columns minimised one after the other among plans of equal goal.
    facts
        Declared movements, each tested.
    sentences
        One sentence per constraint name.
    branching
        Groups of free choices that a search does well to settle early, one after the other.
    """

    choices: tuple[Choice, ...]
    statements: tuple[Statement, ...]
    goal: Goal
    ties: tuple[str, ...] = ()
    facts: tuple[Fact, ...] = ()
    sentences: Mapping[str, str] = field(default_factory=dict)
    branching: tuple[tuple[str, ...], ...] = ()

    @cached_property
    def domain(self) -> dict[str, tuple[int, ...]]:
        """Allowed values by choice."""
        return {choice.name: choice.values for choice in self.choices}

    @cached_property
    def bounds(self) -> dict[str, tuple[int, int]]:
        """Smallest and largest value of every column, by interval arithmetic."""
        span: dict[str, tuple[int, int]] = {
            c.name: (min(c.values), max(c.values)) if c.values else (0, 0) for c in self.choices
        }
        for statement in self.statements:
            span.update(spans(statement, span))
        return span

    @property
    def constraints(self) -> tuple[str, ...]:
        """Names that can remove a point, in order, each once."""
        names = [
            s.name
            for s in self.statements
            if restricts(s) and not (isinstance(s, Table) and s.spans)
        ]
        return tuple(dict.fromkeys(names))

    def evaluate(self, assignment: Assignment) -> dict[str, int]:
        """
        Compute every quantity that an assignment of the choices defines.

        Raises
        ------
        KeyError
            A table has no row for the assignment, so that a quantity stays undefined.
        """
        known = self.carried(assignment)
        for statement in self.statements:
            if not isinstance(statement, Row | Fits) and statement.defines:
                known.update(value(statement, known))
        return known

    def carried(self, assignment: Assignment) -> dict[str, int]:
        """Keep the choices, and what is handed out to stages where an assignment says so."""
        known = {choice.name: int(assignment[choice.name]) for choice in self.choices}
        return known | {n: int(v) for n, v in assignment.items() if n.endswith("]")}

    @cached_property
    def pipeline(self) -> Pipeline | None:
        """The statement that hands out layers, where the program has one."""
        return next((s for s in self.statements if isinstance(s, Pipeline)), None)

    def broken(self, assignment: Assignment) -> Iterator[str]:
        """Name every constraint that an assignment of the choices breaks, in order."""
        known = self.carried(assignment)
        for choice in self.choices:
            if known[choice.name] not in set(choice.values):
                yield f"choice.{choice.name}"
        for statement in self.statements:
            if any(name not in known for name in statement.reads):
                continue  # undefined because of an earlier broken table, which has been named
            if isinstance(statement, Row):
                if not row_holds(statement, known):
                    yield statement.name
            elif isinstance(statement, Fits):
                if not statement.holds(known):
                    yield statement.name
            elif isinstance(statement, Pipeline):
                if not statement.holds(known):
                    yield statement.name
                known.update(statement.value(known))
            elif isinstance(statement, Table):
                found = lookup(statement, known)
                if found is None:
                    yield statement.name
                else:
                    known.update(found)
            else:
                known.update(value(statement, known))

    def price(self, assignment: Assignment) -> float:
        """Goal of an assignment in the printed unit."""
        known = self.evaluate(assignment)
        return known[self.goal.of] * self.goal.scale / float(self.goal.divisor(known))

    def with_rows(self, table: Table, rows: Integers) -> Program:
        """Return the same program with the rows of one table replaced."""
        return replace(
            self,
            statements=tuple(replace(s, rows=rows) if s is table else s for s in self.statements),
        )

    def without(self, names: frozenset[str]) -> Program:
        """Return the same program without the named constraints; definitions stay."""
        return replace(
            self,
            statements=tuple(
                s for s in self.statements if s.name not in names or s.defines or _is_space(s)
            ),
        )

    def fixed(self, values: Mapping[str, Sequence[int]]) -> Program:
        """Return the same program with the domains of some choices narrowed to given values."""
        return replace(
            self,
            choices=tuple(
                replace(c, values=tuple(v for v in c.values if v in set(values[c.name])))
                if c.name in values
                else c
                for c in self.choices
            ),
        )

    def without_factor(self) -> Program:
        """Return the same program with the goal's factor multiplied out in a column of its own."""
        goal = self.goal
        if goal.times is None:
            return self
        product = Product("goal.product", "goal.product", goal.of, goal.times)
        plain = replace(goal, of=product.result, times=None)
        return replace(self, statements=(*self.statements, product), goal=plain)

    def __str__(self) -> str:
        """Render the whole program, one statement a line."""
        lines = [f"choice {c.name} in {_range(c)}" for c in self.choices]
        lines += [f"{s.name}: {s}" for s in self.statements]
        per = f" / {self.goal.per}" if self.goal.per else ""
        times = f" * {self.goal.times}" if self.goal.times else ""
        goal = f"{self.goal.of}{times}{per}"
        lines.append(f"goal: min {goal}  [{self.goal.scale:g} {self.goal.unit}]")
        lines.append(f"ties: {' '.join(self.ties) or 'none'}")
        for fact in self.facts:
            free = f", {' '.join(fact.free)} moving along" if fact.free else ""
            lines.append(f"fact {fact.name}: {fact.column} {fact.shape} in {fact.along}{free}")
        return "\n".join(lines) + "\n"


def _is_space(statement: Statement) -> bool:
    return isinstance(statement, Table) and statement.spans


def _range(choice: Choice) -> str:
    """Render a domain: words, a short list, or the ends of a long one."""
    shown = [choice.word(v) for v in choice.values]
    if len(shown) > 12:
        shown = [*shown[:4], f"... ({len(shown)} values) ...", *shown[-2:]]
    return "{" + " ".join(shown) + "}"
