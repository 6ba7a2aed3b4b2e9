"""Many pipelines at once: lower bounds of their steps, and which of them fit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from optplan.models.stages import ALIKE, Share

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

NEVER = 2**62
"""Bound of a pipeline that cannot be shared out."""

LARGEST = 2**60
"""Products are cut off here, so that sums of a few stay within int64."""

SLACK = 1e-6
"""Layers by which a float may be wrong: these stay below 10^6 and carry 15 digits."""

ROUNDS = 12
"""Halvings of the range of bottlenecks."""

STRIDES = 6
"""Bottlenecks looked at for whether layers computed again are worth a larger one."""

BLOCK = 1 << 15
"""Stages worked on at once, so that the tables stay in the cache."""


@dataclass(frozen=True)
class Shares:
    """
    Many shares: the columns of ``Share``, each an int64 array of shape (n,).

    Parameters
    ----------
    layers
        The same for all.
    """

    layers: int
    stages: Ints
    least: Ints
    most: Ints
    least_first: Ints
    mode: Ints
    turns: Ints
    layer: Ints
    again: Ints
    front: Ints
    back: Ints
    once_layer: Ints
    once_front: Ints
    once_back: Ints
    fixed: Ints
    room: Ints
    state_layer: Ints
    state_front: Ints
    state_back: Ints
    kept: Ints
    saved: Ints
    working: Ints
    working_last: Ints
    inside: Ints
    flight_first: Ints
    flight_slope: Ints
    flight_most: Ints

    def __len__(self) -> int:
        """Count the shares."""
        return len(self.stages)

    def take(self, index: NDArray[np.int64] | NDArray[np.bool_] | slice) -> Shares:
        """Pick some of the shares, by place, mask or slice."""
        return Shares(self.layers, *(getattr(self, name)[index] for name in _COLUMNS))

    def at(self, place: int) -> Share:
        """Pick one share."""
        columns = {name: int(getattr(self, name)[place]) for name in _COLUMNS}
        return Share(layers=self.layers, **columns)

    @classmethod
    def of(cls, shares: Sequence[Share]) -> Shares:
        """Gather shares of the same number of layers."""
        columns = [np.array([getattr(s, c) for s in shares], dtype=np.int64) for c in _COLUMNS]
        return cls(shares[0].layers, *columns)


_COLUMNS = [field.name for field in fields(Shares) if field.name != "layers"]


def quick_bound(shares: Shares) -> Ints:
    """
    Bound steps from below as if no device could run out of memory.

    Parameters
    ----------
    shares
        n shares.

    Returns
    -------
    Ints
        Ticks, shape (n,). Without memory and with no more than ``most`` layers a stage, bottleneck
        and once-a-step part are each the smallest possible.
    """
    return _step(shares, _bottleneck(shares), _all_again(shares))


def _all_again(shares: Shares) -> Ints:
    """Layers that the mode demands to compute again."""
    return np.where(shares.mode == 2, shares.layers, 0)


def _bottleneck(shares: Shares) -> Ints:
    """Smallest bottleneck without memory."""
    each = shares.layer + np.where(shares.mode == 2, shares.again, 0)
    return _even(shares, each, shares.front, shares.back)


def _step(shares: Shares, bottleneck: Ints, again: Ints) -> Ints:
    """Step of a bottleneck, of layers computed again, and of the smallest once-a-step part."""
    once = _even(shares, shares.once_layer, shares.once_front, shares.once_back)
    rest = shares.layer * shares.layers + shares.front + shares.back + shares.fixed + once
    total = _times(shares.turns, bottleneck) + _times(shares.again, again) + rest
    return np.minimum(total, LARGEST)


def _times(one: Ints, other: Ints) -> Ints:
    """Multiply, no further than the largest; below zero only where the product is small."""
    large = one.astype(np.float64) * other > LARGEST
    product: Ints = np.where(large, LARGEST, one * other)
    return product


def _even(shares: Shares, each: Ints, front: Ints, back: Ints) -> Ints:
    """
    Smallest cap under which stages of ``each l + ends`` take all layers.

    The mean of the stages is a lower bound. From there to one ``each`` above, every stage gains a
    layer exactly once, which makes up for all that rounding down lost.
    """
    p = shares.stages
    least = np.where(p > 2, each * shares.least, 0)
    least = np.maximum(least, each * shares.least_first + front)
    least = np.maximum(least, each * shares.least + back)
    low = np.maximum(-(-(each * shares.layers + front + back) // p), least)
    unit = np.maximum(each, 1)
    first, middle, last = (low - front) // unit, low // unit, (low - back) // unit
    missing = shares.layers - first - (p - 2) * middle - last
    gains = [unit * (first + 1) + front, unit * (middle + 1), unit * (last + 1) + back]
    best = np.maximum(np.maximum(gains[0], gains[1]), gains[2])
    for cap in gains:
        gained = (gains[0] <= cap) + (p - 2) * (gains[1] <= cap) + (gains[2] <= cap)
        best = np.where((gained >= missing) & (cap < best), cap, best)
    whole: Ints = np.where((missing > 0) & (each > 0), best, low)
    # One stage has both ends and all layers.
    return np.where(p == 1, each * shares.layers + front + back, whole)


def fit_many(shares: Shares) -> NDArray[np.bool_]:
    """
    Tell which shares can be shared out within their room.

    Parameters
    ----------
    shares
        n shares.

    Returns
    -------
    NDArray[np.bool_]
        Exact, shape (n,); the same as ``fits`` of each.
    """
    alike = shares.mode == ALIKE
    if alike.any():
        # What fits with some layers computed again fits with all of them.
        ways = [fit_many(replace(shares, mode=np.where(alike, m, shares.mode))) for m in (0, 2)]
        return np.where(alike, ways[0] | ways[1], ways[0])
    p, least = shares.stages, shares.least
    first = _largest(shares, np.int64(0))
    last = np.where(p > 1, _largest(shares, p - 1), 0)
    # From stage to stage fewer micro-batches are held, so that a later one has room for more.
    second = _largest(shares, np.minimum(1, p - 1))
    fitting = (first >= shares.least_first) & (first >= 0)
    fitting &= shares.least_first + (p - 1) * least <= shares.layers
    fitting &= ((p == 1) | (last >= least)) & ((p <= 2) | (second >= least))
    ends, between = first + last, np.maximum(p - 2, 0)
    sure = ends + between * second >= shares.layers
    open_ = np.flatnonzero(fitting & ~sure & (p > 3))
    fitting &= sure
    behind = _largest(shares.take(open_), p[open_] - 2)
    most = ends[open_] + second[open_] + (between[open_] - 1) * behind
    for index, tall, stage in _blocks(shares, open_[most >= shares.layers]):
        fitting[index] = _largest(tall, stage).sum(axis=1) >= shares.layers
    return fitting


def _blocks(shares: Shares, index: Ints) -> Iterator[tuple[Ints, Shares, Ints]]:
    """Places of shares of as many stages, those shares as columns, and their stages as a row."""
    stages = shares.stages[index]
    for p in np.unique(stages).tolist():
        same = index[stages == p]
        for start in range(0, len(same), max(1, BLOCK // p)):
            part = same[start : start + max(1, BLOCK // p)]
            some = shares.take(part)
            columns = (getattr(some, name)[:, None] for name in _COLUMNS)
            yield part, Shares(shares.layers, *columns), np.arange(p)


def _flying(shares: Shares, stage: Ints | np.int64) -> Ints:
    """Micro-batches that a stage of each share holds at once."""
    return np.minimum(shares.flight_most, shares.flight_first - shares.flight_slope * stage)


def _spare(shares: Shares, stage: Ints | np.int64, again: bool) -> Ints:
    """Bytes left on a stage that has no layer yet, without or with one computed again."""
    first, last = stage == 0, stage == shares.stages - 1
    moment = np.maximum(shares.working, shares.working_last * last)
    if again:
        moment = np.maximum(moment, shares.inside)
    spare: Ints = shares.room - shares.state_front * first - shares.state_back * last - moment
    return spare


def _largest(shares: Shares, stage: Ints | np.int64) -> Ints:
    """Most layers that a stage of each share can hold, -1 where not even none."""
    flying = _flying(shares, stage)
    plain = _spare(shares, stage, again=False)
    again = _spare(shares, stage, again=True)
    most = shares.most
    each = shares.state_layer + _times(flying, shares.kept)
    some = np.where(each > 0, plain // np.maximum(each, 1), most)
    each = shares.state_layer + _times(flying, shares.kept - shares.saved)
    all_ = np.where(each > 0, again // np.maximum(each, 1), most)
    found = np.where(shares.mode == 2, 0, some)
    found = np.where((shares.mode > 0) & (again >= 0), np.maximum(found, all_), found)
    held: Ints = np.where(plain >= 0, np.minimum(found, most), -1)
    return held


def _bound_by_memory(shares: Shares, low: Ints) -> NDArray[np.bool_]:
    """Tell where a bottleneck leaves some stage more layers than it can hold as they are."""
    each = shares.layer + shares.again * (shares.mode == 2)
    # Computed again one by one, layers are dearer than they are here.
    none = replace(shares, mode=np.where(shares.mode == 1, 0, shares.mode))
    bound: NDArray[np.bool_] = each == 0
    # Stages between hold no more than as many micro-batches as the second.
    for stage in (np.zeros_like(low), np.minimum(1, shares.stages - 1), shares.stages - 1):
        ends = shares.front * (stage == 0) + shares.back * (stage == shares.stages - 1)
        bound |= _largest(none, stage) * each < low - ends - each + 1
    return bound


def memory_bound(shares: Shares) -> Ints:
    """
    Bound steps from below under memory.

    Parameters
    ----------
    shares
        n shares.

    Returns
    -------
    Ints
        Ticks, shape (n,), never below ``quick_bound``: whole layers, each stage with no more than
        its room holds; parts of layers computed again. ``NEVER`` exactly where nothing fits.
    """
    fitting = fit_many(shares)
    # As many on every stage are no fewer than each stage needs by itself.
    shares = replace(shares, mode=np.where(shares.mode == ALIKE, 1, shares.mode))
    low = _bottleneck(shares)
    bound = _step(shares, low, _all_again(shares))
    bound[~fitting] = NEVER
    open_ = np.flatnonzero(fitting & _bound_by_memory(shares, low))
    for index, tall, stage in _blocks(shares, open_):
        bound[index] = np.maximum(bound[index], _Block(tall, stage, low[index][:, None]).bound())
    return bound


class _Block:
    """Shares of as many stages: tables of shares by stages, floats unless said otherwise."""

    def __init__(self, shares: Shares, stage: Ints, low: Ints) -> None:
        self.shares, self.low = shares, low
        self.holds: Floats = _largest(shares, stage).astype(np.float64)
        first, last = stage == 0, stage == len(stage) - 1
        self.ends = (shares.front * first + shares.back * last).astype(np.float64)
        self.least = np.where(first, shares.least_first, shares.least)
        flying = _flying(shares, stage).astype(np.float64)
        saved = flying * shares.saved
        partly = (shares.mode == 1) & (saved > 0)
        saved = np.where(partly, saved, 1.0)
        layer = shares.state_layer + flying * shares.kept
        spare = _spare(shares, stage, again=False).astype(np.float64)
        # Where memory asks for r >= slope (l - free), r is at least that.
        self.slope: Floats = np.where(partly, layer / saved, 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            self.free: Floats = np.where(partly & (layer > 0), spare / layer, np.inf)
        again = shares.again * (shares.mode == 2)
        self.each = (shares.layer + again).astype(np.float64)
        self.each_full = self.each + shares.again * self.slope

    def reach(self, x: Floats) -> Floats:
        """Most layers, and parts of them, of each stage under a bottleneck."""
        spare = x - self.ends
        with np.errstate(divide="ignore", invalid="ignore"):
            plain = np.where(self.each > 0, spare / self.each, np.inf)
            more = (spare - self.each * self.free) / self.each_full
            mixed = np.where((plain > self.free) & (self.each_full > 0), self.free + more, plain)
        reach: Floats = np.minimum(self.holds, mixed)
        return reach

    def again(self, x: Floats) -> Floats:
        """Least layers computed again in total under a bottleneck, shape (m, 1), never rising."""
        reach = self.reach(x)
        base = np.maximum(np.minimum(self.free, reach), self.least)
        over = self.slope * np.maximum(base - self.free, 0.0)
        # Later stages hold fewer micro-batches, so that computing a layer again saves less there.
        more = np.maximum(reach - base, 0.0)
        before = more.cumsum(axis=1) - more
        need = self.shares.layers - base.sum(axis=1, keepdims=True)
        taken = np.minimum(np.maximum(need - before, 0.0), more)
        total: Floats = (over + self.slope * taken).sum(axis=1, keepdims=True)
        return total

    def enough(self, x: Floats) -> NDArray[np.bool_]:
        """Tell whether stages take all layers, each a whole number of them; shape (m, 1)."""
        whole = np.floor(self.reach(x) + SLACK)
        taken = whole.sum(axis=1, keepdims=True) >= self.shares.layers
        fine: NDArray[np.bool_] = taken & (whole >= self.least).all(axis=1, keepdims=True)
        return fine

    def bound(self) -> Ints:
        """Bound of the step, shape (m,), whole."""
        shares = self.shares
        low = self.low.astype(np.float64)
        # So much that every stage can compute all that it can hold, again.
        high = self.ends + (shares.layer + shares.again) * self.holds
        high = np.maximum(high.max(axis=1, keepdims=True), low)
        known = self.enough(low)
        high = np.where(known, low, high)
        if not known.all():
            for _ in range(ROUNDS):
                middle = np.floor((low + high) / 2)
                known = self.enough(middle)
                low, high = np.where(known, low, middle), np.where(known, middle, high)
        bottleneck = np.maximum(self.low, np.floor(low * (1 - 1e-12)).astype(np.int64))
        flat = Shares(shares.layers, *(getattr(shares, name)[:, 0] for name in _COLUMNS))
        total = _step(flat, bottleneck[:, 0], _all_again(flat))
        if (shares.mode == 1).any():
            total = np.minimum(total + self.dear(bottleneck.astype(np.float64), high), LARGEST)
        return total

    def dear(self, low: Floats, high: Floats) -> Ints:
        """
        Ticks by which the least bottleneck and nothing computed again fall short, shape (m,).

        ``again`` is convex and never rises. So up to a bottleneck the layers computed again there
        are a bound, beyond it the line through it and the one before is, and where that line does
        not fall as fast as the bottlenecks grow dearer, nothing beyond need be looked at.
        """
        turns = self.shares.turns.astype(np.float64)
        each = (self.shares.again * (self.shares.mode == 1)).astype(np.float64)
        stride = np.maximum(1.0, self.shares.layer / 64)
        start, x, again = low, high, self.again(high)
        dear = np.full_like(low, np.inf)
        live = np.ones(low.shape, dtype=bool)
        for _ in range(STRIDES):
            x = x + stride
            before, again = again, self.again(x)
            part = turns * (start - low) + each * np.ceil(again - SLACK)
            dear = np.where(live, np.minimum(dear, part), dear)
            flat = turns * stride + each * (again - before) >= 0
            part = turns * (x - low) + each * (again - 1e3 * SLACK)
            dear = np.where(live & flat, np.minimum(dear, part), dear)
            live &= ~flat
            if not live.any():
                break
            start, stride = x, 4 * stride
        else:
            part = turns * (x - low) + each * np.ceil(self.again(np.full_like(x, 2.0**62)) - SLACK)
            dear = np.where(live, np.minimum(dear, part), dear)
        safe = np.clip(np.floor(dear * (1 - 1e-12)), 0, LARGEST)
        whole: Ints = safe[:, 0].astype(np.int64)
        return whole
