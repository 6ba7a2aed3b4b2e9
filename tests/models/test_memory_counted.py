"""Bytes of a stage against a second count, tensor by tensor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from optplan.models.cost.estimate import estimate
from optplan.models.cost.price import Estimate
from optplan.models.spec.plan import Plan
from optplan.models.spec.problem import Problem
from tests.models import samples


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
    experts: int = 0
    taken: int = 0


LLAMA_3_70B = Shape(80, 8192, 28672, 64, 8, 128256, True, False, False, 0, False)
MIXTRAL_8X7B = Shape(32, 4096, 14336, 32, 8, 32000, True, False, False, 0, False, 8, 2)
GPT3_175B = Shape(96, 12288, 49152, 96, 96, 50257, False, True, True, 2048, True)


def counted(shape: Shape, s: int, plan: Plan, stage: int) -> float:
    """
    Bytes of a stage without the reserve, counted tensor by tensor and by no function of ours.

    bf16, flash attention, Adam in mixed precision, 1F1B.
    """
    h, f, t = shape.h, shape.f, plan.tp
    key = h // shape.a * shape.kv
    layers = plan.layers_per_stage[stage]
    first, last = stage == 0, stage == plan.pp - 1
    feed = [f * h] + [h * f] * (2 if shape.gated else 1)
    block = [h * h, h * key, h * key, h * h] + ([] if shape.experts else feed)
    sharded, whole = sum(block) * layers, (2 * h + h * shape.experts) * layers
    routed = sum(feed) * shape.experts / (plan.ep * plan.etp) * layers
    if shape.layernorm_and_biases:
        sharded += (h + 2 * key + f) * layers
        whole += (2 * h + 2 * h) * layers
    held = sharded / t + whole + routed
    if first:
        sharded += shape.v * h
        whole += shape.positions * h
    if last:
        sharded += 0 if first and shape.tied else shape.v * h
        whole += h * (2 if shape.layernorm_and_biases else 1)
    dense = sharded / t + whole
    ranks = plan.dp * plan.cp
    others = plan.tp * plan.cp * plan.dp // (plan.ep * plan.etp)
    weights = 0.0
    for width, since in ((2, 3), (4, 2), (12, 1)):
        on = plan.zero >= since
        weights += width * (dense / (ranks if on else 1) + routed / (others if on else 1))
    fetched = 2 * 2 * held / layers if plan.zero == 3 else 0.0

    copies = t if plan.sequence_parallel else 1
    tokens = plan.micro_batch * s / plan.cp
    seen_by_all = [2 * h, 2 * h, 2 * h, 2 * h] + ([h, h] if shape.dropout else [])
    split = [2 * h, 2 * key, 2 * key, 2 * h]
    inner = [2 * f] * (3 if shape.gated else 2)
    split += [shape.taken * n for n in (2 * h, *inner, 2 * h)] if shape.experts else inner
    inside = tokens * (sum(seen_by_all) / copies + sum(split) / t)
    inputs = tokens * 2 * h / copies
    again = plan.recompute == "full"
    flight = min(plan.pp - stage, plan.micro_batches)
    activations = flight * layers * (inputs if again else inside)
    logits = tokens * shape.v * (2 + 4) / t if last else 0.0
    return weights + activations + max(logits, inside - inputs if again else 0.0) + fetched


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
@pytest.mark.parametrize(
    "flags",
    [(0, 0, 0, 1), (1, 0, 1, 1), (1, 1, 1, 1), (0, 1, 0, 1), (1, 0, 2, 2), (0, 1, 3, 1),
     (1, 1, 3, 2)],
)  # fmt: skip
@pytest.mark.parametrize(
    ("name", "shape", "s"), [("llama-3-70b", LLAMA_3_70B, 8192), ("gpt3-175b", GPT3_175B, 2048)]
)
def test_a_second_count_agrees(
    name: str, shape: Shape, s: int, tp: int, pp: int, flags: tuple[int, int, int, int]
) -> None:
    """Tensor by tensor, for two shipped workloads, every stage and every flag."""
    sp, again, zero, cp = flags
    words = {"sequence_parallel": sp, "recompute": 3 * again, "zero": zero, "cp": cp}
    second_opinion(name, shape, s, {"tp": tp, "pp": pp, **words})


@pytest.mark.parametrize(("tp", "ep", "etp"), [(1, 1, 1), (1, 8, 1), (2, 4, 2), (4, 8, 1)])
@pytest.mark.parametrize("pp", [1, 4])
@pytest.mark.parametrize("flags", [(0, 0, 1), (0, 1, 1), (1, 2, 2), (1, 3, 1)])
def test_a_second_count_of_experts_agrees(
    tp: int, ep: int, etp: int, pp: int, flags: tuple[int, int, int]
) -> None:
    """Mixtral, its experts spread in every way, the rest on every expert rank."""
    again, zero, cp = flags
    words: dict[str, Any] = {"recompute": 3 * again, "zero": zero, "cp": cp}
    words |= {"tp": tp, "pp": pp, "ep": ep, "etp": etp, "sequence_parallel": tp > 1}
    second_opinion("mixtral-8x7b", MIXTRAL_8X7B, 4096, words)


def test_gpt3_at_t_8_p_8_needs_sequence_parallelism_or_recomputation() -> None:
    """Either saves memory, both save more, and with neither 80 GiB do not hold one sequence."""
    held = {
        flags: second_opinion(
            "gpt3-175b",
            GPT3_175B,
            2048,
            {"tp": 8, "pp": 8, "sequence_parallel": flags[0], "recompute": 3 * flags[1]},
        ).memory.peak_bytes
        for flags in ((0, 0), (1, 0), (0, 1), (1, 1))
    }
    assert held[0, 0] > held[1, 0] > held[1, 1]
    assert held[0, 0] > held[0, 1] > held[1, 1]
    assert held[0, 0] > 80 * 2**30 > held[1, 0]
