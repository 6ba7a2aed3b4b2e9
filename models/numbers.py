"""Divisors, and lists of numbers for print."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache


@lru_cache(maxsize=65536)
def divisors(number: int) -> tuple[int, ...]:
    """All divisors of a number of at least 1, ascending."""
    small = [d for d in range(1, int(number**0.5) + 1) if number % d == 0]
    large = [number // d for d in reversed(small) if d * d != number]
    return (*small, *large)


def listed(numbers: Sequence[object], most: int = 12) -> str:
    """Render a short list in braces, a long one by its ends."""
    shown = [str(n) for n in numbers]
    if len(shown) > most:
        shown = [*shown[: most - 2], "...", shown[-1]]
    return "{" + ", ".join(shown) + "}"
