"""How stages and micro-batches interleave: 1F1B in closed form, and its event simulation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from optplan.models.cost.arrays import Float, largest


def bubble_seconds(stages: Sequence[Float]) -> Float:
    """
    Time that 1F1B adds to the work of its slowest stage, ``sum x_i - max x_i``, for one step.

    The step takes ``(m - 1) max x_i + sum x_i``. With equal stages the bubble is ``(p - 1) x``,
    the paper's ``(TF + TCT + TAT - TO) (p - 1) / m`` with ``x`` the time of one micro-batch: no
    term contains the bubble itself. It is exact while no stage before the last is slower,
    forward or backward, than the last. Where forward is the same share of every stage it never
    fell short of the event simulation; where the shares differ it may.

    Parameters
    ----------
    stages
        Seconds of forward and backward of one micro-batch, first stage to last.
    """
    slowest: Float = stages[0]
    for stage in stages[1:]:
        slowest = largest(slowest, stage)
    return sum(stages[1:], start=stages[0]) - slowest


@dataclass(frozen=True)
class Pass:
    """One forward or backward of one micro-batch on one stage: who, what, when (seconds)."""

    stage: int
    micro_batch: int
    backward: bool
    start: float
    end: float


def order_1f1b(stage: int, stages: int, micro_batches: int) -> list[tuple[int, bool]]:
    """
    List what a stage runs, in order, as ``(micro-batch, backward)``.

    ``stages - stage - 1`` forwards to warm up, then one forward and one backward in turn, then the
    backwards left.
    """
    warm = min(stages - stage - 1, micro_batches)
    order = [(i, False) for i in range(warm)]
    for i in range(micro_batches - warm):
        order += [(warm + i, False), (i, True)]
    return order + [(i, True) for i in range(micro_batches - warm, micro_batches)]


def simulate_1f1b(
    forward: Sequence[float], backward: Sequence[float], micro_batches: int
) -> list[Pass]:
    """
    Run 1F1B event by event: each pass starts when its stage is free and its input is there.

    Parameters
    ----------
    forward, backward
        Seconds per stage, equal lengths.
    micro_batches
        At least 1.

    Returns
    -------
    list of Pass
        Every pass with its times; the step ends with the last ``end``.
    """
    stages = len(forward)
    todo = [order_1f1b(i, stages, micro_batches) for i in range(stages)]
    done: dict[tuple[int, int, bool], float] = {}
    free, at = [0.0] * stages, [0] * stages
    passes: list[Pass] = []
    while len(passes) < 2 * stages * micro_batches:
        moved = False
        for stage in range(stages):
            while at[stage] < len(todo[stage]):
                batch, back = todo[stage][at[stage]]
                needs = _needs(stage, stages, batch, back)
                if needs is not None and needs not in done:
                    break
                start = max(free[stage], done[needs] if needs else 0.0)
                end = start + (backward if back else forward)[stage]
                done[stage, batch, back] = free[stage] = end
                passes.append(Pass(stage, batch, back, start, end))
                at[stage] += 1
                moved = True
        assert moved, "1F1B cannot deadlock"
    return passes


def _needs(stage: int, stages: int, batch: int, back: bool) -> tuple[int, int, bool] | None:
    """Name the pass whose result a pass waits for; None for the first."""
    if not back:
        return (stage - 1, batch, False) if stage else None
    return (stage + 1, batch, True) if stage < stages - 1 else (stage, batch, False)
