"""One suite that every engine of the catalogue passes."""

from __future__ import annotations

import inspect
import pkgutil
from fractions import Fraction
from importlib import import_module

import pytest

import optplan.solvers
from optplan.models.errors import InputError
from optplan.models.program import Program
from optplan.solvers.base import Holding, Outcome, Progress, SolverConfig, Termination, rank
from optplan.solvers.catalogue import ENGINES, available, engine, proving, require
from optplan.solvers.milp import TRUST
from optplan.solvers.proved import proved
from optplan.solvers.search import Search
from tests.random_programs import every_plan
from tests.solvers.programs import (
    FEASIBLE,
    INFEASIBLE,
    PIPELINES,
    fine_steps,
    long_search,
    make,
    pipeline,
    priced,
    spanned,
)

FINISHED = (Termination.PROVED, Termination.EXHAUSTED)
ONE_PLAN = {"paper"}
"""Engines that return the best plan and no further one, whatever ``top`` says."""

every_engine = pytest.mark.parametrize("name", ENGINES)


def outcomes(name: str, program: Program, config: SolverConfig | None = None) -> list[Outcome]:
    """Run an engine on a program and on its variant with two spanning tables, which all take."""
    solve, config = engine(name), config or SolverConfig()
    plain, split = solve(program, config), solve(spanned(program), config)
    assert split.termination is not Termination.UNSUPPORTED
    if plain.termination is not Termination.UNSUPPORTED:
        return [plain, split]
    assert plain.detail
    assert not plain.best
    assert plain.holding is Holding.NOTHING
    return [split]


def consistent(program: Program, outcome: Outcome) -> None:
    """Ask of an outcome what holds however it ended."""
    assert outcome.engine
    assert outcome.seconds >= 0
    assert (outcome.holding is Holding.NOTHING) == (not outcome.best)
    assert (outcome.goal is None) == (not outcome.best)
    for plan in outcome.best:
        handed = [name for name in plan if name.endswith("]")]
        assert list(plan) == [c.name for c in program.choices] + handed
        assert bool(handed) == (program.pipeline is not None)
        assert list(program.broken(plan)) == []
    if outcome.best:
        assert outcome.goal == rank(program, program.evaluate(outcome.best[0]))[0]
    if outcome.goal is not None and outcome.bound is not None:
        assert outcome.bound <= outcome.goal
    if outcome.census:
        refused = outcome.census.removed_by_rule
        assert all(count >= 0 for count in refused.values())
        assert set(refused) <= set(program.constraints)
        assert outcome.census.left >= len(outcome.best)


@every_engine
@pytest.mark.parametrize("what", FEASIBLE)
def test_the_best_plan_is_found_and_proven(name: str, what: str) -> None:
    program, best, goal = FEASIBLE[what]
    for outcome in outcomes(name, program):
        consistent(program, outcome)
        assert outcome.termination in FINISHED
        assert outcome.holding is Holding.OPTIMAL
        assert outcome.best[0] == best
        assert outcome.goal == outcome.bound == goal
        assert outcome.gap == 0


@every_engine
@pytest.mark.parametrize("what", INFEASIBLE)
def test_where_there_is_no_plan_that_is_said(name: str, what: str) -> None:
    for outcome in outcomes(name, INFEASIBLE[what]):
        consistent(INFEASIBLE[what], outcome)
        assert outcome.termination in FINISHED
        assert outcome.holding is Holding.NOTHING


@pytest.mark.parametrize("what", FEASIBLE)
def test_the_known_best_plans_are_best(what: str) -> None:
    program, best, goal = FEASIBLE[what]
    first, *others = every_plan(program)
    assert first[1] == best
    assert first[0][0] == goal
    assert all(first[0] < other[0] for other in others) or "y" not in program.ties


@every_engine
def test_prices_closer_than_floats_are_told_apart(name: str) -> None:
    program = fine_steps()
    for outcome in outcomes(name, program):
        assert outcome.goal == every_plan(program)[0][0][0]
        assert outcome.best[0] == every_plan(program)[0][1]


@every_engine
def test_further_plans_come_in_order(name: str) -> None:
    rows = [(x, y, 3 + (x * y) % 5) for x in (0, 1, 2, 3) for y in (1, 2, 4)]
    for program in (
        priced(*rows, ties=("y", "x")),
        FEASIBLE["a goal per unit of another column"][0],
    ):
        ranked = every_plan(program)
        for outcome in outcomes(name, program, SolverConfig(top=3)):
            consistent(program, outcome)
            assert len(outcome.best) == (1 if name in ONE_PLAN else 3)
            assert list(outcome.best) == [plan for _, plan in ranked[: len(outcome.best)]]


@every_engine
def test_no_more_plans_come_than_there_are(name: str) -> None:
    program = priced((1, 1, 5), (2, 4, 7))
    for outcome in outcomes(name, program, SolverConfig(top=3)):
        consistent(program, outcome)
        assert outcome.holding is Holding.OPTIMAL
        assert list(outcome.best) == [{"x": 1, "y": 1}, {"x": 2, "y": 4}][: len(outcome.best)]


@every_engine
@pytest.mark.parametrize("per", [None, "d"])
def test_a_search_without_time_says_so_or_has_a_proof(name: str, per: str | None) -> None:
    program = spanned(long_search(per))
    outcome = engine(name)(program, SolverConfig(seconds=0.01))
    consistent(program, outcome)
    assert outcome.termination in (*FINISHED, Termination.TIME_LIMIT)
    if outcome.termination is Termination.TIME_LIMIT:
        assert outcome.holding is not Holding.OPTIMAL
        assert program.goal.least is not None
        assert outcome.bound is not None
        assert outcome.bound >= program.goal.least
    else:
        assert outcome.goal == outcome.bound


@every_engine
def test_progress_is_sane(name: str) -> None:
    told: list[Progress] = []
    program = spanned(long_search())
    outcome = engine(name)(program, SolverConfig(seconds=3.0, progress=told.append))
    consistent(program, outcome)
    assert [p.seconds for p in told] == sorted(p.seconds for p in told)
    held = [p.incumbent for p in told if p.incumbent is not None]
    assert held == sorted(held, reverse=True)
    for point in told:
        assert point.seconds >= 0
        assert point.done is None or 0 <= point.done <= 1
        if point.incumbent is not None and point.bound is not None:
            assert point.bound <= point.incumbent * (1 + 1e-9)
    if outcome.goal is not None:
        final = float(outcome.goal) * program.goal.scale
        assert all(incumbent >= final * (1 - 1e-9) for incumbent in held)


@every_engine
def test_an_answer_does_not_depend_on_seed_or_workers(name: str) -> None:
    program = spanned(FEASIBLE["ties of ratios that differ above and below"][0])
    first = engine(name)(program, SolverConfig(seed=0, workers=1))
    second = engine(name)(program, SolverConfig(seed=7, workers=2))
    assert first.best == second.best
    assert first.goal == second.goal


@every_engine
def test_the_engine_can_run_here(name: str) -> None:
    assert available(name) is None
    assert list(inspect.signature(engine(name)).parameters)[:2] == ["program", "config"]


def test_every_module_that_solves_is_in_the_catalogue() -> None:
    modules = [m.name for m in pkgutil.iter_modules(optplan.solvers.__path__, "optplan.solvers.")]
    known = {module for module, _, _ in ENGINES.values()}
    assert {module for module in modules if hasattr(import_module(module), "solve")} == known


@every_engine
def test_the_least_goal_declared_bounds_a_stopped_search(name: str) -> None:
    program = spanned(make(least=0))
    outcome = engine(name)(program, SolverConfig(seconds=1e-9))
    assert outcome.bound is None or outcome.bound <= Fraction(0)


# -- programs that hand out layers -----------------------------------------------------------------


def road(name: str, program: Program, config: SolverConfig | None = None) -> Outcome:
    """Solve a program that hands out layers as the planner does."""
    config = config or SolverConfig()
    how = proving(name)
    return proved(program, config, how.prove_left) if how else engine(name)(program, config)


@pytest.mark.parametrize("what", PIPELINES)
def test_layers_are_handed_out_best_whatever_the_road(what: str) -> None:
    program = pipeline(what)
    first = road("cp-sat", program)
    for name in ENGINES:
        outcome = road(name, program)
        consistent(program, outcome)
        if name == "paper" and outcome.termination is Termination.UNSUPPORTED:
            assert outcome.detail
            assert what not in ("the paper's world", "layers fixed")
            continue
        assert outcome.termination in FINISHED
        assert outcome.holding is Holding.OPTIMAL
        assert outcome.best == first.best
        assert outcome.goal == first.goal
        assert outcome.gap <= (TRUST if name == "milp" else 0)
        assert outcome.census
        assert first.census
        assert outcome.census.points == first.census.points


@pytest.mark.parametrize("what", PIPELINES)
@pytest.mark.parametrize("bounded", [True, False])
def test_further_plans_with_layers_come_in_order(what: str, bounded: bool) -> None:
    """The first is the best, ranks never fall, and no choice is returned twice."""
    program = pipeline(what)
    found = Search(program, SolverConfig(top=4), bounded).run().outcome
    consistent(program, found)
    assert found.best[:1] == Search(program, SolverConfig()).run().outcome.best
    assert found.best == Search(program, SolverConfig(top=4)).run().outcome.best
    ranks = [rank(program, program.evaluate(plan)) for plan in found.best]
    assert ranks == sorted(ranks)
    assert len({tuple(plan.items()) for plan in found.best}) == len(found.best) == 4


@every_engine
@pytest.mark.parametrize("what", ["the paper's world", "layers fixed", "stages of any length"])
def test_where_no_layers_fit_that_is_said(name: str, what: str) -> None:
    program = pipeline(what, {"cluster.accelerator.hbm": "1100 kB"})
    outcome = road(name, program)
    consistent(program, outcome)
    if outcome.termination is not Termination.UNSUPPORTED:
        assert outcome.termination in FINISHED
        assert outcome.census
        assert outcome.census.left == sum(outcome.prunings.values())


@every_engine
def test_time_from_below_is_proved_or_refused(name: str) -> None:
    """The per-stage method looks for little time and memory; only the prover knows the rest."""
    free = pipeline("stages of any length")
    goal = road("cp-sat", free)
    least = free.evaluate(goal.best[0])["peak_bytes"] + 1
    program = pipeline("stages of any length", {"limits": (f"peak_memory >= {least} B",)})
    outcome = road(name, program, SolverConfig(seconds=240.0))
    consistent(program, outcome)
    if proving(name):
        assert outcome.termination is Termination.PROVED
        assert goal.goal is not None
        assert outcome.goal is not None
        assert outcome.goal >= goal.goal
    else:
        assert outcome.termination is Termination.UNSUPPORTED
        assert outcome.detail


@pytest.mark.parametrize("what", PIPELINES)
@pytest.mark.parametrize("bounded", [True, False])
def test_a_stopped_search_claims_no_more_than_it_knows(what: str, bounded: bool) -> None:
    """Whatever the clock leaves unseen may be as good as the best; the bound has to allow it."""
    program = pipeline(what)
    goal = road("cp-sat", program).goal
    assert goal is not None
    outcome = Search(program, SolverConfig(seconds=0.0), bounded).run().outcome
    consistent(program, outcome)
    if outcome.termination is Termination.TIME_LIMIT:
        assert outcome.holding is not Holding.OPTIMAL
        assert outcome.bound is None or 0 <= outcome.bound <= goal


@pytest.mark.parametrize("what", ["everything open", "experts"])
def test_seed_and_workers_do_not_hand_out_other_layers(what: str) -> None:
    program = pipeline(what)
    first = proved(program, SolverConfig(seed=0, workers=1))
    second = proved(program, SolverConfig(seed=7, workers=2))
    assert first.best == second.best
    assert first.goal == second.goal


def test_an_engine_that_does_not_exist_is_refused_with_those_that_do() -> None:
    """The Python call cannot rely on the command line's own check."""
    with pytest.raises(InputError, match="no engine 'simplex'; one of cp-sat, milp, exhaustive"):
        require("simplex")
