"""Statistics of predictions against measurements: time, memory, out of memory, ranking."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from optplan.models.record import Record
from optplan.runs.predict import Prediction

FEWEST_LAYOUTS = 3
"""Layouts that a group needs to say something about their order."""


class Errors(Record):
    """Distribution of relative errors."""

    n: int
    """Runs with a measurement."""
    mean_abs_pct: float | None = None
    """Mean absolute error, percent."""
    median: float | None = None
    """Median absolute error, percent."""
    p90: float | None = None
    """90th percentile of the absolute error, percent."""
    max: float | None = None
    """Largest absolute error, percent."""
    bias: float | None = None
    """Mean error, percent; above 0: predicted too slow or too full."""


class OutOfMemory(Record):
    """How well out-of-memory outcomes are foretold, on rows that state what memory depends on."""

    n: int
    """Rows with an outcome."""
    labels: int
    """Rows that ran out of memory."""
    foretold: int
    """Those of them that were predicted not to fit."""
    false_alarms: int
    """Rows that ran and were predicted not to fit."""
    precision: float | None = None
    """Share of alarms that were right."""
    recall: float | None = None
    """Share of rows out of memory that were foretold."""


class Ranking(Record):
    """How well layouts of one job are ordered."""

    groups: int
    """Groups of three or more layouts."""
    kendall_tau: float | None = None
    """Mean rank correlation over groups."""
    top1_regret_pct: float | None = None
    """Mean over groups of what the layout predicted fastest took beyond the fastest, percent."""
    worst_regret_pct: float | None = None
    """The largest of them."""


class Score(Record):
    """Everything about one set of predictions."""

    time: Errors
    """Step time."""
    memory: Errors
    """Peak memory."""
    oom: OutOfMemory
    """Out-of-memory outcomes."""
    ranking: Ranking
    """Order of layouts."""


def score(predictions: Sequence[Prediction]) -> Score:
    """Score predictions, every row weighing the same."""
    return Score(
        time=errors(p.error for p in predictions),
        memory=errors(p.memory_error for p in predictions),
        oom=out_of_memory(predictions),
        ranking=ranking(predictions),
    )


def errors(found: Iterable[float | None]) -> Errors:
    """Summarise relative errors; None where there is no measurement."""
    known = np.asarray([e for e in found if e is not None]) * 100.0
    if not len(known):
        return Errors(n=0)
    size = np.abs(known)
    return Errors(
        n=len(known),
        mean_abs_pct=float(size.mean()),
        median=float(np.median(size)),
        p90=float(np.quantile(size, 0.9)),
        max=float(size.max()),
        bias=float(known.mean()),
    )


def out_of_memory(predictions: Sequence[Prediction]) -> OutOfMemory:
    """Count alarms and what became of them."""
    rows = [p for p in predictions if p.measured_outcome in ("ok", "oom") and p.complete]
    dead = [p for p in rows if p.measured_outcome == "oom"]
    right = sum(not p.predicted_fits for p in dead)
    false = sum(not p.predicted_fits for p in rows if p.measured_outcome != "oom")
    return OutOfMemory(
        n=len(rows),
        labels=len(dead),
        foretold=right,
        false_alarms=false,
        precision=right / (right + false) if right + false else None,
        recall=right / len(dead) if dead else None,
    )


def ranking(predictions: Sequence[Prediction]) -> Ranking:
    """Order the layouts of every group by predicted and by measured time, and compare."""
    from scipy.stats import kendalltau

    taus, regrets = [], []
    for layouts in grouped(predictions).values():
        predicted = [p for p, _ in layouts]
        measured = [m for _, m in layouts]
        tau = float(kendalltau(predicted, measured).statistic)
        if np.isfinite(tau):
            taus.append(tau)
        best = min(range(len(layouts)), key=predicted.__getitem__)
        regrets.append(100.0 * (measured[best] / min(measured) - 1.0))
    return Ranking(
        groups=len(regrets),
        kendall_tau=float(np.mean(taus)) if taus else None,
        top1_regret_pct=float(np.mean(regrets)) if regrets else None,
        worst_regret_pct=max(regrets) if regrets else None,
    )


def grouped(predictions: Sequence[Prediction]) -> dict[str, list[tuple[float, float]]]:
    """
    Pair predicted and measured times by group and layout.

    Runs of one layout are one pair with their median measured time. Groups of fewer than three
    layouts are left out.
    """
    by: dict[str, dict[str, list[Prediction]]] = {}
    for p in predictions:
        if p.measured_step_seconds is not None:
            by.setdefault(p.group, {}).setdefault(p.layout, []).append(p)
    return {
        group: [
            (
                float(np.median([p.predicted_step_seconds for p in same])),
                float(np.median([p.measured_step_seconds or 0.0 for p in same])),
            )
            for same in layouts.values()
        ]
        for group, layouts in by.items()
        if len(layouts) >= FEWEST_LAYOUTS
    }
