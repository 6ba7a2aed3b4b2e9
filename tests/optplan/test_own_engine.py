"""Engines from outside: as a function, as an entry point, and every way they can be wrong."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import optplan
from optplan.models.errors import InputError
from optplan.models.program import Program, Table
from optplan.solvers import exhaustive
from optplan.solvers.base import Census, Holding, Outcome, SolverConfig, Termination, ratio
from optplan.solvers.catalogue import engine
from tests.optplan.command import job, run
from tests.optplan.installed import installed

ENGINE = '''\
"""An engine in a package."""

from dataclasses import replace

from optplan.solvers import exhaustive


def solve(program, config):
    """Look at every point."""
    found = exhaustive.solve(program, config)
    return replace(found, census=None, engine="")


def lies(program, config):
    """Call any point the best."""
    found = exhaustive.solve(program, config)
    return replace(found, census=None, best=(found.best[0] | {"tp": 3},))


nothing = 3
'''


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package with entry points, as an installer would leave it."""
    named = {
        "mine": "house_engines:solve",
        "broken": "house_engines:nothing",
        "gone": "nowhere_at_all:x",
        "liar": "house_engines:lies",
    }
    points = ("optplan.engines", named)
    return installed(tmp_path, monkeypatch, "house-engines", "2.1", points, ENGINE)


@pytest.mark.usefixtures("package")
def test_an_offered_engine_solves_and_is_verified(tmp_path: Path) -> None:
    spec = job("baichuan2-7b")
    status, out, err = run("solve", spec, "--json", "--engine", "mine", "--top", "1")
    assert (status, err) == (0, "")
    found = json.loads(out)
    assert found["certificate"]["engine"] == "mine, outside (house-engines 2.1)"
    ours = json.loads(run("solve", spec, "--json", "--top", "1")[1])
    assert found["plan"] == ours["plan"]
    written = tmp_path / "plan.json"
    written.write_text(out, encoding="utf-8")
    status, out, err = run("verify", str(written))
    assert (status, err) == (0, ""), out
    status, out, err = run("compare", spec, "--engines", "cp-sat,mine", "--json")
    assert (status, err) == (0, "")
    assert json.loads(out)["agree"]


@pytest.mark.usefixtures("package")
def test_an_engine_that_is_refused_keeps_nobody_from_the_others() -> None:
    command = ("compare", job("baichuan2-7b"), "--engines", "liar,cp-sat", "--json")
    status, out, err = run(*command)
    assert (status, err) == (3, "")
    liar, ours = json.loads(out)["engines"]
    assert (liar["termination"], liar["plan"]) == ("failed", None)
    assert "breaks" in liar["detail"]
    assert ours["termination"] == "proved"


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize(
    ("name", "words"),
    [("broken", "is no function"), ("gone", "cannot be imported"), ("mone", "did you mean mine")],
)
def test_an_engine_that_cannot_be_used_is_wrong_input(name: str, words: str) -> None:
    status, out, err = run("solve", job("baichuan2-7b"), "--engine", name)
    assert (status, out) == (2, "")
    assert words in err


def raises(program: Program, config: SolverConfig) -> Outcome:
    raise ZeroDivisionError("by zero")


def returns_nothing(program: Program, config: SolverConfig) -> Any:
    return None


def _changed(**changes: Any) -> Any:
    def solve(program: Program, config: SolverConfig) -> Outcome:
        found = exhaustive.solve(program, config)
        made = {k: v(found) if callable(v) else v for k, v in changes.items()}
        return replace(found, **made)

    return solve


def exits(program: Program, config: SolverConfig) -> Outcome:
    raise SystemExit(0)


def gives_up_at_once(program: Program, config: SolverConfig) -> Outcome:
    return Outcome(Termination.PROVED, Holding.NOTHING)


def writes_into_tables(program: Program, config: SolverConfig) -> Outcome:
    table = next(s for s in program.statements if isinstance(s, Table) and len(s.rows))
    table.rows[:] = 0
    return exhaustive.solve(program, config)


def _plans(change: Any) -> Any:
    """Change the values of the best plan, all of them, by a function."""
    return _changed(best=lambda f: ({k: change(v) for k, v in f.best[0].items()},))


WRONG = {
    "leaves": (exits, "SystemExit"),
    "finds nothing where there is something": (gives_up_at_once, "no plan, and there is one"),
    "writes into the program": (writes_into_tables, "read-only"),
    "has texts for numbers": (_plans(str), "tp is '[0-9]+'"),
    "has halves": (_plans(lambda v: v + 0.5), r"tp is [0-9]+\.5"),
    "has no numbers": (_plans(lambda v: float("nan")), "tp is nan"),
    "has no plans": (_changed(best=None), "best is NoneType"),
    "has numbers for plans": (_changed(best=(5,)), "a plan is int"),
    "hands out half": (
        _changed(
            best=lambda f: ({k: v for k, v in f.best[0].items() if not k.startswith("again")},)
        ),
        r"gives no again\[0\]",
    ),
    "bound is none": (_changed(bound=float("nan")), "bound is nan"),
    "bound is endless": (_changed(bound=float("inf")), "bound is inf"),
    "bound is a text": (_changed(bound="1"), "bound is '1'"),
    "bound is beyond floats": (_changed(bound=Fraction(10**400)), r"10\^400 is above"),
    "optimal without a bound": (_changed(bound=None), "optimal and has no bound"),
    "optimal by half": (_changed(bound=lambda f: f.bound / 2), "optimal and has a bound of"),
    "optimal in time": (_changed(termination=Termination.TIME_LIMIT), "ended time-limit and"),
    "feasible and done": (_changed(holding=Holding.FEASIBLE), "ended exhausted and holds"),
    "ends in no word": (_changed(termination="great"), "ended 'great'"),
    "census is a text": (_changed(census="all"), "census is str"),
    "census of other points": (_changed(census=Census(7, {})), "has 7 points of"),
    "census of other rules": (
        _changed(census=lambda f: Census(f.census.points, {"mine": 1})),
        "'mine', which is no rule",
    ),
    "census of too many": (_changed(removed_by_bound=10**12), "points are removed"),
    "counts below nothing": (_changed(prunings={"a": -4}), "is -4"),
    "counts in texts": (_changed(priced="many"), "priced is 'many'"),
    "remarks in bytes": (_changed(detail=b"x"), "detail is bytes"),
    "is none": (5, "neither a name nor a function"),
    "raises": (raises, "ZeroDivisionError"),
    "returns nothing": (returns_nothing, "returns NoneType"),
    "forgets a choice": (
        _changed(best=lambda f: ({k: v for k, v in f.best[0].items() if k != "pp"},)),
        "gives no pp",
    ),
    "breaks a rule": (_changed(best=lambda f: (f.best[0] | {"tp": 3},)), "its plan breaks"),
    "lays claim to too much": (_changed(bound=Fraction(10**30)), "is above its own plan"),
    "holds what it has not": (_changed(best=()), "returns 0 plans"),
    "has what it does not hold": (_changed(holding=Holding.NOTHING), "returns 1 plans"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_an_engine_that_is_wrong_is_told_so(kind: str) -> None:
    solve, words = WRONG[kind]
    with pytest.raises(InputError, match=words):
        optplan.solve(job("baichuan2-7b"), engine=solve)


def test_numbers_of_any_kind_are_read() -> None:
    """NumPy's numbers, whole floats and a bound that was rounded up mean what they say."""

    def solve(program: Program, config: SolverConfig) -> Any:
        found = exhaustive.solve(program, config)
        assert found.goal is not None
        best = [{k: np.float64(v) for k, v in found.best[0].items()}]
        up = float(found.goal) * (1 + 1e-12)
        return replace(found, best=best, bound=up, termination="exhausted", detail="a\nb\x1b[1m")  # type: ignore[arg-type]

    result = optplan.solve(job("baichuan2-7b"), engine=solve, top=0)
    assert optplan.verify(result.to_json()).verdict == "verified"


def test_a_false_optimum_is_refused_where_a_neighbour_is_better() -> None:
    def second(program: Program, config: SolverConfig) -> Outcome:
        found = exhaustive.solve(program, replace(config, top=9))
        worse = found.best[-1]
        return replace(found, best=(worse,), bound=ratio(program, program.evaluate(worse)))

    with pytest.raises(InputError, match=r"engine second: .*faster than its best plan"):
        optplan.solve(job("baichuan2-7b"), engine=second, top=3)


def test_counts_below_nothing_are_not_verified() -> None:
    """A table of where points went that adds up only with fewer than none left."""
    result = optplan.solve(job("baichuan2-7b"), top=0)
    told = result.certificate
    more = {"removed_by_bound": told.removed_by_bound + told.left + 5, "left": -5}
    changed = result.model_copy(update={"certificate": told.model_copy(update=more)}).sealed()
    found = {check.name: check.holds for check in optplan.verify(changed).checks}
    assert found["counts"] is False


def test_a_false_optimum_is_not_is_not_verified() -> None:
    """The bound that an engine made up is derived anew; one that knows its limits is believed."""

    def second(program: Program, config: SolverConfig) -> Outcome:
        found = exhaustive.solve(program, replace(config, top=2))
        stopped = replace(found, termination=Termination.TIME_LIMIT, holding=Holding.FEASIBLE)
        return replace(stopped, best=found.best[1:], bound=found.goal)

    result = optplan.solve(job("baichuan2-7b"), engine=second, top=0)
    assert result.exit_code == 3
    assert optplan.verify(result).verdict == "verified"

    def boasting(program: Program, config: SolverConfig) -> Outcome:
        found = second(program, config)
        best = ratio(program, program.evaluate(found.best[0]))
        sure = replace(found, termination=Termination.EXHAUSTED, holding=Holding.OPTIMAL)
        return replace(sure, bound=best)

    result = optplan.solve(job("baichuan2-7b"), engine=boasting, top=0)
    assert result.certificate.gap is not None
    assert result.certificate.gap < 1e-9
    assert optplan.verify(result).verdict == "not verified"


def test_a_function_is_called_by_its_name() -> None:
    assert engine(raises).name == "raises"  # type: ignore[attr-defined]
