"""The space in boxes: rows of the spanning tables, joined step by step, and choices added."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from optplan.models.program import Integers, Program, Table
from optplan.solvers.grid import Block, spanning

Reals = NDArray[np.float64]


class _Join:
    """Rows of a spanning table in the order of the one choice that it shares with the first."""

    def __init__(self, table: Table, first: Table) -> None:
        (self.key,) = [k for k in table.keys if k in first.keys]
        i = table.keys.index(self.key)
        self.keys = table.keys
        self.rows = table.rows[np.argsort(table.rows[:, i], kind="stable")]
        self.values = np.ascontiguousarray(self.rows[:, i])

    def ranges(self, columns: Mapping[str, Integers]) -> tuple[Integers, Integers]:
        """Where the rows that go with each value begin, and how many there are."""
        start = np.searchsorted(self.values, columns[self.key], side="left")
        return start, np.searchsorted(self.values, columns[self.key], side="right") - start


class Spine:
    """
    The order in which a program's choices are made known.

    First the rows of the first spanning table, then those of the second that go with them, then
    the free choices that the program names, group by group, then the rows of the other spanning
    tables; what is left is spread out in blocks.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        domain = {c.name: np.array(c.values, dtype=np.int64) for c in program.choices}
        self.tables = spanning(program)
        spanned = {key for table in self.tables for key in table.keys}
        self.free = {c.name: domain[c.name] for c in program.choices if c.name not in spanned}
        groups = [
            [name for name in group if len(self.free.get(name, ())) > 1]
            for group in program.branching
        ]
        self.steps: list[Table | list[str]] = [
            self.tables[0],
            *self.tables[1:2],
            *(group for group in groups if group),
            *self.tables[2:],
        ]
        self.joins = {
            level: _Join(step, self.tables[0])
            for level, step in enumerate(self.steps)
            if level and isinstance(step, Table)
        }

    @property
    def empty(self) -> bool:
        """Tell whether some choice has no value."""
        return any(not choice.values for choice in self.program.choices)

    def start(self) -> dict[str, Integers]:
        """Rows of the first table."""
        table = self.tables[0]
        return {k: np.ascontiguousarray(table.rows[:, i]) for i, k in enumerate(table.keys)}

    def news(self, level: int) -> frozenset[str]:
        """Choices that a level makes known."""
        step = self.steps[level]
        single = {n for n, values in self.free.items() if len(values) == 1}
        names = set(step.keys) if isinstance(step, Table) else set(step)
        before = {name for known in self.steps[:level] for name in _names(known)}
        return frozenset((names - before) | (single if level == 0 else set()))

    def alone(self, n: int) -> dict[str, Integers]:
        """Choices that have one value only, for ``n`` rows."""
        return {
            name: np.full(n, int(values[0]), dtype=np.int64)
            for name, values in self.free.items()
            if len(values) == 1
        }

    def grown(self, columns: Mapping[str, Integers], level: int) -> Integers:
        """Count the rows that each row becomes at a level."""
        step = self.steps[level]
        n = len(next(iter(columns.values())))
        if not isinstance(step, Table):
            return np.full(n, math.prod(len(self.free[name]) for name in step), dtype=np.int64)
        return self.joins[level].ranges(columns)[1]

    def joined(self, columns: Mapping[str, Integers], levels: Iterable[int]) -> Integers:
        """Count the rows that each row becomes when several tables are joined to it."""
        count = np.ones(len(next(iter(columns.values()))), dtype=np.int64)
        for level in levels:
            count = count * self.grown(columns, level)
        return count

    def points(self, columns: Mapping[str, Integers], level: int) -> Integers:
        """Count the points of each row whose choices up to a level are known."""
        known = {name for step in self.steps[: level + 1] for name in _names(step)}
        rest = math.prod(len(v) for name, v in self.free.items() if name not in known)
        return rest * self.joined(columns, (later for later in self.joins if later > level))

    def grow(self, columns: Mapping[str, Integers], level: int) -> dict[str, Integers]:
        """Make the choices of a level known: every row becomes all that go with it."""
        step = self.steps[level]
        n = len(next(iter(columns.values())))
        if not isinstance(step, Table):
            mesh = np.meshgrid(np.arange(n), *(self.free[name] for name in step), indexing="ij")
            at = mesh[0].ravel()
            fresh = {name: axis.ravel() for name, axis in zip(step, mesh[1:], strict=True)}
            return {k: v[at] for k, v in columns.items()} | fresh
        join = self.joins[level]
        start, count = join.ranges(columns)
        at = np.repeat(np.arange(n), count)
        within = np.arange(len(at)) - np.repeat(np.cumsum(count) - count, count)
        other = join.rows[start[at] + within]
        fresh = {k: other[:, j] for j, k in enumerate(join.keys) if k != join.key}
        return {k: v[at] for k, v in columns.items()} | fresh

    def total(self) -> int:
        """Count the points of the space, without visiting them."""
        return 0 if self.empty else int(self.points(self.start(), 0).sum())

    def all_rows(self, most: int) -> Iterator[dict[str, Integers]]:
        """Join all spanning tables, at most about so many rows at a time, no free choice known."""
        start = self.start()
        ends = np.cumsum(self.joined(start, self.joins))
        done = 0
        while done < len(ends):
            before = ends[done - 1] if done else 0
            stop = max(done + 1, int(np.searchsorted(ends, before + most, side="right")))
            columns = {k: v[done:stop] for k, v in start.items()}
            for level in self.joins:
                columns = self.grow(columns, level)
            yield columns
            done = stop

    def blocks(self, columns: Mapping[str, Integers], most: int) -> list[Block]:
        """
        Spread rows over all values of the choices that they do not have yet.

        Parameters
        ----------
        most
            Points of a block.
        """
        number = len(next(iter(columns.values())))
        if not number:
            return []
        choices = {choice.name for choice in self.program.choices}
        columns = {name: v for name, v in columns.items() if name in choices}
        free = [(name, values) for name, values in self.free.items() if name not in columns]
        # Schedules of one kind together: their prices have one form.
        if "schedule" in columns:
            order = np.lexsort([columns["schedule"]])
            columns = {k: v[order] for k, v in columns.items()}
        each = math.prod(len(values) for _, values in free)
        cuts = list(range(0, number, max(1, most // max(1, each))))
        if "schedule" in columns:
            change = np.flatnonzero(np.diff(columns["schedule"])) + 1
            cuts = sorted({*cuts, *change.tolist()})
        made = []
        for start, stop in zip(cuts, [*cuts[1:], number], strict=True):
            shape = (stop - start, *(len(values) for _, values in free))
            flat = (1,) * len(shape)
            part = {
                k: np.ascontiguousarray(v[start:stop]).reshape(-1, *flat[1:])
                for k, v in columns.items()
            }
            for axis, (name, values) in enumerate(free, start=1):
                part[name] = values.reshape((*flat[:axis], -1, *flat[axis + 1 :]))
            made.append(Block(shape, part))
        return made


def strategies(program: Program) -> int:
    """
    Count the joint strategies of a program: every point with every way to hand out its layers.

    Layers that cannot be laid out in equal chunks count as one way.
    """
    spine, pipeline = Spine(program), program.pipeline
    if pipeline is None or spine.empty:
        return spine.total()
    codes = program.domain["recompute"]
    start = spine.start()
    inner = next(table for table in spine.tables[1:] if "schedule" in table.keys)
    others = (i for i, join in spine.joins.items() if "schedule" not in join.keys)
    count = spine.joined(start, others)
    free = math.prod(len(v) for name, v in spine.free.items() if name != "recompute")
    shapes = [dict(zip(inner.keys, row, strict=True)) for row in inner.rows.tolist()]
    total = 0
    for pp in np.unique(start["pp"]).tolist():
        here = int(count[start["pp"] == pp].sum()) * free
        for shape in (s for s in shapes if s["pp"] == pp):
            for code in codes:
                total += here * pipeline.ways(pp, shape["vpp"], shape["schedule"] == 0, code)
    return total


def _names(step: Table | list[str]) -> tuple[str, ...]:
    """Choices of a step."""
    return step.keys if isinstance(step, Table) else tuple(step)


def first_bound(program: Program, spine: Spine, columns: Mapping[str, Integers]) -> Reals:
    """
    Bound goals when only the first table's choices are known, program units.

    A stage works at least ``m L layer / p`` ticks. How many micro-batches there are for each size
    of one follows from the second table, so that the least of the product is taken over sizes, not
    of either factor.
    """
    n = len(next(iter(columns.values())))
    pipeline, goal = program.pipeline, program.goal
    price = next((t for t in program.statements if _gives(t, "layer_busy")), None)
    if pipeline is None or goal.of != "step_ticks" or goal.per is None or price is None:
        return np.zeros(n)
    assert isinstance(price, Table)
    if not len(price.rows):
        return np.zeros(n)
    batches = spine.tables[1]
    shared = spine.joins[1].key
    keys = [k for k in price.keys if k in columns]
    groups, group = np.unique(
        price.rows[:, [price.keys.index(k) for k in keys]], axis=0, return_inverse=True
    )
    sizes = np.unique(price.rows[:, price.keys.index("micro_batch")])
    size = np.searchsorted(sizes, price.rows[:, price.keys.index("micro_batch")])
    layer = np.full((len(groups), len(sizes)), np.inf)
    busy = price.rows[:, len(price.keys) + price.gives.index("layer_busy")].astype(np.float64)
    np.minimum.at(layer, (group.ravel(), size), busy)
    b, m = (batches.rows[:, batches.keys.index(k)] for k in ("micro_batch", "micro_batches"))
    turns = m / batches.rows[:, batches.keys.index(goal.per)]
    values = np.unique(batches.rows[:, batches.keys.index(shared)])
    which = np.searchsorted(values, batches.rows[:, batches.keys.index(shared)])
    per = np.full((len(values), len(sizes)), np.inf)
    np.minimum.at(per, (which, np.searchsorted(sizes, b)), turns)
    # Sizes without a batch are left out: infinity times a layer of no ticks would be no number.
    some = [np.isfinite(row) for row in per]
    least = np.array(
        [(layer[:, at] * row[at]).min(axis=1) for row, at in zip(per, some, strict=True)]
    ).reshape(len(values), len(groups))
    at = np.minimum(np.searchsorted(values, columns[shared]), max(0, len(values) - 1))
    codes = {tuple(row): i for i, row in enumerate(groups.tolist())}
    wanted = np.stack([columns[k] for k in keys], axis=1)
    unique, back = np.unique(wanted, axis=0, return_inverse=True)
    found_at = [codes.get(tuple(row), -1) for row in unique.tolist()]
    place = np.array(found_at, dtype=np.int64)[back.ravel()]
    found = least[at, place] if len(values) else np.zeros(n)
    found = np.where(place >= 0, found, 0.0)
    bound = found * pipeline.layers / columns["pp"] * (1 - 1e-9)
    return np.minimum(bound, float(pipeline.most))


def _gives(statement: object, name: str) -> bool:
    """Tell whether a table gives a quantity."""
    return isinstance(statement, Table) and name in statement.gives
