"""The command for many problems: sweep."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from optplan.arguments import seconds, whole
from optplan.flags import Json, Limits, Rules, Sets
from optplan.output import console, write

if TYPE_CHECKING:
    from pathlib import Path

    from optplan.sweep import Sweep

LEAST_MEMORY = 2**29
"""Bytes that a worker must be allowed: with its engines loaded it takes a third of that."""

Over = Annotated[
    tuple[str, ...],
    Parameter(
        name="--over", negative="", help="What to vary: nodes=1..64, nodes=1..64*2, tp=[1, 2, 4]."
    ),
]


def sweep(
    spec: str | None = None,
    /,
    *,
    over: Over = (),
    zip: Annotated[bool, Parameter(negative="")] = False,
    output: Annotated[str | None, Parameter(name=("--output", "-o"))] = None,
    table: str | None = None,
    plot: str | None = None,
    workers: int | None = None,
    dask: str | None = None,
    time_limit: str = "120s",
    memory_limit: str | None = None,
    engine: str = "cp-sat",
    set: Sets = (),
    limit: Limits = (),
    rules: Rules = (),
    retry: Annotated[bool, Parameter(negative="")] = False,
    json: Json = False,
) -> int:
    """
    Solve a spec for every combination of some values, into a table that survives being killed.

    Parameters
    ----------
    spec
        Path of the YAML file.
    zip
        Run the axes side by side instead of each against each.
    output
        SQLite file of the table, SPEC-sweep.sqlite unless given; a name that ends in .csv or
        .parquet is written at the end, from a table of the same name that ends in .sqlite.
    table
        Show this table again, and solve nothing.
    plot
        Draw throughput and cost into this .html or .svg.
    workers
        Processes; one a core unless given.
    dask
        Address of a Dask scheduler whose workers solve instead.
    time_limit
        Stop the search of each problem after this time.
    memory_limit
        Memory that each problem may take: 4 GiB. Unless given, its share of this machine's.
    engine
        As for solve.
    retry
        Do again what was not settled: time or memory limits, killed workers, faults.
    """
    from optplan.report.swept import show_sweep

    export = _exported(output)
    _refuse_targets(plot, output)
    if table is not None:
        found = _shown(table, spec, over)
    else:
        limits = (seconds(time_limit), _bytes(memory_limit))
        if workers is not None:
            whole("--workers", workers, 1, 4096)
        found = _solved(
            *(spec, over, zip, output, limits, workers, dask, engine, set, limit, rules, retry),
            quiet=json,
        )
    if export is not None:
        _export(found, export)
    if plot is not None:
        from optplan.files import save
        from optplan.report.sweeps import drawing, page

        text = page(found) if plot.lower().endswith(".html") else drawing(found.series())
        save(plot, {"": text.encode()})
    if json:
        write(found.to_json())
    else:
        show_sweep(console(), found)
    return found.exit_code


def _solved(
    spec: str | None,
    over: tuple[str, ...],
    zipped: bool,
    output: str | None,
    limits: tuple[float | None, int | None],
    workers: int | None,
    dask: str | None,
    engine: str,
    sets: tuple[str, ...],
    conditions: tuple[str, ...],
    rules: tuple[str, ...],
    retry: bool,
    quiet: bool,
) -> Sweep:
    """Run a sweep, or what is left of it."""
    from pathlib import Path

    from optplan.files import refuse_input
    from optplan.models.errors import Fault, InputError
    from optplan.own_rules import asked_rules
    from optplan.report.progress import Watch
    from optplan.report.swept import Teller
    from optplan.sweep import sweep as run

    if spec is None:
        remedy = "write optplan sweep SPEC --over nodes=1..64, or --table FILE"
        raise InputError([Fault("", "", "no spec is named", remedy)])
    path = _durable(output, spec)
    refuse_input(path, (spec, *rules))
    with Watch(quiet=quiet, line="reading") as watch:
        return run(
            Path(spec),
            over,
            path=path,
            zipped=zipped,
            engine=engine,
            sets=sets,
            limits=conditions,
            rules=asked_rules(rules),
            workers=workers,
            dask=dask,
            time_limit=limits[0],
            memory_limit=limits[1],
            retry=retry,
            progress=Teller(watch, quiet).tell,
        )


def _shown(table: str, spec: str | None, over: tuple[str, ...]) -> Sweep:
    """Read a table that was written before."""
    from optplan.models.errors import Fault, InputError
    from optplan.sweep import read_sweep

    if spec is not None or over:
        problem = "a table is shown as it is, and nothing is solved"
        remedy = "leave SPEC and --over out, or write -o for the table to work on"
        raise InputError([Fault("--table", "", problem, remedy)])
    return read_sweep(table)


def _durable(output: str | None, spec: str) -> Path:
    """Return the SQLite file that a sweep works on."""
    from pathlib import Path

    if output is None:
        return Path(f"{Path(spec).stem}-sweep.sqlite")
    exported = _exported(output)
    return Path(output) if exported is None else exported.with_suffix(".sqlite")


def _exported(output: str | None) -> Path | None:
    """Return the file to export to at the end, if that is what was asked for."""
    from pathlib import Path

    from optplan.models.errors import Fault, InputError

    path = None if output is None else Path(output)
    if path is None or path.suffix.lower() not in (".csv", ".parquet"):
        return None
    if path.suffix.lower() == ".parquet":
        from importlib.util import find_spec

        if find_spec("pyarrow") is None:
            problem = "pyarrow is not installed, which writes Parquet"
            remedy = "pip install 'optplan[parquet]', or name a .csv or .sqlite"
            raise InputError([Fault("--output", "", problem, remedy)])
    return path


def _export(found: Sweep, path: Path) -> None:
    """Write the rows as CSV or Parquet."""
    from optplan.files import save

    rows = found.table()
    parquet = path.suffix.lower() == ".parquet"
    save(path, {"": rows.to_parquet() if parquet else rows.to_csv().encode()})


def _refuse_targets(plot: str | None, output: str | None) -> None:
    """Refuse, before anything is solved, what could not be written afterwards."""
    from pathlib import Path

    from optplan.models.errors import Fault, InputError

    if plot is not None and not plot.lower().endswith((".html", ".svg")):
        problem = f"'{plot}' is no name of a drawing"
        raise InputError([Fault("--plot", "", problem, "let it end in .html or .svg")])
    for option, target in (("--plot", plot), ("--output", output)):
        if target and "\0" not in target and not Path(target).parent.is_dir():
            problem = f"'{target}' lies in no folder that is there"
            raise InputError([Fault(option, "", problem, "make the folder first")])


def _bytes(text: str | None) -> int | None:
    """Read ``--memory-limit``."""
    from optplan.models import units
    from optplan.models.errors import Fault, InputError, QuantityError

    if text is None:
        return None
    try:
        found = units.parse(text, "bytes")
    except QuantityError as error:
        problem, _, remedy = str(error).partition("; ")
        remedy = remedy or "write 4 GiB"
        raise InputError([Fault("--memory-limit", "", problem, remedy)]) from None
    if found < LEAST_MEMORY:
        problem = f"{text!r} is less than a worker itself takes"
        raise InputError([Fault("--memory-limit", "", problem, "write 4 GiB")])
    return found
