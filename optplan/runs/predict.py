"""What the cost model says of a measured run, beside what was measured."""

from __future__ import annotations

import re

from optplan.models.cost.estimate import estimate
from optplan.models.cost.price import Estimate
from optplan.models.record import Record
from optplan.models.spec.plan import Plan
from optplan.models.spec.problem import Problem
from optplan.runs.express import Expressed
from optplan.runs.table import Run

GIB = 2**30

DEVICE_LEVEL = ("nvidia-smi", "device level")
"""Words of a note that say memory was read on the device, with what no allocator counts."""


class Prediction(Record):
    """One run, predicted and measured."""

    source_id: str
    """Name of the row."""
    file: str
    """Table it stands in, without ending."""
    place: str
    """Where in it."""
    predicted_step_seconds: float
    """One optimizer step under the calibration."""
    predicted_step_range: tuple[float, float] | None = None
    """Least and most over what the table leaves open; none where it leaves nothing open."""
    predicted_peak_bytes: int
    """Memory of one device as far as the source counts it: allocated, or with the reserve too."""
    predicted_fits: bool
    """Whether it fits; where cells are open, whether any of their values makes it fit."""
    predicted_risk: float | None = None
    """Probability of running out of memory; none where the calibration has no memory error."""
    measured_step_seconds: float | None = None
    """As published, or from throughput, TFLOP/s or MFU."""
    measured_from: str = ""
    """The column it is from."""
    measured_peak_bytes: int | None = None
    """As published; units are taken as GiB, which is what allocators and drivers print."""
    measured_outcome: str = ""
    """``ok``, ``oom``, ``killed``, ``hung``, ``failed``, or empty."""
    error: float | None = None
    """Predicted over measured step time, less one."""
    memory_error: float | None = None
    """Predicted over measured memory, less one."""
    calibration: str
    """Calibration that priced it."""
    layout: str
    """Its plan in short."""
    group: str
    """Runs of one group differ in their layout alone."""
    complete: bool
    """Whether micro-batch, recomputation and ZeRO stage are stated."""
    assumed: tuple[str, ...] = ()
    """What the table does not say."""


def predict(expressed: Expressed) -> Prediction:
    """
    Price a run, and judge its memory.

    What its table leaves open is taken as the fastest plan that fits, as whoever publishes a table
    chose; the range over everything left open stands beside it.
    """
    problem, run = expressed.problem, expressed.run
    priced = [(estimate(problem, plan), plan) for plan in expressed.plans]
    chosen, plan = _fastest(priced)
    open_ = [price.step_seconds for price, _ in priced] if len(priced) > 1 else []
    device = run.says(*DEVICE_LEVEL)
    stage = -1 if run.says("last rank") else None
    predicted = _bytes(chosen, stage, device)
    measured = round(run.peak_mem_gb * GIB) if run.peak_mem_gb and run.outcome != "oom" else None
    seconds = expressed.step_seconds if run.outcome != "oom" else None
    return Prediction(
        source_id=run.source_id,
        file=run.file,
        place=run.place,
        predicted_step_seconds=chosen.step_seconds,
        predicted_step_range=(min(open_), max(open_)) if open_ else None,
        predicted_peak_bytes=predicted,
        predicted_fits=any(price.memory.fits for price, _ in priced) or _fits_recomputed(expressed),
        predicted_risk=chosen.memory.risk,
        measured_step_seconds=seconds,
        measured_from=expressed.measured_from if seconds else "",
        measured_peak_bytes=measured,
        measured_outcome=run.outcome,
        error=chosen.step_seconds / seconds - 1 if seconds else None,
        memory_error=predicted / measured - 1 if measured else None,
        calibration=problem.calibration.name,
        layout=short_layout(plan),
        group=group_of(run, problem),
        complete=is_complete(run),
        assumed=expressed.assumed,
    )


def plan_of(expressed: Expressed, problem: Problem) -> Plan:
    """Choose among the plans of a run the one that is taken for it, as ``problem`` prices them."""
    if len(expressed.plans) == 1:
        return expressed.plans[0]
    return _fastest([(estimate(problem, plan), plan) for plan in expressed.plans])[1]


def _fastest(priced: list[tuple[Estimate, Plan]]) -> tuple[Estimate, Plan]:
    """Pick the fastest plan that fits, or where none does the one that takes least memory."""
    fitting = [pair for pair in priced if pair[0].memory.fits]
    if fitting:
        return min(fitting, key=lambda pair: pair[0].step_seconds)
    return min(priced, key=lambda pair: pair[0].memory.allocated_bytes)


def _fits_recomputed(expressed: Expressed) -> bool:
    """Tell whether a run whose recomputation is not stated fits with all layers recomputed."""
    if expressed.run.recompute:
        return False
    for plan in expressed.plans:
        again = {"recompute": "full", "recomputed_layers_per_stage": plan.layers_per_stage}
        if estimate(expressed.problem, plan.model_copy(update=again)).memory.fits:
            return True
    return False


def _bytes(price: Estimate, stage: int | None, device: bool) -> int:
    """Bytes as the source counts them, of one stage or of the fullest."""
    stages = price.memory.stages
    use = stages[stage] if stage is not None else max(stages, key=lambda u: max(u.phases.values()))
    if device:
        return use.peak_bytes
    return max(use.phases.values())


def is_complete(run: Run) -> bool:
    """Tell whether a row states what time and memory depend on most."""
    return run.micro_batch is not None and bool(run.recompute) and run.zero_stage is not None


def short_layout(plan: Plan) -> str:
    """Name a plan by the choices that differ between runs."""
    return (
        f"tp{plan.tp} pp{plan.pp} dp{plan.dp} cp{plan.cp} ep{plan.ep} v{plan.vpp} "
        f"b{plan.micro_batch} zero{plan.zero} {plan.recompute} {plan.schedule}"
        f"{' sp' if plan.sequence_parallel else ''}"
    )


def group_of(run: Run, problem: Problem) -> str:
    """Name everything of a run but its layout: workload, machine, batch, sequence, precision."""
    shape = problem.workload.architecture
    model = re.sub(r"\s+", " ", run.model_name) or "?"
    return (
        f"{run.file}: {model} L{shape.layers} h{shape.hidden} a{shape.heads} f{shape.ffn} "
        f"V{shape.vocabulary} on {problem.devices} {run.accelerator}, "
        f"G{problem.search.global_batch} s{problem.workload.sequence_length} "
        f"{problem.workload.precision}"
    )
