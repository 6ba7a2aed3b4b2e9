"""
Robust plans and flip points against every plan of small random problems.

``python -m tests.robust --count 200`` prices every plan, layers handed out in every way, at every
corner of a random box, and asks of the answer: is the stated regret exceeded at any corner, is any
plan better than the stated bound, and does the best plan change where a flip point says so.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from optplan.box import corners, with_constants
from optplan.certificate import goal_of
from optplan.exactly import Key, key_of
from optplan.flips import TIE, flips
from optplan.judge import judge
from optplan.models.cost.estimate import estimate
from optplan.models.formulate import Formulation, formulate
from optplan.models.program import Table
from optplan.models.spec.plan import Plan
from optplan.models.spec.problem import Problem
from optplan.parameters import Parameter, parameters
from optplan.planner import problem_of
from optplan.robust import robust
from optplan.solvers import exhaustive
from optplan.sureness import Flip, Robust
from tests import random_problems as draw
from tests.brute import _equal, handed_out, points

MOST_PLANS = 300
"""Plans of one problem at most, so that all can be priced at every corner."""

CLOSE = 1e-9
"""Relative difference of two floats of the same formula."""

Spec = dict[str, Any]

MOVED = (
    ("network_efficiency", 0.1, 1.0),
    ("link_efficiency", 0.1, 1.0),
    ("utilization_peak", 0.1, 1.0),
    ("hbm_efficiency", 0.1, 1.0),
    ("overlap_dp", 0.0, 1.0),
    ("overlap_tp", 0.0, 1.0),
    ("launch_seconds", 0.0, 5e-3),
    ("step_latency", 0.0, 1e-3),
    ("pointwise", 0.0, 3.0),
    ("reserve", 1e6, 1e9),
)
"""Constants that a random box is made of, and how far they go."""


def small_spec(rng: random.Random) -> Spec:
    """A spec with few plans: few layers, few devices, most choices fixed."""
    spec = draw._without_limits(rng)
    shape = spec["workload"]["architecture"]
    shape["layers"] = rng.randint(2, 5)
    shape.pop("mtp", None)
    if "experts" in shape:
        shape["experts"]["leading_dense"] = 0
    nodes, each = rng.choice(((1, 2), (1, 4), (2, 1), (2, 2), (4, 1), (2, 4), (4, 2)))
    spec["cluster"] |= {"nodes": nodes, "devices_per_node": each}
    typical = draw._typical(rng, shape, spec["workload"]["sequence_length"], nodes * each)
    spec["cluster"]["accelerator"]["hbm"] = f"{typical + 2**31} B"
    spec["search"] = {
        "global_batch": rng.choice((8, 16, 24, [8, 16])),
        "micro_batch": rng.choice((1, [1, 2], [1, 2, 4])),
        "cp": rng.choice((1, 1, [1, 2])),
        "ep": 1,
        "etp": 1,
        "vpp": 1,
        "zero": rng.choice((0, 1, [0, 1], 3)),
        "hsdp": False,
        "offload": False,
        "context": "ring",
        "order": rng.choice(("data_inside", ["data_inside", "pipeline_inside"])),
        "schedule": "1f1b",
        "sequence_parallel": rng.choice((False, True, [False, True])),
        "recompute": rng.choice(("none", "full", ["none", "selective"], ["none", "full"])),
        "idle_devices": False,
    }
    spec["goal"] = "fastest" if rng.random() < 0.9 else "most-headroom"
    spec.pop("framework", None)
    spec.pop("overlap", None)
    return spec


def small_problem(seed: int) -> tuple[Problem, list[Plan], dict[str, list[float]]]:
    """A problem with few plans, all of them, and a box of one to three constants."""
    rng = random.Random(seed)
    while True:
        problem = problem_of(small_spec(rng))
        form = formulate(problem)
        if not 2 <= exhaustive.count(form.program) <= 20_000:
            continue
        plans = every_plan(form, MOST_PLANS)
        if plans is not None and len(plans) >= 2:
            break
    box = {}
    for name, low, high in rng.sample(MOVED, rng.choice((1, 2, 2, 3))):
        ends = sorted(low + (high - low) * rng.random() ** 2 for _ in range(2))
        box[name] = [float(round(end)) if name == "reserve" else end for end in ends]
    return problem, plans, box


def every_plan(form: Formulation, most: int) -> list[Plan] | None:
    """Every plan that has a price, whether or not it fits; None where there are more."""
    tables = [
        s for s in form.program.statements if isinstance(s, Table) and not s.spans and not s.gives
    ]
    found = []
    for point in points(form.program):
        asked = (t for t in tables if set(t.keys) <= point.keys())
        if any(tuple(point[k] for k in t.keys) not in t.index for t in asked):
            continue
        for full in handed_out(form, point):
            plan = form.decode(full)
            if point["schedule"] == 0 or _equal(plan):
                found.append(plan)
            if len(found) > most:
                return None
    return found


def prices(problem: Problem, plans: list[Plan]) -> list[float]:
    """Price of every plan in the goal's unit; infinite where a rule refuses it."""
    form = formulate(problem)
    found = []
    for plan in plans:
        price = estimate(problem, plan)
        holds = judge(problem, form.rules, plan, price).holds
        found.append(goal_of(form, plan, price) if holds else math.inf)
    return found


@dataclass
class Checked:
    """What was found wrong, and what was counted."""

    wrong: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    gaps: list[float] = field(default_factory=list)
    inside: list[float] = field(default_factory=list)


def check_robust(seed: int, into: Checked) -> None:
    """Compare a robust plan with every plan at every corner."""
    problem, plans, box = small_problem(seed)
    found = robust(problem, box=box, time_limit=600.0, seed=seed)
    every = [{axis.constant: axis.value for axis in found.box}, *corners(found.box)]
    table = [prices(with_constants(problem, constants), plans) for constants in every]
    into.counts["problems"] += 1
    into.counts["corners"] += len(every)
    into.counts["plans"] += len(plans)
    least = [min(row) for row in table]
    worst = [
        math.inf
        if any(math.isinf(row[i]) for row in table)
        else max(row[i] / low - 1 for row, low in zip(table, least, strict=True))
        for i in range(len(plans))
    ]
    true = min(worst)
    _judge(seed, found, plans, worst, true, into)


def _judge(
    seed: int, found: Robust, plans: list[Plan], worst: list[float], true: float, into: Checked
) -> None:
    """Hold an answer against the truth."""
    if found.plan is None or found.worst_regret is None or found.bound is None:
        kind = "no plan at some corner" if math.isinf(true) else "not found"
        into.counts[kind] += 1
        if not math.isinf(true):
            into.wrong.append(f"seed {seed}: no answer ({found.why}), a plan has {true:.3g}")
        return
    if found.plan not in plans:
        into.wrong.append(f"seed {seed}: the plan is none of the problem's: {found.plan}")
        return
    own = worst[plans.index(found.plan)]
    if own > found.worst_regret + CLOSE:
        into.wrong.append(f"seed {seed}: regret {own:.9g} exceeds {found.worst_regret:.9g}")
    if found.worst_regret > own + 1e-6:
        into.wrong.append(f"seed {seed}: stated {found.worst_regret:.9g}, it is {own:.9g}")
    if found.proved and true < found.bound - CLOSE:
        into.wrong.append(f"seed {seed}: a plan has {true:.9g}, under the bound {found.bound:.9g}")
    into.counts["proved"] += found.proved
    into.counts["best of all plans"] += own <= true + 1e-6
    into.counts["not the fastest plan"] += found.behind is not None and found.behind > CLOSE
    into.counts["regret above 0.1 %"] += own > 1e-3
    into.gaps.append(found.worst_regret - found.bound)
    if found.inside_regret is not None:
        into.inside.append(found.inside_regret - found.worst_regret)


def check_flips(seed: int, into: Checked) -> None:
    """Compare flip points with the best of all plans on either side of them."""
    problem, plans, _ = small_problem(seed)
    best = _best(problem, plans)
    if best is None:
        return
    found = flips(problem, time_limit=600.0)
    by = {one.name: one for one in parameters(problem)}
    for along in found.along:
        into.counts["parameters"] += 1
        into.counts["not settled"] += not along.complete
        parameter = by[along.parameter]
        for flip, rising in ((along.falls, False), (along.rises, True)):
            if flip is not None:
                _judge_flip(seed, problem, plans, parameter, flip, rising, into)
            _judge_between(seed, problem, plans, parameter, flip, rising, into)


def _best(problem: Problem, plans: list[Plan]) -> float | None:
    """Price of the best plan; None where there is none."""
    least = min(prices(problem, plans))
    return None if math.isinf(least) else least


def _keys(problem: Problem, plans: list[Plan]) -> list[Key]:
    """Choices of every plan, layers apart."""
    form = formulate(problem)
    return [key_of(form.encode(plan)) for plan in plans]


def _holds(problem: Problem, plans: list[Plan], keys: list[Key], key: Key, tie: float) -> bool:
    """Tell whether some way to hand out the layers of one choice is as good as any plan."""
    row = prices(problem, plans)
    own = min((p for p, k in zip(row, keys, strict=True) if k == key), default=math.inf)
    return own <= min(row) * (1 + tie) and not math.isinf(own)


def _judge_flip(
    seed: int,
    problem: Problem,
    plans: list[Plan],
    parameter: Parameter,
    flip: Flip,
    rising: bool,
    into: Checked,
) -> None:
    """Price every plan half a unit of the last digit below and above."""
    into.counts["flips"] += 1
    keys = _keys(problem, plans)
    key = _recommended(problem, plans, keys)
    near, far = (flip.below, flip.above) if rising else (flip.above, flip.below)
    what = f"seed {seed}, {parameter.name} at {flip.at}"
    if not _holds(parameter.put(problem, near), plans, keys, key, 2 * TIE):
        into.wrong.append(f"{what}: the plan is not best before it")
    if _holds(parameter.put(problem, far), plans, keys, key, 0.5 * TIE):
        into.wrong.append(f"{what}: the plan is still best beyond it")
    beyond = _best(parameter.put(problem, far), plans)
    if (flip.plan is None) != (beyond is None):
        into.wrong.append(f"{what}: a plan exists beyond it, or none does")
    if flip.plan is not None and beyond is not None:
        own = prices(parameter.put(problem, far), [flip.plan])[0]
        if own > beyond * (1 + 2 * TIE):
            into.wrong.append(f"{what}: the plan beyond it costs {own:.9g}, another {beyond:.9g}")
    digits = Decimal(flip.at.split()[0])
    unit = Decimal(1).scaleb(int(digits.as_tuple().exponent))
    if abs(digits) >= 1000 or flip.above - flip.below > 1.001 * float(unit) * _size_of(flip):
        into.wrong.append(f"{what}: {flip.below} to {flip.above} is more than its last digit")


def _size_of(flip: Flip) -> float:
    """SI units in the unit that a flip prints in."""
    return flip.value / float(flip.at.split()[0])


def _judge_between(
    seed: int,
    problem: Problem,
    plans: list[Plan],
    parameter: Parameter,
    flip: Flip | None,
    rising: bool,
    into: Checked,
) -> None:
    """Look for a nearer change that was missed, at a few values between."""
    end = parameter.high if rising else parameter.low
    if flip is not None:
        end = flip.below if rising else flip.above
    if abs(end - parameter.now) <= 1e-12:
        return
    keys = _keys(problem, plans)
    key = _recommended(problem, plans, keys)
    for share in (0.2, 0.5, 0.8):
        value = parameter.now + share * (end - parameter.now)
        into.counts["values between"] += 1
        if not _holds(parameter.put(problem, value), plans, keys, key, 2 * TIE):
            into.counts["nearer changes missed"] += 1


def _recommended(problem: Problem, plans: list[Plan], keys: list[Key]) -> Key:
    """Choices of the plan that is recommended now."""
    from optplan.exactly import Clock, best_at

    best = best_at(problem, (), Clock(None))
    assert best is not None
    assert best.key in keys
    assert len(plans) == len(keys)
    return best.key


def seeds(count: int, first: int = 0) -> Iterator[int]:
    """Seeds of random problems."""
    yield from range(first, first + count)


def main() -> int:
    """Check random problems, and print what was counted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--only", choices=("robust", "flips"), default=None)
    asked = parser.parse_args()
    into, start = Checked(), time.monotonic()
    for seed in seeds(asked.count, asked.first):
        if asked.only != "flips":
            check_robust(seed, into)
        if asked.only != "robust":
            check_flips(seed, into)
        done = seed - asked.first + 1
        if done % 10 == 0 or into.wrong:
            print(f"{done} problems, {time.monotonic() - start:.0f} s", *into.wrong, sep="\n  ")
            into.counts["wrong"] += len(into.wrong)
            into.wrong.clear()
            sys.stdout.flush()
    for what, count in into.counts.items():
        print(f"{count:>8,} {what}")
    if into.gaps:
        gaps = sorted(into.gaps)
        print(f"gap of the bound: median {gaps[len(gaps) // 2]:.2g}, largest {gaps[-1]:.2g}")
        print(f"inside beyond the corners: largest {max(into.inside):.2g}")
    return 1 if into.counts["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
