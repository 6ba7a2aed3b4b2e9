"""A measured run as a problem and the plans it may have been, or why it cannot be one."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import ValidationError

from optplan import catalogue
from optplan.models.cost.calibration import Calibration
from optplan.models.spec.cluster import Accelerator
from optplan.models.spec.plan import Plan
from optplan.models.spec.problem import Problem
from optplan.models.spec.space import Search
from optplan.runs.conventions import measured_step_seconds
from optplan.runs.layouts import batch_of, overlap_of, plans_of
from optplan.runs.machines import cluster_of
from optplan.runs.stacks import Inexpressible, first_fault, is_legacy, stack_of
from optplan.runs.table import Run
from optplan.runs.workloads import workload_of

NEEDED = ("num_layers", "hidden_size", "seq_len", "num_devices", "tp", "pp")
"""Cells without which no price can be had."""


@dataclass(frozen=True)
class Expressed:
    """
    A run as a problem, with every plan that its table leaves open.

    Parameters
    ----------
    run
        The row.
    problem
        Workload, cluster and calibration.
    plans
        What the run may have been; one where everything is stated.
    assumed
        What the table does not say and was taken by default, in words.
    step_seconds, measured_from
        The measured step time and the column it is from; None where there is none.
    """

    run: Run
    problem: Problem
    plans: tuple[Plan, ...]
    assumed: tuple[str, ...]
    step_seconds: float | None
    measured_from: str


def express(
    run: Run, calibration: Calibration | None = None, machine: Accelerator | None = None
) -> Expressed:
    """
    Turn a run into a problem and its plans.

    Parameters
    ----------
    run
        One row of a table.
    calibration
        What to price it with; left out: the accelerator's and the stack's own.
    machine
        A device that a profile describes, for the rows that name it.

    Raises
    ------
    Inexpressible
        Something without which no price can be had is not stated, or contradicts itself.
    """
    assumed: list[str] = []
    if run.framework == "":
        assumed.append("a Megatron-like framework")
    missing = [name for name in NEEDED if getattr(run, name) is None]
    if missing:
        raise Inexpressible(f"{', '.join(missing)} not stated")
    workload = workload_of(run, assumed)
    cluster, unknown = cluster_of(run, workload, assumed, machine)
    if calibration is None:
        stack = stack_of(run)
        named = cluster.accelerator.name if not unknown else "?"
        calibration = catalogue.calibration_for(named, stack)
    if is_legacy(run) and not calibration.hops_split:
        # Megatron-LM before its Core, and DeepSpeed's pipeline, split what a stage sends on.
        calibration = calibration.model_copy(update={"hops_split": True})
    batch = batch_of(run, workload, assumed)
    try:
        problem = Problem(
            workload=workload,
            cluster=cluster,
            search=Search(global_batch=batch),
            calibration=calibration,
            overlap=overlap_of(run),
        )
        plans = tuple(plans_of(run, problem, batch, assumed))
    except ValidationError as error:
        raise Inexpressible(first_fault(error)) from None
    if not plans:
        raise Inexpressible("no micro-batch divides the batch of a data rank")
    peak = cluster.accelerator.peak[workload.precision]
    seconds, column = measured_step_seconds(run, workload, batch, float(peak))
    return Expressed(run, problem, plans, tuple(assumed), seconds, column)


__all__ = ["Expressed", "Inexpressible", "express", "stack_of"]
