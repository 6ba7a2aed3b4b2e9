"""Every engine gives the same answer on random problems and random programs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from optplan.models.errors import InputError
from optplan.planner import problem_of, run
from optplan.solvers.base import SolverConfig, Termination
from optplan.solvers.catalogue import ENGINES
from tests import cross
from tests.random_problems import random_spec
from tests.random_programs import random_program

PROBLEMS, PROGRAMS = 300, 150
CHUNK = 10
"""Seeds of one test: small enough to spread over workers."""


@pytest.mark.parametrize("first", range(0, PROBLEMS, CHUNK))
def test_engines_agree_on_random_problems(first: int) -> None:
    routes = ("reduced", "milp", "exhaustive", "paper") if first else cross.ROUTES
    seeds = range(first, first + CHUNK)
    seen = [cross.examine(seed, routes, 3.0, clashes=seed % 3 == 0) for seed in seeds]
    wrong = {f"seed {one.seed}": one.mismatches for one in seen if one.mismatches}
    assert not wrong, json.dumps(wrong, indent=1)
    assert not [one.seed for one in seen if one.stopped and one.outcome != "hard"]


@pytest.mark.parametrize("first", range(0, PROGRAMS, CHUNK))
def test_engines_agree_on_random_programs(first: int) -> None:
    faults = {
        f"seed {seed}": cross.program_faults(random_program(seed))
        for seed in range(first, first + CHUNK)
    }
    wrong = {seed: some for seed, some in faults.items() if some}
    assert not wrong, json.dumps(wrong, indent=1)


@pytest.mark.parametrize(
    "limit",
    [
        "step_seconds * 0.3333 + 0.1 s <= 30 s",
        "123456789 * step_seconds >= 3 s",
        "step_seconds - step_seconds == 0.5 s",
        "1.2345678 * peak_memory <= 900000000000 B",
        "max(1.00001 * step_seconds, 0.123456789 s) <= 30 s",
    ],
)
@pytest.mark.parametrize("engine", ENGINES)
def test_limits_of_many_digits_are_kept_or_refused(engine: str, limit: str) -> None:
    found = [answer(limit, name) for name in dict.fromkeys(("cp-sat", engine))]
    told = [one for one in found if one is not None]
    assert all(one == told[0] or "beyond 64 bits" in one for one in told), found


def answer(limit: str, engine: str) -> str | None:
    """Name the best plan under a limit, or say how it is refused; None where that is not known."""
    try:
        problem = problem_of(random_spec(39) | {"limits": [limit]})
        form, found = run(problem, engine=engine, config=SolverConfig(seconds=2))
    except InputError as error:
        return str(error)
    if found.termination not in (Termination.PROVED, Termination.EXHAUSTED):
        return None
    return str(form.decode(found.best[0]) if found.best else None)


def test_an_interrupted_comparison_takes_up_where_it_stopped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = tmp_path / "seen.jsonl"
    routes = ["--engines", "exhaustive", "paper", "--resume", str(kept)]
    assert cross.main(["--count", "2", *routes]) == 0
    assert cross.main(["--count", "3", *routes]) == 0
    assert [json.loads(line)["seed"] for line in kept.read_text().splitlines()] == [0, 1, 2]
    assert "mismatches: 0" in capsys.readouterr().out


def test_a_disagreement_ends_with_status_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cross, "examine", lambda seed, *_: cross.Seen(seed, mismatches=["goals"]))
    assert cross.main(["--count", "1"]) == 1
    assert "seed 0: goals" in capsys.readouterr().out


@pytest.mark.parametrize("seed", [121, 285, 1087, 1256, 10243, 10558, 10766])
def test_a_seed_that_once_disagreed_agrees(seed: int) -> None:
    """Limits within a tick, plans cut off on finer ticks, and solutions lost in a presolve."""
    assert cross.examine(seed, limit=5.0).mismatches == []


@pytest.mark.parametrize("seed", [105336, 205317])
def test_problems_that_once_broke_the_planner_are_solved(seed: int) -> None:
    """Equation 1 with a dense first layer among experts; a price table without a row."""
    routes = ("reduced", "milp", "exhaustive", "paper")
    assert cross.examine(seed, routes, clashes=False).mismatches == []
