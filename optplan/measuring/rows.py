"""The table of measured runs: one row a layout, appended whole, taken up where it was left."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from optplan.models.errors import Fault, InputError
from optplan.models.spec.plan import Plan
from optplan.models.spec.problem import Problem
from optplan.ranks.job import Ending
from optplan.runs.predict import short_layout

_NAMES = """
source_id source url_or_repo table row_note model_name num_layers hidden_size num_heads
num_kv_heads ffn_hidden_size gated_mlp vocab_size seq_len num_experts top_k moe_ffn params_b
accelerator num_devices devices_per_node peak_bf16_tflops hbm_gb intra_bw_gbs inter_bw_gbs
tp pp dp cp ep vpp seq_parallel zero_stage recompute micro_batch global_batch precision
framework flash_attention step_time_s tokens_per_s_per_device model_tflops_per_device
hw_tflops_per_device mfu peak_mem_gb outcome
"""

HEADER = tuple(_NAMES.split())
"""Columns of every table of measured runs."""

OWN = ("step_low_s", "step_high_s", "steps", "predicted_step_s", "loss_error", "layout", "job")
"""
Columns beyond them, which readers of such tables ignore: fastest and slowest step and their
number, the price before the run, the largest relative difference of a loss from that of one
process, the plan in short, and a hash of all that was asked.
"""

COLUMNS = (*HEADER, *OWN)

GIB = 2**30


def row_of(
    problem: Problem,
    plan: Plan,
    ending: Ending,
    name: str,
    facts: Mapping[str, object],
) -> dict[str, str]:
    """
    Write down one layout; what is not known stays empty.

    Parameters
    ----------
    problem, plan
        What was trained, and how.
    ending
        How it ended.
    name
        Name of the row.
    facts
        What was measured and found beyond: ``note``, ``source``, and any of the columns.
    """
    shape, device = problem.workload.architecture, problem.cluster.accelerator
    peak = device.peak.get("bf16")
    cells: dict[str, object] = {
        "source_id": name,
        "table": "optplan measure",
        "row_note": "; ".join([*_notes(plan), str(facts.get("note", ""))]).strip("; "),
        "model_name": shape.name,
        "num_layers": shape.layers,
        "hidden_size": shape.hidden,
        "num_heads": shape.heads,
        "num_kv_heads": shape.key_heads,
        "ffn_hidden_size": shape.ffn,
        "gated_mlp": shape.gated,
        "vocab_size": shape.vocabulary,
        "seq_len": problem.workload.sequence_length,
        "accelerator": device.name,
        "num_devices": plan.devices,
        "devices_per_node": min(plan.devices, problem.cluster.devices_per_node),
        "peak_bf16_tflops": None if peak is None else f"{peak / 1e12:.6g}",
        "hbm_gb": f"{device.hbm / 1e9:.6g}",
        "intra_bw_gbs": f"{device.link.bandwidth / 1e9:.6g}",
        "tp": plan.tp,
        "pp": plan.pp,
        "dp": plan.dp,
        "cp": plan.cp,
        "ep": plan.ep,
        "vpp": plan.vpp,
        "seq_parallel": plan.sequence_parallel,
        "zero_stage": plan.zero,
        "recompute": plan.recompute,
        "micro_batch": plan.micro_batch,
        "global_batch": plan.global_batch,
        "precision": problem.workload.precision,
        "flash_attention": problem.workload.flash_attention,
        "outcome": ending.outcome,
        "layout": short_layout(plan),
    }
    cells |= {key: value for key, value in facts.items() if key in COLUMNS}
    return {column: _cell(cells.get(column)) for column in COLUMNS}


def _notes(plan: Plan) -> list[str]:
    """Say of a plan what the columns cannot, in words that a reader of tables knows."""
    notes = []
    if plan.pp > 1:
        word = {"interleaved": "1f1b-i"}.get(plan.schedule, plan.schedule)
        notes.append(f"schedule {word}")
        notes.append(f"num-layer-list {','.join(map(str, plan.layers_per_stage))}")
    return notes


def _cell(value: object) -> str:
    """Write one cell on one line."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.6g}"
    return " ".join(str(value).split())


class Table:
    """
    A table on disk that rows are added to, each whole or not at all.

    Parameters
    ----------
    path
        The CSV file. One that holds rows already is gone on with.

    Raises
    ------
    InputError
        The file is something else, or cannot be read or written.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.rows = self._held()

    def done(self, job: str) -> set[str]:
        """Return the layouts that were measured before, for the same job."""
        return {row["layout"] for row in self.rows if row["job"] == job}

    def add(self, row: Mapping[str, str]) -> None:
        """
        Append a row, and see it safely on disk.

        Raises
        ------
        InputError
            It cannot be written.
        """
        text = _line([row[column] for column in COLUMNS])
        if not self.rows and not self._exists():
            text = _line(COLUMNS) + text
        try:
            handle = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
            try:
                # One write, so that whoever reads meanwhile sees whole rows.
                os.write(handle, text.encode())
                os.fsync(handle)
            finally:
                os.close(handle)
        except OSError as error:
            raise self._refusal(f"cannot write the file: {error.strerror}") from None
        self.rows.append(dict(row))

    def _exists(self) -> bool:
        """Tell whether there is a file with something in it."""
        return self.path.is_file() and self.path.stat().st_size > 0

    def _held(self) -> list[dict[str, str]]:
        """Read what is there; drop a last row that was cut off."""
        if self.path.exists() and not self.path.is_file():
            raise self._refusal("there is something that is no file")
        if not self.path.parent.is_dir():
            raise self._refusal("there is no such folder")
        if not self._exists():
            return []
        try:
            data = self.path.read_bytes()
            text = data[: data.rfind(b"\n") + 1].decode("utf-8")
            lines = list(csv.reader(io.StringIO(text, newline=""), strict=True))
        except (OSError, UnicodeDecodeError, csv.Error) as error:
            raise self._refusal(f"cannot be read: {error}") from None
        if not lines or tuple(lines[0]) != COLUMNS:
            raise self._refusal("this is no table that optplan measure wrote")
        if any(len(cells) != len(COLUMNS) for cells in lines[1:]):
            raise self._refusal("a row has not as many cells as the header")
        if len(text.encode()) < len(data):
            try:
                os.truncate(self.path, len(text.encode()))
            except OSError as error:
                raise self._refusal(f"cannot write the file: {error.strerror}") from None
        return [dict(zip(COLUMNS, cells, strict=True)) for cells in lines[1:]]

    def _refusal(self, problem: str) -> InputError:
        """Say what is wrong with the file."""
        remedy = "name a new file, or one that optplan measure began"
        return InputError([Fault(str(self.path), "", problem, remedy)])


def _line(cells: Iterable[str] | Sequence[str]) -> str:
    """Write one line of a table."""
    stream = io.StringIO()
    csv.writer(stream, lineterminator="\n").writerow(list(cells))
    return stream.getvalue()
