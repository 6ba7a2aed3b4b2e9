"""The answer on one screen."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from optplan.judge import TIGHT
from optplan.models.cost.price import NEW_TERMS, PARTS, TERMS, Estimate
from optplan.models.numbers import counted
from optplan.models.rules.registry import rules
from optplan.models.spec.plan import Plan
from optplan.models.spec.problem import Problem
from optplan.models.units import bytes_text, seconds_text
from optplan.report.clashes import explained
from optplan.report.fronts import costs_text, front_table
from optplan.report.layouts import plain_table, plan_text, recomputed, short
from optplan.report.phases import phases_table
from optplan.report.sure import flips_text, robust_text, within_text
from optplan.result import Certificate, Evaluation, Result, WayOut
from optplan.verify import Verification

BAR = 24
"""Characters of the longest bar."""

WIDE = 116
"""Columns of a screen from which on every table fits whole."""

STATE_PARTS = ("parameters", "gradients", "optimizer")
"""Parts that a narrow screen shows as one."""

SHOWN_STAGES = 8
"""Stages that a table shows before it leaves out the middle."""

PAPER_SHARE = 0.99
"""Share of the space that the paper says its prunings remove (arXiv 2501.00254)."""


BEHIND = {
    "fastest": "behind",
    "cheapest": "dearer",
    "least-energy": "more energy",
    "most-headroom": "more memory",
}
"""What a next-best plan has more of, by goal."""


class Screen(Console):
    """A console whose reader may leave early without that being an error of the reader's."""

    def on_broken_pipe(self) -> None:
        """Let the command line decide what a closed pipe means."""
        raise BrokenPipeError


def show_result(
    console: Console, result: Result, top: int, breakdown: bool, more: Iterable[WayOut] = ()
) -> None:
    """Print the answer to ``solve``, with more ways out where there are any."""
    console.print(_heading(result.problem))
    if result.plan is None or result.estimate is None:
        console.print(_nothing(result, more))
    else:
        console.print(plan_text(result.problem, result.plan))
        console.print(_figures(result.problem, result.estimate))
        energy = "least-energy" in result.problem.goals
        if result.costs is not None and (costs := costs_text(result.costs, energy)):
            console.print(_indented(costs))
        console.print(_proof(result))
        console.print(_warnings(result.warnings))
        console.print(_terms(result.estimate, console))
        console.print(_memory(result.estimate, result.plan, breakdown, console.width))
        if result.front_claim is not None:
            console.print(front_table(result))
        if top and result.alternatives:
            console.print(_alternatives(result))
        if result.within_error is not None:
            console.print(within_text(result.within_error))
        if result.robust is not None:
            console.print(robust_text(result.robust))
        if result.flips is not None:
            console.print(flips_text(result.flips))
    console.print(_census(result.certificate, console.width, result.exit_code in (0, 1)))


def show_evaluation(console: Console, evaluation: Evaluation) -> None:
    """Print the answer to ``evaluate``."""
    console.print(_heading(evaluation.problem))
    console.print(plan_text(evaluation.problem, evaluation.plan))
    if evaluation.chosen:
        console.print(Text(f"  left open and chosen: {', '.join(evaluation.chosen)}", "dim"))
    console.print(_figures(evaluation.problem, evaluation.estimate))
    if evaluation.verdict.holds:
        console.print(
            Text(f"  every rule holds ({len(evaluation.verdict.kept)} findings)", "green")
        )
    else:
        table = plain_table("Broken rules", "rule", "why, what is legal, what else to change")
        for name, text in evaluation.verdict.broken.items():
            table.add_row(Text(name, "red"), Text(text))
        console.print(table)
    console.print(_warnings(evaluation.warnings))
    if evaluation.optimum is not None and evaluation.behind is not None:
        console.print(_distance(evaluation))
    console.print(_terms(evaluation.estimate, console, evaluation.terms_behind))
    console.print(_memory(evaluation.estimate, evaluation.plan, False, console.width))
    console.print(phases_table(evaluation.problem, evaluation.estimate))


def show_verification(console: Console, verification: Verification) -> None:
    """Print the answer to ``verify``."""
    colour = {"verified": "green", "not verified": "red", "cannot tell": "yellow"}[
        verification.verdict
    ]
    console.print(Text(verification.verdict, f"bold {colour}"))
    table = plain_table("", "check", "", "numbers")
    for check in verification.checks:
        word = {True: "holds", False: "FAILS", None: "unknown"}[check.holds]
        table.add_row(check.name, word, Text(check.text))
    console.print(table)


def _heading(problem: Problem) -> Text:
    """Name the job and the machine."""
    workload, cluster = problem.workload, problem.cluster
    text = Text(workload.architecture.name, "bold")
    text.append(f" on {problem.devices} x {cluster.accelerator.name}", "bold")
    text.append(
        f"  ({counted(cluster.nodes, 'node')} of {cluster.devices_per_node}, "
        f"sequence {workload.sequence_length}, {workload.precision}, "
        f"{'' if workload.optimizer == 'adam' else workload.optimizer + ', '}"
        f"{problem.prices} prices, "
        f"{problem.framework.name if problem.framework else 'any framework'})"
    )
    return text


def _figures(problem: Problem, estimate: Estimate) -> Padding:
    """Give the figures that matter most."""
    memory = estimate.memory
    return _indented(
        f"step {seconds_text(estimate.step_seconds)}   "
        f"{estimate.tokens_per_second_per_device:,.0f} tokens/s/device   MFU {estimate.mfu:.1%} of "
        f"{problem.cluster.accelerator.peak[problem.workload.precision] / 1e12:,.0f} TFLOP/s   "
        f"peak memory {bytes_text(memory.peak_bytes)} of {bytes_text(memory.capacity_bytes)}"
    )


def _proof(result: Result) -> Padding:
    """Keep the two truths apart: optimal in the model, and the model's own error."""
    certificate, calibration = result.certificate, result.problem.calibration
    gap = certificate.gap if certificate.gap is not None else 1.0
    if result.status.holding == "optimal":
        line = Text("in the model: ", "dim").append("proven optimal", "bold green")
    else:
        line = Text("in the model: ", "dim").append(
            f"best so far ({result.status.termination})", "bold yellow"
        )
    line.append(f", gap {gap:.1e}" if gap < 0.01 else f", gap {gap:.1%}")
    if certificate.bound_seconds is not None:
        line.append(f", no layout under {certificate.bound_seconds:.6g} s a step")
    elif certificate.bound is not None and certificate.unit == "bytes":
        line.append(f", no layout under {bytes_text(certificate.bound)}")
    elif certificate.bound is not None:
        line.append(f", no layout under {certificate.bound:.6g} {certificate.unit}")
    line.append(f"  [{certificate.engine}]", "dim")
    truth = Text("on hardware:  ", "dim").append(f"calibration {calibration.name}, ")
    truth.append(result.problem.accuracy.error or "error unknown")
    return Padding(Group(line, truth), (1, 0, 0, 2))


def _warnings(said: Iterable[str]) -> Group:
    """Print warnings, one a line."""
    return Group(*(_indented(f"warning: {text}", "yellow") for text in said))


def _indented(text: str, style: str = "") -> Padding:
    """Indent a line, however often it wraps."""
    return Padding(Text(text, style), (0, 0, 0, 2))


def _terms(
    estimate: Estimate, console: Console, behind: dict[str, float] | None = None
) -> RenderableType:
    """Show where the time goes, in the names of Eq. 1."""
    columns = ["term", "time", "share", "", "what"]
    if behind:
        columns.insert(3, "beyond best")
    table = plain_table(
        "Where a step goes (terms of Eq. 1)", *columns, right=("time", "share", "beyond best")
    )
    most = max(estimate.terms.values())
    bar = BAR if console.width >= WIDE else BAR // 3
    mark = "█" if console.encoding.startswith("utf") else "#"
    for name, what in TERMS.items():
        if name in NEW_TERMS and not estimate.terms[name] and not (behind and behind[name]):
            continue
        seconds = estimate.terms[name]
        sign = "-" if name == "TO" and seconds else ""
        share = seconds / estimate.step_seconds
        cells = [name, f"{sign}{seconds_text(seconds)}", f"{sign}{share:.1%}"]
        if behind:
            cells.append(f"{'-' if behind[name] < 0 else '+'}{seconds_text(abs(behind[name]))}")
        table.add_row(*cells, Text(mark * round(bar * seconds / most), "cyan"), Text(what, "dim"))
    return table


def _memory(estimate: Estimate, plan: Plan, breakdown: bool, width: int = WIDE) -> RenderableType:
    """Show what each stage holds against the device, on a narrow screen in fewer parts."""
    memory = estimate.memory
    columns: dict[str, tuple[str, ...]] = {part: (part,) for part in PARTS}
    if width < WIDE:
        columns = {"states": STATE_PARTS, **{p: (p,) for p in ("activations", "working")}}
    title = f"Memory of a device by stage, of {bytes_text(memory.capacity_bytes)} (* fullest)"
    numbers = ("layers", "in flight", *columns, "peak", "filled")
    table = plain_table(title, "stage", *numbers, right=numbers)
    shown = list(memory.stages)
    if len(shown) > SHOWN_STAGES and not breakdown:
        ends = (0, 1, memory.binding_stage, plan.pp - 2, plan.pp - 1)
        shown = [use for use in shown if use.stage in ends]
    last = -1
    for use in shown:
        if use.stage != last + 1:
            table.add_row("...")
        last = use.stage
        filled = use.peak_bytes / memory.capacity_bytes
        colour = "red" if filled > 1 else "yellow" if filled > TIGHT else ""
        table.add_row(
            f"{use.stage}{'*' if use.stage == memory.binding_stage else ''}",
            str(use.layers),
            str(use.in_flight),
            *(bytes_text(sum(use.parts[p] for p in held)) for held in columns.values()),
            Text(bytes_text(use.peak_bytes), colour),
            Text(f"{filled:.0%}", colour),
        )
    return table


def _alternatives(result: Result) -> RenderableType:
    """Show the next-best plans and whether the model's error can tell them apart."""
    batch = result.plan.global_batch if result.plan else 0
    behind = BEHIND[result.problem.main_goal]
    degrees = ["tp", "pp", "dp"]
    plans = [result.plan, *(other.plan for other in result.alternatives)]
    degrees += [
        n for n in ("cp", "ep", "etp", "vpp") if any(p and getattr(p, n) > 1 for p in plans)
    ]
    table = plain_table(
        f"Next-best plans at global batch {batch} (b micro-batch, m micro-batches)",
        *(*degrees, "b", "m", "schedule", "recompute", "seq. par.", "zero"),
        *("step", behind, "peak memory"),
        right=(*degrees, "b", "m", "step", behind, "peak memory"),
    )
    for other in result.alternatives:
        plan = other.plan
        table.add_row(
            *(str(getattr(plan, n)) for n in (*degrees, "micro_batch", "micro_batches")),
            plan.schedule,
            recomputed(plan),
            "on" if plan.sequence_parallel else "off",
            f"{plan.zero}{' node' if plan.hsdp else ''}",
            seconds_text(other.step_seconds),
            f"{other.behind:+.2%}",
            bytes_text(other.peak_bytes),
        )
    return table


def _census(certificate: Certificate, width: int, done: bool) -> RenderableType:
    """Show where every point of the space went."""
    table = plain_table(
        f"Where {certificate.points:,} points went (with layers handed out, "
        f"10^{certificate.strategies_log10:.1f} strategies)",
        "points",
        "share",
        "removed by",
        "",
        right=("points", "share"),
    )

    def line(count: int, what: str, why: str = "") -> None:
        share = f"{count / max(1, certificate.points):.1%}"
        table.add_row(f"{count:,}", share, Text(what), Text(why, "dim"))

    sentences = {rule.name: rule.sentence for rule in rules()}
    for name, count in certificate.removed_by_rule.items():
        line(count, name, sentences.get(name.split("[")[0], "") if width >= WIDE else "")
    for name, count in certificate.prunings.items():
        if count:
            line(count, f"pruned by {name}")
    if certificate.removed_by_bound:
        line(certificate.removed_by_bound, "bound: they cannot beat the best plan")
    if certificate.prunings:
        gone = 1 - certificate.priced / max(1, certificate.points)
        line(
            certificate.left,
            f"left; never priced: {gone:.1%} of all points (the paper: about {PAPER_SHARE:.0%})",
        )
    else:
        line(certificate.left, "left, decided one by one" if done else "not settled")
    return table


def _nothing(result: Result, more: Iterable[WayOut]) -> RenderableType:
    """Say why there is no plan."""
    if result.status.termination == "unsupported":
        why = "; ".join(result.warnings)
        return Text(f"\n  no answer from this engine: {why}", "bold yellow")
    if result.exit_code == 3:
        return Text(
            f"\n  nothing found yet ({result.status.termination}); give more time", "bold yellow"
        )
    return explained(result.explanation, more)


def _distance(evaluation: Evaluation) -> Text:
    """Compare a plan with the optimum of the same spec."""
    assert evaluation.optimum is not None
    assert evaluation.behind is not None
    best = evaluation.optimum
    text = Text("  against the best layout of this spec ", "dim")
    text.append(f"({short(best.plan)}, {seconds_text(best.step_seconds)}): ", "dim")
    text.append(
        "it is the best" if abs(evaluation.behind) < 1e-9 else f"{evaluation.behind:+.2%}", "bold"
    )
    return text
