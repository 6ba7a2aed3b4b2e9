"""Engines side by side."""

from __future__ import annotations

import json

import pytest

import optplan
from optplan.compare import Comparison, Row, engines_of
from optplan.models.errors import InputError
from tests.optplan.command import job, run


def test_all_engines_agree_on_a_job_of_the_paper() -> None:
    status, out, err = run("compare", job("baichuan2-7b"), "--json")
    assert (status, err) == (0, "")
    told = json.loads(out)
    assert told["agree"]
    assert [row["engine"] for row in told["engines"]] == ["cp-sat", "milp", "exhaustive", "paper"]
    goals = [row["goal"] for row in told["engines"]]
    assert max(goals) == pytest.approx(min(goals), rel=1e-9)
    assert min(row["ratio"] for row in told["engines"]) == 1.0
    assert all(row["gap"] <= 1e-6 for row in told["engines"])


def test_the_table_names_engines_plans_and_versions() -> None:
    status, out, _ = run("compare", job("baichuan2-7b"), "--engines", "cp-sat,milp")
    assert status == 0
    for word in ("optimum", "bound", "gap", "ratio", "nodes", "2 engines agree", "highs", "pp 4"):
        assert word in out, word


def test_engines_that_find_no_plan_agree_too() -> None:
    spec = job("baichuan2-7b")
    status, out, _ = run("compare", spec, "--engines", "cp-sat,milp", "--limit", "pp == 3")
    assert status == 1
    assert "2 engines agree: there is no plan" in out


def test_an_engine_that_cannot_answer_says_why() -> None:
    spec = job("dense")
    arguments = ("--engines", "cp-sat,paper", "--set", "tp=8", "--json")
    status, out, _ = run("compare", spec, *arguments)
    told = json.loads(out)["engines"][1]
    assert (status, told["termination"]) == (0, "unsupported")
    assert told["detail"]


@pytest.mark.parametrize(
    ("engines", "message"),
    [
        ("simplex", "there is no engine 'simplex'; one of cp-sat, milp, exhaustive, paper"),
        ("cp-sat,", "'cp-sat,' has an empty name"),
        ("milp:", "there is no engine 'milp:'"),
        ("milp:nonesuch", "Pyomo knows no solver 'nonesuch'; one of cbc, cplex"),
        ("paper:highs", "there is no engine 'paper:highs'"),
    ],
)
def test_a_wrong_engine_is_refused(engines: str, message: str) -> None:
    status, out, err = run("compare", job("baichuan2-7b"), "--engines", engines)
    assert (status, out) == (2, "")
    assert message in err


def test_a_solver_that_is_missing_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("optplan.solvers.milp_solver._available", lambda solver: False)
    status, _, err = run("solve", job("baichuan2-7b"), "--engine", "milp:gurobi")
    assert status == 2
    assert "gurobi is not installed; pip install gurobipy" in err


def test_answers_that_differ_are_our_own_fault() -> None:
    def row(engine: str, goal: float | None) -> Row:
        return Row(
            engine=engine,
            version="",
            termination="proved",
            holding="nothing" if goal is None else "optimal",
            goal=goal,
            step_seconds=goal,
            bound=goal,
            gap=0.0,
            seconds=1.0,
            cpu_seconds=1.0,
            nodes=0,
            priced=0,
            detail="",
            plan=None,
        )

    from optplan.compare import _agree

    for goals in ((1.0, 1.1), (1.0, None)):
        rows = tuple(row(str(i), goal) for i, goal in enumerate(goals))
        assert not _agree(rows)
        assert Comparison(unit="s", agree=False, engines=rows).exit_code == 4
    assert _agree((row("a", 1.0), row("b", 1.0 + 1e-8)))


def test_no_engine_named_means_all() -> None:
    found = optplan.compare(job("aquila2-7b"))
    assert len(found.engines) == 4
    assert engines_of(" cp-sat , milp:cbc") == ("cp-sat", "milp:cbc")
    with pytest.raises(InputError):
        engines_of("")
