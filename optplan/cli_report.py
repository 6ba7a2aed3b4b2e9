"""The command that writes a page to send: report."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from optplan.flags import Json
from optplan.output import console, write


def report(
    plan: str,
    /,
    *,
    output: Annotated[str, Parameter(name=("--output", "-o"))],
    trace: str | None = None,
    json: Json = False,
) -> int:
    """
    Write an answer as one offline HTML page: plan, time, memory, time line, proof, error, spec.

    Parameters
    ----------
    plan
        The JSON that optplan solve, explain, evaluate, size or compare wrote with --json, or the
        table of optplan sweep.
    output
        HTML file to write.
    trace
        Write the pipeline's time line besides, as a JSON file that Chrome's tracing page and
        Perfetto open.
    """
    from optplan.report.html.files import show_written, write_page
    from optplan.report.progress import Watch

    with Watch(quiet=json, line="drawing"):
        written = write_page(plan, output, trace)
    if json:
        write(written.to_json())
    else:
        show_written(console(), written)
    return 0
