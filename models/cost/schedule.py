"""
What a pipeline schedule costs, in closed form.

``p`` is the number of stages, each on devices of its own, ``v`` the chunks of layers per device,
``m`` the micro-batches. For one micro-batch a chunk takes ``f`` seconds forward, ``b`` for the
gradient of its input and ``w`` for those of its weights. The orders that these forms belong to
stand in ``optplan.models.cost.simulation``, whose events they are tested against.

A step takes ``m v (f + b + w)`` and a bubble. Nothing here waits for a transfer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from optplan.models.cost.arrays import Float, Int, largest, where, where_int
from optplan.models.spec.framework import Schedule

SPLIT: frozenset[Schedule] = frozenset({"zb-h1", "zb-h2", "zb-v"})
"""Schedules that run the gradients of the weights apart from those of the input."""

IDLE_IF_SHORT: dict[Schedule, int] = {"zb-h1": 1, "zb-h2": 1, "zb-v": 2}
"""How many times f + b each stage but one idles where micro-batches are fewer than `enough`."""

Form = tuple[Int, Int, Int]
"""How many times f, b and w enter."""


def bubble_seconds(stages: Sequence[Float]) -> Float:
    """
    Time that 1F1B adds to the work of its slowest stage, ``sum x_i - max x_i``, for one step.

    The step takes ``(m - 1) max x_i + sum x_i``, and up to ``late_seconds`` more. With equal stages
    the bubble is ``(p - 1) x``, the paper's ``(TF + TCT + TAT - TO) (p - 1) / m`` with ``x`` the
    time of one micro-batch: no term contains the bubble itself.

    Parameters
    ----------
    stages
        Seconds of forward and backward of one micro-batch, first stage to last.
    """
    return sum(stages[1:], start=stages[0]) - _most(stages)


def chunks(schedule: Schedule, v: int = 1) -> int:
    """Chunks of layers per device: two in a V, ``v`` when interleaved, else one."""
    return {"zb-v": 2, "interleaved": v}.get(schedule, 1)


def allowed(schedule: Schedule, p: int, v: int, m: int) -> bool:
    """
    Say whether a schedule runs ``m`` micro-batches on ``p`` stages with ``v`` chunks on each.

    Interleaving takes whole rounds of ``p`` micro-batches; all others take any number.
    """
    if m < 1 or p < 1 or v < 1 or v != chunks(schedule, v):
        return False
    return schedule != "interleaved" or m % p == 0


def enough(schedule: Schedule, p: Int) -> Int:
    """Micro-batches from which on the bubble stays the same; with fewer it is longer."""
    if schedule == "zb-h1":
        return p
    return 2 * p - 1 if schedule in SPLIT else p * 0 + 1


def flight(
    schedule: Schedule, p: Int, v: Int, m: Int, until: Literal["B", "W"] = "W"
) -> tuple[Int, Int, Int]:
    """
    Count the activations that devices hold at once, in chunks of one micro-batch.

    Device ``i`` holds ``min(most, first - slope i)``: exactly so, but for a V of fewer than
    ``2 p - 1`` micro-batches, some of whose devices hold less.

    Parameters
    ----------
    schedule, p, v, m
        Any that ``allowed`` takes; ``v`` enters when interleaved alone.
    until
        Whether an activation is held until the end of its backward (``B``), or of its weights
        (``W``), which is as long or longer. One thing where the schedule does not ``SPLIT``.

    Returns
    -------
    tuple of int
        ``first``, ``slope`` and ``most``.
    """
    late = until == "W"
    if schedule == "1f1b":
        return p, 1, m
    if schedule == "gpipe":
        return m, 0, m
    if schedule == "interleaved":
        return (v + 1) * p - 1, 2, m * v
    if schedule == "zb-h1":
        return p, 0 if late else 1, m
    if schedule == "zb-h2":
        return 2 * p - 1, 0 if late else 2, m
    return 2 * p, 0, 2 * m


def even_seconds(
    schedule: Schedule,
    p: Int,
    v: Int,
    m: Int,
    f: Float,
    b: Float,
    w: Float,
    barrier: bool = False,
) -> Float:
    """
    Price a step of equal chunks: ``m v (f + b + w)`` and ``even_bubble_seconds``.

    Parameters
    ----------
    schedule, p, v, m, f, b, w, barrier
        As ``even_bubble_seconds`` takes them, and ``v`` chunks per device: 2 in a V, 1 elsewhere
        unless interleaved.
    """
    return m * v * (f + b + w) + even_bubble_seconds(schedule, p, f, b, w, m, barrier)


def even_bubble_seconds(
    schedule: Schedule,
    p: Int,
    f: Float,
    b: Float,
    w: Float,
    m: Int | None = None,
    barrier: bool = False,
) -> Float:
    """
    Price the bubble of equal chunks.

    It is exact, but for a V with ``p < m < 2 p - 1``, where it is exact while ``w <= f <= b`` and
    an upper bound elsewhere.

    Parameters
    ----------
    schedule
        Which.
    p
        Stages.
    f, b, w
        Seconds of a chunk for one micro-batch: forward, gradient of the input, of the weights. In a
        V and when interleaved, a chunk is a part of what a device holds.
    m
        Micro-batches; None for ``enough`` or more. The bubble never grows with ``m`` (in a V, while
        ``w <= f <= b``); that of ``m = 1``, ``(p - 1) (f + b)`` where the schedule splits and twice
        that in a V, bounds them all (in a V, while ``w <= b``).
    barrier
        Whether all devices wait for the last before the next step begins, as they do for a norm of
        all gradients; see ``optplan.models.cost.simulation.step_seconds``. Without splitting it
        changes nothing, as the first device starts first and ends last. Qi et al. (arXiv
        2401.10241) count without: only then does H2 or a V come to zero at ``f = b = w``.
    """
    if schedule == "zb-v":
        bubble = _v_seconds(p, f, b, w, enough(schedule, p) if m is None else m, barrier)
        return where(p > 1, bubble, 0.0 * bubble)
    q, full = p - 1, enough(schedule, p)
    k = (full if m is None else _least(m, full)) - 1
    if schedule == "zb-h1":
        return _largest_form(_h1_forms(q, k, barrier), f, b, w)
    if schedule == "zb-h2":
        return _largest_form(_h2_forms(q, k, barrier), f, b, w)
    return q * (f + b + w)


def forms(schedule: Schedule, q: int, k: int, barrier: bool = True) -> list[Form]:
    """
    List what the bubble is the largest of where there are enough micro-batches.

    Parameters
    ----------
    q, k
        ``p - 1``, and ``enough`` less one.
    barrier
        As in ``even_bubble_seconds``.
    """
    if schedule == "zb-h1":
        return _h1_forms(q, k, barrier)
    if schedule == "zb-h2":
        return _h2_forms(q, k, barrier)
    return _v_forms(q, barrier) if schedule == "zb-v" else [(q, q, q)]


def _v_forms(q: Int, barrier: bool) -> list[Form]:
    """List what the bubble of a V is the largest of, with enough micro-batches."""
    many: list[Form] = [(0, 2 * q, -2 * q), (2 * q - 1, 1, -2 * q), (2 * q, 0, -2 * q - 1)]
    if barrier:
        return [
            *many,
            (0, 1, q - 1),
            (0, q, 0),
            (1, 0, q - 1),
            (2 * q - 1, 1 - q, 0),
            (2 * q, -q, -1),
        ]
    many += [(-q, 1, q - 1), (-q, q, 0), (1 - q, 0, q - 1), (q - 1, 1 - q, 0)]
    return [*many, (2 * q, -q, -q)]


def _h1_forms(q: Int, k: Int, barrier: bool) -> list[Form]:
    """
    List what the bubble of H1 is the largest of; ``q = p - 1``, ``k = min(m, p) - 1``.

    In turn: the first device waits for the first backward, then works without a gap; the last waits
    for the first forward, its last backward runs up to the first device, and ``k`` of its weights
    are still to do; with a barrier, the last device works to the end.
    """
    forms: list[Form] = [(q - k, q, 0), (q, q, -k)]
    return [*forms, (q, q - k, 0)] if barrier else forms


def _h2_forms(q: Int, k: Int, barrier: bool) -> list[Form]:
    """
    List what the bubble of H2 is the largest of; ``q = p - 1``, ``k = min(m, 2 p - 1) - 1``.

    As for H1, with twice the wait; and some device in the middle, which is as far from the first as
    half of ``k`` lets it, works without a gap.
    """
    odd = k % 2
    half = q - (k + odd) // 2
    if barrier:
        middle: list[Form] = [(q, half, 0), (q - odd, half + odd, 0), (q, half + odd, -odd)]
    else:
        middle = [(half, half + odd, 0), (half + odd, half + odd, -odd)]
    return [(q - k, q, 0), *middle, (q, q, -k)]


def _v_seconds(p: Int, f: Float, b: Float, w: Float, m: Int, barrier: bool) -> Float:
    """Price the bubble of a V: with enough micro-batches, with at most ``p``, and in between."""
    q = p - 1
    k = _least(m, p) - 1
    few: list[Form] = [
        (2 * q - 2 * k, 2 * q, 0),
        (2 * q - k, 2 * q - k, 0),
        (2 * q, 2 * q - 3 * k, -k),
        (2 * q, 2 * q - 2 * k, -2 * k),
    ]
    many = _v_forms(q, barrier)
    # In between, no step is longer than with times raised until w <= f <= b, nor than with
    # micro-batches added until they are enough.
    r = m - p
    high = largest(f, w)
    top = largest(high, b)
    some: list[Form] = [(0, 2 * q, -2 * r)]
    some += [(0, 2 * q - r, r - q)] if barrier else []
    raised = 2 * m * (high - f + top - b) + _largest_form(some, high, top, w)
    full = _largest_form(many, f, b, w)
    added = 2 * (2 * p - 1 - m) * (f + b + w) + full
    between = where(raised < added, raised, added)
    return where(m >= 2 * p - 1, full, where(m <= p, _largest_form(few, f, b, w), between))


def late_seconds(forward: Sequence[Float], backward: Sequence[Float], m: Int) -> Float:
    """
    Bound what 1F1B of unequal stages takes beyond ``(m - 1) max x_i + sum x_i``.

    With ``x_i = f_i + b_i`` it is ``S = max_i max(0, n_i max_{j<=i} f_j - sum_{j>i} x_j)``,
    ``n_i = min(p - 1 - i, m - 1)``: by how much the forwards that warm a stage up may outlast what
    it waits for its first backward. It is zero unless a forward is long next to all that follows.

    Proof. Let ``P = max x_i`` and ``C_i = sum_j f_j + sum_{j>i} b_j + S``. Start backward ``k`` of
    stage ``i`` at ``C_i + k P``; let forward ``w_i + k``, ``w_i = min(p - 1 - i, m)`` of which warm
    up, end there; run those that warm up as soon as may be, so that forward ``n`` of them ends by
    ``sum_{j<=i} f_j + n max_{j<=i} f_j``, as in a flow shop of equal jobs. A stage does one thing
    at a time, as ``P >= x_i``, and is warm in time, by ``S``. A backward waits for that of the next
    stage, which ends at ``C_{i+1} + b_{i+1} + k P = C_i + k P``. A forward after the warm-up starts
    at ``C_{i+1} + (k + 1) P - f_{i+1} = C_i + k P + P - x_{i+1}``, after that of the stage before
    ended; if the latter belongs to its warm-up, by ``S``. So this is 1F1B, ending at
    ``C_0 + (m - 1) P + b_0``; and as soon as possible is no later.

    Parameters
    ----------
    forward, backward
        Seconds per stage; all of the backward.
    m
        Micro-batches.
    """
    p = len(forward)
    late: Float = 0.0 * (forward[0] + backward[0])
    longest = forward[0]
    for i in range(p - 1):
        longest = largest(longest, forward[i])
        ahead = sum(forward[i + 1 :]) + sum(backward[i + 1 :])
        late = largest(late, _least(m - 1, p - 1 - i) * longest - ahead)
    return late


def uneven_seconds(
    schedule: Schedule,
    forward: Sequence[Sequence[Float]],
    backward: Sequence[Sequence[Float]],
    weight: Sequence[Sequence[Float]],
    m: Int,
    barrier: bool = False,
) -> Float:
    """
    Bound a step of unequal chunks from above.

    1F1B: ``(m - 1) max x_i + sum x_i`` and ``late_seconds``. GPipe, exactly: ``sum x_i`` and
    ``m - 1`` times the longest forward and the longest backward; all forwards of a stage are done
    before its first backward, each half is a flow shop of equal jobs, and they meet in the last
    stage. All others: ``even_seconds`` of a base, and ``m`` times all that any chunk's f, b and w
    exceed it by (``excess_seconds``), whatever the base; here it is the ``v + 1``st largest of
    each, which is near the best.

    Proof of the last. In a fixed order a step lasts as long as the longest path through its ops:
    it does not shrink when ops grow, and grows by no more than all of them do together, as a path
    takes each op once. So raise what is below the base to it, and add the excess of all others.
    Without a barrier, so raised, no device starts its step earlier than with the base alone, and
    none ends it later than then and the excess; it is at it for no longer than the price. Every
    step may hence start that much after the one before, on all devices.

    Parameters
    ----------
    forward, backward, weight
        Seconds of one micro-batch, ``[device][chunk]``.
    m
        Micro-batches.
    barrier
        As for ``even_bubble_seconds``; without, it bounds the seconds per step of a long run.
    """
    p, v = len(forward), len(forward[0])
    ahead = [f for (f,) in forward] if v == 1 else []
    back = [b + w for (b,), (w,) in zip(backward, weight, strict=True)] if v == 1 else []
    if schedule == "gpipe":
        return sum(ahead) + sum(back) + (m - 1) * (_most(ahead) + _most(back))
    if schedule == "1f1b":
        busy = [f + b for f, b in zip(ahead, back, strict=True)]
        return m * _most(busy) + bubble_seconds(busy) + late_seconds(ahead, back, m)
    kinds = [[time for row in rows for time in row] for rows in (forward, backward, weight)]
    f, b, w = (_ranked(times, v) for times in kinds)
    more = sum(excess_seconds(times, base, m) for times, base in zip(kinds, (f, b, w), strict=True))
    return even_seconds(schedule, p, v, m, f, b, w, barrier) + more


def excess_seconds(times: Sequence[Float], base: Float, m: Int) -> Float:
    """
    Add up what passes take beyond a base, over ``m`` micro-batches.

    Parameters
    ----------
    times
        Seconds of one kind of pass, chunk by chunk.
    base
        Seconds that the price of equal chunks counts for each.
    m
        Micro-batches.
    """
    return m * sum(largest(time - base, 0.0 * base) for time in times)


def _ranked(times: Sequence[Float], place: int) -> Float:
    """Find the ``place + 1``st largest, elementwise, or the smallest if there are fewer."""
    place = min(place, len(times) - 1)
    if any(isinstance(time, np.ndarray) for time in times):
        found: Float = np.sort(np.stack(np.broadcast_arrays(*times)), axis=0)[-1 - place]
        return found
    return sorted(map(float, times))[-1 - place]


def _largest_form(forms: Sequence[Form], f: Float, b: Float, w: Float) -> Float:
    """Evaluate linear forms in f, b and w; take the largest."""
    return _most([one * f + two * b + three * w for one, two, three in forms])


def _most(values: Sequence[Float]) -> Float:
    """Find the largest, elementwise."""
    most = values[0]
    for value in values[1:]:
        most = largest(most, value)
    return most


def _least(left: Int, right: Int) -> Int:
    """Smaller of two counts, elementwise."""
    return where_int(left < right, left, right)


def chunk_layers(layers: int, chunks: int, chunk: int, light: int) -> int:
    """Layers of one chunk: even shares, the chunk at an end of the model the last to get more."""
    share, over = divmod(layers, chunks)
    return share + ((chunk - light - 1) % chunks < over)
