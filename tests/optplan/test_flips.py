"""Flip points against the best of all plans on either side of them, and the digits they print."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path

import pytest

import optplan
from optplan.load import load
from optplan.parameters import Ladder, Parameter, parameters
from optplan.report.sure import flips_text
from tests.optplan.command import run
from tests.optplan.test_within import JOB
from tests.robust import Checked, check_flips


@pytest.mark.parametrize("seed", range(3))
def test_the_best_plan_changes_where_it_is_said(seed: int) -> None:
    """As ``python -m tests.robust`` does for any number of problems."""
    into = Checked()
    check_flips(seed, into)
    assert not into.wrong
    assert into.counts["parameters"] > 0


@pytest.mark.parametrize("rising", [False, True])
@pytest.mark.parametrize("name", [one.name for one in parameters(load(JOB))])
def test_rungs_lie_half_a_digit_from_what_prints(name: str, rising: bool) -> None:
    parameter = next(one for one in parameters(load(JOB)) if one.name == name)
    if (parameter.high if rising else parameter.low) == parameter.now:
        return
    for digits in (3, 4):
        ladder = Ladder(parameter, rising, digits)
        values = [ladder.exact(i) for i in range(ladder.rungs)]
        assert values == sorted(values, reverse=not rising)
        assert len(set(values)) == len(values)
        assert ladder.value(0) == pytest.approx(parameter.now)
        end = parameter.high if rising else parameter.low
        assert ladder.value(ladder.rungs - 1) == pytest.approx(end)
        for rung in {2, ladder.rungs // 2, ladder.rungs - 2}:
            printed = ladder.printed(rung)
            unit = Decimal(1).scaleb(int(printed.as_tuple().exponent))
            near, far = sorted((ladder.exact(rung - 1), ladder.exact(rung)))
            assert near < printed < far
            assert far - near <= unit
            shown = Decimal(parameter.text(printed).split()[0])
            assert shown.as_tuple().exponent == 0 or abs(shown) < 1000


def test_a_share_ends_at_one_and_memory_moves_what_is_possible() -> None:
    by: dict[str, Parameter] = {one.name: one for one in parameters(load(JOB))}
    assert by["link efficiency"].high == 1.0
    assert "network" not in by  # one node has none
    assert by["links inside a node"].about(4.5e11) == "450 GB/s"
    assert by["memory of a device"].about(80 * 2**30) == "80 GiB"
    assert by["launch floor of a layer"].about(0.00115) == "1.15 ms"


def test_less_memory_changes_the_plan_and_then_leaves_none() -> None:
    narrow = {"global_batch": 64, "cp": 1, "tp": 2, "pp": 1, "zero": 1, "recompute": "none"}
    spec = {**JOB, "search": {**narrow, "micro_batch": 1, "sequence_parallel": True}}
    found = optplan.flips(spec, only=["memory of a device"])
    (along,) = found.along
    assert along.complete
    assert along.rises is None
    assert along.falls is not None
    assert along.falls.plan is None
    best = optplan.solve(spec).estimate
    assert best is not None
    # What the plan needs is what it stands or falls with.
    assert along.falls.below < best.memory.peak_bytes <= along.falls.above


def test_what_was_not_reached_in_time_is_named() -> None:
    found = optplan.flips(JOB, time_limit=1e-6)
    assert not found.along
    assert "links inside a node" in found.left


def test_the_command_prints_both_forms(tmp_path: Path) -> None:
    spec = tmp_path / "spec.yaml"
    narrow = {"global_batch": 64, "cp": 1, "tp": [2, 4], "pp": 1, "zero": 1, "micro_batch": 1}
    spec.write_text(json.dumps({**JOB, "search": narrow}), encoding="utf-8")
    status, out, err = run("explain", str(spec), "--flips", "--json")
    assert (status, err) == (0, "")
    said = json.loads(out)
    assert said["flips"]["along"]
    from io import StringIO

    from rich.console import Console

    from optplan.sureness import Flips

    file = StringIO()
    Console(file=file, width=200).print(flips_text(Flips.model_validate(said["flips"])))
    assert "Where the recommendation changes" in file.getvalue()
    for along in said["flips"]["along"]:
        assert along["parameter"] in file.getvalue()
