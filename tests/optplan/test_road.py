"""The log of the road: every step, on stderr, and only where it was asked for."""

from __future__ import annotations

import json
import logging

import pytest

from tests.optplan.command import job, run


@pytest.mark.parametrize("flag", ["-v", "--verbose"])
def test_the_road_is_logged_beside_the_answer(flag: str) -> None:
    status, out, err = run("solve", job("baichuan2-7b"), "--json", flag, "--top", "0")
    assert status == 0
    found = json.loads(out)
    steps = [line.split()[2] for line in err.splitlines()]
    order = [steps.index(name) for name in ("load", "formulate", "search", "proved", "planner")]
    assert order[:3] == sorted(order[:3])
    assert all(float(line.split()[0]) >= 0 for line in err.splitlines())
    assert "baichuan2-7b on 16 x ascend-910b" in err
    assert f"{found['certificate']['points']:,} points" in err
    assert f"tp {found['plan']['tp']} pp {found['plan']['pp']}" in err
    assert "verified: " in err


def test_it_is_silent_unless_asked_and_leaves_nothing_behind() -> None:
    log = logging.getLogger("optplan")
    before = (log.level, list(log.handlers))
    run("solve", job("baichuan2-7b"), "-v", "--top", "0")
    assert (log.level, list(log.handlers)) == before
    status, _, err = run("solve", job("baichuan2-7b"), "--top", "0")
    assert (status, err) == (0, "")


@pytest.mark.parametrize(
    "command",
    [
        ("evaluate", "tp=2", "pp=2"),
        ("explain",),
        ("compare", "--engines", "cp-sat"),
    ],
    ids=lambda one: one[0],
)
def test_other_commands_have_it(command: tuple[str, ...]) -> None:
    name, *rest = command
    _, out, err = run(name, job("baichuan2-7b"), *rest, "-v", "--json")
    json.loads(out)
    assert "search" in {line.split()[2] for line in err.splitlines()}
