"""What people hit in public threads: each kind of fault, and the answer that it gets here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import optplan
from optplan import catalogue
from tests.optplan.command import run
from tests.optplan.threads import (
    ONE_WAY,
    PLAIN,
    SMALL,
    accepted,
    layers,
    refused,
    spec,
    stages,
)

# -- layers that do not divide ---------------------------------------------------------------


def test_d1_seven_layers_on_two_stages() -> None:
    """NVIDIA/Megatron-LM#381: the uneven halves are legal, and none drops a layer."""
    asked = spec({**SMALL, "layers": 7}, 2, stages(2))
    assert sorted(layers(asked)) == [3, 4]
    for halves in ((3, 4), (4, 3)):
        accepted(asked, layers_per_stage=halves)
    refused(asked, "pipeline.layers[all]", "6 of 7", "legal: 7", layers_per_stage=(3, 3))


def test_d1_a_heavy_head_takes_layers_from_the_last_stage() -> None:
    heavy = {**SMALL, "layers": 7, "vocabulary": 64_000}
    first, last = layers(spec(heavy, 2, stages(2)))
    assert first + last == 7
    assert last < first


@pytest.mark.parametrize("held", [(2,) * 16, (3,) * 16, (2,) * 15 + (3,)])
def test_d3_no_layer_vanishes_and_none_is_invented(held: tuple[int, ...]) -> None:
    """NVIDIA/Megatron-LM#1303: 40 layers on 16 stages trained 32 of them."""
    asked = spec(SMALL, 16, stages(16))
    words = (f"stages hold {sum(held)} of 40 layers", "another network", "legal: 40 in all")
    refused(asked, "pipeline.layers[all]", *words, layers_per_stage=held)


def test_d3_forty_layers_on_sixteen_stages_are_solved() -> None:
    asked = spec({**SMALL, "vocabulary": 64}, 16, stages(16))
    best = layers(asked)
    assert sum(best) == 40
    assert max(best) == 3
    accepted(asked, layers_per_stage=(3,) * 8 + (2,) * 8)


LEGAL = (1, 2, 4, 5, 8, 10, 20, 40)
"""Lengths of a pipeline that hold 40 layers evenly."""


def even(devices: int, framework: str, **search: Any) -> dict[str, Any]:
    """40 layers in equal stages."""
    asked = {**PLAIN, "tp": 1, "dp": 1, "layers_per_stage": "even", **search}
    return spec(SMALL, (devices // 8, 8), asked, framework=framework)


def test_d3_equal_stages_name_every_legal_pipeline() -> None:
    asked = even(40, "megatron-core@0.10")
    listed = "{" + ", ".join(map(str, LEGAL)) + "}"
    refused(asked, "pipeline.layers", f"pp in {listed}", "or raise tp or dp", pp=16)


@pytest.mark.parametrize("pp", [1, 2, 3, 8, 20, 40])
def test_d3_equal_stages_are_solved_where_they_are_legal(pp: int) -> None:
    result = optplan.solve(even(40, "megatron-core@0.10", pp=pp), top=0)
    assert (result.plan is not None) == (pp in LEGAL)
    if result.plan:
        assert result.plan.layers_per_stage == (40 // pp,) * pp


def test_d3_ends_that_count_as_layers_allow_more_pipelines() -> None:
    """41 or 42 places: the head, or head and embedding, take one each."""
    asked = even(40, "megatron-core@0.15", pp=3)
    assert layers(asked) == (13, 14, 13)
    words = ("'layers_per_stage: any'", "1, 2, 3, 4, 5, 6, 7, 8")
    refused(even(40, "megatron-core@0.15"), "pipeline.layers", *words, pp=16)


def test_d5_layers_of_a_last_stage_without_a_pipeline(tmp_path: Path) -> None:
    """NVIDIA/Megatron-LM#1778: a one-layer model reported absurd TFLOPS."""
    asked = spec({**SMALL, "layers": 20}, 8, {**PLAIN, "dp": 8, "tp": 1}, sequence=8192)
    one: dict[str, Any] = {"pp": 1, "layers_per_stage": (1,)}
    answer = refused(asked, "pipeline.layers[all]", "1 of 20", **one)
    assert answer.estimate.mfu > 1
    assert any("MFU" in text and "above 100 %" in text for text in answer.warnings)
    whole = accepted(asked, pp=1)
    assert whole.plan.layers_per_stage == (20,)
    assert not any("MFU" in text for text in whole.warnings)
    path = tmp_path / "spec.yaml"
    path.write_text(json.dumps(asked), encoding="utf-8")
    status, out, err = run("evaluate", str(path), "pp=1", "layers_per_stage=1", "--json")
    assert (status, err) == (1, "")
    assert "pipeline.layers[all]" in json.loads(out)["verdict"]["broken"]
    only = {**asked, "search": {**asked["search"], "layers_per_stage": [1]}}
    assert refused(only, "pipeline.layers[all]", "1 of 20", **one).optimum is None


QWEN = {**ONE_WAY, "tp": 2, "ep": 8, "etp": 1, "dp": 8, "pp": 4, "zero": 1, "recompute": "full"}


def test_d7_ninety_four_layers_on_four_stages() -> None:
    """modelscope/ms-swift#6476: a last stage of 22, or both ends counted as layers."""
    shape, device = "qwen3-235b-a22b", "h200-sxm-141gb"
    asked = spec(shape, 64, {**QWEN, "sequence_parallel": True}, device)
    accepted(asked, layers_per_stage=(24, 24, 24, 22))
    search = {**QWEN, "sequence_parallel": True, "layers_per_stage": "even"}
    counted = spec(shape, 64, search, device, framework="megatron-core@0.15")
    assert layers(counted) == (23, 24, 24, 23)
    words = ("{24, 24, 24, 22}", "{23, 24, 24, 23}")
    refused(counted, "pipeline.layers[stages]", *words, layers_per_stage=(24, 24, 24, 22))
    older = {**counted, "framework": "megatron-core@0.10"}
    refused(older, "pipeline.layers", "does not divide 94", "pp in {1, 2, 47}", pp=4)


@pytest.mark.parametrize("pp", [2, 4, 8])
@pytest.mark.parametrize("count", [43, 61, 78])
def test_d23_any_pipeline_for_deep_models_with_token_prediction(count: int, pp: int) -> None:
    """ISEEKYAN/Megatron-LM#53 and #47: every layer is kept, the last stage carries fewer."""
    deep = {**SMALL, "layers": count, "vocabulary": 32_000, "mtp": 1}
    best = layers(spec(deep, pp, stages(pp)))
    assert sum(best) == count
    assert best[-1] == min(best)
    assert best[-1] < count / pp


def test_d23_six_layers_on_four_stages() -> None:
    """Both ends weigh, so they hold one layer each."""
    shape = {**SMALL, "layers": 6, "vocabulary": 32_000}
    asked = spec(shape, 4, stages(4), sequence=1024)
    assert layers(asked) == (1, 2, 2, 1)
    accepted(asked, layers_per_stage=(1, 2, 2, 1))
    empty = refused(asked, "pipeline.layers[all]", "holds none", layers_per_stage=(2, 2, 2, 0))
    assert "or a smaller pp" in empty.verdict.broken["pipeline.layers[all]"]


def test_d23_the_real_model_of_61_layers() -> None:
    search = {**QWEN, "sequence_parallel": True, "ep": 64, "dp": 32, "pp": 8, "zero": 1}
    best = layers(spec("deepseek-v3", 512, {**search, "global_batch": 512}, "h200-sxm-141gb"))
    assert sum(best) == 61
    assert best[-1] < 61 / 8
    assert best[0] >= 3


# -- products of degrees ---------------------------------------------------------------------


def test_d9_experts_and_dense_layers_share_the_devices() -> None:
    """THUDM/slime PR 1662: pp max(tp cp, ep etp) = 8 is enough."""
    search = {**ONE_WAY, "pp": 1, "recompute": "full", "zero": 1, "sequence_parallel": True}
    asked = spec("qwen3-30b-a3b", 8, search, sequence=1024)
    answer = accepted(asked, tp=2, ep=8, etp=1, dp=4)
    said = answer.verdict.kept["experts.world"]
    assert "tp 2 * cp 1 * dp 4 = 8" in said
    assert "ep 8 * etp 1 = 8 * expert dp 1" in said
    words = ("= 8, experts ep 8 * etp 2 = 16", "legal at etp 2: ep in {1, 2, 4}")
    refused(asked, "experts.world", *words, tp=2, ep=8, etp=2, dp=4)


def test_d11_the_tensor_degree_of_experts_that_nobody_set() -> None:
    """NVIDIA-NeMo/Speech#14838: products of both kinds, and the default that was applied."""
    search = {**ONE_WAY, "recompute": "full"}
    asked = spec("qwen3-30b-a3b", 4, search, sequence=1024, framework="megatron-core@0.9")
    answer = refused(
        asked,
        "experts.world",
        "dense tp 2 * cp 1 * dp 1 = 2",
        "experts ep 2 * etp 2 = 4",
        "etp = tp, the default of megatron-core@0.9",
        tp=2,
        pp=2,
        ep=2,
        dp=1,
    )
    assert "the framework sets etp = tp" in answer.verdict.kept["experts.etp"]
    refused(asked, "experts.etp", "legal: etp 2", tp=2, pp=2, dp=1, ep=2, etp=1)
    newer = {**asked, "framework": "megatron-core@0.15"}
    free = optplan.evaluate(newer, {"tp": 2, "pp": 2, "dp": 1, "ep": 2, "etp": 1})
    assert not [name for name in free.verdict.broken if name.startswith("experts.")]


@pytest.mark.parametrize("idle", [True, False])
def test_d17_degrees_that_exceed_the_world(idle: bool) -> None:
    """huggingface/nanotron PR 329: 32 ranks on 8 devices; 4 data ranks are left."""
    asked = spec(SMALL, 8, {**ONE_WAY, "idle_devices": idle})
    words = ("= 32 of 8 devices", "legal: dp = 4", "or smaller tp, pp or cp")
    refused(asked, "degrees.world", *words, tp=2, dp=16, pp=1)
    accepted(asked, tp=2, dp=4, pp=1)


def test_d17_a_tensor_group_beyond_the_world() -> None:
    asked = spec(SMALL, 8, ONE_WAY)
    words = ("tp 16 * pp 1 * cp 1 = 16, legal: at most 8", "or more nodes")
    refused(asked, "degrees.world", *words, **plan_words(tp=16, micro_batches=64))


def plan_words(**given: Any) -> dict[str, Any]:
    """Name every degree and batch of a plan, so that nothing is chosen for it."""
    words = {"tp": 1, "pp": 1, "dp": 1, "cp": 1, "micro_batch": 1, "global_batch": 64}
    return {**words, **given}


def test_d19_heads_that_a_tensor_group_cannot_split() -> None:
    """vllm-project/vllm#414: 52 heads on three devices; every legal degree is named."""
    shape = {**SMALL, "heads": 52, "hidden": 52 * 64}
    words = ("tp 3 does not divide 52 attention heads", "or raise pp, cp or dp")
    asked = spec(shape, 3, {**PLAIN, "idle_devices": False, "global_batch": 6})
    refused(asked, "degrees.heads", *words, "legal: tp in {1, 2}", tp=3)
    many = spec(shape, (10, 6), {**PLAIN, "global_batch": 60})
    refused(many, "degrees.heads", *words, "tp in {1, 2, 4, 13, 26, 52}", tp=3, pp=1)


def test_d21_fewer_devices_where_heads_do_not_divide() -> None:
    """MIV-XJTU/FSDrive#21: 12 heads refuse 8 ranks; 4 work, and the others may be idle."""
    asked = spec({**SMALL, "heads": 12, "hidden": 768}, 8, PLAIN)
    refused(asked, "degrees.heads", "12 attention heads", "{1, 2, 3, 4, 6}", tp=8)
    answer = accepted(asked, tp=4, pp=1, dp=1)
    assert answer.plan.devices == 4
    assert "4 idle" in answer.verdict.kept["degrees.world"]
    full = {**asked, "search": {**asked["search"], "idle_devices": False}}
    refused(full, "degrees.world", "of 8 devices", "legal: dp = 2", tp=4, pp=1, dp=1, cp=1)


# -- batches and sequences -------------------------------------------------------------------


@pytest.mark.parametrize("named", [{}, {"micro_batches": 18, "tp": 1, "pp": 1}])
def test_d25_a_batch_that_seven_ranks_cannot_split(named: dict[str, int]) -> None:
    """OpenRLHF/OpenRLHF#346: 2 * 18 * 7 = 252; 252 or 266, or 8 ranks."""
    search = {**PLAIN, "micro_batch": 2, "global_batch": 256}
    asked = spec(SMALL, 7, search)
    words = ("= 252, global_batch 256", "global_batch 252 or 266", "or dp 4 or 8")
    refused(asked, "batch.split", *words, dp=7, micro_batch=2, **named)


@pytest.mark.parametrize(("devices", "batch"), [(7, 252), (7, 266), (8, 256)])
def test_d25_what_the_message_names_is_legal(devices: int, batch: int) -> None:
    search = {**PLAIN, "micro_batch": 2, "global_batch": batch}
    accepted(spec(SMALL, devices, search), dp=devices, micro_batch=2)


def test_d25_the_search_refuses_it_too_and_knows_a_way_out() -> None:
    search = {**PLAIN, "micro_batch": 2, "global_batch": 256, "dp": 7}
    result = optplan.solve(spec(SMALL, 7, search), top=0)
    assert result.exit_code == 1
    assert "leave dp open" in [way.change for way in result.explanation.ways_out]


@pytest.mark.parametrize("tp", [2, 3, 4])
@pytest.mark.parametrize("cp", [1, 2])
def test_d15_sequences_are_padded_to_the_right_multiple(tp: int, cp: int) -> None:
    """NVIDIA-NeMo/RL PR 3563: cp lcm(2, tp) with context ranks under sequence parallelism."""
    unit = cp * int(np.lcm(2, tp)) if cp > 1 else tp
    shape = {**SMALL, "layers": 4, "heads": 12, "hidden": 768, "ffn": 3072}
    search = {**ONE_WAY, "cp": cp, "pp": 1, "dp": 1, "zero": 0, "recompute": "none"}
    plan = {"tp": tp, "cp": cp, "sequence_parallel": True}
    accepted(spec(shape, tp * cp, search, sequence=7 * unit), **plan)
    words = (f"no multiple of {unit}", f"pad to {8 * unit}", "legal at cp")
    short = spec(shape, tp * cp, search, sequence=7 * unit + 1)
    refused(short, "degrees.sequence_parallel", *words, **plan)


# -- schedules -------------------------------------------------------------------------------

TURNS = {"tp": 1, "pp": 4, "dp": 2, "vpp": 2, "schedule": "interleaved", "micro_batch": 1}


def interleaved(batch: int, framework: Any) -> dict[str, Any]:
    """16 layers on 8 devices, of which the thread's plan makes four stages of two chunks."""
    search = {"cp": 1, "recompute": "none", "zero": 0, "hsdp": False, "global_batch": batch}
    return spec({**SMALL, "layers": 16}, 8, search, framework=framework)


@pytest.mark.parametrize("framework", ["megatron-core@0.9", "megatron-core@0.15", None])
def test_d13_micro_batches_come_in_rounds_of_the_pipeline(framework: str | None) -> None:
    """NVIDIA-BioNeMo/bionemo-recipes#286."""
    words = ("10 micro-batches in rounds of 4", "multiples of 4 such as 8 or 12", "or schedule")
    refused(interleaved(20, framework), "pipeline.interleaved", *words, **TURNS)
    accepted(interleaved(24, framework), **TURNS)


def test_d13_the_round_is_a_fact_of_the_framework() -> None:
    """Where it is pp * vpp, 12 micro-batches are refused; where it is anything, so says nobody."""
    record = catalogue.framework("megatron-core@0.15").model_dump(mode="json")
    strict = interleaved(24, {**record, "interleaved_multiple": "pp*vpp"})
    words = ("12 micro-batches in rounds of 8", "such as 8 or 16")
    refused(strict, "pipeline.interleaved", *words, **TURNS)
    accepted(interleaved(32, strict["framework"]), **TURNS)


def test_d27_two_interleaved_stages_need_overlapped_transfers() -> None:
    """NVIDIA/Megatron-LM#750."""
    search = {"cp": 1, "recompute": "none", "zero": 0}
    asked = spec({**SMALL, "layers": 16}, 2, search, framework="megatron-core@0.15")
    plan = {"tp": 1, "pp": 2, "dp": 1, "vpp": 2, "schedule": "interleaved"}
    words = ("'overlap: [p2p-overlap]'", "pp >= 3")
    refused(asked, "pipeline.two_stages", *words, **plan)
    accepted({**asked, "overlap": ["p2p-overlap"]}, **plan)
    older = {**asked, "framework": "megatron-core@0.7", "overlap": ["p2p-overlap"]}
    refused(older, "pipeline.two_stages", "megatron-core@0.7 cannot", "legal: pp >= 3", **plan)
    limits = ["vpp >= 2"]
    assert optplan.solve(asked, top=0, limits=limits).plan is None
    found = optplan.solve({**asked, "overlap": ["p2p-overlap"]}, top=0, limits=limits).plan
    assert found is not None
    assert (found.pp, found.schedule) == (2, "interleaved")


# -- experts beyond a node -------------------------------------------------------------------


def test_d29_experts_that_leave_their_node_are_warned_about() -> None:
    """NVIDIA-NeMo/Megatron-Bridge#6043: ep 64 on nodes of 8, or on a domain of 72."""
    shape = {
        **SMALL,
        "layers": 8,
        "experts": {"count": 512, "per_token": 8, "ffn": 1024},
    }
    search = {**ONE_WAY, "pp": 1, "tp": 1, "etp": 1, "zero": 1, "dp": 64}
    for device in ({"nodes": 8, "devices_per_node": 8}, {"nodes": 1, "devices_per_node": 72}):
        asked = spec(shape, 64, search, "b200-sxm-180gb")
        asked["cluster"].update(device)
        far = [text for text in accepted(asked, ep=64).warnings if "crosses nodes" in text]
        assert bool(far) == (device["devices_per_node"] == 8)
        for part in ("ep 64", "nodes of 8", "ep 8 with more recomputation", "devices_per_node"):
            assert not far or part in far[0]
        near = accepted(asked, ep=8).warnings
        assert not any("crosses nodes" in text for text in near)
