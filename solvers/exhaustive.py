"""Every point of a program, priced: the oracle of the tests and the census of every solve."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction

import numpy as np

from optplan.models.program import Integers, Program, Table
from optplan.solvers.base import (
    Census,
    Outcome,
    Progress,
    SolverConfig,
    Termination,
    chosen,
    holding,
    rank,
    ratio,
)
from optplan.solvers.grid import Block, Grid, Mask, prices

NEAR = 1e-12
"""Floats closer than this, relatively, are told apart by exact fractions."""


Watcher = Callable[[Block, Mask], None]


def solve(
    program: Program, config: SolverConfig | None = None, watch: Watcher | None = None
) -> Outcome:
    """
    Price every point and return the best.

    Parameters
    ----------
    program
        Any program; time grows with the number of its points.
    config
        Only ``seconds``, ``top`` and ``progress`` matter here.
    watch
        Called after each block that holds a plan, with the block and the mask of the points that
        pass every table, whether or not they pass the rows.

    Returns
    -------
    Outcome
        ``exhausted`` with the exact optimum, or ``time-limit`` / ``interrupted`` with the best so
        far and no bound but the goal's own ``least``.
    """
    config = config or SolverConfig()
    if program.pipeline is not None:
        from optplan.solvers.search import Search

        return Search(program, config, bounded=False).outcome()
    start, told = time.monotonic(), time.monotonic()
    grid = Grid(program)
    tables = {s.name for s in program.statements if isinstance(s, Table)}
    total = grid.points
    best: list[dict[str, int]] = []
    removed = dict.fromkeys(program.constraints, 0)
    seen = priced = 0
    termination = Termination.EXHAUSTED
    try:
        for block in grid.blocks():
            relaxed: Mask = block.alive
            for name, ok in grid.judge(block, removed):
                if watch and name in tables:
                    relaxed = relaxed & ok
            if watch and block.alive.any():
                watch(block, relaxed)
            seen += block.points
            priced += block.count(block.alive)
            best = _merge(program, best, _candidates(program, block, config.top), config.top)
            now = time.monotonic()
            if config.seconds is not None and now - start > config.seconds and seen < total:
                termination = Termination.TIME_LIMIT
                break
            if config.progress and now - told > 0.2:
                told = now
                held = float(ratio(program, best[0])) * program.goal.scale if best else None
                config.progress(Progress(now - start, held, None, seen / total))
    except KeyboardInterrupt:
        termination = Termination.INTERRUPTED
    done = termination is Termination.EXHAUSTED
    goal = ratio(program, best[0]) if best else None
    return Outcome(
        termination=termination,
        holding=holding(bool(best), done),
        best=tuple(chosen(program, values) for values in best),
        goal=goal,
        bound=goal if done else program.goal.least,
        census=Census(total, removed) if done else None,
        priced=priced,
        engine=f"exhaustive (numpy {np.__version__})",
        seconds=time.monotonic() - start,
    )


def count(program: Program) -> int:
    """Points of a program's space, counted without visiting them."""
    if program.pipeline is not None:
        from optplan.solvers.boxes import Spine

        return Spine(program).total()
    return Grid(program).points


def _candidates(program: Program, block: Block, top: int) -> Iterator[dict[str, int]]:
    """Yield the points of a judged block that may be among the best, exactly evaluated."""
    if not block.alive.any():
        return
    price = np.where(block.alive, prices(program, block), np.inf)
    price = np.broadcast_to(price, block.shape).ravel()
    cut = np.partition(price, top - 1)[top - 1] if top < price.size else price.max()
    if not np.isfinite(cut):
        cut = price[np.isfinite(price)].max()
    near = np.flatnonzero(price <= cut + abs(cut) * NEAR)
    read = block.at(near)
    ties = [read[t] for t in reversed(program.ties)]
    order = np.lexsort([*ties, _exact_order(program, read)])
    for i in order[:top].tolist():
        yield {name: int(column[i]) for name, column in read.items()}


def _exact_order(program: Program, read: Mapping[str, Integers]) -> Integers:
    """Rank points by their exact goal; equal goals share a rank."""
    goal, one = program.goal, np.ones_like(read[program.goal.of])
    parts = [read[goal.of], *(read[name] if name else one for name in (goal.times, goal.per))]
    known, code = np.unique(np.stack(parts, axis=1), axis=0, return_inverse=True)
    goals = [Fraction(of * times, per) for of, times, per in known.tolist()]
    number = {goal: i for i, goal in enumerate(sorted(set(goals)))}
    return np.array([number[goal] for goal in goals], dtype=np.int64)[code.ravel()]


def _merge(
    program: Program, best: list[dict[str, int]], more: Iterator[dict[str, int]], top: int
) -> list[dict[str, int]]:
    """Keep the best few of two lists, by exact rank."""

    def key(values: dict[str, int]) -> tuple[Fraction, ...]:
        return rank(program, values)

    found = list(more)
    return sorted([*best, *found], key=key)[:top] if found else best
