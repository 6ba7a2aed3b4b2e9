"""Which sections a page has, and what each one says first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from optplan.compare import Comparison
from optplan.explain import Answer
from optplan.models.cost.price import Estimate
from optplan.models.errors import Fault, InputError
from optplan.models.spec.plan import Plan
from optplan.models.spec.problem import Problem
from optplan.models.units import bytes_text, seconds_text
from optplan.report.html import cluster, facts, memory, others, proof, spec, step, timeline, truth
from optplan.report.html.anything import pieces
from optplan.report.html.facts import Figure
from optplan.report.html.launch import launch_text
from optplan.report.html.render import render
from optplan.report.html.words import KINDS
from optplan.report.models import goal_text
from optplan.result import Evaluation, Reply, Result
from optplan.size import Sizing

OPTIONAL = {
    "within_error": ("Within the error", "Plans that the model's error cannot tell apart."),
    "front": ("Trade-offs", "Plans that are best in one thing and not beaten in all others."),
    "flips": ("What would change the answer", "Where another plan becomes the best one."),
    "robust": ("How sure", "The plan whose regret is smallest over what the constants may be."),
}
"""Fields of a result that another part of optplan may fill, with title and first sentence."""


@dataclass(frozen=True)
class Head:
    """The first screen."""

    eyebrow: str
    title: str
    sub: str
    chips: list[tuple[str, str]] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)
    warnings: tuple[str, ...] = ()
    says: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Section:
    """One part of the page: where it is linked to, its head and first sentence, its template."""

    id: str
    title: str
    lead: str
    template: str
    data: dict[str, Any]


def page(answer: Reply) -> str:
    """
    Render an answer.

    Raises
    ------
    InputError
        There is no page for such an answer.
    """
    if isinstance(answer, Result):
        made = "solve", head(answer), list(_result(answer))
    elif isinstance(answer, Answer):
        made = "explain", head(answer.result), list(_answer(answer))
    elif isinstance(answer, Evaluation):
        made = "evaluate", _evaluation_head(answer), list(_evaluation(answer))
    elif isinstance(answer, Sizing):
        made = "size", _sizing_head(answer), list(_sizing(answer))
    elif isinstance(answer, Comparison):
        made = "compare", _comparison_head(answer), list(_comparison(answer))
    else:
        problem = f"a {type(answer).__name__} has no page"
        remedy = "give what solve, explain, evaluate, size or compare returns"
        raise InputError([Fault("", "", problem, remedy)])
    command, top, sections = made
    return render("page.html.j2", command=command, head=top, sections=sections)


def head(result: Result) -> Head:
    """Fill the first screen of a result: plan, step time, proof, error, memory."""
    problem, plan = result.problem, result.plan
    known, note, tone = proof.status(result)
    standing = Figure("In the model", known, note, tone=tone)
    if plan is None or result.estimate is None:
        return Head(
            "optplan · why there is no plan",
            facts.heading(problem),
            facts.subheading(problem),
            [],
            [standing],
            result.warnings,
            tuple(_clash(result)),
        )
    time, busy, full = facts.figures(problem, result.estimate)
    first = Figure(time.label, time.value, f"{time.note}, MFU {busy.value}")
    return Head(
        "optplan · plan",
        facts.heading(problem),
        facts.subheading(problem),
        facts.chips(problem, plan),
        [first, standing, _error(problem), full],
        result.warnings,
    )


def _clash(result: Result) -> Iterator[tuple[str, str]]:
    """Say on the first screen what clashes, and the first way out."""
    for one in result.explanation.core:
        yield f"{one.rule}:", f"{one.sentence}{': ' if one.text else ''}{one.text}"
    for way in result.explanation.ways_out[:1]:
        yield "A way out:", f"{way.change}; then a step takes {seconds_text(way.step_seconds)}"


def _error(problem: Problem) -> Figure:
    """Give the error of the prices on real hardware."""
    held, name = problem.accuracy.held_out, problem.calibration.name
    if held is None:
        return Figure("On hardware", "Error unknown", f"calibration {name}, not measured")
    note = f"mean error on runs not fitted; calibration {name}"
    return Figure("On hardware", f"{held:.1%} off", note)


def _result(result: Result) -> Iterator[Section]:
    """List the sections of a result."""
    problem = result.problem
    if result.plan is not None and result.estimate is not None:
        yield from _of_plan(problem, result.plan, result.estimate)
        near = others.alternatives(result)
        if near:
            data = {"distances": near}
            yield Section("next", "Next-best plans", near.lead, "_alternatives.html.j2", data)
    elif result.exit_code == 1:
        yield _explanation(result)
    yield from _optional(result)
    yield Section(
        "proof",
        "The proof",
        "",
        "_proof.html.j2",
        {
            "sentences": proof.sentences(result),
            "census": proof.census(result.certificate, result.exit_code in (0, 1)),
            "record": proof.record(result),
            "verdict": proof.verdict(result.verdict) if result.verdict else None,
        },
    )
    yield _truth(problem)
    launch = launch_text(result)
    if launch:
        yield Section("launch", "The launch", "", "_launch.html.j2", {"text": launch})
    yield _spec(problem)


def _of_plan(
    problem: Problem, plan: Plan, estimate: Estimate, behind: dict[str, float] | None = None
) -> Iterator[Section]:
    """List the sections that any priced plan has."""
    degrees = ("tp", "pp", "dp", "cp") if plan.cp > 1 else ("tp", "pp", "dp")
    product = " \u00d7 ".join(f"{name} {getattr(plan, name):,}" for name in degrees)
    yield Section(
        "plan",
        "The plan",
        f"{product} = {plan.devices:,} of {problem.devices:,} devices.",
        "_plan.html.j2",
        {"choices": facts.choices(problem, plan)},
    )
    yield Section(
        "time",
        "Where a step goes",
        step.lead(estimate),
        "_time.html.j2",
        {"terms": step.terms(estimate, behind), "behind": bool(behind)},
    )
    yield Section(
        "memory",
        "Memory by stage",
        memory.lead(estimate),
        "_memory.html.j2",
        {
            "picture": memory.picture(estimate),
            "moments": memory.moments(estimate),
            "by_part": memory.by_part(estimate),
            "by_phase": memory.by_phase(estimate),
            "note": memory.note(estimate),
        },
    )
    line = timeline.line(problem, plan, estimate)
    if line is not None:
        numbers = {kind: i for i, kind in enumerate(KINDS)}
        data = {"line": line, "kinds": KINDS, "numbers": numbers, "lead": line.lead}
        yield Section("timeline", "Time line", line.lead, "_timeline.html.j2", data)
    else:
        why = timeline.why_none(plan)
        data = {"tables": [], "texts": []}
        yield Section("timeline", "Time line", why, "_tables.html.j2", data)
    place = cluster.placement(problem, plan)
    data = {"placement": place}
    yield Section("devices", "Where devices sit", place.lead, "_cluster.html.j2", data)


def _optional(result: Result) -> Iterator[Section]:
    """Show what other parts of optplan have added to a result, if they have."""
    for name, (title, lead) in OPTIONAL.items():
        value = getattr(result, name, None)
        if value not in (None, (), [], {}, ""):
            data = {"piece": pieces(value, title)}
            yield Section(name.replace("_", "-"), title, lead, f"_{name}.html.j2", data)


def _explanation(result: Result) -> Section:
    """Say why there is no plan."""
    told = result.explanation
    clashes = [
        others.reasons("These rules clash" if i == 0 else "And besides", clash)
        for i, clash in enumerate((told.core, *told.further))
        if clash
    ]
    lead = (
        "No plan obeys all of these rules together; without any one of the first set the others "
        "can hold."
    )
    ways = others.ways("Changes that help, each one solved", told.ways_out)
    data = {"clashes": clashes, "ways": ways}
    return Section("why", "Why there is no plan", lead, "_explanation.html.j2", data)


def _truth(problem: Problem) -> Section:
    """Say how true the prices are."""
    data = {"about": truth.about(problem), "constants": truth.constants(problem)}
    return Section("calibration", "How true it is", truth.lead(problem), "_truth.html.j2", data)


def _spec(problem: Problem) -> Section:
    """Give the question back."""
    short = spec.short_spec(problem)
    lead = "The question, as optplan reads it." if short else ""
    data = {
        "short": short,
        "whole": spec.whole_spec(problem),
        "fingerprint": problem.fingerprint,
    }
    return Section("spec", "The spec that made it", lead, "_spec.html.j2", data)


def _answer(answer: Answer) -> Iterator[Section]:
    """List the sections of an explanation: its own before those of the result."""
    if answer.worth:
        best = answer.worth[0]
        lead = (
            f"Most would be saved by this: {best.change}, {best.saved:.2%} a sequence."
            if best.binds and best.saved is not None
            else "No change that was looked at would save anything."
        )
        data = {"tables": [others.worth(answer.worth)], "texts": []}
        yield Section("worth", "What a change would buy", lead, "_tables.html.j2", data)
    if answer.more_ways_out:
        table = others.ways("Beyond what the clash names, solved too", answer.more_ways_out)
        data = {"tables": [table], "texts": []}
        yield Section("more", "What else could give way", "", "_tables.html.j2", data)
    if answer.why_not is not None:
        yield _beside(answer.why_not, "The plan that was asked about")
    yield from _result(answer.result)


def _beside(evaluation: Evaluation, title: str) -> Section:
    """Set a plan beside the best one."""
    found = others.against(evaluation)
    tables = [proof.verdict(evaluation.verdict)] if evaluation.verdict.broken else []
    tables += [found] if found else []
    return Section(
        "beside", title, _standing(evaluation), "_tables.html.j2", {"tables": tables, "texts": []}
    )


def _standing(evaluation: Evaluation) -> str:
    """Say what the rules and the best plan say of a plan."""
    broken = len(evaluation.verdict.broken)
    text = f"It breaks {broken} of the rules." if broken else "It obeys every rule."
    if evaluation.behind is None:
        return f"{text} The spec has no best plan to compare it with."
    if abs(evaluation.behind) < 1e-9:
        return f"{text} It is the best."
    return f"{text} Its price is {evaluation.behind:+.2%} beside that of the best plan."


def _evaluation_head(evaluation: Evaluation) -> Head:
    """Fill the first screen of an evaluation."""
    problem = evaluation.problem
    time, busy, full = facts.figures(problem, evaluation.estimate)
    broken = len(evaluation.verdict.broken)
    rules = Figure(
        "Rules",
        f"Breaks {broken}" if broken else "Obeys all",
        f"of {broken + len(evaluation.verdict.kept)} findings",
        tone="bad" if broken else "good",
    )
    first = Figure(time.label, time.value, f"{time.note}, MFU {busy.value}")
    return Head(
        "optplan · one plan, judged",
        facts.heading(problem),
        facts.subheading(problem),
        facts.chips(problem, evaluation.plan),
        [first, rules, _error(problem), full],
        evaluation.warnings,
    )


def _evaluation(evaluation: Evaluation) -> Iterator[Section]:
    """List the sections of an evaluation."""
    problem = evaluation.problem
    yield _beside(evaluation, "Beside the best plan")
    yield from _of_plan(problem, evaluation.plan, evaluation.estimate, evaluation.terms_behind)
    yield Section(
        "rules",
        "What the rules say",
        f"Left open and chosen: {', '.join(evaluation.chosen)}." if evaluation.chosen else "",
        "_tables.html.j2",
        {"tables": [proof.verdict(evaluation.verdict)], "texts": []},
    )
    yield _truth(problem)
    yield _spec(problem)


def _sizing_head(sizing: Sizing) -> Head:
    """Fill the first screen of a sizing."""
    one, workload = sizing.fewest, sizing.problem.workload
    figures = [
        Figure(
            "Fewest devices",
            f"{one.devices:,}" if one.devices is not None else "None found",
            one.accelerator + ("" if one.devices is not None else f": {one.why}"),
        ),
        Figure(
            "In the model",
            "Proved" if one.proved else "Not proved",
            "on one device less no plan exists" if one.proved and one.devices else one.why,
            tone="good" if one.proved else "",
        ),
    ]
    chips: list[tuple[str, str]] = []
    if one.estimate is not None and one.plan is not None:
        held = one.estimate.memory
        figures.append(
            Figure(
                "Step time",
                seconds_text(one.estimate.step_seconds),
                "of the fastest plan on so many",
            )
        )
        filled = held.peak_bytes / held.capacity_bytes
        figures.append(
            Figure(
                "Peak memory",
                bytes_text(held.peak_bytes),
                f"{filled:.0%} of {bytes_text(held.capacity_bytes)}",
                min(1.0, filled),
            )
        )
        chips = facts.chips(sizing.problem, one.plan)
    title = f"Fewest devices for {workload.architecture.name}"
    sub = f"sequence {workload.sequence_length:,}, {workload.precision}"
    return Head("optplan · size", title, sub, chips, figures)


def _sizing(sizing: Sizing) -> Iterator[Section]:
    """List the sections of a sizing."""
    data: dict[str, Any] = {"tables": [others.sizes(sizing)], "texts": []}
    yield Section("sizes", "By accelerator", "", "_tables.html.j2", data)
    one = sizing.fewest
    if one.plan is not None and one.estimate is not None and one.nodes is not None:
        yield from _of_plan(sizing.problem.with_cluster(nodes=one.nodes), one.plan, one.estimate)
    yield _truth(sizing.problem)
    yield _spec(sizing.problem)


def _comparison_head(comparison: Comparison) -> Head:
    """Fill the first screen of a comparison."""
    done = [row for row in comparison.engines if row.proved and row.goal is not None]
    figures = [
        Figure(
            "Engines",
            f"{sum(row.proved for row in comparison.engines)} of {len(comparison.engines)}",
            "proved their answer",
        )
    ]
    if done:
        fastest = min(done, key=lambda row: row.seconds)
        figures.append(
            Figure("Optimum", goal_text(done[0].goal, comparison.unit), "in the goal's unit")
        )
        figures.append(Figure("Fastest", fastest.engine, f"in {seconds_text(fastest.seconds)}"))
    sub = others.agreement(comparison)
    return Head("optplan · compare", "Engines side by side", sub, [], figures)


def _comparison(comparison: Comparison) -> Iterator[Section]:
    """List the sections of a comparison."""
    texts = ["A person stopped it before every engine had its turn."] * comparison.interrupted
    data = {"tables": [others.engines(comparison)], "texts": texts}
    yield Section("engines", "Engine by engine", "", "_tables.html.j2", data)
