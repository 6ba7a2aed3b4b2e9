"""Every cost function asked of arrays answers as it does one by one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from random import Random
from typing import Any

import numpy as np
import pytest

from optplan.models.cost import (
    block,
    compute,
    layout,
    memory,
    parameters,
    pointwise,
    schedule,
    step,
    tiles,
    traffic,
    utilization,
)
from optplan.models.cost.arrays import ceil_div, largest, where, where_int
from optplan.models.spec.framework import SCHEDULES
from optplan.models.spec.problem import Problem
from tests.models import samples

Values = Mapping[str, Any]
"""Either one value or one array for each name."""

Function = Callable[[Problem, Values], Any]


def ranks(v: Values) -> block.Ranks:
    """Degrees and flags of a block's price."""
    at = v["tp"], v["cp"], v["ep"], v["etp"], v["context"], v["b"], v["first"], v["sp"]
    return block.Ranks(*at)


def cut(v: Values) -> memory.Slice:
    """Degrees and flags of a block's activations."""
    return memory.Slice(v["tp"], v["cp"], v["b"], v["sp"], v["first"])


def data(p: Problem, v: Values) -> step.Data:
    """Places of data ranks."""
    dense = traffic.group(p, v["cp"] * v["dp"], v["tp"])
    experts = traffic.expert_data(v["tp"], v["cp"], v["dp"], v["ep"], v["etp"], dense.inside)
    return step.Data(dense, experts, v["zero"], v["hsdp"], v["offload"])


def counts(v: Values) -> memory.Counts:
    """Parameters, trained and frozen."""
    return memory.Counts(v["count"], v["count"] // 3, v["count"] // 5, v["count"] // 7)


def moe(p: Problem) -> bool:
    """Whether blocks have experts."""
    return p.workload.architecture.experts is not None


def degrees(v: Values) -> tuple[Any, Any, Any, Any]:
    """Degrees that experts are divided by."""
    return v["tp"], v["cp"], v["ep"], v["etp"]


def scheduled(function: Callable[..., Any]) -> Function:
    """Ask about every schedule, with numbers that each of them takes."""

    def every(p: Problem, v: Values) -> Any:
        return sum(function(word, v) for word in SCHEDULES)

    return every


PLAIN: Mapping[str, Function] = {
    "ceil_div": lambda p, v: ceil_div(v["count"], v["tp"]),
    "where": lambda p, v: where(v["first"], v["flops"], 1.5),
    "where_int": lambda p, v: where_int(v["first"], v["count"], v["tp"]),
    "largest": lambda p, v: largest(v["flops"], v["payload"]),
    "rho": lambda p, v: utilization.rho(p.calibration, v["b"], 32, 64, v["tp"]),
    "tile_loss": lambda p, v: tiles.tile_loss(p, v["b"], v["pp"], v["ep"]) + 0.0 * v["b"],
    "alignment": lambda p, v: tiles.alignment(p, v["b"] * v["ep"] / v["cp"]) + 0.0 * v["b"],
    "pointwise_bytes": lambda p, v: pointwise.pointwise_bytes(
        p, v["b"], v["tp"], v["cp"], v["sp"] == 1, moe(p)
    ),
    "softmax_bytes": lambda p, v: pointwise.softmax_bytes(p, v["b"], v["tp"], v["cp"]),
    "operator_seconds": lambda p, v: sum(
        compute.operator_seconds(p, one, v["b"], degrees(v)).total
        for one in compute.block_operators(p.workload, moe(p))
    ),
    "matmul_seconds": lambda p, v: compute.matmul_seconds(p, v["flops"], v["b"], v["tp"], v["cp"]),
    "head_seconds": lambda p, v: compute.head_seconds(p, v["b"], v["tp"], v["cp"]),
    "embedding_seconds": lambda p, v: compute.embedding_seconds(p, v["b"], v["cp"]) + 0 * v["b"],
    "stream_seconds": lambda p, v: compute.stream_seconds(p, v["payload"]),
    "group": lambda p, v: traffic.group(p, v["dp"], v["tp"]).inside,
    "all_reduce_seconds": lambda p, v: traffic.all_reduce_seconds(
        p, v["payload"], traffic.group(p, v["dp"], v["tp"])
    ),
    "all_gather_seconds": lambda p, v: traffic.all_gather_seconds(
        p, v["payload"], traffic.group(p, v["dp"], v["tp"])
    ),
    "all_to_all_seconds": lambda p, v: traffic.all_to_all_seconds(
        p, v["payload"], traffic.group(p, v["dp"], v["tp"])
    ),
    "ring_seconds": lambda p, v: traffic.ring_seconds(
        p, v["payload"], traffic.group(p, v["dp"], v["tp"])
    ),
    "data_inside": lambda p, v: traffic.data_inside(
        p, v["tp"], v["pp"], v["dp"], v["cp"], v["order"]
    ),
    "expert_data.members": lambda p, v: data(p, v).experts.members,
    "expert_data.inside": lambda p, v: data(p, v).experts.inside,
    "block_all_reduce_seconds": lambda p, v: traffic.block_all_reduce_seconds(
        p, v["b"], v["tp"], v["cp"]
    ),
    "boundary_bytes": lambda p, v: traffic.boundary_bytes(p, v["b"], v["cp"]),
    "hop_seconds.near": lambda p, v: traffic.hop_seconds(p, v["b"], v["tp"], v["cp"], v["sp"])[0],
    "hop_seconds.far": lambda p, v: traffic.hop_seconds(p, v["b"], v["tp"], v["cp"], v["sp"])[1],
    "crossings": lambda p, v: traffic.crossings(
        p, v["tp"], v["pp"], v["dp"], v["cp"], v["order"]
    ),
    "once_seconds": lambda p, v: step.once_seconds(p, counts(v), data(p, v)).total,
    "once_latency": lambda p, v: step.once_latency(p, counts(v), data(p, v)).total,
    "fetch_seconds": lambda p, v: step.fetch_seconds(p, counts(v), data(p, v)),
    "shards": lambda p, v: data(p, v).shards.dense,
    "shared_group": lambda p, v: step.shared_group(data(p, v).dense, v["hsdp"]).members,
    "bubble_seconds": lambda p, v: schedule.bubble_seconds([v["flops"], v["payload"], v["b"]]),
    "late_seconds": lambda p, v: schedule.late_seconds(
        [v["flops"], v["payload"]], [v["b"], v["flops"]], v["m"]
    ),
    "excess_seconds": lambda p, v: schedule.excess_seconds([v["flops"], v["b"]], v["payload"], 3),
    "enough": scheduled(lambda word, v: schedule.enough(word, v["pp"])),
    "flight.first": scheduled(lambda word, v: schedule.flight(word, v["pp"], v["v"], v["m"])[0]),
    "flight.most": scheduled(lambda word, v: schedule.flight(word, v["pp"], v["v"], v["m"])[2]),
    "even_seconds": scheduled(
        lambda word, v: schedule.even_seconds(
            word, v["pp"], v["v"], v["m"], v["flops"], v["payload"], v["b"]
        )
    ),
    "even_bubble_seconds": scheduled(
        lambda word, v: schedule.even_bubble_seconds(
            word, v["pp"], v["flops"], v["payload"], v["b"], barrier=True
        )
    ),
    "uneven_seconds": lambda p, v: schedule.uneven_seconds(
        "zb-h1", [[v["flops"]], [v["payload"]]], [[v["payload"]], [v["flops"]]],
        [[v["b"]], [v["flops"]]], 4,
    ),
    "attention_parameters": lambda p, v: parameters.attention_parameters(
        p.workload.architecture, v["tp"]
    ),
    "key_width": lambda p, v: parameters.key_width(p.workload.architecture, v["tp"]),
    "dense_ffn_parameters": lambda p, v: parameters.dense_ffn_parameters(
        p.workload.architecture, v["tp"]
    ),
    "layer_parameters": lambda p, v: parameters.layer_parameters(p.workload.architecture, v["tp"]),
    "front_parameters": lambda p, v: parameters.front_parameters(p.workload.architecture, v["tp"]),
    "back_parameters": lambda p, v: parameters.back_parameters(
        p.workload.architecture, v["tp"], v["first"]
    ),
    "mtp_parameters": lambda p, v: (
        parameters.mtp_parameters(p.workload.architecture, v["tp"]) + 0 * v["tp"]
    ),
    "mtp_expert_parameters": lambda p, v: (
        parameters.mtp_expert_parameters(p.workload.architecture, v["ep"], v["etp"]) + 0 * v["ep"]
    ),
    "adapter_parameters": lambda p, v: (
        parameters.adapter_parameters(p.workload, v["tp"]) + 0 * v["tp"]
    ),
    "stage_parameters": lambda p, v: parameters.stage_parameters(
        p.workload.architecture, v["layers"], v["first"], v["last"], v["tp"]
    ),
    "block_counts": lambda p, v: (
        memory.block_counts(p, v["tp"], v["ep"], v["etp"], moe(p)).dense
    ),
    "front_counts": lambda p, v: (
        memory.front_counts(p, v["tp"], v["ep"], v["etp"]).dense + 0 * v["tp"]
    ),
    "back_counts": lambda p, v: (
        memory.back_counts(p, v["tp"], v["ep"], v["etp"], v["first"]).dense
    ),
    "states": lambda p, v: memory.states(
        p, counts(v), memory.Shards(v["dp"], v["cp"], v["zero"], v["offload"])
    ).total,
    "states.host": lambda p, v: memory.states(
        p, counts(v), memory.Shards(v["dp"], v["cp"], v["zero"], v["offload"])
    ).host,
    "fetched_bytes": lambda p, v: memory.fetched_bytes(p, counts(v), v["zero"]),
    "block_activations": lambda p, v: memory.block_activations(p, cut(v), moe(p)),
    "block_input": lambda p, v: memory.block_input(p, cut(v)),
    "front_activations": lambda p, v: memory.front_activations(p, cut(v)),
    "back_activations": lambda p, v: memory.back_activations(p, cut(v)),
    "inside_bytes": lambda p, v: memory.inside_bytes(p, cut(v)),
    "logits_bytes": lambda p, v: memory.logits_bytes(p, cut(v)),
    "block_busy": lambda p, v: block.block_busy(p, ranks(v), moe(p)).total,
    "block_busy.forward": lambda p, v: block.block_busy(p, ranks(v), moe(p)).forward,
    "block_busy.weight": lambda p, v: block.block_busy(p, ranks(v), moe(p)).weight + 0 * v["b"],
    "again_busy": lambda p, v: block.again_busy(p, ranks(v), moe(p)).total,
    "front_busy": lambda p, v: block.front_busy(p, ranks(v)).total + 0 * v["b"],
    "back_busy": lambda p, v: block.back_busy(p, ranks(v)).total,
    "fetch_hidden": lambda p, v: block.fetch_hidden(p, v["payload"], v["flops"]),
    "pieces": lambda p, v: layout.pieces(p, ranks(v)).over_back,
    "excess": lambda p, v: layout.excess(layout.pieces(p, ranks(v)).front) + 0 * v["b"],
    "owned": lambda p, v: owned(p, v).layer.total,
    "owned.once": lambda p, v: owned(p, v).once_back.total + owned(p, v).latency.total,
    "owned.fetch": lambda p, v: owned(p, v).fetch_layer,
    "kept": lambda p, v: layout.kept(p, cut(v)).saved + 0.0,
}  # fmt: skip


def owned(p: Problem, v: Values) -> layout.Owned:
    """States of a layout."""
    near = data(p, v).dense.inside
    place = (v["tp"], v["cp"], v["dp"], near, v["ep"], v["etp"])
    single = where_int(v["pp"] == 1, 1, 0)
    return layout.owned(p, layout.Place(*place, v["zero"], v["hsdp"], v["offload"], single))


SPARSE: Mapping[str, Function] = {
    "expert_seconds": lambda p, v: compute.expert_seconds(p, v["flops"], v["b"], degrees(v)),
    "moe_parameters": lambda p, v: parameters.moe_parameters(p.workload.architecture, v["tp"]),
    "expert_parameters": lambda p, v: parameters.expert_parameters(
        p.workload.architecture, v["ep"], v["etp"]
    ),
    "moe_adapter_parameters": lambda p, v: (
        parameters.moe_adapter_parameters(p.workload, v["tp"]) + 0 * v["tp"]
    ),
    "block_counts.experts": lambda p, v: (
        memory.block_counts(p, v["tp"], v["ep"], v["etp"], True).experts + 0 * v["ep"]
    ),
}
"""What only experts have."""

FUNCTIONS = {**PLAIN, **SPARSE}


def drawn(seed: int, size: int = 40) -> dict[str, list[Any]]:
    """Random values for every name, in plain Python."""
    luck = Random(seed)
    lists: dict[str, list[Any]] = {
        name: [luck.randint(low, high) for _ in range(size)]
        for name, low, high in (
            ("tp", 1, 9),
            ("pp", 1, 9),
            ("dp", 1, 9),
            ("cp", 1, 4),
            ("ep", 1, 4),
            ("etp", 1, 3),
            ("b", 1, 40),
            ("m", 1, 40),
            ("v", 1, 4),
            ("count", 0, 10**9),
            ("layers", 1, 12),
            ("sp", 0, 1),
            ("zero", 0, 3),
            ("hsdp", 0, 1),
            ("offload", 0, 1),
            ("context", 0, 1),
            ("order", 0, 1),
        )
    }
    lists |= {name: [luck.random() < 0.5 for _ in range(size)] for name in ("first", "last")}
    lists |= {name: [luck.uniform(0, 1e9) for _ in range(size)] for name in ("flops", "payload")}
    return lists


@cache
def asked(seed: int, sparse: bool) -> Problem:
    """A random problem, with experts or with whatever comes."""
    found = samples.random_problem(seed)
    while sparse and found.workload.architecture.experts is None:
        seed += 1000
        found = samples.random_problem(seed)
    return found


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("seed", range(8))
def test_arrays_are_priced_as_their_members_are(name: str, seed: int) -> None:
    """Whole numbers exactly, seconds to the last bits of what they are a difference of."""
    problem, lists = asked(seed, seed % 2 == 1 or name in SPARSE), drawn(seed)
    many = FUNCTIONS[name](problem, {key: np.array(column) for key, column in lists.items()})
    assert isinstance(many, np.ndarray)
    assert many.shape == (40,)
    most = float(np.abs(many).max())
    for i, found in enumerate(many.tolist()):
        alone = FUNCTIONS[name](problem, {key: column[i] for key, column in lists.items()})
        assert not isinstance(alone, np.ndarray)
        if isinstance(found, int):
            assert alone == found
        else:
            assert float(alone) == pytest.approx(found, rel=1e-12, abs=1e-15 * most)


def test_every_public_function_of_the_cost_model_is_asked() -> None:
    """A new one must be added above, or here if it takes no arrays."""
    plain = {
        "block_operators", "head_operator", "block_flops", "layer_flops", "joint_flops",
        "model_flops", "score_width", "norm_parameters", "total_parameters", "active_parameters",
        "chunks", "chunk_layers", "allowed", "forms", "p2p_exposed",
    }  # fmt: skip
    known = {name.partition(".")[0] for name in FUNCTIONS} | plain
    modules = (
        block, compute, layout, memory, parameters, pointwise, schedule, step, tiles, traffic,
        utilization,
    )  # fmt: skip
    for module in modules:
        own = {
            name
            for name, found in vars(module).items()
            if callable(found)
            and not isinstance(found, type)
            and not name.startswith("_")
            and found.__module__ == module.__name__
        }
        assert own <= known, f"{module.__name__}: {sorted(own - known)}"
