"""The legal plan that changes least of a launch."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations

from optplan.judge import judge
from optplan.launches.job import Prepared
from optplan.models.cost.estimate import estimate
from optplan.models.domains import coded
from optplan.models.formulate import Formulation, formulate
from optplan.models.spec.plan import Plan
from optplan.models.spec.problem import Problem
from optplan.solvers import exhaustive
from optplan.solvers.base import SolverConfig
from optplan.solvers.proved import proved
from optplan.solvers.search import Search

KEPT = (
    *("tp", "pp", "cp", "ep", "etp", "dp", "micro_batch", "vpp", "schedule"),
    *("sequence_parallel", "zero", "context", "order", "hsdp", "offload", "recompute"),
)
"""
Choices of a launch that a correction keeps where it can, dearest first: recomputation and sharding
give way before degrees do, and the global batch, which changes what is learned, before anything.
"""


MOST_TRIES = 24
"""Ways to let go of one or two choices that are tried."""


CLASHING: dict[str, tuple[str, ...]] = {
    "capacity": ("recompute", "sequence_parallel", "zero", "offload", "micro_batch", "cp", "pp"),
    "batch": ("micro_batch", "dp", "cp"),
    "degrees.world": ("dp", "cp", "pp", "tp"),
    "pipeline": ("vpp", "schedule", "pp"),
}
"""Choices that a rule or its family is about, where the rule does not say."""


Fixed = dict[str, tuple[int, ...]]
"""Choices that are fixed, each to one value of the program."""

TIED: dict[str, tuple[str, ...]] = {
    "tp": ("dp",),
    "pp": ("dp",),
    "cp": ("dp",),
    "vpp": ("schedule",),
    "schedule": ("vpp",),
}
"""Choices that cannot change alone."""

NUMBERS = ("tp", "pp", "cp", "ep", "etp", "dp", "micro_batch", "vpp")
"""Choices that are numbers, of which one is nearer than another."""

NEAR_BATCH = 0.1
"""A batch that differs by no more than this share is a smaller change than other degrees are."""

DEGREES = ("tp", "pp", "cp", "ep", "etp", "dp")
"""Choices that a batch nearby is worth."""


def nearest_plan(prepared: Prepared) -> Plan | None:
    """Return the legal plan that keeps most of a launch's; None where none is legal."""
    plan = prepared.plan
    suspects = _suspects(prepared)
    ranked: list[tuple[tuple[bool, ...], int, Plan]] = []
    for batch in _batches(plan):
        near_ = abs(batch / plan.global_batch - 1) <= NEAR_BATCH
        for order, layers in enumerate(_layers(prepared)):
            found = _kept(_formulated(prepared.problem, batch, layers), plan, suspects)
            if found is None:
                continue
            degrees = all(getattr(found, n) == getattr(plan, n) for n in DEGREES)
            same = tuple(getattr(found, n) == getattr(plan, n) for n in KEPT)
            # First the degrees, for which the batch may move a little; then the batch; then all.
            key = (degrees and near_, batch == plan.global_batch, *same)
            ranked.append((key, -order, found))
            if key[0] and key[1]:
                return found
        if any(key[0] for key, _, _ in ranked):
            break
    return max(ranked, key=lambda one: one[:2])[2] if ranked else None


def _suspects(prepared: Prepared) -> list[str]:
    """Return the choices that broken rules are about, least dear first."""
    problem, plan = prepared.problem, prepared.plan
    found: set[str] = set()
    rules_ = formulate(problem).rules
    verdict = judge(problem, rules_, plan, estimate(problem, plan))
    broken = {name.partition("[")[0] for name in verdict.broken}
    for rule in rules_:
        if rule.name in broken:
            found.update(getattr(rule, "keys", ()))
            family = rule.name.partition(".")[0]
            found.update(CLASHING.get(rule.name, CLASHING.get(family, ())))
    for name, others in TIED.items():
        if name in found:
            found.update(others)
    return [name for name in reversed(KEPT) if name in found]


def _formulated(problem: Problem, batch: int, layers: tuple[int, ...] | str) -> Formulation:
    """Formulate a problem for one batch and a way to hand out layers."""
    changed = {"global_batch": batch, "layers_per_stage": layers}
    search = problem.search.model_copy(update=changed)
    return formulate(problem.model_copy(update={"search": search}))


def _batches(plan: Plan) -> Iterable[int]:
    """Global batches to try: the launch's own, then the nearest that its degrees divide."""
    yield plan.global_batch
    unit = plan.micro_batch * plan.dp
    low = plan.global_batch // unit * unit
    yield from (batch for batch in (low, low + unit) if batch and batch != plan.global_batch)


def _layers(prepared: Prepared) -> Iterable[tuple[int, ...] | str]:
    """Layers per stage to try: the launch's own, equal ones, any."""
    total = prepared.problem.workload.architecture.layers
    held = prepared.plan.layers_per_stage
    if sum(held) == total and min(held) > 0 and len(set(held)) > 1 and prepared.plan.vpp == 1:
        yield held
    else:
        yield "even"
    yield "any"


def _kept(form: Formulation, plan: Plan, suspects: Sequence[str]) -> Plan | None:
    """
    Keep as many of a plan's choices as some legal plan has.

    Of the choices that broken rules are about as few as can be are let go, least dear first; of a
    number that is let go the nearest value is taken that some legal plan has. Where that is not
    enough all of them go, and then everything.
    """
    wanted = {name: coded(name, getattr(plan, name)) for name in KEPT}
    again = plan.recomputed_layers_per_stage
    if plan.recompute == "full" and again != plan.layers_per_stage:
        wanted["recompute"] = coded("recompute", "partial")
    domain = form.program.domain
    if not exhaustive.count(form.program):
        return None
    everything: Fixed = {n: (v,) for n, v in wanted.items() if v in domain[n]}
    lost = [name for name in KEPT if name not in everything]
    cheap = [name for name in suspects if name in everything]
    tries = [drop for few in range(3) for drop in combinations(cheap, few)][:MOST_TRIES]
    wider = [cheap]
    for more in (("dp", "cp", "pp"), ("micro_batch", "zero", "ep", "etp"), ("vpp", "schedule")):
        wider.append([*wider[-1], *more])
    for drop in (*tries, *map(tuple, wider)):
        rest: Fixed = {n: v for n, v in everything.items() if n not in drop}
        found = _one(form, rest)
        if found is not None:
            return form.decode(_nearby(form, rest, found, wanted, [*lost, *drop]))
    found = _one(form, {})
    return form.decode(found) if found is not None else None


def _nearby(
    form: Formulation,
    fixed: Fixed,
    found: Mapping[str, int],
    wanted: Mapping[str, int],
    free: Sequence[str],
) -> Mapping[str, int]:
    """Take the nearest value of each number that was let go, as long as some plan has it."""
    for name in [n for n in KEPT if n in free and n in NUMBERS]:
        near_to = wanted[name]
        values = sorted(form.program.domain[name], key=lambda v: abs(math.log(v / near_to)))[:4]
        for value in values:
            again = _one(form, fixed | {name: (value,)})
            if again is not None:
                fixed, found = fixed | {name: (value,)}, again
                break
    return found


def _one(form: Formulation, fixed: Fixed) -> Mapping[str, int] | None:
    """Return the best assignment with some choices fixed; None where no plan has them."""
    program = form.program.fixed(fixed)
    if not exhaustive.count(program):
        return None
    config = SolverConfig(seconds=60.0)
    found = Search(program, config).run()
    best = proved(program, config).best if found.hard else found.outcome.best
    return best[0] if best else None
