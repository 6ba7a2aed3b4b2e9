"""Exact linear forms over the variables of a mixed-integer model, and their products."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import pyomo.environ as pyo
from pyomo.core.expr import LinearExpression

EXACT = 2**50
"""Rows whose terms add up to no more than this are exact as floats; others get a little slack."""

FEW = 24
"""Values up to which a column is told apart value by value rather than bit by bit."""


@dataclass(frozen=True)
class Form:
    """
    A linear combination of a model's variables, in whole numbers.

    Solvers count in floats; what they are given is worked out in whole numbers first, and a
    constant never reaches them.

    Parameters
    ----------
    terms
        Coefficient by the variable's number.
    constant
        What is added.
    """

    terms: Mapping[int, int] = field(default_factory=dict)
    constant: int = 0

    def plus(self, other: Form, factor: int = 1) -> Form:
        """Add a multiple of another."""
        terms = dict(self.terms)
        for number, k in other.terms.items():
            terms[number] = terms.get(number, 0) + factor * k
        kept = {number: k for number, k in terms.items() if k}
        return Form(kept, self.constant + factor * other.constant)

    def times(self, factor: int) -> Form:
        """Multiply by a whole number."""
        return Form().plus(self, factor)

    def less(self, constant: int) -> Form:
        """Take a number off."""
        return Form(self.terms, self.constant - constant)


def goal_unit(form: Form) -> float:
    """
    Choose a unit for a goal, so that its largest coefficient is about a million.

    Some solvers take improvements below an absolute 1e-5 for none.
    """
    size = max((abs(k) for k in form.terms.values()), default=1)
    return float(2 ** max(0, size.bit_length() - 20))


def added(parts: Iterable[tuple[int, Form]], constant: int = 0) -> Form:
    """Add up multiples of forms."""
    terms: dict[int, int] = {}
    for factor, form in parts:
        constant += factor * form.constant
        for number, k in form.terms.items():
            terms[number] = terms.get(number, 0) + factor * k
    return Form({number: k for number, k in terms.items() if k}, constant)


class Sheet:
    """
    A Pyomo model being written, its variables by number.

    Every statement has a block of its own name, in which its variables and rows stand.

    Parameters
    ----------
    name
        Name of the model.
    """

    def __init__(self, name: str) -> None:
        self.raw = pyo.ConcreteModel(name=name)
        self.vars: list[pyo.Var] = []
        self.ends: list[tuple[int, int]] = []
        self._within: pyo.Block = self.raw
        self._blocks: dict[tuple[int, str], pyo.Block] = {}

    @contextmanager
    def inside(self, name: str, number: int) -> Iterator[None]:
        """Write into one of many blocks of a name for a while."""
        if self.raw.component(name) is None:
            self.raw.add_component(name, pyo.Block(pyo.NonNegativeIntegers))
        self._within = self.raw.component(name)[number]
        try:
            yield
        finally:
            self._within = self.raw

    def block(self, name: str) -> pyo.Block:
        """Return the block of a name, made where there is none."""
        key = (id(self._within), name)
        if key not in self._blocks:
            block = pyo.Block(concrete=True)
            self._within.add_component(name, block)
            block.var = pyo.VarList(starting_index=0)
            block.row = pyo.ConstraintList(starting_index=0)
            self._blocks[key] = block
        return self._blocks[key]

    # -- variables -------------------------------------------------------------------------------

    def take(self, variable: pyo.Var, low: int, high: int) -> Form:
        """Give a number to a variable that stands in the model already."""
        self.vars.append(variable)
        self.ends.append((low, high))
        return Form({len(self.vars) - 1: 1})

    def variable(self, name: str, low: int, high: int, whole: bool = True) -> Form:
        """Add a variable to a statement's block."""
        made = self.block(name).var.add()
        made.domain = pyo.Integers if whole else pyo.Reals
        made.setlb(low)
        made.setub(high)
        return self.take(made, low, high)

    def flag(self, name: str) -> Form:
        """Add a variable that is 0 or 1."""
        made = self.block(name).var.add()
        made.domain = pyo.Binary
        return self.take(made, 0, 1)

    def part(self, name: str) -> Form:
        """Add a variable between 0 and 1 that need not be whole."""
        return self.variable(name, 0, 1, whole=False)

    # -- forms -----------------------------------------------------------------------------------

    def reach(self, form: Form) -> tuple[int, int]:
        """Smallest and largest value that the ends of the variables allow."""
        low = high = form.constant
        for number, k in form.terms.items():
            ends = (k * self.ends[number][0], k * self.ends[number][1])
            low, high = low + min(ends), high + max(ends)
        return low, high

    def expression(self, form: Form, unit: float = 1.0) -> LinearExpression:
        """Write a form, measured in a unit, as Pyomo has it."""
        return LinearExpression(
            constant=form.constant / unit,
            linear_coefs=[k / unit for k in form.terms.values()],
            linear_vars=[self.vars[number] for number in form.terms],
        )

    def value(self, form: Form) -> float:
        """Value that the variables as they stand give to a form."""
        total: float = form.constant
        for number, k in form.terms.items():
            total += k * self.vars[number].value
        return total

    def demand(
        self, name: str, form: Form, low: int | None = None, high: int | None = None
    ) -> pyo.Constraint | None:
        """
        Demand that a form lies within bounds; None where it does anyway.

        Every row is measured in its largest coefficient, so that a solver's tolerance means the
        same everywhere. Where floats cannot hold it exactly it asks a trifle less: whoever reads a
        solution asks the program again.
        """
        least, most = self.reach(form)
        low = None if low is None or low <= least else low
        high = None if high is None or high >= most else high
        if low is None and high is None:
            return None
        if not form.terms:
            # Nothing that a solver could move: a row of its own says that there is no solution.
            form, low, high = self.part(name), 2, None
        size = sum(abs(k) * max(map(abs, self.ends[n])) for n, k in form.terms.items())
        slack = size // EXACT
        unit = float(2 ** max(abs(k) for k in form.terms.values()).bit_length())
        bare = Form(form.terms)
        ends = (
            None if low is None else (low - slack - form.constant) / unit,
            None if high is None else (high + slack - form.constant) / unit,
        )
        if low is not None and low == high and not slack:
            return self.block(name).row.add(self.expression(bare, unit) == ends[0])
        return self.block(name).row.add((ends[0], self.expression(bare, unit), ends[1]))

    def equal(self, name: str, form: Form) -> None:
        """Demand that a form is nothing."""
        self.demand(name, form, 0, 0)

    def within(self, name: str, form: Form, low: int, high: int) -> Form:
        """Make a column that takes any value between two ends, and equals a form."""
        column = self.scaled(name, low, high)
        self.equal(name, column.plus(form, -1))
        return column

    def scaled(self, name: str, low: int, high: int) -> Form:
        """Make a column between two ends, as a share of what lies between them."""
        if low == high:
            return Form(constant=low)
        return added([(high - low, self.part(name))], low)

    # -- products --------------------------------------------------------------------------------

    def bits(self, name: str, form: Form) -> list[tuple[int, Form]]:
        """Write a form as its least value and bits, each with what it is worth."""
        low, high = self.reach(form)
        size = (high - low).bit_length()
        found = [(2**place, self.flag(name)) for place in range(size)]
        self.equal(name, added(found, low).plus(form, -1))
        return found

    def where(self, name: str, switch: Form, form: Form) -> Form:
        """Return a form where a switch (0 or 1) is on, and nothing where it is off, exactly."""
        low, high = self.reach(form)
        if low == high:
            return switch.times(low)
        share = self.part(name)
        product = added([(low, switch), (high - low, share)])
        self.demand(name, share.plus(switch, -1), None, 0)
        # What the form has beyond its least, at most where the switch is off as well.
        beyond = form.less(low).plus(share, low - high)
        self.demand(name, beyond, 0, None)
        self.demand(name, beyond.plus(switch, high - low), None, high - low)
        return product

    def split(self, name: str, hot: Mapping[int, Form], form: Form) -> Form:
        """
        Multiply a column that is told apart value by value with a form, exactly.

        The form is handed to the value that the column has: a share of it to each, all of it
        together, which is as tight as linear rows can be.
        """
        low, high = self.reach(form)
        if low == high:
            return added((value * low, on) for value, on in hot.items())
        shares = {}
        for value, on in hot.items():
            shares[value] = share = self.part(name)
            self.demand(name, share.plus(on, -1), None, 0)
        whole = added([(high - low, share) for share in shares.values()], low)
        self.equal(name, whole.plus(form, -1))
        beyond = [(value * (high - low), share) for value, share in shares.items()]
        return added([*beyond, *((value * low, on) for value, on in hot.items())])

    def product(
        self, name: str, left: Form, right: Form, hot: Mapping[int, Form] | None = None
    ) -> Form:
        """
        Multiply two columns of whole numbers, exactly.

        Parameters
        ----------
        hot
            Indicators of the left column's values, where it has such.
        """
        if hot is not None:
            return self.split(name, hot, right)
        bits = self.bits(name, left)
        low, _ = self.reach(left)
        parts = [(worth, self.where(name, bit, right)) for worth, bit in bits]
        return added([*parts, (low, right)])

    def told_apart(self, name: str, form: Form) -> dict[int, Form] | None:
        """Tell a column of few values apart value by value; None where it may have many."""
        low, high = self.reach(form)
        if high - low >= FEW:
            return None
        if low == high:
            return {low: Form(constant=1)}
        hot = {value: self.flag(name) for value in range(low, high + 1)}
        self.demand(name, added((1, on) for on in hot.values()), 1, 1)
        self.equal(name, added(hot.items()).plus(form, -1))
        return hot

    def largest(self, name: str, forms: list[Form], sign: int = 1) -> Form:
        """
        Make a column that is the largest of some forms, exactly.

        Parameters
        ----------
        sign
            -1 for the smallest.
        """
        forms = [form.times(sign) for form in forms]
        ends = [self.reach(form) for form in forms]
        low, high = max(e[0] for e in ends), max(e[1] for e in ends)
        column = self.scaled(name, low, high)
        picked = []
        for form, (_, most) in zip(forms, ends, strict=True):
            self.demand(name, column.plus(form, -1), 0, None)
            if most < low:
                continue
            pick = self.flag(name)
            picked.append(pick)
            spare = high - self.reach(form)[0]
            self.demand(name, column.plus(form, -1).plus(pick, spare), None, spare)
        self.demand(name, added((1, pick) for pick in picked), 1, None)
        return column.times(sign)
