"""Rows D1 to D31: what divides what, and what a product must be."""

from __future__ import annotations

from typing import Any

import numpy as np

import optplan
from tests.cases.case import Answer, case, priced
from tests.optplan.threads import ONE_WAY, PLAIN, SMALL, layers, spec, stages


def broken(asked: dict[str, Any], rule: str, *said: str, **plan: Any) -> tuple[str, bool]:
    """Evaluate a plan that a rule must break; give its words, and whether all are said."""
    answer = optplan.evaluate(asked, plan)
    text = answer.verdict.broken.get(rule, "")
    return text or "accepted", bool(text) and all(part in text for part in said)


@case(
    "D1",
    "NVIDIA/Megatron-LM#381",
    "7 layers on 2 stages: an assertion",
    "3 + 4 or 4 + 3, by the weight of embedding and head",
)
def _() -> Answer:
    light = layers(spec({**SMALL, "layers": 7}, 2, stages(2)))
    heavy = layers(spec({**SMALL, "layers": 7, "vocabulary": 64_000}, 2, stages(2)))
    right = sorted(light) == [3, 4] and sum(heavy) == 7 and heavy[-1] < heavy[0]
    return Answer(f"{light[0]} + {light[1]}; with a heavy head {heavy[0]} + {heavy[1]}", right)


@case(
    "D3",
    "NVIDIA/Megatron-LM#1303",
    "40 layers on 16 stages: 32 are trained",
    "pp in {1, 2, 4, 5, 8, 10, 20, 40}, or eight stages of 3 and eight of 2",
)
def _() -> Answer:
    even = {**PLAIN, "tp": 1, "dp": 1, "layers_per_stage": "even"}
    asked = spec(SMALL, (5, 8), even, framework="megatron-core@0.10")
    text, right = broken(asked, "pipeline.layers", "{1, 2, 4, 5, 8, 10, 20, 40}", pp=16)
    best = layers(spec({**SMALL, "vocabulary": 64}, 16, stages(16)))
    found = sorted(best) == [2] * 8 + [3] * 8
    return Answer(f"{text}; uneven: {best.count(3)} of 3, {best.count(2)} of 2", right and found)


@case(
    "D5",
    "NVIDIA/Megatron-LM#1778",
    "20 layers, one stage, last-stage flag 1: a 1-layer model, absurd TFLOPS",
    "refuse it at pp 1; MFU above 100 % is an alarm",
)
def _() -> Answer:
    asked = spec({**SMALL, "layers": 20}, 8, {**PLAIN, "dp": 8, "tp": 1}, sequence=8192)
    answer = optplan.evaluate(asked, {"pp": 1, "layers_per_stage": (1,)})
    alarm = any("above 100 %" in text for text in answer.warnings)
    text = answer.verdict.broken.get("pipeline.layers[all]", "accepted")
    return Answer(f"{text}; MFU {answer.estimate.mfu:.0%}: alarm", alarm and "1 of 20" in text)


@case(
    "D7",
    "modelscope/ms-swift#6476",
    "Qwen3-235B, 94 layers on 4 stages",
    "24, 24, 24, 22; or embedding and head count as layers",
)
def _() -> Answer:
    base = {**ONE_WAY, "tp": 2, "ep": 8, "etp": 1, "dp": 8, "pp": 4, "zero": 1}
    search = {**base, "recompute": "full", "sequence_parallel": True}
    shape, device = "qwen3-235b-a22b", "h200-sxm-141gb"
    uneven = (24, 24, 24, 22)
    asked = spec(shape, 64, {**search, "layers_per_stage": list(uneven)}, device)
    holds = optplan.evaluate(asked, {"layers_per_stage": uneven}).verdict.holds
    even = {**search, "layers_per_stage": "even"}
    counted = layers(spec(shape, 64, even, device, framework="megatron-core@0.15"))
    text = f"{', '.join(map(str, uneven))} obeys every rule; counted ends: {counted}"
    return Answer(text if holds else "refused", holds and counted == (23, 24, 24, 23))


@case(
    "D9",
    "THUDM/slime PR 1662",
    "Qwen MoE on 8 devices with tp 2 and ep 8",
    "accept: pp max(tp cp, ep etp) = 8",
)
def _() -> Answer:
    search = {**ONE_WAY, "pp": 1, "recompute": "full", "zero": 1, "sequence_parallel": True}
    asked = spec("qwen3-30b-a3b", 8, search, sequence=1024)
    answer = priced(asked, tp=2, ep=8, etp=1, dp=4)
    said = answer.verdict.kept.get("experts.world", "refused")
    return Answer(said, answer.verdict.holds)


@case(
    "D11",
    "NVIDIA-NeMo/Speech#14838",
    "world 4, pp 2, ep 2: the expert tensor degree defaults to tp",
    "print the group products and the default",
)
def _() -> Answer:
    search = {**ONE_WAY, "recompute": "full"}
    asked = spec("qwen3-30b-a3b", 4, search, sequence=1024, framework="megatron-core@0.9")
    said = ("= 2", "= 4", "etp = tp, the default")
    return Answer(*broken(asked, "experts.world", *said, tp=2, pp=2, ep=2, dp=1))


@case(
    "D13",
    "NVIDIA-BioNeMo/bionemo-recipes#286",
    "interleaving with any number of micro-batches",
    "a multiple of pp under vpp, by the version's rule",
)
def _() -> Answer:
    search = {"cp": 1, "recompute": "none", "zero": 0, "hsdp": False, "global_batch": 20}
    asked = spec({**SMALL, "layers": 16}, 8, search, framework="megatron-core@0.15")
    plan = {"tp": 1, "pp": 4, "dp": 2, "vpp": 2, "schedule": "interleaved", "micro_batch": 1}
    return Answer(*broken(asked, "pipeline.interleaved", "multiples of 4", **plan))


@case(
    "D15",
    "NVIDIA-NeMo/RL PR 3563",
    "padding with context and sequence parallelism",
    "s % (cp lcm(2, tp)) = 0",
)
def _() -> Answer:
    shape = {**SMALL, "layers": 4, "heads": 12, "hidden": 768, "ffn": 3072}
    search = {**ONE_WAY, "cp": 2, "pp": 1, "dp": 1, "zero": 0, "recompute": "none"}
    unit = 2 * int(np.lcm(2, 3))
    asked = spec(shape, 6, search, sequence=7 * unit + 1)
    said = (f"multiple of {unit}", f"pad to {8 * unit}")
    plan = {"tp": 3, "cp": 2, "sequence_parallel": True}
    return Answer(*broken(asked, "degrees.sequence_parallel", *said, **plan))


@case("D17", "huggingface/nanotron PR 329", "8 devices, tp 2, dp 16", "dp 4")
def _() -> Answer:
    asked = spec(SMALL, 8, ONE_WAY)
    return Answer(*broken(asked, "degrees.world", "legal: dp = 4", tp=2, dp=16, pp=1))


@case("D19", "vllm-project/vllm#414", "52 heads on 3 devices", "tp in {1, 2, 4, 13, 26, 52}")
def _() -> Answer:
    shape = {**SMALL, "heads": 52, "hidden": 52 * 64}
    asked = spec(shape, (10, 6), {**PLAIN, "global_batch": 60})
    return Answer(*broken(asked, "degrees.heads", "{1, 2, 4, 13, 26, 52}", tp=3, pp=1))


@case("D21", "MIV-XJTU/FSDrive#21", "12 heads, tp 8", "tp 4 on 4 devices")
def _() -> Answer:
    asked = spec({**SMALL, "heads": 12, "hidden": 768}, 8, PLAIN)
    text, right = broken(asked, "degrees.heads", "{1, 2, 3, 4, 6}", tp=8)
    four = optplan.evaluate(asked, {"tp": 4, "pp": 1, "dp": 1})
    text += "; tp 4 with 4 idle obeys every rule" if four.verdict.holds else ""
    return Answer(text, right and four.verdict.holds)


@case(
    "D23",
    "ISEEKYAN/Megatron-LM#53, #47",
    "43, 61 and 78 layers with token prediction; 6 layers on 4 stages",
    "any pp, with head and prediction as weights; 1, 2, 2, 1",
)
def _() -> Answer:
    six = layers(spec({**SMALL, "layers": 6, "vocabulary": 32_000}, 4, stages(4), sequence=1024))
    deep = {
        count: layers(
            spec({**SMALL, "layers": count, "vocabulary": 32_000, "mtp": 1}, 4, stages(4))
        )
        for count in (43, 61, 78)
    }
    right = six == (1, 2, 2, 1) and all(
        sum(held) == count and held[-1] < count / 4 for count, held in deep.items()
    )
    return Answer(f"{six}; on 4 stages {', '.join(map(str, deep.values()))}", right)


@case(
    "D25",
    "OpenRLHF/OpenRLHF#346",
    "batch 256 on 7 devices, micro-batch 2",
    "252 or 266, or 8 devices",
)
def _() -> Answer:
    asked = spec(SMALL, 7, {**PLAIN, "micro_batch": 2, "global_batch": 256})
    said = ("252 or 266", "dp 4 or 8")
    return Answer(*broken(asked, "batch.split", *said, dp=7, micro_batch=2))


@case(
    "D27",
    "NVIDIA/Megatron-LM#750",
    "two interleaved stages",
    "allowed once transfers are overlapped",
)
def _() -> Answer:
    search = {"cp": 1, "recompute": "none", "zero": 0}
    asked = spec({**SMALL, "layers": 16}, 2, search, framework="megatron-core@0.15")
    plan = {"tp": 1, "pp": 2, "dp": 1, "vpp": 2, "schedule": "interleaved"}
    text, right = broken(asked, "pipeline.two_stages", "p2p-overlap", **plan)
    on = optplan.evaluate({**asked, "overlap": ["p2p-overlap"]}, plan).verdict.holds
    return Answer(f"{text}; with it: {'accepted' if on else 'refused'}", right and on)


@case(
    "D29",
    "NVIDIA-NeMo/Megatron-Bridge#6043",
    "ep 64 over nodes of 8",
    "a domain is an input; ep 8 with recomputation as the alternative",
)
def _() -> Answer:
    experts = {"count": 512, "per_token": 8, "ffn": 1024}
    search = {**ONE_WAY, "pp": 1, "tp": 1, "etp": 1, "zero": 1, "dp": 64}
    asked = spec({**SMALL, "layers": 8, "experts": experts}, 64, search, "b200-sxm-180gb")
    told = [t for t in optplan.evaluate(asked, {"ep": 64}).warnings if "crosses nodes" in t]
    asked["cluster"].update(nodes=1, devices_per_node=72)
    wide = [t for t in optplan.evaluate(asked, {"ep": 64}).warnings if "crosses nodes" in t]
    said = bool(told) and "ep 8 with more recomputation" in told[0]
    return Answer(
        f"{told[0] if told else 'silence'}; on a domain of 72: silence", said and not wide
    )


@case(
    "D31",
    "vllm-project/vllm PR 52535",
    "64 heads, tp 3: an opaque message",
    "why, legal values, another axis",
)
def _() -> Answer:
    asked = spec({**SMALL, "heads": 64, "hidden": 4096}, 3, {**PLAIN, "global_batch": 6})
    said = ("does not divide 64 attention heads", "legal: tp in", "or raise")
    return Answer(*broken(asked, "degrees.heads", *said, tp=3, pp=1, dp=1))
