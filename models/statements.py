"""What a program is made of: choices, tables, rows and definitions, each with its meaning."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from optplan.models.pipeline import Fits, Pipeline

Integers = NDArray[np.int64]
Terms = tuple[tuple[int, str], ...]

LARGEST = 2**60
"""No quantity of a program may be larger in size: sums of a few still fit in 64 bits."""


INDEXED_ROWS = 20_000
"""A table up to this size is looked up through an index, a larger one by a scan."""


@dataclass(frozen=True)
class Choice:
    """
    One decision: a whole number from a finite list.

    Parameters
    ----------
    name
        The word a user types.
    values
        Allowed values, ascending, without repeats.
    words
        How the values print where they are codes; empty where they print as numbers.
    """

    name: str
    values: tuple[int, ...]
    words: tuple[str, ...] = ()

    def word(self, value: int) -> str:
        """Print one value as a person would type it."""
        return self.words[value] if self.words else str(value)


@dataclass(frozen=True, eq=False)
class Table:
    """
    Allowed tuples of choices, and what follows from them.

    Parameters
    ----------
    name
        Rule or price that put it here.
    keys
        Columns that are looked up.
    gives
        Quantities that a found row defines; empty for a plain restriction.
    rows
        Shape ``(n, len(keys) + len(gives))``; no key occurs twice when ``gives`` is not empty.
    spans
        True where the rows *are* the space (``tp pp dp`` with product ``N``), so that a
        combination outside is no removed point but no point at all.
    """

    name: str
    keys: tuple[str, ...]
    gives: tuple[str, ...]
    rows: Integers
    spans: bool = False

    @property
    def defines(self) -> tuple[str, ...]:
        """Quantities that this statement defines."""
        return self.gives

    @cached_property
    def index(self) -> dict[tuple[int, ...], tuple[int, ...]]:
        """What each key gives."""
        width = len(self.keys)
        return {tuple(row[:width]): tuple(row[width:]) for row in self.rows.tolist()}

    @property
    def reads(self) -> tuple[str, ...]:
        """Columns that this statement looks at."""
        return self.keys

    def __str__(self) -> str:
        """Render name, columns, size, and every row of a small table."""
        gives = f" gives {' '.join(self.gives)}" if self.gives else ""
        kind = "space" if self.spans else "table"
        head = f"{kind} ({' '.join(self.keys)}){gives}: {len(self.rows)} rows"
        if len(self.rows) > 12:
            digest = hashlib.sha256(np.ascontiguousarray(self.rows).tobytes()).hexdigest()[:12]
            return f"{head}, digest {digest}"
        return f"{head}: " + " ".join(
            "(" + " ".join(map(str, row)) + ")" for row in self.rows.tolist()
        )


@dataclass(frozen=True)
class Row:
    """
    A linear inequality ``low <= sum of coefficient * column <= high``.

    With ``when = (choice, value)`` it binds only where the choice has the value.
    """

    name: str
    terms: Terms
    low: int | None = None
    high: int | None = None
    when: tuple[str, int] | None = None

    defines = ()

    @property
    def reads(self) -> tuple[str, ...]:
        """Columns that this statement looks at."""
        return tuple(c for _, c in self.terms) + ((self.when[0],) if self.when else ())

    def __str__(self) -> str:
        """Render as an inequality."""
        text = _linear(self.terms)
        if self.low is not None and self.low == self.high:
            text = f"{text} = {self.low}"
        else:
            text = (f"{self.low} <= " if self.low is not None else "") + text
            text += f" <= {self.high}" if self.high is not None else ""
        return f"row {text}" + (f" when {self.when[0]} = {self.when[1]}" if self.when else "")


@dataclass(frozen=True)
class Sum:
    """Defines a quantity: a linear combination of columns plus a constant."""

    name: str
    result: str
    terms: Terms
    constant: int = 0

    @property
    def defines(self) -> tuple[str, ...]:
        """Quantities that this statement defines."""
        return (self.result,)

    @property
    def reads(self) -> tuple[str, ...]:
        """Columns that this statement looks at."""
        return tuple(c for _, c in self.terms)

    def __str__(self) -> str:
        """Render as an equation."""
        return f"{self.result} := {_linear(self.terms)}" + (
            f" + {self.constant}" if self.constant else ""
        )


@dataclass(frozen=True)
class Product:
    """
    Defines a quantity: the product of two columns.

    ``most`` is a bound that every point keeps, declared where the product of the bounds is far too
    wide.
    """

    name: str
    result: str
    left: str
    right: str
    most: int | None = None

    @property
    def defines(self) -> tuple[str, ...]:
        """Quantities that this statement defines."""
        return (self.result,)

    @property
    def reads(self) -> tuple[str, ...]:
        """Columns that this statement looks at."""
        return (self.left, self.right)

    def __str__(self) -> str:
        """Render as an equation."""
        return f"{self.result} := {self.left} * {self.right}"


@dataclass(frozen=True)
class Extreme:
    """Defines a quantity: the largest or the smallest of some columns."""

    name: str
    result: str
    of: tuple[str, ...]
    kind: Literal["max", "min"] = "max"

    @property
    def defines(self) -> tuple[str, ...]:
        """Quantities that this statement defines."""
        return (self.result,)

    @property
    def reads(self) -> tuple[str, ...]:
        """Columns that this statement looks at."""
        return self.of

    def __str__(self) -> str:
        """Render as an equation."""
        return f"{self.result} := {self.kind}({', '.join(self.of)})"


@dataclass(frozen=True)
class Divide:
    """Defines quotient and remainder of a column of numbers >= 0 by a column of numbers >= 1."""

    name: str
    quotient: str
    remainder: str
    left: str
    right: str

    @property
    def defines(self) -> tuple[str, ...]:
        """Quantities that this statement defines."""
        return (self.quotient, self.remainder)

    @property
    def reads(self) -> tuple[str, ...]:
        """Columns that this statement looks at."""
        return (self.left, self.right)

    def __str__(self) -> str:
        """Render as an equation."""
        return f"{self.quotient}, {self.remainder} := divide({self.left}, {self.right})"


@dataclass(frozen=True)
class Truth:
    """Defines a 0/1 quantity: whether ``low <= sum of coefficient * column <= high`` holds."""

    name: str
    result: str
    terms: Terms
    low: int | None = None
    high: int | None = None

    @property
    def defines(self) -> tuple[str, ...]:
        """Quantities that this statement defines."""
        return (self.result,)

    @property
    def reads(self) -> tuple[str, ...]:
        """Columns that this statement looks at."""
        return tuple(c for _, c in self.terms)

    def __str__(self) -> str:
        """Render as a definition."""
        return f"{self.result} := [{str(Row(self.name, self.terms, self.low, self.high))[4:]}]"


Statement = Table | Row | Sum | Product | Extreme | Divide | Truth | Pipeline | Fits


def restricts(statement: Statement) -> bool:
    """Tell whether a statement can refuse an assignment."""
    return isinstance(statement, Row | Table | Pipeline | Fits)


def row_holds(row: Row, known: Mapping[str, int]) -> bool:
    """Tell whether a row holds for given values."""
    if row.when and known[row.when[0]] != row.when[1]:
        return True
    return _within(sum(k * known[c] for k, c in row.terms), row.low, row.high)


def _within(value: int, low: int | None, high: int | None) -> bool:
    return (low is None or value >= low) and (high is None or value <= high)


def lookup(table: Table, known: Mapping[str, int]) -> dict[str, int] | None:
    """Find the row of a table for given keys; None where there is none."""
    key = tuple(known[name] for name in table.keys)
    if len(table.rows) <= INDEXED_ROWS:
        found = table.index.get(key)
        return None if found is None else dict(zip(table.gives, found, strict=True))
    # A large table is asked too seldom to be worth an index.
    mask = np.ones(len(table.rows), dtype=bool)
    for column, wanted in enumerate(key):
        mask &= table.rows[:, column] == wanted
    at = np.flatnonzero(mask)
    if not len(at):
        return None
    return dict(zip(table.gives, table.rows[at[0]].tolist()[len(key) :], strict=True))


def value(
    statement: Table | Sum | Product | Extreme | Divide | Truth | Pipeline,
    known: Mapping[str, int],
) -> dict[str, int]:
    """Compute what a definition defines."""
    match statement:
        case Table():
            found = lookup(statement, known)
            if found is None:
                raise KeyError(statement.name)
            return found
        case Sum():
            return {
                statement.result: sum(k * known[c] for k, c in statement.terms) + statement.constant
            }
        case Product():
            return {statement.result: known[statement.left] * known[statement.right]}
        case Extreme():
            pick = max if statement.kind == "max" else min
            return {statement.result: pick(known[c] for c in statement.of)}
        case Divide():
            quotient, remainder = divmod(known[statement.left], known[statement.right])
            return {statement.quotient: quotient, statement.remainder: remainder}
        case Pipeline():
            return statement.value(known)
        case Truth():
            total = sum(k * known[c] for k, c in statement.terms)
            return {statement.result: int(_within(total, statement.low, statement.high))}


def follows(statements: Iterable[Statement], known: dict[str, int]) -> bool:
    """
    Work out what follows from what is known; False where a row or a table refuses it.

    Parameters
    ----------
    statements
        Those before layers are handed out, in order.
    known
        Values so far; what is defined is added to them.
    """
    for statement in statements:
        if isinstance(statement, Row):
            if not row_holds(statement, known):
                return False
        elif isinstance(statement, Table):
            found = lookup(statement, known)
            if found is None:
                return False
            known.update(found)
        elif not isinstance(statement, Fits):
            known.update(value(statement, known))
    return True


def spans(statement: Statement, span: Mapping[str, tuple[int, int]]) -> dict[str, tuple[int, int]]:
    """Bound what a definition defines from the bounds of what it reads."""
    match statement:
        case Row() | Fits():
            return {}
        case Pipeline():
            return {
                "step_ticks": (0, statement.most),
                "peak_bytes": (0, statement.most_bytes),
            }
        case Table():
            start = len(statement.keys)
            if not len(statement.rows):
                return dict.fromkeys(statement.gives, (0, 0))
            low, high = statement.rows.min(axis=0), statement.rows.max(axis=0)
            return {
                g: (int(low[start + i]), int(high[start + i]))
                for i, g in enumerate(statement.gives)
            }
        case Sum():
            ends = [sorted((k * span[c][0], k * span[c][1])) for k, c in statement.terms]
            low_, high_ = sum(e[0] for e in ends), sum(e[1] for e in ends)
            return {statement.result: (low_ + statement.constant, high_ + statement.constant)}
        case Product():
            corners = [a * b for a in span[statement.left] for b in span[statement.right]]
            most = max(corners) if statement.most is None else min(max(corners), statement.most)
            return {statement.result: (min(corners), most)}
        case Extreme():
            pick = max if statement.kind == "max" else min
            return {
                statement.result: (
                    pick(span[c][0] for c in statement.of),
                    pick(span[c][1] for c in statement.of),
                )
            }
        case Divide():
            (low_, high_), (small, large) = span[statement.left], span[statement.right]
            small = max(1, small)
            return {
                statement.quotient: (low_ // max(1, large), high_ // small),
                statement.remainder: (0, max(0, min(high_, large - 1))),
            }
        case Truth():
            return {statement.result: (0, 1)}


def _linear(terms: Terms) -> str:
    """Render a linear combination."""
    text = " ".join(
        f"{'-' if k < 0 else '+'} {'' if abs(k) == 1 else f'{abs(k)} '}{column}"
        for k, column in terms
    )
    return text.removeprefix("+ ") or "0"
