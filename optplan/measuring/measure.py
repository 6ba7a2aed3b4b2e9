"""Every layout of a spec really trained: predicted, run, compared, written down."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from statistics import median
from typing import Any

from optplan.measuring.plans import alone, narrowed, plans_of
from optplan.measuring.rows import GIB, Table, row_of
from optplan.models.cost.estimate import estimate
from optplan.models.errors import Fault, InputError
from optplan.models.record import Record
from optplan.models.spec.plan import Plan
from optplan.models.spec.problem import Problem
from optplan.planner import Condition, Spec, problem_of
from optplan.ranks.job import Device, Ending
from optplan.ranks.needed import require_torch
from optplan.ranks.pool import Pool
from optplan.result import Reply
from optplan.runs.predict import short_layout

WORK = "optplan.measuring.train:train"

LOSS_TOLERANCE = {"fp32": 1e-4, "bf16": 2e-2}
"""
Relative difference of a loss from that of one process that the order of additions explains. In
fp32 eight layouts of a network of four layers differed by at most 1e-7 over six steps; a wrong
gradient shows in the next step's loss by far more.
"""


MOST_PROCESSES = 64
"""Processes that are started on one machine at most."""

SHARED = 0.9
"""Share of a machine's memory that its processes may have together where no limit is given."""


class Measurement(Record):
    """One layout, predicted and measured."""

    layout: str
    """The plan in short."""
    plan: Plan
    """The plan."""
    outcome: str
    """ok, oom, killed, hung, failed."""
    detail: str = ""
    """Why, where it did not end well."""
    predicted_step_seconds: float
    """Price of the plan before the run."""
    step_seconds: float | None = None
    """Median of the steps; none where it did not end well or computed something else."""
    spread: tuple[float, float] | None = None
    """Fastest and slowest step."""
    peak_bytes: int | None = None
    """Memory of the fullest process."""
    loss_error: float | None = None
    """Largest relative difference of a loss from that of one process."""

    @property
    def error(self) -> float | None:
        """Predicted over measured, less one."""
        if self.step_seconds is None:
            return None
        return self.predicted_step_seconds / self.step_seconds - 1


class Measured(Reply):
    """What ``measure`` found."""

    output: str
    """The table."""
    measurements: tuple[Measurement, ...]
    """Layouts measured now, in the order of their price."""
    before: int
    """Layouts that the table held already."""
    left: int = 0
    """Layouts that were not reached before an interrupt; started again it goes on with them."""
    left_out: dict[str, int]
    """Why layouts are not among them, and how many."""
    losses: tuple[float, ...]
    """Losses of one process, step by step; empty where it could not run."""
    loss_tolerance: float
    """Relative difference that counts as equal."""
    notes: tuple[str, ...] = ()
    """What a careful reader should know."""

    @property
    def exit_code(self) -> int:
        """0: a layout that fails is an answer; 3 where an interrupt left some."""
        return 3 if self.left else 0


def measure(
    spec: Spec,
    output: str | Path,
    *,
    plans: str = "all",
    steps: int = 5,
    warm_up: int = 2,
    device: Device = "cpu",
    memory_bytes: int | None = None,
    seconds: float = 300.0,
    seed: int = 0,
    sets: Sequence[str] = (),
    limits: Sequence[Condition] = (),
    progress: Callable[[str], None] | None = None,
    started: Callable[[Plan, list[int]], None] | None = None,
    pool: Pool | None = None,
) -> Measured:
    """
    Train a network of a spec's shape for a few steps under each of its layouts.

    Parameters
    ----------
    spec
        As ``solve`` takes it, with one global batch.
    output
        Table to write. Rows it holds of the same job are not measured again.
    plans
        ``all`` feasible layouts, ``top:K`` or ``random:K``.
    steps, warm_up
        Steps that are timed, and steps before them.
    device
        ``cpu``, ``cuda`` or ``npu``.
    memory_bytes
        Memory that each process may allocate; left out: on a CPU its share of the machine's, on an
        accelerator no limit.
    seconds
        Time after which a layout counts as hung.
    seed
        Of weights, data and random choice.
    sets, limits
        As of ``solve``.
    progress
        Called with a line of text now and then.
    started
        Called with each plan and the numbers of its processes.
    pool
        Starter of processes to go on with, which knows the device; left out: one of its own.

    Raises
    ------
    InputError
        The spec or the table is wrong, or PyTorch is missing.
    """
    version = require_torch("optplan measure")
    problem = narrowed(problem_of(spec, sets, limits))
    if not isinstance(problem.search.global_batch, int):
        remedy = "give one number, so that all layouts do the same work"
        raise InputError(
            [Fault("", "search.global_batch", "several batches are asked for", remedy)]
        )
    _refuse_large(problem)
    table = Table(output)
    limited = memory_bytes
    if memory_bytes is None and device == "cpu":
        memory_bytes = _fair_share(problem.devices)
    chosen, left = plans_of(problem, plans, seed)
    asked = {"steps": steps, "warm_up": warm_up, "seed": seed, "memory": limited}
    job = hashlib.sha256(f"{problem.fingerprint} {json.dumps(asked)}".encode()).hexdigest()[:16]
    known = table.done(job)
    todo = [plan for plan in chosen if short_layout(plan) not in known]
    settings = _settings(problem, steps, warm_up, seed)
    framework = f"pytorch {version}"
    found: list[Measurement] = []
    notes: list[str] = []
    losses: list[float] = []
    say = progress or (lambda line: None)
    with Pool(device) if pool is None else nullcontext(pool) as starter:

        def run(plan: Plan, what: str) -> Ending:
            arguments = {**settings, "plan": plan.model_dump(mode="json")}
            return starter.run(
                WORK,
                plan.devices,
                arguments,
                seconds,
                memory_bytes=memory_bytes,
                progress=lambda line: say(f"{what}, {line}"),
                started=None if started is None else lambda pids: started(plan, pids),
            )

        try:
            if todo:
                say("one process, for its losses")
                ending = run(alone(problem), "one process")
                if ending.outcome == "ok":
                    losses = ending.results[0]["losses"]
                else:
                    notes.append(
                        f"one process alone ended: {ending.outcome} ({ending.detail}); losses are "
                        "compared with those of the first layout that ran"
                    )
            reference = losses
            for number, plan in enumerate(todo, start=1):
                what = f"{number} of {len(todo)}: {short_layout(plan)}"
                say(what)
                ending = run(plan, what)
                if ending.outcome == "ok" and not reference:
                    reference = ending.results[0]["losses"]
                one = _measurement(problem, plan, ending, reference, warm_up)
                facts = _facts(one, ending, steps, framework, device, job, problem)
                name = f"{table.path.stem}:{len(table.rows) + 1:04d}"
                table.add(row_of(problem, plan, ending, name, facts))
                found.append(one)
        except KeyboardInterrupt:
            starter.close()
            notes.append("interrupted; started again it goes on where it was")
    if device == "cpu" and problem.devices > (os.cpu_count() or 1):
        notes.append(
            f"{problem.devices} processes on {os.cpu_count()} processors: they take turns, which "
            "no price knows"
        )
    return Measured(
        output=str(output),
        measurements=tuple(found),
        before=len(chosen) - len(todo),
        left=len(todo) - len(found),
        left_out=left,
        losses=tuple(losses),
        loss_tolerance=LOSS_TOLERANCE[problem.workload.precision],
        notes=tuple(notes),
    )


def _refuse_large(problem: Problem) -> None:
    """Refuse what one machine cannot run."""
    faults = []
    if problem.cluster.nodes > 1:
        text = f"{problem.cluster.nodes} nodes are asked for, and one machine is measured"
        faults.append(Fault("", "cluster.nodes", text, "write 1"))
    if problem.devices > MOST_PROCESSES:
        text = f"{problem.devices} devices are a process each"
        remedy = f"at most {MOST_PROCESSES} are started on one machine"
        faults.append(Fault("", "cluster.devices_per_node", text, remedy))
    if faults:
        raise InputError(faults)


def _fair_share(processes: int) -> int | None:
    """Share a machine's memory out to its processes, so that no layout brings the machine down."""
    try:
        whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return None
    return int(SHARED * whole) // processes


def _settings(problem: Problem, steps: int, warm_up: int, seed: int) -> dict[str, Any]:
    """Return what every process is told but its plan."""
    return {
        "architecture": problem.workload.architecture.model_dump(mode="json"),
        "sequence_length": problem.workload.sequence_length,
        "precision": problem.workload.precision,
        "seed": seed,
        "warm_up": warm_up,
        "steps": steps,
    }


def _measurement(
    problem: Problem, plan: Plan, ending: Ending, reference: Sequence[float], warm_up: int
) -> Measurement:
    """Compare what a layout did with its price, and its losses with those of one process."""
    told: dict[str, Any] = {
        "layout": short_layout(plan),
        "plan": plan,
        "outcome": ending.outcome,
        "detail": ending.detail,
        "predicted_step_seconds": estimate(problem, plan).step_seconds,
    }
    if ending.outcome != "ok":
        return Measurement(**told)
    slowest = [max(times) for times in zip(*(r["seconds"] for r in ending.results), strict=True)]
    timed = slowest[warm_up:]
    apart = loss_error(ending.results[0]["losses"], reference)
    told["loss_error"] = apart
    told["peak_bytes"] = max(r["peak_bytes"] for r in ending.results)
    if apart <= LOSS_TOLERANCE[problem.workload.precision]:
        told |= {"step_seconds": median(timed), "spread": (min(timed), max(timed))}
    else:
        told["detail"] = f"losses differ from those of one process by {apart:.1e}"
    return Measurement(**told)


def loss_error(losses: Sequence[float], reference: Sequence[float]) -> float:
    """
    Return the largest relative difference between losses, step by step; 1e9 for no number.

    Examples
    --------
    >>> loss_error([5.0, 4.0], [5.0, 4.4])
    0.0909...
    """
    pairs = zip(losses, reference, strict=True)
    apart = max((abs(one - other) / abs(other) for one, other in pairs), default=0.0)
    return apart if math.isfinite(apart) else 1e9


def _facts(
    one: Measurement,
    ending: Ending,
    steps: int,
    framework: str,
    device: str,
    job: str,
    problem: Problem,
) -> Mapping[str, object]:
    """Gather what a row holds beyond plan and problem."""
    note = [] if ending.outcome == "ok" else [f"[{ending.outcome}] {ending.detail}"]
    if ending.outcome == "ok" and one.step_seconds is None:
        note.append(f"[wrong-loss] {one.detail}")
    if ending.outcome == "ok":
        kind = "device level: peak resident set" if device == "cpu" else "max_allocated"
        note.append(f"memory {kind}")
    rate = None
    if one.step_seconds is not None:
        tokens = one.plan.global_batch * problem.workload.sequence_length
        rate = tokens / one.step_seconds / one.plan.devices
    low, high = one.spread or (None, None)
    return {
        "note": "; ".join(note),
        "framework": framework,
        "step_time_s": one.step_seconds,
        "tokens_per_s_per_device": rate,
        "peak_mem_gb": None if one.peak_bytes is None else one.peak_bytes / GIB,
        "step_low_s": low,
        "step_high_s": high,
        "steps": steps if one.step_seconds is not None else None,
        "predicted_step_s": one.predicted_step_seconds,
        "loss_error": one.loss_error,
        "job": job,
    }
