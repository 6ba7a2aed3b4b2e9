"""What is known of points while some of their choices are still open: ranges of every column."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from optplan.models.columns import PARTIAL, READS, Columns
from optplan.models.program import (
    Divide,
    Extreme,
    Fits,
    Integers,
    Pipeline,
    Product,
    Program,
    Row,
    Sum,
    Table,
    Terms,
    Truth,
)
from optplan.solvers.late import Late, room_of

Reals = NDArray[np.float64]
Mask = NDArray[np.bool_]

DENSE = 2**22
"""Values and combinations up to this are looked up by place, others by search."""


@dataclass(frozen=True)
class _Groups:
    """A table read by some of its keys: the least and most of what it gives, per group."""

    values: tuple[Integers, ...]
    codes: Integers
    least: Integers
    most: Integers

    @cached_property
    def places(self) -> list[Integers | None]:
        """Place of every value by itself, -1 where there is none; None where values are large."""
        found: list[Integers | None] = []
        for values in self.values:
            if not len(values) or values[0] < 0 or values[-1] >= DENSE:
                found.append(None)
                continue
            place = np.full(int(values[-1]) + 2, -1, dtype=np.int64)
            place[values] = np.arange(len(values))
            found.append(place)
        return found

    @cached_property
    def cells(self) -> Integers | None:
        """Group of every combination of places, -1 where there is none; None where too many."""
        size = math.prod(max(1, len(values)) for values in self.values)
        if size > DENSE:
            return None
        cells = np.full(size, -1, dtype=np.int64)
        cells[self.codes] = np.arange(len(self.codes))
        return cells

    def find(self, columns: list[Integers]) -> tuple[Mask, Integers]:
        """Find the group of every row; whether there is one."""
        ok = np.ones(len(columns[0]), dtype=bool)
        want = np.zeros(len(columns[0]), dtype=np.int64)
        if not len(self.codes):
            return np.zeros_like(ok), want
        for values, places, column in zip(self.values, self.places, columns, strict=True):
            if places is not None:
                place = places[np.clip(column, 0, len(places) - 1)]
                ok &= place >= 0
                place = np.maximum(place, 0)
            else:
                place = np.minimum(np.searchsorted(values, column), len(values) - 1)
                ok &= values[place] == column
            want = want * len(values) + place
        if self.cells is not None:
            at = self.cells[want]
            ok &= at >= 0
            return ok, np.maximum(at, 0)
        at = np.minimum(np.searchsorted(self.codes, want), len(self.codes) - 1)
        ok &= self.codes[at] == want
        return ok, at


class Lower:
    """
    Ranges of a program's columns for rows of which only some choices are known.

    Parameters
    ----------
    program
        A program that hands out layers.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.late = Late(program)
        self._groups: dict[tuple[int, tuple[str, ...]], _Groups] = {}
        self._follows: dict[frozenset[str], frozenset[str]] = {}

    def judge(
        self, known: Mapping[str, Integers], fresh: frozenset[str]
    ) -> Iterator[tuple[str, Mask]]:
        """
        Work out ranges, telling after each constraint which rows may still hold a point.

        Parameters
        ----------
        known
            Values of the choices that are known, flat.
        fresh
            Choices known only now; a constraint that reads none of them has been asked before.
        """
        n = len(next(iter(known.values())))
        self.low: dict[str, Integers] = dict(known)
        self.high: dict[str, Integers] = dict(known)
        self.exact = set(known)
        self.done = self.known_columns(known)
        news = set(fresh)
        for choice in self.program.choices:
            if choice.name not in known:
                self.low[choice.name] = np.full(1, min(choice.values), dtype=np.int64)
                self.high[choice.name] = np.full(1, max(choice.values), dtype=np.int64)
        for statement in self.program.statements:
            if statement in self.late or (isinstance(statement, Table) and statement.spans):
                continue
            touched = bool(news & set(statement.reads))
            if touched:
                news |= set(statement.defines)
            elif statement.defines and statement.reads and set(statement.reads) <= self.done:
                # Known exactly since an earlier level: carried along if it is still needed.
                continue
            ok = self._run(statement, n, touched)
            if ok is not None:
                yield statement.name, ok

    def _run(self, statement: object, n: int, touched: bool) -> Mask | None:
        """Work out one statement; which rows it lets through, None where it cannot refuse."""
        low, high = self.low, self.high
        match statement:
            case Table():
                return self._table(statement, n, touched)
            case Row():
                if not touched or (statement.when and statement.when[0] not in self.exact):
                    return None
                least, most = self._total(statement.terms, 0)
                ok = np.ones(n, dtype=bool)
                if statement.low is not None:
                    ok &= most >= statement.low
                if statement.high is not None:
                    ok &= least <= statement.high
                if statement.when:
                    ok |= low[statement.when[0]] != statement.when[1]
                return ok
            case Sum():
                ends = self._total(statement.terms, statement.constant)
                low[statement.result], high[statement.result] = ends
            case Product():
                corners = [
                    a[statement.left].astype(np.float64) * b[statement.right]
                    for a in (low, high)
                    for b in (low, high)
                ]
                least, most = np.minimum.reduce(corners), np.maximum.reduce(corners)
                low[statement.result] = _clipped(least)
                high[statement.result] = _clipped(most)
            case Extreme():
                pick = np.maximum if statement.kind == "max" else np.minimum
                low[statement.result] = pick.reduce(
                    np.broadcast_arrays(*(low[c] for c in statement.of))
                )
                high[statement.result] = pick.reduce(
                    np.broadcast_arrays(*(high[c] for c in statement.of))
                )
            case Divide():
                small = np.maximum(1, low[statement.right])
                large = np.maximum(1, high[statement.right])
                least, most = low[statement.left] // large, high[statement.left] // small
                low[statement.quotient], high[statement.quotient] = least, most
                single = {statement.left, statement.right} <= self.exact
                rest = low[statement.left] % small
                low[statement.remainder] = rest if single else np.zeros_like(rest)
                high[statement.remainder] = rest if single else large - 1
            case Truth():
                least, most = self._total(statement.terms, 0)
                bottom = -np.inf if statement.low is None else statement.low
                top = np.inf if statement.high is None else statement.high
                low[statement.result] = ((least >= bottom) & (most <= top)).astype(np.int64)
                high[statement.result] = ((most >= bottom) & (least <= top)).astype(np.int64)
            case Fits():
                return self._fits(statement, n) if touched else None
            case Pipeline():
                return None
        if set(getattr(statement, "reads", ())) <= self.exact:
            self.exact |= set(getattr(statement, "defines", ()))
        return None

    def _total(self, terms: Terms, constant: int) -> tuple[Integers, Integers]:
        """Range of a linear combination."""
        least = np.full(1, constant, dtype=np.int64)
        most = np.full(1, constant, dtype=np.int64)
        for k, column in terms:
            one, other = self.low[column], self.high[column]
            least = least + k * (one if k > 0 else other)
            most = most + k * (other if k > 0 else one)
        return least, most

    def _table(self, table: Table, n: int, touched: bool) -> Mask | None:
        """Look a table up by the keys that are known, or take its ends."""
        known = tuple(k for k in table.keys if k in self.exact)
        whole = len(known) == len(table.keys)
        if not known:
            width = len(table.keys)
            for i, give in enumerate(table.gives):
                column = table.rows[:, width + i]
                self.low[give] = np.full(1, column.min(initial=0) if len(column) else 0)
                self.high[give] = np.full(1, column.max(initial=0) if len(column) else 0)
            return None
        groups = self.grouped(table, known)
        if not table.gives and not touched:
            return None
        ok, at = groups.find([np.broadcast_to(self.low[k], (n,)) for k in known])
        for i, give in enumerate(table.gives):
            if len(groups.codes):
                self.low[give], self.high[give] = groups.least[i][at], groups.most[i][at]
            else:
                self.low[give] = self.high[give] = np.zeros(n, dtype=np.int64)
        if whole:
            self.exact |= set(table.gives)
        return ok if touched else None

    def grouped(self, table: Table, known: tuple[str, ...]) -> _Groups:
        """Group a table by some of its keys, once."""
        key = (id(table), known)
        if key in self._groups:
            return self._groups[key]
        columns = [table.rows[:, table.keys.index(k)] for k in known]
        values = tuple(np.unique(column) for column in columns)
        code = np.zeros(len(table.rows), dtype=np.int64)
        for some, column in zip(values, columns, strict=True):
            code = code * max(1, len(some)) + np.searchsorted(some, column)
        order = np.argsort(code, kind="stable")
        ordered = code[order]
        first = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]]) if len(code) else code
        width = len(table.keys)
        gives: Integers = table.rows[order][:, width:].T
        least = np.minimum.reduceat(gives, first, axis=1) if len(code) else gives
        most = np.maximum.reduceat(gives, first, axis=1) if len(code) else gives
        if not table.gives:
            least = most = np.empty((0, len(first)), dtype=np.int64)
        self._groups[key] = _Groups(values, ordered[first], least, most)
        return self._groups[key]

    def known_columns(self, known: Mapping[str, Integers]) -> frozenset[str]:
        """Columns that follow from those known, whether or not they are carried along."""
        key = frozenset(known)
        if key not in self._follows:
            found = set(known)
            for statement in self.program.statements:
                if set(statement.reads) <= found and not _spans(statement):
                    found |= set(statement.defines)
            self._follows[key] = frozenset(found)
        return self._follows[key]

    def settled(self, n: int) -> dict[str, Integers]:
        """Columns that are known exactly by now, which open choices will not change."""
        needed = {
            name
            for statement in self.program.statements
            if not (statement.defines and set(statement.defines) <= self.exact)
            for name in statement.reads
        }
        if self.program.goal.times:
            needed.add(self.program.goal.times)
        return {name: np.broadcast_to(self.low[name], (n,)) for name in self.exact & needed}

    # -- time and memory from below --------------------------------------------------------------

    def step(self, pipeline: Pipeline, n: int) -> Reals:
        """Bound the ticks of a step from below, whatever the open choices turn out to be."""
        f = {c: self.low[c].astype(np.float64) for c in _STEP}
        p, m = self.high["pp"].astype(np.float64), f["micro_batches"]
        most = np.ceil(pipeline.layers / p)
        front = np.minimum(0.0, f["front"])
        even = m * (pipeline.layers * f["layer"] / p + front)
        once = f["once_layer"] * most + np.minimum(0.0, f["once_front"]) + f["once_fixed"]
        step = even + once + f["hop_fill"] + m * f["hop_steady"]
        if {"free", "chunk"} <= self.exact:
            # Free stages are at best even in whole layers and take one turn more each; equal
            # chunks are as long as the longest, and wait where gradients are not split.
            total = pipeline.layers * f["layer"] + f["front"] + f["back"]
            free = (m - 1) * np.maximum(total / p, f["layer"] * most + front) + total
            stage = self.low["vpp"] * self.low["chunk"] * f["layer"]
            fixed = m * stage
            free, fixed = (t + once + f["hop_fill"] + m * f["hop_steady"] for t in (free, fixed))
            step = np.maximum(step, np.where(self.low["free"] == 1, free, fixed))
        step = np.minimum(step * (1 - 1e-12), float(pipeline.most))
        return np.broadcast_to(step, (n,))

    def peak(self, pipeline: Pipeline, n: int) -> Reals:
        """Bound the bytes of the fullest device from below."""
        read = self._least_columns(pipeline, n)
        held = pipeline.even_peak(read)
        peak = np.minimum(held + pipeline.reserve + read["fetched"], float(pipeline.most_bytes))
        return np.broadcast_to(np.floor(peak), (n,))

    def _least_columns(self, pipeline: Pipeline, n: int) -> Columns:
        """Columns that a pipeline reads, everything at its least and recomputing what helps."""
        read = {c: self.low[c] for c in READS}
        if "recompute" not in self.exact:
            read["recompute"] = np.where(self.high["recompute"] >= PARTIAL, PARTIAL, 0)
            read["saved"] = np.minimum(self.high["saved"], read["kept"])
        read["pp"] = self.high["pp"]
        return Columns(read)

    def _fits(self, statement: Fits, n: int) -> Mask:
        """Tell where some parts may fit, everything at its least."""
        pipeline = statement.pipeline
        read = self._least_columns(pipeline, n)
        room = room_of(statement, read)
        # Neither kind of pipeline can do with less than an even share of everything.
        held = pipeline.even_peak(read, statement.parts)
        ok: Mask = np.broadcast_to(held <= room, (n,))
        return ok


_STEP = (
    "layer",
    "front",
    "back",
    "once_layer",
    "once_front",
    "once_fixed",
    "hop_fill",
    "hop_steady",
    "micro_batches",
)


def _spans(statement: object) -> bool:
    """Tell whether a statement is a space rather than a definition."""
    return isinstance(statement, Table) and statement.spans


def _clipped(size: Reals) -> Integers:
    """Whole numbers, far below what would wrap around."""
    whole: Integers = np.clip(size, -(2.0**61), 2.0**61).astype(np.int64)
    return whole
