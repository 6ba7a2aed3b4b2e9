"""The cost model against measured runs: row by row, table by table, and what each part is worth."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from optplan.load import calibration_named, machine_in
from optplan.models.cost.calibration import Calibration
from optplan.models.cost.estimate import step_seconds
from optplan.models.record import Record
from optplan.models.spec.plan import Plan
from optplan.models.spec.problem import Problem
from optplan.runs.express import Expressed, Inexpressible, express
from optplan.runs.predict import Prediction, plan_of, predict
from optplan.runs.score import Errors, Score, errors, score
from optplan.runs.table import Run, read_runs

ENDLESS = 2**62
"""Bytes per second of links and networks that are left out of the price."""


class LeftOut(Record):
    """A row that cannot be priced."""

    source_id: str
    """Name of the row."""
    place: str
    """Where it stands."""
    reason: str
    """Why."""


class TableScore(Record):
    """One table, or all together."""

    rows: int
    """Rows read."""
    priced: int
    """Rows that could be priced."""
    score: Score
    """Statistics of them."""
    ablations: dict[str, Errors]
    """Errors of the step time with a part of the model switched off."""
    left_out: dict[str, int]
    """Reasons and how many rows."""


class Validation(Record):
    """What ``validate`` found."""

    rows: tuple[Prediction, ...]
    """Every row that could be priced."""
    left_out: tuple[LeftOut, ...]
    """Every other row."""
    files: dict[str, TableScore]
    """By table."""
    all: TableScore
    """All rows, every row weighing the same."""
    calibrations: dict[str, int]
    """Calibrations by name, and how many rows each priced."""

    @property
    def exit_code(self) -> int:
        """0: an error, however large, is an answer."""
        return 0

    def to_json(self) -> str:
        """Write rows, and per file and in all time, memory, oom and ranking."""
        whole = self.model_dump(mode="json")
        for table in (whole["all"], *whole["files"].values()):
            table.update(table.pop("score"))
        return json.dumps(whole, indent=2, ensure_ascii=False) + "\n"


def validate(
    paths: Iterable[str | Path],
    *,
    calibration: str | Path | Calibration | None = None,
    ablations: bool = True,
    progress: Callable[[int, int], None] | None = None,
) -> Validation:
    """
    Price measured runs and compare.

    Parameters
    ----------
    paths
        Tables of measured runs; nothing is fitted to them.
    calibration
        A calibration by name, as a file, or itself, for every row; left out: each row's own
        accelerator and software stack's. A file that describes its accelerator too, as ``profile``
        writes it, prices the rows that name it.
    ablations
        False to leave out what the parts of the model are worth.
    progress
        Called with rows done and rows in all.

    Raises
    ------
    InputError
        A table or the calibration cannot be read.
    """
    own = None if calibration is None else calibration_named(calibration, "--calibration")
    machine = machine_in(calibration)
    runs = read_runs(paths)
    found: list[tuple[Expressed, Prediction]] = []
    left: list[LeftOut] = []
    for done, run in enumerate(runs):
        if progress is not None:
            progress(done, len(runs))
        try:
            expressed = express(run, own, machine)
        except Inexpressible as reason:
            left.append(LeftOut(source_id=run.source_id, place=run.place, reason=str(reason)))
            continue
        found.append((expressed, predict(expressed)))
    if progress is not None:
        progress(len(runs), len(runs))
    tables = list(dict.fromkeys(run.file for run in runs))
    changed: dict[str, list[float | None]] = {}
    if ablations:
        plans = [plan_of(expressed, expressed.problem) for expressed, _ in found]
        changed = {name: _ablated(found, plans, change) for name, change in ABLATIONS.items()}
    files = {table: _scored(runs, found, left, changed, table) for table in tables}
    return Validation(
        rows=tuple(prediction for _, prediction in found),
        left_out=tuple(left),
        files=files,
        all=_scored(runs, found, left, changed, None),
        calibrations=dict(Counter(p.calibration for _, p in found)),
    )


# -- ablations ------------------------------------------------------------------------------------


FLAT = {"tokens_half": 0.0, "shard_loss": 0.0, "alignment_loss": 0.0, "pointwise": 0.0}
"""Constants of a calibration under which the shape of a product plays no part."""


def _constant_rho(problem: Problem) -> Problem:
    """Give every matrix product the same utilization."""
    return problem.with_accelerator(units=None).with_calibration(**FLAT)


def _no_communication(problem: Problem) -> Problem:
    """Leave all communication out of the price."""
    free = {"bandwidth": ENDLESS, "latency": 0.0}
    link = problem.cluster.accelerator.link.model_copy(update=free)
    return (
        problem.with_accelerator(link=link)
        .with_cluster(network=ENDLESS, network_latency=0.0)
        .with_calibration(step_latency=0.0, hop_latency=0.0)
    )


def _no_floor(problem: Problem) -> Problem:
    """Launch everything in no time."""
    return problem.with_calibration(launch_seconds=0.0, launch_tensor=0.0)


def _no_overlap(problem: Problem) -> Problem:
    """Hide nothing."""
    parts = ("overlap_tp", "overlap_dp", "overlap_cp", "overlap_fsdp", "overlap_ep", "fused_tp")
    return problem.with_calibration(**dict.fromkeys(parts, 0.0))


ABLATIONS: Mapping[str, Callable[[Problem], Problem]] = {
    "constant rho": _constant_rho,
    "no communication": _no_communication,
    "no launch floor": _no_floor,
    "no overlap": _no_overlap,
}
"""Parts of the cost model that can be switched off, nothing fitted anew."""


def _ablated(
    found: Sequence[tuple[Expressed, Prediction]],
    plans: Sequence[Plan],
    change: Callable[[Problem], Problem],
) -> list[float | None]:
    """Errors of the step time with something switched off; None without a measurement."""
    return [
        None
        if prediction.measured_step_seconds is None
        else step_seconds(change(expressed.problem), plan) / prediction.measured_step_seconds - 1
        for (expressed, prediction), plan in zip(found, plans, strict=True)
    ]


def _scored(
    runs: Sequence[Run],
    found: Sequence[tuple[Expressed, Prediction]],
    left: Sequence[LeftOut],
    changed: Mapping[str, Sequence[float | None]],
    table: str | None,
) -> TableScore:
    """Score one table, or all."""
    mine = [table is None or expressed.run.file == table for expressed, _ in found]
    rows = [run for run in runs if table is None or run.file == table]
    places = {run.place for run in rows}
    chosen = [p for (_, p), own in zip(found, mine, strict=True) if own]
    return TableScore(
        rows=len(rows),
        priced=len(chosen),
        score=score(chosen),
        ablations={
            name: errors(e for e, own in zip(values, mine, strict=True) if own)
            for name, values in changed.items()
        },
        left_out=dict(Counter(one.reason for one in left if one.place in places)),
    )
