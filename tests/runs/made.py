"""Tables of runs that the tests make up: published by nobody, priced by a known calibration."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from optplan.models.cost.calibration import Calibration
from optplan.models.cost.estimate import estimate
from optplan.runs.express import express
from optplan.runs.table import COLUMNS, read_runs

ROW: Mapping[str, Any] = {
    "source_id": "made:1",
    "model_name": "gpt-made",
    "num_layers": 24,
    "hidden_size": 4096,
    "num_heads": 32,
    "num_kv_heads": 32,
    "ffn_hidden_size": 16384,
    "gated_mlp": "false",
    "vocab_size": 51200,
    "seq_len": 2048,
    "accelerator": "A100-SXM-80GB",
    "num_devices": 16,
    "devices_per_node": 8,
    "peak_bf16_tflops": 312,
    "hbm_gb": 80,
    "inter_bw_gbs": 25,
    "tp": 4,
    "pp": 2,
    "dp": 2,
    "cp": 1,
    "seq_parallel": "false",
    "zero_stage": 1,
    "recompute": "full",
    "micro_batch": 2,
    "global_batch": 64,
    "precision": "bf16",
    "framework": "Megatron-LM",
    "flash_attention": "true",
    "outcome": "ok",
}
"""A run with everything stated but its time."""


def text_of(rows: Iterable[Mapping[str, Any]], columns: Iterable[str] = COLUMNS) -> str:
    """Write rows as CSV."""
    stream = io.StringIO()
    writer = csv.DictWriter(stream, list(columns), lineterminator="\n", extrasaction="ignore")
    writer.writeheader()
    writer.writerows(rows)
    return stream.getvalue()


def table(folder: Path, *rows: Mapping[str, Any], name: str = "made") -> Path:
    """Write rows, each over ``ROW``, to a file."""
    path = folder / f"{name}.csv"
    path.write_text(text_of([{**ROW, **row} for row in rows]), encoding="utf-8")
    return path


def timed(
    folder: Path, rows: Iterable[Mapping[str, Any]], truth: Calibration, name: str = "made"
) -> Path:
    """Write rows with the step time that a calibration gives them."""
    rows = [{**ROW, "source_id": f"{name}:{i}", **row} for i, row in enumerate(rows)]
    path = table(folder, *rows, name=name)
    done = []
    for row, run in zip(rows, read_runs([path]), strict=True):
        found = express(run, truth)
        seconds = estimate(found.problem, found.plans[0]).step_seconds
        done.append({**row, "step_time_s": f"{seconds:.9g}"})
    return table(folder, *done, name=name)


SPREAD: tuple[Mapping[str, Any], ...] = (
    {},
    {"tp": 1, "pp": 1, "dp": 16},
    {"tp": 8, "pp": 1, "dp": 2},
    {"tp": 2, "pp": 8, "dp": 1},
    {"hidden_size": 1024, "ffn_hidden_size": 4096, "num_heads": 16, "tp": 1, "dp": 8},
    {"hidden_size": 12288, "ffn_hidden_size": 49152, "num_heads": 96, "micro_batch": 1},
    {"seq_len": 16384, "micro_batch": 1, "global_batch": 16},
    {"micro_batch": 8},
    {"num_layers": 48, "recompute": "none"},
    {"tp": 8, "pp": 2, "dp": 1, "micro_batch": 4},
)
"""Runs that differ enough to tell constants apart."""
