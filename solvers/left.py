"""Points that a search leaves to a prover."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from optplan.models.program import Integers
from optplan.solvers.settle import Point


@dataclass
class Left:
    """
    Points that no bound has removed: columns, one row a point, and their bounds.

    Parameters
    ----------
    columns
        What a point is made of.
    bound
        No way of handing out its layers has a smaller goal.
    """

    columns: dict[str, Integers]
    bound: NDArray[np.float64]

    def take(self, index: NDArray[np.int64] | NDArray[np.bool_]) -> Left:
        """Pick some of the points."""
        return Left({k: v[index] for k, v in self.columns.items()}, self.bound[index])

    def at(self, i: int) -> Point:
        """Read one point."""
        return {k: int(v[i]) for k, v in self.columns.items()}

    def __len__(self) -> int:
        """Count the points."""
        return len(self.bound)


def joined(parts: list[Left], names: tuple[str, ...]) -> Left:
    """Put points of several blocks together."""
    if not parts:
        return none_left(names)
    columns = {n: np.concatenate([k.columns[n] for k in parts]) for n in names}
    return Left(columns, np.concatenate([k.bound for k in parts]))


def none_left(names: tuple[str, ...]) -> Left:
    """No point at all."""
    return Left({n: np.empty(0, dtype=np.int64) for n in names}, np.empty(0))
