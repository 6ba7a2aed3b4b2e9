"""One question of a public thread, and how our answer is held against the right one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import optplan
from optplan.judge import judge
from optplan.models.cost.estimate import estimate
from optplan.models.cost.price import Estimate
from optplan.models.domains import coded
from optplan.models.formulate import CHOICES, plan_of
from optplan.models.rules.registry import rules as every_rule
from optplan.models.spec.plan import Plan
from optplan.result import Verdict
from tests.optplan.threads import GIB


@dataclass(frozen=True)
class Answer:
    """What optplan says to a question."""

    text: str
    """Our answer, with the numbers that were computed."""
    agrees: bool
    """Whether it is the right one."""


@dataclass(frozen=True)
class Case:
    """A row of the table."""

    name: str
    """The row's short name: ``D1``."""
    thread: str
    """Where it was asked."""
    asked: str
    """The job and the trouble, in few words."""
    right: str
    """The right answer."""
    answer: Callable[[], Answer]
    """Computes ours."""
    why: str = ""
    """Where ours is another one: why."""


ONES = ("tp", "pp", "dp", "cp", "ep", "etp", "vpp", "micro_batch", "micro_batches")
"""Choices that are 1 where nothing is said."""

CASES: dict[str, Case] = {}
"""Every case by its name, in the order of the table."""


def case(
    name: str, thread: str, asked: str, right: str, why: str = ""
) -> Callable[[Callable[[], Answer]], Callable[[], Answer]]:
    """Enter a function that computes an answer into the table."""

    def enter(answer: Callable[[], Answer]) -> Callable[[], Answer]:
        assert name not in CASES, name
        CASES[name] = Case(name, thread, asked, right, answer, why)
        return answer

    return enter


@dataclass(frozen=True)
class Priced:
    """A whole plan, judged; its optimum is not looked for."""

    plan: Plan
    estimate: Estimate
    verdict: Verdict


def priced(asked: Mapping[str, Any], **plan: Any) -> Priced:
    """
    Judge a plan of the values given, and of the single values that the spec gives.

    What neither says is plain: one of a degree, nothing of a flag; data ranks and micro-batches
    are what the products leave.
    """
    problem = optplan.load(asked)
    single = {n: v for n, v in asked["search"].items() if not isinstance(v, dict | list)}
    given = {n: v for n, v in {**single, **plan}.items() if n in CHOICES}
    full = {name: int(name in ONES) for name in CHOICES}
    full |= {name: coded(name, value) for name, value in given.items()}
    if full["vpp"] > 1 and "schedule" not in given:
        full["schedule"] = coded("schedule", "interleaved")
    if "dp" not in given:
        full["dp"] = problem.devices // (full["tp"] * full["pp"] * full["cp"])
    full["micro_batches"] = full["global_batch"] // (full["dp"] * full["micro_batch"])
    whole = plan_of(problem, full)
    if "layers_per_stage" in plan:
        held = tuple(plan["layers_per_stage"])
        again = held if whole.recompute == "full" else (0,) * len(held)
        changed = {"layers_per_stage": held, "recomputed_layers_per_stage": again}
        whole = whole.model_copy(update=changed)
    price = estimate(problem, whole)
    rules = [rule for rule in every_rule() if rule.applies(problem)]
    return Priced(whole, price, judge(problem, tuple(rules), whole, price))


def gib(value: float) -> str:
    """Write bytes as GiB."""
    return f"{value / GIB:.1f} GiB"


def allocated(answer: Priced) -> str:
    """Write what an allocator would count on the fullest device."""
    return gib(answer.estimate.memory.allocated_bytes or 0)


def near(value: float, wanted: float, share: float) -> bool:
    """Tell whether a value is right to within a share."""
    return abs(value / wanted - 1) <= share


def holds(answer: Priced) -> str:
    """Say in a word whether a plan obeys every rule."""
    return "fits" if answer.verdict.holds else "does not fit"
