"""Bound and reduce: what a relaxed price rules out before the prover starts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from optplan.models.program import Integers, Program, Table
from optplan.solvers import exhaustive
from optplan.solvers.base import Holding, Outcome, SolverConfig, Termination
from optplan.solvers.grid import Block, Mask

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
    tuples_before, tuples_after
        Rows of the first spanning table.
    """

    program: Program
    outcome: Outcome
    removed: int
    tuples_before: int
    tuples_after: int


def reduce_by_bound(program: Program, config: SolverConfig | None = None) -> Reduction:
    """
    Drop the tuples of the first spanning table that cannot hold the best plan.

    The bound of a tuple is the smallest goal among all its points that pass the tables, rows
    ignored: with no memory limit and no limit of the user's. The incumbent is a point that passes
    everything, the user's limits included, so that a plan they forbid never prunes.
    """
    config = config or SolverConfig()
    table = next(s for s in program.statements if isinstance(s, Table) and s.spans)
    bound: dict[tuple[int, ...], float] = {}
    held: dict[tuple[int, ...], int] = {}

    def watch(block: Block, relaxed: Mask) -> None:
        goal = program.goal
        price = block.columns[goal.of] / (block.columns[goal.per] if goal.per else 1)
        others = tuple(range(1, len(block.shape)))
        least = np.broadcast_to(np.where(relaxed, price, np.inf), block.shape).min(axis=others)
        alive = np.broadcast_to(block.alive, block.shape).sum(axis=others)
        keys = [np.broadcast_to(block.columns[k].ravel(), least.shape).tolist() for k in table.keys]
        for key, low, count in zip(
            zip(*keys, strict=True), least.tolist(), alive.tolist(), strict=True
        ):
            bound[key] = min(bound.get(key, np.inf), low)
            held[key] = held.get(key, 0) + count

    outcome = exhaustive.solve(program, config, watch)
    size = len(table.rows)
    if outcome.termination is not Termination.EXHAUSTED or outcome.holding is Holding.NOTHING:
        return Reduction(program, outcome, 0, size, size)
    assert outcome.goal is not None
    ceiling = float(outcome.goal) * (1 + SAFETY)
    keep = [bound.get(tuple(row), np.inf) <= ceiling for row in table.rows.tolist()]
    removed = sum(count for key, count in held.items() if bound[key] > ceiling)
    rows: Integers = table.rows[np.array(keep, dtype=bool)]
    return Reduction(program.with_rows(table.name, rows), outcome, removed, size, len(rows))
