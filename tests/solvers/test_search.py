"""Bounded search, exhaustive search, the whole program in CP-SAT, and every plan one by one."""

from __future__ import annotations

import pytest

from optplan.models.formulate import formulate
from optplan.models.pipeline import Pipeline
from optplan.planner import problem_of
from optplan.solvers.base import Holding, SolverConfig, Termination
from optplan.solvers.boxes import strategies
from optplan.solvers.cpsat_pipeline import solve_whole
from optplan.solvers.late import Late
from optplan.solvers.proved import proved
from optplan.solvers.search import Search
from tests.bench.same import answers
from tests.brute import best_price
from tests.cross import examine
from tests.random_problems import random_spec

SMALL = {
    "workload": {
        "architecture": {
            "layers": 5,
            "hidden": 512,
            "heads": 8,
            "ffn": 2048,
            "vocabulary": 32000,
        },
        "sequence_length": 1024,
    },
    "cluster": {"accelerator": "a100-sxm-40gb", "nodes": 1, "devices_per_node": 4},
    "search": {"global_batch": 8, "cp": 1, "schedule": ["1f1b", "interleaved"], "zero": [0, 1]},
}


@pytest.mark.parametrize("seed", range(40, 56))
def test_routes_agree_on_random_problems(seed: int) -> None:
    seen = examine(seed, ("reduced", "exhaustive", "brute"))
    assert not seen.mismatches, seen.mismatches


def test_every_point_is_accounted_for_bounded_or_not() -> None:
    form = formulate(problem_of(SMALL))
    for bounded in (True, False):
        found = Search(form.program, SolverConfig(), bounded).run()
        census = found.outcome.census
        assert census is not None
        told = sum(census.removed_by_rule.values()) + found.outcome.removed_by_bound
        assert told + len(found.left) == census.points


def test_bounded_exhaustive_and_whole_find_the_same() -> None:
    narrow = {**SMALL, "search": {**SMALL["search"], "tp": 1, "micro_batch": [1, 2]}}
    form = formulate(problem_of(narrow))
    bounded = Search(form.program, SolverConfig()).run().outcome
    every = Search(form.program, SolverConfig(), bounded=False).run().outcome
    everything = Search(form.program, SolverConfig(), bounded=False).everything()
    whole = solve_whole(form.program, everything, SolverConfig())
    assert bounded.best == every.best
    assert bounded.goal == every.goal == whole.goal
    assert whole.termination is Termination.PROVED


def test_the_verifier_asked_of_every_plan_finds_no_better_one() -> None:
    tiny = {
        **SMALL,
        "search": {
            "global_batch": 4,
            "tp": 1,
            "pp": [1, 2],
            "cp": 1,
            "micro_batch": 1,
            "schedule": "1f1b",
            "zero": 1,
            "hsdp": False,
            "order": "data_inside",
        },
    }
    form = formulate(problem_of(tiny))
    price = best_price(form, 20_000)
    found = proved(form.program)
    assert isinstance(price, float)
    assert found.goal is not None
    assert float(found.goal) * form.goal_scale == pytest.approx(price, rel=1e-9)


def test_a_limit_that_asks_for_slowness_is_answered_by_cp_sat() -> None:
    """The incumbent of a search must not prune where the user forbids it."""
    fast = proved(formulate(problem_of(SMALL)).program)
    assert fast.goal is not None
    narrow = {**SMALL["search"], "tp": 1, "micro_batch": 2}
    form = formulate(problem_of({**SMALL, "search": narrow}))
    best = proved(form.program)
    assert best.goal is not None
    seconds = float(best.goal) * form.goal_scale * 8
    spec = {
        **SMALL,
        "search": narrow,
        "limits": [f"step_seconds >= {seconds * 1.001:.9f} s"],
    }
    slow = formulate(problem_of(spec))
    assert Late(slow.program).hard
    found = proved(slow.program)
    assert found.holding is Holding.OPTIMAL
    assert found.goal is not None
    assert float(found.goal) * slow.goal_scale * 8 >= seconds * 1.0009
    assert Search(slow.program, SolverConfig(), bounded=False).outcome().termination is (
        Termination.UNSUPPORTED
    )


def test_strategies_are_counted_as_enumeration_counts_them() -> None:
    form = formulate(problem_of(SMALL))
    pipeline = form.program.pipeline
    assert isinstance(pipeline, Pipeline)
    # Two stages of five layers: 4 ways to share out, and with any number recomputed the sum of
    # (l + 1) (6 - l) over l = 1..4.
    assert pipeline.ways(2, 1, free=True, recompute=0) == 4
    assert pipeline.ways(2, 1, free=True, recompute=2) == sum(
        (n + 1) * (6 - n) for n in range(1, 5)
    )
    assert strategies(form.program) > Search(form.program, SolverConfig()).spine.total()


def test_the_answer_is_the_same_each_time_with_one_worker_and_with_two() -> None:
    assert len(answers(4, SMALL)) == 1


def test_the_answer_is_the_same_on_a_random_problem_with_limits() -> None:
    assert len(answers(2, random_spec(12))) == 1
