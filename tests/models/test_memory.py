"""Bytes of a stage against published formulas and published figures."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import pytest

from optplan.models.cost.estimate import estimate
from optplan.models.cost.layout import Place, owned
from optplan.models.cost.memory import (
    Counts,
    Shards,
    Slice,
    block_activations,
    block_input,
    fetched_bytes,
    logits_bytes,
    states,
)
from optplan.models.cost.parameters import stage_parameters, total_parameters
from optplan.models.formulate import Formulation, formulate
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


def kept(asked: Problem, b: int, tp: int, sp: int, cp: int = 1) -> int:
    """Bytes that a plain block keeps."""
    return int(block_activations(asked, Slice(tp, cp, b, sp), moe=False))


@pytest.mark.parametrize("tp", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("b", [1, 3])
def test_a_gpt_block_keeps_what_korthikanti_counts(tp: int, b: int) -> None:
    """arXiv 2205.05198: ``s b h (10 + 24/t)``, with sequence parallelism ``34 s b h / t``."""
    asked = samples.problem(GPT)
    assert kept(asked, b, tp, 0) == S * b * H * 10 + S * b * H * 24 // tp
    assert kept(asked, b, tp, 1) == 34 * S * b * H // tp
    square = 5 * A * S**2 * b // tp
    plain = samples.problem(GPT, {"workload.flash_attention": False})
    assert kept(plain, b, tp, 0) - kept(asked, b, tp, 0) == square
    assert kept(plain, b, tp, 1) - kept(asked, b, tp, 1) == square


@pytest.mark.parametrize("tp", [1, 2, 4])
@pytest.mark.parametrize("sp", [0, 1])
def test_selective_recomputation_saves_the_square(tp: int, sp: int) -> None:
    """arXiv 2205.05198, section 5: without ``5 a s^2 b / t`` as flash attention keeps it."""
    plain = samples.problem(GPT, {"workload.flash_attention": False})
    again = block_activations(plain, Slice(tp, 1, 2, sp, selective=True), moe=False)
    assert again == kept(samples.problem(GPT), 2, tp, sp)


@pytest.mark.parametrize("cp", [2, 4])
@pytest.mark.parametrize("flash", [True, False])
def test_context_ranks_divide_all_that_a_block_keeps(cp: int, flash: bool) -> None:
    """Every token is on one rank; the scores are split along one side of their square."""
    asked = samples.problem(GPT, {"workload.flash_attention": flash})
    assert kept(asked, 3, 2, 1, cp) * cp == kept(asked, 3, 2, 1)
    assert kept(asked, 3, 2, 0, cp) * cp == kept(asked, 3, 2, 0)


@pytest.mark.parametrize("tp", [1, 4])
def test_full_recomputation_keeps_two_bytes_an_element(tp: int) -> None:
    """arXiv 2205.05198, Table 2: ``2 s b h``, on every tensor rank unless sequence parallel."""
    asked = samples.problem(GPT)
    assert block_input(asked, Slice(tp, 1, 3, 0)) == 2 * S * 3 * H
    assert block_input(asked, Slice(tp, 1, 3, 1)) == 2 * S * 3 * H // tp
    assert block_input(asked, Slice(tp, 2, 3, 1)) == S * 3 * H // tp


BYTES: Mapping[str, tuple[int, int, int]] = {
    "bf16": (2, 4, 12),
    "fp16": (2, 2, 16),
    "fp32": (4, 4, 8),
}
"""Weight, gradient, optimizer per parameter, written out."""


@pytest.mark.parametrize("precision", BYTES)
@pytest.mark.parametrize("zero", [0, 1, 2, 3])
@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
def test_states_cost_megatrons_bytes_a_parameter(precision: str, zero: int, ranks: int) -> None:
    """bf16: 18 bytes, ``6 + 12/d`` with ZeRO-1 (Megatron's report of theoretical memory)."""
    asked = samples.problem({"workload.precision": precision})
    count = 8 * 12345
    held = states(asked, Counts(count, 0), Shards(ranks, 1, zero, 0))
    weight, gradient, optimizer = BYTES[precision]
    assert held.optimizer == optimizer * count / (ranks if zero >= 1 else 1)
    assert held.gradients == gradient * count / (ranks if zero >= 2 else 1)
    assert held.parameters == weight * count / (ranks if zero >= 3 else 1)
    assert held.total == held.parameters + held.gradients + held.optimizer
    assert held.host == 0


def test_experts_are_shared_among_their_own_data_ranks() -> None:
    """ZeRO-1 divides dense parameters by eight here and experts by two."""
    held = states(samples.problem(), Counts(800, 600), Shards(8, 2, 1, 0))
    assert held.optimizer == 12 * 800 / 8 + 12 * 600 / 2
    assert held.parameters == 2 * 1400
    assert held.gradients == 4 * 1400


def test_an_optimizer_on_the_host_takes_no_memory_of_the_device() -> None:
    """What lay there lies in the server's memory."""
    held = states(samples.problem(), Counts(800, 0), Shards(4, 1, 1, 1))
    assert (held.optimizer, held.host) == (0, 12 * 200)


def test_frozen_weights_have_neither_gradient_nor_optimizer() -> None:
    """LoRA: two bytes each, shared by ZeRO-3 alone."""
    asked = samples.problem()
    held = states(asked, Counts(80, 0, 1000, 600), Shards(4, 2, 1, 0))
    assert held.parameters == 2 * (80 + 1000 + 600)
    assert (held.gradients, held.optimizer) == (4 * 80, 12 * 20)
    whole = states(asked, Counts(80, 0, 1000, 600), Shards(4, 2, 3, 0))
    assert whole.parameters == 2 * (80 + 1000) / 4 + 2 * 600 / 2


def test_zero_3_holds_two_whole_layers_for_a_moment() -> None:
    """The present layer and the next one, frozen weights included."""
    asked, block = samples.problem(), Counts(1000, 200, 30, 4)
    assert fetched_bytes(asked, block, 3) == 2 * 2 * 1234
    assert fetched_bytes(asked, block, 2) == 0


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
    held = owned(asked, Place(1, 1, 1, 1, 1, 1, 0, 0, 0, 1))
    total = 80 * held.layer.total + held.front.total + held.back.total
    assert total == 18 * 70_553_706_496


@pytest.mark.parametrize(
    ("workload", "parameters"),
    [("mixtral-8x7b", 46_702_792_704), ("deepseek-v2", 235_741_434_880)],
)
@pytest.mark.parametrize("ep", [1, 2, 8])
def test_expert_ranks_hold_their_experts_and_a_copy_of_the_rest(
    workload: str, parameters: int, ep: int
) -> None:
    """Published totals at ep 1; each rank of eight has an eighth of the experts."""
    asked = samples.catalogued(workload, "h100-sxm-80gb", {"cluster.nodes": 16})
    shape = asked.workload.architecture
    assert shape.experts is not None
    assert total_parameters(shape) == parameters
    held = owned(asked, Place(1, 1, 8, 8, ep, 1, 0, 0, 0, 1))
    total = shape.layers * held.layer.total + held.front.total + held.back.total
    sparse = shape.layers - shape.experts.leading_dense
    routed = sparse * shape.experts.count * 3 * shape.hidden * shape.experts.ffn
    assert total == 18 * (parameters - routed + routed // ep)


@pytest.mark.parametrize("tp", [1, 8])
@pytest.mark.parametrize("cp", [1, 2])
def test_logits_of_4k_tokens_and_128k_words_take_a_gibibyte_in_bf16(tp: int, cp: int) -> None:
    """0.98 GiB a sample in bf16, and twice as much again for the loss's fp32 copy."""
    asked = samples.catalogued("llama-3-70b", "h100-sxm-80gb", {"workload.sequence_length": 4096})
    for b in (1, 2):
        held = int(logits_bytes(asked, Slice(tp, cp, b, 0)))
        assert held * tp * cp / 3 / b / 2**30 == pytest.approx(0.98, abs=0.005)


def working(asked: Problem, **values: Any) -> list[int]:
    """Working memory of every stage."""
    return [
        use.parts["working"] for use in estimate(asked, samples.plan(asked, **values)).memory.stages
    ]


def test_working_memory_is_the_larger_of_logits_and_a_recomputed_block() -> None:
    """They are never alive at once, and logits are on the last stage alone."""
    asked = samples.problem(GPT)
    values = {"tp": 4, "pp": 2, "micro_batch": 2, "sequence_parallel": 1}
    inside = kept(asked, 2, 4, 1) - int(block_input(asked, Slice(4, 1, 2, 1)))
    logits = 6 * 2 * S * 160 // 4
    assert inside > logits
    assert working(asked, **values) == [0, logits]
    assert working(asked, **values, recompute="full") == [inside, inside]
    one = {"layers": (2, 2), "again": (1, 0), "recompute": "partial"}
    assert working(asked, **values, **one) == [inside, logits]
    large = samples.problem(GPT, {"workload.architecture.vocabulary": 50_000})
    much = 6 * 2 * S * 50_000 // 4
    assert working(large, **values, recompute="full") == [inside, much]


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
    form = formulate(samples.random_problem(seed))
    for point in samples.some(form, seed, 6):
        little, much = (
            estimate(form.problem, form.decode(point | {"micro_batch": b})).memory
            for b in (point["micro_batch"], point["micro_batch"] + 1)
        )
        assert little.peak_bytes < much.peak_bytes


@pytest.mark.parametrize("seed", range(20))
def test_more_sharding_never_takes_more_states(seed: int) -> None:
    """ZeRO stage by stage; what is fetched for a moment is working memory."""
    form = formulate(samples.random_problem(seed, prices="canonical"))
    parts = ("parameters", "gradients", "optimizer")
    for point in samples.some(form, seed, 4):
        by_stage = [
            [sum(use.parts[part] for part in parts) for use in found.memory.stages]
            for zero in range(4)
            for found in [estimate(form.problem, form.decode(point | {"zero": zero}))]
        ]
        # Front and back may be a difference of blocks, whose parts round up each for itself.
        assert all(
            later <= earlier + 8
            for one, other in pairwise(by_stage)
            for earlier, later in zip(one, other, strict=True)
        )


@pytest.mark.parametrize(("b", "m"), [(1, 8), (3, 8), (2, 12)])
def test_activations_of_the_first_stage_do_not_depend_on_p(b: int, m: int) -> None:
    """Eq. 19: ``b L (A_in + A_t/t)``, p cancels while m >= p; below, ``m/p`` of it is left."""
    asked = samples.problem({"workload.architecture.layers": 24})
    whole = 24 * kept(asked, b, 2, 0)
    for pp in (1, 2, 3, 4, 6, 8, 12, 24):
        plan = samples.plan(asked, tp=2, pp=pp, dp=1, micro_batch=b, micro_batches=m)
        first = estimate(asked, plan).memory.stages[0]
        assert first.in_flight == min(pp, m)
        assert first.parts["activations"] * max(pp, m) == whole * m


def flying(m: int, schedule: str, vpp: int = 1) -> list[int]:
    """Chunks that each of four stages holds."""
    asked = samples.problem({"workload.architecture.layers": 8})
    plan = samples.plan(asked, pp=4, dp=1, vpp=vpp, micro_batches=m, schedule=schedule)
    return [use.in_flight for use in estimate(asked, plan).memory.stages]


def test_later_stages_keep_fewer_micro_batches() -> None:
    """Eq. 18: ``min(p - stage, m)``; other schedules as their own papers say."""
    assert flying(8, "1f1b") == [4, 3, 2, 1]
    assert flying(2, "1f1b") == [2, 2, 2, 1]
    assert flying(6, "gpipe") == [6, 6, 6, 6]
    assert flying(8, "interleaved", 2) == [11, 9, 7, 5]
    assert flying(8, "zb-h1") == [4, 4, 4, 4]
    assert flying(8, "zb-h2") == [7, 7, 7, 7]
    assert flying(8, "zb-v", 2) == [8, 8, 8, 8]


@pytest.mark.parametrize("seed", range(20))
def test_no_equal_stage_in_the_middle_of_1f1b_is_fuller_than_the_first(seed: int) -> None:
    """It keeps fewer micro-batches and no embedding."""
    form = formulate(samples.random_problem(seed))
    for point in samples.some(form, seed, 6):
        if form.problem.workload.architecture.experts or point["schedule"]:
            continue
        if form.problem.workload.architecture.layers % point["pp"] == 0:
            stages = estimate(form.problem, form.decode(_equal(form, point))).memory.stages
            assert all(use.peak_bytes <= stages[0].peak_bytes for use in stages[:-1])


def _equal(form: Formulation, point: Mapping[str, int]) -> dict[str, int]:
    """Hand out the layers of a point evenly."""
    return samples.even(form, {k: v for k, v in point.items() if not k.endswith("]")})
