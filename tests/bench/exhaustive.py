"""Points that one core prices in a CPU second, beside a peer's plans."""

from __future__ import annotations

import os
import platform
import statistics
import time

import numpy as np

import optplan
from optplan.models.formulate import formulate
from optplan.solvers.base import SolverConfig
from optplan.solvers.search import Search

RUNS = 5
"""Odd, so that the median is a run."""

PEER = 470
"""Plans a CPU second of Calculon; measured elsewhere, on a 2-core machine, one process."""

SPEC = {
    "workload": {"architecture": "gpt3-175b", "sequence_length": 2048, "precision": "bf16"},
    "cluster": {
        "accelerator": "ascend-910b",
        "nodes": 16,
        "devices_per_node": 8,
        "network": "200 Gb/s",
    },
    "search": {"global_batch": [512, 1536], "idle_devices": False},
}
"""Every choice open but idle devices: schedules, ZeRO 0 to 3, context parallelism, any layers."""


def main() -> None:
    """Formulate and price a space of more than five million points, and print the medians."""
    problem = optplan.load(SPEC)
    written, priced, bounded = [], [], []
    for _ in range(RUNS):
        start = time.process_time()
        form = formulate(problem)
        middle = time.process_time()
        outcome = Search(form.program, SolverConfig(), bounded=False).outcome()
        end = time.process_time()
        searched = Search(form.program, SolverConfig()).outcome()
        written.append(middle - start)
        priced.append(end - middle)
        bounded.append(time.process_time() - end)
    assert outcome.census is not None
    assert searched.goal == outcome.goal
    points = outcome.census.points
    formulate_seconds, census_seconds = statistics.median(written), statistics.median(priced)
    search_seconds = statistics.median(bounded)
    print(f"machine         {platform.machine()}, {os.cpu_count()} cores, numpy {np.__version__}")
    print(f"problem         gpt3-175b on {problem.devices} devices, global batch 512 or 1536")
    print(f"points          {points:,}, of which {outcome.priced:,} pass the tables and are priced")
    print(f"formulate       {formulate_seconds:.3f} CPU s, median of {RUNS}")
    print(f"census          {census_seconds:.3f} CPU s, median of {RUNS}")
    print(f"bounded search  {search_seconds:.3f} CPU s, {searched.priced:,} points priced")
    for what, seconds in (
        ("census alone", census_seconds),
        ("formulate too", formulate_seconds + census_seconds),
    ):
        rate = points / seconds
        print(f"{what:15} {rate:,.0f} points per CPU second, {rate / PEER:,.0f} times {PEER}")
        rate = outcome.priced / seconds
        print(f"{'':15} {rate:,.0f} priced points alone, {rate / PEER:,.0f} times {PEER}")
    print(f"{PEER} plans per CPU second: Calculon (55 as shipped), measured elsewhere, on a 2-core")
    print(
        "machine. Its cost model is finer and prices plan by plan; here points share their prices."
    )
