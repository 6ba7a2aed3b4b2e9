"""Bound and reduce: what a relaxed price rules out before the prover starts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from optplan.models.program import Integers, Program, Table
from optplan.solvers import exhaustive
from optplan.solvers.base import Outcome, SolverConfig, Termination
from optplan.solvers.grid import Block, Mask, prices

SAFETY = 1e-9
"""A tuple falls only when its bound exceeds the incumbent by this share, above any rounding."""


@dataclass(frozen=True)
class Reduction:
    """
    A smaller program with the same optimum, and the account of what went.

    Parameters
    ----------
    program
        The program without the tuples whose bound exceeds the incumbent.
    outcome
        Census, incumbent and best plans of the pass that computed the bounds.
    removed
        Points that passed every rule and fell to the bound.
    """

    program: Program
    outcome: Outcome
    removed: int


def reduce_by_bound(program: Program, config: SolverConfig | None = None) -> Reduction:
    """
    Drop the tuples of the spanning tables that cannot hold the best plan.

    The bound of a tuple is the smallest goal among all its points that pass the tables, rows
    ignored: with no memory limit and no limit of the user's. The incumbent is a point that passes
    everything, the user's limits included, so that a plan they forbid never prunes.
    """
    config = config or SolverConfig()
    spans = [s for s in program.statements if isinstance(s, Table) and s.spans]
    bounds: list[dict[tuple[int, ...], float]] = [{} for _ in spans]

    def watch(block: Block, relaxed: Mask) -> None:
        price = np.where(relaxed, prices(program, block), np.inf)
        price = np.broadcast_to(price, block.shape)
        for axis, (table, bound) in enumerate(zip(spans, bounds, strict=True)):
            others = tuple(i for i in range(len(block.shape)) if i != axis)
            least = price.min(axis=others)
            columns = [np.broadcast_to(block.columns[k].ravel(), least.shape) for k in table.keys]
            for *key, low in zip(*(c.tolist() for c in columns), least.tolist(), strict=True):
                bound[tuple(key)] = min(bound.get(tuple(key), np.inf), low)

    outcome = exhaustive.solve(program, config, watch)
    if outcome.termination is not Termination.EXHAUSTED or outcome.goal is None:
        return Reduction(program, outcome, 0)
    ceiling = float(outcome.goal) + abs(float(outcome.goal)) * SAFETY
    smaller = program
    for table, bound in zip(spans, bounds, strict=True):
        keep = [bound.get(tuple(row), np.inf) <= ceiling for row in table.rows.tolist()]
        smaller = smaller.with_rows(table, table.rows[np.array(keep, dtype=bool)])
    smaller = _followed(smaller)
    left = exhaustive.solve(smaller, SolverConfig(top=1)).priced
    return Reduction(smaller, outcome, outcome.priced - left)


def _followed(program: Program) -> Program:
    """Drop rows of every other table whose keys no spanning tuple has any more."""
    spans = [s for s in program.statements if isinstance(s, Table) and s.spans]
    for statement in program.statements:
        if not isinstance(statement, Table) or statement.spans:
            continue
        keep = np.ones(len(statement.rows), dtype=bool)
        for span in spans:
            shared = [k for k in statement.keys if k in span.keys]
            if shared:
                left = statement.rows[:, [statement.keys.index(k) for k in shared]]
                right = np.unique(span.rows[:, [span.keys.index(k) for k in shared]], axis=0)
                keep &= _member(left, right)
        program = program.with_rows(statement, statement.rows[keep])
    return program


def _member(left: Integers, right: Integers) -> Mask:
    """Tell which rows of one array of numbers >= 0 occur in another."""
    code_left, code_right = np.zeros(len(left), np.int64), np.zeros(len(right), np.int64)
    for i in range(left.shape[1]):
        values = np.unique(right[:, i])
        place = np.minimum(np.searchsorted(values, left[:, i]), max(0, len(values) - 1))
        known = values[place] == left[:, i] if len(values) else np.zeros(len(left), dtype=bool)
        code_left = np.where(known & (code_left >= 0), code_left * len(values) + place, -1)
        code_right = code_right * len(values) + np.searchsorted(values, right[:, i])
    return np.isin(code_left, code_right)
