"""How a measured run was laid out: every plan that its table may mean."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product

from optplan.models.spec.framework import Feature, Schedule
from optplan.models.spec.plan import Plan
from optplan.models.spec.problem import Problem
from optplan.models.spec.space import Recompute
from optplan.models.spec.workload import Workload
from optplan.runs.stacks import OVERLAPPED, SHARDED_SEQUENCE, Inexpressible
from optplan.runs.table import Run


def batch_of(run: Run, workload: Workload, assumed: list[str]) -> int:
    """Read the global batch, or derive it from throughput and step time."""
    if run.global_batch is not None:
        return run.global_batch
    if run.tokens_per_s_per_device and run.step_time_s:
        rate = run.tokens_per_s_per_device * (run.num_devices or 1)
        batch = round(rate * run.step_time_s / workload.sequence_length)
        assumed.append(f"global batch {batch}, from throughput and step time")
        return max(1, batch)
    if run.outcome == "oom" or run.micro_batch is not None:
        batch = (run.micro_batch or 1) * (run.dp or 1) * max(1, 4 * (run.pp or 1) - 3)
        assumed.append(f"global batch {batch}")
        return batch
    raise Inexpressible("global batch not stated")


RECOMPUTED = {"none": 0, "selective": 0, "partial": 1, "full": 2}
"""Halves of the layers that are recomputed."""

SCHEDULE_WORDS: tuple[tuple[str, Schedule], ...] = (
    ("schedule zb-v", "zb-v"),
    ("schedule zb-2p", "zb-h2"),
    ("schedule zb-1p", "zb-h1"),
    ("schedule 1f1b-i", "interleaved"),
    ("schedule gpipe", "gpipe"),
)


def plans_of(run: Run, problem: Problem, batch: int, assumed: list[str]) -> Iterator[Plan]:
    """List the plans that a row may mean."""
    tp, pp, cp = run.tp or 1, run.pp or 1, run.cp or 1
    devices = run.num_devices or 1
    if devices % (tp * pp * cp):
        raise Inexpressible(f"tp {tp} * pp {pp} * cp {cp} does not divide {devices} devices")
    dp = run.dp or devices // (tp * pp * cp)
    if tp * pp * cp * dp != devices:
        raise Inexpressible(f"tp {tp} * pp {pp} * cp {cp} * dp {dp} is not {devices} devices")
    zeros = _zeros(run, dp, cp, assumed)
    schedule, vpp = _schedule(run, problem, assumed)
    experts = problem.workload.architecture.experts
    ep = (run.ep or 1) if experts else 1
    etp = _expert_tensor(run, tp) if experts else 1
    if etp < 1 or (tp * cp * dp) % (ep * etp):
        raise Inexpressible(f"experts over ep {ep} * etp {etp} do not divide a stage's devices")
    layers = _layers(run, problem, pp, vpp, schedule)
    sequence = run.seq_parallel
    if sequence is None:
        name = run.framework.lower()
        sequence = tp > 1 and any(word in name for word in SHARDED_SEQUENCE)
        if tp > 1:
            assumed.append(f"sequence parallel {'on' if sequence else 'off'}")
    for micro, again, zero in product(
        _micro_batches(run, batch, dp, assumed), _recomputes(run, assumed), zeros
    ):
        yield Plan(
            tp=tp,
            pp=pp,
            dp=dp,
            cp=cp,
            ep=ep,
            etp=etp,
            micro_batch=micro,
            micro_batches=max(1, round(batch / (micro * dp))),
            global_batch=batch,
            vpp=vpp,
            schedule=schedule,
            sequence_parallel=bool(sequence) and tp > 1,
            zero=zero,
            recompute=again,
            hsdp=run.says("hsdp") or _zero_in_node(run, tp, dp, zero),
            layers_per_stage=layers,
            recomputed_layers_per_stage=tuple(n * RECOMPUTED[again] // 2 for n in layers),
        )


def overlap_of(run: Run) -> tuple[Feature, ...] | None:
    """Tell what communication ran behind computation; None for what the calibration found."""
    name = run.framework.lower()
    if any(word in name for word in OVERLAPPED):
        return None
    fused = run.says("fused matmul") and run.seq_parallel is True
    # ModelLink's older code path has no fused products.
    fused = fused and not run.says("implementation legacy")
    return ("tp-overlap",) if fused else ()


def _zero_in_node(run: Run, tp: int, dp: int, zero: int) -> bool:
    """Tell whether states are shared inside a node only."""
    found = re.search(r"zero1 group size (\d+)", run.row_note)
    if found is None or zero != 1:
        return False
    size = int(found[1])
    return size < dp and size * tp == run.devices_per_node


def _expert_tensor(run: Run, tp: int) -> int:
    """Read the tensor degree of the experts."""
    found = re.search(r"expert-tensor-parallel (\d+)", run.row_note)
    return int(found[1]) if found else (1 if run.says("etp1") else tp)


def _zeros(run: Run, dp: int, cp: int, assumed: list[str]) -> tuple[int, ...]:
    """Read the ZeRO stage."""
    if run.zero_stage == 3 and (run.pp or 1) > 1 and "torchtitan" in run.framework.lower():
        assumed.append("weights kept whole over a step, as torchtitan does in a pipeline: ZeRO 1")
        return (1,)
    if run.zero_stage is not None:
        return (run.zero_stage,)
    name = run.framework.lower()
    modern = any(word in name for word in ("nemo", "bridge", "core"))
    stage = 1 if modern and dp * cp > 1 else 0
    assumed.append(f"ZeRO {stage}")
    return (stage,)


def _recomputes(run: Run, assumed: list[str]) -> tuple[Recompute, ...]:
    """Read what was computed again; whatever fits where it is not said."""
    wanted = run.recompute
    titan = "torchtitan" in run.framework.lower()
    if titan and not wanted:
        assumed.append("every second operator recomputed, torchtitan's default")
        wanted = "selective"
    if titan and wanted == "selective":
        # Its selective checkpointing keeps about every second product, or every second layer.
        return ("partial",)
    if wanted in ("none", "selective", "full"):
        return (wanted,)  # type: ignore[return-value]
    assumed.append("nothing recomputed")
    return ("none",)


def _micro_batches(run: Run, batch: int, dp: int, assumed: list[str]) -> tuple[int, ...]:
    """Read the micro-batch; every divisor where it is not said."""
    if run.micro_batch is not None:
        if batch % (run.micro_batch * dp):
            raise Inexpressible(
                f"global batch {batch} is no multiple of micro-batch {run.micro_batch} * dp {dp}"
            )
        return (run.micro_batch,)
    if batch % dp:
        raise Inexpressible(f"batch {batch} is no multiple of dp {dp}")
    return tuple(b for b in range(1, 65) if batch // dp % b == 0)


def _schedule(run: Run, problem: Problem, assumed: list[str]) -> tuple[Schedule, int]:
    """Read schedule and chunks."""
    if (run.pp or 1) == 1:
        return "1f1b", 1
    note = run.row_note.lower()
    for word, schedule in SCHEDULE_WORDS:
        if word in note:
            if schedule == "interleaved":
                layers = problem.workload.architecture.layers + 2
                pp = run.pp or 1
                return schedule, run.vpp or max(1, layers // pp)
            return schedule, 2 if schedule == "zb-v" else 1
    if run.vpp and run.vpp > 1:
        return "interleaved", run.vpp
    return "1f1b", 1


def _layers(run: Run, problem: Problem, pp: int, vpp: int, schedule: Schedule) -> tuple[int, ...]:
    """Hand the layers out: as listed, in equal parts, or with embedding and head as layers."""
    total = problem.workload.architecture.layers
    if pp == 1:
        return (total,)
    listed = re.search(r"num-layer-list (\d+(?:\s*,\s*\d+)+)", run.row_note)
    if listed:
        counts = tuple(int(n) for n in listed[1].split(","))
        if len(counts) == pp and sum(counts) == total:
            return counts
    if total < pp:
        raise Inexpressible(f"{total} layers are fewer than {pp} stages")
    each = -(-total // pp)
    counts_ = [each] * pp
    short = each * pp - total
    # The ends hold fewer first, as embedding and head take time too; then the stages beside them.
    order = [
        pp - 1,
        0,
        *(i for pair in zip(range(pp - 2, 0, -1), range(1, pp - 1), strict=True) for i in pair),
    ]
    for i in dict.fromkeys(order):
        if short and counts_[i] > 1:
            counts_[i] -= 1
            short -= 1
    return tuple(counts_)
