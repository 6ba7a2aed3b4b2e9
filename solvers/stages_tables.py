"""Tables of a pipeline's stages, and the search over them."""

from __future__ import annotations

import heapq
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optplan.models.stages import ALIKE, Share

Numbers = NDArray[Any]
"""Whole numbers: int64, or Python's own where int64 would not hold them."""

SAFE = 2**61
"""Tables whose numbers stay below this are int64."""


class Tables:
    """
    What the tables of one share have in common whatever the room.

    Rows are stages; column ``e`` stands for ``e`` layers above the fewest of the stage.
    """

    def __init__(self, share: Share) -> None:
        self.share = share
        p = share.stages
        least = [share.least_first] + [share.least] * (p - 1)
        self.slack = share.layers - sum(least)
        self.constant = share.fixed + share.layer * share.layers + share.front + share.back
        wide = min(share.most - share.least, self.slack)
        self.possible = wide >= 0 and share.least_first <= share.most
        if not self.possible:
            return
        flights = [share.in_flight(i) for i in range(p)]
        empty = [share.held(i, 0, 0) for i in range(p)]
        # Where a layer is computed again, the largest moment grows by this.
        moment = [
            max(0, share.inside - max(share.working, share.working_last * (i == p - 1)))
            for i in range(p)
        ]
        biggest = max(
            share.layers * (share.state_layer + max(flights) * share.kept)
            + max(map(abs, empty))
            + max(moment)
            + abs(share.room),
            share.layers * (share.layer + share.again) + abs(share.front) + abs(share.back),
            share.layers * share.once_layer + abs(share.once_front) + abs(share.once_back),
        )
        kind: Any = np.int64 if biggest < SAFE else object
        self.never = 2 * max(biggest, SAFE - 1)

        def column(values: list[int]) -> Numbers:
            return np.array(values, dtype=kind)[:, None]

        flying = column(flights)
        self.held = column(least) + np.arange(wide + 1)
        self.saved = flying * share.saved
        self.needs = column(empty) + (share.state_layer + flying * share.kept) * self.held
        self.moment = column(moment)
        self.time = share.layer * self.held + column([share.seconds(i, 0, 0) for i in range(p)])
        self.once = share.once_layer * self.held + column([share.once(i, 0) for i in range(p)])

    def narrow(self, step: int) -> None:
        """Drop the columns that no way of at most so many ticks a step gets to."""
        share = self.share
        if share.turns:
            rest = self.constant + int(self.once[:, 0].max())
            rest += share.again * share.layers * (share.mode == 2)
            x = min((step - rest) // share.turns, self.never)
            wide = max(1, int((self.time <= x).sum(axis=1).max()))
            self.held, self.needs = self.held[:, :wide], self.needs[:, :wide]
            self.time, self.once = self.time[:, :wide], self.once[:, :wide]


Box = tuple[int, int, int, int, int, int, int]
"""Least step, bottleneck and once-part of a box, then its corners: first, last place of each."""


class Within:
    """
    The tables of one share within a room; the share itself may say how many are computed again.

    Along a row nothing ever falls: neither the fewest layers that memory asks to compute again,
    nor the times that go with them. So a bottleneck X and a cap Z on the once-a-step part give
    each stage a reach, all of ``0..reach`` being allowed, and what is left to choose is who takes
    how many so that few layers are computed again in total.
    """

    def __init__(self, tables: Tables, room: int, share: Share | None = None) -> None:
        self.of, self.share, self.room = tables, share or tables.share, room
        if not tables.possible:
            return
        held, over = tables.held, tables.needs - room
        if self.share.mode == 0:
            again = np.zeros_like(held)
            lost = over > 0
        elif self.share.mode in (2, ALIKE):
            each = self.share.each
            again = held if each is None else np.minimum(held, each)
            lost = over + np.where(again > 0, tables.moment - tables.saved * again, 0) > 0
        else:
            free = over <= 0
            fewest = -((over + tables.moment) // -np.maximum(tables.saved, 1))
            again = np.where(free, 0, np.maximum(fewest, 1))
            lost = ~free & ((again > held) | (tables.saved == 0))
        time = tables.time + self.share.again * np.where(lost, 0, again)
        self.again = again
        self.time = np.where(lost | (held > self.share.most), tables.never, time)

    def _least(self, of: Numbers, allowed: NDArray[np.bool_]) -> int | None:
        """Smallest cap on the entries of a table under which the allowed ones take all layers."""
        if not allowed[:, 0].all():
            return None
        least = int(of[:, 0].max())
        if slack := self.of.slack:
            more = of[:, 1:][allowed[:, 1:]]
            if len(more) < slack:
                return None
            least = max(least, int(np.partition(more, slack - 1)[slack - 1]))
        return least

    def fastest(
        self, below: int | None = None, enough: int | None = None
    ) -> tuple[int, int, int] | None:
        """
        Shortest step, with the smallest X and then the smallest Z that allow it.

        Best first over boxes of X and Z: no way in a box computes fewer layers again than the
        reaches of its upper corner ask for, nor has less of the rest than its lower corner. A
        step of ``enough`` ends the search, whatever its X and Z.
        """
        if not self.of.possible:
            return None
        share, constant, time = self.share, self.of.constant, self.time
        once = self.of.once
        x = self._least(time, time < self.of.never)
        if x is None:
            return None
        z = self._least(once, time <= x)
        z_least = self._least(once, time < self.of.never)
        assert z is not None
        assert z_least is not None
        best = (constant + share.turns * x + z + share.again * self.fewest(x, z), x, z)
        if enough is not None and best[0] <= enough:
            return best
        # Nothing slower than what is known is worth a look.
        most = best[0] if below is None else min(best[0], below - 1)
        z_most = int(once.max())
        rest = constant + share.again * self.fewest(self.of.never - 1, z_most)
        if rest + share.turns * x + z_least > most:
            return None
        x_most = (most - rest - z_least) // share.turns if share.turns else self.of.never - 1
        z_most = min(z_most, most - rest - share.turns * x)
        xs: Numbers = np.unique(time[(time >= x) & (time <= min(x_most, self.of.never - 1))])
        zs: Numbers = np.unique(once[(once >= z_least) & (once <= z_most)])
        boxes: list[Box] = []

        def add(x_low: int, x_high: int, z_low: int, z_high: int) -> None:
            """Shrink a box from below, and keep it if it may hold something better."""
            least_x = self._least(time, (once <= zs[z_high]) & (time <= xs[x_high]))
            if least_x is None:
                return
            least_z = self._least(once, time <= xs[x_high])
            assert least_z is not None
            x_low = max(x_low, int(np.searchsorted(xs, least_x)))
            z_low = max(z_low, int(np.searchsorted(zs, least_z)))
            if x_low > x_high or z_low > z_high:
                return
            x, z = int(xs[x_low]), int(zs[z_low])
            low = constant + share.turns * x + z
            if (low, x, z) < best and low <= most:
                low += share.again * self.fewest(int(xs[x_high]), int(zs[z_high]))
                if (low, x, z) < best and low <= most:
                    heapq.heappush(boxes, (low, x, z, x_low, x_high, z_low, z_high))

        add(0, len(xs) - 1, 0, len(zs) - 1)
        while boxes:
            low, x, z, x_low, x_high, z_low, z_high = heapq.heappop(boxes)
            if (low, x, z) >= best:
                break
            x_cost = share.turns * (int(xs[x_high]) - x)
            z_cost = int(zs[z_high]) - z
            best = min(best, (low + x_cost + z_cost, int(xs[x_high]), int(zs[z_high])))
            if enough is not None and best[0] <= enough:
                break
            if x_low < x_high and (x_cost >= z_cost or z_low == z_high):
                middle = (x_low + x_high) // 2
                add(x_low, middle, z_low, z_high)
                add(middle + 1, x_high, z_low, z_high)
            elif z_low < z_high:
                middle = (z_low + z_high) // 2
                add(x_low, x_high, z_low, middle)
                add(x_low, x_high, middle + 1, z_high)
        return best if below is None or best[0] < below else None

    def reach(self, x: int, z: int) -> NDArray[np.intp]:
        """Layers above its fewest that each stage can take under X and Z."""
        reach: NDArray[np.intp] = ((self.time <= x) & (self.of.once <= z)).sum(axis=1) - 1
        return reach

    def fewest(self, x: int, z: int) -> int:
        """Fewest layers computed again in total under X and Z that allow all to be shared out."""
        if self.share.mode in (0, 2) or not self.share.again:
            return self.share.layers * (self.share.mode == 2)
        reach = self.reach(x, z)
        ends = self.again[np.arange(len(reach)), reach]
        asked = ends > 0
        need = self.of.slack - int(reach[~asked].sum())
        rows, reach = self.again[asked], reach[asked]
        if need <= 0:
            return int(rows[:, 0].sum())
        # Count the layers given from nothing up, or those spared from the reaches down.
        spare = int(reach.sum()) - need
        if spare < need:
            lines = [row[r::-1] for row, r in zip(rows, reach, strict=True)]
        else:
            lines = [row[: r + 1] for row, r in zip(rows, reach, strict=True)]
        return int(_together(lines, min(spare, need))[-1][-1])

    def settled(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Layers and layers computed again of the fastest way; X, Z and so on decide ties."""
        found = self.fastest()
        assert found is not None, "a room that holds something"
        # Squares of the layers sum to no more than the square of all.
        weight = self.share.layers**2 + 1
        again = np.minimum(self.again, self.share.layers + 1).astype(np.int64)
        cost = again * weight + self.of.held.astype(np.int64) ** 2
        reach = self.reach(*found[1:])
        lines = [row[: r + 1] for row, r in zip(cost, reach, strict=True)]
        # after[i][n]: least cost of n layers on stage i and those behind it
        after = _together(lines[::-1], self.of.slack)[::-1]
        taken, left = [], self.of.slack
        for line, now, behind in zip(lines, after, after[1:], strict=False):
            some = np.arange(min(left, len(line) - 1) + 1)
            extra = int(np.argmax(line[some] + behind[left - some] == now[left]))
            taken.append(extra)
            left -= extra
        taken.append(left)
        rows = np.arange(len(lines))
        return tuple(self.of.held[rows, taken].tolist()), tuple(again[rows, taken].tolist())

    def peaks(self, step: int) -> list[int]:
        """Ascending, all that the fullest device may need where the step is the fastest one."""
        share, of = self.share, self.of
        x, z = of.never - 1, int(of.once.max())
        if share.turns:
            z_least = self._least(of.once, self.time <= x)
            assert z_least is not None, "there is a way to share out"
            left = step - of.constant - z_least - share.again * self.fewest(x, z)
            x = min(x, left // share.turns)
        reach = self.reach(x, z)
        fewest = np.maximum(0, of.slack - (reach.sum() - reach))[:, None]
        places = np.arange(int(reach.max()) + 1)
        held, needs = of.held[:, places], of.needs[:, places]
        taken = (fewest <= places) & (places <= reach[:, None])
        if share.mode == 1:
            again = np.arange(int(held[taken].max()) + 1).astype(held.dtype)
            taken = taken[:, :, None] & (again >= self.again[:, places, None])
            taken &= again <= held[:, :, None]
            taken &= share.again * again <= (x - of.time[:, places])[:, :, None]
            least = of.moment - of.saved * again
            needs = needs[:, :, None] + np.where(again > 0, least, 0)[:, None, :]
        elif share.mode in (2, ALIKE):
            again = self.again[:, places]
            needs = needs + np.where(again > 0, of.moment - of.saved * again, 0)
        lowest = max(int(row[which].min()) for row, which in zip(needs, taken, strict=True))
        peaks = np.unique(needs[taken])
        found: list[int] = peaks[(peaks >= lowest) & (peaks <= self.room)].tolist()
        return found


def _together(lines: list[Numbers], total: int) -> list[Numbers]:
    """
    Spend a total over lines of costs, each never falling.

    Returns
    -------
    list[Numbers]
        Per line, least cost of spending 0..total over it and those before it; a huge number
        where they cannot take that much.
    """
    huge = 2**61
    wide = min(max(map(len, lines)), total + 1)
    place = np.arange(total + 1)[:, None] + wide - 1 - np.arange(wide)
    so_far = np.full(wide + total, huge)
    so_far[wide - 1] = 0
    tables = []
    for line in lines:
        cut = line[:wide]
        so_far[wide - 1 :] = (so_far[place[:, : len(cut)]] + cut).min(axis=1)
        tables.append(so_far[wide - 1 :].copy())
    return tables
