"""One number of recomputed layers for all stages: counted, chosen, proved, and launched."""

from __future__ import annotations

from itertools import product

import pytest

import optplan
from optplan.models.formulate import formulate
from optplan.models.pipeline import alike
from tests.models.samples import problem

FRAMEWORK = {
    "name": "one-number@1",
    "schedules": ["1f1b"],
    "zero": [0],
    "zero_with_pipeline": 0,
    "hsdp": False,
    "recompute": ["none", "partial", "full"],
    "recompute_alike": True,
    "context": [],
    "tensor": True,
    "pipeline": True,
    "experts": False,
    "expert_tensor": False,
    "uneven_layers": True,
    "ends_count_as_layers": False,
    "key_heads_copied": False,
    "interleaved_multiple": "any",
    "interleaved_two_stages": "yes",
    "offload": False,
    "features": [],
    "sources": {},
}

TIGHT = {
    "workload": {"architecture": "llama-3-70b", "sequence_length": 8192},
    "cluster": {"accelerator": "h100-sxm-80gb", "nodes": 8},
    "search": {
        "global_batch": 128,
        "tp": 2,
        "pp": 8,
        "cp": 1,
        "zero": 1,
        "micro_batch": 2,
        "recompute": "partial",
        "schedule": "1f1b",
        "vpp": 1,
        "order": "data_inside",
    },
    "framework": "megatron-core@0.15",
}
"""Memory asks for more recomputation on the first stages than on the last."""


@pytest.mark.parametrize(("layers", "pp"), [(1, 1), (4, 1), (4, 2), (5, 3), (6, 2), (7, 4)])
@pytest.mark.parametrize("given", [False, True])
def test_ways_are_counted(layers: int, pp: int, given: bool) -> None:
    """As many as there are hand-outs with one number, listed one by one."""
    held = tuple(layers // pp + (i < layers % pp) for i in range(pp))
    changes = {"workload.architecture.layers": layers, "framework": FRAMEWORK}
    asked = {"search.layers_per_stage": list(held)} if given else {}
    made = formulate(problem(changes, asked, {"search.pp": pp})).program.pipeline
    assert made is not None
    every = (
        [held]
        if given
        else [one for one in product(range(1, layers + 1), repeat=pp) if sum(one) == layers]
    )
    ways = {(one, tuple(min(n, k) for k in one)) for one in every for n in range(max(one) + 1)}
    assert all(alike(*way) for way in ways)
    assert made.ways(pp, 1, True, 2) == len(ways)


def test_the_best_plan_can_be_launched_as_it_is() -> None:
    free = optplan.solve({k: v for k, v in TIGHT.items() if k != "framework"}, top=0)
    bound = optplan.solve(TIGHT, top=0)
    assert free.plan is not None
    assert bound.plan is not None
    assert free.estimate is not None
    assert bound.estimate is not None
    assert len(set(free.plan.recomputed_layers_per_stage)) > 1
    again = bound.plan.recomputed_layers_per_stage
    assert alike(bound.plan.layers_per_stage, again)
    assert max(again) > 0
    assert bound.estimate.step_seconds >= free.estimate.step_seconds
    optplan.export(bound, "megatron-core@0.15")
    assert optplan.verify(bound).verdict == "verified"


def test_every_engine_finds_it() -> None:
    found = [optplan.solve(TIGHT, top=0, engine=e) for e in ("cp-sat", "milp", "exhaustive")]
    goals = [one.certificate.goal for one in found]
    assert goals == pytest.approx([goals[0]] * 3, rel=1e-9)
    assert all(one.plan == found[0].plan for one in found)


def test_a_plan_of_several_numbers_breaks_the_rule() -> None:
    layers = {"layers_per_stage": [10] * 8}
    several = {"recomputed_layers_per_stage": [9, 8, 7, 6, 5, 4, 3, 2], "recompute": "full"}
    plan = {"micro_batch": 1, "dp": 4, "schedule": "1f1b", "vpp": 1}
    judged = optplan.evaluate(TIGHT, {"tp": 2, "pp": 8, **plan, **layers, **several})
    assert judged.verdict is not None
    broken = judged.verdict.broken
    assert "takes one number for all stages" in broken["pipeline.layers[stages]"]


def test_megatron_and_those_built_on_it_take_one_number() -> None:
    from optplan import catalogue

    known = {name: catalogue.framework(name) for name in ("megatron-core", "nemo", "mindspeed")}
    assert all(one.recompute_alike for one in known.values())
    for name in catalogue.names("frameworks"):
        one = catalogue.framework(name)
        assert one.recompute_alike == ("partial" in one.recompute)
