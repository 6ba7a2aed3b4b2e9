"""Answers that several tests make pages of, each solved once."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import optplan
from optplan.compare import Comparison
from optplan.explain import Answer
from optplan.models.cost.estimate import estimate
from optplan.models.spec.plan import Plan
from optplan.models.spec.problem import Problem
from optplan.result import Evaluation, Reply, Result
from optplan.size import Sizing
from optplan.sure import surely

SCRIPT = "<script>alert(1)</script>\"'&<img src=x onerror=alert(2)>"
CLOSING = "</script><script>alert(3)</script>{{7*7}}{% raw %}</title></pre>"

SMALL: dict[str, Any] = {
    "workload": {
        "architecture": {
            "name": SCRIPT,
            "layers": 4,
            "hidden": 1024,
            "heads": 8,
            "ffn": 4096,
            "vocabulary": 32000,
        },
        "sequence_length": 1024,
    },
    "cluster": {
        "accelerator": {
            "name": CLOSING,
            "peak": {"bf16": "100 TFLOP/s"},
            "hbm": "16 GiB",
            "hbm_bandwidth": "900 GB/s",
            "link": {"kind": "switch", "bandwidth": "100 GB/s"},
            "domain": 4,
        },
        "nodes": 2,
        "devices_per_node": 2,
        "network": "100 Gb/s",
    },
    "search": {"global_batch": 32, "pp": 2},
}
"""A small job whose names are markup."""

DEEP: dict[str, Any] = {
    "workload": {"architecture": "llama-2-70b", "sequence_length": 4096},
    "cluster": {"accelerator": "h100-sxm-80gb", "nodes": 16, "devices_per_node": 8},
    "framework": "megatron-core@0.15",
    "search": {"global_batch": 512, "pp": 16, "tp": 4, "cp": 1, "micro_batch": 1, "zero": 1},
}
"""A job of sixteen stages."""

TINY: dict[str, Any] = {
    "workload": {
        "architecture": {
            "name": "tiny",
            "layers": 2,
            "hidden": 128,
            "heads": 2,
            "ffn": 512,
            "vocabulary": 1000,
        },
        "sequence_length": 128,
        "precision": "fp32",
    },
    "cluster": {
        "accelerator": {
            "name": "toy",
            "peak": {"fp32": "10 TFLOP/s"},
            "hbm": "8 GiB",
            "hbm_bandwidth": "300 GB/s",
            "link": {"kind": "switch", "bandwidth": "10 GB/s"},
            "domain": 1,
        },
        "nodes": 1,
        "devices_per_node": 1,
        "network": "10 Gb/s",
    },
    "search": {"global_batch": 4},
}
"""One device and next to nothing to do."""

EXPERTS: dict[str, Any] = {
    "workload": {"architecture": "mixtral-8x7b", "sequence_length": 4096},
    "cluster": {"accelerator": "h100-sxm-80gb", "nodes": 4, "devices_per_node": 8},
    "framework": "megatron-core@0.15",
    "search": {"global_batch": 32, "micro_batch": 1, "pp": 4, "ep": 8, "tp": 1},
}
"""A mixture of experts."""

CLASH: dict[str, Any] = {
    "workload": {"architecture": "llama-3-70b", "sequence_length": 8192},
    "cluster": {"accelerator": "h100-sxm-80gb", "nodes": 1},
    "search": {"global_batch": 64, "tp": 8, "zero": 0, "cp": 1},
    "limits": [{"name": "keep-headroom", "rule": "peak_memory <= 40 GB"}],
}
"""A job that no plan fits."""

SPECS = {"small": SMALL, "deep": DEEP, "tiny": TINY, "experts": EXPERTS, "clash": CLASH}


@cache
def result(name: str) -> Result:
    """What ``solve`` says of a job."""
    return optplan.solve(SPECS[name], top=3)


@cache
def fuller() -> Result:
    """The small job with a price, two goals, the robust plan and flip points."""
    cluster = {**SMALL["cluster"], "price": "2 EUR/h", "held": "devices"}
    search = {**SMALL["search"], "tp": 1, "cp": 1, "vpp": 1, "recompute": "none"}
    asked = {**SMALL, "cluster": cluster, "search": search, "goal": ["fastest", "cheapest"]}
    box = {"network_efficiency": (0.5, 1.0)}
    return surely(optplan.solve(asked, top=3), box=box)


@cache
def evaluation() -> Evaluation:
    """A plan of the small job that is not the best one."""
    return optplan.evaluate(SMALL, {"tp": 2, "pp": 2, "micro_batch": 1})


@cache
def over() -> Evaluation:
    """A plan of the small job, on long sequences, that fits no device."""
    long = {**SMALL, "workload": {**SMALL["workload"], "sequence_length": 8192}}
    found = optplan.evaluate(long, {"tp": 1, "pp": 2, "dp": 2, "micro_batch": 16})
    assert found.estimate.memory.peak_bytes > found.estimate.memory.capacity_bytes
    return found


@cache
def answer() -> Answer:
    """What ``explain`` says of the small job."""
    return optplan.explain(SMALL, why_not={"tp": 2})


@cache
def sizing() -> Sizing:
    """What ``size`` says of the small job."""
    return optplan.size(SMALL)


@cache
def comparison() -> Comparison:
    """Two engines on the small job."""
    return optplan.compare(SMALL, "exhaustive,paper")


def every() -> dict[str, Reply]:
    """Every kind of answer that there is a page for, by name."""
    return {
        **{name: result(name) for name in SPECS},
        "evaluation": evaluation(),
        "over": over(),
        "answer": answer(),
        "sizing": sizing(),
        "comparison": comparison(),
    }


def planned(problem: Problem, plan: Plan) -> Result:
    """Put a plan into a result as if it had been found; nothing of it is proved."""
    held = result("small")
    made = held.model_copy(
        update={
            "problem": problem,
            "plan": plan,
            "estimate": estimate(problem, plan),
            "alternatives": (),
            "certificate": held.certificate.model_copy(update={"fingerprint": problem.fingerprint}),
        }
    )
    return made.sealed()


def written(folder: Path, answer: Reply, name: str = "plan.json") -> Path:
    """A file of an answer."""
    path = folder / name
    path.write_text(answer.to_json(), encoding="utf-8")
    return path
