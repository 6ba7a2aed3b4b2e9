"""The constants of a calibration from measured runs and a prior, by robust least squares."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optplan.models.cost.calibration import Calibration
from optplan.models.cost.estimate import step_seconds
from optplan.models.spec.plan import Plan
from optplan.models.spec.problem import Problem

Reals = NDArray[np.float64]

NOISE = 0.05
"""Error of a run that counts as one: repeated runs of one configuration differ by a few percent."""

START_INSIDE = 0.2
"""Spreads of the prior that a search starts away from a bound."""

MOST = 120
"""Runs of one source that enter a fit, evenly spaced; more would say the same again."""


@dataclass(frozen=True)
class Constant:
    """
    One constant that runs may move.

    Parameters
    ----------
    low, high
        Bounds.
    spread
        Standard deviation of the prior: relative to its value where ``relative``, else as it is.
    """

    name: str
    low: float
    high: float
    spread: float
    relative: bool = True


CONSTANTS = {
    c.name: c
    for c in (
        Constant("utilization_peak", 0.05, 1.0, 0.2),
        Constant("utilization_fp8", 0.05, 1.0, 0.2),
        Constant("attention_loss", 1.0, 12.0, 0.4),
        Constant("hbm_efficiency", 0.1, 1.0, 0.4),
        Constant("link_efficiency", 0.05, 1.0, 0.3),
        Constant("network_efficiency", 0.05, 1.0, 0.3),
        Constant("launch_seconds", 1e-5, 0.05, 0.7),
        Constant("step_latency", 1e-7, 1e-3, 1.0),
        Constant("overlap_dp", 0.0, 1.0, 0.3, relative=False),
        Constant("overlap_fsdp", 0.0, 1.0, 0.3, relative=False),
        Constant("overlap_tp", 0.0, 1.0, 0.3, relative=False),
        Constant("fused_tp", 0.0, 1.0, 0.3, relative=False),
        Constant("tokens_half", 0.0, 5000.0, 200.0, relative=False),
        Constant("shard_loss", 0.0, 3000.0, 200.0, relative=False),
        Constant("q_slope", 0.0, 0.2, 0.01, relative=False),
    )
}
"""Every constant that a fit may move."""


@dataclass(frozen=True)
class Point:
    """
    A run to fit: its problem, its plan, and what it took.

    ``source`` is the table that it weighs with, ``family`` the model that was trained.
    """

    problem: Problem
    plan: Plan
    seconds: float
    source: str
    family: str = ""


@dataclass(frozen=True)
class Fit:
    """
    What a fit found.

    Parameters
    ----------
    values
        Constants by name.
    widths
        Standard deviation of each, prior included; relative where its constant's prior is.
    learned
        Share of the prior's variance that the runs took away, 0 to 1.
    """

    calibration: Calibration
    values: Mapping[str, float]
    widths: Mapping[str, float]
    learned: Mapping[str, float]


def log_errors(points: Sequence[Point], calibration: Calibration) -> Reals:
    """Natural logarithms of predicted over measured step times."""
    split = {flag: calibration.model_copy(update={"hops_split": flag}) for flag in (False, True)}
    found = []
    for point in points:
        # Whether hops are split is a fact of the run's software, not something to fit.
        own = split[point.problem.calibration.hops_split or calibration.hops_split]
        problem = point.problem.model_copy(update={"calibration": own})
        found.append(math.log(step_seconds(problem, point.plan) / point.seconds))
    return np.asarray(found)


def mean_error(errors: Reals) -> float:
    """Mean absolute relative error, from logarithms of predicted over measured."""
    return float(np.mean(np.abs(np.expm1(errors))))


def thinned(points: Sequence[Point], most: int = MOST) -> list[Point]:
    """Keep at most so many runs of a source, evenly spaced."""
    by: dict[str, list[Point]] = {}
    for point in points:
        by.setdefault(point.source, []).append(point)
    kept: list[Point] = []
    for group in by.values():
        step = max(1.0, len(group) / most)
        kept += [group[int(i * step)] for i in range(min(len(group), most))]
    return kept


def fit(
    points: Sequence[Point],
    prior: Calibration,
    names: Sequence[str],
    spreads: Mapping[str, float] | None = None,
) -> Fit:
    """
    Find the constants that explain runs best without straying from a prior for no reason.

    Minimises the sum of soft absolute errors of the logarithm of the step time in units of
    ``NOISE`` times the fourth root of the source's runs, so that near the answer a source weighs
    as the root of its runs, and of the squared distances from the prior in units of its spread (a
    maximum a posteriori estimate; SciPy's trust region method with the ``soft_l1`` loss). With a
    run or two the prior speaks, with many the runs do.

    Parameters
    ----------
    points
        At least one.
    prior
        Where the constants start, and all others stay.
    names
        Constants to move, of ``CONSTANTS``.
    spreads
        Other spreads of the prior, by name.
    """
    from scipy.optimize import least_squares

    points = thinned(points)
    counts = Counter(point.source for point in points)
    # Inside of the loss: runs of one source share its faults, so each is a noisier witness.
    weights = np.asarray([counts[point.source] ** -0.25 for point in points]) / NOISE
    chosen = [CONSTANTS[name] for name in names]
    spread = {c.name: (spreads or {}).get(c.name, c.spread) for c in chosen}
    start = {c.name: _start(c, prior) for c in chosen}

    def values(x: Reals) -> dict[str, float]:
        found = {}
        for c, step in zip(chosen, x, strict=True):
            moved = step * spread[c.name]
            value = start[c.name] * math.exp(moved) if c.relative else start[c.name] + moved
            found[c.name] = min(max(value, c.low), c.high)
        return found

    def residuals(x: Reals) -> Reals:
        errors = log_errors(points, prior.model_copy(update=values(x))) * weights
        soft = np.sign(errors) * np.sqrt(2.0 * (np.sqrt(1.0 + errors**2) - 1.0))
        return np.concatenate([soft, x])

    low, high = (
        [_edge(c, start[c.name], spread[c.name], edge) for c in chosen] for edge in ("low", "high")
    )
    starts = _starts(np.asarray(low), np.asarray(high))
    tried: list[Any] = [
        least_squares(
            residuals,
            begin,
            bounds=(low, high),
            diff_step=np.full(len(chosen), 1e-2),
            xtol=1e-4,
            ftol=1e-5,
            max_nfev=40,
        )
        for begin in starts
    ]
    solved = min(tried, key=lambda one: float(one.cost))
    found = values(solved.x)
    covariance = np.linalg.pinv(solved.jac.T @ solved.jac)
    wide = np.sqrt(np.clip(np.diag(covariance), 0.0, 1.0))
    return Fit(
        prior.model_copy(update=found),
        found,
        {c.name: float(w) * spread[c.name] for c, w in zip(chosen, wide, strict=True)},
        {c.name: float(1 - w**2) for c, w in zip(chosen, wide, strict=True)},
    )


def _starts(low: Reals, high: Reals) -> list[Reals]:
    """
    Choose where to start: at the prior, and where it lies on a bound a good way inside as well.

    A start on a bound would leave the search no way to tell which way is down.
    """
    room = np.minimum(START_INSIDE, (high - low) / 4)
    first = np.clip(np.zeros(len(low)), low + room, high - room)
    far = np.clip(np.zeros(len(low)), low + 2.0 * room, high - 2.0 * room)
    wide = np.minimum(2.0, (high - low) / 4)
    inside = np.where(first == 0.0, 0.0, np.where(first > 0.0, low + wide, high - wide))
    return [first] if np.array_equal(first, far) else [first, inside]


def _start(constant: Constant, prior: Calibration) -> float:
    """Where a constant starts."""
    value = getattr(prior, constant.name)
    if value is None:
        value = prior.utilization_peak
    return min(max(float(value), constant.low), constant.high)


def _edge(constant: Constant, start: float, spread: float, edge: str) -> float:
    """Turn a bound into spreads from the start."""
    bound = getattr(constant, edge)
    moved = math.log(bound / start) if constant.relative else bound - start
    return float(moved) / spread
