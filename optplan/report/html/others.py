"""Plans beside the plan: next-best ones, ways out, what a change buys, sizes, engines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from optplan.compare import Comparison
from optplan.explain import Worth
from optplan.models.spec.plan import Plan
from optplan.models.spec.problem import TIMED
from optplan.models.units import bytes_text, seconds_text
from optplan.report.html.tables import Cell, Column, Table, cells, columns
from optplan.report.layouts import per_stage, recomputed, short
from optplan.report.models import goal_text
from optplan.result import Alternative, Evaluation, Reason, Result, WayOut
from optplan.size import Fewest, Sizing

MOST_PLANS = 40
"""Next-best plans shown."""

DEGREES = ("cp", "ep", "etp", "vpp")
"""Degrees shown only where some plan uses them."""


@dataclass(frozen=True)
class Distances:
    """
    Next-best plans and what the model's error says of them.

    Parameters
    ----------
    error
        Mean held-out error of the step time, as printed; empty where unknown or beside the point.
    """

    table: Table
    lead: str
    error: str


def alternatives(result: Result) -> Distances | None:
    """Set the next-best plans beside the best one."""
    if result.plan is None or not result.alternatives or result.estimate is None:
        return None
    timed = result.problem.main_goal in TIMED
    error = result.problem.accuracy.held_out if timed else None
    best = Alternative(
        plan=result.plan,
        step_seconds=result.estimate.step_seconds,
        tokens_per_second_per_device=result.estimate.tokens_per_second_per_device,
        peak_bytes=result.estimate.memory.peak_bytes,
        behind=0.0,
    )
    plans = [best, *result.alternatives[:MOST_PLANS]]
    more = [n for n in DEGREES if any(getattr(one.plan, n) > 1 for one in plans)]
    worst = max(one.behind for one in plans) or 1.0
    heads = [Column(name, True) for name in ("tp", "pp", "dp", *more)]
    heads = [
        Column("plan"),
        Column("step", True),
        Column("behind" if timed else "more memory", True, tip="beyond the best plan"),
        Column("on hardware", tip="whether the distance exceeds the model's held-out error"),
        *heads,
        Column("b", True, "sequences in a micro-batch"),
        Column("m", True, "micro-batches of a data rank"),
        Column("schedule"),
        Column("recompute"),
        Column("zero", True),
        Column("peak memory", True),
    ]
    rows = tuple(_alternative(one, i, more, error, worst) for i, one in enumerate(plans))
    batch = f"{result.plan.global_batch:,}"
    title = f"Best and next-best plans at global batch {batch}"
    if len(result.alternatives) > MOST_PLANS:
        title += f", the first {MOST_PLANS} of {len(result.alternatives):,}"
    table = Table(title, tuple(heads), rows)
    return Distances(table, _distance(result, error), "" if error is None else f"{error:.1%}")


def _alternative(
    one: Alternative, place: int, more: Sequence[str], error: float | None, worst: float
) -> tuple[Cell, ...]:
    """Write one plan as a row."""
    plan = one.plan
    word = ""
    if place and error is not None:
        word = "may win" if one.behind < error else "slower"
    numbers = [getattr(plan, name) for name in ("tp", "pp", "dp", *more)]
    return (
        Cell(f"{place + 1}" if place else "best", place),
        Cell(seconds_text(one.step_seconds), one.step_seconds),
        Cell(f"{one.behind:+.2%}", one.behind, bar=max(0.0, one.behind) / worst),
        Cell(word),
        *(_whole(n) for n in numbers),
        _whole(plan.micro_batch),
        _whole(plan.micro_batches),
        Cell(plan.schedule),
        Cell(recomputed(plan)),
        _whole(plan.zero),
        Cell(bytes_text(one.peak_bytes), one.peak_bytes),
    )


def _distance(result: Result, error: float | None) -> str:
    """Say how far the next-best plan is, and whether the error can tell."""
    first = result.alternatives[0]
    if result.problem.main_goal not in TIMED:
        return f"The next-best plan needs {first.behind:.2%} more memory."
    word = {"cheapest": "dearer", "least-energy": "hungrier"}.get(
        result.problem.main_goal, "slower"
    )
    text = f"The next-best plan is {first.behind:.2%} {word}."
    if error is None:
        return f"{text} The error of the calibration is unknown, so no distance is safe."
    near = sum(other.behind < error for other in result.alternatives)
    if not near:
        return (
            f"{text} That is more than the model's mean error of {error:.1%}, so on hardware "
            "the order should hold."
        )
    some = "All of them" if near == len(result.alternatives) else f"{near} of them"
    verb = "are" if near > 1 or some.startswith("All") else "is"
    return (
        f"{text} {some} {verb} closer than the model's mean error of {error:.1%}: the proof "
        "holds in the model, but on hardware they may win. Measure them."
    )


def _whole(number: int) -> Cell:
    """Print a count."""
    return Cell(f"{number:,}", number)


def ways(title: str, found: Iterable[WayOut]) -> Table:
    """List changes that help and what they cost."""
    heads = columns(
        "change",
        "kind",
        "step",
        "tokens/s/device",
        "layout then",
        right=("step", "tokens/s/device"),
    )
    rows = tuple(
        cells(
            Cell(way.change, tip=way.note),
            way.kind,
            Cell(seconds_text(way.step_seconds), way.step_seconds),
            Cell(f"{way.tokens_per_second_per_device:,.0f}", way.tokens_per_second_per_device),
            Cell(short(way.plan), tone="dim"),
        )
        for way in found
    )
    return Table(title, heads, rows)


def reasons(title: str, clash: Iterable[Reason]) -> Table:
    """List the rules of one clash."""
    rows = tuple(
        cells(Cell(one.rule, tone="code"), one.sentence, "; ".join(_numbers(one))) for one in clash
    )
    return Table(title, columns("rule", "demands", "at the nearest plan"), rows, sortable=False)


def _numbers(one: Reason) -> Iterator[str]:
    """Tell how far a rule is missed, by which plan, and what would change that."""
    if one.text:
        yield one.text
    if one.plan is not None:
        yield f"nearest plan: {short(one.plan)}"
    yield from one.details


def worth(found: Iterable[Worth]) -> Table:
    """List what each change would buy."""
    heads = columns(
        "change",
        "step",
        "tokens/s/device",
        "saved a sequence",
        "layout then",
        right=("step", "tokens/s/device", "saved a sequence"),
    )
    every = tuple(found)
    most = max((one.saved or 0.0 for one in every), default=0.0) or 1.0
    rows = []
    for one in every:
        if one.plan is None or one.step_seconds is None or one.saved is None:
            rows.append(cells(one.change, "", "", Cell("not settled", -1.0), ""))
            continue
        rate = one.tokens_per_second_per_device or 0.0
        saved = f"{one.saved:.2%}" if one.binds else "nothing"
        rows.append(
            cells(
                one.change,
                Cell(seconds_text(one.step_seconds), one.step_seconds),
                Cell(f"{rate:,.0f}", rate),
                Cell(saved, one.saved, bar=max(0.0, one.saved) / most),
                Cell(short(one.plan) if one.binds else "", tone="dim"),
            )
        )
    return Table("What one change would buy, each one solved", heads, tuple(rows))


def against(evaluation: Evaluation) -> tuple[Table, str] | None:
    """Set an evaluated plan beside the best one of the same spec: what differs, and what not."""
    if evaluation.optimum is None:
        return None
    here, best = evaluation.plan, evaluation.optimum.plan
    differ = [n for n in Plan.model_fields if getattr(here, n) != getattr(best, n)]
    if not any((*here.recomputed_layers_per_stage, *best.recomputed_layers_per_stage)):
        differ = [name for name in differ if name != "recomputed_layers_per_stage"]
    rows = [
        cells(Cell(name, tone="code"), _value(here, name), _value(best, name)) for name in differ
    ]
    mine, its = evaluation.estimate, evaluation.optimum
    rows += [
        cells("step time", seconds_text(mine.step_seconds), seconds_text(its.step_seconds)),
        cells("peak memory", bytes_text(mine.memory.peak_bytes), bytes_text(its.peak_bytes)),
    ]
    same = [
        f"{name} {_value(here, name)}"
        for name in Plan.model_fields
        if name not in differ and not name.endswith("_per_stage")
    ]
    heads = (Column("choice"), Column("this plan", told=True), Column("best plan", told=True))
    table = Table("What differs from the best plan", heads, tuple(rows), sortable=False)
    return table, f"The same in both: {', '.join(same)}."


def _value(plan: Plan, name: str) -> str:
    """Print one value of a plan."""
    value = getattr(plan, name)
    if isinstance(value, tuple):
        return per_stage(value)
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:,}" if isinstance(value, int) else str(value)


def sizes(sizing: Sizing) -> Table:
    """List the fewest devices, accelerator by accelerator."""
    heads = columns(
        "accelerator",
        "devices",
        "nodes",
        "step",
        "peak memory",
        "of",
        "proved",
        "layout",
        right=("devices", "nodes", "step", "peak memory", "of"),
    )
    rows = tuple(_size(one) for one in (sizing.fewest, *sizing.others))
    return Table("Fewest devices that hold the job", heads, rows)


def _size(one: Fewest) -> tuple[Cell, ...]:
    """Write one accelerator as a row."""
    word = "yes" if one.proved else f"no: {one.why}"
    if one.devices is None or one.estimate is None or one.plan is None:
        return cells(one.accelerator, "none", "", "", "", "", word, one.why)
    memory = one.estimate.memory
    return cells(
        one.accelerator,
        _whole(one.devices),
        _whole(one.nodes or 0),
        Cell(seconds_text(one.estimate.step_seconds), one.estimate.step_seconds),
        Cell(bytes_text(memory.peak_bytes), memory.peak_bytes),
        Cell(bytes_text(memory.capacity_bytes), memory.capacity_bytes),
        word,
        Cell(short(one.plan), tone="dim"),
    )


def engines(comparison: Comparison) -> Table:
    """List the engines side by side."""
    unit = "" if comparison.unit in ("", "bytes") else f", {comparison.unit}"
    goals = (f"optimum{unit}", f"bound{unit}")
    numbers = (*goals, "gap", "time", "ratio", "nodes", "layouts priced")
    heads = columns("engine", *numbers, "ended", right=numbers)
    rows = tuple(
        cells(
            row.engine,
            Cell(_goal(row.goal, comparison.unit), row.goal),
            Cell(_goal(row.bound, comparison.unit), row.bound),
            Cell("" if row.gap is None else f"{row.gap:.1e}", row.gap),
            Cell(seconds_text(row.seconds), row.seconds, bar=_part(comparison, row.seconds)),
            Cell("" if row.ratio is None else f"{row.ratio:.1f}", row.ratio),
            _whole(row.nodes),
            _whole(row.priced),
            f"{row.termination}: {row.detail}" if row.detail else row.termination,
        )
        for row in comparison.engines
    )
    return Table("Engines side by side", heads, rows)


def _goal(goal: float | None, unit: str) -> str:
    """Print a goal; its unit stands in the head, but for bytes."""
    if goal is None or unit == "bytes":
        return goal_text(goal, unit)
    return f"{goal:.9g}"


def layouts(comparison: Comparison) -> Table:
    """List what each engine chose, and its versions."""
    rows = tuple(
        cells(row.engine, "" if row.plan is None else short(row.plan), Cell(row.version))
        for row in comparison.engines
    )
    heads = columns("engine", "layout", "versions")
    return Table("Layouts and versions", heads, rows, sortable=False)


def _part(comparison: Comparison, seconds: float) -> float:
    """Share of the longest time."""
    return seconds / (max(row.seconds for row in comparison.engines) or 1.0)


def agreement(comparison: Comparison) -> str:
    """Say whether the engines agree."""
    proved = [row for row in comparison.engines if row.proved]
    if not comparison.agree:
        return "They do NOT agree: a fault of optplan itself or of a solver."
    if len(proved) < 2:
        return "Fewer than two have an answer to compare."
    if all(row.goal is None for row in proved):
        return f"{len(proved)} engines agree: there is no plan."
    return f"{len(proved)} engines agree on the optimum."
