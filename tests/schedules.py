"""Prices of pipelines against their simulation: ``python -m tests.schedules`` prints how far."""

from __future__ import annotations

from random import Random

import numpy as np
from numpy.typing import NDArray

from optplan.models.cost.schedule import allowed, chunks, uneven_seconds
from optplan.models.cost.simulation import simulate, step_seconds
from optplan.models.spec.framework import SCHEDULES, Schedule

Seconds = NDArray[np.float64]
Rows = list[list[Seconds]]

SHARES = (1.0, 1.3, 0.9)
"""Forward, gradient of the input, of the weights: about what a block with attention takes."""

SPREADS = (1.0, 1.1, 2.0, 10.0)
"""By how many times the chunks of one pipeline may differ."""

STEPS = 4
"""Steps in a row, where none waits for the one before."""


def shapes(schedule: Schedule, luck: Random, count: int) -> list[tuple[int, int, int]]:
    """Random ``(p, v, m)`` that a schedule runs, up to 8, 4 and 32."""
    found: list[tuple[int, int, int]] = []
    while len(found) < count:
        shape = (luck.randint(2, 8), chunks(schedule, luck.randint(2, 4)), luck.randint(1, 32))
        if allowed(schedule, *shape):
            found.append(shape)
    return found


def drawn(p: int, v: int, most: float, size: int, seed: int) -> tuple[Rows, Rows, Rows]:
    """Random seconds of forward, backward and weights, for so many pipelines at once."""
    luck = np.random.default_rng(seed)
    times = [share * luck.uniform(1.0, most, (p, v, size)) for share in SHARES]
    forward, backward, weight = ([list(row) for row in rows] for rows in times)
    return forward, backward, weight


def excess(
    schedule: Schedule, times: tuple[Rows, Rows, Rows], m: int, barrier: bool, steps: int = STEPS
) -> Seconds:
    """
    Share by which the price exceeds the simulation.

    With a barrier of one step; without, of several in a row: the first to its end, each other as
    long as the price says.
    """
    price = np.asarray(uneven_seconds(schedule, *times, m, barrier=True))
    if not barrier:
        price = price + (steps - 1) * np.asarray(uneven_seconds(schedule, *times, m))
    passes = simulate(schedule, *times, m, steps=1 if barrier else steps)
    found: Seconds = price / np.asarray(step_seconds(passes, barrier=True)) - 1
    return found


def row(schedule: Schedule, barrier: bool, count: int = 60, size: int = 50) -> list[Seconds]:
    """All shares seen, for every spread, over ``count`` shapes of ``size`` pipelines each."""
    asked = shapes(schedule, Random(2501), count)
    return [
        np.concatenate(
            [
                excess(schedule, drawn(p, v, most, size, seed), m, barrier)
                for seed, (p, v, m) in enumerate(asked)
            ]
        )
        for most in SPREADS
    ]


def report() -> str:
    """One line for each schedule, with and without a barrier: least, median and largest share."""
    lines = [
        "price over simulation, least / median / largest, chunks differing up to so many times",
        " ".join([f"{'':24}", *(f"{f'{most:g} times':>26}" for most in SPREADS)]),
    ]
    for schedule in SCHEDULES:
        for barrier in (True, False):
            name = f"{schedule}, {'one step' if barrier else f'{STEPS} in a row'}"
            cells = [
                f"{np.min(seen):+.1%} / {np.median(seen):+.1%} / {np.max(seen):+.1%}"
                for seen in row(schedule, barrier)
            ]
            lines.append(" ".join([f"{name:24}", *(f"{cell:>26}" for cell in cells)]))
    return "\n".join(lines)


if __name__ == "__main__":
    print(report())
