"""Many problems: solved on all cores or on a cluster, into one table that no kill can harm."""

from __future__ import annotations

import hashlib
import json
import os
import queue
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from optplan.load import load
from optplan.models.errors import Fault, InputError
from optplan.models.rules.registry import Rule
from optplan.models.spec.problem import Problem
from optplan.own_rules import RuleSet
from optplan.planner import Spec
from optplan.result import Reply
from optplan.solvers.catalogue import require
from optplan.sweeps.axes import Axis, Grid, Values, grid_of
from optplan.sweeps.points import RESULTS, UNSETTLED, Task, empty, versions, wrong
from optplan.sweeps.pool import Crew, Local, Row, share
from optplan.sweeps.store import NUMBER, Store, axes_of, read
from optplan.sweeps.summary import Series, Span, counts, reasons, series, spans
from optplan.tables import Cell, Table

__all__ = ["Progress", "Series", "Sweep", "read_sweep", "series", "spans", "sweep"]

TIME_LIMIT = 120.0
"""Seconds that the search of one problem may take unless told otherwise."""

TICK = 0.5
"""Seconds after which progress is told though nothing was answered."""


@dataclass(frozen=True)
class Progress:
    """
    How far a sweep is.

    Parameters
    ----------
    total
        Problems in all.
    done
        Problems that have a row, those of earlier runs too.
    failed
        Those of this run that have no proven answer.
    rate
        Rows a second of this run.
    """

    total: int
    done: int
    failed: int
    rate: float

    @property
    def left(self) -> int:
        """Problems that have no row yet."""
        return self.total - self.done

    @property
    def seconds_left(self) -> float | None:
        """How long the rest will take at this rate; None before the first row."""
        return self.left / self.rate if self.rate > 0 else None


class Sweep(Reply):
    """The answer to ``sweep``."""

    path: str | None
    """The file of the table; none where it was kept in memory."""
    axes: tuple[Axis, ...]
    """What was varied."""
    total: int
    """Problems in all."""
    columns: tuple[str, ...]
    """Columns of the table."""
    rows: tuple[tuple[Cell, ...], ...]
    """Its rows, in the order of the sweep."""
    rules: tuple[str, ...] = ()
    """Names of the caller's own rules."""
    interrupted: bool = False
    """Whether a person stopped it; the same command goes on where it stopped."""

    def table(self) -> Table:
        """Return the rows, one a problem."""
        return Table(columns=self.columns, rows=self.rows)

    def counts(self) -> dict[str, int]:
        """Count the rows by status."""
        return counts(self.table())

    def series(self, along: str = "") -> tuple[Series, ...]:
        """Return the rows as series along one axis, with the changes of the layout marked."""
        return series(self.table(), along)

    def spans(self, axis: str) -> tuple[Span, ...]:
        """Return the stretches of an axis over which the best layout stays the same."""
        return spans(self.table(), axis)

    @property
    def exit_code(self) -> int:
        """
        Return 0 when every problem has a proven answer, and otherwise what stands in the way.

        1 no problem has a plan, 2 every input is wrong, 3 some are unsettled, 4 a fault of ours.
        """
        found = self.counts()
        if found.get("fault"):
            return 4
        unsettled = self.total - len(self.rows) + sum(found.get(one, 0) for one in UNSETTLED)
        if self.interrupted or unsettled:
            return 3
        if found.get("input") == self.total:
            return 2
        return 0 if found.get("optimal") else 1

    def to_json(self) -> str:
        """Render as JSON, with what the screen shows besides the rows."""
        whole = self.model_dump(mode="json")
        table = self.table()
        whole["counts"] = counts(table)
        whole["reasons"] = [
            {"status": status, "about": about, "count": count}
            for status, about, count in reasons(table)
        ]
        whole["by_axis"] = {
            axis.column: [span.model_dump(mode="json") for span in spans(table, axis.column)]
            for axis in self.axes
        }
        return json.dumps(whole, indent=1, allow_nan=False)


def sweep(
    spec: Spec,
    over: Sequence[str] | Mapping[str, Values],
    *,
    path: str | Path | None = None,
    zipped: bool = False,
    engine: str = "cp-sat",
    sets: Sequence[str] = (),
    limits: Sequence[str] = (),
    rules: Iterable[Rule] | RuleSet = (),
    workers: int | None = None,
    dask: str | None = None,
    time_limit: float | None = TIME_LIMIT,
    memory_limit: int | None = None,
    retry: bool = False,
    progress: Callable[[Progress], None] | None = None,
) -> Sweep:
    """
    Solve a spec for every combination of some values, into one table.

    Every row is on disk as soon as it is known. A call that is stopped, in whatever way, goes on
    where it was when it is made again. The table depends neither on the order of work nor on how
    often it was stopped; what hits its time limit depends on the machine.

    Parameters
    ----------
    spec
        As for ``solve``.
    over
        Values by key, ``{"nodes": range(1, 65), "network": ["200 Gb/s", "400 Gb/s"]}``, or texts as
        on the command line, ``["nodes=1..64"]``. Keys are those of ``--set``. Ranges are written
        ``1..64``, ``8..64+8`` (in steps) and ``1..64*2`` (doubling).
    path
        SQLite file of the table; left out, the table is kept in memory.
    zipped
        True to run the axes side by side instead of each against each.
    engine, sets, limits, rules
        As for ``solve``; rules must be importable by other processes.
    workers
        Processes; left out, one a core.
    dask
        Address of a Dask scheduler to use instead of this machine.
    time_limit
        Seconds for the search of each problem; None for no limit.
    memory_limit
        Bytes that each problem may take; left out, its share of this machine's memory; 0 for no
        limit.
    retry
        Do again what was not settled: time limits, memory limits, killed workers, faults.
    progress
        Called after every answer, and now and then between them.

    Returns
    -------
    Sweep
        One row a problem. A problem without a plan is a row with its status and reason.

    Raises
    ------
    InputError
        An axis is wrong, every point of the axes shown is wrong input, or the table cannot be
        used: it is of another sweep, or another run is writing it.
    """
    require(engine)
    given = rules if isinstance(rules, RuleSet) else RuleSet().also(rules)
    names = tuple(rule.name for rule in given.load())
    grid = grid_of(over, (NUMBER, *RESULTS), zipped=zipped, sets=sets)
    ask = _Ask(spec, grid, tuple(sets), tuple(limits), engine, time_limit, given)
    head = {
        "axes": json.dumps([axis.model_dump(mode="json") for axis in grid.axes]),
        "way": "zip" if zipped else "product",
        "spec": ask.digest(),
        "engine": engine,
        "rules": json.dumps({"names": names, "digest": given.digest}),
        "versions": versions(),
    }
    store = Store(None if path is None else Path(path), grid.axes, head)
    try:
        if retry:
            store.forget(UNSETTLED)
        run = _Run(store, ask, progress)
        if run.pending:
            run.work(_crew(dask, workers or _cores(), memory_limit))
        found = store.table()
    finally:
        store.close()
    return Sweep(
        path=None if path is None else str(path),
        axes=grid.axes,
        total=len(grid),
        columns=found.columns,
        rows=found.rows,
        rules=names,
        interrupted=run.interrupted,
    )


def read_sweep(path: str | Path) -> Sweep:
    """
    Read the table of a sweep, finished or not.

    Raises
    ------
    InputError
        There is none at that path.
    """
    head, table = read(Path(path))
    axes = axes_of(head)
    grid = Grid(axes=axes, zipped=head["way"] == "zip")
    return Sweep(
        path=str(path),
        axes=axes,
        total=len(grid),
        columns=table.columns,
        rows=table.rows,
        rules=json.loads(head["rules"])["names"],
    )


@dataclass(frozen=True)
class _Ask:
    """Everything that is asked, and how to make one problem of it."""

    spec: Spec
    grid: Grid
    sets: tuple[str, ...]
    limits: tuple[str, ...]
    engine: str
    time_limit: float | None
    rules: RuleSet

    def problem(self, number: int) -> Problem:
        """Load one problem."""
        sets = (*self.sets, *self.grid.sets(number))
        try:
            return load(self.spec, sets=sets, limits=self.limits)
        except InputError as error:
            raise InputError([self._renamed(fault) for fault in error.faults]) from None

    def _renamed(self, fault: Fault) -> Fault:
        """Name the option that a value came by: what is swept was not set."""
        swept = {f"--set {axis.key}": f"--over {axis.key}" for axis in self.grid.axes}
        return replace(fault, place=swept.get(fault.place, fault.place))

    def task(self, problem: Problem) -> Task:
        """Put a problem into a parcel."""
        return Task(
            problem=problem,
            fingerprint=problem.fingerprint,
            engine=self.engine,
            time_limit=self.time_limit,
            rules=self.rules,
        )

    def digest(self) -> str:
        """
        Hash the problems at every value of every axis, so that a changed spec is noticed.

        Raises
        ------
        InputError
            None of them can be loaded.
        """
        marks, refused = [], []
        for number in self.grid.cross():
            try:
                marks.append(self.problem(number).fingerprint)
            except InputError as error:
                refused.append(error)
                marks.append(wrong(error))
        if len(refused) == len(marks):
            raise refused[0]
        return hashlib.sha256("\n".join(marks).encode()).hexdigest()


@dataclass
class _Run:
    """One run over what a table lacks."""

    store: Store
    ask: _Ask
    progress: Callable[[Progress], None] | None
    interrupted: bool = False
    pending: list[int] = field(default_factory=list)
    flight: dict[str, list[int]] = field(default_factory=dict)
    written: int = 0
    failed: int = 0

    def __post_init__(self) -> None:
        there = self.store.numbers()
        self.pending = [number for number in range(len(self.ask.grid)) if number not in there]
        self._before, self._start = len(there), time.monotonic()

    def work(self, crew: Crew) -> None:
        """Solve what is pending; a person's Ctrl-C ends it between two rows."""
        answers: queue.SimpleQueue[tuple[Task, Row | BaseException]] = queue.SimpleQueue()
        numbers = iter(self.pending)
        try:
            self._loop(crew, numbers, answers)
        except KeyboardInterrupt:
            self.interrupted = True
        finally:
            crew.close()

    def _loop(
        self,
        crew: Crew,
        numbers: Iterator[int],
        answers: queue.SimpleQueue[tuple[Task, Row | BaseException]],
    ) -> None:
        """Keep the crew busy, and write what it answers."""
        more = True
        while more or self.flight:
            while more and len(self.flight) < crew.room():
                number = next(numbers, None)
                more = number is not None
                if number is not None:
                    self._give(number, crew, answers)
                if not answers.empty():
                    break
            try:
                task, row = answers.get(timeout=TICK if self.flight else 0.0)
            except queue.Empty:
                self._tell()
                continue
            if isinstance(row, BaseException):
                raise row
            self._write(self.flight.pop(task.fingerprint), row)

    def _give(
        self,
        number: int,
        crew: Crew,
        answers: queue.SimpleQueue[tuple[Task, Row | BaseException]],
    ) -> None:
        """Send one problem out, unless its answer is known or already asked for."""
        try:
            problem = self.ask.problem(number)
        except InputError as error:
            self._write([number], empty("input", wrong(error)))
            return
        task = self.ask.task(problem)
        if task.fingerprint in self.flight:
            self.flight[task.fingerprint].append(number)
            return
        known = self.store.known(task.fingerprint)
        if known is not None:
            self._write([number], known)
            return
        self.flight[task.fingerprint] = [number]
        crew.submit(task, lambda done, row: answers.put((done, row)))

    def _write(self, numbers: list[int], row: Mapping[str, Cell]) -> None:
        """Put one answer on disk, for every point that it answers."""
        self.store.write([(number, self.ask.grid.values(number)) for number in numbers], row)
        self.written += len(numbers)
        if row["status"] not in ("optimal", "infeasible"):
            self.failed += len(numbers)
        self._tell()

    def _tell(self) -> None:
        """Say how far it is."""
        if self.progress is not None:
            spent = time.monotonic() - self._start
            rate = self.written / spent if spent > 0 else 0.0
            done = self._before + self.written
            self.progress(Progress(len(self.ask.grid), done, self.failed, rate))


def _crew(dask: str | None, workers: int, memory: int | None) -> Crew:
    """Hire whoever solves the problems."""
    if dask is None:
        return Local(workers, share(workers) if memory is None else memory)
    from optplan.sweeps.cluster import Cluster

    return Cluster(dask, -1 if memory is None else memory)


def _cores() -> int:
    """Count the cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
