"""A program as a Pyomo model, every constraint in a block of its own name."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyomo.environ as pyo

from optplan.models.errors import OwnFault
from optplan.models.program import (
    Divide,
    Extreme,
    Fits,
    Pipeline,
    Product,
    Program,
    Row,
    Statement,
    Sum,
    Table,
    Terms,
    Truth,
)
from optplan.solvers.milp_forms import Form, Sheet, added

Hot = dict[int, Form]
"""Indicators of a column's values: exactly one of them is 1."""


class Written:
    """
    A program as a live Pyomo model.

    Parameters
    ----------
    program
        What is written.
    name
        Name of the model.
    """

    def __init__(self, program: Program, name: str = "program") -> None:
        self.program = program
        self.sheet = Sheet(name)
        self.columns: dict[str, Form] = {}
        self.known: dict[str, Hot] = {}

    @property
    def raw(self) -> pyo.ConcreteModel:
        """The Pyomo model; constraints may be added to it."""
        return self.sheet.raw

    def linear(self, terms: Terms, constant: int = 0) -> Form:
        """Linear combination of columns."""
        return added(((k, self.columns[c]) for k, c in terms), constant)

    def hot(self, name: str) -> Hot | None:
        """Return indicators of a column's values, where it has few or is made of indicators."""
        if name not in self.known:
            found = self.sheet.told_apart(f"values.{name}", self.columns[name])
            if found is None:
                return None
            self.known[name] = found
        return self.known[name]

    def choice(self, name: str, values: tuple[int, ...]) -> None:
        """Write a choice: a whole variable of its name, and an indicator for each of its values."""
        block = f"choice.{name}"
        variable = pyo.Var(domain=pyo.Integers, bounds=(min(values), max(values)))
        self.raw.add_component(name, variable)
        column = self.sheet.take(self.raw.component(name), min(values), max(values))
        if len(values) == 1:
            self.raw.component(name).fix(values[0])
            self.columns[name] = Form(constant=values[0])
            self.known[name] = {values[0]: Form(constant=1)}
            return
        hot = {value: self.sheet.flag(block) for value in values}
        self.sheet.demand(block, added((1, on) for on in hot.values()), 1, 1)
        self.columns[name] = added(hot.items())
        self.sheet.equal(block, self.columns[name].plus(column, -1))
        self.known[name] = hot

    # -- statements ------------------------------------------------------------------------------

    def post(self, statement: Statement) -> None:
        """Write one statement."""
        sheet, columns, name = self.sheet, self.columns, statement.name
        match statement:
            case Pipeline() | Fits():
                raise OwnFault("what hands out layers is for optplan.solvers.milp_pipeline")
            case Table():
                self._table(statement)
            case Row():
                self._row(statement)
            case Sum():
                columns[statement.result] = self.linear(statement.terms, statement.constant)
            case Product():
                columns[statement.result] = self._product(statement)
            case Extreme():
                sign = 1 if statement.kind == "max" else -1
                forms = [columns[c] for c in statement.of]
                columns[statement.result] = sheet.largest(name, forms, sign)
            case Divide():
                self._divide(statement)
            case Truth():
                self._truth(statement)

    def _table(self, table: Table) -> None:
        """Write a table: which of its rows holds, told by the indicators of its keys."""
        name, width = table.name, len(table.keys)
        hots = [self.hot(key) for key in table.keys]
        keep = np.ones(len(table.rows), dtype=bool)
        for place, hot in enumerate(hots):
            if hot is not None:
                keep &= np.isin(table.rows[:, place], list(hot))
        rows = table.rows[keep]
        if width == 1 and hots[0] is not None:
            held = [hots[0][value] for value in rows[:, 0].tolist()]
            self._only(name, hots[0], set(rows[:, 0].tolist()))
        else:
            whole = any(hot is None for hot in hots)
            held = [
                self.sheet.flag(name) if whole else self.sheet.part(name) for _ in range(len(rows))
            ]
            self.sheet.demand(name, added((1, row) for row in held), 1, 1)
            for place, hot in enumerate(hots):
                self._tie(name, table.keys[place], hot, rows[:, place].tolist(), held)
        for place, given in enumerate(table.gives, start=width):
            values = rows[:, place].tolist()
            self.columns[given] = blend(values, held)
            self.known[given] = gathered(values, held)

    def _only(self, name: str, hot: Hot, allowed: set[int]) -> None:
        """Forbid the values of a choice that a table does not have."""
        others = [on for value, on in hot.items() if value not in allowed]
        self.sheet.demand(name, added((1, on) for on in others), None, 0)

    def _tie(
        self, name: str, key: str, hot: Hot | None, values: list[int], held: list[Form]
    ) -> None:
        """Tie the rows of a table to the column that they are looked up by."""
        if hot is None:
            self.sheet.equal(name, blend(values, held).plus(self.columns[key], -1))
            return
        rows = gathered(values, held)
        for value, on in hot.items():
            self.sheet.equal(name, rows.get(value, Form()).plus(on, -1))

    def _row(self, row: Row) -> None:
        """Write a row, loose where what it depends on is otherwise."""
        form = self.linear(row.terms)
        least, most = self.sheet.reach(form)
        if row.when is None:
            if row.low is not None and row.high is not None and row.low > row.high:
                self.sheet.demand(row.name, Form(), 1, None)
                return
            self.sheet.demand(row.name, form, row.low, row.high)
            return
        hot = self.hot(row.when[0])
        on = Form() if hot is None else hot.get(row.when[1], Form())
        if row.low is not None and row.low > least:
            self.sheet.demand(row.name, form.plus(on, least - row.low), least, None)
        if row.high is not None and row.high < most:
            self.sheet.demand(row.name, form.plus(on, most - row.high), None, most)

    def _product(self, product: Product) -> Form:
        """Write a product, by the values of whichever column has fewer."""

        def values(name: str) -> int:
            low, high = self.sheet.reach(self.columns[name])
            return len(self.known.get(name, range(low, high + 1)))

        first, second = sorted((product.left, product.right), key=values)
        left, right = self.columns[first], self.columns[second]
        return self.sheet.product(product.name, left, right, self.hot(first))

    def _divide(self, divide: Divide) -> None:
        """Write how often the right goes into the left, and what then remains."""
        sheet, name = self.sheet, divide.name
        left, right = self.columns[divide.left], self.columns[divide.right]
        (_, most), (few, many) = sheet.reach(left), sheet.reach(right)
        low, high = self.program.bounds[divide.quotient]
        quotient = sheet.variable(name, min(0, low), max(high, most // max(1, few)))
        hot = self.hot(divide.right)
        times = (
            sheet.product(name, right, quotient, hot)
            if hot is not None
            else sheet.product(name, quotient, right)
        )
        rest = left.plus(times, -1)
        sheet.demand(name, rest, 0, many - 1)
        sheet.demand(name, right.plus(rest, -1), 1, None)
        self.columns[divide.quotient], self.columns[divide.remainder] = quotient, rest

    def _truth(self, truth: Truth) -> None:
        """Write a 0/1 column: inside both bounds, or beyond one of them."""
        sheet, name = self.sheet, truth.name
        form, on = self.linear(truth.terms), sheet.flag(truth.name)
        least, most = sheet.reach(form)
        low = least if truth.low is None else truth.low
        high = most if truth.high is None else truth.high
        outside = []
        if low > least:
            sheet.demand(name, form.plus(on, least - low), least, None)
            below = sheet.flag(name)
            sheet.demand(name, form.plus(below, most - low + 1), None, most)
            outside.append(below)
        if high < most:
            sheet.demand(name, form.plus(on, most - high), None, most)
            above = sheet.flag(name)
            sheet.demand(name, form.plus(above, least - high - 1), least, None)
            outside.append(above)
        sheet.demand(name, added([(1, on), *((1, other) for other in outside)]), 1, None)
        self.columns[truth.result] = on
        self.known[truth.result] = {1: on, 0: Form(constant=1).plus(on, -1)}


def blend(values: list[int], held: list[Form]) -> Form:
    """Write a column as the value of the row that holds, counted from the least."""
    if not values:
        return Form()
    base = min(values)
    return added(((v - base, row) for v, row in zip(values, held, strict=True)), base)


def gathered(values: list[int], held: list[Form]) -> Hot:
    """Add up the rows that share a value."""
    rows: dict[int, list[Form]] = {}
    for value, row in zip(values, held, strict=True):
        rows.setdefault(value, []).append(row)
    return {value: added((1, row) for row in found) for value, found in rows.items()}


def translate(program: Program, name: str = "program") -> Written:
    """
    Write a program as a Pyomo model.

    Raises
    ------
    OwnFault
        The program hands out layers.
    """
    written = Written(program, name)
    for choice in program.choices:
        written.choice(choice.name, choice.values)
    for statement in program.statements:
        written.post(statement)
    return written


def read(written: Written) -> Mapping[str, int]:
    """Choices of the solution that the model's variables hold."""
    found = {}
    for choice in written.program.choices:
        hot = written.known[choice.name]
        found[choice.name] = max(hot, key=lambda value: written.sheet.value(hot[value]))
    return found
