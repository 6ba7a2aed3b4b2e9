"""The table of a sweep in one SQLite file: every row whole, kept from the moment it is written."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO

from optplan.files import save
from optplan.models.errors import Fault, InputError
from optplan.sweeps.axes import Axis
from optplan.sweeps.points import FLAGS, RESULTS
from optplan.tables import Cell, Table

OURS = 0x6F707377
"""``application_id`` of the file, "opsw", so that no other database is taken for a sweep."""

FORMAT = 1
"""``user_version`` of the file."""

NUMBER = "number"
"""First column: the place of the problem in the sweep, from 0."""

WAIT_SECONDS = 60.0
"""Time to wait for a reader that holds the file."""


def _quoted(name: str) -> str:
    """Write a column's name as SQL."""
    escaped = name.replace('"', '""')
    return f'"{escaped}"'


class Store:
    """
    A table that one run may write and anyone may read.

    The file is created whole under another name and then renamed. Every answer is one transaction,
    on disk when ``write`` returns; whatever kills the process, the file holds the answers written
    before, each whole.

    Parameters
    ----------
    path
        The file; None for a table in memory.
    axes
        What is varied, one column each.
    head
        What the sweep is, as text by name. A file that says otherwise is refused.

    Raises
    ------
    InputError
        The file is something else, of another sweep, being written by another run, or cannot be
        written.
    """

    def __init__(self, path: Path | None, axes: tuple[Axis, ...], head: Mapping[str, str]) -> None:
        self._path, self._axes = path, axes
        self._lock = None
        if path is not None:
            _refuse_kind(path)
            self._lock = Lock(path)
        try:
            with self._saying():
                if path is None:
                    self._base = sqlite3.connect(":memory:")
                    self._fill(self._base, head)
                else:
                    if not path.exists():
                        self._create(path, head)
                    self._base = _opened(path)
                    _refuse_other(self._base, path, head)
        except BaseException:
            if self._lock is not None:
                self._lock.release()
            raise

    def close(self) -> None:
        """Let go of the file."""
        self._base.close()
        if self._lock is not None:
            self._lock.release()

    def numbers(self) -> set[int]:
        """Return the problems that have a row."""
        with self._saying():
            found = self._base.execute("SELECT number FROM sweep")
            return {number for (number,) in found}

    def known(self, fingerprint: str) -> dict[str, Cell] | None:
        """Return the answer to a problem that some row has."""
        columns = ", ".join(map(_quoted, RESULTS))
        with self._saying():
            sql = f"SELECT {columns} FROM sweep WHERE fingerprint = ? LIMIT 1"
            row = self._base.execute(sql, (fingerprint,)).fetchone()
        return None if row is None else dict(zip(RESULTS, row, strict=True))

    def write(
        self, points: Iterable[tuple[int, tuple[Cell, ...]]], result: Mapping[str, Cell]
    ) -> None:
        """
        Write one answer, to each of the problems that it answers.

        Parameters
        ----------
        points
            Number and values on the axes of each.
        result
            The other columns.
        """
        marks = ", ".join("?" * (1 + len(self._axes) + len(RESULTS)))
        told = tuple(result[name] for name in RESULTS)
        with self._saying(), self._base:
            self._base.executemany(
                f"INSERT INTO sweep VALUES ({marks})",
                [(number, *values, *told) for number, values in points],
            )

    def forget(self, statuses: Iterable[str]) -> int:
        """Remove the rows of some statuses, and return how many there were."""
        names = list(statuses)
        marks = ", ".join("?" * len(names))
        with self._saying(), self._base:
            found = self._base.execute(f"DELETE FROM sweep WHERE status IN ({marks})", names)
            return found.rowcount

    def table(self) -> Table:
        """Return the rows so far, in the order of the sweep."""
        with self._saying():
            return _read(self._base)

    def _create(self, path: Path, head: Mapping[str, str]) -> None:
        """Write an empty table, whole or not at all."""
        with contextlib.closing(sqlite3.connect(":memory:")) as base:
            self._fill(base, head)
            save(path, {"": base.serialize()})

    def _fill(self, base: sqlite3.Connection, head: Mapping[str, str]) -> None:
        """Lay out the columns."""
        axes = [_quoted(axis.column) for axis in self._axes]
        results = [f"{_quoted(name)}{' NOT NULL' if name == 'status' else ''}" for name in RESULTS]
        columns = ", ".join([f"{NUMBER} INTEGER PRIMARY KEY", *axes, *results])
        with base:
            base.execute(f"PRAGMA application_id = {OURS}")
            base.execute(f"PRAGMA user_version = {FORMAT}")
            base.execute("CREATE TABLE head (name TEXT PRIMARY KEY, value TEXT NOT NULL)")
            base.executemany("INSERT INTO head VALUES (?, ?)", head.items())
            base.execute(f"CREATE TABLE sweep ({columns})")
            base.execute("CREATE INDEX by_fingerprint ON sweep (fingerprint)")

    def _saying(self) -> contextlib.AbstractContextManager[None]:
        """Turn what goes wrong with the file into a fault."""
        return _saying(self._path)


@contextlib.contextmanager
def _saying(path: Path | None) -> Iterator[None]:
    """Turn what goes wrong with a file into a fault."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        problem = f"the table cannot be used: {error}"
        remedy = "make room, or name another file"
        if "not a database" in str(error) or "malformed" in str(error):
            problem, remedy = "this is no table of a sweep", "name another file"
        raise InputError([Fault(str(path or "the table"), "", problem, remedy)]) from None
    except (OSError, ValueError) as error:  # ValueError: a NUL byte in the name
        why = error.strerror if isinstance(error, OSError) else error
        problem = f"cannot write the file: {why}"
        remedy = "name a file in a folder that can be written to"
        raise InputError([Fault(str(path or "the table"), "", problem, remedy)]) from None


def _refuse_kind(path: Path) -> None:
    """Refuse what is there and is no file."""
    with _saying(path):
        if path.exists() and not path.is_file():
            what = "a directory" if path.is_dir() else "no file"
            raise InputError([Fault(str(path), "", f"this is {what}", "name another file")])


def _opened(path: Path) -> sqlite3.Connection:
    """
    Open a file that exists, and see that it is a table of ours.

    Readers open it for writing too: a row that a killed run left half written is taken back by
    whoever opens the file next, and that is a change of the file.
    """

    def refuse(problem: str, remedy: str = "name another file") -> InputError:
        return InputError([Fault(str(path), "", problem, remedy)])

    _refuse_kind(path)
    if not path.exists():
        raise refuse("there is no such file", "check its name and folder")
    base = sqlite3.connect(f"{path.resolve().as_uri()}?mode=rw", uri=True, timeout=WAIT_SECONDS)
    try:
        mark = base.execute("PRAGMA application_id").fetchone()[0]
        form = base.execute("PRAGMA user_version").fetchone()[0]
        if mark != OURS:
            raise refuse("this is no table of a sweep")
        if form != FORMAT:
            raise refuse(f"the table has form {form}, this optplan reads {FORMAT}")
        base.execute("PRAGMA synchronous = FULL")
    except BaseException:
        base.close()
        raise
    return base


def _refuse_other(base: sqlite3.Connection, path: Path, head: Mapping[str, str]) -> None:
    """Refuse a table whose sweep is another one; name what differs."""
    held = dict(base.execute("SELECT name, value FROM head"))
    differs = [name for name in head if held.get(name) != head[name]]
    if differs:
        base.close()
        what = ", ".join(differs)
        problem = f"the table is of another sweep: not the same {what}"
        remedy = "name another file, or give the command that began it"
        raise InputError([Fault(str(path), "", problem, remedy)])


def _read(base: sqlite3.Connection) -> Table:
    """Read all rows in order."""
    found = base.execute("SELECT * FROM sweep ORDER BY number")
    columns = tuple(column[0] for column in found.description)
    flags = [columns.index(name) for name in FLAGS]
    rows = []
    for row in found:
        cells = list(row)
        for at in flags:
            cells[at] = None if cells[at] is None else bool(cells[at])
        rows.append(tuple(cells))
    return Table(columns=columns, rows=tuple(rows))


def read(path: Path) -> tuple[dict[str, str], Table]:
    """
    Read a table, also while a sweep is writing it.

    Returns
    -------
    head, table
        What the sweep is, and the rows so far.

    Raises
    ------
    InputError
        There is none, or the file is something else.
    """
    with _saying(path), contextlib.closing(_opened(path)) as base:
        return dict(base.execute("SELECT name, value FROM head")), _read(base)


class Lock:
    """
    A file beside the table that one run holds; the system lets go of it when the run ends.

    Raises
    ------
    InputError
        Another run holds it, or it cannot be made.
    """

    def __init__(self, path: Path) -> None:
        with _saying(path):
            self._name = Path(f"{path.resolve()}.lock")
            self._file = self._held(path)

    def _held(self, path: Path) -> IO[bytes]:
        """Take the lock; a file that its last holder removed meanwhile does not count."""
        while True:
            file = open(self._name, "a+b")  # noqa: SIM115, PTH123 - held until release
            if not _taken(file):
                file.seek(0)
                who = file.read(20).decode(errors="replace").strip()
                file.close()
                process = f" (process {who})" if who.isdigit() else ""
                problem = f"another run is writing this table{process}"
                raise InputError([Fault(str(path), "", problem, "wait for it, or stop it")])
            with contextlib.suppress(OSError):
                if self._is(file):
                    file.truncate(0)
                    file.write(str(os.getpid()).encode())
                    file.flush()
                    return file
            file.close()

    def _is(self, file: IO[bytes]) -> bool:
        """Tell whether an open file still is the one of its name."""
        return os.path.samestat(os.fstat(file.fileno()), self._name.stat())

    def release(self) -> None:
        """Remove the file and let go of it."""
        with contextlib.suppress(OSError):
            self._name.unlink()
        self._file.close()


def _taken(file: IO[bytes]) -> bool:
    """Take the system's lock on an open file, unless somebody has it."""
    try:
        import fcntl
    except ImportError:  # Windows
        from importlib import import_module

        try:
            windows = import_module("msvcrt")
            file.seek(0)
            windows.locking(file.fileno(), windows.LK_NBLCK, 1)
        except OSError:
            return False
        return True
    try:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def axes_of(head: Mapping[str, str]) -> tuple[Axis, ...]:
    """Return the axes that a table says it has."""
    return tuple(Axis.model_validate(axis) for axis in json.loads(head["axes"]))
