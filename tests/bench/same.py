"""One problem many times: is the plan the same byte for byte, with one worker and with two."""

from __future__ import annotations

import json
from typing import Any

from optplan.load import load
from optplan.planner import solve

SPEC: dict[str, Any] = {
    "workload": {"architecture": "qwen3-30b-a3b", "sequence_length": 4096},
    "cluster": {"accelerator": "h100-sxm-80gb", "nodes": 2, "network": "400 Gb/s"},
    "search": {"global_batch": 256, "idle_devices": False},
}

RUNS = 20


def answers(runs: int, spec: dict[str, Any] | None = None) -> set[str]:
    """Solve with one and two workers in turn; the distinct answers, time aside."""
    problem = load(spec or SPEC)
    found = set()
    for run in range(runs):
        result = solve(problem, workers=1 + run % 2, top=3)
        told = result.model_dump(mode="json", exclude={"seconds"})
        found.add(json.dumps(told, sort_keys=True))
    return found


def main() -> None:
    """Print how many distinct answers there were."""
    print(f"{RUNS} runs, workers 1 and 2 in turn: {len(answers(RUNS))} distinct answer(s)")
