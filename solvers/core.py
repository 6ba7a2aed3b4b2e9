"""The smallest set of rules that already clash."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from optplan.models.columns import PARTS
from optplan.models.program import Fits, Goal, Program, Row, Table
from optplan.solvers.base import SolverConfig, Termination
from optplan.solvers.exhaustive import count
from optplan.solvers.grid import Block, Grid, Mask
from optplan.solvers.late import Late
from optplan.solvers.search import Search

MOST_POINTS = 1_500_000
"""Points up to which every one is asked which rules it breaks."""

PATIENCE = 60.0
"""Seconds after which a rule that might be dropped stays in a clash."""

SMALLEST_SEARCH = 6
"""Sets up to this size are searched for the smallest clash; larger ones are shrunk one by one."""


@dataclass(frozen=True)
class Clash:
    """
    Rules that no point obeys together.

    Parameters
    ----------
    rules
        Dropping any one of them leaves a point that obeys the others.
    nearest
        For each rule that bounds a quantity from above: the bound, and the smallest value of that
        quantity among the points that obey all the other rules of the clash.
    """

    rules: tuple[str, ...]
    nearest: dict[str, tuple[int, int]] = field(default_factory=dict)


def clash(program: Program, prefer: Callable[[str], int] = lambda name: 0) -> Clash:
    """Return the first of ``clashes``: a smallest set of rules that cannot all hold."""
    return next(clashes(program, prefer))


def clashes(
    program: Program,
    prefer: Callable[[str], int] = lambda name: 0,
    group: Callable[[str], str] = lambda name: name,
) -> Iterator[Clash]:
    """
    Find sets of rules that cannot all hold, until a point is left that breaks none of the others.

    Every point of the space is asked for the set of rules that it breaks. A clash is a set of
    rules that meets each of these sets; the smallest comes first, or where that is more than a few
    rules, one from which none can be left out. The next one shares no group with those before.

    Parameters
    ----------
    program
        A program without a feasible point.
    prefer
        Rank of a rule by its name: of several smallest clashes one of the lowest ranks is returned.
    group
        Rules of one group are about one thing: once a clash names one, the next names none of them.

    Raises
    ------
    ValueError
        The program has a feasible point.
    """
    late = Late(program)
    if program.pipeline is not None and late.hard:
        yield from _hard(program, late, prefer, group)
        return
    if program.pipeline is not None and count(program) > MOST_POINTS:
        yield from _one_by_one(program, prefer, group)
        return
    names = program.constraints
    grid = Grid(program)
    grid.exact = True
    patterns: set[tuple[int, ...]] = set()
    for block in grid.blocks():
        patterns |= _patterns(grid, block, names)
    broken = [frozenset(_members(p)) for p in patterns]
    bounded = program.pipeline is not None and bool(late.easy)
    if frozenset() in broken:
        if not bounded or _feasible(program, names):
            raise ValueError("the program has a feasible point")
        # Limits on time and memory were asked from below; only a search asks them exactly.
        yield from _one_by_one(program, prefer, group)
        return
    if program.pipeline is not None:
        # Where a table gives no price there is nothing to explain, unless it is so everywhere.
        giving = _giving(program)
        priced = [b for b in broken if not any(names[i] in giving for i in b)]
        broken = priced or broken
    if not broken:
        spans = (s.name for s in program.statements if isinstance(s, Table) and s.spans)
        yield Clash(tuple(spans))
    told: set[str] = set()
    while broken and frozenset() not in broken:
        least = [b for b in broken if not any(other < b for other in broken)]
        members = sorted(frozenset().union(*least), key=lambda i: (prefer(names[i]), -i))
        chosen = _smallest(least, members)
        rules = tuple(names[i] for i in sorted(chosen))
        if bounded:
            rules = _shrunk(program, rules, prefer)
        if program.pipeline is None:
            yield Clash(rules, _nearest(program, grid, frozenset(rules)))
        else:
            near = _nearest(program, grid, frozenset(rules))
            near = {n: v for n, v in near.items() if n not in _late(program)}
            yield Clash(rules, near | _measured(program, rules))
        told |= {group(name) for name in rules}
        broken = list({frozenset(i for i in b if group(names[i]) not in told) for b in broken})
    rest = [name for name in names if group(name) not in told]
    if bounded and not _feasible(program, rest):
        yield from _one_by_one(program, prefer, group, rest)


def _shrunk(
    program: Program, rules: tuple[str, ...], prefer: Callable[[str], int]
) -> tuple[str, ...]:
    """Leave out rules of a clash that it can do without, each asked by an exact search."""
    for name in sorted(rules, key=lambda name: (-prefer(name), rules.index(name))):
        rest = [other for other in rules if other != name]
        if rest and not _feasible(program, rest):
            rules = tuple(rest)
    return rules


def _hard(
    program: Program, late: Late, prefer: Callable[[str], int], group: Callable[[str], str]
) -> Iterator[Clash]:
    """
    Find clashes where limits ask more of time or memory than to be small.

    Whatever clashes without them is found as always. If nothing does, it is they that cannot be
    met: all of them are named, since leaving one out at a time would take a proof each.
    """
    names = tuple(s.name for s in late.statements if isinstance(s, Row))
    rest = program.without(frozenset(names))
    if _feasible(rest, rest.constraints):
        fits = tuple(s.name for s in program.statements if isinstance(s, Fits) and s.parts == PARTS)
        yield Clash(tuple(dict.fromkeys((*fits, *names))))
        return
    yield from clashes(rest, prefer, group)


def _one_by_one(
    program: Program,
    prefer: Callable[[str], int],
    group: Callable[[str], str],
    among: Sequence[str] | None = None,
) -> Iterator[Clash]:
    """
    Find clashes of a space too large to be visited: drop rule after rule while none is feasible.

    Rules of the highest rank are dropped first. What is left cannot do without any of them.
    """
    open_ = list(program.constraints if among is None else among)
    first = True
    while first or not _feasible(program, open_):
        first = False
        kept = sorted(open_, key=lambda name: (prefer(name), open_.index(name)))
        clash_ = list(kept)
        for name in reversed(kept):
            rest = [other for other in clash_ if other != name]
            if not _feasible(program, rest):
                clash_ = rest
        rules = tuple(name for name in program.constraints if name in clash_)
        if not rules:
            spans = (s.name for s in program.statements if isinstance(s, Table) and s.spans)
            yield Clash(tuple(spans))
            return
        yield Clash(rules, _measured(program, rules))
        told = {group(name) for name in rules}
        open_ = [name for name in open_ if group(name) not in told]


def _feasible(program: Program, asked: Sequence[str]) -> bool:
    """Tell whether some point may obey the rules that are asked; where time is up, one may."""
    rest = frozenset(program.constraints) - frozenset(asked)
    smaller = program.without(rest)
    config = SolverConfig(seconds=PATIENCE)
    search = Search(smaller, config)
    search.single = True
    found = search.run()
    outcome = found.outcome
    return bool(outcome.best) or outcome.termination is Termination.TIME_LIMIT


def _measured(program: Program, rules: Sequence[str]) -> dict[str, tuple[int, int]]:
    """Find how close time or memory come to their bounds under the clash's other rules."""
    pipeline = program.pipeline
    assert pipeline is not None
    measured: dict[str, tuple[int, int]] = {}
    for statement in program.statements:
        if statement.name not in rules or program.constraints.count(statement.name) != 1:
            continue
        high: int | None = None
        of = "peak_bytes"
        if isinstance(statement, Fits) and statement.parts == PARTS:
            high = pipeline.room + pipeline.reserve
        elif isinstance(statement, Row) and len(statement.terms) == 1 and statement.low is None:
            factor, of = statement.terms[0]
            high = statement.high if factor == 1 and of in pipeline.defines else None
        if high is None:
            continue
        others = frozenset(program.constraints) - (frozenset(rules) - {statement.name})
        alone = replace(program.without(others), goal=Goal(of, None, 1.0, ""), ties=())
        best = Search(alone, SolverConfig()).run().outcome
        if best.goal is not None:
            least = int(best.goal)
            if isinstance(statement, Fits):
                high, least = high - pipeline.reserve, least - pipeline.reserve
            measured[statement.name] = (high, least)
    return measured


@dataclass(frozen=True)
class Closest:
    """
    The point that only some rules refuse.

    Parameters
    ----------
    point
        Values of all choices, and what is handed out to stages.
    least
        The quantity that the rules bound, where they bound one: of such points the smallest.
    high
        Its bound.
    proved
        Whether no such point has less.
    """

    point: dict[str, int]
    least: int | None
    high: int | None
    proved: bool


def closest(
    program: Program, rules: Sequence[str], apart: frozenset[str], seconds: float | None = None
) -> Closest | None:
    """
    Find the point that breaks nothing but what is set apart, by as little as can be.

    Parameters
    ----------
    program
        A program without a feasible point.
    rules
        A clash. Where every point breaks more than one of several clashes, only the rest of this
        one has to hold.
    apart
        Rules that need not hold: where they bound time or memory, the point has least of it; else
        it is the best by the program's goal.
    seconds
        Time to look for it.
    """
    every = frozenset(program.constraints)
    of, high = _bounded(program, apart)
    for others in (every - apart, frozenset(rules) - apart):
        smaller = program.without(every - others)
        if of is not None:
            smaller = replace(smaller, goal=Goal(of, None, 1.0, ""), ties=())
        outcome = Search(smaller, SolverConfig(seconds=seconds)).run().outcome
        if outcome.best:
            least = int(outcome.goal) if of is not None and outcome.goal is not None else None
            proved = outcome.termination is Termination.EXHAUSTED and not Late(smaller).hard
            return Closest(dict(outcome.best[0]), least, high, proved)
    return None


def _bounded(program: Program, apart: frozenset[str]) -> tuple[str | None, int | None]:
    """Return time or memory, and the bound, where that is what some rules are about."""
    pipeline = program.pipeline
    some = [s for s in program.statements if s.name in apart and isinstance(s, Fits | Row)]
    if pipeline is None or not some:
        return None, None
    if all(isinstance(s, Fits) for s in some):
        return "peak_bytes", pipeline.room + pipeline.reserve
    row = some[0]
    if len(some) == 1 and isinstance(row, Row) and len(row.terms) == 1 and row.low is None:
        factor, of = row.terms[0]
        if factor == 1 and of in pipeline.defines and row.when is None:
            return of, row.high
    return None, None


def _patterns(grid: Grid, block: Block, names: tuple[str, ...]) -> set[tuple[int, ...]]:
    """Collect the distinct sets of broken rules in a block, as words of 62 bits."""
    place = {name: i for i, name in enumerate(names)}
    words: list[NDArray[np.int64]] = [
        np.zeros((1,) * len(block.shape), dtype=np.int64) for _ in range(len(names) // 62 + 1)
    ]
    # A point that a table has no row for lacks quantities; rules that read them say nothing of it.
    undefined: Mask = np.zeros((1,) * len(block.shape), dtype=bool)
    giving = _giving(grid.program)
    late = _late(grid.program) | {s.name for s in grid.program.statements if isinstance(s, Fits)}
    for name, ok in grid.judge(block):
        if name in late:
            ok = ok | undefined
        elif name in giving:
            undefined = undefined | ~ok
        if name in place:
            word, bit = divmod(place[name], 62)
            words[word] = words[word] | np.where(ok, 0, 1 << bit)
    if len(words) == 1:
        return {(word,) for word in np.unique(words[0]).tolist()}
    flat = np.stack([np.broadcast_to(w, block.shape).ravel() for w in words], axis=1)
    return set(map(tuple, np.unique(flat, axis=0).tolist()))


def _giving(program: Program) -> set[str]:
    """Name the tables without whose rows a point has no price; they refuse nothing else."""
    giving = {s.name for s in program.statements if isinstance(s, Table) and s.gives}
    asking = {
        s.name
        for s in program.statements
        if isinstance(s, Row | Fits) or (isinstance(s, Table) and not s.gives)
    }
    return giving - asking


def _members(words: tuple[int, ...]) -> list[int]:
    """List the set bits of words of 62 bits."""
    return [62 * i + bit for i, word in enumerate(words) for bit in range(62) if word >> bit & 1]


def _smallest(broken: list[frozenset[int]], candidates: list[int]) -> frozenset[int]:
    """Return a smallest set that meets all sets, preferring candidates that stand first."""
    for size in range(1, SMALLEST_SEARCH + 1):
        if _choices(len(candidates), size) > 200_000:
            break
        for chosen in itertools.combinations(candidates, size):
            if all(not b.isdisjoint(chosen) for b in broken):
                return frozenset(chosen)
    chosen_set = set(candidates)
    for rule in reversed(candidates):
        if all(not b.isdisjoint(chosen_set - {rule}) for b in broken):
            chosen_set.discard(rule)
    return frozenset(chosen_set)


def _late(program: Program) -> set[str]:
    """Names of rules about time and memory, whose quantities are known from below only."""
    return {s.name for s in Late(program).statements}


def _choices(n: int, k: int) -> int:
    """Count combinations, roughly."""
    return reduce(lambda total, i: total * (n - i) // (i + 1), range(k), 1)


def _nearest(program: Program, grid: Grid, rules: frozenset[str]) -> dict[str, tuple[int, int]]:
    """Find how close each bounded quantity comes to its bound under the clash's other rules."""
    rows = {s.name: s for s in program.statements if isinstance(s, Row) and s.name in rules}
    rows = {
        n: s for n, s in rows.items() if s.high is not None and s.low is None and s.when is None
    }
    least: dict[str, int] = {}
    for block in grid.blocks() if rows else ():
        alive: dict[str, Mask] = {
            name: np.ones((1,) * len(block.shape), dtype=bool) for name in rows
        }
        for name, ok in grid.judge(block):
            for other in rows if name in rules else ():
                if other != name:
                    alive[other] = alive[other] & ok
        for name, row in rows.items():
            total = reduce(
                lambda a, t: a + t[0] * block.columns[t[1]],
                row.terms,
                np.zeros((1,) * len(block.shape), np.int64),
            )
            found = np.where(alive[name], total, np.iinfo(np.int64).max).min()
            least[name] = min(least.get(name, int(found)), int(found))
    return {n: (rows[n].high or 0, v) for n, v in least.items() if v < np.iinfo(np.int64).max}
