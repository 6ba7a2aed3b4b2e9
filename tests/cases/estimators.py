"""Rows E1 to E9: estimates against what an allocator measured."""

from __future__ import annotations

from typing import Any

from optplan import catalogue
from tests.cases.case import Answer, case, gib, near, priced
from tests.optplan.threads import GB, GIB, ONE_WAY, SMALL, spec


@case(
    "E1",
    "NVIDIA/Megatron-LM PR 482",
    "Llama-2-7B on 8 H800: 49.5 GB at micro-batch 2 pp 2 dp 4, 28.6 GB at micro-batch 4 tp 8",
    "both within a few percent (the request's own estimates: 49.8, 28.8)",
)
def _() -> Answer:
    said, right = [], True
    base = {**ONE_WAY, "micro_batch": {"max": 4}, "recompute": "none", "sequence_parallel": False}
    for plan, measured in (
        ({"tp": 1, "pp": 2, "dp": 4, "micro_batch": 2, "zero": 1}, 49.5),
        ({"tp": 8, "pp": 1, "dp": 1, "micro_batch": 4, "zero": 0}, 28.6),
    ):
        ours = priced(spec("llama-2-7b", 8, base, "h800-sxm-80gb", 2048), **plan)
        memory = ours.estimate.memory
        held = max(sum(s.parts.values()) - s.parts["reserve"] for s in memory.stages)
        said.append(f"{held / GB:.1f} GB against {measured}")
        right &= near(held, measured * GB, 0.06)
    return Answer("; ".join(said) + " (2,048 tokens taken)", right)


@case(
    "E3",
    "mlc-ai/pith-train PR 18",
    "Qwen3-30B on 32 H100, pp 4 ep 8, DualPipeV: 62.3 and 58.0 GiB (estimated 66.6, 58.6)",
    "within 10 %, stage by stage",
    why="DualPipeV is no schedule here; ZB-V, its nearest, holds fewer micro-batches at once",
)
def _() -> Answer:
    search = {"cp": 1, "recompute": "none", "global_batch": 256, "hsdp": False}
    plan: dict[str, Any] = {"pp": 4, "ep": 8, "tp": 1, "dp": 8, "etp": 1, "micro_batch": 1}
    plan |= {"zero": 1, "schedule": "zb-v", "vpp": 2, "order": "data_inside"}
    ours = priced(spec("qwen3-30b-a3b", 32, search, sequence=4096), **plan)
    held = [sum(s.parts.values()) - s.parts["reserve"] for s in ours.estimate.memory.stages[:2]]
    text = f"{gib(held[0])} and {gib(held[1])} under ZB-V"
    return Answer(text, near(held[0], 62.3 * GIB, 0.1) and near(held[1], 58.0 * GIB, 0.1))


@case(
    "E5",
    "ROCm/Megatron-LM PR 161",
    "one flat 82 GiB against 59 to 65 GiB measured, by rank",
    "memory stage by stage",
)
def _() -> Answer:
    search = {**ONE_WAY, "recompute": "none", "global_batch": 256}
    asked = spec("deepseek-v3", 256, {**search, "pp": 8}, "h200-sxm-141gb", 4096)
    plan = {"tp": 1, "pp": 8, "ep": 32, "etp": 1, "dp": 32, "zero": 1, "sequence_parallel": False}
    stages = priced(asked, **plan).estimate.memory.stages
    held = [sum(s.parts.values()) / GIB for s in stages]
    text = f"DeepSeek-V3 on 8 stages: {', '.join(f'{one:.0f}' for one in held)} GiB"
    return Answer(text + " (the thread's model is not in our tables)", max(held) > 1.1 * min(held))


@case(
    "E7",
    "cli99/llm-analysis#27",
    "norms divided by tp; data ranks of one node priced between nodes",
    "norms are whole on every tensor rank; dp up to a node stays on its links",
)
def _() -> Answer:
    def held(tp: int) -> int:
        asked = spec({**SMALL, "layers": 4}, 8, {**ONE_WAY, "zero": 0, "recompute": "none"})
        plan = {"tp": tp, "pp": 1, "dp": 8 // tp, "sequence_parallel": False}
        return priced(asked, **plan).estimate.memory.stages[0].parts["parameters"]

    whole = 2 * (2 * held(2) - held(1))  # what both ranks of a pair hold twice, in bytes, x 2
    norms = 2 * (4 * 2 + 1) * 1024

    def slow(network: str) -> float:
        asked = spec(SMALL, 16, {**ONE_WAY, "pp": 2, "tp": 1, "zero": 0, "recompute": "none"})
        asked["cluster"]["network"] = network
        return priced(asked, pp=2, tp=1, dp=8).estimate.terms["TCD"]

    same = slow("1 GB/s") == slow("50 GB/s")
    text = f"{whole // 2:,} bytes stay whole at tp 2, {norms:,} are norms; "
    text += f"dp 8 in a node of 8: {'the same' if same else 'another'} price on a slower network"
    return Answer(text, whole // 2 >= norms and same)


@case(
    "E9",
    "NVIDIA-NeMo/Megatron-Bridge#1673",
    "an estimate before the launch; fear that it drifts from the framework",
    "exists, and knows versions",
)
def _() -> Answer:
    names = ("megatron-core@0.9", "megatron-core@0.16")
    old, new = (catalogue.framework(name) for name in names)
    fields = type(old).model_fields.keys() - {"name", "sources"}
    changed = sorted(f for f in fields if getattr(old, f) != getattr(new, f))
    text = f"optplan evaluate; {names[0]} and {names[1]} differ in {', '.join(changed)}"
    return Answer(text, "uneven_layers" in changed)
