"""Fits: constants that made a table are found again, and a prior speaks where runs are silent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import optplan
from optplan import catalogue
from optplan.calibrate import calibrate, fingerprint
from optplan.load import load_calibration
from optplan.models.errors import InputError
from tests.optplan.command import run
from tests.runs.made import SPREAD, table, timed

PRIOR = catalogue.calibration("generic")


def truth(**changes: Any) -> optplan.Calibration:
    """A calibration of somebody's machine."""
    return PRIOR.model_copy(update={"name": "truth", **changes})


def test_constants_that_made_the_runs_are_found_again(tmp_path: Path) -> None:
    real = truth(utilization_peak=0.6, link_efficiency=0.6)
    split = [{"tp": 8, "dp": 1, "micro_batch": size} for size in (1, 2, 4, 8)]
    path = timed(tmp_path, [*SPREAD, *split], real)
    names = ["utilization_peak", "link_efficiency"]
    spreads = dict.fromkeys(names, 2.0)
    found = calibrate([path], prior=PRIOR, constants=names, spreads=spreads, hold_out=False)
    fitted = found.calibration
    assert fitted.utilization_peak == pytest.approx(0.6, rel=0.03)
    assert fitted.link_efficiency == pytest.approx(0.6, rel=0.1)
    (source,) = found.sources
    assert source.error < 0.02
    inside = {c.name: c.low <= getattr(real, c.name) <= c.high for c in found.constants}
    assert inside["utilization_peak"]
    assert inside["link_efficiency"]


def test_launches_are_learned_from_small_layers(tmp_path: Path) -> None:
    real = truth(launch_seconds=3e-3)
    small = {"hidden_size": 512, "ffn_hidden_size": 2048, "num_heads": 8, "seq_len": 512}
    rows = [{**small, **row} for row in ({}, {"tp": 1, "dp": 8}, {"micro_batch": 4})]
    found = calibrate([timed(tmp_path, rows, real)], prior=PRIOR, hold_out=False)
    assert found.calibration.launch_seconds == pytest.approx(3e-3, rel=0.05)


@pytest.mark.parametrize("count", [1, 2])
def test_a_run_or_two_move_the_level_and_leave_the_rest_to_the_prior(
    count: int, tmp_path: Path
) -> None:
    real = truth(utilization_peak=0.5)
    found = calibrate([timed(tmp_path, SPREAD[:count], real)], prior=PRIOR)
    fitted, learned = found.calibration, {c.name: c.learned for c in found.constants}
    assert fitted.utilization_peak == pytest.approx(0.5, rel=0.2)
    assert fitted.utilization_peak < PRIOR.utilization_peak
    assert learned["utilization_peak"] > learned["hbm_efficiency"]
    for name in ("network_efficiency", "attention_loss", "launch_seconds", "reserve"):
        assert getattr(fitted, name) == getattr(PRIOR, name)


def test_one_absurd_run_moves_little(tmp_path: Path) -> None:
    path = timed(tmp_path, SPREAD, truth())
    lines = path.read_text(encoding="utf-8").splitlines()
    index = lines[0].split(",").index("step_time_s")
    cells = lines[2].split(",")
    cells[index] = str(20 * float(cells[index]))
    path.write_text("\n".join([*lines[:2], ",".join(cells), *lines[3:]]) + "\n", encoding="utf-8")
    found = calibrate([path], prior=PRIOR, hold_out=False)
    assert found.calibration.utilization_peak == pytest.approx(PRIOR.utilization_peak, rel=0.1)
    (far,) = found.far
    assert far.source_id == "made:1"
    assert far.error == pytest.approx(-0.95, abs=0.02)


def test_sources_weigh_alike_whatever_their_number_of_runs(tmp_path: Path) -> None:
    """Sixteen times as many runs pull some four times as hard, not sixteen times."""
    many = timed(tmp_path, SPREAD[:1] * 16, truth(utilization_peak=0.50), "many")
    few = timed(tmp_path, SPREAD[:1], truth(utilization_peak=0.52), "few")
    prior = PRIOR.model_copy(update={"utilization_peak": 0.504})
    found = calibrate([many, few], prior=prior, constants=["utilization_peak"], hold_out=False)
    assert 0.5025 < found.calibration.utilization_peak < 0.506


def test_what_is_left_out_is_counted(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"step_time_s": 3.0},
        {"tp": 3, "step_time_s": 3.0},
        {"outcome": "oom"},
        {},
        {"step_time_s": 2.0, "accelerator": "H100"},
    ]
    found = calibrate([table(tmp_path, *rows)], accelerator="a100", hold_out=False)
    assert sum(found.left_out.values()) == 4
    assert {"out of memory", "another accelerator"} <= set(found.left_out)


@pytest.mark.parametrize(
    ("rows", "options", "said"),
    [
        ([{}], {}, "no row can be fitted"),
        ([{"step_time_s": 1}, {"step_time_s": 1, "accelerator": "H100"}], {}, "several accel"),
        (
            [{"step_time_s": 1}, {"step_time_s": 1, "framework": "MaxText"}],
            {},
            "several software stacks",
        ),
        ([{"step_time_s": 1}], {"prior": "a-100"}, ""),
        ([{"step_time_s": 1}], {"prior": "nothing-like-it"}, "no calibration"),
        ([{"step_time_s": 1}], {"constants": ["luck"]}, "no constant"),
        ([{"step_time_s": 1}], {"accelerator": "v100-sxm-32gb"}, "no row can be fitted"),
    ],
)
def test_what_cannot_be_fitted_is_refused(
    rows: list[dict[str, Any]], options: dict[str, Any], said: str, tmp_path: Path
) -> None:
    path = table(tmp_path, *rows)
    if not said:
        assert calibrate([path], hold_out=False, **options).prior == "a100"
        return
    with pytest.raises(InputError, match=said):
        calibrate([path], **options)


def test_the_file_is_a_calibration_for_specs_and_for_validate(tmp_path: Path) -> None:
    path = timed(tmp_path, SPREAD, truth(utilization_peak=0.55))
    output = tmp_path / "ours.yaml"
    status, out, err = run(
        "calibrate", str(path), "-o", str(output), "--prior", "generic", "--json"
    )
    assert (status, err) == (0, "")
    said = json.loads(out)
    spec = {
        "workload": {"architecture": "llama-2-7b", "sequence_length": 2048},
        "cluster": {"accelerator": "a100-sxm-80gb", "nodes": 1},
        "search": {"global_batch": 16},
        "calibration": str(output),
    }
    loaded = optplan.load(spec).calibration
    assert loaded.name == "ours"
    assert loaded.utilization_peak == said["calibration"]["utilization_peak"]
    assert fingerprint(loaded) == said["hash"]
    status, out, err = run("validate", str(path), "--calibration", str(output), "--json")
    assert (status, err) == (0, "")
    assert json.loads(out)["all"]["time"]["mean_abs_pct"] < 3
    status, out, err = run("calibrate", str(path), "-o", str(output), "--prior", "generic")
    assert status == 0
    assert "utilization_peak" in out


def test_an_output_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    path = timed(tmp_path, SPREAD[:2], truth())
    target = tmp_path / "none" / "cal.yaml"
    status, _, err = run("calibrate", str(path), "-o", str(target), "--no-hold-out")
    assert status == 2
    assert "cannot write the file" in err
    assert len(err.splitlines()) == 1


def test_the_output_is_a_file_that_a_spec_can_name_and_no_table_is_lost(tmp_path: Path) -> None:
    path = timed(tmp_path, SPREAD[:2], truth())
    kept = path.read_bytes()
    twin = tmp_path / "twin.yaml"
    twin.hardlink_to(path)
    for output, said in ((tmp_path / "noext", ".yaml"), (twin, "this is a file that is read")):
        status, _, err = run("calibrate", str(path), "-o", str(output), "--no-hold-out")
        assert status == 2
        assert said in err
    assert path.read_bytes() == kept
    folder = tmp_path / "folder.yaml"
    folder.mkdir()
    status, _, err = run("calibrate", str(path), "-o", str(folder), "--no-hold-out")
    assert (status, err.count("\n")) == (2, 1)
    left = sorted(one.name for one in tmp_path.iterdir())
    assert left == ["folder.yaml", "made.csv", "twin.yaml"]


def test_a_link_is_followed_and_the_mode_is_kept(tmp_path: Path) -> None:
    path = timed(tmp_path, SPREAD[:1], truth())
    target, link = tmp_path / "target.yaml", tmp_path / "link.yaml"
    target.write_text("old", encoding="utf-8")
    target.chmod(0o640)
    link.symlink_to(target)
    assert run("calibrate", str(path), "-o", str(link), "--no-hold-out")[0] == 0
    assert link.is_symlink()
    assert "utilization_peak" in target.read_text(encoding="utf-8")
    assert target.stat().st_mode & 0o777 == 0o640


def test_equal_runs_are_left_out_together(tmp_path: Path) -> None:
    path = timed(tmp_path, SPREAD[:1] * 3, truth(utilization_peak=0.5))
    found = calibrate([path], prior=PRIOR)
    assert found.calibration.held_out is None
    assert "no run left out" in found.calibration.error


def test_many_runs_are_left_out_a_tenth_at_a_time(tmp_path: Path) -> None:
    rows = [{"global_batch": 16 * n, "model_name": ""} for n in range(1, 31)]
    said: list[str] = []
    path = timed(tmp_path, rows, truth(utilization_peak=0.5))
    found = calibrate([path], prior=PRIOR, constants=["utilization_peak"], progress=said.append)
    assert sum(line.startswith("fitting without") for line in said) == 10
    assert "tenths of the runs" in found.calibration.error


def test_a_fit_that_misses_everything_can_still_be_read_back(tmp_path: Path) -> None:
    rows = [{"step_time_s": 1.0}, {"step_time_s": 0.001, "num_layers": 26, "pp": 2}]
    output = tmp_path / "far.yaml"
    status, _, _ = run("calibrate", str(table(tmp_path, *rows)), "-o", str(output))
    assert status == 0
    held_out = load_calibration(output).held_out
    assert held_out is not None
    assert held_out > 1


def test_an_answer_warns_of_a_calibration_of_another_device(tmp_path: Path) -> None:
    path = timed(tmp_path, SPREAD[:1], truth())
    output = tmp_path / "ours.yaml"
    assert run("calibrate", str(path), "-o", str(output), "--no-hold-out")[0] == 0
    spec = {
        "workload": {"architecture": "llama-2-7b", "sequence_length": 2048},
        "cluster": {"accelerator": "h100-sxm-80gb", "nodes": 1},
        "search": {"global_batch": 16},
        "calibration": str(output),
    }
    said = optplan.solve(spec, top=0).warnings
    assert any("is of a100-sxm-80gb, not of h100-sxm-80gb" in text for text in said)
    spec["cluster"] = {"accelerator": "a100-sxm-80gb", "nodes": 1}
    assert not any("not of" in text for text in optplan.solve(spec, top=0).warnings)
