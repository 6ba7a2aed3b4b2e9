"""Bytes of a stage against published formulas, published figures and a second count."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from optplan.models.cost.estimate import Estimate, estimate
from optplan.models.cost.memory import (
    block_input,
    in_flight,
    layer_activations,
    states,
    working_bytes,
)
from optplan.models.cost.parameters import stage_parameters, total_parameters
from optplan.models.formulate import formulate
from optplan.models.spec.plan import Plan
from optplan.models.spec.problem import Problem
from tests.models import samples

GPT: Mapping[str, Any] = {
    "workload.architecture.hidden": 512,
    "workload.architecture.heads": 16,
    "workload.architecture.kv_heads": 16,
    "workload.architecture.ffn": 2048,
    "workload.architecture.gated": False,
    "workload.architecture.biases": "all",
    "workload.architecture.norm": "layernorm",
    "workload.architecture.dropout": True,
    "workload.sequence_length": 128,
}
"""The block that Korthikanti et al. count: a heads, width h, feed-forward 4 h, dropout."""

A, H, S = 16, 512, 128


@pytest.mark.parametrize("tp", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("b", [1, 3])
def test_a_gpt_block_keeps_what_korthikanti_counts(tp: int, b: int) -> None:
    """arXiv 2205.05198: ``s b h (10 + 24/t)``, with sequence parallelism ``34 s b h / t``."""
    asked = samples.problem(GPT)
    assert layer_activations(asked, b, tp, 0) == S * b * H * 10 + S * b * H * 24 // tp
    assert layer_activations(asked, b, tp, 1) == 34 * S * b * H // tp
    square = 5 * A * S**2 * b // tp
    plain = samples.problem(GPT, {"workload.flash_attention": False})
    assert layer_activations(plain, b, tp, 0) - layer_activations(asked, b, tp, 0) == square
    assert layer_activations(plain, b, tp, 1) - layer_activations(asked, b, tp, 1) == square


@pytest.mark.parametrize("tp", [1, 4])
def test_full_recomputation_keeps_two_bytes_an_element(tp: int) -> None:
    """arXiv 2205.05198, Table 2: ``2 s b h``, on every tensor rank unless sequence parallel."""
    asked = samples.problem(GPT)
    assert block_input(asked, 3, tp, 0) == 2 * S * 3 * H
    assert block_input(asked, 3, tp, 1) == 2 * S * 3 * H // tp


@pytest.mark.parametrize(
    ("precision", "whole", "kept"), [("bf16", 18, 6), ("fp16", 20, 4), ("fp32", 16, 8)]
)
@pytest.mark.parametrize("dp", [1, 2, 4, 8])
def test_states_cost_megatrons_bytes_a_parameter(
    precision: str, whole: int, kept: int, dp: int
) -> None:
    """bf16: 18 bytes, ``6 + 12/d`` with ZeRO-1 (Megatron's report of theoretical memory)."""
    asked = samples.problem({"workload.precision": precision})
    count = int(stage_parameters(asked.workload.architecture, 4, True, True))
    for zero, each in ((0, whole), (1, kept + (whole - kept) / dp)):
        held = sum(states(asked, 4, True, True, 1, dp, zero))
        assert held == pytest.approx(each * count, abs=1)


@pytest.mark.parametrize(
    ("workload", "tp", "pp", "gigabytes"),
    [
        ("llama-3-70b", 8, 2, 79.4),
        ("llama-3-70b", 4, 4, 79.4),
        ("llama-2-70b", 8, 4, 38.8),
        ("llama-2-70b", 8, 2, 77.6),
        ("llama-2-7b", 2, 1, 60.7),
        ("llama-2-7b", 1, 2, 60.7),
        ("llama-2-7b", 1, 1, 121.0),
        ("falcon-40b", 8, 2, 47.0),
        ("falcon-40b", 4, 2, 94.0),
    ],
)
def test_states_of_published_networks_weigh_what_is_known(
    workload: str, tp: int, pp: int, gigabytes: float
) -> None:
    """GB a device at dp 1, mean over the stages: 18 bytes times the published parameters."""
    asked = samples.catalogued(
        workload, "h100-sxm-80gb", {"cluster.nodes": 4, "cluster.devices_per_node": 8}
    )
    found = estimate(asked, samples.plan(asked, tp=tp, pp=pp, dp=1))
    parts = ("parameters", "gradients", "optimizer")
    held = sum(use.parts[part] for use in found.memory.stages for part in parts)
    assert held / pp == pytest.approx(gigabytes * 1e9, rel=0.01)


def test_llama_3_70b_weighs_18_bytes_times_its_published_parameters() -> None:
    """70.55 billion parameters, 1.27 TB of states, were one device large enough."""
    asked = samples.catalogued("llama-3-70b", "h100-sxm-80gb")
    assert sum(states(asked, 80, True, True, 1, 1, 0)) == 18 * 70_553_706_496


@pytest.mark.parametrize("tp", [1, 8])
def test_logits_of_4k_tokens_and_128k_words_take_a_gibibyte_in_bf16(tp: int) -> None:
    """0.98 GiB a sample in bf16, and twice as much again for the loss's fp32 copy."""
    asked = samples.catalogued("llama-3-70b", "h100-sxm-80gb", {"workload.sequence_length": 4096})
    for b in (1, 2):
        held = int(working_bytes(asked, 0, True, b, tp, 0))
        assert held * tp / 3 / b / 2**30 == pytest.approx(0.98, abs=0.005)
        assert int(working_bytes(asked, 0, False, b, tp, 0)) == 0


def test_working_memory_is_the_larger_of_logits_and_a_recomputed_block() -> None:
    """They are never alive at once."""
    asked = samples.problem(GPT)
    inside = layer_activations(asked, 2, 4, 1) - block_input(asked, 2, 4, 1)
    assert working_bytes(asked, 1, False, 2, 4, 1) == inside > 0
    large = samples.problem(GPT, {"workload.architecture.vocabulary": 50_000})
    logits = 6 * 2 * S * 50_000 // 4
    assert working_bytes(large, 1, True, 2, 4, 1) == logits > inside
    assert working_bytes(asked, 1, True, 2, 4, 1) == inside > 6 * 2 * S * 160 // 4


@pytest.mark.parametrize("tied", [False, True])
def test_tied_embeddings_are_one_matrix_only_on_a_single_stage(tied: bool) -> None:
    """Two stages hold a copy each; untied, embedding and head are two everywhere."""
    asked = samples.problem({"workload.architecture.tied_embeddings": tied})
    shape, table = asked.workload.architecture, 160 * 64
    blocks = int(stage_parameters(shape, 4, False, False)) + 64
    assert total_parameters(shape) == blocks + (1 if tied else 2) * table
    both = stage_parameters(shape, 2, True, False) + stage_parameters(shape, 2, False, True)
    assert both == blocks + 2 * table


@pytest.mark.parametrize("seed", range(20))
def test_memory_rises_with_the_micro_batch(seed: int) -> None:
    """Whatever else is chosen, at a fixed number of micro-batches and strictly."""
    asked = samples.random_problem(seed)
    for point in samples.points(formulate(asked).program):
        little, much = (
            estimate(asked, samples.plan(asked, **point | {"micro_batch": b})).memory
            for b in (point["micro_batch"], point["micro_batch"] + 1)
        )
        assert little.peak_bytes < much.peak_bytes


@pytest.mark.parametrize(("b", "m"), [(1, 8), (3, 8), (2, 12)])
def test_activations_of_the_first_stage_do_not_depend_on_p(b: int, m: int) -> None:
    """Eq. 19: ``b L (A_in + A_t/t)``, p cancels while m >= p; below, ``m/p`` of it is left."""
    asked = samples.problem({"workload.architecture.layers": 24})
    whole = 24 * layer_activations(asked, b, 2, 0)
    for pp in (1, 2, 3, 4, 6, 8, 12, 24):
        plan = samples.plan(asked, tp=2, pp=pp, dp=1, micro_batch=b, micro_batches=m)
        first = estimate(asked, plan).memory.stages[0]
        assert first.in_flight == min(pp, m)
        assert first.parts["activations"] * max(pp, m) == whole * m


def test_later_stages_keep_fewer_micro_batches() -> None:
    """Eq. 18: ``min(p - stage, m)``."""
    assert [in_flight(4, 8, stage) for stage in range(4)] == [4, 3, 2, 1]
    assert [in_flight(4, 2, stage) for stage in range(4)] == [2, 2, 2, 1]


@pytest.mark.parametrize("seed", range(20))
def test_no_stage_in_the_middle_is_fuller_than_the_first(seed: int) -> None:
    """Which is why the program looks at both ends alone; equal stages only."""
    asked = samples.random_problem(seed)
    for point in samples.points(formulate(asked).program):
        if asked.workload.architecture.layers % point["pp"] == 0:
            stages = estimate(asked, samples.plan(asked, **point)).memory.stages
            assert all(use.peak_bytes <= stages[0].peak_bytes for use in stages[:-1])


@dataclass(frozen=True)
class Shape:
    """A network in plain numbers, from its paper or its config.json."""

    layers: int
    h: int
    f: int
    a: int
    kv: int
    v: int
    gated: bool
    layernorm_and_biases: bool
    tied: bool
    positions: int
    dropout: bool


LLAMA_3_70B = Shape(80, 8192, 28672, 64, 8, 128256, True, False, False, 0, False)
GPT3_175B = Shape(96, 12288, 49152, 96, 96, 50257, False, True, True, 2048, True)


def counted(shape: Shape, s: int, plan: Plan, stage: int) -> float:
    """
    Bytes of a stage without the reserve, counted tensor by tensor and by no function of ours.

    bf16, flash attention, Adam in mixed precision, 1F1B.
    """
    h, f, t = shape.h, shape.f, plan.tp
    key = h // shape.a * shape.kv
    layers = shape.layers // plan.pp
    first, last = stage == 0, stage == plan.pp - 1
    block = [h * h, h * key, h * key, h * h, f * h] + [h * f] * (2 if shape.gated else 1)
    sharded, whole = sum(block) * layers, 2 * h * layers
    if shape.layernorm_and_biases:
        sharded += (h + 2 * key + f) * layers
        whole += (2 * h + 2 * h) * layers
    if first:
        sharded += shape.v * h
        whole += shape.positions * h
    if last:
        sharded += 0 if first and shape.tied else shape.v * h
        whole += h * (2 if shape.layernorm_and_biases else 1)
    parameters = sharded / t + whole
    weights = parameters * (2 + 4 + 12 / (plan.dp if plan.zero else 1))

    copies = t if plan.sequence_parallel else 1
    tokens = plan.micro_batch * s
    seen_by_all = [2 * h, 2 * h, 2 * h, 2 * h] + ([h, h] if shape.dropout else [])
    split = [2 * h, 2 * key, 2 * key, 2 * h] + [2 * f] * (3 if shape.gated else 2)
    inside = tokens * (sum(seen_by_all) / copies + sum(split) / t)
    inputs = tokens * 2 * h / copies
    again = plan.recompute == "full"
    flight = min(plan.pp - stage, plan.micro_batches)
    activations = flight * layers * (inputs if again else inside)
    logits = tokens * shape.v * (2 + 4) / t if last else 0.0
    return weights + activations + max(logits, inside - inputs if again else 0.0)


def second_opinion(name: str, shape: Shape, s: int, changes: dict[str, Any]) -> Estimate:
    """Ask both counts of every stage, and return ours."""
    nodes = {"cluster.nodes": 16, "cluster.devices_per_node": 8, "search.global_batch": 128}
    asked: Problem = samples.catalogued(
        name, "h100-sxm-80gb", nodes | {"workload.sequence_length": s}
    )
    plan = samples.plan(asked, **changes)
    found = estimate(asked, plan)
    for use in found.memory.stages:
        held = use.peak_bytes - 4.5 * 2**30
        assert held == pytest.approx(counted(shape, s, plan, use.stage), rel=1e-7)
    return found


@pytest.mark.parametrize("tp", [2, 8])
@pytest.mark.parametrize("pp", [1, 4])
@pytest.mark.parametrize("flags", [(0, 0, 0), (1, 0, 1), (1, 1, 1), (0, 1, 0)])
@pytest.mark.parametrize(
    ("name", "shape", "s"), [("llama-3-70b", LLAMA_3_70B, 8192), ("gpt3-175b", GPT3_175B, 2048)]
)
def test_a_second_count_agrees(
    name: str, shape: Shape, s: int, tp: int, pp: int, flags: tuple[int, int, int]
) -> None:
    """Tensor by tensor, for two shipped workloads, every stage and every flag."""
    sp, again, zero = flags
    words = {"sequence_parallel": sp, "recompute": again, "zero": zero}
    second_opinion(name, shape, s, {"tp": tp, "pp": pp, **words})


def test_gpt3_at_t_8_p_8_needs_sequence_parallelism_or_recomputation() -> None:
    """Either saves memory, both save more, and with neither 80 GiB do not hold one sequence."""
    held = {
        flags: second_opinion(
            "gpt3-175b",
            GPT3_175B,
            2048,
            {"tp": 8, "pp": 8, "sequence_parallel": flags[0], "recompute": flags[1]},
        ).memory.peak_bytes
        for flags in ((0, 0), (1, 0), (0, 1), (1, 1))
    }
    assert held[0, 0] > held[1, 0] > held[1, 1]
    assert held[0, 0] > held[0, 1] > held[1, 1]
    assert held[0, 0] > 80 * 2**30 > held[1, 0]
