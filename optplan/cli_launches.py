"""Commands about launch files: doctor, export."""

from __future__ import annotations

import sys
from typing import Annotated

from cyclopts import Parameter

from optplan.arguments import seconds
from optplan.flags import Json, Sets, Verbose
from optplan.output import console, write

Output = Annotated[str | None, Parameter(name=("--output", "-o"))]


def doctor(
    launch: str,
    spec: str | None = None,
    /,
    *,
    on: str = "",
    framework: str = "",
    set: Sets = (),
    measured_seconds: float | None = None,
    json: Json = False,
    output: Output = None,
    time_limit: str | None = None,
    verbose: Verbose = False,
) -> int:
    """
    Read a launch script, configuration or log, say what is wrong with it, and mend it.

    Parameters
    ----------
    launch
        The file; nothing in it is executed.
    spec
        YAML file whose cluster and limits fill what the launch leaves out.
    on
        Accelerator of the catalogue that it runs on.
    framework
        Framework and version, where the file does not tell: megatron-core@0.12.
    measured_seconds
        Seconds of a step as measured, to check the throughput that is claimed.
    output
        File to write the mended launch to; the best one where nothing is broken.
    time_limit
        Stop looking for the best launch after this time: 60s, 5min.
    """
    from pathlib import Path

    limited = seconds(time_limit)
    from optplan.doctor import doctor as run
    from optplan.files import refuse_input, save
    from optplan.report.launches import show_diagnosis
    from optplan.report.progress import Watch

    inputs = [launch] + ([spec] if spec is not None else [])
    if output is not None:
        refuse_input(output, inputs)
    with Watch(quiet=json, line="reading the launch", verbose=verbose) as watch:
        found = run(
            Path(launch),
            None if spec is None else Path(spec),
            on=on,
            framework=framework,
            sets=set,
            measured_seconds=measured_seconds,
            time_limit=limited,
            progress=watch.tell,
            say=watch.say,
        )
    if output is not None:
        save(output, {"": found.mended().encode()})
    if json:
        write(found.to_json())
    else:
        show_diagnosis(console(), found)
    return found.exit_code


def export(
    plan: str,
    /,
    *,
    to: str,
    output: Output = None,
    nearest: Annotated[bool, Parameter(negative="")] = False,
    json: Json = False,
) -> int:
    """
    Write a plan as the launch file of a framework.

    Parameters
    ----------
    plan
        The JSON that optplan solve SPEC --json wrote.
    to
        Framework, with or without a version: megatron-core@0.15.
    output
        File to write; left out, the file is printed.
    nearest
        Where the version cannot launch the plan, write the nearest that it can.
    """
    from optplan.export import export as run
    from optplan.files import refuse_input, save
    from optplan.report.launches import show_export

    if output is not None:
        refuse_input(output, [plan])
    found = run(plan, to, nearest=nearest)
    if output is not None:
        save(output, {"": found.text.encode()})
    if json:
        write(found.to_json())
    elif output is None:
        sys.stdout.write(found.text)
    else:
        show_export(console(), found, output)
    return found.exit_code
