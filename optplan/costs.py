"""What a plan costs beside its time: devices held, money, energy."""

from __future__ import annotations

from optplan.models.cost.price import Estimate
from optplan.models.formulate import worth
from optplan.models.spec.plan import Plan
from optplan.models.spec.problem import Problem
from optplan.result import Costs


def costs_of(problem: Problem, plan: Plan, price: Estimate) -> Costs:
    """
    Tell the devices, money and energy of a plan.

    Energy is a bound from above: every held device draws its data-sheet power all the time. The
    node of eight H100 that arXiv 2506.14551 measured drew at most 76 % of its rated power in
    training.
    """
    cluster = problem.cluster
    held: int = cluster.held_devices(plan.devices)
    device_seconds = price.step_seconds * held
    tokens = plan.global_batch * problem.workload.sequence_length
    money = currency = joules = None
    if cluster.device_price is not None:
        currency = cluster.device_price.currency
        money = device_seconds * worth(problem, "cheapest")[0] / tokens * 1e9
    if cluster.accelerator.power is not None:
        joules = device_seconds * worth(problem, "least-energy")[0] / tokens
    return Costs(
        devices=plan.devices,
        idle_devices=problem.devices - plan.devices,
        held_devices=held,
        tokens_per_second=tokens / price.step_seconds,
        money_per_billion_tokens=money,
        currency=currency,
        joules_per_token=joules,
    )
