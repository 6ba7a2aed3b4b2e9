"""What is wrong with a launch: broken rules, memory, idle recomputation, impossible speed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from optplan.judge import far_experts, judge, warnings
from optplan.launches.job import Prepared
from optplan.launches.launch import Launch
from optplan.models.cost.estimate import estimate
from optplan.models.cost.price import PHASES, Estimate, StageUse
from optplan.models.record import Record
from optplan.models.rules.registry import Rule
from optplan.models.spec.plan import Plan
from optplan.models.spec.problem import Problem
from optplan.models.units import bytes_text, seconds_text

RISKY = 0.05
"""A chance to run out of memory above this is warned about."""

ABOUT = {
    "degrees.heads": ("tp", "heads"),
    "degrees.kv_heads": ("tp", "kv_heads"),
    "degrees.ffn": ("tp", "ffn"),
    "degrees.sequence_parallel": ("sequence_length", "cp", "tp"),
    "degrees.context": ("cp", "sequence_length"),
    "degrees.zero": ("zero",),
    "degrees.hsdp": ("hsdp",),
    "degrees.world": ("nodes", "tp"),
    "experts.count": ("ep", "experts.count"),
    "experts.world": ("ep", "etp"),
    "experts.etp": ("etp", "tp"),
    "experts.sequence_parallel": ("tp",),
    "batch.split": ("global_batch", "micro_batch"),
    "pipeline.chunks": ("vpp",),
    "pipeline.layers": ("layers_per_stage", "pp", "layers"),
    "pipeline.interleaved": ("vpp", "global_batch"),
    "pipeline.two_stages": ("vpp", "pp"),
}
"""Values whose statement a broken rule points at, the first that is stated."""


class DoctorFinding(Record):
    """One thing that is wrong with a launch, or worth to know."""

    rule: str
    """A short name: a rule of ``optplan rules``, or what a dialect calls it."""
    severity: str
    """``error``: it stops, trains something else or runs out of memory; ``warning``: it wastes or
    risks; ``note``: worth to know."""
    line: int
    """Line of the file, counted from 1; 0 where there is none."""
    problem: str
    """What is wrong, with its numbers."""
    remedy: str
    """What would be right."""


def line_of(launch: Launch, *names: str) -> int:
    """Return the line of the first of some values that the launch states."""
    for name in names:
        found = launch.find(name)
        if found is not None and found.line:
            return found.line
    return 0


def products(launch: Launch, problem: Problem, plan: Plan) -> tuple[str, ...]:
    """
    Write out the products of groups: dense and expert, of a stage and of all devices.

    Defaults that were applied are named.
    """
    dense = plan.tp * plan.cp * plan.dp
    world = problem.devices
    lines = [
        f"dense: tp {plan.tp} * cp {plan.cp} * dp {plan.dp} = {dense} devices of a stage",
        f"dense: {dense} * pp {plan.pp} = {dense * plan.pp} of {world} devices",
    ]
    if problem.workload.architecture.experts is not None:
        expert = plan.etp * plan.ep
        rest, over = divmod(dense, expert)
        data = f"{rest}" if not over else f"{dense}/{expert}"
        lines += [
            f"experts: etp {plan.etp} * ep {plan.ep} * edp {data} = {dense} devices of a stage",
            f"experts: etp {plan.etp} * ep {plan.ep} * pp {plan.pp} = {expert * plan.pp}, which "
            f"must divide {world} devices",
        ]
        lines += [
            f"etp {s.value} by default: {s.written}" for s in launch.assumed if s.name == "etp"
        ]
    return tuple(lines)


def structural(
    prepared: Prepared, rules: Iterable[Rule], price: Estimate
) -> Iterator[DoctorFinding]:
    """Ask every rule that needs no price, and what the dialect saw."""
    launch, problem, plan = prepared.launch, prepared.problem, prepared.plan
    for one in launch.remarks:
        yield DoctorFinding(
            rule=one.rule,
            severity=one.severity,
            line=one.line,
            problem=one.problem,
            remedy=one.remedy,
        )
    told = {one.rule.partition(".")[2] for one in launch.remarks if one.severity == "error"}
    verdict = judge(problem, rules, plan, price)
    for name, text in verdict.broken.items():
        base = name.partition("[")[0]
        family = base.partition(".")[0]
        if family in ("search", "limits", "capacity"):
            continue
        if base == "pipeline.layers" and told & {"layers-lost", "last-stage-alone", "layout"}:
            continue
        if base == "degrees.zero" and "degrees.world" in verdict.broken:
            continue
        said, _, legal = text.partition("; ")
        severity = "error"
        if name == "pipeline.layers[stages]" or (base == "pipeline.layers" and _laid_out(prepared)):
            severity, legal = "note", "priced as if chunks were equal, which is an upper bound"
        if base == "degrees.world" or base == "experts.world":
            said += f" ({'; '.join(products(launch, problem, plan))})"
        yield DoctorFinding(
            rule=base,
            severity=severity,
            line=line_of(launch, *ABOUT.get(base, ())),
            problem=said,
            remedy=legal or "see optplan rules",
        )
    for text in far_experts(problem, plan):
        said, _, remedy = text.partition("; ")
        yield DoctorFinding(
            rule="experts.node",
            severity="warning",
            line=line_of(launch, "ep", "etp"),
            problem=said,
            remedy=remedy,
        )


def _laid_out(prepared: Prepared) -> bool:
    """Tell whether uneven chunks are what the launch asks for, and its framework can do it."""
    framework, plan = prepared.problem.framework, prepared.plan
    layers = prepared.problem.workload.architecture.layers
    able = framework is not None and framework.uneven_layers
    return able and plan.vpp > 1 and sum(plan.layers_per_stage) == layers


def priced(prepared: Prepared, rules: Iterable[Rule], price: Estimate) -> Iterator[DoctorFinding]:
    """Ask what memory and time say."""
    launch, problem, plan = prepared.launch, prepared.problem, prepared.plan
    verdict = judge(problem, rules, plan, price)
    memory = price.memory
    recompute = line_of(launch, "recompute", "micro_batch", "tp")
    over = [use for use in memory.stages if use.peak_bytes > memory.capacity_bytes]
    if over:
        worst = max(over, key=lambda use: use.peak_bytes)
        stages = ", ".join(str(use.stage) for use in over[:8]) + (", ..." if len(over) > 8 else "")
        yield DoctorFinding(
            rule="memory.out",
            severity="error",
            line=recompute,
            problem=f"out of memory on stage {stages} of {plan.pp}: {_use_text(worst, memory)}",
            remedy="see the corrected launch below",
        )
    elif memory.risk is not None and memory.risk > RISKY:
        worst = memory.stages[memory.binding_stage]
        yield DoctorFinding(
            rule="memory.risk",
            severity="warning",
            line=recompute,
            problem=f"{memory.risk:.0%} risk to run out of memory: {_use_text(worst, memory)}",
            remedy="recompute more, shard more, or set a limit such as peak_memory <= "
            f"{int(0.95 * memory.capacity_bytes / 2**30)} GiB in a spec",
        )
    for name, text in verdict.broken.items():
        if name.startswith(("limits.", "capacity.host")):
            yield DoctorFinding(
                rule=name, severity="warning", line=0, problem=text, remedy="a limit of the spec"
            )
    if not over:
        yield from _recompute(prepared, price)
    for text in warnings(problem, plan, price):
        if text in far_experts(problem, plan):
            continue
        said, _, remedy = text.partition("; ")
        yield DoctorFinding(
            rule="cost.note", severity="note", line=0, problem=said, remedy=remedy or "nothing"
        )


def _use_text(use: StageUse, memory: object) -> str:
    """Say what fills a stage, and when."""
    phase = max(PHASES, key=lambda name: use.phases.get(name, 0))
    capacity = getattr(memory, "capacity_bytes", 0)
    held = ", ".join(f"{name} {bytes_text(n)}" for name, n in use.parts.items() if n)
    return (
        f"stage {use.stage} holds {bytes_text(use.peak_bytes)} of {bytes_text(capacity)}, fullest "
        f"in phase {phase} ({held})"
    )


def _recompute(prepared: Prepared, price: Estimate) -> Iterator[DoctorFinding]:
    """Look whether recomputation saves memory that nobody needs."""
    problem, plan = prepared.problem, prepared.plan
    if plan.recompute == "none":
        return
    none = (0,) * plan.pp
    for word in ("none", "selective"):
        if word == plan.recompute:
            return
        less = plan.model_copy(update={"recompute": word, "recomputed_layers_per_stage": none})
        its = estimate(problem, less)
        safe = its.memory.risk is None or its.memory.risk <= RISKY
        saved = 1 - its.step_seconds / price.step_seconds
        if its.memory.fits and safe and saved > 0:
            kept = its.memory.peak_bytes - price.memory.peak_bytes
            saves = f"saves {bytes_text(kept)} that nobody needs" if kept > 0 else "saves nothing"
            yield DoctorFinding(
                rule="recompute.useless",
                severity="warning",
                line=line_of(prepared.launch, "recompute"),
                problem=f"recomputation ({plan.recompute}) {saves}: with {word} "
                f"the fullest stage peaks at {bytes_text(its.memory.peak_bytes)} of "
                f"{bytes_text(its.memory.capacity_bytes)}",
                remedy=f"recompute {word}: {seconds_text(its.step_seconds)} a step instead of "
                f"{seconds_text(price.step_seconds)} ({saved:.1%} less)",
            )
            return


def speed(
    launch: Launch, problem: Problem, price: Estimate, measured_seconds: float | None
) -> Iterator[DoctorFinding]:
    """Ask whether the throughput that is claimed can be."""
    work, device = problem.workload, problem.cluster.accelerator
    peak = float(device.peak[work.precision])
    named = f"{peak / 1e12:,.0f} TFLOP/s, the dense {work.precision} peak of {device.name}"
    found = launch.find("measured_step_seconds")
    told = found.value if found is not None else None
    step = measured_seconds or (float(told) if isinstance(told, int | float) else None)
    line = found.line if found is not None and measured_seconds is None else 0
    if step:
        mfu = price.mfu * price.step_seconds / step
        text = f"{seconds_text(step)} a step as measured is {mfu:.1%} of {named}"
        if mfu > 1:
            yield DoctorFinding(
                rule="speed.impossible",
                severity="error",
                line=line,
                problem=f"{text}: no device computes that",
                remedy="check that the launch trains the network it should, with all its layers",
            )
        else:
            predicted = f"predicted are {seconds_text(price.step_seconds)}, {price.mfu:.1%}"
            yield DoctorFinding(
                rule="speed.measured", severity="note", line=line, problem=text, remedy=predicted
            )
    rate = launch.find("measured_tflops")
    if rate is not None and isinstance(rate.value, int | float):
        share = float(rate.value) * 1e12 / peak
        if share > 1:
            yield DoctorFinding(
                rule="speed.impossible",
                severity="error",
                line=rate.line,
                problem=f"the log claims {rate.value:,.0f} TFLOP/s a device, {share:.0%} of "
                f"{named}",
                remedy="check that the launch trains the network it should; the peak with sparsity "
                "is twice the dense one, and no training reaches it",
            )
