"""Scores: numbers that follow from made-up runs by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from optplan import catalogue
from optplan.models.errors import InputError
from optplan.runs.predict import Prediction
from optplan.runs.score import errors, out_of_memory, ranking
from optplan.validate import validate
from tests.optplan.command import run
from tests.runs.made import SPREAD, table, timed

TRUTH = catalogue.calibration("a100")


def prediction(**changes: object) -> Prediction:
    """A row that was priced."""
    values = {
        "source_id": "x:1",
        "file": "x",
        "place": "x.csv:2",
        "predicted_step_seconds": 1.0,
        "predicted_peak_bytes": 10,
        "predicted_fits": True,
        "calibration": "a100",
        "layout": "tp1",
        "group": "g",
        "complete": True,
        **changes,
    }
    return Prediction.model_validate(values)


def test_runs_that_the_model_made_have_no_error(tmp_path: Path) -> None:
    found = validate([timed(tmp_path, SPREAD, TRUTH)], calibration=TRUTH)
    assert found.all.score.time.max == pytest.approx(0.0, abs=1e-5)
    worse = found.all.ablations
    assert all(worse[name].mean_abs_pct for name in ("constant rho", "no communication"))


def test_errors_are_told_apart() -> None:
    found = errors([0.1, -0.3, None, 0.2])
    assert found.n == 3
    assert found.median == pytest.approx(20.0)
    assert found.bias == pytest.approx(0.0)
    assert found.mean_abs_pct == pytest.approx(20.0)
    assert found.max == pytest.approx(30.0)
    assert errors([None]).mean_abs_pct is None


def test_alarms_are_counted_on_complete_rows() -> None:
    rows = [
        prediction(measured_outcome="oom", predicted_fits=False),
        prediction(measured_outcome="oom", predicted_fits=True),
        prediction(measured_outcome="ok", predicted_fits=False),
        prediction(measured_outcome="ok", predicted_fits=True),
        prediction(measured_outcome="ok", predicted_fits=False, complete=False),
        prediction(measured_outcome=""),
    ]
    found = out_of_memory(rows)
    assert (found.n, found.labels, found.foretold, found.false_alarms) == (4, 2, 1, 1)
    assert (found.precision, found.recall) == (0.5, 0.5)


def test_regret_is_what_the_choice_costs() -> None:
    rows = [
        prediction(layout=name, predicted_step_seconds=p, measured_step_seconds=m)
        for name, p, m in (("a", 1.0, 2.2), ("b", 2.0, 2.0), ("c", 3.0, 3.0), ("c", 3.0, 5.0))
    ]
    found = ranking(rows)
    assert found.groups == 1
    assert found.top1_regret_pct == pytest.approx(10.0)
    assert found.kendall_tau == pytest.approx(1 / 3)
    assert ranking(rows[:2]).groups == 0


def test_a_row_is_never_dropped_in_silence(tmp_path: Path) -> None:
    path = table(tmp_path, {"step_time_s": 3.0}, {"tp": 3}, {"global_batch": "", "micro_batch": ""})
    found = validate([path], ablations=False)
    assert (found.all.rows, found.all.priced, len(found.left_out)) == (3, 1, 2)
    assert sum(found.all.left_out.values()) == 2
    assert all(one.reason and one.place for one in found.left_out)


def test_an_open_cell_shows_its_range(tmp_path: Path) -> None:
    (row,) = validate([table(tmp_path, {"micro_batch": "", "step_time_s": 3.0})]).rows
    assert row.predicted_step_range is not None
    low, high = row.predicted_step_range
    assert low <= row.predicted_step_seconds <= high
    assert low < high
    assert not row.complete


def test_the_json_has_the_keys_of_the_design(tmp_path: Path) -> None:
    path = table(tmp_path, {"step_time_s": 3.0, "peak_mem_gb": 30}, {"outcome": "oom"})
    status, out, err = run("validate", str(path), "--json")
    assert (status, err) == (0, "")
    found = json.loads(out)
    one = found["rows"][0]
    assert {
        "source_id", "predicted_step_seconds", "predicted_peak_bytes", "predicted_fits",
        "measured_step_seconds", "measured_peak_bytes", "measured_outcome", "error",
    } <= set(one)  # fmt: skip
    for part in (found["all"], found["files"]["made"]):
        assert {"n", "mean_abs_pct", "median", "p90", "max", "bias"} <= set(part["time"])
        assert {"n", "precision", "recall"} <= set(part["oom"])
        assert {"groups", "kendall_tau", "top1_regret_pct"} <= set(part["ranking"])
        assert set(part["memory"]) == set(part["time"])
    assert found["rows"][1]["error"] is None


def test_the_screen_says_the_same(tmp_path: Path) -> None:
    path = table(tmp_path, {"step_time_s": 3.0, "peak_mem_gb": 30}, {"tp": 3})
    status, out, _ = run("validate", str(path), "--rows")
    assert status == 0
    assert "made:1" in out
    assert "not priced: 1 row," in out
    assert "constant rho" in out
    status, _, err = run("validate", str(path), "--calibration", "none-such")
    assert status == 2
    assert "no calibration" in err
    status, _, err = run("validate", str(path), "--calibration", "none-such.yaml")
    assert status == 2
    assert "no such file" in err


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"micro_batch": 64, "tp": 1, "pp": 1, "dp": 16}, "no multiple of micro-batch"),
        ({"accelerator": "X1", "peak_bf16_tflops": 1e17}, "peak"),
        ({"accelerator": "X" * 300}, "at most"),
        ({"num_experts": 8, "top_k": 2, "row_note": "expert-tensor-parallel 0"}, "etp 0"),
    ],
)
def test_rows_that_contradict_themselves_are_counted_and_not_priced(
    row: dict[str, Any], said: str, tmp_path: Path
) -> None:
    found = validate([table(tmp_path, {}, row)])
    (left,) = found.left_out
    assert said in left.reason


def test_servers_that_do_not_divide_a_rack_are_left_apart(tmp_path: Path) -> None:
    row = {"accelerator": "h100-sxm-80gb", "num_devices": 10, "devices_per_node": 4, "tp": 2}
    found = validate([table(tmp_path, {**row, "pp": 1, "dp": 5, "global_batch": 60})])
    assert len(found.rows) + len(found.left_out) == 1


def test_tables_of_one_name_are_told_apart(tmp_path: Path) -> None:
    paths = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        paths.append(table(tmp_path / name, {"step_time_s": 3.0}, name="runs"))
    assert len(validate(paths).files) == 2
    with pytest.raises(InputError, match="more than once"):
        validate([paths[0], paths[0]])
