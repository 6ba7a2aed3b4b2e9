"""Plans within the model's error: counted right, and said so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import optplan
from optplan.models.domains import word
from optplan.models.formulate import CHOICES
from optplan.within import SHAPE
from tests.optplan.command import run
from tests.robust import small_problem

JOB = {
    "workload": {"architecture": "llama-2-7b", "sequence_length": 4096},
    "cluster": {"accelerator": "a100-sxm-80gb", "nodes": 1},
    "search": {"global_batch": 64, "cp": 1, "tp": [2, 4, 8], "vpp": 1, "schedule": "1f1b"},
}


@pytest.mark.parametrize(("seed", "error"), [(1, 0.02), (2, 0.3), (5, 1.0)])
def test_every_plan_within_the_error_is_counted(seed: int, error: float) -> None:
    small = small_problem(seed)
    problem = small.problem.with_calibration(held_out=error, lump=None)
    problem = problem.model_copy(update={"goal": "fastest"})
    result = optplan.solve(problem, top=3)
    assert result.plan is not None
    assert result.within_error is not None
    within, batch = result.within_error, result.plan.global_batch
    row = small.prices(problem)
    least = min(row)
    near = [
        small.form.encode(plan)
        for plan, price in zip(small.plans, row, strict=True)
        if price <= least * (1 + error) and plan.global_batch == batch
    ]
    assert within.shapes == len({tuple(one[name] for name in SHAPE) for one in near})
    assert within.complete
    for name in CHOICES:
        values = tuple(word(name, v) for v in sorted({one[name] for one in near}))
        assert within.values.get(name, values) == values, name
        if name in within.common:
            assert values == (within.common[name],)
    for one in within.apart:
        assert 0 <= one.behind <= error + 1e-9
        assert one.differs
    assert optplan.solve(problem, top=1).within_error == within
    assert optplan.solve(problem, top=0).within_error is None


def test_an_unknown_error_tells_nothing_apart() -> None:
    spec = {**JOB, "calibration": "generic"}
    assert optplan.solve(spec).within_error is None
    assert optplan.solve({**JOB, "goal": "most-headroom"}).within_error is None


def test_both_forms_say_what_the_proof_cannot_tell_apart(tmp_path: Path) -> None:
    spec = tmp_path / "spec.yaml"
    spec.write_text(json.dumps(JOB), encoding="utf-8")
    status, out, _ = run("solve", str(spec))
    assert status == 0
    assert "within the model's error of 5.3%" in out
    status, out, _ = run("solve", str(spec), "--json")
    said = json.loads(out)["within_error"]
    assert status == 0
    assert said["error"] == pytest.approx(0.0529)
    assert said["shapes"] >= 1
    assert set(said["common"]) <= set(said["values"])
    plan = tmp_path / "plan.json"
    plan.write_text(out, encoding="utf-8")
    assert optplan.verify(plan).verdict == "verified"
    whole = json.loads(out)
    whole["within_error"]["shapes"] += 1
    assert optplan.verify(optplan.Result.model_validate(whole).sealed()).verdict == "not verified"
