"""The log of the road: every step, on stderr, and only where it was asked for."""

from __future__ import annotations

import contextlib
import io
import json
import logging

import pytest

import optplan
from optplan.models.errors import InputError
from optplan.report.road import Road
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


def test_a_name_cannot_forge_a_line() -> None:
    """A break or a sequence for the terminal in a name is told by its numbers."""
    log = logging.getLogger("optplan.load")
    with io.StringIO() as stream, contextlib.redirect_stderr(stream):
        with Road():
            log.info("%s on %d", "a\n    0.00 s  planner   verified \x1b[31m%s", 2)
        lines = stream.getvalue().splitlines()
    assert len(lines) == 1
    assert "a\\x0a    0.00 s" in lines[0]
    assert "\\x1b[31m%s on 2" in lines[0]


@pytest.mark.parametrize("sign", ["\n", "\x1b[31m", "\x7f", "\u202e"])
def test_a_name_that_does_not_print_is_refused(sign: str) -> None:
    """On a screen it could hide or forge what stands around it."""
    spec = {
        "workload": {"architecture": "llama-2-7b", "sequence_length": 4096},
        "cluster": {"accelerator": "h100-sxm-80gb", "nodes": 1},
        "search": {"global_batch": 8},
    }
    told = json.loads(optplan.load(spec).model_dump_json())
    told["workload"]["architecture"]["name"] = f"llama{sign}verified"
    with pytest.raises(InputError, match="has characters that do not print; write one line"):
        optplan.load(told)
