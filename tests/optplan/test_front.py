"""A list of goals: the front is what every single plan says it is, and its claims are checked."""

from __future__ import annotations

from typing import Any

import pytest

import optplan
from optplan.models.errors import InputError
from optplan.result import Result
from optplan.verify import verify
from tests import pareto
from tests.models import samples

SEEDS = (3, 19)
"""Problems of `tests.pareto` with fronts of several points and few plans."""

SMALL = samples.problem(
    {
        "search.tp": [1, 2],
        "search.cp": 1,
        "search.zero": [0, 1],
        "search.schedule": "1f1b",
        "search.global_batch": 8,
        "cluster.price": "2.50 USD/h",
        "cluster.held": "devices",
        "cluster.accelerator.power": "400 W",
    }
)


def small(*goals: str, **cluster: Any) -> Result:
    """Weigh goals of a small problem."""
    spec = SMALL.model_dump(mode="json") | {"goal": list(goals)}
    spec["cluster"] |= cluster
    return optplan.solve(spec, top=0)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_front_is_that_of_every_single_plan(seed: int) -> None:
    spec = pareto.weighed_spec(seed)
    assert spec is not None
    came, differ = pareto.mismatches(spec)
    assert came.endswith("points")
    assert not differ


def test_a_front_begins_with_the_plan_and_nothing_beats_its_points() -> None:
    result = small("cheapest", "fastest", "fewest-devices")
    assert result.exit_code == 0
    assert result.front_claim is not None
    assert result.front_claim.complete
    assert len(result.front) > 1
    assert result.front[0].plan == result.plan
    assert [p.values["cheapest"] for p in result.front] == sorted(
        p.values["cheapest"] for p in result.front
    )
    for one in result.front:
        rest = (tuple(p.values.values()) for p in result.front if p is not one)
        mine = tuple(one.values.values())
        assert not any(all(a <= b for a, b in zip(other, mine, strict=True)) for other in rest)
        assert one.gap < 1e-6


def test_money_and_energy_are_one_goal_and_so_are_all_where_all_is_held() -> None:
    result = small("fastest", "cheapest", "least-energy")
    assert result.front_claim is not None
    assert result.front_claim.alike == ("least-energy",)
    held = small("fastest", "cheapest", held="all")
    assert held.front_claim is not None
    assert held.front_claim.alike == ("cheapest",)
    assert len(held.front) == 1


def test_costs_are_time_by_devices_held() -> None:
    result = small("cheapest", "fastest", pue=1.5)
    costs, plan, estimate = result.costs, result.plan, result.estimate
    assert costs is not None
    assert plan is not None
    assert estimate is not None
    tokens = plan.global_batch * SMALL.workload.sequence_length
    hours = estimate.step_seconds * plan.devices / 3600
    assert costs.money_per_billion_tokens == pytest.approx(2.5 * hours / tokens * 1e9)
    joules = estimate.step_seconds * plan.devices * 400 * 1.5 / tokens
    assert costs.joules_per_token == pytest.approx(joules)
    assert costs.idle_devices == 8 - plan.devices
    assert costs.currency == "USD"


@pytest.mark.parametrize(("held", "counted"), [("all", 8), ("nodes", 4), ("devices", 3)])
def test_devices_held_beside_three_in_use(held: str, counted: int) -> None:
    assert SMALL.with_cluster(held=held).cluster.held_devices(3) == counted


def test_a_verified_front_and_one_that_lost_a_point() -> None:
    result = small("fastest", "cheapest")
    assert verify(result).verdict == "verified"
    short = result.model_copy(update={"front": result.front[:-1]}).sealed()
    failed = {check.name for check in verify(short).checks if check.holds is False}
    assert failed == {"front complete"}
    first = result.front[0].model_copy(update={"step_seconds": 1.0})
    wrong = result.model_copy(update={"front": (first, *result.front[1:])}).sealed()
    assert "front" in {check.name for check in verify(wrong).checks if check.holds is False}


def test_a_front_without_time_is_not_called_complete() -> None:
    spec = SMALL.model_dump(mode="json") | {"goal": ["fastest", "most-headroom"]}
    result = optplan.solve(spec, top=0, time_limit=1e-6)
    assert result.exit_code == 3


def test_constraints_of_a_live_model_are_no_front() -> None:
    spec = SMALL.model_dump(mode="json") | {"goal": ["fastest", "most-headroom"]}
    with pytest.raises(InputError, match="has no live model"):
        optplan.solve(spec, constrain=lambda model: None)
