"""One reason for the end of a group, whatever its processes died of."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from optplan.models.errors import InputError
from optplan.ranks.ending import Death, ending_of
from optplan.ranks.job import Job
from optplan.ranks.limits import is_out_of_memory
from optplan.ranks.needed import require_torch
from tests.machine import small
from tests.optplan.command import run

LOST = {"error": "RuntimeError: Connection closed by peer", "oom": False}
FULL = {"error": "RuntimeError: you tried to allocate 9 bytes", "oom": True}
DONE = {"result": 1}


@pytest.mark.parametrize(
    ("deaths", "files", "kernel", "outcome", "rank"),
    [
        ([Death(0, 0), Death(1, 0)], {0: DONE, 1: DONE}, False, "ok", None),
        ([Death(0, 1), Death(1, 1)], {0: LOST, 1: FULL}, False, "oom", 1),
        ([Death(1, -9), Death(0, 1)], {0: LOST}, False, "killed", 1),
        ([Death(1, -9), Death(0, 1)], {0: LOST}, True, "oom", 1),
        ([Death(1, -6), Death(0, 1)], {0: LOST}, True, "killed", 1),
        ([Death(0, None, True), Death(1, None, True)], {}, False, "hung", None),
        ([Death(0, 0), Death(1, None, True)], {0: DONE}, False, "hung", None),
        ([Death(0, 1), Death(1, 0, True)], {0: LOST}, False, "failed", 0),
        ([Death(0, 0), Death(1, 0)], {0: DONE}, False, "failed", 1),
        ([Death(0, 3), Death(1, 0)], {1: DONE}, False, "failed", 0),
    ],
)
def test_the_reason_of_an_end(
    deaths: Sequence[Death],
    files: Mapping[int, object],
    kernel: bool,
    outcome: str,
    rank: int | None,
    tmp_path: Path,
) -> None:
    for number, held in files.items():
        (tmp_path / f"rank-{number}.json").write_text(json.dumps(held), encoding="utf-8")
    job = Job(work="a:b", ranks=2, arguments={}, seconds=1.0, folder=str(tmp_path))
    found = ending_of(job, deaths, kernel, 0.5)
    assert (found.outcome, found.rank) == (outcome, rank)
    assert (found.results == (1, 1)) == (outcome == "ok")
    assert bool(found.detail) == (outcome != "ok")


def test_want_of_memory_is_known_by_its_words() -> None:
    assert is_out_of_memory(MemoryError())
    assert is_out_of_memory(RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"))
    assert is_out_of_memory(RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"))
    assert not is_out_of_memory(RuntimeError("Resource temporarily unavailable"))
    assert is_out_of_memory(RuntimeError("Resource temporarily unavailable"), limited=True)
    outer = RuntimeError("stage 0 failed to run forward")
    outer.__cause__ = MemoryError()
    assert is_out_of_memory(outer)
    assert not is_out_of_memory(ValueError("shape"))


def test_without_pytorch_the_remedy_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("optplan.ranks.needed.find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"optplan\[profile\]"):
        require_torch("optplan profile")
    spec = tmp_path / "spec.yaml"
    spec.write_text(json.dumps(small.spec()), encoding="utf-8")
    output = str(tmp_path / "out.yaml")
    for command in (["profile", "-o", output], ["measure", str(spec), "-o", output]):
        status, out, err = run(*command)
        assert (status, out) == (2, "")
        assert 'pip install "optplan[profile]"' in err
    assert not Path(output).exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ["profile", "-o", "x.yaml", "--budget", "3"],
        ["profile", "-o", "x.yaml", "--processes", "0"],
        ["measure", "x.yaml", "-o", "x.csv", "--memory", "2"],
        ["measure", "x.yaml", "-o", "x.csv", "--steps", "0"],
        ["measure", "x.yaml", "-o", "x.csv", "--patience", "0 s"],
    ],
)
def test_flags_that_make_no_sense_are_refused(arguments: list[str]) -> None:
    status, out, err = run(*arguments)
    assert (status, out) == (2, "")
    assert arguments[-2] in err
