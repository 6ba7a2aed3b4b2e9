"""Each rule in three plans: just kept, just broken, far off."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from optplan.models.cost.estimate import estimate, host_bytes
from optplan.models.rules.registry import rules
from optplan.models.spec.framework import CONTEXTS, SCHEDULES
from optplan.models.spec.plan import Plan
from optplan.models.spec.problem import Problem
from optplan.models.spec.space import RECOMPUTES
from tests.models import samples

Asked = tuple[Problem, Plan]
"""A plan, and the problem it is an answer to."""


def asked(changes: Mapping[str, Any], **values: Any) -> Asked:
    """Build a problem and a plan of it."""
    problem = samples.problem(changes)
    return problem, samples.plan(problem, **values)


@dataclass(frozen=True)
class Triple:
    """Three plans: one that just keeps a rule, one that just breaks it, one far off."""

    fits: Asked
    breaks: Asked
    far: Asked


def divides(tp: int, far: int, counts: Mapping[str, int]) -> Triple:
    """Make a triple of a rule that tp divides something, on 48 devices."""
    room = {"cluster.nodes": 2, "cluster.devices_per_node": 24, "search.global_batch": 48}
    fine = {f"workload.architecture.{name}": count for name, count in counts.items()}
    return Triple(
        asked(room | fine, tp=tp), asked(room | fine, tp=2 * tp), asked(room | fine, tp=far)
    )


def fits(part: str, sequence: int, **values: Any) -> Triple:
    """Make a triple of a memory rule: a device that its parts fill, one byte less, half of it."""
    long = {"workload.sequence_length": sequence, "search.layers_per_stage": [2, 2]}
    problem, plan = asked(long | {"cluster.accelerator.hbm": "1 GB"}, **values)
    rule = next(known for known in rules() if known.name == f"capacity.{part}")
    parts: tuple[str, ...] = rule.parts  # type: ignore[attr-defined]
    stages = estimate(problem, plan).memory.stages
    held = max(sum(use.parts[p] for p in parts) for use in stages)

    def on(room: int) -> Asked:
        return asked(long | {"cluster.accelerator.hbm": f"{room + 1_000_000} B"}, **values)

    return Triple(on(held), on(held - 1), on(held // 2))


def hosted() -> Triple:
    """Make a triple of the host's rule: a server that states fill, one byte less, half of it."""
    values = {"tp": 2, "pp": 2, "dp": 2, "offload": 1, "zero": 1}
    host = {"link": "1 GB/s", "bandwidth": "1 GB/s"}

    def on(room: int) -> Asked:
        return asked({"cluster.host": {**host, "memory": f"{room} B"}}, **values)

    held = host_bytes(*on(2**40))
    return Triple(on(held), on(held - 1), on(held // 2))


LAUNCHER: Mapping[str, Any] = {
    "name": "tests@1",
    "schedules": list(SCHEDULES),
    "zero": [0, 1, 2, 3],
    "zero_with_pipeline": 3,
    "hsdp": True,
    "recompute": list(RECOMPUTES),
    "context": list(CONTEXTS),
    "tensor": True,
    "pipeline": True,
    "experts": True,
    "expert_tensor": True,
    "uneven_layers": True,
    "ends_count_as_layers": True,
    "key_heads_copied": True,
    "interleaved_multiple": "pp",
    "interleaved_two_stages": "yes",
    "offload": True,
    "features": [],
    "sources": {},
}
"""A framework that can do everything."""


STRICT: dict[str, Any] = {
    "expert_tensor": False,
    "expert_tensor_degrees": "one",
    "experts_with_context": False,
    "interleaved_two_stages": "no",
    "unsharded_alone": True,
    "zero_with_pipeline": 1,
}
"""A launcher's limits, each of which some rule is about."""


def launched(**changes: Any) -> dict[str, Any]:
    """Change a problem's framework."""
    return {"framework": {**LAUNCHER, **changes}}


def dense_or_one(degrees: str) -> dict[str, Any]:
    """Give experts a framework that does not split them as it likes."""
    return {**samples.EXPERTS, **launched(expert_tensor_degrees=degrees)}


PAPER = {
    "prices": "paper",
    "cluster.nodes": 4,
    "search.global_batch": 16,
    "workload.architecture.heads": 16,
    "workload.architecture.kv_heads": 16,
}
DEEP = {"tp": 2, "pp": 2, "micro_batch": 2}
SIX: Mapping[str, Any] = {
    "cluster.nodes": 2,
    "cluster.devices_per_node": 3,
    "search.global_batch": 6,
}
EIGHT: Mapping[str, Any] = {"workload.architecture.layers": 8}
SPLIT = {**samples.EXPERTS, **launched(expert_tensor=False)}
WOVEN: Mapping[str, Any] = {"schedule": "interleaved", "vpp": 2}

TRIPLES: Mapping[str, Callable[[], Triple]] = {
    "degrees.world": lambda: Triple(
        asked({}, tp=2, pp=2, dp=2),
        asked({"search.idle_devices": False}, tp=2, pp=1, dp=2),
        asked({}, tp=8, pp=8, dp=8),
    ),
    "degrees.heads": lambda: divides(4, 16, {"heads": 12, "kv_heads": 12, "hidden": 96}),
    "degrees.kv_heads": lambda: divides(2, 8, {"heads": 24, "kv_heads": 6, "hidden": 96}),
    "degrees.ffn": lambda: divides(4, 16, {"ffn": 60, "heads": 48, "kv_heads": 48, "hidden": 96}),
    "degrees.node": lambda: Triple(asked(PAPER, tp=4), asked(PAPER, tp=8), asked(PAPER, tp=16)),
    "degrees.sequence_parallel": lambda: Triple(
        asked({"workload.sequence_length": 32}, tp=2, sequence_parallel=1),
        asked({"workload.sequence_length": 33}, tp=2, sequence_parallel=1),
        asked({}, tp=1, sequence_parallel=1),
    ),
    "degrees.context": lambda: Triple(
        asked({"workload.sequence_length": 32}, cp=4),
        asked({"workload.sequence_length": 28}, cp=4),
        asked({}, cp=8, context="ulysses"),
    ),
    "degrees.zero": lambda: Triple(
        asked({}, tp=4, dp=2, zero=1),
        asked({}, tp=4, pp=2, dp=1, zero=1),
        asked({"cluster.nodes": 1, "cluster.devices_per_node": 1}, zero=3),
    ),
    "degrees.hsdp": lambda: Triple(
        asked({}, zero=1, hsdp=1),
        asked({}, zero=0, hsdp=1),
        asked({}, tp=4, pp=2, dp=1, zero=0, hsdp=1),
    ),
    "experts.count": lambda: Triple(
        asked({**samples.EXPERTS, **SIX}, ep=2),
        asked({**samples.EXPERTS, **SIX}, ep=3),
        asked({**samples.EXPERTS, **SIX}, etp=5),
    ),
    "experts.world": lambda: Triple(
        asked(samples.EXPERTS, ep=4, etp=2),
        asked(samples.EXPERTS, ep=8, pp=2),
        asked(samples.EXPERTS, ep=8, etp=8, pp=4),
    ),
    "experts.etp": lambda: Triple(
        asked(SPLIT, tp=2, etp=2, sequence_parallel=1),
        asked(SPLIT, tp=2, etp=1, sequence_parallel=1),
        asked(SPLIT, tp=1, etp=8),
    ),
    "experts.sequence_parallel": lambda: Triple(
        asked(samples.EXPERTS, tp=2, sequence_parallel=1),
        asked(samples.EXPERTS, tp=2, sequence_parallel=0),
        asked(samples.EXPERTS, tp=8, sequence_parallel=0),
    ),
    "batch.split": lambda: Triple(
        asked({}, dp=8, micro_batch=1, micro_batches=1),
        asked({}, dp=8, micro_batch=1, micro_batches=2),
        asked({}, dp=8, micro_batch=8, micro_batches=8),
    ),
    "pipeline.schedule": lambda: Triple(
        asked({}, pp=2, **WOVEN),
        asked({}, pp=2, vpp=2, schedule="1f1b"),
        asked({}, pp=1, vpp=2, schedule="zb-v"),
    ),
    "pipeline.layers": lambda: Triple(
        asked({"workload.architecture.layers": 4}, pp=4),
        asked({"workload.architecture.layers": 3}, pp=4),
        asked({"workload.architecture.layers": 1}, pp=8),
    ),
    "pipeline.interleaved": lambda: Triple(
        asked(EIGHT, pp=4, **WOVEN, dp=1, micro_batches=8),
        asked({**EIGHT, "search.global_batch": 6}, pp=4, **WOVEN, dp=1, micro_batches=6),
        asked(EIGHT, pp=4, **WOVEN, dp=1, micro_batch=8, micro_batches=1),
    ),
    "pipeline.two_stages": lambda: Triple(
        asked({**EIGHT, **launched(interleaved_two_stages="no")}, pp=4, **WOVEN, dp=1),
        asked({**EIGHT, **launched(interleaved_two_stages="no")}, pp=2, **WOVEN, dp=1),
        asked({**EIGHT, **launched(interleaved_two_stages="p2p-overlap")}, pp=2, **WOVEN, dp=1),
    ),
    "framework.zero_with_pipeline": lambda: Triple(
        asked(launched(zero_with_pipeline=1), pp=2, zero=1),
        asked(launched(zero_with_pipeline=1), pp=2, zero=2),
        asked(launched(zero_with_pipeline=0), pp=4, zero=3),
    ),
    "framework.unsharded_alone": lambda: Triple(
        asked(launched(unsharded_alone=True), tp=4, dp=2, zero=1),
        asked(launched(unsharded_alone=True), tp=4, dp=2, zero=0),
        asked(launched(unsharded_alone=True), tp=2, pp=2, dp=2, zero=0),
    ),
    "framework.expert_tensor": lambda: Triple(
        asked(dense_or_one("dense-or-one"), tp=2, etp=2, sequence_parallel=1),
        asked(dense_or_one("dense-or-one"), tp=4, etp=2, sequence_parallel=1),
        asked(dense_or_one("one"), tp=4, etp=4, sequence_parallel=1),
    ),
    "framework.experts_with_context": lambda: Triple(
        asked({**samples.EXPERTS, **launched(experts_with_context=False)}, ep=2),
        asked({**samples.EXPERTS, **launched(experts_with_context=False)}, ep=2, cp=2),
        asked({**samples.EXPERTS, **launched(experts_with_context=False)}, ep=8, cp=4, dp=2),
    ),
    "capacity.parameters": lambda: fits("parameters", 8, **DEEP),
    "capacity.optimizer": lambda: fits("optimizer", 32, **DEEP, zero=1),
    "capacity.activations": lambda: fits("activations", 512, **DEEP),
    "capacity.hbm": lambda: fits("hbm", 32, **DEEP, sequence_parallel=1, recompute="full"),
    "capacity.host": hosted,
}
"""One triple for every rule of the registry."""

IMPLIED = {
    "degrees.heads": {"degrees.kv_heads"},
    "capacity.parameters": {"capacity.optimizer", "capacity.hbm"},
    "capacity.optimizer": {"capacity.hbm"},
    "capacity.activations": {"capacity.hbm"},
}
"""
Rules that break with a rule: what fills a device by a part alone leaves no room for the rest, and
key heads divide the heads.
"""
