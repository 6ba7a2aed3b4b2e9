"""Bound first, then price: the best points of a program that hands out layers."""

from __future__ import annotations

import logging
import math
import time
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from optplan.models.program import Integers, Program, Table
from optplan.solvers.base import (
    Census,
    Holding,
    Outcome,
    Progress,
    SolverConfig,
    Termination,
    holding,
)
from optplan.solvers.boxes import Spine, first_bound
from optplan.solvers.grid import BLOCK_POINTS, Block, Grid, prices
from optplan.solvers.late import ASKS_MORE
from optplan.solvers.left import Left, joined, none_left
from optplan.solvers.lower import Lower
from optplan.solvers.settle import Point, Settler

SAFETY = 1e-9
"""Only what exceeds the incumbent by this share falls to a bound, above any rounding of floats."""

FIRST = 16
"""Rows that are looked at first; then four times as many, and so on."""

MOST = 65_536
"""Rows that are looked at together."""

JOINED = 500_000
"""Rows that are joined together where every point is looked at."""

ROWS = 100_000
"""Rows that those may become at the next level, unless a single one becomes more."""

WAITING = 200_000
"""Points that wait for their layers at most before they are bounded with memory in mind."""


@dataclass
class Found:
    """
    What a search came to.

    Parameters
    ----------
    outcome
        Best points, census, bound.
    left
        Points whose bound does not exceed the best plan: what a prover has to decide.
    hard
        True where a limit asks more of time and memory than to be small; then the best points here
        are plans, and nothing more is known of them.
    """

    outcome: Outcome
    left: Left
    hard: bool


log = logging.getLogger(__name__)

SHOWN = ("tp", "pp", "dp", "cp", "ep", "micro_batch", "global_batch")
"""Choices that the log tells of an incumbent, where a program has them."""


class Search:
    """
    One search: choices are made known step by step, best bound first.

    Parameters
    ----------
    bounded
        False to look at every point, whatever bounds say.
    """

    def __init__(self, program: Program, config: SolverConfig, bounded: bool = True) -> None:
        self.program, self.config, self.bounded = program, config, bounded
        self.settler = Settler(program)
        self.spine = Spine(program)
        self.grid = Grid(program)
        self.grid.weighing = self.settler.headroom
        self.lower = Lower(program)
        self.start = time.monotonic()
        self.told = self.start
        self.removed = dict.fromkeys(program.constraints, 0)
        self.fallen = 0
        self.priced = 0
        self.best: list[Point] = []
        self.waiting: list[Left] = []
        self.kept: list[Left] = []
        self.spare = 1.0
        """How many times the best goal may be exceeded by points that are kept for a prover."""
        self.single = False
        """Whether any point will do, the first one found."""
        self.open: dict[int, NDArray[np.float64]] = {}

    @property
    def ceiling(self) -> float:
        """Goal above which nothing is of interest, to whoever searches or proves."""
        best = self._worst
        return best * self.spare if best > 0 else best

    @property
    def _worst(self) -> float:
        """Goal above which nothing can be among the best."""
        if self.single and self.best:
            return -1.0
        if len(self.best) < self.config.top:
            return float("inf")
        worst = float(self.settler.goal(self.best[-1]))
        return worst + abs(worst) * SAFETY

    def run(self) -> Found:
        """Search to the end, or until time is up."""
        termination = Termination.EXHAUSTED
        total = self.spine.total()
        try:
            if not self.spine.empty:
                self._walk()
        except KeyboardInterrupt:
            termination = Termination.INTERRUPTED
        except TimeoutError:
            termination = Termination.TIME_LIMIT
        return self._found(total, termination)

    def outcome(self) -> Outcome:
        """Search, and say what is known where a limit asks too much for this."""
        return unsupported() if self.settler.late.hard else self.run().outcome

    def everything(self) -> Left:
        """Return every point that no table refuses, rows and memory not yet asked."""
        if self.spine.empty:
            return none_left(self.settler.columns)
        found = []
        self.grid.lenient = True
        for columns in self.spine.all_rows(JOINED):
            for block in self.spine.blocks(columns, BLOCK_POINTS):
                for _ in self.grid.judge(block):
                    pass
                flat = np.flatnonzero(np.broadcast_to(block.found, block.shape))
                low = np.zeros(len(flat))
                found.append(Left(block.at(flat, self.settler.columns), low))
        return joined(found, self.settler.columns)

    def _walk(self) -> None:
        """Visit the space."""
        if self.bounded:
            start = self.spine.start()
            n = len(next(iter(start.values())))
            self._level(start | self.spine.alone(n), 0)
        else:
            for columns in self.spine.all_rows(JOINED):
                for block in self.spine.blocks(self._whole(columns), BLOCK_POINTS):
                    self._price(block)
                    if sum(map(len, self.waiting)) > WAITING:
                        self._settle()
                    self._watch(None)
        self._settle()

    def _whole(self, columns: dict[str, Integers]) -> dict[str, Integers]:
        """Drop joined rows that a table refuses whole."""
        each = math.prod(len(v) for v in self.spine.free.values())
        for statement in self.program.statements:
            if not isinstance(statement, Table) or statement.spans:
                continue
            if set(statement.keys) <= columns.keys():
                groups = self.lower.grouped(statement, statement.keys)
                ok, _ = groups.find([columns[k] for k in statement.keys])
                self._refuse(statement.name, int(np.count_nonzero(~ok)) * each)
                columns = {k: v[ok] for k, v in columns.items()}
        return columns

    def _refuse(self, name: str, count: int) -> None:
        """Count points that a constraint refused."""
        self.removed[name] = self.removed.get(name, 0) + count

    def _level(self, columns: dict[str, Integers], level: int) -> None:
        """Bound rows of which only some choices are known, and go on with those that may win."""
        n = len(next(iter(columns.values())))
        points = self.spine.points(columns, level)
        alive = np.ones(n, dtype=bool)
        for name, ok in self.lower.judge(columns, self.spine.news(level)):
            lost = alive & ~ok
            if lost.any():
                self._refuse(name, int(points[lost].sum()))
                alive &= ok
        bound = self._bound(columns, n, level)
        last = level + 1 == len(self.spine.steps)
        if not last:
            columns = columns | self.lower.settled(n)
        index = np.flatnonzero(alive)
        order = index[np.argsort(bound[index], kind="stable")]
        done, size = 0, FIRST
        while done < len(order):
            self.open[level] = bound[order[done:]]
            ceiling = self.ceiling
            if bound[order[done]] > ceiling:
                break
            part = order[done : done + size]
            part = part[: max(1, np.searchsorted(bound[part], ceiling, side="right"))]
            some = {k: v[part] for k, v in columns.items()}
            if last:
                for block in self.spine.blocks(some, BLOCK_POINTS):
                    self._price(block)
                self._settle()
            else:
                grown = np.cumsum(self.spine.grown(some, level + 1))
                part = part[: max(1, int(np.searchsorted(grown, ROWS, side="right")))]
                some = {k: v[: len(part)] for k, v in some.items()}
                self._level(self.spine.grow(some, level + 1), level + 1)
            done += len(part)
            size = min(MOST, size * 4)
            if level == 0:
                self._watch(done / len(order))
            else:
                self._watch(None)
        self.open.pop(level, None)
        self.fallen += int(points[order[done:]].sum())

    def _bound(self, columns: dict[str, Integers], n: int, level: int) -> NDArray[np.float64]:
        """Bound goals, in program units."""
        pipeline, goal = self.settler.pipeline, self.program.goal
        if self.settler.headroom:
            return self.lower.peak(pipeline, n)
        if level == 0:
            bound = first_bound(self.program, self.spine, columns)
            return bound * self.lower.low[goal.times] if goal.times else bound
        step = self.lower.step(pipeline, n)
        times = {goal.times: self.lower.low[goal.times]} if goal.times else {}
        found: NDArray[np.float64] = goal.rates(step, {**columns, **times})
        return found

    def _watch(self, share: float | None) -> None:
        """Report, and stop when the time is up."""
        now = time.monotonic()
        if self.config.seconds is not None and now - self.start > self.config.seconds:
            raise TimeoutError
        if self.config.progress and now - self.told > 0.2:
            self.told = now
            held = None
            if self.best:
                held = float(self.settler.goal(self.best[0])) * self.program.goal.scale
            self.config.progress(Progress(now - self.start, held, None, share))

    def _price(self, block: Block) -> None:
        """Ask every rule, bound every point without its memory, and keep what may be best."""
        for _ in self.grid.judge(block, self.removed):
            pass
        self.priced += block.points
        if not block.alive.any():
            return
        alive = np.broadcast_to(block.alive, block.shape)
        low = np.broadcast_to(prices(self.program, block), block.shape)
        wanted = alive & (low <= self.ceiling)
        flat = np.flatnonzero(wanted)
        self.fallen += int(np.count_nonzero(alive)) - len(flat)
        if len(flat):
            columns = block.at(flat, self.settler.columns)
            self.waiting.append(Left(columns, low.ravel()[flat]))

    def _settle(self) -> None:
        """Bound what waits with memory in mind, and settle it from the lowest bound upward."""
        for some in self.waiting:
            within = some.bound <= self.ceiling
            self.fallen += int(np.count_nonzero(~within))
            part = some.take(within)
            if not len(part):
                continue
            bound, fits = self.settler.bounds(part.columns)
            if not fits.all():
                self._refuse("capacity.hbm", int(np.count_nonzero(~fits)))
                part, bound = part.take(fits), bound[fits]
            part = Left(part.columns, np.maximum(part.bound, bound))
            self._best_first(part)
            keep = part.bound <= self.ceiling
            self.fallen += int(np.count_nonzero(~keep))
            if keep.any():
                self.kept.append(part.take(keep))
        self.waiting = []

    def _best_first(self, part: Left) -> None:
        """Hand out the layers of points, lowest bound first, until the bounds pass the best."""
        ties = [part.columns[t] for t in reversed(self.program.ties) if t in part.columns]
        for i in np.lexsort([*ties, part.bound]).tolist():
            if part.bound[i] > self._worst:
                return
            below = self.settler.goal(self.best[-1]) if self._worst < np.inf else None
            full = self.settler.settle(part.at(i), below)
            if full is None:
                continue
            self._keep(full)

    def _keep(self, full: Point) -> None:
        """Enter a plan among the best, unless one alike is there that is no worse."""
        alike = [
            other
            for other in self.best
            if self.config.distinct and all(other[k] == full[k] for k in self.config.distinct)
        ]
        if alike and self.settler.rank(alike[0]) <= self.settler.rank(full):
            return
        self.best = [other for other in self.best if not any(other is one for one in alike)]
        self.best.append(full)
        self.best.sort(key=self.settler.rank)
        if self.best[0] is full and log.isEnabledFor(logging.INFO):
            goal = self.program.goal
            price = float(self.settler.goal(full)) * goal.scale
            words = " ".join(f"{name} {full[name]}" for name in SHOWN if name in full)
            log.info("incumbent %.6g %s: %s", price, goal.unit, words)
        del self.best[self.config.top :]

    def _found(self, total: int, termination: Termination) -> Found:
        """Write down what was found."""
        finished = termination is Termination.EXHAUSTED
        left = none_left(self.settler.columns)
        if self.kept:
            left = joined(self.kept, self.settler.columns)
            within = left.bound <= self.ceiling
            self.fallen += int(np.count_nonzero(~within))
            left = left.take(within)
        goal = self.settler.goal(self.best[0]) if self.best else None
        bound: Fraction | None = goal if finished and not self.settler.late.hard else None
        if not finished:
            open_ = [float(rest.min(initial=np.inf)) for rest in self.open.values()]
            open_ += [float(w.bound.min(initial=np.inf)) for w in self.waiting]
            open_ += [float(k.bound.min(initial=np.inf)) for k in self.kept]
            low = min(open_, default=np.inf)
            # Rows that were never bounded may hold anything.
            known = self.bounded and np.isfinite(low)
            bound = Fraction(max(0.0, low)) if known else None
            if goal is not None and bound is not None:
                bound = min(bound, goal)
        self._tell(total, len(left), termination)
        outcome = Outcome(
            termination=termination,
            holding=holding(bool(self.best), finished),
            best=tuple(self.program.carried(values) for values in self.best),
            goal=goal,
            bound=bound,
            census=Census(total, self.removed) if finished else None,
            priced=self.priced,
            removed_by_bound=self.fallen,
            engine=f"{'cp-sat, search' if self.bounded else 'exhaustive'} (numpy {np.__version__})",
            seconds=time.monotonic() - self.start,
        )
        return Found(outcome, left, self.settler.late.hard)

    def _tell(self, total: int, left: int, termination: Termination) -> None:
        """Log where the points went."""
        refused = sorted(self.removed.items(), key=lambda one: -one[1])
        told = ", ".join(f"{n:,} by {name}" for name, n in refused[:3] if n) or "none"
        log.info(
            "%s: %s points, refused %s by rules (%s), %s fell to the bound, %s priced, %s left",
            termination.value,
            f"{total:,}",
            f"{sum(self.removed.values()):,}",
            told,
            f"{self.fallen:,}",
            f"{self.priced:,}",
            f"{left:,}",
        )


def unsupported() -> Outcome:
    """Say that a search by bounds cannot answer what a limit asks."""
    engine = f"exhaustive (numpy {np.__version__})"
    return Outcome(Termination.UNSUPPORTED, Holding.NOTHING, detail=ASKS_MORE, engine=engine)
