"""Share a pipeline's layers out to its stages, exactly and without a solver."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from optplan.models.stages import ALIKE, Share
from optplan.solvers.stages_tables import Tables, Within


@dataclass(frozen=True)
class Shared:
    """
    One way to share out.

    Parameters
    ----------
    step
        Ticks of a step.
    peak
        Bytes of the fullest device.
    layers, again
        Per stage, layers held and layers of them computed again.
    """

    step: int
    peak: int
    layers: tuple[int, ...]
    again: tuple[int, ...]


def share_out(share: Share, below: int | None = None) -> Shared | None:
    """
    Share out for the fastest step.

    Of all ways within the room the one with the shortest step; of those the one whose fullest
    device needs least; then the smallest bottleneck ``max_i x_i``, the smallest once-a-step part,
    the fewest layers computed again, the evenest (least sum of squared layers), and the fewest
    layers on the first stage on which two ways differ.

    Parameters
    ----------
    share
        What is to be shared out.
    below
        Only a step of fewer ticks is of interest.

    Returns
    -------
    Shared | None
        None where nothing fits, or nothing that fits takes fewer ticks than ``below``.
    """
    if share.mode == ALIKE and share.each is None:
        return _alike(share, below)
    tables = Tables(share)
    if (found := Within(tables, share.room).fastest(below)) is None:
        return None
    step = found[0]
    tables.narrow(step)
    peaks = Within(tables, share.room).peaks(step)

    def enough(place: int) -> bool:
        return Within(tables, peaks[place]).fastest(step + 1, enough=step) is not None

    # The way just found has one of these peaks, so the last will do.
    return _shared(Within(tables, peaks[first_enough(0, len(peaks) - 1, enough)]))


def _alike(share: Share, below: int | None) -> Shared | None:
    """
    Share out with as many layers computed again on every stage, whatever number is best.

    Without regard to the room, more of them never make a step shorter; so the search ends where
    that alone is too long.
    """
    best: Shared | None = None
    tables = Tables(share)
    if not tables.possible:
        return None
    for each in range(min(share.most, share.layers) + 1):
        if below is not None and _at_least(share, each) >= below:
            break
        one = replace(share, each=each)
        if Within(tables, share.room, one).fastest(below) is None:
            continue
        found = share_out(one, below)
        assert found is not None, "the same tables hold something"
        if best is None or _order(share, found) < _order(share, best):
            best = found
        below = best.step + 1
    return best


def _at_least(share: Share, each: int) -> int:
    """Ticks that a step takes at least where so many layers a stage are computed again."""
    p, layers = share.stages, share.layers
    mean = -(-layers // p)
    ends = min(0, share.front) + min(0, share.back)
    slowest = share.layer * mean + share.again * min(each, mean) + ends
    few = min(each, share.least)
    again = few * (p - 1) + min(each, max(0, layers - share.most * (p - 1)))
    once = min(0, share.once_front) + min(0, share.once_back) + share.once_layer * mean
    whole = share.layer * layers + share.front + share.back + share.fixed
    return share.turns * slowest + whole + share.again * again + once


def _order(share: Share, way: Shared) -> tuple[object, ...]:
    """Weigh one way against another, as ``share_out`` does."""
    pairs = list(zip(way.layers, way.again, strict=True))
    slowest = max(share.seconds(i, *pair) for i, pair in enumerate(pairs))
    once = max(share.once(i, held) for i, held in enumerate(way.layers))
    even = sum(held**2 for held in way.layers)
    return way.step, way.peak, slowest, once, sum(way.again), even, way.layers


def first_enough(low: int, high: int, enough: Callable[[int], bool]) -> int:
    """
    Find the least number from ``low`` on that is enough, where more is never less.

    Parameters
    ----------
    high
        Taken to be enough, and not asked.
    """
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle + 1, high)
    return low


def least_step(share: Share, below: int | None = None) -> int | None:
    """
    Ticks of the fastest way to share out, cheaper than the way itself.

    Parameters
    ----------
    share, below
        As for ``share_out``.

    Returns
    -------
    int | None
        The step of what ``share_out`` returns.
    """
    if share.mode == ALIKE and share.each is None:
        way = share_out(share, below)
        return None if way is None else way.step
    found = Within(Tables(share), share.room).fastest(below)
    return None if found is None else found[0]


def least_room(share: Share) -> Shared | None:
    """
    Share out so that the fullest device needs least, then for the fastest step.

    Parameters
    ----------
    share
        What is to be shared out.

    Returns
    -------
    Shared | None
        Further ties as for ``share_out``; None where nothing fits.
    """
    if not fits(share):
        return None
    # No stage needs less than without a layer.
    low = max(share.held(i, 0, 0) for i in range(share.stages))
    room = first_enough(low, share.room, lambda some: fits(replace(share, room=some)))
    if share.mode == ALIKE:
        return share_out(replace(share, room=room))
    return _shared(Within(Tables(share), room))


def fits(share: Share) -> bool:
    """
    Tell whether any way to share out stays within the room.

    A stage that can hold some layers can hold fewer (a layer's states are never negative, and
    computing it again saves no more than it keeps), so only the largest counts matter.

    Parameters
    ----------
    share
        What is to be shared out.

    Returns
    -------
    bool
        Exact.
    """
    if share.mode == ALIKE:
        # What fits with some layers computed again on every stage fits with all of them.
        return any(fits(replace(share, mode=mode)) for mode in (0, 2))
    total = 0
    for stage in range(share.stages):
        least = share.least_first if stage == 0 else share.least
        largest = _largest(share, stage)
        if largest < least:
            return False
        total += largest
    fewest = share.least_first + share.least * (share.stages - 1)
    return fewest <= share.layers <= total


def _largest(share: Share, stage: int) -> int:
    """Most layers that a stage can hold, -1 where not even none."""
    flying = share.in_flight(stage)
    plain = share.room - share.held(stage, 0, 0)
    largest = -1
    if plain >= 0:
        largest = 0
        if share.mode < 2:
            largest = _quotient(plain, share.state_layer + flying * share.kept, share.most)
    if share.mode > 0:
        # With something computed again: all of it, which needs least.
        one = share.room - share.held(stage, 1, 1)
        if one >= 0:
            layer = share.state_layer + flying * (share.kept - share.saved)
            largest = max(largest, 1 + _quotient(one, layer, share.most))
    return min(largest, share.most)


def _quotient(room: int, each: int, most: int) -> int:
    """How often something fits."""
    return min(room // each, most) if each else most


def _shared(within: Within) -> Shared:
    """Return the fastest way within a room that holds something."""
    way = within.settled()
    return Shared(within.share.step(*way), within.share.peak(*way), *way)
