"""Many problems: solved on all cores or on a cluster, into one table that no kill can harm."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from optplan.models.rules.registry import Rule
from optplan.own_rules import RuleSet
from optplan.planner import Spec
from optplan.result import Reply
from optplan.solvers.catalogue import require
from optplan.sweeps.axes import Axis, Grid, Values, grid_of
from optplan.sweeps.points import RESULTS, UNSETTLED, versions
from optplan.sweeps.pool import Crew, Local, share
from optplan.sweeps.run import Ask, Progress, Run
from optplan.sweeps.store import NUMBER, Store, axes_of, read
from optplan.sweeps.summary import Series, Span, counts, reasons, series, spans
from optplan.tables import Cell, Table

__all__ = ["Progress", "Series", "Sweep", "read_sweep", "series", "spans", "sweep"]

TIME_LIMIT = 120.0
"""Seconds that the search of one problem may take unless told otherwise."""


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
    ask = Ask(spec, grid, tuple(sets), tuple(limits), engine, time_limit, given)
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
        run = Run(store, ask, progress)
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
