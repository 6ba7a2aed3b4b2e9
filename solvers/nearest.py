"""The point that breaks the fewest rules, for a demand that no plan can meet."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from optplan.models.program import Program
from optplan.solvers.grid import Block, Grid, Mask


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
    best: tuple[int, float] | None = None
    found: dict[str, int] | None = None
    for block in grid.blocks():
        broken = np.zeros((1,) * len(block.shape), dtype=np.int64)
        for _, ok in grid.judge(block):
            broken = broken + ~ok
        fewest = int(broken.min())
        if best is not None and fewest > best[0]:
            continue
        price = _price(program, block, broken == fewest)
        at = int(price.argmin())
        if best is None or (fewest, float(price[at])) < best:
            best = (fewest, float(price[at]))
            read = block.at(np.array([at]))
            found = {choice.name: int(read[choice.name][0]) for choice in program.choices}
    return found


def _price(program: Program, block: Block, among: Mask) -> NDArray[np.float64]:
    """Goal of some points of a block, flat; infinite elsewhere."""
    of, per = program.goal.of, program.goal.per
    goal = block.columns[of] / (block.columns[per] if per else 1)
    price: NDArray[np.float64] = np.where(among, goal, np.inf)
    return np.broadcast_to(price, block.shape).ravel()
