"""``explain``: what binds, what could give way, and why not another plan."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import optplan
from optplan.cli_answers import _split
from tests.optplan.command import run

JOB: dict[str, Any] = {
    "workload": {"architecture": "llama-2-7b", "sequence_length": 4096},
    "cluster": {"accelerator": "a100-sxm-80gb", "nodes": 1},
    "search": {"global_batch": 64, "cp": 1, "tp": [2, 4, 8]},
    "limits": [{"name": "keep-room", "rule": "peak_memory <= 45 GB"}, "pp <= 8"],
}


def job(**search: Any) -> dict[str, Any]:
    """The job with another search."""
    return {**JOB, "search": {**JOB["search"], **search}}


def test_every_worth_is_the_optimum_of_the_changed_spec() -> None:
    answer = optplan.explain(JOB)
    assert answer.exit_code == 0
    assert answer.result.estimate is not None
    by = {one.rule: one for one in answer.worth}
    free = optplan.solve({**JOB, "limits": ["pp <= 8"]}).estimate
    room, batch = by["limits.keep-room"], 64
    assert free is not None
    assert room.step_seconds == free.step_seconds
    here = answer.result.estimate.step_seconds
    assert room.saved == pytest.approx(1 - free.step_seconds / batch / (here / batch))
    assert room.binds
    assert not by["limits.limit-2"].binds
    wide = optplan.solve({**JOB, "search": {"global_batch": 64, "cp": 1}}).estimate
    assert wide is not None
    assert by["search.tp"].step_seconds == wide.step_seconds
    assert {"search.tp", "search.cp", "capacity.hbm"} <= set(by)
    assert [one.saved for one in answer.worth] == sorted(
        (one.saved for one in answer.worth), key=lambda saved: -(saved or 0.0)
    )


def test_what_a_clash_does_not_name_may_give_way_too() -> None:
    fixed = job(tp=1, pp=1, zero=1, recompute="none", micro_batch=8, layers_per_stage="even")
    fixed["limits"] = []
    answer = optplan.explain(fixed)
    assert answer.exit_code == 1
    told = {way.change for way in answer.result.explanation.ways_out}
    more = {way.change for way in answer.more_ways_out}
    assert {"leave recompute open", "leave tp open"} <= told | more
    assert not told & more
    for change in told | more:
        name = change.removeprefix("leave ").removesuffix(" open")
        if name in fixed["search"]:
            search = {k: v for k, v in fixed["search"].items() if k != name}
            assert optplan.solve({**fixed, "search": search}).exit_code == 0, change


def test_why_not_names_the_rule_or_the_distance() -> None:
    slower = optplan.explain(JOB, why_not={"tp": 4, "pp": 2}).why_not
    assert slower is not None
    assert slower.verdict.holds
    assert slower.behind is not None
    assert slower.behind >= 0
    broken = optplan.explain(JOB, why_not={"tp": 1}).why_not
    assert broken is not None
    assert "search.tp" in broken.verdict.broken


def test_the_command_prints_both_forms(tmp_path: Path) -> None:
    spec = tmp_path / "spec.yaml"
    spec.write_text(json.dumps(JOB), encoding="utf-8")
    status, out, err = run("explain", str(spec), "--why-not", "tp=4,pp=2")
    assert (status, err) == (0, "")
    assert "What one change would buy" in out
    assert "drop the limit keep-room" in out
    assert "The plan that was asked about" in out
    status, out, _ = run(
        "explain", str(spec), *(f"--set={one}" for one in ("tp=1", "pp=1", "zero=0")), "--json"
    )
    said = json.loads(out)
    assert status == 1
    assert said["result"]["explanation"]["core"]
    assert said["worth"] == []
    status, _, err = run("explain", str(spec), "--why-not", "colour=3")
    assert status == 2
    assert "colour" in err


def test_a_list_of_stages_is_no_end_of_a_choice() -> None:
    assert _split("tp=4, layers_per_stage=20,20 , pp=2") == [
        "tp=4",
        "layers_per_stage=20,20",
        "pp=2",
    ]
