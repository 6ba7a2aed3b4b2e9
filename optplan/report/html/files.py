"""From the file of an answer to the file of a page, and of a trace."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.text import Text

from optplan.explain import Answer
from optplan.files import refuse_input, save
from optplan.models.errors import Fault, InputError
from optplan.models.spec.plan import Plan
from optplan.models.spec.problem import Problem
from optplan.report.html.page import page
from optplan.report.html.pipeline import run
from optplan.report.html.read import read_answer
from optplan.report.html.trace import trace_json
from optplan.result import Evaluation, Reply, Result
from optplan.size import Sizing

DATABASE = b"SQLite format 3\x00"
"""First bytes of the file of a table."""

MOST_TRACED = 400_000
"""Passes in a trace; a longer step is traced with fewer micro-batches."""


class PageWritten(Reply):
    """The answer to ``report``."""

    path: str
    """The page."""
    bytes: int
    """Its size."""
    command: str
    """The command whose answer it shows."""
    trace: str | None = None
    """The trace, where one was asked for."""
    micro_batches_traced: int | None = None
    """Micro-batches in it."""
    micro_batches: int | None = None
    """Micro-batches of the plan."""


def write_page(
    answer: str | Path, output: str | Path, trace: str | Path | None = None
) -> PageWritten:
    """
    Write the page of an answer's file, and the trace of its plan.

    Parameters
    ----------
    answer
        JSON of ``solve``, ``explain``, ``evaluate``, ``size`` or ``compare``, or the SQLite table
        of ``sweep``.
    output
        HTML file.
    trace
        JSON file of Chrome's trace event format; left out: none.

    Raises
    ------
    InputError
        The answer cannot be read or was changed, a file cannot be written, or there is no pipeline
        to trace.
    """
    _apart(answer, output, trace)
    command, found = ("sweep", None) if _is_sweep(answer) else read_answer(answer)
    text = (_swept(answer) if found is None else page(found)).encode()
    traced = None if trace is None else _trace(found, str(answer))
    if trace is not None and traced is not None:
        save(trace, {"": traced[0].encode()})
    save(output, {"": text})
    return PageWritten(
        path=str(output),
        bytes=len(text),
        command=command,
        trace=None if trace is None else str(trace),
        micro_batches_traced=None if traced is None else traced[1],
        micro_batches=None if traced is None else traced[2],
    )


def _apart(answer: str | Path, output: str | Path, trace: str | Path | None) -> None:
    """Refuse to write over the answer, or one file over the other."""
    refuse_input(output, [answer])
    if trace is None:
        return
    refuse_input(trace, [answer])
    if Path(output).absolute() == Path(trace).absolute():
        problem = "page and trace cannot be one file"
        raise InputError([Fault(str(trace), "", problem, "name another file for --trace")])


def _is_sweep(path: str | Path) -> bool:
    """Tell whether a file is a database, as the table of a sweep is."""
    try:
        with Path(path).open("rb") as file:
            return file.read(len(DATABASE)) == DATABASE
    except (OSError, ValueError):
        return False  # Whoever reads it as JSON says what is wrong.


def _swept(path: str | Path) -> str:
    """Draw a sweep: throughput and cost along its axes, the changing layout marked."""
    from optplan.report.sweeps import page as page_of_sweep
    from optplan.sweep import read_sweep

    return page_of_sweep(read_sweep(path))


def _trace(answer: Reply | None, place: str) -> tuple[str, int, int]:
    """Write the trace of an answer's plan, and count its micro-batches."""
    planned = None if answer is None else _plan(answer)
    if planned is None:
        problem = "it holds no plan, so there is no pipeline to trace"
        raise InputError([Fault(place, "plan", problem, "leave --trace out")])
    simulated = run(*planned, most=MOST_TRACED)
    if simulated is None:
        problem = f"its schedule {planned[1].schedule} cannot be simulated with these numbers"
        raise InputError([Fault(place, "plan", problem, "leave --trace out")])
    return trace_json(*planned, simulated), simulated.micro_batches, simulated.of


def _plan(answer: Reply) -> tuple[Problem, Plan] | None:
    """Find the plan of an answer and the problem that it is of."""
    if isinstance(answer, Answer):
        answer = answer.result
    if isinstance(answer, Sizing):
        one = answer.fewest
        if one.plan is None or one.nodes is None:
            return None
        return answer.problem.with_cluster(nodes=one.nodes), one.plan
    if isinstance(answer, Result | Evaluation) and answer.plan is not None:
        return answer.problem, answer.plan
    return None


def show_written(console: Console, written: PageWritten) -> None:
    """Print what ``report`` wrote."""
    text = Text(f"\n  {written.path}", "bold green")
    text.append(f"  {written.bytes / 1000:,.0f} kB, one file that needs nothing else\n", "dim")
    if written.trace:
        text.append(f"  {written.trace}", "bold green")
        some = written.micro_batches_traced != written.micro_batches
        most = f", {written.micro_batches_traced:,} of {written.micro_batches:,} micro-batches"
        text.append(f"  trace for chrome://tracing or Perfetto{most if some else ''}\n", "dim")
    console.print(text)
