"""``optplan report`` on files: every kind of answer, and every file that is none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import optplan
from optplan.report.html.read import read_answer
from optplan.result import Result
from tests.optplan import answers
from tests.optplan.answers import written
from tests.optplan.command import run


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("small", "solve"),
        ("answer", "explain"),
        ("evaluation", "evaluate"),
        ("sizing", "size"),
        ("comparison", "compare"),
    ],
)
def test_the_command_takes_every_kind_of_answer(name: str, command: str, tmp_path: Path) -> None:
    path = written(tmp_path, answers.every()[name])
    target = tmp_path / "page.html"
    status, out, err = run("report", str(path), "-o", str(target), "--json")
    assert (status, err) == (0, "")
    said = json.loads(out)
    assert said["command"] == command
    assert said["bytes"] == target.stat().st_size
    assert target.read_text(encoding="utf-8") == optplan.report(answers.every()[name])
    status, out, _ = run("report", str(path), "-o", str(target))
    assert status == 0
    assert "kB" in out


def spoiled(data: dict[str, Any], where: str) -> dict[str, Any]:
    """An answer with one thing changed."""
    if where == "step time":
        data["estimate"]["step_seconds"] *= 0.5
    elif where == "stage":
        data["estimate"]["memory"]["stages"][0]["parts"]["optimizer"] //= 2
    elif where == "binding stage":
        data["estimate"]["memory"]["binding_stage"] = 7
    elif where == "term":
        data["estimate"]["terms"]["TB"] = 0.0
    elif where == "name":
        data["problem"]["workload"]["architecture"]["name"] = "another"
    elif where == "proof":
        data["certificate"]["points"] += 1
    return data


@pytest.mark.parametrize("where", ["step time", "stage", "binding stage", "term", "name", "proof"])
@pytest.mark.parametrize("forged", [False, True], ids=["changed", "sealed again"])
def test_a_file_that_was_changed_is_refused(where: str, forged: bool, tmp_path: Path) -> None:
    """By its digest; and where that was forged too, by its price or fingerprint."""
    data = spoiled(json.loads(answers.result("small").to_json()), where)
    if forged:
        data["digest"] = Result.model_validate(data).computed_digest()
    path, target = tmp_path / "plan.json", tmp_path / "page.html"
    path.write_text(json.dumps(data), encoding="utf-8")
    status, out, err = run("report", str(path), "-o", str(target))
    if forged and where == "proof":
        assert status == 0  # that takes optplan verify, as the page says
        return
    assert (status, out) == (2, "")
    assert not target.exists()
    assert "digest" in err or "fingerprint" in err or "priced anew" in err


@pytest.mark.parametrize("name", ["evaluation", "sizing"])
def test_answers_without_a_digest_are_priced_anew(name: str, tmp_path: Path) -> None:
    data = json.loads(answers.every()[name].to_json())
    spoiled(data["fewest"] if name == "sizing" else data, "step time")
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(data), encoding="utf-8")
    status, _, err = run("report", str(path), "-o", str(tmp_path / "page.html"))
    assert status == 2
    assert "priced anew" in err


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("", "no JSON"),
        ("[1, 2]", "no answer that a page can show"),
        ("{}", "no answer that a page can show"),
        ('{"verdict": "verified", "checks": []}', "no answer that a page can show"),
        ('{"format": 99, "certificate": {}, "status": {}, "problem": {}}', "another version"),
        ('{"certificate": {}, "status": {}, "problem": {}}', "does not fit the form"),
        ('{"engines": 3, "agree": true}', "does not fit the form"),
        ("[" * 100_000, "no JSON"),
        ('{"format": 1, "name": "\\ud800"}', "no JSON"),
    ],
)
def test_what_is_no_answer_is_refused_with_a_remedy(text: str, word: str, tmp_path: Path) -> None:
    path, target = tmp_path / "plan.json", tmp_path / "page.html"
    path.write_text(text, encoding="utf-8")
    status, out, err = run("report", str(path), "-o", str(target))
    assert (status, out) == (2, "")
    assert word in err
    assert ";" in err
    assert "Traceback" not in err
    assert not target.exists()


def test_nothing_is_written_over_what_is_read(tmp_path: Path) -> None:
    path = written(tmp_path, answers.result("small"))
    before = path.read_bytes()
    for arguments in (
        ("-o", str(path)),
        ("-o", str(tmp_path / "a.html"), "--trace", str(path)),
        ("-o", str(tmp_path / "a.html"), "--trace", str(tmp_path / "a.html")),
        ("-o", str(tmp_path / "none" / "a.html")),
        ("-o", str(tmp_path)),
    ):
        status, out, err = run("report", str(path), *arguments)
        assert (status, out) == (2, ""), arguments
        assert err
        assert path.read_bytes() == before
        assert list(tmp_path.iterdir()) == [path]
    status, _, err = run("report", str(tmp_path / "missing.json"), "-o", str(tmp_path / "a.html"))
    assert status == 2
    assert "cannot read" in err


def test_an_answer_read_from_a_file_is_the_answer(tmp_path: Path) -> None:
    for name, answer in answers.every().items():
        _, read = read_answer(written(tmp_path, answer, f"{name}.json"))
        assert read == answer
