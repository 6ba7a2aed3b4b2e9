"""A machine profiled: samples timed within a budget, constants fitted, both written down."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from optplan.calibrate import fingerprint
from optplan.files import save
from optplan.models.cost.calibration import Calibration
from optplan.models.errors import Fault, InputError
from optplan.models.record import Record
from optplan.models.spec.cluster import Accelerator
from optplan.models.spec.workload import Precision
from optplan.profiling.constants import Fitted, Machine, fitted, plain
from optplan.profiling.samples import Timing, needed, raw_text, samples_of
from optplan.ranks.job import Device
from optplan.ranks.needed import require_torch
from optplan.ranks.pool import Pool
from optplan.result import Reply
from optplan.runs.written import dumped
from optplan.runs.written import plain as plain_calibration

WORK = "optplan.profiling.rank:profile"

OVERTIME = 240.0
"""Seconds beyond the budget after which a profile counts as hung: the last sample, and imports."""

RESTLESS = 0.15
"""Median spread of the repeats above which a profile warns."""

STACK = "pytorch"


class Constant(Record):
    """One number of the profile."""

    name: str
    """What it is called in the calibration, or of the accelerator."""
    value: float
    """In base units."""
    origin: str
    """The samples behind it."""


class Layer(Record):
    """One layer, timed and priced."""

    label: str
    """Its shape."""
    seconds: float
    """Measured, forward and backward."""
    spread: float
    """Distance of the quartiles over the median."""
    error: float
    """Priced over measured, less one."""


class Profiled(Reply):
    """What ``profile`` found."""

    output: str
    """The calibration."""
    raw: str
    """The table of timings beside it."""
    calibration: Calibration
    """Ready for a spec."""
    accelerator: Accelerator
    """The machine as a spec describes it."""
    constants: tuple[Constant, ...]
    """Every fitted number."""
    layers: tuple[Layer, ...]
    """Every layer against the cost model."""
    timed: int
    """Samples that were timed."""
    skipped: tuple[str, ...]
    """Samples that the budget left out."""
    refused: dict[str, str]
    """Samples that the backend could not do, and why."""
    spread: float
    """Median over samples of the distance of the quartiles over the median."""
    load: tuple[float, float]
    """Processes that wanted a processor, mean of a minute, before and after."""
    notes: tuple[str, ...]
    """What a careful reader should know."""
    constant_utilization: float
    """One utilization for whole layers, as if neither shape nor launching mattered."""
    hash: str
    """SHA-256 of the constants."""

    @property
    def exit_code(self) -> int:
        """0: what could not be had is named."""
        return 0


def profile(
    output: str | Path,
    *,
    device: Device = "cpu",
    processes: int = 2,
    budget: float = 180.0,
    precision: Precision | None = None,
    name: str | None = None,
    progress: Callable[[str], None] | None = None,
) -> Profiled:
    """
    Time this machine part by part, and write the constants of the cost model.

    Parameters
    ----------
    output
        YAML file to write: calibration and accelerator. The raw table is written beside it, with
        ``.raw.csv`` in place of its ending.
    device
        ``cpu``, ``cuda`` or ``npu``.
    processes
        Processes that work at the same time, one a device; on a CPU one thread each.
    budget
        Seconds; what says most is timed first, and what nothing can be fitted without is timed
        whatever it takes.
    precision
        ``fp32`` or ``bf16``; left out: fp32 on a CPU, bf16 elsewhere.
    name
        What to call the accelerator.
    progress
        Called with a line of text now and then.

    Raises
    ------
    InputError
        PyTorch is missing, the file cannot be written, or the samples did not run.
    """
    require_torch("optplan profile")
    path = _named(output)
    raw = path.with_suffix(".raw.csv")
    kind: Precision = precision or ("fp32" if device == "cpu" else "bf16")
    if kind not in ("fp32", "bf16"):
        remedy = "write fp32 or bf16"
        raise InputError([Fault("", "--precision", f"{kind} is not profiled", remedy)])
    load = _load()
    arguments = {
        "samples": [one.model_dump(mode="json") for one in samples_of(device, processes)],
        "needed": len(needed(device, processes)),
        "budget": budget,
        "precision": kind,
    }
    with Pool(device) as pool:
        ending = pool.run(WORK, processes, arguments, budget + OVERTIME, progress=progress)
    if ending.outcome != "ok":
        problem = f"the profile ended: {ending.outcome}, {ending.detail}"
        remedy = "try fewer --processes, or another --device"
        raise InputError([Fault("", "--device", problem, remedy)])
    first: dict[str, Any] = ending.results[0]
    timings = [Timing.model_validate(one) for one in first["timings"]]
    told = first["machine"]
    machine = Machine(
        device=device,
        processes=processes,
        processors=told["processors"],
        memory_bytes=told["memory"] or 2**33,
        torch=told["torch"],
        name=name or f"{_word(told['name']) or 'cpu'}-x{processes}",
    )
    fit = fitted(timings, machine, kind)
    files = {
        path.suffix: calibration_text(fit, machine, load).encode(),
        ".raw.csv": raw_text(timings).encode(),
    }
    save(path.with_suffix(""), files)
    return _reply(fit, timings, first, str(path), str(raw), load, machine)


def calibration_text(fit: Fitted, machine: Machine, load: tuple[float, float]) -> str:
    """Write a profile as the YAML that a spec's ``calibration`` and ``accelerator`` read."""
    device = fit.accelerator.model_dump(mode="json", exclude_none=True)
    return dumped(
        {
            "stack": STACK,
            "accelerators": [fit.accelerator.name],
            "calibration": plain_calibration(fit.calibration),
            "accelerator": device,
            "profile": {
                "hash": fingerprint(fit.calibration),
                "device": machine.device,
                "processes": machine.processes,
                "processors": machine.processors,
                "torch": machine.torch,
                "load": list(load),
                "constants": plain(fit),
                "constant_utilization": fit.constant_rho.utilization_peak,
                "notes": list(fit.notes),
            },
        }
    )


def _reply(
    fit: Fitted,
    timings: list[Timing],
    first: dict[str, Any],
    output: str,
    raw: str,
    load: tuple[float, float],
    machine: Machine,
) -> Profiled:
    """Gather what is told to people and programs."""
    spreads = sorted(t.spread for t in timings if t.repeats > 1)
    notes = list(fit.notes)
    if machine.device == "cpu" and machine.processes > machine.processors:
        notes.append(
            f"{machine.processes} processes on {machine.processors} processors: they take turns; "
            "where some wait, as in a pipeline's bubble, the others go faster than priced"
        )
    other = load[0]
    if machine.device == "cpu" and other > 0.5:
        notes.append(
            f"before it began, {other:.1f} other processes wanted a processor: times are too long"
        )
    spread = spreads[len(spreads) // 2] if spreads else 0.0
    if spread > RESTLESS:
        notes.append(
            f"repeats of one sample spread by {spread:.0%}, so the machine was at other work too; "
            "profile it again when it is quiet"
        )
    by = {t.sample: t for t in timings}
    return Profiled(
        output=output,
        raw=raw,
        calibration=fit.calibration,
        accelerator=fit.accelerator,
        constants=tuple(
            Constant(name=key, value=one.value, origin=one.origin)
            for key, one in fit.constants.items()
        ),
        layers=tuple(
            Layer(label=s.label, seconds=by[s].seconds, spread=by[s].spread, error=error)
            for s, error in fit.layers.items()
        ),
        timed=len(timings),
        skipped=tuple(first["skipped"]),
        refused=dict(first["refused"]),
        spread=spread,
        load=(load[0], _load()[0]),
        notes=tuple(notes),
        constant_utilization=fit.constant_rho.utilization_peak,
        hash=fingerprint(fit.calibration),
    )


def _named(output: str | Path) -> Path:
    """Refuse a name that no spec could name."""
    path = Path(output)
    if path.suffix.lower() not in (".yaml", ".yml"):
        problem = f"'{output}' does not end in .yaml, and a spec would take it for a name"
        raise InputError([Fault("", "--output", problem, "name a file such as ours.yaml")])
    # A profile takes minutes; whatever would keep it from being written is told before.
    folder = path.parent
    if not folder.is_dir() or not os.access(folder, os.W_OK) or path.is_dir():
        remedy = "name a file in a folder that can be written to"
        raise InputError([Fault(str(output), "", "cannot write the file", remedy)])
    return path


def _word(name: str) -> str:
    """Write a device's name as one word."""
    return "-".join("".join(c if c.isalnum() else " " for c in name.lower()).split())


def _load() -> tuple[float, float]:
    """Read how many processes wanted a processor, mean of one and of five minutes."""
    try:
        one, five, _ = os.getloadavg()
    except OSError:
        return 0.0, 0.0
    return round(one, 2), round(five, 2)
