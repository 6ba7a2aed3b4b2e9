"""The first screens and sections of explain, evaluate, size and compare."""

from __future__ import annotations

from collections.abc import Iterator

from optplan.compare import Comparison
from optplan.explain import Answer
from optplan.models.spec.problem import TIMED
from optplan.models.units import bytes_text, seconds_text
from optplan.report.html import facts, others, proof
from optplan.report.html.facts import Figure
from optplan.report.html.sections import Head, Section, of_tables
from optplan.report.html.solved import (
    error_figure,
    of_plan,
    sections_of,
    spec_section,
    truth_section,
)
from optplan.result import Evaluation
from optplan.size import Sizing


def of_answer(answer: Answer) -> Iterator[Section]:
    """List the sections of an explanation: its own before those of the result."""
    if answer.worth:
        best = answer.worth[0]
        lead = (
            f"Most would be saved by this: {best.change}, {best.saved:.2%} a sequence."
            if best.binds and best.saved is not None
            else "No change that was looked at would save anything."
        )
        yield of_tables("worth", "What a change would buy", lead, others.worth(answer.worth))
    if answer.more_ways_out:
        table = others.ways("Beyond what the clash names, solved too", answer.more_ways_out)
        yield of_tables("more", "What else could give way", "", table)
    if answer.why_not is not None:
        yield _beside(answer.why_not, "The plan that was asked about")
    yield from sections_of(answer.result)


def _beside(evaluation: Evaluation, title: str) -> Section:
    """Set a plan beside the best one."""
    found = others.against(evaluation)
    broken = evaluation.verdict.model_copy(update={"kept": {}})
    tables = [proof.verdict(broken)] if broken.broken else []
    tables += [found[0]] if found else []
    note = found[1] if found else ""
    return of_tables("beside", title, _standing(evaluation), *tables, note=note)


def _standing(evaluation: Evaluation) -> str:
    """Say what the rules and the best plan say of a plan."""
    broken = len(evaluation.verdict.broken)
    text = f"It breaks {broken} of the rules." if broken else "It obeys every rule."
    if evaluation.behind is None:
        return f"{text} The spec has no best plan to compare it with."
    if abs(evaluation.behind) < 1e-9:
        return f"{text} It is the best."
    timed = evaluation.problem.main_goal in TIMED
    words = ("faster", "slower") if timed else ("less memory", "more memory")
    than = f"{abs(evaluation.behind):.2%} {words[evaluation.behind > 0]}"
    return f"{text} Beside the best plan it is {than}" + (", which breaks none." if broken else ".")


def evaluation_head(evaluation: Evaluation) -> Head:
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
        [first, rules, error_figure(problem), full],
        evaluation.warnings,
    )


def of_evaluation(evaluation: Evaluation) -> Iterator[Section]:
    """List the sections of an evaluation."""
    problem = evaluation.problem
    yield _beside(evaluation, "Beside the best plan")
    yield from of_plan(problem, evaluation.plan, evaluation.estimate, evaluation.terms_behind)
    lead = f"Left open and chosen: {', '.join(evaluation.chosen)}." if evaluation.chosen else ""
    yield of_tables("rules", "What the rules say", lead, proof.verdict(evaluation.verdict))
    yield truth_section(problem)
    yield spec_section(problem)


def sizing_head(sizing: Sizing) -> Head:
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
                f"{facts.share_text(filled)} of {bytes_text(held.capacity_bytes)}",
                min(1.0, filled),
            )
        )
        chips = facts.chips(sizing.problem, one.plan)
    title = f"Fewest devices for {workload.architecture.name}"
    sub = f"sequence {workload.sequence_length:,}, {workload.precision}"
    return Head("optplan · size", title, sub, chips, figures)


def of_sizing(sizing: Sizing) -> Iterator[Section]:
    """List the sections of a sizing."""
    yield of_tables("sizes", "By accelerator", "", others.sizes(sizing))
    one = sizing.fewest
    if one.plan is not None and one.estimate is not None and one.nodes is not None:
        yield from of_plan(sizing.problem.with_cluster(nodes=one.nodes), one.plan, one.estimate)
    yield truth_section(sizing.problem)
    yield spec_section(sizing.problem)


def comparison_head(comparison: Comparison) -> Head:
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
        figures.append(Figure("Optimum", *_goal(done[0].goal or 0.0, comparison.unit)))
        figures.append(Figure("Fastest", fastest.engine, f"in {seconds_text(fastest.seconds)}"))
    sub = others.agreement(comparison)
    return Head("optplan · compare", "Engines side by side", sub, [], figures)


def _goal(goal: float, unit: str) -> tuple[str, str]:
    """Print a goal and its unit."""
    return (bytes_text(goal), "on the fullest device") if unit == "bytes" else (f"{goal:.4g}", unit)


def of_comparison(comparison: Comparison) -> Iterator[Section]:
    """List the sections of a comparison."""
    early = "A person stopped it before every engine had its turn."
    tables = others.engines(comparison), others.layouts(comparison)
    lead = early if comparison.interrupted else ""
    yield of_tables("engines", "Engine by engine", lead, *tables)
