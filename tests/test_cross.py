"""Every engine gives the same answer on random problems and random programs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests import cross
from tests.random_programs import random_program

PROBLEMS, PROGRAMS = 200, 150
CHUNK = 10
"""Seeds of one test: small enough to spread over workers."""


@pytest.mark.parametrize("first", range(0, PROBLEMS, CHUNK))
def test_engines_agree_on_random_problems(first: int) -> None:
    seen = [cross.examine(seed) for seed in range(first, first + CHUNK)]
    wrong = {f"seed {one.seed}": one.mismatches for one in seen if one.mismatches}
    assert not wrong, json.dumps(wrong, indent=1)
    assert not [one.seed for one in seen if "reduced" in one.stopped]


@pytest.mark.parametrize("first", range(0, PROGRAMS, CHUNK))
def test_engines_agree_on_random_programs(first: int) -> None:
    faults = {
        f"seed {seed}": cross.program_faults(random_program(seed))
        for seed in range(first, first + CHUNK)
    }
    wrong = {seed: some for seed, some in faults.items() if some}
    assert not wrong, json.dumps(wrong, indent=1)


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
