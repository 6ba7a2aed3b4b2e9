"""Commands about measured runs: calibrate, validate."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from optplan.flags import Json
from optplan.output import console, write


def calibrate(
    *runs: str,
    output: Annotated[str, Parameter(name=("--output", "-o"))],
    prior: str | None = None,
    accelerator: str | None = None,
    stack: str | None = None,
    fit: str = "",
    hold_out: Annotated[bool, Parameter(negative="--no-hold-out")] = True,
    json: Json = False,
) -> int:
    """
    Fit the constants of the cost model to measured runs, and write them as a calibration.

    Parameters
    ----------
    runs
        CSV tables of measured runs.
    output
        YAML file to write; a spec names it as its calibration.
    prior
        Calibration to start from; left out, the accelerator's own or the generic one.
    accelerator
        Take the runs of this device, or of several with commas between them.
    stack
        Take the runs of this software: megatron, deepspeed, fsdp, torchtitan, xla, internevo.
    fit
        Constants that may move, with commas between them; left out, those the runs can teach.
    hold_out
        Fit again without each source, model or run, to tell the error on runs not fitted.
    """
    from pathlib import Path

    from optplan.calibrate import calibrate as run
    from optplan.report.progress import Watch
    from optplan.report.runs import show_fit
    from optplan.runs.written import refuse_output, write_calibration

    _some(runs, "optplan calibrate runs.csv -o calibration.yaml")
    refuse_output(output, runs)
    with Watch(quiet=json, line="fitting") as watch:
        found = run(
            runs,
            prior=prior,
            accelerator=accelerator,
            stack=stack,
            constants=[part.strip() for part in fit.split(",") if part.strip()],
            name=Path(output).stem,
            hold_out=hold_out,
            progress=watch.say,
        )
    write_calibration(found, output)
    if json:
        write(found.to_json())
    else:
        show_fit(console(), found, output)
    return found.exit_code


def validate(
    *runs: str,
    calibration: str | None = None,
    ablations: Annotated[bool, Parameter(negative="--no-ablations")] = True,
    rows: Annotated[bool, Parameter(negative="")] = False,
    json: Json = False,
) -> int:
    """
    Price measured runs and compare: time, memory, out of memory, and the order of layouts.

    Parameters
    ----------
    runs
        CSV tables of measured runs.
    calibration
        Name or YAML file of a calibration for every row; left out, each row's accelerator's and
        software's own.
    ablations
        Tell what the parts of the cost model are worth.
    rows
        Show every row.
    """
    from optplan.report.progress import Watch
    from optplan.report.runs import show_validation
    from optplan.validate import validate as run

    _some(runs, "optplan validate runs.csv")
    with Watch(quiet=json, line="pricing") as watch:
        found = run(
            runs,
            calibration=calibration,
            ablations=ablations,
            progress=lambda done, of: watch.say(
                f"{done:,} of {of:,} runs priced" if done < of else "switching parts off"
            ),
        )
    if json:
        write(found.to_json())
    else:
        show_validation(console(), found, rows)
    return found.exit_code


def _some(runs: tuple[str, ...], example: str) -> None:
    """Refuse a call that names no table."""
    from optplan.models.errors import Fault, InputError

    if not runs:
        raise InputError([Fault("", "", "no table of measured runs is named", f"write {example}")])
