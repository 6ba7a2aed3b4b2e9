"""Rows T1 to T17: which layout is fast, and what a figure means."""

from __future__ import annotations

from typing import Any

import optplan
from optplan.models.spec.space import Limit
from tests.cases.case import Answer, case, near, priced
from tests.optplan.threads import GPT, ONE_WAY, SMALL, fits, spec


@case(
    "T1",
    "NVIDIA/Megatron-LM#756",
    "Mixtral 8x7B on 16 H100, batch 128: 130 TFLOPS; 236 with ep 8 tp 2 (5.5 s)",
    "ep first for experts",
)
def _() -> Answer:
    asked = spec("mixtral-8x7b", 16, {"global_batch": 128, "cp": 1, "hsdp": False}, sequence=4096)
    best = optplan.solve(asked, top=0)
    assert best.plan is not None
    assert best.estimate is not None
    wide = priced(asked, tp=8, ep=1, etp=8, pp=1, dp=2).estimate.step_seconds
    theirs = priced(asked, tp=2, ep=8, etp=2, pp=1, dp=8).estimate.step_seconds
    text = f"best: ep {best.plan.ep} tp {best.plan.tp}, {best.estimate.step_seconds:.1f} s; "
    text += f"ep 8 tp 2 {theirs:.1f} s, tp 8 without ep {wide:.1f} s"
    right = best.plan.ep == 8 and best.plan.tp <= 2 and theirs < wide and near(theirs, 5.5, 0.1)
    return Answer(text, right)


@case(
    "T3",
    "InternLM/InternLM#22",
    "7B at 2,048 tokens on 8 devices: 93.5 TFLOPS over PCIe, 188.0 over NVLink",
    "half as fast over PCIe",
)
def _() -> Answer:
    shape = {"layers": 32, "hidden": 4096, "heads": 32, "ffn": 11008, "vocabulary": 103168}
    done = []
    for bandwidth in ("300 GB/s", "32 GB/s"):
        asked = spec(shape, 8, {**ONE_WAY, "zero": 1, "global_batch": 8}, "a100-sxm-80gb")
        device = optplan.load(asked).cluster.accelerator.model_dump(mode="json")
        link = {"kind": "switch", "bandwidth": bandwidth}
        asked["cluster"]["accelerator"] = {**device, "link": link}
        asked["calibration"] = "a100-internevo"
        done.append(312 * priced(asked, tp=1, pp=1, dp=8, recompute="none").estimate.mfu)
    text = f"{done[1]:.0f} TFLOPS over PCIe 4, {done[0]:.0f} over NVLink, one micro-batch a step"
    return Answer(text, 1.5 < done[0] / done[1] < 2.5)


@case(
    "T5",
    "sail-sg/zero-bubble-pipeline-parallelism#21",
    "ZB-V: head and embedding share a stage; a memory limit for each stage is wanted",
    "constraints that can be said",
)
def _() -> Answer:
    asked = spec(SMALL, 8, {"cp": 1, "tp": 1, "pp": 4, "schedule": "zb-v", "recompute": "none"})
    free = optplan.solve(asked, top=0)
    assert free.estimate is not None
    first, last = free.estimate.memory.stages[0].parts, free.estimate.memory.stages[-1].parts
    shared = first["parameters"] > last["parameters"]
    most = free.estimate.memory.peak_bytes
    limit = Limit(name="less", rule=f"peak_memory <= {int(most * 0.999)} B")
    less = optplan.solve(asked, limits=[limit], top=0).estimate
    held = less is None or less.memory.peak_bytes < most
    text = "embedding and head lie on the first device; peak_memory limits the fullest stage, "
    text += "a rule of one's own each (examples/custom_rule.py)"
    return Answer(text, shared and held)


@case(
    "T7",
    "NVIDIA/Megatron-LM#396",
    "13B in FP8: 0.34 to 0.24 s",
    "1.4 times as fast, not twice",
)
def _() -> Answer:
    took = []
    for precision in ("bf16", "fp8"):
        asked = spec(GPT, 8, {**ONE_WAY, "recompute": "none", "global_batch": 64})
        asked["workload"]["precision"] = precision
        plan = {"tp": 2, "pp": 1, "dp": 4, "zero": 1, "sequence_parallel": True}
        took.append(priced(asked, **plan).estimate.step_seconds)
    text = f"{took[0] / took[1]:.2f} times as fast (tp 2 dp 4, batch 64; the thread names none)"
    return Answer(text, 1.25 < took[0] / took[1] < 1.6)


@case(
    "T9",
    "NVIDIA/Megatron-LM#1276",
    "MFU against 1,979 TFLOP/s",
    "989 dense in bf16; name the peak",
)
def _() -> Answer:
    device = optplan.load(spec(SMALL, 8, {})).cluster.accelerator
    text = f"MFU of {device.peak['bf16'] / 1e12:.0f} TFLOP/s, printed beside it"
    return Answer(text, near(device.peak["bf16"], 989e12, 0.001))


@case(
    "T11",
    "NVIDIA-NeMo/Megatron-Bridge#5094",
    "Qwen3-30B-A3B on 16 H100, experts' transfers hidden: 24.71 to 20.99 s",
    "a coefficient of overlap",
)
def _() -> Answer:
    took = []
    for overlap in ([], ["expert-overlap"]):
        search = {**ONE_WAY, "recompute": "none", "zero": 1, "global_batch": 1024}
        asked = spec("qwen3-30b-a3b", 16, search, sequence=4096, overlap=overlap)
        took.append(priced(asked, tp=1, pp=1, dp=16, ep=16, etp=1).estimate.step_seconds)
    saved = 1 - took[1] / took[0]
    text = f"saves {saved:.0%} (measured 15 %), at ep 16 and 1,024 sequences"
    return Answer(text, 0.08 < saved < 0.22)


@case(
    "T13",
    "EleutherAI/gpt-neox#903",
    "175B at 4,096 tokens: a deeper pipeline is slower; advice tp 8 pp 4, 70 layers of 14,336",
    "the shallow pipeline wins",
)
def _() -> Answer:
    shape = {**GPT, "layers": 70, "hidden": 14336, "heads": 112, "ffn": 4 * 14336}
    base = {**ONE_WAY, "recompute": "full", "zero": 1, "global_batch": 512}
    took = {}
    for pp in (4, 8, 16):
        asked = spec(shape, 256, base, "a100-sxm-80gb", 4096)
        plan = {"tp": 8, "pp": pp, "dp": 32 // pp, "sequence_parallel": True}
        took[pp] = priced(asked, **plan).estimate.step_seconds
    text = ", ".join(f"pp {pp} {seconds:.1f} s" for pp, seconds in took.items())
    return Answer(text, took[4] < took[8] < took[16])


@case(
    "T15",
    "marin-community/marin#6532",
    "6.1B on 8 H100: 8 stages are 7 times slower than sharding (8,077 tokens/s), flat in m",
    "a cost of each call; the bubble alone is wrong",
    why="the floor of a launch is per layer and as the calibrated stacks have it; that stack "
    "spends seconds of host time on a micro-batch, which no run we fit to does",
)
def _() -> Answer:
    shape = {"layers": 32, "hidden": 4096, "heads": 32, "kv_heads": 8, "ffn": 11008}
    took = {}
    for pp, dp, zero in ((8, 1, 0), (1, 8, 3)):
        search = {**ONE_WAY, "recompute": "none", "zero": zero, "tp": 1, "global_batch": 128}
        asked = spec({**shape, "vocabulary": 128_256}, 8, search, sequence=4096)
        took[pp] = priced(asked, pp=pp, dp=dp).estimate.step_seconds
    ratio = took[8] / took[1]
    return Answer(f"8 stages take {ratio:.2f} times as long as sharding", ratio > 3)


@case(
    "T17",
    "bigscience-workshop/bigscience PR 15",
    "rule of thumb: 18 bytes a parameter in three quarters of the devices",
    "near the certified answer",
)
def _() -> Answer:
    said, right = [], True
    for name, parameters in (("llama-2-7b", 6.74), ("falcon-40b", 41.8), ("llama-2-70b", 69.0)):
        thumb = 18 * parameters / (0.75 * 80)
        rounded = next(n for n in (1, 2, 4, 8, 16, 32, 64) if n >= thumb)
        least = next(n for n in (1, 2, 4, 8, 16, 32, 64) if fits(name, n))
        said.append(f"{name}: thumb {rounded}, proved {least}")
        right &= rounded <= 2 * least and least <= 2 * rounded
    return Answer("; ".join(said), right)


@case(
    "B2",
    "bigscience-workshop/bigscience, tr3m-1B3",
    "1.3B on 2 x 4 V100-32GB, batch 512: tp 2 53 s, dp 8 23 s without recomputation",
    "cheap links forbid tp; the best is dp 8 or pp 2 without recomputation",
)
def _() -> Answer:
    shape: dict[str, Any] = {**GPT, "layers": 24, "hidden": 2048, "heads": 16, "ffn": 8192}
    search = {**ONE_WAY, "sequence_parallel": False, "global_batch": 512}
    asked = spec(shape, (2, 4), search, "v100-sxm-32gb")
    asked["workload"].update(precision="fp16", flash_attention=False)
    best = optplan.solve(asked, top=0).plan
    assert best is not None
    plain = {"recompute": "none", "zero": 0}
    dp = priced(asked, tp=1, pp=1, dp=8, **plain).estimate.step_seconds
    tp = priced(asked, tp=2, pp=1, dp=4, **plain).estimate.step_seconds
    text = f"best tp {best.tp} pp {best.pp} dp {best.dp}, {best.recompute}; "
    text += f"dp 8 {dp:.0f} s, tp 2 {tp:.0f} s"
    return Answer(text, best.tp == 1 and best.pp <= 2 and best.recompute == "none" and tp > dp)
