"""Divisors and factor pairs, and lists of numbers for print."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

SIEVED = 2_000_000
"""Many numbers up to this are factored together by a sieve, larger or fewer ones one by one."""


@lru_cache(maxsize=65536)
def divisors(number: int) -> tuple[int, ...]:
    """All divisors of a number of at least 1, ascending."""
    small = [d for d in range(1, int(number**0.5) + 1) if number % d == 0]
    large = [number // d for d in reversed(small) if d * d != number]
    return (*small, *large)


def factor_pairs(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """
    List every way to write each of some numbers as a product of two.

    Parameters
    ----------
    values
        Numbers of at least 1, ascending, without repeats.

    Returns
    -------
    ndarray
        Rows ``(left, right)``, shape ``(n, 2)``.
    """
    if not len(values):
        return np.empty((0, 2), dtype=np.int64)
    largest = int(values[-1])
    if largest > SIEVED or len(values) < 64:
        pairs = [(d, int(v) // d) for v in values for d in divisors(int(v))]
        return np.array(pairs, dtype=np.int64)
    wanted = np.zeros(largest + 1, dtype=bool)
    wanted[values] = True
    rights = [np.flatnonzero(wanted[::left][1:]) + 1 for left in range(1, largest + 1)]
    lefts = np.repeat(np.arange(1, largest + 1), [len(right) for right in rights])
    return np.stack([lefts, np.concatenate(rights)], axis=1).astype(np.int64)


def counted(number: int, noun: str) -> str:
    """Render a count with its noun, in the plural where it is not one."""
    plural = f"{noun}es" if noun.endswith("h") else f"{noun}s"
    return f"{number} {noun if number == 1 else plural}"


def listed(numbers: Sequence[object], most: int = 12) -> str:
    """Render a short list in braces, a long one by its ends."""
    shown = [str(n) for n in numbers]
    if len(shown) > most:
        shown = [*shown[: most - 2], "...", shown[-1]]
    return "{" + ", ".join(shown) + "}"
