"""The point that breaks the fewest rules, for a demand that no plan can meet."""

from __future__ import annotations

import numpy as np

from optplan.models.program import Program
from optplan.solvers.base import chosen
from optplan.solvers.grid import Grid, prices


def nearest(program: Program) -> dict[str, int] | None:
    """
    Find the point that breaks the fewest constraints, and of those the cheapest.

    Parameters
    ----------
    program
        Any program, feasible or not.

    Returns
    -------
    dict or None
        Values of all choices; None where the space has no point at all.
    """
    grid = Grid(program)
    grid.exact = True
    best: tuple[int, float] | None = None
    found: dict[str, int] | None = None
    for block in grid.blocks():
        broken = np.zeros((1,) * len(block.shape), dtype=np.int64)
        for _, ok in grid.judge(block):
            broken = broken + ~ok
        fewest = int(broken.min())
        if best is not None and fewest > best[0]:
            continue
        price = np.where(broken == fewest, prices(program, block), np.inf)
        price = np.broadcast_to(price, block.shape).ravel()
        at = int(price.argmin())
        if best is None or (fewest, float(price[at])) < best:
            best = (fewest, float(price[at]))
            read = block.at(np.array([at]))
            found = chosen(program, {name: int(column[0]) for name, column in read.items()})
    return found
