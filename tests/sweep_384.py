"""
Nineteen layouts of one job on 384 A100: bigscience-workshop/bigscience, chronicles-prequel.md.

A 181B GPT of 72 layers, hidden size 14336 and 64 heads, a vocabulary of about 250,880, sequences of
2048, fp16, full recomputation, ZeRO-1, no flash attention, on 48 nodes with 50 Gb/s per device.
"""

from __future__ import annotations

from typing import NamedTuple

from optplan.load import load
from optplan.models.spec.plan import Plan
from optplan.models.spec.problem import Problem

LAYERS = 72


class Layout(NamedTuple):
    """One line of the table; None for a run out of memory."""

    dp: int
    tp: int
    pp: int
    micro_batch: int
    global_batch: int
    seconds: float | None


LAYOUTS = tuple(
    Layout(*line)
    for line in (
        (8, 4, 12, 2, 2048, 110.48),
        (16, 4, 6, 2, 2048, 111.71),
        (8, 4, 12, 4, 2048, 111.89),
        (16, 2, 12, 2, 2048, 112.50),
        (8, 8, 6, 4, 2048, 114.11),
        (4, 8, 12, 4, 2048, 117.07),
        (16, 4, 6, 4, 2048, 117.11),
        (8, 2, 24, 1, 2048, 119.53),
        (8, 2, 24, 2, 2048, 122.75),
        (4, 8, 12, 2, 2048, 128.82),
        (4, 4, 24, 1, 2048, 130.60),
        (6, 8, 8, 4, 2016, 113.16),
        (12, 8, 4, 4, 2016, 114.81),
        (12, 8, 4, 2, 2016, 125.52),
        (24, 8, 2, 2, 2016, 136.13),
        (24, 8, 2, 1, 2016, 145.45),
        (48, 8, 1, 1, 2016, None),
        (32, 2, 6, 1, 2048, None),
        (32, 2, 6, 2, 2048, None),
    )
)
"""Every layout that was tried, with the seconds of a step."""


def problem_of() -> Problem:
    """Describe the job, under the calibration of its device and software."""
    return load(
        {
            "workload": {
                "architecture": {
                    "layers": LAYERS,
                    "hidden": 14336,
                    "heads": 64,
                    "ffn": 57344,
                    "vocabulary": 250880,
                    "gated": False,
                    "tied_embeddings": True,
                    "biases": "all",
                    "norm": "layernorm",
                    "dropout": True,
                },
                "sequence_length": 2048,
                "precision": "fp16",
                "flash_attention": False,
            },
            "cluster": {"accelerator": "a100-sxm-80gb", "nodes": 48, "network": "50 Gb/s"},
            "search": {"global_batch": [2016, 2048]},
            "overlap": [],
            "calibration": "a100-deepspeed",
        }
    )


def plan_of(layout: Layout) -> Plan:
    """Write a layout as a plan."""
    each = LAYERS // layout.pp
    return Plan(
        tp=layout.tp,
        pp=layout.pp,
        dp=layout.dp,
        micro_batch=layout.micro_batch,
        micro_batches=layout.global_batch // (layout.micro_batch * layout.dp),
        global_batch=layout.global_batch,
        zero=1,
        recompute="full",
        layers_per_stage=(each,) * layout.pp,
        recomputed_layers_per_stage=(each,) * layout.pp,
    )
