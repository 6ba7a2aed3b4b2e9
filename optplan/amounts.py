"""Ways out by how much: the fewest devices, the longest sequence, the nearest batches."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from optplan.models.cost.price import Estimate
from optplan.models.rules.registry import Rule
from optplan.models.spec.plan import Plan
from optplan.models.spec.problem import Problem
from optplan.result import WayOut
from optplan.ways import Clock, Way, best_of, searched, solved, worked, written

MOST_TIMES = 64
"""Ways out look at clusters up to this many times larger."""


def more_devices(
    problem: Problem, rules: tuple[Rule, ...], clock: Clock, besides: Way | None = None
) -> WayOut | None:
    """
    Find the fewest nodes on which a plan exists; a single node is filled up first.

    Where devices may be idle, what fits on some fits on more, so that bisection finds the fewest.
    Elsewhere every number is tried.
    """
    base = besides.change(problem) if besides else problem
    cluster = base.cluster
    some = cluster.devices_per_node < cluster.accelerator.domain and cluster.nodes == 1
    if some:
        found = _fewest(
            base,
            rules,
            clock,
            "devices_per_node",
            cluster.devices_per_node,
            cluster.accelerator.domain,
        )
        if found is not None:
            return _grown(problem, "devices_per_node", found, besides)
    most = min(cluster.nodes * MOST_TIMES, 2**20 // cluster.devices_per_node)
    found = _fewest(base, rules, clock, "nodes", cluster.nodes, most)
    return None if found is None else _grown(problem, "nodes", found, besides)


@dataclass(frozen=True)
class _Found:
    """A number that works, its plan, and whether it is the fewest."""

    number: int
    plan: Plan
    price: Estimate
    fewest: bool


def _fewest(
    problem: Problem, rules: tuple[Rule, ...], clock: Clock, key: str, low: int, most: int
) -> _Found | None:
    """Double a number of the cluster until a plan exists, then look for the fewest."""
    sure = True
    held: tuple[int, tuple[Plan, Estimate]] | None = None
    high = low

    def ask(number: int) -> tuple[Plan, Estimate] | None:
        nonlocal sure
        clock.say(f"{number} {key.replace('_', ' ')}")
        tried = clock.attempt(problem.with_cluster(**{key: number}), rules)
        sure = sure and tried.settled
        return tried.best

    while held is None and high < most and clock.left > 0:
        low, high = high, min(2 * high, most)
        best = ask(high)
        held = (high, best) if best else None
    if held is None:
        return None
    monotone = problem.search.idle_devices and problem.prices != "paper"
    while monotone and held[0] - low > 1 and clock.left > 0:
        middle = (low + held[0]) // 2
        best = ask(middle)
        low, held = (low, (middle, best)) if best else (middle, held)
    if not monotone:
        for number in range(low + 1, held[0]):
            if clock.left <= 0:
                sure = False
                break
            best = ask(number)
            if best:
                held = (number, best)
                break
    sure = sure and (not monotone or held[0] - low <= 1)
    return _Found(held[0], *held[1], sure)


def _grown(problem: Problem, key: str, found: _Found, besides: Way | None) -> WayOut:
    """Write down a larger cluster."""
    cluster = problem.cluster
    before = besides.text + ", " if besides else ""
    if key == "nodes":
        devices = found.number * cluster.devices_per_node
        text = f"{found.number} nodes ({devices} devices) instead of {cluster.nodes}"
    else:
        text = f"{found.number} devices in the node instead of {cluster.devices_per_node}"
    way = Way(before + text, "several" if besides else "devices", lambda one: one)
    edit = {**(besides.edit if besides else {}), f"cluster.{key}": found.number}
    note = "" if found.fewest else "fewer were not settled in time"
    return written(way, way.text, edit, note, found.plan, found.price)


def shorter_sequence(problem: Problem, rules: tuple[Rule, ...], clock: Clock) -> WayOut | None:
    """Find the longest shorter sequence that fits, in sixteenths of the present one."""
    s = problem.workload.sequence_length
    unit = 2 ** max(0, int(math.log2(max(1, s))) - 4)
    if s < 32:
        return None

    def ask(times: int) -> tuple[Plan, Estimate] | None:
        clock.say(f"sequence {times * unit}")
        changed = worked(problem, sequence_length=times * unit)
        return best_of(changed, rules, clock.left)

    low, high = 1, -(-s // unit)
    held = ask(low)
    if held is None:
        return None
    while high - low > 1 and clock.left > 0:
        middle = (low + high) // 2
        best = ask(middle)
        if best is None:
            high = middle
        else:
            low, held = middle, best
    text = f"sequence of {low * unit} instead of {s}, the longest of {unit} tokens each that fits"
    way = Way(text, "workload", lambda one: one, {"workload.sequence_length": low * unit})
    return written(way, way.text, way.edit, "", *held)


def other_batches(problem: Problem, rules: tuple[Rule, ...], clock: Clock) -> Iterator[WayOut]:
    """Take the nearest global batches that the fixed degrees split, or half and less."""
    batch, search = problem.search.global_batch, problem.search
    if not isinstance(batch, int):
        return
    fixed = [getattr(search, name) for name in ("dp", "micro_batch", "micro_batches")]
    unit = math.prod(value for value in fixed if isinstance(value, int))
    if batch % unit:
        near = [batch // unit * unit, -(-batch // unit) * unit]
    else:
        near = [batch // times for times in (2, 4, 8) if batch % times == 0]
    for other in near:
        if not other:
            continue

        def change(before: Problem, other: int = other) -> Problem:
            return searched(before, global_batch=other)

        text = f"global batch {other} instead of {batch}"
        way = solved(
            Way(text, "workload", change, {"search.global_batch": other}), problem, rules, clock
        )
        if way is not None:
            yield way
            if batch % unit == 0:
                return
