"""A program as a CP-SAT model, every constraint under its own name."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ortools.sat.python import cp_model

from optplan.models.errors import OwnFault
from optplan.models.program import (
    LARGEST,
    Divide,
    Extreme,
    Fits,
    Pipeline,
    Product,
    Program,
    Row,
    Sum,
    Table,
    Terms,
    Truth,
)


@dataclass
class Model:
    """
    A program as a live CP-SAT model.

    Parameters
    ----------
    program
        What was translated.
    raw
        The CP-SAT model; constraints may be added to it.
    columns
        The variable of every choice and quantity by its name.
    tick_seconds
        Seconds that a tick is worth, where a spec said so.
    origin
        What a solution is read back with, where a spec was written.
    """

    program: Program
    raw: cp_model.CpModel
    columns: dict[str, cp_model.IntVar] = field(default_factory=dict)
    tick_seconds: float | None = None
    origin: Any = None

    def linear(self, terms: Terms, constant: int = 0) -> cp_model.LinearExpr:
        """Linear combination of columns."""
        return (
            sum((k * self.columns[c] for k, c in terms), start=cp_model.LinearExpr.sum([]))
            + constant
        )

    def demand(
        self, terms: Terms, low: int | None, high: int | None, outside: bool = False
    ) -> cp_model.Constraint:
        """Demand that a linear combination of columns lies within bounds, or outside of them."""
        domain = cp_model.Domain(
            low if low is not None else cp_model.INT_MIN,
            high if high is not None else cp_model.INT_MAX,
        )
        if outside:
            domain = domain.complement()
        if domain.is_empty() or (not terms and not domain.contains(0)):
            return self.raw.add_bool_or([])
        # A combination without columns is 0, which the domain holds: any true clause will do.
        whole = self.linear(terms) if terms else 0
        return self.raw.add_linear_expression_in_domain(whole, domain)


def translate(program: Program) -> Model:
    """
    Write a program as a CP-SAT model, every constraint under its own name.

    Raises
    ------
    OwnFault
        A quantity may leave the range in which 64-bit sums are safe; the formulation chose its
        scale badly.
    """
    model = Model(program, cp_model.CpModel())
    raw = model.raw
    for choice in program.choices:
        domain = cp_model.Domain.from_values(list(choice.values))
        model.columns[choice.name] = raw.new_int_var_from_domain(domain, choice.name)
    bounds = program.bounds
    for statement in program.statements:
        if isinstance(statement, Pipeline | Fits):
            raise OwnFault("a program that hands out layers is for optplan.solvers.cpsat_pipeline")
        for name in statement.defines:
            low, high = bounds[name]
            if max(abs(low), abs(high)) > LARGEST:
                raise OwnFault(f"{name} may reach {high}, beyond {LARGEST}")
            model.columns[name] = raw.new_int_var(low, high, name)
        post(model, statement)
    return model


def post(model: Model, statement: Table | Row | Sum | Product | Extreme | Divide | Truth) -> None:
    """Add one statement to the model."""
    raw, columns = model.raw, model.columns
    match statement:
        case Table():
            names = statement.keys + statement.gives
            if len(statement.rows):
                raw.add_allowed_assignments([columns[n] for n in names], statement.rows).with_name(
                    statement.name
                )
            else:
                raw.add_bool_or([]).with_name(statement.name)
        case Row():
            row = model.demand(statement.terms, statement.low, statement.high)
            row.with_name(statement.name)
            if statement.when:
                row.only_enforce_if(_equals(model, *statement.when))
        case Sum():
            total = model.linear(statement.terms, statement.constant)
            raw.add(columns[statement.result] == total).with_name(statement.name)
        case Product():
            pair = [columns[statement.left], columns[statement.right]]
            raw.add_multiplication_equality(columns[statement.result], pair).with_name(
                statement.name
            )
        case Extreme():
            add = raw.add_max_equality if statement.kind == "max" else raw.add_min_equality
            add(columns[statement.result], [columns[c] for c in statement.of]).with_name(
                statement.name
            )
        case Divide():
            left, right = columns[statement.left], columns[statement.right]
            raw.add_division_equality(columns[statement.quotient], left, right).with_name(
                statement.name
            )
            raw.add_modulo_equality(columns[statement.remainder], left, right).with_name(
                statement.name
            )
        case Truth():
            _reify(model, statement)


def _equals(model: Model, name: str, value: int) -> cp_model.IntVar:
    """Return a literal that is true exactly when a choice has a value."""
    literal = model.raw.new_bool_var(f"{name}={value}")
    model.raw.add(model.columns[name] == value).only_enforce_if(literal)
    model.raw.add(model.columns[name] != value).only_enforce_if(~literal)
    return literal


def _reify(model: Model, truth: Truth) -> None:
    """Tie a 0/1 quantity to whether a linear combination lies within bounds."""
    raw, result = model.raw, model.columns[truth.result]
    literal = raw.new_bool_var(f"{truth.result}.holds")
    raw.add(result == 1).only_enforce_if(literal)
    raw.add(result == 0).only_enforce_if(~literal)
    inside = model.demand(truth.terms, truth.low, truth.high)
    inside.with_name(truth.name).only_enforce_if(literal)
    outside = model.demand(truth.terms, truth.low, truth.high, outside=True)
    outside.with_name(truth.name).only_enforce_if(~literal)


def cloned(model: Model) -> Model:
    """Copy a live model, so that what is added to the copy leaves the original alone."""
    raw = model.raw.clone()
    columns = {n: raw.get_int_var_from_proto_index(v.index) for n, v in model.columns.items()}
    return Model(model.program, raw, columns)
