"""A calibration from measured runs: which constants they teach, how well, and how far to trust."""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from optplan import catalogue
from optplan.load import calibration_named
from optplan.models.cost.calibration import Calibration, Seen
from optplan.models.errors import Fault, InputError
from optplan.models.numbers import counted
from optplan.models.record import LARGEST_COUNT, Record
from optplan.runs.chosen import expressed_of, of_one
from optplan.runs.express import Expressed, stack_of
from optplan.runs.fit import CONSTANTS, Fit, Point, fit, log_errors, mean_error
from optplan.runs.points import point_of, teachable
from optplan.runs.stacks import STACK_NAMES
from optplan.runs.table import Run, read_runs

MOST_PARTS = 20
"""Parts that are left out one by one; each costs a fit."""

SIGMAS = 1.96
"""Standard deviations of a 95 % interval."""

FAR = math.log(2.0)
"""A run that the fit misses by more than a factor of two is named among the residuals."""


class Learned(Record):
    """One constant of a fit."""

    name: str
    """Field of the calibration."""
    prior: float
    """Where it started."""
    value: float
    """What was found."""
    low: float
    """Lower end of the 95 % interval, prior included."""
    high: float
    """Upper end."""
    learned: float
    """Share of the prior's variance that the runs took away; near 0 the prior speaks alone."""


class SourceError(Record):
    """How a fit does on the runs of one source."""

    source: str
    """The table."""
    runs: int
    """How many of its runs were fitted."""
    error: float
    """Mean absolute error of the step time, in the fit."""
    bias: float
    """Mean of predicted over measured, less one."""
    held_out: float | None = None
    """Mean absolute error when this source is left out of the fit; none for a single source."""


class Residual(Record):
    """One run that a fit misses by more than a factor of two."""

    source_id: str
    """Name of the row."""
    error: float
    """Predicted over measured step time, less one."""


class CalibrationFit(Record):
    """What ``calibrate`` found."""

    calibration: Calibration
    """The constants, ready for a spec."""
    accelerators: tuple[str, ...]
    """Devices of the fitted runs."""
    stack: str
    """Kind of software of the fitted runs."""
    prior: str
    """Calibration that the fit started from."""
    constants: tuple[Learned, ...]
    """Every constant that could move."""
    sources: tuple[SourceError, ...]
    """Errors by source."""
    far: tuple[Residual, ...]
    """Runs missed by more than a factor of two."""
    left_out: dict[str, int]
    """Why rows were not fitted, and how many."""
    hash: str
    """SHA-256 of the constants, frozen before anything is scored."""

    @property
    def exit_code(self) -> int:
        """Always 0: without a fit there is no record."""
        return 0

    def to_json(self) -> str:
        """Write the fit as JSON."""
        return json.dumps(self.model_dump(mode="json"), indent=2, ensure_ascii=False) + "\n"


def calibrate(
    paths: Iterable[str | Path],
    *,
    prior: str | Path | Calibration | None = None,
    accelerator: str | None = None,
    stack: str | None = None,
    constants: Sequence[str] = (),
    name: str | None = None,
    hold_out: bool = True,
    spreads: Mapping[str, float] | None = None,
    keep: Callable[[Run], bool] = lambda run: True,
    progress: Callable[[str], None] | None = None,
) -> CalibrationFit:
    """
    Fit the constants of the cost model to measured runs.

    Parameters
    ----------
    paths
        Tables of measured runs.
    prior
        Calibration to start from, by name or as a file; left out: what the accelerator has, else
        the generic one. With a run or two it decides most.
    accelerator, stack
        Which rows to take, where the tables hold several.
    constants
        Constants that may move; left out: those that the runs can teach something about.
    name
        What to call the result.
    hold_out
        False to leave out the errors of sources that were not fitted, which cost a fit each.
    spreads
        Standard deviations of the prior by constant, where the usual ones do not do.
    keep
        Further choice of rows.
    progress
        Called with a line of text before each fit.

    Raises
    ------
    InputError
        A table cannot be read, no row can be fitted, or rows of several accelerators or stacks are
        mixed and none was named.
    """
    runs = read_runs(paths)
    wrong = [constant for constant in constants if constant not in CONSTANTS]
    if wrong:
        remedy = f"one of {', '.join(CONSTANTS)}"
        raise InputError(
            [
                Fault("", "--fit", f"'{one}' is no constant that a fit may move", remedy)
                for one in wrong
            ]
        )
    if stack is not None and stack not in STACK_NAMES:
        problem = f"'{stack}' is no software stack that is told apart"
        raise InputError([Fault("", "--stack", problem, f"one of {', '.join(STACK_NAMES)}")])
    start = None if prior is None else calibration_named(prior, "--prior")
    reasons: Counter[str] = Counter()
    found = [x for run in runs if keep(run) for x in expressed_of(run, start, reasons)]
    found = of_one(found, accelerator, stack, reasons)
    devices = tuple(sorted({x.problem.cluster.accelerator.name for x in found}))
    kind = stack_of(found[0].run)
    if start is None:
        start = catalogue.calibration_for(devices[0], kind)
    points = [point_of(x, start) for x in found]
    chosen = tuple(dict.fromkeys(constants)) or teachable(found, start)
    if progress:
        progress(f"fitting {len(chosen)} constants to {len(points)} runs")
    fitted = fit(points, start, chosen, spreads)
    parts, held = _held_out(points, start, chosen, spreads, progress) if hold_out else ("", {})
    sources = _sources(points, fitted.calibration, held)
    done = _described(fitted, found, sources, name, start, parts, held)
    errors = log_errors(points, done)
    pairs = zip(found, errors, strict=True)
    return CalibrationFit(
        calibration=done,
        accelerators=devices,
        stack=kind,
        prior=start.name,
        constants=tuple(_learned(fitted, start)),
        sources=sources,
        far=tuple(
            Residual(source_id=x.run.source_id or x.run.place, error=math.exp(e) - 1)
            for x, e in pairs
            if abs(e) > FAR
        ),
        left_out=dict(sorted(reasons.items())),
        hash=fingerprint(done),
    )


def fingerprint(calibration: Calibration) -> str:
    """Hash the constants of a calibration, words about them left out."""
    words = {"name", "accelerators", "fitted_on", "range", "error", "notes", "sources"}
    words |= {"held_out", "memory_error", "intervals"}
    constants = calibration.model_dump(mode="json", exclude=words)
    text = json.dumps(constants, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _held_out(
    points: Sequence[Point],
    prior: Calibration,
    names: Sequence[str],
    spreads: Mapping[str, float] | None,
    progress: Callable[[str], None] | None,
) -> tuple[str, dict[str, float]]:
    """
    Mean absolute error of every part of the runs under a fit of all others.

    Parts are sources where there are several, else models, else single runs, equal ones together;
    where there are more than ``MOST_PARTS`` of them, a tenth of them is left out at a time.
    """
    divided = [(word, [part(p) for p in points]) for word, part in _PARTS]
    usable = [(word, names_of) for word, names_of in divided if len(set(names_of)) > 1]
    if not usable:
        return "", {}
    word, names_of = usable[0]
    parts = list(dict.fromkeys(names_of))
    if len(parts) > MOST_PARTS:
        tenth = {name: f"{i % 10 + 1} of 10" for i, name in enumerate(parts)}
        word, names_of = f"tenths of the {word}", [tenth[name] for name in names_of]
        parts = sorted(set(names_of), key=lambda name: int(name.split()[0]))
    pairs = list(zip(names_of, points, strict=True))
    found = {}
    for left in parts:
        if progress:
            progress(f"fitting without {left if len(left) < 60 else 'one run'}")
        rest = fit([p for name, p in pairs if name != left], prior, names, spreads)
        errors = log_errors([p for name, p in pairs if name == left], rest.calibration)
        found[left] = mean_error(errors)
    return word, found


_PARTS: tuple[tuple[str, Callable[[Point], str]], ...] = (
    ("sources", lambda point: point.source),
    ("models", lambda point: point.family),
    ("runs", lambda point: f"{point.plan!r} {point.problem.workload!r} {point.problem.devices}"),
)
"""Parts that are left out in turn, the widest apart first."""


def _sources(
    points: Sequence[Point], calibration: Calibration, held: dict[str, float]
) -> tuple[SourceError, ...]:
    """Errors of a fit by source."""
    errors = log_errors(points, calibration)
    found = []
    for source in sorted({point.source for point in points}):
        own = errors[[point.source == source for point in points]]
        found.append(
            SourceError(
                source=source,
                runs=len(own),
                error=mean_error(own),
                bias=float(np.expm1(np.mean(own))),
                held_out=held.get(source),
            )
        )
    return tuple(found)


def _learned(fitted: Fit, prior: Calibration) -> Iterable[Learned]:
    """List what the runs taught."""
    for name, value in fitted.values.items():
        constant, width = CONSTANTS[name], fitted.widths[name] * SIGMAS
        low = value * math.exp(-width) if constant.relative else value - width
        high = value * math.exp(width) if constant.relative else value + width
        began = getattr(prior, name)
        yield Learned(
            name=name,
            prior=float(prior.utilization_peak if began is None else began),
            value=float(value),
            low=max(constant.low, low),
            high=min(constant.high, high),
            learned=fitted.learned[name],
        )


def _described(
    fitted: Fit,
    found: Sequence[Expressed],
    sources: Sequence[SourceError],
    name: str | None,
    prior: Calibration,
    parts: str,
    held: Mapping[str, float],
) -> Calibration:
    """Round the constants, and say what they were fitted on and where they were seen to hold."""
    values = {key: _rounded(value) for key, value in fitted.values.items()}
    plans = [(x.problem.workload, x.plans[0], x.problem.devices) for x in found]
    tokens = [p.micro_batch * w.sequence_length for w, p, _ in plans]
    shards = [w.architecture.hidden // p.tp for w, p, _ in plans]
    devices = [n for _, _, n in plans]
    seen = Seen(
        tokens=(min(tokens), min(max(tokens), LARGEST_COUNT)),
        shard=(min(shards), max(shards)),
        devices=(min(devices), max(devices)),
    )
    inside = float(np.mean([s.error for s in sources]))
    error = f"{100 * inside:.1f} % mean in the fit, no run left out"
    if held:
        error = (
            f"{100 * _mean(held):.1f} % mean on {parts} left out of the fit, {len(held)}; "
            f"{100 * inside:.1f} % mean in the fit"
        )
    total = sum(s.runs for s in sources)
    each = ", ".join(f"{s.runs} {s.source}" for s in sources)
    origin = f"robust fit to the runs named above, from the prior {prior.name}"
    text = f"{counted(total, 'run')}: {each}"
    return prior.model_copy(
        update={
            **values,
            "name": name or "calibrated",
            "measured": True,
            "fitted_on": text if len(text) <= 200 else f"{total} runs of {len(sources)} tables",
            "range": (
                f"tokens of a micro-batch {seen.tokens[0]} to {seen.tokens[1]}, hidden columns of "
                f"a tensor rank {seen.shard[0]} to {seen.shard[1]}, {seen.devices[0]} to "
                f"{seen.devices[1]} devices"
            ),
            "seen": seen,
            "held_out": _rounded(_mean(held)) if held else None,
            "error": error,
            "notes": "",
            "intervals": {**prior.intervals, **_intervals(fitted, prior)},
            "sources": {**prior.sources, **dict.fromkeys(values, origin)},
        }
    )


def _intervals(fitted: Fit, prior: Calibration) -> dict[str, tuple[float, float]]:
    """Intervals of what a fit moved, to the digits that a file keeps."""
    return {
        one.name: (float(f"{one.low:.4g}"), float(f"{one.high:.4g}"))
        for one in _learned(fitted, prior)
    }


def _mean(held: Mapping[str, float]) -> float:
    """Mean over what was left out, every part weighing the same."""
    return float(np.mean(list(held.values())))


def _rounded(value: float) -> float:
    """Keep three digits, which no fit can tell apart from more."""
    return float(f"{value:.3g}")
