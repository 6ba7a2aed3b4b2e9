"""Ranks to coordinates: which device holds which part of the job."""

from __future__ import annotations

from dataclasses import dataclass

from optplan.models.spec.plan import Plan


@dataclass(frozen=True)
class Coordinates:
    """Where a rank stands in each group, from 0."""

    tp: int
    cp: int
    dp: int
    pp: int
    etp: int = 0
    ep: int = 0


def coordinates(plan: Plan, rank: int) -> Coordinates:
    """
    Place a rank, as Megatron-LM numbers them and the cost model prices them.

    From the inside out: tensor, context, data, pipeline (``order: data_inside``), or tensor,
    context, pipeline, data (``pipeline_inside``). Experts divide the ranks of a stage anew: their
    tensor ranks inside, then the expert ranks.

    Parameters
    ----------
    rank
        Below ``plan.devices``.
    """
    rest, tp = divmod(rank, plan.tp)
    rest, cp = divmod(rest, plan.cp)
    if plan.order == "data_inside":
        pp, dp = divmod(rest, plan.dp)
    else:
        dp, pp = divmod(rest, plan.pp)
    within = tp + plan.tp * (cp + plan.cp * dp)
    ep, etp = divmod(within, plan.etp)
    return Coordinates(tp, cp, dp, pp, etp, ep % plan.ep)


def stage_ranks(plan: Plan, stage: int) -> str:
    """Name the ranks of a stage: one range, or one for each data rank."""
    close = plan.tp * plan.cp
    if plan.order == "data_inside":
        width = close * plan.dp
        return _span(stage * width, width)
    if plan.dp == 1:
        return _span(stage * close, close)
    every = close * plan.pp
    return f"{_span(stage * close, close)}, and so on every {every:,} ranks"


def _span(first: int, width: int) -> str:
    """Write a range of ranks."""
    return f"{first:,}" if width == 1 else f"{first:,} to {first + width - 1:,}"
