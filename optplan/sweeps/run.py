"""One run of a sweep: what is missing in the table goes out, what comes back is written."""

from __future__ import annotations

import hashlib
import queue
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path

from optplan.load import load
from optplan.models.errors import Fault, InputError, interrupting
from optplan.models.spec.problem import Problem
from optplan.own_rules import RuleSet
from optplan.planner import Spec
from optplan.sweeps.axes import Grid
from optplan.sweeps.points import Task, empty, wrong
from optplan.sweeps.pool import Crew, Row
from optplan.sweeps.store import Store
from optplan.tables import Cell

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


@dataclass(frozen=True)
class Ask:
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

    def why(self, error: InputError) -> str:
        """Say what is wrong with a problem, in the same words wherever the spec's file lies."""
        if isinstance(self.spec, str | PathLike):
            path = Path(self.spec)
            short = [
                replace(fault, place=fault.place.replace(str(path), path.name, 1))
                for fault in error.faults
            ]
            error = InputError(short)
        return wrong(error)

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
                marks.append(self.why(error))
        if len(refused) == len(marks):
            raise refused[0]
        return hashlib.sha256("\n".join(marks).encode()).hexdigest()


@dataclass
class Run:
    """One run over what a table lacks."""

    store: Store
    ask: Ask
    progress: Callable[[Progress], None] | None
    interrupted: bool = False
    pending: list[int] = field(default_factory=list)
    flight: dict[str, list[int]] = field(default_factory=dict)
    written: int = 0
    failed: int = 0

    def __post_init__(self) -> None:
        """Find out what is missing."""
        there = self.store.numbers()
        self.pending = [number for number in range(len(self.ask.grid)) if number not in there]
        self._before, self._start = len(there), time.monotonic()

    def work(self, crew: Crew) -> None:
        """Solve what is pending; a person's Ctrl-C ends it between two rows."""
        answers: queue.SimpleQueue[tuple[Task, Row | BaseException]] = queue.SimpleQueue()
        numbers = iter(self.pending)
        try:
            self._loop(crew, numbers, answers)
        except BaseException as error:
            if not interrupting(error):
                raise
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
            self._write([number], empty("input", self.ask.why(error)))
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
