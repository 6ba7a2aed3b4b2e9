"""Problems and plans of public threads, and what may be asked of an answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import optplan
from optplan.models.cost.price import Estimate
from optplan.planner import run
from optplan.result import Evaluation

GPT: Mapping[str, Any] = {
    "layers": 40,
    "hidden": 5120,
    "heads": 40,
    "ffn": 20480,
    "vocabulary": 51200,
    "gated": False,
    "tied_embeddings": True,
}
"""GPT-3 13B as trained by Megatron-LM, arXiv 2005.14165, table 2.1."""

SMALL = {**GPT, "hidden": 1024, "heads": 16, "ffn": 4096, "vocabulary": 1024}
"""Blocks that always fit, and ends that weigh little."""

ONE_WAY = {
    "cp": 1,
    "vpp": 1,
    "schedule": "1f1b",
    "micro_batch": 1,
    "hsdp": False,
    "order": "data_inside",
}
"""One value for what a thread does not turn on."""

PLAIN = {**ONE_WAY, "recompute": "none", "zero": 0, "sequence_parallel": False}

NEOX = {
    **GPT,
    "layers": 44,
    "hidden": 6144,
    "heads": 64,
    "ffn": 24576,
    "vocabulary": 50432,
    "tied_embeddings": False,
}
"""GPT-NeoX 20B, arXiv 2204.06745, table 1."""

MIMO: Mapping[str, Any] = {
    "layers": 48,
    "hidden": 4096,
    "heads": 64,
    "kv_heads": 4,
    "head_dim": 128,
    "ffn": 16384,
    "vocabulary": 152576,
    "experts": {"count": 256, "per_token": 8, "ffn": 2048, "leading_dense": 1},
}
"""MiMo-V2-Flash by its experts; attention is simplified."""

GB, GIB = 10**9, 2**30


def spec(
    architecture: str | Mapping[str, Any],
    devices: int | tuple[int, int],
    search: Mapping[str, Any],
    accelerator: str = "h100-sxm-80gb",
    sequence: int = 2048,
    **more: Any,
) -> dict[str, Any]:
    """
    Write a spec; more than 8 devices are nodes of 8, a pair is nodes and devices of each.

    The batch is 64 sequences where ``search`` does not say.
    """
    nodes, each = devices if isinstance(devices, tuple) else (max(1, devices // 8), min(devices, 8))
    shape = architecture if isinstance(architecture, str) else dict(architecture)
    return {
        "workload": {"architecture": shape, "sequence_length": sequence},
        "cluster": {"accelerator": accelerator, "nodes": nodes, "devices_per_node": each},
        "search": {"global_batch": 64, **search},
        **more,
    }


def stages(count: int, **search: Any) -> dict[str, Any]:
    """Search over nothing but the layers of this many stages, one device each."""
    return {**PLAIN, "pp": count, "tp": 1, "dp": 1, **search}


def accepted(asked: Mapping[str, Any], **plan: Any) -> Evaluation:
    """Evaluate a plan that must obey every rule."""
    answer = optplan.evaluate(asked, plan)
    assert answer.verdict.broken == {}
    assert answer.exit_code == 0
    return answer


def refused(asked: Mapping[str, Any], rule: str, *said: str, **plan: Any) -> Evaluation:
    """Evaluate a plan that a rule must break, in these words."""
    answer = optplan.evaluate(asked, plan)
    assert answer.exit_code == 1
    assert rule in answer.verdict.broken, answer.verdict.broken
    for part in said:
        assert part in answer.verdict.broken[rule]
    return answer


def layers(asked: Mapping[str, Any]) -> tuple[int, ...]:
    """Layers per stage of the best plan, which must be proved."""
    result = optplan.solve(asked, top=0)
    assert result.exit_code == 0
    assert result.plan is not None
    return result.plan.layers_per_stage


class Priced(Protocol):
    """An answer that carries an estimate."""

    @property
    def estimate(self) -> Estimate: ...


def states(answer: Priced, stage: int = 0) -> int:
    """Bytes of weights, gradients and optimizer on one device."""
    parts = answer.estimate.memory.stages[stage].parts
    return parts["parameters"] + parts["gradients"] + parts["optimizer"]


def fits(architecture: str | Mapping[str, Any], devices: int, **more: Any) -> bool:
    """Tell whether any layout of some devices holds a model, one sequence at a time."""
    search = {**ONE_WAY, "global_batch": devices, "recompute": "full"}
    asked = spec(architecture, devices, search, sequence=512, **more)
    return bool(run(optplan.load(asked))[1].best)
