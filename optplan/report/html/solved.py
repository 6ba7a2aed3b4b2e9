"""The first screen and the sections of a result, with or without a plan."""

from __future__ import annotations

from collections.abc import Iterator

from optplan.models.cost.price import Estimate
from optplan.models.spec.plan import Plan
from optplan.models.spec.problem import Problem
from optplan.models.units import seconds_text
from optplan.report.html import (
    cluster,
    facts,
    front,
    memory,
    others,
    proof,
    spec,
    step,
    sure,
    timeline,
    truth,
)
from optplan.report.html.facts import Figure
from optplan.report.html.launch import launch_text
from optplan.report.html.sections import Head, Section, of_tables
from optplan.report.html.words import KINDS
from optplan.result import Result


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
        [first, standing, error_figure(problem), full],
        result.warnings,
    )


def _clash(result: Result) -> Iterator[tuple[str, str]]:
    """Say on the first screen what clashes, and the first way out."""
    for one in result.explanation.core:
        yield f"{one.rule}:", f"{one.sentence}{': ' if one.text else ''}{one.text}"
    for way in result.explanation.ways_out[:1]:
        yield "A way out:", f"{way.change}; then a step takes {seconds_text(way.step_seconds)}"


def error_figure(problem: Problem) -> Figure:
    """Give the error of the prices on real hardware."""
    held, name = problem.accuracy.held_out, problem.calibration.name
    if held is None:
        return Figure("On hardware", "Error unknown", f"calibration {name}, not measured")
    note = f"mean error on runs not fitted; calibration {name}"
    return Figure("On hardware", f"{held:.1%} off", note)


def sections_of(result: Result) -> Iterator[Section]:
    """List the sections of a result."""
    problem = result.problem
    if result.plan is not None and result.estimate is not None:
        yield from of_plan(problem, result.plan, result.estimate)
        near = others.alternatives(result)
        if near:
            template = "_alternatives.html.j2"
            yield Section("next", "Next-best plans", near.lead, template, {"distances": near})
        else:
            lead = "None are in this answer: none was asked for, or looking for them took too long."
            yield of_tables("next", "Next-best plans", lead)
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
    yield truth_section(problem)
    launch = launch_text(result)
    if launch:
        yield Section("launch", "The launch", "", "_launch.html.j2", {"text": launch})
    yield spec_section(problem)


def of_plan(
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
        drawn = {"line": line, "kinds": KINDS, "numbers": numbers, "lead": line.lead}
        yield Section("timeline", "Time line", line.lead, "_timeline.html.j2", drawn)
    else:
        yield of_tables("timeline", "Time line", timeline.why_none(plan))
    place = cluster.placement(problem, plan)
    where = {"placement": place}
    yield Section("devices", "Where devices sit", place.lead, "_cluster.html.j2", where)


def _optional(result: Result) -> Iterator[Section]:
    """Show what was asked for besides the plan."""
    if result.within_error is not None:
        yield sure.within_section(result.within_error)
    if result.front_claim is not None:
        yield front.front_section(result, result.front_claim)
    if result.robust is not None:
        yield sure.robust_section(result.robust)
    if result.flips is not None:
        yield sure.flips_section(result.flips)


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


def truth_section(problem: Problem) -> Section:
    """Say how true the prices are."""
    data = {"about": truth.about(problem), "constants": truth.constants(problem)}
    return Section("calibration", "How true it is", truth.lead(problem), "_truth.html.j2", data)


def spec_section(problem: Problem) -> Section:
    """Give the question back."""
    short = spec.short_spec(problem)
    lead = "The question, as optplan reads it." if short else ""
    data = {
        "short": short,
        "whole": spec.whole_spec(problem),
        "fingerprint": problem.fingerprint,
    }
    return Section("spec", "The spec that made it", lead, "_spec.html.j2", data)
