"""Every cost function asked of arrays answers as it does one by one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Any

import numpy as np
import pytest

from optplan.models.cost import compute, memory, parameters, schedule, stage, step, traffic
from optplan.models.cost.arrays import ceil_div, largest, where, where_int
from optplan.models.cost.utilization import rho
from optplan.models.spec.problem import Problem
from tests.models import samples

Values = Mapping[str, Any]
"""Either one value or one array for each name."""

FUNCTIONS: Mapping[str, Callable[[Problem, Values], Any]] = {
    "ceil_div": lambda p, v: ceil_div(v["count"], v["tp"]),
    "where": lambda p, v: where(v["first"], v["flops"], 1.5),
    "where_int": lambda p, v: where_int(v["first"], v["count"], v["tp"]),
    "largest": lambda p, v: largest(v["flops"], v["payload"]),
    "rho": lambda p, v: rho(p.calibration, v["b"], 32, 64, v["tp"]),
    "matmul_seconds": lambda p, v: compute.matmul_seconds(p, v["flops"], v["b"], v["tp"]),
    "layer_seconds": lambda p, v: compute.layer_seconds(p, v["b"], v["tp"], v["first"]),
    "weight_gradient_seconds": lambda p, v: sum(
        compute.weight_gradient_seconds(p, v["b"], v["tp"])
    ),
    "head_seconds": lambda p, v: compute.head_seconds(p, v["b"], v["tp"]),
    "embedding_seconds": lambda p, v: compute.embedding_seconds(p, v["b"]) + 0 * v["b"],
    "stream_seconds": lambda p, v: compute.stream_seconds(p, v["payload"]),
    "group": lambda p, v: traffic.group(p, v["dp"], v["tp"]).inside,
    "all_reduce_seconds": lambda p, v: traffic.all_reduce_seconds(
        p, v["payload"], traffic.group(p, v["dp"], v["tp"])
    ),
    "block_all_reduce_seconds": lambda p, v: traffic.block_all_reduce_seconds(p, v["b"], v["tp"]),
    "boundary_bytes": lambda p, v: traffic.boundary_bytes(p, v["b"]),
    "hop_seconds.steady": lambda p, v: (
        traffic.hop_seconds(p, v["b"], v["tp"], v["pp"], v["dp"], v["sp"]).steady + 0 * v["b"]
    ),
    "hop_seconds.fill": lambda p, v: (
        traffic.hop_seconds(p, v["b"], v["tp"], v["pp"], v["dp"], v["sp"]).fill
    ),
    "stage_time": lambda p, v: (
        stage.stage_time(p, v["layers"], v["again"], v["first"], v["last"], v["tp"], v["b"]).total
    ),
    "step_time": lambda p, v: step.step_time(p, v["count"], v["tp"], v["dp"], v["zero"]).total,
    "bubble_seconds": lambda p, v: schedule.bubble_seconds([v["flops"], v["payload"], v["b"]]),
    "layer_parameters": lambda p, v: parameters.layer_parameters(p.workload.architecture, v["tp"]),
    "stage_parameters": lambda p, v: parameters.stage_parameters(
        p.workload.architecture, v["layers"], v["first"], v["last"], v["tp"]
    ),
    "states": lambda p, v: sum(
        memory.states(p, v["layers"], v["first"], v["last"], v["tp"], v["dp"], v["zero"])
    ),
    "layer_activations": lambda p, v: memory.layer_activations(p, v["b"], v["tp"], v["sp"]),
    "block_input": lambda p, v: memory.block_input(p, v["b"], v["tp"], v["sp"]),
    "kept_activations": lambda p, v: memory.kept_activations(
        p, v["layers"], v["again"], v["b"], v["tp"], v["sp"]
    ),
    "working_bytes": lambda p, v: memory.working_bytes(
        p, v["again"], v["last"], v["b"], v["tp"], v["sp"]
    ),
    "in_flight": lambda p, v: memory.in_flight(v["pp"], v["b"], v["zero"]),
}


def drawn(seed: int, size: int = 50) -> dict[str, list[Any]]:
    """Random values for every name, in plain Python."""
    luck = Random(seed)
    layers = [luck.randint(1, 12) for _ in range(size)]
    lists: dict[str, list[Any]] = {
        name: [luck.randint(low, high) for _ in range(size)]
        for name, low, high in (
            ("tp", 1, 9),
            ("pp", 1, 9),
            ("dp", 1, 9),
            ("b", 1, 40),
            ("count", 0, 10**9),
            ("sp", 0, 1),
            ("zero", 0, 1),
        )
    }
    lists |= {name: [luck.random() < 0.5 for _ in range(size)] for name in ("first", "last")}
    lists |= {name: [luck.uniform(0, 1e9) for _ in range(size)] for name in ("flops", "payload")}
    return lists | {"layers": layers, "again": [luck.choice([0, n, n // 2]) for n in layers]}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("seed", range(8))
def test_arrays_are_priced_as_their_members_are(name: str, seed: int) -> None:
    """Whole numbers exactly, seconds to the last bits."""
    asked, lists = samples.random_problem(seed), drawn(seed)
    many = FUNCTIONS[name](asked, {key: np.array(column) for key, column in lists.items()})
    assert isinstance(many, np.ndarray)
    assert many.shape == (50,)
    for i, found in enumerate(many.tolist()):
        alone = FUNCTIONS[name](asked, {key: column[i] for key, column in lists.items()})
        assert not isinstance(alone, np.ndarray)
        if isinstance(found, int):
            assert alone == found
        else:
            assert float(alone) == pytest.approx(found, rel=1e-13, abs=0)


def test_every_public_function_of_the_cost_model_is_asked() -> None:
    """A new one must be added above, or here if it takes no arrays."""
    plain = {
        "layer_operators", "head_operator", "layer_flops", "model_flops", "total_parameters",
        "order_1f1b", "simulate_1f1b",
    }  # fmt: skip
    asked = {name.partition(".")[0] for name in FUNCTIONS} | plain
    for module in (compute, memory, parameters, schedule, stage, step, traffic):
        own = {
            name
            for name, found in vars(module).items()
            if callable(found)
            and not isinstance(found, type)
            and not name.startswith("_")
            and found.__module__ == module.__name__
        }
        assert own <= asked, f"{module.__name__}: {sorted(own - asked)}"
