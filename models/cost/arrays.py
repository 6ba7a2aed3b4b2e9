"""Numbers and arrays of numbers, priced by the same functions."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

Int = int | NDArray[np.integer[Any]]
"""Counts and bytes: one or many."""

Float = float | NDArray[np.floating[Any]] | NDArray[np.integer[Any]]
"""Seconds, shares and rates: one or many; whole numbers are welcome."""

Bool = bool | NDArray[np.bool_]
"""Conditions: one or many."""


def ceil_div(left: Int, right: Int) -> Int:
    """Quotient of whole numbers, rounded up."""
    return -(-left // right)


def where(condition: Bool, yes: Float, no: Float = 0.0) -> Float:
    """Choose elementwise; plain numbers stay plain numbers."""
    if isinstance(condition, bool | np.bool_):
        return yes if condition else no
    return cast(Float, np.where(condition, yes, no))


def where_int(condition: Bool, yes: Int, no: Int = 0) -> Int:
    """Choose whole numbers elementwise."""
    if isinstance(condition, bool | np.bool_):
        return yes if condition else no
    return cast(Int, np.where(condition, yes, no))


def largest(left: Float, right: Float) -> Float:
    """Larger of two, elementwise; plain numbers stay plain numbers."""
    return where(left > right, left, right)
