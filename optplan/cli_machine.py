"""Commands about this machine: profile, measure."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from optplan.arguments import seconds, size, whole
from optplan.flags import Json, Limits, Sets
from optplan.output import console, write


def profile(
    *,
    output: Annotated[str, Parameter(name=("--output", "-o"))],
    device: str = "auto",
    processes: int | None = None,
    budget: str = "3min",
    precision: str | None = None,
    name: str | None = None,
    json: Json = False,
) -> int:
    """
    Time this machine part by part, and write the cost model's constants and a description of it.

    Needs PyTorch: pip install "optplan[profile]".

    Parameters
    ----------
    output
        YAML file to write; a spec names it as its calibration and as its accelerator. The raw
        timings go into a CSV beside it.
    device
        auto, cpu, cuda or npu.
    processes
        Processes that work at the same time, one a device; on a CPU of one thread each. Left out,
        as many as there are devices.
    budget
        Time to spend; what says most is timed first.
    precision
        fp32 or bf16; left out, fp32 on a CPU and bf16 elsewhere.
    name
        What to call the accelerator.
    """
    spend = seconds(budget, "--budget")
    assert spend is not None
    if processes is not None:
        whole("--processes", processes, 1, 64)
    from optplan.profiling.profile import profile as run
    from optplan.ranks.devices import chosen
    from optplan.ranks.needed import require_torch
    from optplan.report.machine import show_profile
    from optplan.report.progress import Watch

    require_torch("optplan profile")
    with Watch(quiet=json, line="asking for devices") as watch:
        kind, many = chosen(device, processes)
        watch.say("importing PyTorch")
        found = run(
            output,
            device=kind,
            processes=many,
            budget=spend,
            precision=precision,  # type: ignore[arg-type]
            name=name,
            progress=watch.say,
        )
    if json:
        write(found.to_json())
    else:
        show_profile(console(), found)
    return found.exit_code


def measure(
    spec: str,
    /,
    *,
    output: Annotated[str, Parameter(name=("--output", "-o"))],
    plans: str = "all",
    steps: int = 5,
    warm_up: int = 2,
    device: str = "auto",
    memory: str | None = None,
    patience: str = "5min",
    seed: int = 0,
    json: Json = False,
    set: Sets = (),
    limit: Limits = (),
) -> int:
    """
    Really train a small network of a spec's shape under each of its layouts, and write a table.

    A layout whose process is killed, hangs or runs out of memory is a row that says so, and the
    rest goes on; interrupted and started again it goes on where it was. optplan validate scores the
    table. Needs PyTorch: pip install "optplan[profile]".

    Parameters
    ----------
    spec
        Path of the YAML file.
    output
        CSV table of measured runs to write or to go on with.
    plans
        all feasible layouts, top:K the fastest in the model, random:K of them.
    steps
        Steps to time.
    warm_up
        Steps before them.
    device
        auto, cpu, cuda or npu.
    memory
        Memory that each process may allocate: 2 GiB. Left out, on a CPU its share of all.
    patience
        Time after which a layout counts as hung.
    seed
        Of weights, data and random choice.
    """
    from pathlib import Path

    whole("--steps", steps, 1, 10_000)
    whole("--warm-up", warm_up, 0, 10_000)
    whole("--seed", seed, 0, 2**31 - 1)
    limited, wait = size(memory, "--memory"), seconds(patience, "--patience")
    assert wait is not None
    from optplan.measuring.measure import measure as run
    from optplan.ranks.devices import chosen
    from optplan.ranks.needed import require_torch
    from optplan.report.machine import show_measured
    from optplan.report.progress import Watch

    require_torch("optplan measure")
    with Watch(quiet=json, line="listing layouts") as watch:
        kind, _ = chosen(device, None)
        found = run(
            Path(spec),
            output,
            plans=plans,
            steps=steps,
            warm_up=warm_up,
            device=kind,
            memory_bytes=limited,
            seconds=wait,
            seed=seed,
            sets=set,
            limits=limit,
            progress=watch.say,
        )
    if json:
        write(found.to_json())
    else:
        show_measured(console(), found)
    return found.exit_code
