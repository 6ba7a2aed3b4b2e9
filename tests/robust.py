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
from functools import cache, cached_property, lru_cache
from typing import Any

from optplan.box import axes_of, corners, with_constants
from optplan.certificate import goal_of
from optplan.exactly import Clock, Key, best_at, key_of
from optplan.flips import TIE, flips
from optplan.judge import judge
from optplan.models.cost.estimate import estimate, step_seconds
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
from tests.brute import equal_chunks, handed_out, points

MOST_PLANS = 120
"""Plans of one problem at most, so that all can be priced at every corner."""

PARAMETERS = 3
"""Parameters of a problem that flip points are asked for."""

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
        "global_batch": rng.choice((4, 8, 16, 24, [8, 16])),
        "dp": rng.choice(([1, 2], [1, 2, 4], [1, 2, 4, 8])),
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


@dataclass(frozen=True)
class Small:
    """A problem with few plans, all of them, and a box of one to three constants."""

    problem: Problem
    plans: list[Plan]
    box: dict[str, list[float]]

    @cached_property
    def form(self) -> Formulation:
        """The problem as a program; its rules are those under any constants."""
        return formulate(self.problem)

    @cached_property
    def keys(self) -> list[Key]:
        """Choices of every plan, layers apart."""
        return [key_of(self.form.encode(plan)) for plan in self.plans]

    @cached_property
    def recommended(self) -> Key:
        """Choices of the plan that is recommended now."""
        best = best_at(self.problem, (), Clock(None))
        assert best is not None
        return best.key

    def prices(self, problem: Problem) -> list[float]:
        """Price of every plan under other constants; infinite where a rule refuses it."""
        allowed = self.allowed(problem.cluster.accelerator.hbm, problem.calibration.reserve)
        if problem.goal != "fastest":
            priced = [goal_of(self.form, p, estimate(problem, p)) for p in self.plans]
        else:
            priced = [step_seconds(problem, p) / p.global_batch for p in self.plans]
        return [p if ok else math.inf for p, ok in zip(priced, allowed, strict=True)]

    @cache  # noqa: B019  # as many entries as sizes of memory that are asked about
    def allowed(self, hbm: int, reserve: int) -> list[bool]:
        """Tell of every plan whether all rules hold: of constants they read the reserve alone."""
        problem = self.problem.with_accelerator(hbm=hbm).with_calibration(reserve=reserve)
        rules = self.form.rules
        return [judge(problem, rules, p, estimate(problem, p)).holds for p in self.plans]

    __hash__ = object.__hash__

    def holds(self, problem: Problem, tie: float) -> bool:
        """Tell whether the recommendation, its layers handed out anew, is as good as any plan."""
        row = self.prices(problem)
        mine = (p for p, k in zip(row, self.keys, strict=True) if k == self.recommended)
        own = min(mine, default=math.inf)
        return own <= min(row) * (1 + tie) and not math.isinf(own)


@lru_cache(maxsize=1)
def small_problem(seed: int) -> Small:
    """
    A problem with few plans; in most the corners of the box disagree on the best one.

    Others are drawn again four times in five, or the answer would nearly always be the fastest
    plan.
    """
    rng = random.Random(seed)
    while True:
        problem = problem_of(small_spec(rng))
        form = formulate(problem)
        if not 2 <= exhaustive.count(form.program) <= 20_000:
            continue
        plans = every_plan(form, MOST_PLANS)
        if plans is None or len(plans) < 2:
            continue
        box = {}
        for name, low, high in rng.sample(MOVED, rng.choice((1, 2, 2, 3))):
            ends = sorted(low + (high - low) * rng.random() ** 2 for _ in range(2))
            box[name] = [float(round(end)) if name == "reserve" else end for end in ends]
        small = Small(problem, plans, box)
        axes = axes_of(problem, box, ())
        rows = [small.prices(with_constants(problem, one)) for one in corners(axes)]
        if len({row.index(min(row)) for row in rows}) > 1 or rng.random() < 0.2:
            return small


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
            if point["schedule"] == 0 or equal_chunks(plan):
                found.append(plan)
            if len(found) > most:
                return None
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
    small = small_problem(seed)
    found = robust(small.problem, box=small.box, time_limit=3600.0, seed=seed, inside=3)
    every = [{axis.constant: axis.value for axis in found.box}, *corners(found.box)]
    table = [small.prices(with_constants(small.problem, constants)) for constants in every]
    into.counts["problems"] += 1
    into.counts["corners"] += len(every)
    into.counts["plans"] += len(small.plans)
    least = [min(row) for row in table]
    worst = [
        math.inf
        if any(math.isinf(row[i]) for row in table)
        else max(row[i] / low - 1 for row, low in zip(table, least, strict=True))
        for i in range(len(small.plans))
    ]
    _judge(seed, found, small.plans, worst, min(worst), into)


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
    small = small_problem(seed)
    if math.isinf(min(small.prices(small.problem))):
        into.counts["without a plan"] += 1
        return
    by = {one.name: one for one in parameters(small.problem)}
    some = random.Random(seed).sample(sorted(by), min(PARAMETERS, len(by)))
    found = flips(small.problem, only=some, time_limit=3600.0)
    into.counts["problems with flips asked"] += 1
    for along in found.along:
        into.counts["parameters"] += 1
        into.counts["not settled"] += not along.complete
        parameter = by[along.parameter]
        for flip, rising in ((along.falls, False), (along.rises, True)):
            if flip is not None:
                _judge_flip(seed, small, parameter, flip, rising, into)
            if along.complete:
                _judge_between(small, parameter, flip, rising, into)


def _judge_flip(
    seed: int, small: Small, parameter: Parameter, flip: Flip, rising: bool, into: Checked
) -> None:
    """Price every plan half a unit of the last digit below and above."""
    into.counts["flips"] += 1
    near, far = (flip.below, flip.above) if rising else (flip.above, flip.below)
    what = f"seed {seed}, {parameter.name} at {flip.at}"
    if not small.holds(parameter.put(small.problem, near), 2 * TIE):
        into.wrong.append(f"{what}: the plan is not best before it")
    beyond = parameter.put(small.problem, far)
    if small.holds(beyond, 0.5 * TIE):
        into.wrong.append(f"{what}: the plan is still best beyond it")
    row = small.prices(beyond)
    if (flip.plan is None) != math.isinf(min(row)):
        into.wrong.append(f"{what}: a plan exists beyond it, or none does")
    elif flip.plan is not None and row[small.plans.index(flip.plan)] > min(row) * (1 + 2 * TIE):
        into.wrong.append(f"{what}: the plan beyond it is not the best there")
    unit = 10.0 ** int(Decimal(flip.at.split()[0]).as_tuple().exponent)
    if flip.above - flip.below > 1.001 * unit * _size_of(flip):
        into.wrong.append(f"{what}: {flip.below} to {flip.above} is more than its last digit")


def _size_of(flip: Flip) -> float:
    """SI units in the unit that a flip prints in."""
    return flip.value / float(flip.at.split()[0])


def _judge_between(
    small: Small, parameter: Parameter, flip: Flip | None, rising: bool, into: Checked
) -> None:
    """Look for a nearer change that was missed, at a few values between."""
    end = parameter.high if rising else parameter.low
    if flip is not None:
        end = flip.below if rising else flip.above
    if abs(end - parameter.now) <= 1e-12:
        return
    for share in (0.25, 0.6, 0.9):
        value = parameter.now + share * (end - parameter.now)
        into.counts["values between"] += 1
        if not small.holds(parameter.put(small.problem, value), 2 * TIE):
            into.counts["nearer changes missed"] += 1


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
        if done % 5 == 0 or into.wrong:
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
