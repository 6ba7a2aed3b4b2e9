"""What people hit in public threads: each kind of fault, and the answer that it gets here."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import optplan
from optplan import catalogue
from optplan.models.cost.estimate import estimate
from optplan.models.numbers import divisors
from optplan.models.rules.registry import Legal, Rule, rules
from optplan.models.spec.plan import Plan
from optplan.models.spec.problem import Problem
from optplan.planner import run as solved
from optplan.result import Evaluation
from tests.models import samples
from tests.optplan.command import run

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


def states(answer: Evaluation, stage: int = 0) -> int:
    """Bytes of weights, gradients and optimizer on one device."""
    parts = answer.estimate.memory.stages[stage].parts
    return parts["parameters"] + parts["gradients"] + parts["optimizer"]


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
    asked = spec({**SMALL, "layers": 20}, 8, {**PLAIN, "dp": 8, "tp": 1}, sequence=1024)
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
    plan = {"tp": tp, "sequence_parallel": True}
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


# -- messages --------------------------------------------------------------------------------

DENSE: Mapping[str, Any] = {"workload.sequence_length": 36, "cluster.devices_per_node": 6}


def worlds() -> Iterator[Problem]:
    """Problems in which every rule of three families has something to say."""
    mixed = {**DENSE, **samples.EXPERTS}
    for changes in (DENSE, mixed):
        for name in (None, "megatron-core@0.7", "megatron-core@0.9", "megatron-core@0.15"):
            known = catalogue.framework(name).model_dump(mode="json") if name else None
            yield samples.problem(changes, framework=known)
    for wanted in ("even", [2, 2]):
        yield samples.problem(DENSE, {"search.layers_per_stage": wanted})
    strict = catalogue.framework("megatron-core@0.15").model_dump(mode="json")
    strict["interleaved_multiple"] = "pp*vpp"
    yield samples.problem(DENSE, framework=strict)
    yield samples.problem(DENSE, prices="paper")


def some_rules(problem: Problem) -> list[Rule]:
    """Return the rules of three families that a problem has."""
    families = ("degrees.", "experts.", "pipeline.")
    return [r for r in rules() if r.name.startswith(families) and r.applies(problem)]


VALUES: Mapping[str, Sequence[int]] = {
    "sequence_parallel": (0, 1),
    "hsdp": (0, 1),
    "context": (0, 1),
    "zero": (0, 1, 2, 3),
    "schedule": range(6),
}
"""Values of choices that are no degree; degrees are small numbers."""


def speaks(text: str) -> bool:
    """Tell whether a refusal has its three parts: why, what is legal, what else to change."""
    why, _, rest = text.partition("legal")
    return len(why) > 8 and ("; or " in rest or ", or " in rest)


def test_d31_every_question_of_a_rule_is_answered_in_three_parts() -> None:
    """vllm-project/vllm PR 52535: why, legal values, another axis."""
    refusals: dict[str, set[str]] = {}
    for problem in worlds():
        for rule in some_rules(problem):
            if not isinstance(rule, Legal):
                continue
            degrees = (1, 2, 3, 4, 5, 6, 8)
            tuples = list(product(*(VALUES.get(key, degrees) for key in rule.keys)))
            legal = rule.legal(problem, *np.array(tuples, dtype=np.int64).T)
            for values, ok in zip(tuples, np.broadcast_to(legal, len(tuples)), strict=True):
                text = rule.why(problem, *values)
                if not ok:
                    refusals.setdefault(rule.name, set()).add(text)
                    assert speaks(text), (rule.name, text)
    asked = {r.name for p in worlds() for r in some_rules(p) if isinstance(r, Legal)}
    assert set(refusals) == asked


def test_d31_every_refused_plan_is_told_in_three_parts() -> None:
    """The same of rules that ask a whole plan; of equal chunks both lists are enough."""
    told: set[str] = set()
    for problem in worlds():
        shape = {"tp": 1, "dp": 1, "micro_batch": 1, "global_batch": 8}
        base = samples.plan(problem, pp=2)
        price = estimate(problem, base)
        for plan in changed(base.model_copy(update=shape)):
            for rule in some_rules(problem):
                for finding in rule.holds(problem, plan, price):
                    if not finding.holds:
                        told.add(finding.name)
                        both = finding.name.endswith("[stages]")
                        assert both or speaks(finding.text), (finding.name, finding.text)
    whole = {r.name for p in worlds() for r in some_rules(p) if not isinstance(r, Legal)}
    assert whole <= told
    assert "pipeline.layers[all]" in told


def changed(base: Plan) -> Iterator[Plan]:
    """Plans that break what only a whole plan can break."""
    for tp, dp, cp in ((1, 7, 1), (16, 1, 1), (5, 1, 1), (2, 1, 4), (64, 2, 1)):
        yield base.model_copy(update={"tp": tp, "dp": dp, "cp": cp})
    for schedule, vpp in (("interleaved", 1), ("zb-v", 1), ("1f1b", 2), ("interleaved", 2)):
        for micro_batches in (1, 3, 5):
            update = {"schedule": schedule, "vpp": vpp, "micro_batches": micro_batches}
            yield base.model_copy(update=update)
    for held in ((4,), (2, 1), (3, 2), (4, 0), (3, 1), (1,) * 5):
        none = (0,) * len(held)
        layout = {"pp": len(held), "layers_per_stage": held, "recomputed_layers_per_stage": none}
        yield base.model_copy(update=layout)
        yield base.model_copy(update={**layout, "schedule": "interleaved", "vpp": 2})


def test_d25_every_refused_batch_is_told_in_three_parts() -> None:
    """And what it calls legal is."""
    problem = samples.problem()
    (split,) = (r for r in rules() if r.name == "batch.split")
    base = samples.plan(problem)
    price = estimate(problem, base)
    for dp, size, count, batch in product((1, 2, 3, 7), (1, 2, 5), (1, 3, 18), (6, 7, 256)):
        cut = {"dp": dp, "micro_batch": size, "micro_batches": count, "global_batch": batch}
        (finding,) = split.holds(problem, base.model_copy(update=cut), price)
        assert finding.holds == (dp * size * count == batch)
        if finding.holds:
            continue
        assert speaks(finding.text), finding.text
        named = finding.text.partition("or dp ")[2]
        if batch % (dp * size) and batch % size == 0:
            assert {int(d) for d in named.split(" or ")} <= set(divisors(batch // size))


# -- memory: what no layout can hold ---------------------------------------------------------


def fits(architecture: str | Mapping[str, Any], devices: int, **more: Any) -> bool:
    """Tell whether any layout of some devices holds a model, one sequence at a time."""
    search = {**ONE_WAY, "global_batch": devices, "recompute": "full"}
    asked = spec(architecture, devices, search, sequence=512, **more)
    return bool(solved(optplan.load(asked))[1].best)


def test_m1_two_nodes_are_too_few_for_70b() -> None:
    """NVIDIA/Megatron-LM#1308: 18 bytes a parameter, however they are spread; the host helps."""
    search = {**ONE_WAY, "global_batch": 16, "recompute": "full"}
    asked = spec("llama-3-70b", 16, search, sequence=512)
    result = optplan.solve(asked, top=0)
    assert result.exit_code == 1
    assert [reason.rule.split(".")[0] for reason in result.explanation.core] == ["capacity"]
    assert any("(32 devices)" in way.change for way in result.explanation.ways_out)
    host = {"memory": "2 TB", "link": "50 GB/s", "bandwidth": "400 GB/s"}
    result = optplan.solve({**asked, "cluster": {**asked["cluster"], "host": host}}, top=0)
    assert result.plan is not None
    assert result.plan.offload


@pytest.mark.parametrize(
    ("layout", "each"),
    [
        ({"tp": 8, "pp": 4, "dp": 1}, 37.0),
        ({"tp": 8, "pp": 2, "dp": 1, "layers_per_stage": (40, 40)}, 73.9),
    ],
)
def test_m1_states_of_70b(layout: dict[str, Any], each: float) -> None:
    """70.55e9 parameters times 18 bytes over 32 and 16 devices, in GiB."""
    search = {**ONE_WAY, "global_batch": 32, "zero": 0, "recompute": "full"}
    asked = spec("llama-3-70b", layout["tp"] * layout["pp"], search, sequence=512)
    answer = optplan.evaluate(asked, layout)
    held = [states(answer, i) for i in range(layout["pp"])]
    assert sum(held) / len(held) / GIB == pytest.approx(each, abs=0.06)
    assert answer.verdict.holds == (layout["pp"] == 4)


@pytest.mark.parametrize("devices", [1, 2])
def test_m3_70b_on_one_or_two_devices(devices: int) -> None:
    """NVIDIA/Megatron-LM#783."""
    assert not fits("llama-3-70b", devices)


def test_m3_uneven_stages_make_do_with_24() -> None:
    search = {**ONE_WAY, "global_batch": 24, "recompute": "full"}
    asked = spec("llama-3-70b", 24, search, sequence=512)
    accepted(asked, tp=8, pp=3, dp=1, layers_per_stage=(27, 27, 26))


@pytest.mark.parametrize(("devices", "ep", "each"), [(8, 8, 76.8), (16, 8, 53.9), (16, 16, 43.0)])
def test_m7_states_of_experts_count_their_own_data_ranks(
    devices: int, ep: int, each: float
) -> None:
    """NVIDIA/Megatron-LM#2762: GB of states; with one expert data rank it is too much."""
    search = {**ONE_WAY, "recompute": "full"}
    asked = spec("qwen3-30b-a3b", devices, search, sequence=4096)
    plan = {"tp": 1, "pp": 1, "dp": devices, "ep": ep, "etp": 1, "zero": 1, "recompute": "full"}
    answer = optplan.evaluate(asked, plan)
    assert states(answer) / GB == pytest.approx(each, abs=0.05)
    assert answer.verdict.holds == (devices == 16)


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


@pytest.mark.parametrize(
    ("layout", "parts"),
    [({"tp": 1, "etp": 1}, 1), ({"tp": 2, "etp": 2}, 2), ({"pp": 2, "tp": 1, "etp": 1}, 2)],
)
def test_m11_frozen_experts_need_a_second_axis(layout: dict[str, int], parts: int) -> None:
    """NVIDIA-NeMo/Megatron-Bridge#4754: 75.7 GB of experts at ep 8 alone, half of it otherwise."""
    asked = spec(MIMO, 16, {**ONE_WAY, "zero": 0, "recompute": "full"}, sequence=512)
    asked["workload"]["lora"] = {"rank": 8, "layers": "attention"}
    plan = {
        "ep": 8,
        "pp": 1,
        "dp": 16 // parts,
        "zero": 0,
        "sequence_parallel": layout["tp"] > 1,
        **layout,
    }
    answer = optplan.evaluate(asked, plan)
    held = answer.estimate.memory.stages[-1].parts["parameters"] / GB
    assert 75.7 / parts < held < 75.7 / parts + 16
    assert answer.verdict.holds == (parts == 2), answer.verdict.broken


@pytest.mark.parametrize(
    "layout", [{"tp": 8, "pp": 1, "dp": 2, "zero": 2}, {"tp": 4, "pp": 2, "dp": 2, "zero": 1}]
)
def test_m13_sharding_what_is_small_does_not_help(layout: dict[str, int]) -> None:
    """hpcaitech/ColossalAI#5139: 77.6 GB are left even where all of it is spread."""
    search = {**ONE_WAY, "global_batch": 16, "recompute": "full"}
    asked = spec("llama-2-70b", 16, search, sequence=512)
    answer = refused(asked, "capacity.optimizer[stage=0]", **layout)
    assert states(answer) > 77.6 * GB
    wide = spec("llama-2-70b", 32, {**search, "global_batch": 32}, sequence=512)
    accepted(wide, tp=8, pp=4, dp=1)


NEOX = {**GPT, "layers": 44, "hidden": 6144, "heads": 64, "ffn": 24576, "vocabulary": 50432}


def test_m15_20b_on_two_small_devices() -> None:
    """EleutherAI/gpt-neox#606: 185 GB a device."""
    shape = {**NEOX, "tied_embeddings": False}
    assert not fits(shape, 2, accelerator="a100-sxm-40gb")
    search = {**ONE_WAY, "zero": 0, "recompute": "full"}
    asked = spec(shape, 2, search, "a100-sxm-40gb", 512)
    answer = refused(asked, "capacity.optimizer[stage=0]", tp=2, pp=1, dp=1)
    assert states(answer) / GB == pytest.approx(185, abs=1)


@pytest.mark.parametrize(
    ("model", "least"), [("llama-2-7b", 2), ("falcon-40b", 16), ("llama-2-70b", 32)]
)
def test_m47_smallest_clusters_by_powers_of_two(model: str, least: int) -> None:
    """The table of epfLLM/Megatron-LLM#6, of whole powers of two."""
    assert not fits(model, least // 2)
    assert fits(model, least)
