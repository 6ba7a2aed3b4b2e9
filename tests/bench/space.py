"""Large spaces to a proof: points, joint strategies, CPU seconds after imports, peak memory."""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from typing import Any

H100: dict[str, Any] = {"accelerator": "h100-sxm-80gb", "devices_per_node": 8}
A100: dict[str, Any] = {"accelerator": "a100-sxm-80gb", "devices_per_node": 8}

GRID: dict[str, Any] = {
    "cp": 1,
    "schedule": ["1f1b", "interleaved"],
    "recompute": ["none", "selective", "full"],
    "zero": [0, 1],
    "hsdp": False,
    "order": "data_inside",
    "idle_devices": False,
}
"""Degrees, batch, interleaving, recomputation and sharding, as a grid search would take them."""

SPECS: dict[str, dict[str, Any]] = {
    "GPT-3 175B, 512 A100, G in steps of 64 up to 3072": {
        "workload": {"architecture": "gpt3-175b", "sequence_length": 2048},
        "cluster": {**A100, "nodes": 64, "network": "200 Gb/s"},
        "search": {**GRID, "global_batch": {"min": 64, "max": 3072, "multiple_of": 64}},
    },
    "GPT-3 175B, 512 A100, any G up to 3072": {
        "workload": {"architecture": "gpt3-175b", "sequence_length": 2048},
        "cluster": {**A100, "nodes": 64, "network": "200 Gb/s"},
        "search": {**GRID, "global_batch": {"min": 1, "max": 3072}},
    },
    "Llama-3.1-405B, 16,384 H100, everything open": {
        "workload": {"architecture": "llama-3.1-405b", "sequence_length": 8192},
        "cluster": {**H100, "nodes": 2048, "network": "400 Gb/s"},
        "search": {"global_batch": 2048},
    },
    "Llama-3.1-405B, 131,072 H100, everything open": {
        "workload": {"architecture": "llama-3.1-405b", "sequence_length": 8192},
        "cluster": {**H100, "nodes": 16384, "network": "400 Gb/s"},
        "search": {"global_batch": 16384},
    },
    "DeepSeek-V3, 2,048 H100, everything open": {
        "workload": {"architecture": "deepseek-v3", "sequence_length": 4096},
        "cluster": {**H100, "nodes": 256, "network": "400 Gb/s"},
        "search": {"global_batch": 15360},
    },
}


def one(name: str) -> str:
    """Solve one of them in this process and say what it took."""
    import optplan.planner
    import optplan.solvers.cpsat_pipeline
    from optplan.load import load

    problem = load(SPECS[name])
    start = time.process_time()
    result = optplan.planner.solve(problem, top=0)
    spent = time.process_time() - start
    certificate = result.certificate
    size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    plan = result.plan
    assert plan is not None
    degrees = f"tp {plan.tp} pp {plan.pp} dp {plan.dp} cp {plan.cp} ep {plan.ep} vpp {plan.vpp}"
    return (
        f"{name}: {certificate.points:,} points, 10^{certificate.strategies_log10:.1f} strategies, "
        f"{result.status.holding} (gap {certificate.gap:.1e}) in {spent:.1f} CPU s, "
        f"{size:.2f} GiB; {degrees} {plan.schedule} G {plan.global_batch}"
    )


def main() -> None:
    """Solve each in a process of its own."""
    for name in SPECS:
        command = [sys.executable, "-m", "tests.bench.space", name]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        print(done.stdout.strip(), flush=True)


if __name__ == "__main__":
    print(one(sys.argv[1]))
