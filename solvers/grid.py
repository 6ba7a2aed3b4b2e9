"""The space of a program as broadcast arrays: small axes, wide products, no loop over points."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from optplan.models.columns import READS, Columns
from optplan.models.program import (
    Divide,
    Extreme,
    Fits,
    Integers,
    Pipeline,
    Product,
    Program,
    Row,
    Statement,
    Sum,
    Table,
    Terms,
    Truth,
)
from optplan.solvers.late import Late, room_of

Mask = NDArray[np.bool_]

BLOCK_POINTS = 2**18
"""Points of one block: its arrays stay in the processor's cache and memory stays flat."""

DENSE_CELLS = 2**24
"""A table of at most this many key cells is looked up by position, a larger one by search."""


@dataclass
class Block:
    """
    A rectangular part of the space.

    Every column is an array that broadcasts to ``shape``; an axis along which it does not vary has
    length 1.
    """

    shape: tuple[int, ...]
    columns: dict[str, Integers]
    read: Columns | None = field(init=False, default=None)
    """Columns that a pipeline reads, once they are known."""
    found: Mask = field(init=False)
    """Points that no table has refused."""
    alive: Mask = field(init=False)
    """Points that no statement so far has refused; broadcasts to ``shape``."""

    def __post_init__(self) -> None:
        """Start with every point alive."""
        self.found = np.ones((1,) * len(self.shape), dtype=bool)
        self.alive = np.ones((1,) * len(self.shape), dtype=bool)

    @property
    def points(self) -> int:
        """Points in all."""
        return math.prod(self.shape)

    def count(self, mask: Mask) -> int:
        """Points that a broadcastable mask selects."""
        return int(np.count_nonzero(mask)) * (self.points // max(1, mask.size))

    def full(self, column: NDArray[np.generic]) -> NDArray[np.generic]:
        """Spread an array over the whole block."""
        return np.broadcast_to(column, self.shape)

    def at(self, flat: Integers, names: Iterable[str] | None = None) -> dict[str, Integers]:
        """Read columns, all of them unless named, at flat positions of the block."""
        place = np.unravel_index(flat, self.shape)
        read = {}
        for name in self.columns if names is None else names:
            column = self.columns[name]
            index = tuple(
                p if n > 1 else np.zeros_like(p) for p, n in zip(place, column.shape, strict=True)
            )
            read[name] = column[index]
        return read


def prices(program: Program, block: Block) -> NDArray[np.float64]:
    """Goal of every point of a judged block, in program units, refused points included."""
    of = block.columns[program.goal.of].astype(np.float64)
    found: NDArray[np.float64] = program.goal.rates(of, block.columns)
    return found


class Grid:
    """
    The space of a program, cut into blocks, and the statements that run over them.

    The spanning tables are joined on the columns they share: for each value of those, every
    table's matching rows form one axis, and every other choice one more. A price that reads two
    axes is computed on those two alone.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self._domain = {c.name: np.array(c.values, dtype=np.int64) for c in program.choices}
        self._spans = spanning(program)
        self._rest = [s for s in program.statements if not (isinstance(s, Table) and s.spans)]
        self.late = Late(program)
        self._looks: dict[int, _Lookup] = {
            i: _Lookup(s, self._domain) for i, s in enumerate(self._rest) if isinstance(s, Table)
        }
        spanned = [set(t.keys) for t in self._spans]
        self._shared = sorted(
            {k for i, t in enumerate(spanned) for u in spanned[i + 1 :] for k in t & u}
        )
        self._free = [c for c in program.choices if not any(c.name in t for t in spanned)]

    lenient = False
    """Whether tables only note where they refuse, and rows and memory are not asked."""

    weighing = True
    """Whether the memory of a point is bounded where no rule asks for it."""

    exact = False
    """Whether rules about memory are settled, or only asked from below."""

    def _read(self, block: Block) -> Columns:
        """Return what the pipeline reads of a block, worked out once."""
        if block.read is None:
            block.read = Columns({name: block.columns[name] for name in READS})
        return block.read

    def _fits(self, statement: Fits, block: Block) -> Mask:
        """Tell where some way of handing out layers keeps within the room."""
        columns = self._read(block)
        room = room_of(statement, columns)
        held = statement.pipeline.quick_peak(columns, statement.parts)
        ok: Mask = held <= room
        if not self.exact:
            return ok
        from optplan.solvers.settle import fitting

        sure = statement.pipeline.sure_peak(columns, statement.parts) <= room
        open_ = np.broadcast_to(ok & ~sure, block.shape)
        flat = np.flatnonzero(open_)
        if not len(flat):
            return ok
        ok = np.broadcast_to(ok, block.shape).copy()
        ok.ravel()[flat] = fitting(statement, block.at(flat, READS))
        return ok

    def blocks(self) -> Iterator[Block]:
        """Cut the space into blocks of at most about ``BLOCK_POINTS`` points, in a fixed order."""
        if any(not len(c.values) for c in self.program.choices):
            return
        for shared in self._joined():
            axes: list[tuple[tuple[str, ...], Integers]] = []
            for table in self._spans:
                keep = np.ones(len(table.rows), dtype=bool)
                for key, value in shared.items():
                    if key in table.keys:
                        keep &= table.rows[:, table.keys.index(key)] == value
                axes.append((table.keys, table.rows[keep]))
            axes += [((c.name,), self._domain[c.name][:, None]) for c in self._free]
            yield from _cut(axes, shared)

    def _joined(self) -> Iterator[dict[str, int]]:
        """Yield every combination of the shared columns that all spanning tables allow."""
        options: list[dict[str, int]] = [{}]
        for table in self._spans:
            own = [k for k in table.keys if k in self._shared]
            rows = np.unique(table.rows[:, [table.keys.index(k) for k in own]], axis=0)
            found = [dict(zip(own, row, strict=True)) for row in rows.tolist()]
            options = [
                {**a, **b}
                for a in options
                for b in found
                if all(a.get(k, v) == v for k, v in b.items())
            ]
        yield from options

    @property
    def points(self) -> int:
        """Points of the space, counted without visiting them."""
        total = 0
        for shared in self._joined():
            sizes = [
                reduce(
                    np.logical_and,
                    [t.rows[:, t.keys.index(k)] == v for k, v in shared.items() if k in t.keys],
                    np.ones(len(t.rows), dtype=bool),
                ).sum()
                for t in self._spans
            ]
            total += math.prod(map(int, sizes)) * math.prod(len(c.values) for c in self._free)
        return total

    def judge(
        self, block: Block, removed: dict[str, int] | None = None
    ) -> Iterator[tuple[str, Mask]]:
        """
        Run the statements over a block, telling after each constraint which points it lets through.

        Quantities are added to ``block.columns``. ``block.alive`` is for the caller to narrow; a
        block in which it is all False is not computed any further. ``removed`` counts, if given,
        the points alive that each constraint refuses, and narrows ``block.alive``.
        """
        for i, statement in enumerate(self._rest):
            ok = self._run(i, statement, block)
            if ok is None:
                continue
            if self.lenient:
                if isinstance(statement, Table):
                    block.found = block.found & ok
                continue
            if removed is not None:
                before = block.alive
                block.alive = before & ok
                lost = block.count(np.broadcast_to(before, block.alive.shape)) - block.count(
                    block.alive
                )
                removed[statement.name] = removed.get(statement.name, 0) + lost
            yield statement.name, ok
            if not block.alive.any():
                return

    def _run(self, i: int, statement: Statement, block: Block) -> Mask | None:
        """Evaluate one statement; the mask of points it passes, None where it cannot refuse."""
        columns = block.columns
        if statement in self.late:
            return self.late.judge(statement, block)
        match statement:
            case Table():
                return self._looks[i](block)
            case Pipeline():
                read = self._read(block)
                step = np.minimum(statement.quick_step(read), float(statement.most))
                columns["step_ticks"] = np.floor(step).astype(np.int64)
                if self.weighing:
                    peak = statement.quick_peak(read) + statement.reserve + read["fetched"]
                    peak = np.minimum(peak, float(statement.most_bytes))
                    columns["peak_bytes"] = np.floor(peak).astype(np.int64)
            case Fits():
                return self._fits(statement, block)
            case Row():
                ok = _within(_total(statement.terms, 0, block), statement.low, statement.high)
                if statement.when:
                    ok = ok | (columns[statement.when[0]] != statement.when[1])
                return ok
            case Sum():
                columns[statement.result] = _total(statement.terms, statement.constant, block)
            case Product():
                columns[statement.result] = columns[statement.left] * columns[statement.right]
            case Extreme():
                pick = np.maximum if statement.kind == "max" else np.minimum
                columns[statement.result] = reduce(pick, [columns[c] for c in statement.of])
            case Divide():
                right = np.maximum(columns[statement.right], 1)
                quotient, remainder = np.divmod(columns[statement.left], right)
                columns[statement.quotient], columns[statement.remainder] = quotient, remainder
            case Truth():
                total = _total(statement.terms, 0, block)
                columns[statement.result] = _within(total, statement.low, statement.high).astype(
                    np.int64
                )
        return None


def spanning(program: Program) -> list[Table]:
    """Return the spanning tables of a program, without the rows that its domains exclude."""
    found = []
    for table in program.statements:
        if not (isinstance(table, Table) and table.spans):
            continue
        keep = np.ones(len(table.rows), dtype=bool)
        for i, key in enumerate(table.keys):
            keep &= np.isin(table.rows[:, i], program.domain[key])
        found.append(replace(table, rows=table.rows[keep]))
    return found


class _Lookup:
    """A table ready to be read at whole arrays of keys."""

    def __init__(self, table: Table, domain: Mapping[str, Integers]) -> None:
        self._table = table
        width = len(table.keys)
        self._values = [
            domain[key] if key in domain else np.unique(table.rows[:, i])
            for i, key in enumerate(table.keys)
        ]
        keep = np.ones(len(table.rows), dtype=bool)
        for i, values in enumerate(self._values):
            keep &= np.isin(table.rows[:, i], values)
        rows = table.rows[keep]
        code = np.zeros(len(rows), dtype=np.int64)
        self._cells = math.prod(len(v) for v in self._values)
        for i, values in enumerate(self._values):
            code = code * len(values) + np.searchsorted(values, rows[:, i])
        gives = rows[:, width:]
        self._dense = self._cells <= DENSE_CELLS
        if self._dense:
            self._found = np.zeros(self._cells, dtype=bool)
            self._found[code] = True
            self._gives = np.zeros((len(table.gives), self._cells), dtype=np.int64)
            self._gives[:, code] = gives.T
        else:
            order = np.argsort(code, kind="stable")
            self._codes, self._gives = code[order], np.ascontiguousarray(gives[order].T)

    def __call__(self, block: Block) -> Mask:
        """Define what the table gives in a block; the mask of points whose keys it holds."""
        ok: Mask = np.ones((1,) * len(block.shape), dtype=bool)
        code = np.zeros((1,) * len(block.shape), dtype=np.int64)
        for key, values in zip(self._table.keys, self._values, strict=True):
            column = block.columns[key]
            place = np.minimum(np.searchsorted(values, column), max(0, len(values) - 1))
            if len(values):
                ok = ok & (values[place] == column)
            else:
                ok = ok & np.zeros_like(column, dtype=bool)
            code = code * len(values) + place
        if self._dense and self._cells:
            ok = ok & self._found[code]
            at = code
        elif self._cells and len(self._codes):
            at = np.minimum(np.searchsorted(self._codes, code), len(self._codes) - 1)
            ok = ok & (self._codes[at] == code)
        else:
            at, ok = np.zeros_like(code), np.zeros_like(ok)
        for i, name in enumerate(self._table.gives):
            gives = self._gives[i]
            block.columns[name] = gives[at] if len(gives) else np.zeros_like(code)
        return ok


def _total(terms: Terms, constant: int, block: Block) -> Integers:
    """Linear combination of columns."""
    start: Integers = np.full((1,) * len(block.shape), constant, dtype=np.int64)
    return reduce(lambda total, term: total + term[0] * block.columns[term[1]], terms, start)


def _within(total: Integers, low: int | None, high: int | None) -> Mask:
    """Elementwise ``low <= total <= high``."""
    ok: Mask = np.ones_like(total, dtype=bool)
    if low is not None:
        ok &= total >= low
    if high is not None:
        ok &= total <= high
    return ok


def _cut(
    axes: list[tuple[tuple[str, ...], Integers]], shared: Mapping[str, int]
) -> Iterator[Block]:
    """Turn axes into blocks, halving the longest axis until a block is small enough."""
    shape = tuple(len(rows) for _, rows in axes)
    if 0 in shape:
        return
    if math.prod(shape) > BLOCK_POINTS:
        longest = shape.index(max(shape))
        if shape[longest] > 1:
            keys, rows = axes[longest]
            half = len(rows) // 2
            for part in (rows[:half], rows[half:]):
                yield from _cut([*axes[:longest], (keys, part), *axes[longest + 1 :]], shared)
            return
    columns: dict[str, Integers] = {}
    flat = (1,) * len(axes)
    for i, (keys, rows) in enumerate(axes):
        along = (*flat[:i], len(rows), *flat[i + 1 :])
        for j, key in enumerate(keys):
            if key in shared:
                columns[key] = np.full(flat, shared[key], dtype=np.int64)
            else:
                columns[key] = np.ascontiguousarray(rows[:, j]).reshape(along)
    yield Block(shape, columns)
