"""Tiny programs whose best plans are known, or found by asking every point."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np

from optplan.models.formulate import formulate
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
    Truth,
)
from tests.models.samples import CLASSIC, EXPERTS, PLAIN, problem

BIG = 2**58
"""Near the edge of what a program may hold."""

X = Choice("x", (0, 1, 2, 3))
Y = Choice("y", (1, 2, 4))


def make(
    *said: Statement,
    of: str = "x",
    per: str | None = None,
    ties: tuple[str, ...] = ("x", "y"),
    choices: tuple[Choice, ...] = (X, Y),
    least: int = 0,
) -> Program:
    """A program over two small choices unless others are given."""
    return Program(choices, said, Goal(of, per, 1.0, "s", Fraction(least)), ties)


def table(
    name: str, keys: tuple[str, ...], gives: tuple[str, ...], *rows: tuple[int, ...]
) -> Table:
    """A table from its rows as tuples."""
    width = len(keys) + len(gives)
    return Table(name, keys, gives, np.array(rows, dtype=np.int64).reshape(-1, width))


def spanned(program: Program) -> Program:
    """The same plans, the choices spread over two spanning tables."""
    said = [s for s in program.statements if not (isinstance(s, Table) and s.spans)]
    spaces = []
    for place in (0, 1):
        part = program.choices[place::2]
        rows = np.array(list(product(*(c.values for c in part))), dtype=np.int64)
        names = tuple(c.name for c in part)
        spaces.append(Table(f"space.{place}", names, (), rows.reshape(-1, len(names)), spans=True))
    return replace(program, statements=(*spaces, *said))


def priced(*rows: tuple[int, ...], ties: tuple[str, ...] = ("x", "y")) -> Program:
    """A program whose goal is given point by point as ``(x, y, price)``."""
    return make(table("price", ("x", "y"), ("cost",), *rows), of="cost", ties=ties)


FEASIBLE: dict[str, tuple[Program, dict[str, int], Fraction]] = {
    "nothing but a goal": (make(), {"x": 0, "y": 1}, Fraction(0)),
    "a row from below": (
        make(Row("rows.least", ((1, "x"), (1, "y")), low=6)),
        {"x": 2, "y": 4},
        Fraction(2),
    ),
    "a row from above": (
        make(Row("rows.most", ((2, "y"), (-1, "x")), high=1)),
        {"x": 1, "y": 1},
        Fraction(1),
    ),
    "a row that is an equation": (
        make(Row("rows.equal", ((3, "x"), (-2, "y")), low=1, high=1)),
        {"x": 1, "y": 1},
        Fraction(1),
    ),
    "a row that binds": (
        make(Row("rows.when", ((1, "x"),), low=2, when=("y", 4)), Row("rows.y", ((1, "y"),), 4)),
        {"x": 2, "y": 4},
        Fraction(2),
    ),
    "a row that does not bind": (
        make(Row("rows.when", ((1, "x"),), low=2, when=("y", 4))),
        {"x": 0, "y": 1},
        Fraction(0),
    ),
    "a row for a value that no choice has": (
        make(Row("rows.never", ((1, "x"),), low=9, when=("y", 3))),
        {"x": 0, "y": 1},
        Fraction(0),
    ),
    "a row without columns": (make(Row("rows.zero", (), high=0)), {"x": 0, "y": 1}, Fraction(0)),
    "a table of allowed tuples": (
        make(table("tables.allowed", ("x", "y"), (), (3, 1), (1, 4), (2, 2))),
        {"x": 1, "y": 4},
        Fraction(1),
    ),
    "a table that gives": (priced((0, 1, 9), (1, 1, 5), (2, 4, 7)), {"x": 1, "y": 1}, Fraction(5)),
    "a table read at a quantity": (
        make(
            Sum("sums.key", "key", ((1, "x"), (1, "y"))),
            table("tables.key", ("key",), ("cost",), (4, 8), (5, 3), (7, 4)),
            of="cost",
        ),
        {"x": 1, "y": 4},
        Fraction(3),
    ),
    "a sum": (
        make(Sum("sums.cost", "cost", ((-2, "x"), (3, "y")), 5), of="cost", least=-9),
        {"x": 3, "y": 1},
        Fraction(2),
    ),
    "a sum below zero": (
        make(Sum("sums.cost", "cost", ((-2, "x"), (1, "y"))), of="cost", least=-9),
        {"x": 3, "y": 1},
        Fraction(-5),
    ),
    "a product": (
        make(
            Product("products.xy", "area", "x", "y"),
            Row("rows.area", ((1, "area"),), low=7, high=9),
        ),
        {"x": 2, "y": 4},
        Fraction(2),
    ),
    "a product with a declared bound": (
        make(Product("products.xy", "area", "x", "y", most=12), Row("rows.a", ((1, "area"),), 12)),
        {"x": 3, "y": 4},
        Fraction(3),
    ),
    "a largest": (
        make(Extreme("ends.most", "most", ("x", "y")), Row("rows.x", ((1, "x"),), 1), of="most"),
        {"x": 1, "y": 1},
        Fraction(1),
    ),
    "a smallest": (
        make(Extreme("ends.least", "least", ("x", "y"), "min"), Row("rows.l", ((1, "least"),), 2)),
        {"x": 2, "y": 2},
        Fraction(2),
    ),
    "a quotient and a remainder": (
        make(
            Divide("divides.xy", "times", "rest", "x", "y"),
            Row("rows.times", ((1, "times"),), low=1),
            Row("rows.rest", ((1, "rest"),), low=1),
        ),
        {"x": 3, "y": 2},
        Fraction(3),
    ),
    "a truth that must hold": (
        make(
            Truth("truths.sum", "right", ((1, "x"), (1, "y")), low=5, high=6),
            Row("rows.right", ((1, "right"),), low=1),
        ),
        {"x": 1, "y": 4},
        Fraction(1),
    ),
    "a truth that must not hold": (
        make(
            Truth("truths.sum", "wrong", ((1, "x"),), low=0, high=1),
            Row("rows.wrong", ((1, "wrong"),), high=0),
        ),
        {"x": 2, "y": 1},
        Fraction(2),
    ),
    "a goal per unit of another column": (
        make(Sum("sums.cost", "cost", ((1, "y"),), 3), of="cost", per="y"),
        {"x": 0, "y": 4},
        Fraction(7, 4),
    ),
    "a ratio whose best has neither the least above nor the most below": (
        make(
            table(
                "price", ("x",), ("cost", "worth"), (0, 10, 5), (1, 16, 9), (2, 19, 10), (3, 1, 0)
            ),
            Row("rows.worth", ((1, "worth"),), low=1),
            Sum("sums.worth", "units", ((1, "worth"),), 1),
            of="cost",
            per="units",
        ),
        {"x": 1, "y": 1},
        Fraction(8, 5),
    ),
    "ties in the order of their columns": (
        priced((0, 4, 3), (1, 2, 3), (2, 2, 3), (3, 1, 4), ties=("y", "x")),
        {"x": 1, "y": 2},
        Fraction(3),
    ),
    "ties that a later column settles": (
        make(Extreme("ends.most", "most", ("x", "y")), of="most", ties=("most", "y", "x")),
        {"x": 0, "y": 1},
        Fraction(1),
    ),
    "ties of ratios that differ above and below": (
        make(
            table("price", ("x",), ("cost", "worth"), (0, 6, 4), (1, 3, 2), (2, 9, 6), (3, 7, 4)),
            of="cost",
            per="worth",
            ties=("cost", "y"),
        ),
        {"x": 1, "y": 1},
        Fraction(3, 2),
    ),
    "numbers near the edge": (
        priced((0, 1, BIG + 2), (1, 1, BIG + 1), (2, 1, BIG), (3, 1, BIG + 3)),
        {"x": 2, "y": 1},
        Fraction(BIG),
    ),
    # OR-Tools 9.15.6755 calls it infeasible unless auto_detect_greater_than_at_least_one_of is off.
    "a product beside what moves against it": (
        make(
            table(
                "price", ("x",), ("each", "fill"), (0, 1829208286, 10**12), (1, 1829209757, 10**11)
            ),
            Product("products.all", "all", "y", "each"),
            Sum("sums.cost", "cost", ((1, "all"), (1, "fill"))),
            of="cost",
            choices=(Choice("x", (0, 1)), Choice("y", (120, 128, 144))),
        ),
        {"x": 1, "y": 120},
        Fraction(120 * 1829209757 + 10**11),
    ),
    "a ratio of numbers near the edge": (
        make(
            table("price", ("x",), ("cost",), (0, BIG), (1, BIG - 1), (2, BIG - 2), (3, BIG - 5)),
            Truth("truths.x", "late", ((1, "x"),), low=2),
            Sum("sums.per", "units", ((-1, "late"),), 2),
            of="cost",
            per="units",
        ),
        {"x": 1, "y": 1},
        Fraction(BIG - 1, 2),
    ),
}
"""Programs by what they show, with the one best plan and its goal."""

INFEASIBLE: dict[str, Program] = {
    "an empty domain": make(choices=(X, Choice("y", ()))),
    "rows that clash": make(
        Row("rows.most", ((1, "x"),), high=1), Row("rows.least", ((1, "x"),), 2)
    ),
    "a row out of reach": make(Row("rows.far", ((1, "x"), (1, "y")), low=8)),
    "a row between whole numbers": make(Row("rows.gap", ((2, "x"),), low=3, high=3)),
    "a row whose ends have crossed": make(Row("rows.crossed", ((1, "x"),), low=2, high=1)),
    "a row without columns that fails": make(Row("rows.zero", (), low=1)),
    "a row without columns whose ends have crossed": make(Row("rows.zero", (), low=1, high=0)),
    "an empty table": make(table("tables.none", ("x", "y"), ())),
    "an empty table of prices": make(table("price", ("x",), ("cost",)), of="cost"),
    "tables that clash": make(
        table("tables.odd", ("x",), (), (1,), (3,)), table("tables.even", ("x",), (), (0,), (2,))
    ),
    "a ratio of nothing": make(Row("rows.least", ((1, "x"),), low=9), of="x", per="y"),
}
"""Programs by why they have no plan."""


PIPELINES: dict[str, tuple[Mapping[str, Any], ...]] = {
    "the paper's world": (PLAIN,),
    "layers fixed": (CLASSIC,),
    "everything open": (
        {
            "cluster.nodes": 1,
            "cluster.devices_per_node": 4,
            "search.global_batch": [4, 8],
        },
    ),
    "stages of any length": (
        {
            "workload.architecture.layers": 7,
            "search.pp": [3, 4],
            "search.tp": 1,
            "search.zero": [0, 3],
            "search.global_batch": [8, 12],
            "cluster.accelerator.hbm": "2500 kB",
        },
    ),
    "experts": (
        EXPERTS,
        {"search.tp": [1, 2], "search.micro_batch": 1, "search.zero": [0, 1]},
    ),
    "the least money, by nodes": (
        CLASSIC,
        {"goal": "cheapest", "cluster.price": "2.50 USD/h", "cluster.held": "nodes"},
    ),
    "the least energy, by devices": (
        {"goal": "least-energy", "cluster.accelerator.power": "400 W", "cluster.held": "devices"},
        {"search.tp": [1, 2], "search.cp": 1, "search.global_batch": [4, 8]},
    ),
    "the least memory": ({"goal": "most-headroom", "search.tp": [1, 2], "search.cp": 1},),
}
"""Changes to a small problem, by what its program hands out."""


def pipeline(what: str, *more: Mapping[str, Any]) -> Program:
    """Formulate one of the small problems that hand out layers."""
    return formulate(problem(*PIPELINES[what], *more)).program


def fine_steps() -> Program:
    """
    Plans near the edge that no float tells apart, the best of them last in every other order.

    There are 20 x 10 of them and they differ by less than a float's precision.
    """
    x, y = Choice("x", tuple(range(20))), Choice("y", tuple(range(10)))
    return make(
        Sum("sums.cost", "cost", ((-1, "x"),), BIG + 19),
        of="cost",
        ties=("x", "y"),
        choices=(x, y),
    )


def long_search(per: str | None = None) -> Program:
    """A program of two million points that no engine sees through."""
    names = ("a", "b", "c", "d", "e", "f")
    choices = tuple(Choice(n, tuple(range(1, 12))) for n in names)
    said: list[Statement] = [
        Product(f"products.{left}{right}", f"{left}{right}", left, right)
        for left, right in zip(names, (*names[1:], "a"), strict=True)
    ]
    products = tuple(s.name.split(".")[1] for s in said)
    said += [
        Sum("sums.fair", "fair", tuple((1 if i % 2 else -1, p) for i, p in enumerate(products))),
        Row("rows.fair", ((1, "fair"),), low=3, high=5),
        Divide("divides.rest", "times", "rest", "ab", "cd"),
        Row("rows.rest", ((1, "rest"), (-1, "e")), low=1),
        Sum("sums.cost", "cost", ((5, "times"), (3, "rest"), (7, "cd"), (2, "f")), 1),
    ]
    return Program(choices, tuple(said), Goal("cost", per, 0.25, "s", Fraction(0)), names)
