"""Engines from outside: as a function, as an entry point, and every way they can be wrong."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import optplan
from optplan.models.errors import InputError
from optplan.models.program import Program
from optplan.solvers import exhaustive
from optplan.solvers.base import Holding, Outcome, SolverConfig, Termination, ratio
from optplan.solvers.catalogue import engine
from tests.optplan.command import job, run

ENGINE = '''\
"""An engine in a package."""

from dataclasses import replace

from optplan.solvers import exhaustive


def solve(program, config):
    """Look at every point."""
    found = exhaustive.solve(program, config)
    return replace(found, census=None, engine="")


nothing = 3
'''


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package with entry points, as an installer would leave it."""
    site = tmp_path / "site"
    told = site / "house_engines-2.1.dist-info"
    told.mkdir(parents=True)
    (told / "METADATA").write_text("Metadata-Version: 2.1\nName: house-engines\nVersion: 2.1\n")
    points = "mine = house_engines:solve\nbroken = house_engines:nothing\ngone = nowhere_at_all:x\n"
    (told / "entry_points.txt").write_text(f"[optplan.engines]\n{points}")
    (site / "house_engines.py").write_text(ENGINE)
    monkeypatch.syspath_prepend(site)
    monkeypatch.delitem(sys.modules, "house_engines", raising=False)
    return site


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


WRONG = {
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


def test_a_false_optimum_is_not_verified() -> None:
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
