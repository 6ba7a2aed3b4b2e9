"""Better launches for the job of one: the nearest legal one, and the best."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations

from optplan.export import near
from optplan.findings import DoctorFinding
from optplan.judge import judge
from optplan.launches.amending import ENVIRONMENT
from optplan.launches.job import Prepared
from optplan.launches.launch import Dialect, Launch, Value
from optplan.models.cost.estimate import estimate
from optplan.models.cost.price import Estimate
from optplan.models.domains import coded
from optplan.models.errors import InputError
from optplan.models.formulate import Formulation, formulate
from optplan.models.record import Record
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

SHOWN = (*KEPT, "global_batch", "layers_per_stage", "recomputed_layers_per_stage")
"""Values that a proposal lists as changed."""

MENDED_BY = {
    "layers-lost": ("layers_per_stage", "vpp", "schedule"),
    "last-stage-alone": ("layers_per_stage",),
    "chunks": ("vpp", "schedule", "layers_per_stage"),
    "layout": ("layers_per_stage",),
    "recompute-incomplete": ("recompute", "recomputed_layers_per_stage"),
    "recompute-refused": ("recompute",),
    "offload-refused": ("offload",),
    "experts-missing": ("ep",),
}
"""Values that are written anew where a dialect refuses how they are written, by its rule."""


MOST_TRIES = 24
"""Ways to let go of one or two choices that are tried."""

CLASHING: dict[str, tuple[str, ...]] = {
    "capacity": ("recompute", "sequence_parallel", "zero", "offload", "micro_batch", "cp", "pp"),
    "batch": ("micro_batch", "dp", "cp"),
    "degrees.world": ("dp", "cp", "pp", "tp"),
    "pipeline": ("vpp", "schedule", "pp"),
}
"""Choices that a rule or its family is about, where the rule does not say."""

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

Fixed = dict[str, tuple[int, ...]]
"""Choices that are fixed, each to one value of the program."""


class Proposal(Record):
    """Another launch for the same job."""

    plan: Plan
    """The plan that it launches."""
    changes: dict[str, str]
    """What it changes: ``8 -> 4`` by name."""
    patch: str
    """Unified diff to the file that was read; empty where it is written anew."""
    text: str
    """The whole file."""
    step_seconds: float | None = None
    """Predicted step; none without a machine."""
    tokens_per_second: float | None = None
    """Predicted throughput of all devices."""
    gain: float | None = None
    """Share of the step that it saves against the launch that was read; none where that one
    cannot run."""
    error: str = ""
    """Held-out error of the cost model, as printed beside every answer."""
    within_error: bool = False
    """Whether the gain is smaller than that error."""
    proven: bool = True
    """Whether it is proved to be the best (for the best one)."""


def corrected(
    prepared: Prepared, speaks: Dialect, source: str, findings: Sequence[DoctorFinding]
) -> Proposal | None:
    """
    Find the nearest launch that every rule lets pass; None where there is none.

    Values are kept one after the other, as long as some legal plan has all that were kept; the
    optimiser chooses the rest.
    """
    plan = nearest_plan(prepared)
    if plan is None:
        return None
    forced = _forced(findings, plan)
    return proposed(prepared, speaks, source, plan, forced)


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


def best(
    prepared: Prepared,
    speaks: Dialect,
    source: str,
    solve: Callable[[Problem], tuple[Plan | None, bool]],
) -> Proposal | None:
    """Find the best launch for the same job; None where the launch is the best already."""
    plan, proven = solve(prepared.problem)
    if plan is None:
        return None
    found = proposed(prepared, speaks, source, plan, ())
    return None if found is None else found.model_copy(update={"proven": proven})


def proposed(
    prepared: Prepared,
    speaks: Dialect,
    source: str,
    plan: Plan,
    forced: Iterable[str],
) -> Proposal | None:
    """Write a plan into the launch's own file; None where its framework launches nothing near."""
    problem = prepared.problem
    assert problem.framework is not None
    version = problem.framework.name.partition("@")[2]
    form_rules = formulate(problem).rules
    try:
        whole = speaks.write(problem, plan, version)
    except InputError:
        found = near(problem, plan, speaks, form_rules)
        if found is None:
            return None
        plan, whole = found
    changes = _changes(prepared, plan)
    extra = {name: getattr(plan, name, None) for name in forced if name in Plan.model_fields}
    more: dict[str, Value] = {n: v for n, v in extra.items() if v is not None}
    environment = {n: n.partition("=")[2] for n in forced if n.startswith(ENVIRONMENT)}
    more |= {n.partition("=")[0]: value for n, value in environment.items()}
    values = {name: getattr(plan, name) for name in changes}
    text = _amended(speaks, source, {**values, **more})
    patch = ""
    if text is not None:
        patch = "".join(
            difflib.unified_diff(
                source.splitlines(keepends=True),
                text.splitlines(keepends=True),
                "launch",
                "launch, mended",
            )
        )
    shown = {
        name: f"{_said(getattr(prepared.plan, name))} -> {_said(getattr(plan, name))}"
        for name in changes
    }
    shown |= {n.partition("=")[0].removeprefix(ENVIRONMENT): v for n, v in environment.items()}
    found_ = Proposal(plan=plan, changes=shown, patch=patch, text=whole if text is None else text)
    return _with_price(prepared, found_) if prepared.priced else found_


def _amended(speaks: Dialect, source: str, values: Mapping[str, Value]) -> str | None:
    """Change the file; None where it must be written anew."""
    if not values:
        return source
    try:
        return speaks.amend(source, values)
    except InputError:
        return None


def _changes(prepared: Prepared, plan: Plan) -> list[str]:
    """Return what of a launch a plan changes."""
    old = prepared.plan
    names = [n for n in SHOWN if n != "dp" and getattr(old, n) != getattr(plan, n)]
    if "pp" in names and "layers_per_stage" in names and len(set(plan.layers_per_stage)) == 1:
        names.remove("layers_per_stage")
    if plan.recompute != "full" and "recomputed_layers_per_stage" in names:
        names.remove("recomputed_layers_per_stage")
    return names


def _forced(findings: Iterable[DoctorFinding], plan: Plan) -> list[str]:
    """Return what must be written anew though its value is right."""
    found: list[str] = []
    for one in findings:
        if one.severity != "error":
            continue
        found += MENDED_BY.get(one.rule.partition(".")[2], ())
        told = re.fullmatch(r"export (\w+)=(\w+)", one.remedy)
        if told:
            found.append(f"{ENVIRONMENT}{told[1]}={told[2]}")
    return list(dict.fromkeys(found))


def _with_price(prepared: Prepared, proposal: Proposal) -> Proposal:
    """Add time, throughput, and what is gained against the launch as it is."""
    problem, old = prepared.problem, prepared.plan
    price = estimate(problem, proposal.plan)
    tokens = proposal.plan.global_batch * problem.workload.sequence_length / price.step_seconds
    gain = None
    if runs(prepared):
        before = estimate(problem, old)
        same = proposal.plan.global_batch / old.global_batch
        gain = 1 - price.step_seconds / (before.step_seconds * same)
    accuracy = problem.accuracy
    error = accuracy.held_out
    within = gain is not None and error is not None and abs(gain) <= error
    return proposal.model_copy(
        update={
            "step_seconds": price.step_seconds,
            "tokens_per_second": tokens,
            "gain": gain,
            "error": accuracy.error,
            "within_error": within,
        }
    )


def runs(prepared: Prepared, price: Estimate | None = None) -> bool:
    """Tell whether a launch's own plan could run at all: its products fit and it has memory."""
    problem, plan = prepared.problem, prepared.plan
    whole = sum(plan.layers_per_stage) == problem.workload.architecture.layers
    fits = plan.devices == problem.devices
    split = plan.micro_batch * plan.micro_batches * plan.dp == plan.global_batch
    if not (whole and fits and split):
        return False
    return (price or estimate(problem, plan)).memory.fits


def _said(value: object) -> str:
    """Write a value of a plan."""
    if isinstance(value, tuple):
        parts: list[str] = []
        for one in value:
            if parts and parts[-1].split("*")[0] == str(one):
                count = int(parts[-1].partition("*")[2] or 1) + 1
                parts[-1] = f"{one}*{count}"
            else:
                parts.append(str(one))
        return ",".join(parts)
    return (
        {True: "on", False: "off"}.get(value, str(value)) if isinstance(value, bool) else str(value)
    )


__all__ = ["Launch", "Proposal", "best", "corrected", "judge", "nearest_plan", "runs"]
