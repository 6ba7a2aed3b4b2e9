"""Algorithm 1 of arXiv 2501.00254: enumerate, and skip what declared facts rule out."""

from __future__ import annotations

import itertools
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

from optplan.models.columns import READS
from optplan.models.program import (
    Fact,
    Fits,
    Pipeline,
    Program,
    Row,
    Statement,
    Table,
    row_holds,
    value,
)
from optplan.solvers.base import (
    Census,
    Holding,
    Outcome,
    Progress,
    SolverConfig,
    Termination,
    holding,
    rank,
    ratio,
)
from optplan.solvers.late import ASKS_MORE
from optplan.solvers.settle import Settler, fitting

ENGINE = "paper (Algorithm 1)"

RISE = Fraction(1, 10**9)
"""A price has risen when it did so by this share: more than whole ticks can blur."""

Point = dict[str, int]


def solve(program: Program, config: SolverConfig | None = None) -> Outcome:
    """
    Walk the space as the paper does: degrees, batches downward, micro-batches upward.

    Three kinds of points are never priced: those that a declared ``falls`` makes dearer than a
    larger batch already priced (Eq. 15), those beyond the dip of a ``dips`` (Eq. 16), those beyond
    the first that a rising quantity makes too large (Eqs. 17-20). Nothing is known of the program
    but its declarations; without them every point is priced.

    Returns
    -------
    Outcome
        ``exhausted`` with the optimum; ``unsupported`` for a program whose space does not split
        into two tables.
    """
    config = config or SolverConfig()
    start = time.monotonic()
    spans = [s for s in program.statements if isinstance(s, Table) and s.spans]
    outer = _one_schedule(spans)
    settler = Settler(program) if program.pipeline is not None else None
    if outer is None or (settler and settler.late.hard):
        why = "this engine knows the paper's world only: prices: paper"
        if outer is not None:
            why = ASKS_MORE
        return Outcome(Termination.UNSUPPORTED, Holding.NOTHING, engine=ENGINE, detail=why)
    walk = _Walk(program, outer, spans[1], settler)
    termination = Termination.EXHAUSTED
    told = start
    try:
        for done in walk.run():
            now = time.monotonic()
            if config.seconds is not None and now - start > config.seconds:
                termination = Termination.TIME_LIMIT
                break
            if config.progress and now - told > 0.2:
                told = now
                held = float(ratio(program, walk.best)) * program.goal.scale if walk.best else None
                config.progress(Progress(now - start, held, None, done))
    except KeyboardInterrupt:
        termination = Termination.INTERRUPTED
    finished = termination is Termination.EXHAUSTED
    goal = ratio(program, walk.best) if walk.best else None
    return Outcome(
        termination=termination,
        holding=holding(walk.best is not None, finished),
        best=(program.carried(walk.best),) if walk.best else (),
        goal=goal,
        bound=goal if finished else program.goal.least,
        census=Census(walk.points, dict(walk.removed)) if finished else None,
        prunings=dict(walk.pruned),
        priced=walk.priced,
        engine=ENGINE,
        seconds=time.monotonic() - start,
        nodes=walk.groups,
    )


@dataclass
class _Walk:
    """The state of one enumeration: what is best, and where every point went."""

    program: Program
    outer: Table
    inner: Table
    settler: Settler | None = None
    best: Point | None = None
    points: int = 0
    priced: int = 0
    groups: int = 0
    removed: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    pruned: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    def __post_init__(self) -> None:
        """Sort facts and statements by what they say of which choice."""
        facts = self.program.facts
        self.falls = next((f for f in facts if f.column == "goal" and f.shape == "falls"), None)
        self.dips = next((f for f in facts if f.column == "goal" and f.shape == "dips"), None)
        self.rises = {f.column: f for f in facts if f.shape == "rises" and f.column != "goal"}
        body = [s for s in self.program.statements if not (isinstance(s, Table) and s.spans)]
        moved = set(self.inner.keys) - set(self.outer.keys)
        self.early, self.late = _split(body, moved)
        self.monotone = {
            s.name: next(self.rises[c] for _, c in s.terms if c in self.rises)
            for s in self.late
            if isinstance(s, Row) and self._only_rises(s)
        }
        self.monotone |= {
            s.name: self.rises[s.name]
            for s in self.late
            if isinstance(s, Fits) and s.name in self.rises
        }

    def _only_rises(self, row: Row) -> bool:
        """Tell whether a row, once broken along the rising choice, stays broken."""
        columns = {column for _, column in row.terms}
        return (
            row.low is None
            and row.when is None
            and all(k > 0 for k, _ in row.terms)
            and columns <= self.rises.keys() | self._constant
            and not columns.isdisjoint(self.rises)
        )

    @property
    def _constant(self) -> set[str]:
        """Columns that no inner choice moves."""
        return {name for s in self.early for name in s.defines} | set(self.outer.keys)

    def run(self) -> Iterator[float]:
        """Visit every outer choice; yields the share of them that is done."""
        shared = [k for k in self.inner.keys if k in self.outer.keys]
        domain = {name: set(values) for name, values in self.program.domain.items()}
        batches: dict[tuple[int, ...], list[Point]] = defaultdict(list)
        for row in self.inner.rows.tolist():
            point = dict(zip(self.inner.keys, row, strict=True))
            if all(v in domain[k] for k, v in point.items()):
                batches[tuple(point[k] for k in shared)].append(point)
        spanned = {*self.outer.keys, *self.inner.keys}
        free = [c for c in self.program.choices if c.name not in spanned]
        settings = list(itertools.product(*(c.values for c in free)))
        rows = [
            r
            for r in self.outer.rows.tolist()
            if all(v in domain[k] for k, v in zip(self.outer.keys, r, strict=True))
        ]
        for i, row in enumerate(rows):
            outer = dict(zip(self.outer.keys, row, strict=True))
            group = batches.get(tuple(outer[k] for k in shared), [])
            for setting in settings:
                self._group(outer | {c.name: v for c, v in zip(free, setting, strict=True)}, group)
            yield (i + 1) / len(rows)

    def _group(self, outer: Point, group: list[Point]) -> None:
        """Visit the batches of one outer choice."""
        self.points += len(group)
        self.groups += 1
        known, broken = _judge(self.early, outer, self.settler)
        if broken:
            self.removed[broken] += len(group)
            return
        along = (self.falls or self.dips or Fact("", "", "", "falls")).along
        micro = (self.dips or next(iter(self.rises.values()), Fact("", "", "", "falls"))).along
        if not along or not micro:
            for point in group:
                self._point({**known, **point})
            return
        layers: dict[int, list[Point]] = defaultdict(list)
        for point in group:
            layers[point[along]].append(point)
        ruled = _Ruled()
        for size in sorted(layers, reverse=self.falls is not None):
            self._layer(known, sorted(layers[size], key=lambda p: p[micro]), micro, ruled)
            if not self.falls:
                ruled = _Ruled()

    def _layer(self, known: Point, points: list[Point], micro: str, ruled: _Ruled) -> None:
        """Visit the micro-batches of one batch, upward, until facts rule out the rest."""
        before: Fraction | None = None
        held: Fraction | None = None
        for i, point in enumerate(points):
            size = point[micro]
            if self.falls and size in ruled.settled:
                self.pruned[self.falls.name] += 1
                continue
            if self.dips and ruled.beyond is not None and size > ruled.beyond:
                self.pruned[self.dips.name] += len(points) - i
                return
            full, broken = self._point({**known, **point})
            if broken in self.monotone:
                self.removed[broken] -= 1
                self.pruned[self.monotone[broken].name] += len(points) - i
                return
            price = ratio(self.program, full) if self.program.goal.of in full else None
            if price is None:
                continue
            if not broken:
                ruled.settled.add(size)
                held = price if held is None else min(held, price)
            risen = before is not None and price > before + abs(before) * RISE
            if risen and held is not None and price > held + abs(held) * RISE:
                # Whatever is larger is dearer still, in this batch and in every smaller one.
                ruled.beyond = size
            before = price

    def _point(self, values: Point) -> tuple[Point, str | None]:
        """Price one point, keep it if best; what was computed, and the rule that refused it."""
        full, broken = _judge(self.late, values, self.settler)
        if broken:
            self.removed[broken] += 1
            return full, broken
        self.priced += 1
        if self.best is None or rank(self.program, full) < rank(self.program, self.best):
            self.best = full
        return full, broken


@dataclass
class _Ruled:
    """
    What earlier, larger batches have ruled out for smaller ones.

    Parameters
    ----------
    settled
        Micro-batches that a larger batch has priced and found legal.
    beyond
        Micro-batches above this are dearer than a legal plan already priced; None for no such.
    """

    settled: set[int] = field(default_factory=set)
    beyond: int | None = None


def _split(body: list[Statement], moved: set[str]) -> tuple[list[Statement], list[Statement]]:
    """Separate statements that no inner choice can change from those that it can."""
    early, late, unknown = [], [], set(moved)
    for statement in body:
        if unknown & set(statement.reads):
            unknown |= set(statement.defines)
            late.append(statement)
        else:
            early.append(statement)
    return early, late


def _one_schedule(spans: list[Table]) -> Table | None:
    """Join what follows from the first table alone to it; None where more than two are left."""
    if len(spans) < 2:
        return None
    outer = spans[0]
    for table in spans[2:]:
        shared = [k for k in table.keys if k in outer.keys]
        rows: dict[tuple[int, ...], list[int]] = {}
        for row in table.rows.tolist():
            point = dict(zip(table.keys, row, strict=True))
            key = tuple(point.pop(k) for k in shared)
            if key in rows:
                return None
            rows[key] = list(point.values())
        joined = [
            [*row, *rows[key]]
            for row in outer.rows.tolist()
            if (key := tuple(row[outer.keys.index(k)] for k in shared)) in rows
        ]
        more = tuple(k for k in table.keys if k not in shared)
        array = np.array(joined, dtype=np.int64).reshape(-1, len(outer.keys) + len(more))
        outer = Table(outer.name, outer.keys + more, (), array, spans=True)
    return outer


def _judge(
    statements: list[Statement], values: Point, settler: Settler | None = None
) -> tuple[Point, str | None]:
    """Evaluate statements until one refuses; everything computed, and the name of the refusal."""
    known = dict(values)
    unsettled = False
    for statement in statements:
        if isinstance(statement, Pipeline):
            assert settler is not None
            full = settler.settle({name: known[name] for name in settler.columns})
            unsettled = full is None
            known.update(full or {})
            continue
        if isinstance(statement, Fits):
            one = {name: np.array([known[name]], dtype=np.int64) for name in READS}
            if not fitting(statement, one)[0]:
                return known, statement.name
            continue
        if unsettled and settler and statement in settler.late:
            return known, statement.name
        if isinstance(statement, Row):
            if not row_holds(statement, known):
                return known, statement.name
        elif isinstance(statement, Table):
            found = statement.index.get(tuple(known[key] for key in statement.keys))
            if found is None:
                return known, statement.name
            known.update(zip(statement.gives, found, strict=True))
        else:
            known.update(value(statement, known))
    return known, None
