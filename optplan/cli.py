"""Commands and exit codes; no logic."""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from cyclopts import App, CycloptsError, Parameter

from optplan import (
    cli_answers,
    cli_launches,
    cli_machine,
    cli_reference,
    cli_report,
    cli_runs,
    cli_sweeps,
)
from optplan.arguments import choices, intervals, memory, seconds, whole
from optplan.flags import Json, Limits, Rules, Sets, Verbose
from optplan.models.errors import InputError, OptplanError, chain, printable
from optplan.output import console, dump, write

app = App(
    name="optplan",
    help="The provably fastest layout for a transformer's training, under a stated cost model.",
    help_format="markdown",
    version_flags=["--version"],
    suppress_keyboard_interrupt=False,
)

EXIT_INPUT, EXIT_UNPROVEN, EXIT_OWN = 2, 3, 4


@app.command
def solve(
    spec: str,
    /,
    *,
    json: Json = False,
    top: int = 5,
    breakdown: Annotated[bool, Parameter(negative="")] = False,
    engine: str = "cp-sat",
    set: Sets = (),
    limit: Limits = (),
    rules: Rules = (),
    time_limit: str | None = None,
    resolution: str | None = None,
    seed: int = 0,
    workers: int = 1,
    robust: Annotated[bool, Parameter(negative="")] = False,
    box: Annotated[tuple[str, ...], Parameter(negative="")] = (),
    verbose: Verbose = False,
) -> int:
    """
    Find the best layout of a spec and prove it.

    Parameters
    ----------
    spec
        Path of the YAML file.
    json
        Print the answer as JSON and nothing else.
    top
        Next-best plans to show; 0 spares the search for them and for what is within the error.
    breakdown
        Show every stage, however many there are.
    engine
        cp-sat and milp (HiGHS; milp:scip, milp:cbc and others by name) prove on the reduced
        program; exhaustive prices every point; paper is the paper's Algorithm 1.
    time_limit
        Stop after this time with the best plan so far and its gap: 60s, 5min.
    resolution
        Memory that a list of goals tells apart: 1 GiB, or 0 for every single point; a twentieth
        of a device's memory unless given.
    seed
        Random seed of the engine; the plan does not depend on it.
    workers
        Threads of the engine; the plan does not depend on it.
    robust
        Find besides the plan whose largest regret over the calibration's uncertainty is smallest,
        and where the recommendation changes.
    box
        Interval of a constant for --robust, instead of what is known of it:
        network_efficiency=0.5..1.0.
    """
    limited = seconds(time_limit)
    apart = memory("--resolution", resolution)
    whole("--top", top, 0, 1000)
    whole("--workers", workers, 1, 1024)
    whole("--seed", seed, 0, 2**31 - 1)
    from optplan.own_rules import asked_rules

    given = intervals(box)
    from optplan.planner import solve as run
    from optplan.report.progress import Watch

    own = asked_rules(rules).load()

    with Watch(quiet=json, verbose=verbose) as watch:
        result = run(
            _path(spec),
            engine=engine,
            top=top,
            time_limit=limited,
            sets=set,
            limits=limit,
            rules=own,
            seed=seed,
            workers=workers,
            resolution=apart,
            progress=watch.tell,
            say=watch.say,
        )
        if robust or box:
            from optplan.sure import surely

            result = surely(result, box=given, rules=own, time_limit=limited, say=watch.say)
    if json:
        write(result.to_json())
    else:
        from optplan.report.terminal import show_result

        show_result(console(), result, top, breakdown)
    return result.exit_code


@app.command
def evaluate(
    spec: str,
    /,
    *plan: str,
    json: Json = False,
    set: Sets = (),
    limit: Limits = (),
    rules: Rules = (),
    verbose: Verbose = False,
) -> int:
    """
    Price one plan, list the rules it breaks, and tell how far it is from the best.

    Parameters
    ----------
    spec
        Path of the YAML file.
    plan
        Choices of the plan: tp=8 pp=4 micro_batch=2 recompute=full. What is left out is chosen as
        well as possible. Layers per stage are a list: layers_per_stage=24,24,24,22.
    """
    values = choices(plan)
    from optplan.evaluate import evaluate as run
    from optplan.own_rules import asked_rules
    from optplan.report.progress import Watch

    own = asked_rules(rules).load()
    with Watch(quiet=json, verbose=verbose):
        evaluation = run(_path(spec), values, sets=set, limits=limit, rules=own)
    if json:
        write(evaluation.to_json())
    else:
        from optplan.report.terminal import show_evaluation

        show_evaluation(console(), evaluation)
    return evaluation.exit_code


@app.command
def verify(plan: str, /, *, json: Json = False, rules: Rules = ()) -> int:
    """
    Re-check a plan and its certificate without trusting the run that wrote them.

    Parameters
    ----------
    plan
        The JSON that optplan solve SPEC --json wrote.
    """
    from optplan.own_rules import asked_rules
    from optplan.verify import verify as run

    verification = run(plan, asked_rules(rules).load())
    if json:
        write(verification.to_json())
    else:
        from optplan.report.terminal import show_verification

        show_verification(console(), verification)
    return verification.exit_code


@app.command
def compare(
    spec: str,
    /,
    *,
    json: Json = False,
    engines: str = "cp-sat,milp,exhaustive,paper",
    set: Sets = (),
    limit: Limits = (),
    time_limit: str | None = None,
    seed: int = 0,
    workers: int = 1,
    verbose: Verbose = False,
) -> int:
    """
    Solve a spec with several engines and show optimum, bound, gap, time and nodes of each.

    Parameters
    ----------
    spec
        Path of the YAML file.
    engines
        Names with commas between them: cp-sat, milp (HiGHS), milp:scip, milp:cbc, milp:gurobi and
        whatever else Pyomo has, exhaustive, paper.
    time_limit
        Stop each engine after this time with the best plan so far and its gap: 60s, 5min.
    seed
        Random seed of the engines.
    workers
        Threads of the engines.
    """
    limited = seconds(time_limit)
    whole("--workers", workers, 1, 1024)
    whole("--seed", seed, 0, 2**31 - 1)
    from optplan.compare import compare as run
    from optplan.compare import engines_of
    from optplan.report.progress import Watch

    with Watch(quiet=json, verbose=verbose) as watch:
        comparison = run(
            _path(spec),
            engines_of(engines),
            time_limit=limited,
            sets=set,
            limits=limit,
            seed=seed,
            workers=workers,
            progress=lambda name, progress: watch.tell(progress),
        )
    if json:
        write(comparison.to_json())
    else:
        from optplan.report.models import show_comparison

        show_comparison(console(), comparison)
    return comparison.exit_code


@app.command
def model(
    spec: str,
    /,
    *,
    output: Annotated[str, Parameter(name=("--output", "-o"))],
    form: Annotated[str, Parameter(name="--format")] = "lp",
    json: Json = False,
    within: str = "20%",
    exact: Annotated[bool, Parameter(negative="")] = False,
    set: Sets = (),
    limit: Limits = (),
) -> int:
    """
    Write a spec as an optimisation model that other solvers read.

    Parameters
    ----------
    spec
        Path of the YAML file.
    output
        File to write; OUTPUT.names.json beside it says what each name in it stands for.
    form
        lp, mps, nl, cpsat-proto or text.
    within
        Keep the plans whose goal exceeds the best by no more than this share, or all of them: the
        optimum is that of the spec, and still is with constraints added as long as it lies within.
    exact
        Make time and memory exactly what the layers make of them, for constraints that ask for
        more of them; without it they are no less.
    """
    from optplan.live import NoPlan
    from optplan.report.progress import Watch
    from optplan.written import write_model

    try:
        with Watch(quiet=json, line="writing the model"):
            written = write_model(
                _path(spec), output, form, within=within, exact=exact, sets=set, limits=limit
            )
    except NoPlan as error:
        return _complain([str(fault) for fault in error.faults], 1)
    if json:
        write(dump(written.model_dump(mode="json")))
    else:
        from optplan.report.models import show_written

        show_written(console(), written)
    return 0


app.command(cli_answers.explain)
app.command(cli_answers.size)
app.command(cli_sweeps.sweep)
app.command(cli_launches.doctor)
app.command(cli_launches.export)
app.command(cli_runs.calibrate)
app.command(cli_runs.validate)
app.command(cli_report.report)
app.command(cli_machine.profile)
app.command(cli_machine.measure)


app.command(cli_reference.catalogue)
app.command(cli_reference.rules)
app.command(cli_reference.schema)


def main(argv: Sequence[str] | None = None) -> int:
    """
    Run the command line and return its exit status.

    0 plan found and verified, 1 no plan exists or a check fails, 2 the input is wrong, 3 nothing
    proven in time, 4 a fault of optplan itself.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    if sys.stdout is None:
        return _complain(["cannot write the answer: standard output is closed"], EXIT_INPUT)
    _prepare()
    try:
        answer = app(
            arguments, exit_on_error=False, print_error=False, result_action="return_value"
        )
        sys.stdout.flush()
        return answer if isinstance(answer, int) else 0
    except InputError as error:
        return _complain([str(fault) for fault in error.faults], EXIT_INPUT)
    except CycloptsError as error:
        text = " ".join(str(error).split())
        return _complain([f"{text} See optplan --help."], EXIT_INPUT)
    except BrokenPipeError:
        # Whoever read the answer has seen enough of it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return _complain(["interrupted before anything was found"], EXIT_UNPROVEN)
    except OptplanError as error:
        return _complain([f"a fault of optplan itself: {error}"], EXIT_OWN)
    except Exception as error:  # whatever it is, it is ours, and a person gets one line
        return _complain(*_unexpected(error))


def _prepare() -> None:
    """Let a terminal without block characters, and a batch system's SIGTERM, do no harm."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.default_int_handler)


def _unexpected(error: BaseException) -> tuple[list[str], int]:
    """Tell an interrupt that came in disguise and a full disk from a defect of ours."""
    for one in chain(error):
        if isinstance(one, KeyboardInterrupt):
            return ["interrupted before anything was found"], EXIT_UNPROVEN
        if isinstance(one, OSError) and one.errno == errno.ENOSPC:
            return [f"cannot write the answer: {one.strerror}"], EXIT_INPUT
    where = _innermost(error)
    text = f"a fault of optplan itself: {type(error).__name__}: {error} ({where})"
    return [text], EXIT_OWN


def _complain(lines: list[str], status: int) -> int:
    """Print messages to people, one a line, and return the status."""
    for line in lines:
        sys.stderr.write(printable(" ".join(line.splitlines())) + "\n")
    return status


def _innermost(error: BaseException) -> str:
    """Name the place of our own code where an unexpected error arose."""
    import traceback

    frames = traceback.extract_tb(error.__traceback__)
    return f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "unknown place"


def _path(spec: str) -> Path:
    """Take the argument for a file, whatever it looks like."""
    return Path(spec)


if __name__ == "__main__":
    sys.exit(main())
