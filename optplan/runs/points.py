"""What a run can teach: the point it is in a fit, and the constants its price depends on."""

from __future__ import annotations

from collections.abc import Sequence

from optplan.models.cost.calibration import Calibration
from optplan.models.cost.estimate import estimate
from optplan.runs.express import Expressed
from optplan.runs.fit import Point
from optplan.runs.predict import plan_of


def point_of(expressed: Expressed, prior: Calibration) -> Point:
    """Turn a run into a point to fit: where its table leaves something open, the fastest plan."""
    # Whether hops are split is a fact of the run's software, which no prior overrides.
    split = prior.hops_split or expressed.problem.calibration.hops_split
    held = expressed.problem.model_copy(update={"calibration": prior})
    problem = held.with_calibration(hops_split=split)
    assert expressed.step_seconds is not None
    run = expressed.run
    plan = plan_of(expressed, problem)
    return Point(problem, plan, expressed.step_seconds, run.file, run.model_name)


def teachable(found: Sequence[Expressed], prior: Calibration) -> tuple[str, ...]:
    """
    Name the constants that runs can say something about.

    A constant is offered where some run's price depends on it: FP8 where there are FP8 runs, links
    where tensor ranks talk, launches where some layer waits for them, and so on.
    """
    plans = [(x.problem, x.plans[0]) for x in found]
    narrow = [problem.workload.precision == "fp8" for problem, _ in plans]
    terms = [
        estimate(p.model_copy(update={"calibration": prior}), plan).terms for p, plan in plans[:400]
    ]
    offered = {
        "utilization_peak": not all(narrow),
        "utilization_fp8": any(narrow),
        "hbm_efficiency": prior.pointwise > 0,
        "attention_loss": any(
            p.workload.flash_attention and p.workload.sequence_length >= 4096 for p, _ in plans
        ),
        "link_efficiency": any(plan.tp > 1 for _, plan in plans),
        "launch_seconds": any(term["TL"] > 0.05 * sum(term.values()) for term in terms),
        "fused_tp": any("tp-overlap" in (p.overlap or ()) for p, _ in plans),
        "overlap_fsdp": any(plan.zero >= 2 for _, plan in plans),
        "overlap_dp": any(p.overlap is None and plan.zero < 2 and plan.dp > 1 for p, plan in plans),
    }
    return tuple(name for name, teaches in offered.items() if teaches)
