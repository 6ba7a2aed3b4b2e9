"""A small job on a made-up machine, and what measured runs need to be written down."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import pytest

from optplan.load import load
from optplan.models.spec.problem import Problem

needs_torch = pytest.mark.skipif(
    find_spec("torch") is None, reason='needs PyTorch: pip install "optplan[profile]"'
)

SHAPE = {
    "name": "tiny",
    "layers": 4,
    "hidden": 64,
    "heads": 4,
    "kv_heads": 2,
    "ffn": 128,
    "vocabulary": 256,
}

SEARCH: dict[str, Any] = {
    "global_batch": 8,
    "cp": 1,
    "recompute": "none",
    "zero": 0,
    "schedule": "1f1b",
    "sequence_parallel": False,
    "layers_per_stage": "even",
    "idle_devices": False,
}

MACHINE = {
    "name": "made-up",
    "peak": {"fp32": "50 GFLOP/s"},
    "hbm": "8 GiB",
    "hbm_bandwidth": "10 GB/s",
    "link": {"kind": "switch", "bandwidth": "1 GB/s", "latency": "50 us"},
    "domain": 2,
    "network": "1 GB/s",
}

CALIBRATION = {
    "utilization_peak": 0.8,
    "reserve": "300 MiB",
    "measured": False,
    "fitted_on": "nothing",
    "range": "none",
    "error": "unknown",
    "sources": {},
}


def spec(shape: dict[str, Any] | None = None, **search: Any) -> dict[str, Any]:
    """Describe the job as a spec, with another shape or search."""
    return {
        "workload": {
            "architecture": {**SHAPE, **(shape or {})},
            "sequence_length": 32,
            "precision": "fp32",
        },
        "cluster": {"accelerator": MACHINE, "nodes": 1},
        "search": {**SEARCH, **search},
        "calibration": CALIBRATION,
    }


def problem(shape: dict[str, Any] | None = None, **search: Any) -> Problem:
    """Describe the job as a problem."""
    return load(spec(shape, **search))
