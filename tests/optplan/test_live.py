"""Live Pyomo and CP-SAT models, constraints added to them, and model files that solvers read."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pyomo.environ as pyo
import pytest
from ortools.sat.python import cp_model as sat

import optplan
from optplan.live import share_of
from optplan.models.errors import InputError
from optplan.models.spec.problem import Problem
from tests.models.samples import problem
from tests.optplan.command import PAPER

EXAMPLES = PAPER.parent

SMALL = {
    "workload.architecture.layers": 7,
    "search.global_batch": [8, 12],
    "search.pp": [2, 3, 4],
    "search.tp": [1, 2],
    "search.cp": 1,
    "search.vpp": 1,
    "search.zero": [0, 1],
    "search.hsdp": False,
    "search.schedule": ["1f1b", "zb-h1"],
    "search.order": "data_inside",
    "search.sequence_parallel": False,
    "search.idle_devices": False,
    "cluster.accelerator.hbm": "2100 kB",
}
"""Uneven stages, partial recomputation, and two batches."""


@cache
def small() -> Problem:
    """A problem whose best plan is bound by memory."""
    return problem(SMALL)


@cache
def best() -> optplan.Result:
    """The answer to it."""
    return optplan.solve(small(), top=0)


def goal(result: optplan.Result) -> float:
    """Goal of an answer."""
    assert result.certificate.goal is not None
    return result.certificate.goal


def solved(model: pyo.ConcreteModel) -> str:
    """Solve a Pyomo model as its owner would, and say how that ended."""
    return str(pyo.SolverFactory("appsi_highs").solve(model).solver.termination_condition)


def by_sat(model: Any) -> sat.CpSolver:
    """Solve a CP-SAT model as its owner would."""
    solver = sat.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.max_time_in_seconds = 120
    assert solver.solve(model.raw) == sat.OPTIMAL
    return solver


@pytest.mark.parametrize("within", ["3%", "20%", "all"])
def test_a_live_pyomo_model_has_the_optimum_of_the_spec(within: str) -> None:
    model = optplan.pyomo_model(small(), within=within)
    assert solved(model) == "optimal"
    assert pyo.value(model.goal) == pytest.approx(goal(best()), rel=1e-6)
    plan = optplan.plan_in(model)
    assert optplan.evaluate(small(), plan).behind == pytest.approx(0, abs=1e-6)
    assert pyo.value(model.step_seconds) == pytest.approx(
        optplan.evaluate(small(), plan).estimate.step_seconds, rel=1e-6
    )


@pytest.mark.parametrize("within", ["3%", "20%"])
def test_a_live_cp_sat_model_has_the_optimum_of_the_spec(within: str) -> None:
    model = optplan.cp_model(small(), within=within)
    plan = optplan.plan_in(model, by_sat(model))
    assert optplan.evaluate(small(), plan).behind == pytest.approx(0, abs=1e-6)


def test_a_live_model_starts_from_the_best_plan() -> None:
    model = optplan.pyomo_model(small())
    assert optplan.plan_in(model) == best().plan


def test_a_model_without_a_solution_is_no_plan() -> None:
    model = optplan.pyomo_model(small())
    for variable in model.component_data_objects(pyo.Var):
        variable.value = None
    with pytest.raises(InputError, match="holds no solution; solve it first"):
        optplan.plan_in(model)
    with pytest.raises(InputError, match="holds no solution"):
        optplan.plan_in(optplan.cp_model(small()), sat.CpSolver())


MEMORY = 1_900_000
"""Bytes below what the best plan takes."""

Added = tuple[str, Callable[[Any], object], Callable[[Any], object]]


def full_in_pyomo(model: pyo.ConcreteModel) -> None:
    """Full pipelines, and memory against stages."""
    model.full = pyo.Constraint(expr=model.micro_batches >= 2 * model.pp)
    room = MEMORY + 450_000
    model.both = pyo.Constraint(expr=model.peak_memory + 100_000 * model.pp <= room)


LIMITS: dict[str, Added] = {
    "the network carries no more than two stages": (
        "pp <= 2",
        lambda m: setattr(m, "short", pyo.Constraint(expr=m.pp <= 2)),
        lambda m: m.raw.add(m.columns["pp"] <= 2),
    ),
    "headroom in memory": (
        f"peak_memory <= {MEMORY} B",
        lambda m: setattr(m, "headroom", pyo.Constraint(expr=m.peak_memory <= MEMORY)),
        lambda m: m.raw.add(m.columns["peak_bytes"] <= MEMORY),
    ),
    "full pipelines, and memory against stages": (
        f"micro_batches >= 2 * pp and peak_memory + 100 kB * pp <= {MEMORY + 450_000} B",
        full_in_pyomo,
        lambda m: (
            m.raw.add(m.columns["micro_batches"] >= 2 * m.columns["pp"]),
            m.raw.add(m.columns["peak_bytes"] + 100_000 * m.columns["pp"] <= MEMORY + 450_000),
        ),
    ),
}
"""A limit as text, as a constraint on a Pyomo model, and as one on a CP-SAT model."""


@pytest.mark.parametrize("what", LIMITS)
def test_an_added_constraint_does_what_the_limit_does(what: str) -> None:
    text, in_pyomo, in_sat = LIMITS[what]
    limited = optplan.solve(small(), limits=[text], top=0)
    assert goal(limited) > goal(best()) * (1 + 1e-6)
    for engine, added in (("milp", in_pyomo), ("cp-sat", in_sat)):
        found = optplan.solve(small(), engine=engine, constrain=added)
        assert found.status.holding == "optimal", engine
        assert goal(found) == pytest.approx(goal(limited), rel=1e-9), engine


@pytest.mark.parametrize("what", LIMITS)
def test_a_constraint_on_one_model_of_everything_does_the_same(what: str) -> None:
    text, in_pyomo, _ = LIMITS[what]
    model = optplan.pyomo_model(small(), within="all")
    in_pyomo(model)
    assert solved(model) == "optimal"
    limited = optplan.solve(small(), limits=[text], top=0)
    assert pyo.value(model.goal) == pytest.approx(goal(limited), rel=1e-6)


@pytest.mark.parametrize("engine", ["milp", "cp-sat"])
def test_even_stages_recompute_more_where_a_constraint_asks_for_room(engine: str) -> None:
    even = problem(SMALL, {"search.layers_per_stage": "even", "search.recompute": "partial"})
    limited = optplan.solve(even, limits=[f"peak_memory <= {MEMORY} B"], top=0)
    assert goal(limited) > goal(optplan.solve(even, top=0))
    _, in_pyomo, in_sat = LIMITS["headroom in memory"]
    added = in_pyomo if engine == "milp" else in_sat
    found = optplan.solve(even, engine=engine, constrain=added)
    assert goal(found) == pytest.approx(goal(limited), rel=1e-9)


def test_a_constraint_that_leaves_nothing_leaves_no_plan() -> None:
    for engine in ("milp", "cp-sat"):
        found = optplan.solve(
            small(), engine=engine, constrain=lambda m: LIMITS_NONE[engine_of(m)](m)
        )
        assert found.plan is None
        assert found.exit_code == 1


def engine_of(model: Any) -> str:
    """Tell a CP-SAT model from a Pyomo model."""
    return "cp-sat" if hasattr(model, "raw") else "milp"


LIMITS_NONE: dict[str, Callable[[Any], object]] = {
    "milp": lambda m: setattr(m, "none", pyo.Constraint(expr=m.pp >= 99)),
    "cp-sat": lambda m: m.raw.add(m.columns["pp"] >= 99),
}


def test_products_of_choices_are_linear() -> None:
    limited = optplan.solve(small(), limits=["pp * tp <= 4"], top=0)
    model = optplan.pyomo_model(small(), within="all")
    product = optplan.of_choices(model, lambda at: at["pp"] * at["tp"])
    model.few = pyo.Constraint(expr=product <= 4)
    assert solved(model) == "optimal"
    assert pyo.value(model.goal) == pytest.approx(goal(limited), rel=1e-6)
    model = optplan.cp_model(small(), within="300%")
    model.raw.add(optplan.of_choices(model, lambda at: at["pp"] * at["tp"]) <= 4)
    plan = optplan.plan_in(model, by_sat(model))
    assert plan.pp * plan.tp <= 4
    behind = optplan.evaluate(small(), plan, limits=["pp * tp <= 4"]).behind
    assert behind == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("engine", ["milp", "cp-sat"])
def test_a_search_that_is_stopped_shows_no_plan_that_knew_no_constraint(engine: str) -> None:
    _, in_pyomo, in_sat = LIMITS["headroom in memory"]
    added = in_pyomo if engine == "milp" else in_sat
    for limit in (1e-9, 0.05, 0.5):
        found = optplan.solve(small(), engine=engine, constrain=added, time_limit=limit)
        if found.plan is not None:
            assert found.estimate is not None
            assert found.estimate.memory.peak_bytes <= MEMORY
        else:
            assert found.exit_code == 3
        if found.certificate.bound is not None and found.certificate.goal is not None:
            assert found.certificate.bound <= found.certificate.goal


def test_a_choice_fixed_or_bounded_by_a_callback_stays_so() -> None:
    fixed = optplan.solve(small(), sets=["pp=2"], top=0)
    for added in (lambda m: m.pp.fix(2), lambda m: m.pp.setub(2)):
        found = optplan.solve(small(), engine="milp", constrain=added)
        assert goal(found) == pytest.approx(goal(fixed), rel=1e-9)


@pytest.mark.parametrize("engine", ["milp", "cp-sat"])
def test_functions_of_choices_serve_a_callback(engine: str) -> None:
    limited = optplan.solve(small(), limits=["pp * tp <= 4"], top=0)

    def few(model: Any) -> None:
        product = optplan.of_choices(model, lambda at: at["pp"] * at["tp"])
        if engine == "milp":
            model.few = pyo.Constraint(expr=product + 0 * model.pp <= 4)
        else:
            model.raw.add(product <= 4)

    found = optplan.solve(small(), engine=engine, constrain=few)
    assert goal(found) == pytest.approx(goal(limited), rel=1e-9)


def test_an_engine_without_a_live_model_takes_no_constraints() -> None:
    with pytest.raises(InputError, match="exhaustive has no live model that"):
        optplan.solve(small(), engine="exhaustive", constrain=lambda model: None)


def test_what_rests_on_a_callback_cannot_be_verified_without_it() -> None:
    def two(model: Any) -> None:
        model.raw.add(model.columns["pp"] <= 2)

    found = optplan.solve(small(), constrain=two)
    assert found.rules == ("constrain.two",)
    assert optplan.verify(found).verdict == "cannot tell"


@pytest.mark.parametrize(
    ("text", "share"), [("20%", 0.2), ("0.05", 0.05), (0, 0.0), ("all", None), (None, None)]
)
def test_a_share_may_be_written_in_several_ways(text: Any, share: float | None) -> None:
    assert share_of(text) == share
