"""Every plan of a small problem, one by one, judged by the verifier alone: the slowest oracle."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

from optplan.certificate import goal_of
from optplan.judge import judge
from optplan.models.cost.estimate import estimate
from optplan.models.formulate import Formulation
from optplan.models.program import Program, Table
from optplan.models.spec.plan import Plan
from optplan.solvers.grid import Grid

Point = dict[str, int]


def points(program: Program) -> Iterator[Point]:
    """Every combination of the choices that the spaces of a program hold, no rule asked."""
    for block in Grid(program).blocks():
        flat = np.arange(block.points)
        columns = block.at(flat, program.domain)
        for i in range(block.points):
            yield {name: int(column[i]) for name, column in columns.items()}


def handed_out(form: Formulation, point: Point) -> Iterator[Point]:
    """Every way to hand out the layers of a point."""
    p, layers = point["pp"], form.problem.workload.architecture.layers
    mode = point["recompute"]
    for held in _compositions(layers, p, 1 if point["schedule"] == 0 else 0):
        ways: Iterator[tuple[int, ...]]
        if mode == 3:
            ways = iter([held])
        elif mode == 2:
            ways = product(*(range(n + 1) for n in held))
        else:
            ways = iter([(0,) * p])
        for again in ways:
            carried = {f"layers[{i}]": n for i, n in enumerate(held)}
            yield point | carried | {f"again[{i}]": n for i, n in enumerate(again)}


def _compositions(total: int, parts: int, least: int) -> Iterator[tuple[int, ...]]:
    """Every way to write a number as a sum."""
    if parts == 1:
        if total >= least:
            yield (total,)
        return
    for first in range(least, total + 1):
        for rest in _compositions(total - first, parts - 1, least):
            yield (first, *rest)


def best_price(form: Formulation, most: int) -> float | str | None:
    """
    Price of the best plan in floats, asking the verifier of every plan; None where there is none.

    Chunks that are priced as equal recompute equally in a plan of the search, so that only such
    ways are asked where the schedule is not 1F1B. Returns "too many" beyond ``most`` plans.
    """
    tables = [s for s in form.program.statements if isinstance(s, Table) and not s.spans]
    best: float | None = None
    seen = 0
    for point in points(form.program):
        if any(
            tuple(point[k] for k in t.keys) not in t.index
            for t in tables
            if set(t.keys) <= point.keys() and not t.gives
        ):
            continue
        for full in handed_out(form, point):
            seen += 1
            if seen > most:
                return "too many"
            plan = form.decode(full)
            if point["schedule"] != 0 and not equal_chunks(plan):
                continue
            price = estimate(form.problem, plan)
            if judge(form.problem, form.rules, plan, price).holds:
                goal = goal_of(form, plan, price)
                best = goal if best is None else min(best, goal)
    return best


def equal_chunks(plan: Plan) -> bool:
    """Tell whether every chunk recomputes as many layers as any other, or all it has."""
    each = -(-max(plan.recomputed_layers_per_stage) // plan.vpp)
    chunk = -(-max(plan.layers_per_stage) // plan.vpp)
    ends = {0, plan.pp - 1}
    for stage, (held, again) in enumerate(
        zip(plan.layers_per_stage, plan.recomputed_layers_per_stage, strict=True)
    ):
        if stage not in ends and again != each * plan.vpp:
            return False
        short = plan.vpp * chunk - held
        if stage in ends and again not in (plan.vpp * each - k for k in range(short + 1)):
            return False
    return True
