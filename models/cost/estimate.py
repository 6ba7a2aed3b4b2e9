"""Plan to step time, memory table and breakdown: the one judge of a plan."""

from __future__ import annotations

from pydantic import Field

from optplan.models.cost.compute import model_flops
from optplan.models.cost.memory import (
    StageMemory,
    in_flight,
    kept_activations,
    states,
    working_bytes,
)
from optplan.models.cost.parameters import stage_parameters
from optplan.models.cost.schedule import bubble_seconds
from optplan.models.cost.stage import StageTime, stage_time
from optplan.models.cost.step import step_time
from optplan.models.cost.traffic import hop_seconds
from optplan.models.record import Record
from optplan.models.spec.plan import Plan
from optplan.models.spec.problem import Problem

TERMS = {
    "TF": "arithmetic of the slowest stage, forward and backward",
    "TCT": "tensor-parallel all-reduces",
    "TAT": "additions inside them",
    "TO": "communication hidden behind arithmetic (subtracted)",
    "TCD": "data-parallel gradient collectives, as far as exposed",
    "TAD": "additions inside them",
    "TB": "pipeline bubble",
    "TCP": "transfers between stages",
    "T_opt": "optimizer step",
}
"""Terms of the step time, in the order of Eq. 1 of arXiv 2501.00254, and T_opt, which it lacks."""

PARTS = ("parameters", "gradients", "optimizer", "activations", "working", "reserve")
"""Parts of a stage's memory, in the order they print."""


class StageUse(Record):
    """Memory and time of one stage."""

    stage: int
    """Number of the stage, from 0."""
    layers: int
    """Blocks it holds."""
    peak_bytes: int
    """Bytes on each of its devices at the worst moment, reserve included."""
    parts: dict[str, int]
    """Bytes by part."""
    in_flight: int
    """Micro-batches whose activations it holds at once."""
    micro_batch_seconds: float
    """Forward and backward of one micro-batch."""


class Memory(Record):
    """Memory of a plan."""

    peak_bytes: int
    """Of the fullest stage."""
    capacity_bytes: int
    """Of one device."""
    binding_stage: int
    """Number of the fullest stage."""
    stages: tuple[StageUse, ...]
    """Every stage, first to last."""


class Estimate(Record):
    """What a plan costs under the cost model."""

    step_seconds: float
    """One optimizer step."""
    tokens_per_second_per_device: float
    """Throughput, over all devices of the cluster."""
    mfu: float
    """Model FLOP (nothing recomputed; flash attention counts half the square) over peak FLOP."""
    terms: dict[str, float] = Field(
        description="Seconds by term; TO is subtracted, all others add up."
    )
    memory: Memory
    """Bytes by stage."""


def estimate(problem: Problem, plan: Plan) -> Estimate:
    """
    Price a plan, stage by stage.

    Parameters
    ----------
    problem
        Workload, cluster, prices and calibration.
    plan
        Any plan whose numbers are consistent (``len(layers_per_stage) == pp``); it may break rules.

    Returns
    -------
    Estimate
        ``step_seconds`` is ``TF + TCT + TAT - TO + TCD + TAD + TB + TCP + T_opt``.
    """
    times = [_time(problem, plan, stage) for stage in range(plan.pp)]
    busy = [float(time.total) for time in times]
    slowest = times[max(range(plan.pp), key=busy.__getitem__)]
    m = plan.micro_batches
    shape = problem.workload.architecture
    fullest = max(
        int(stage_parameters(shape, layers, i == 0, i == plan.pp - 1, plan.tp))
        for i, layers in enumerate(plan.layers_per_stage)
    )
    once = step_time(problem, fullest, plan.tp, plan.dp, plan.zero)
    hops = hop_seconds(
        problem, plan.micro_batch, plan.tp, plan.pp, plan.dp, int(plan.sequence_parallel)
    )
    bubble = bubble_seconds(busy if problem.prices == "canonical" else [max(busy)] * plan.pp)
    seconds = {
        "TF": m * slowest.compute,
        "TCT": m * slowest.reduce,
        "TAT": m * slowest.arithmetic,
        "TO": m * slowest.hidden,
        "TCD": once.reduce,
        "TAD": once.arithmetic,
        "TB": bubble,
        "TCP": hops.fill + problem.calibration.p2p_exposed * m * hops.steady,
        "T_opt": once.update,
    }
    terms = {name: float(value) for name, value in seconds.items()}
    step = sum(terms.values()) - 2 * terms["TO"]
    rate = plan.global_batch / step
    workload, devices = problem.workload, problem.devices
    peak = problem.cluster.accelerator.peak[workload.precision]
    return Estimate(
        step_seconds=step,
        tokens_per_second_per_device=rate * workload.sequence_length / devices,
        mfu=rate * model_flops(workload) / (devices * peak),
        terms=terms,
        memory=_memory(problem, plan, busy),
    )


def _time(problem: Problem, plan: Plan, stage: int) -> StageTime:
    """Price one stage of a plan; in ``paper`` prices every stage is as slow as the last."""
    paper = problem.prices == "paper"
    return stage_time(
        problem,
        plan.layers_per_stage[stage],
        plan.recomputed_layers_per_stage[stage],
        first=stage == 0,
        last=paper or stage == plan.pp - 1,
        tp=plan.tp,
        micro_batch=plan.micro_batch,
    )


def stage_memory(problem: Problem, plan: Plan, stage: int) -> StageMemory:
    """Bytes of one stage of a plan by part."""
    first, last = stage == 0, stage == plan.pp - 1
    layers, recomputed = plan.layers_per_stage[stage], plan.recomputed_layers_per_stage[stage]
    sp = int(plan.sequence_parallel)
    kept = kept_activations(problem, layers, recomputed, plan.micro_batch, plan.tp, sp)
    held = states(problem, layers, first, last, plan.tp, plan.dp, plan.zero)
    return StageMemory(
        *held,
        activations=kept * in_flight(plan.pp, plan.micro_batches, stage),
        working=working_bytes(problem, recomputed, last, plan.micro_batch, plan.tp, sp),
        reserve=problem.calibration.reserve,
    )


def _memory(problem: Problem, plan: Plan, busy: list[float]) -> Memory:
    """Fill in the memory table of a plan."""
    stages = []
    for i in range(plan.pp):
        held = stage_memory(problem, plan, i)
        stages.append(
            StageUse(
                stage=i,
                layers=plan.layers_per_stage[i],
                peak_bytes=int(held.peak),
                parts={part: int(getattr(held, part)) for part in PARTS},
                in_flight=int(in_flight(plan.pp, plan.micro_batches, i)),
                micro_batch_seconds=busy[i],
            )
        )
    fullest = max(stages, key=lambda use: use.peak_bytes)
    return Memory(
        peak_bytes=fullest.peak_bytes,
        capacity_bytes=problem.cluster.accelerator.hbm,
        binding_stage=fullest.stage,
        stages=tuple(stages),
    )
