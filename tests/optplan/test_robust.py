"""The robust plan against every plan at every corner, its box, and what is said of both."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import optplan
from optplan import catalogue
from optplan.box import axes_of, box_given, spread
from optplan.load import load, load_calibration
from optplan.models.errors import InputError
from optplan.robust import robust
from optplan.verify import verify
from tests.optplan.command import run
from tests.optplan.test_within import JOB
from tests.robust import Checked, check_robust


@pytest.mark.parametrize("seed", range(4))
def test_no_corner_exceeds_the_stated_regret(seed: int) -> None:
    """As ``python -m tests.robust`` does for any number of problems."""
    into = Checked()
    check_robust(seed, into)
    assert not into.wrong
    assert into.counts["problems"] == 1


def test_without_a_plan_at_some_corner_there_is_none_and_it_is_said() -> None:
    found = robust(JOB, box={"reserve": ["1 GiB", "79 GiB"]})
    assert found.plan is None
    assert found.worst_regret is None
    assert "no plan exists at reserve 8.48" in found.why
    assert found.solved < found.scenarios


def test_time_that_is_up_is_no_proof() -> None:
    found = robust(JOB, box={"link_efficiency": [0.1, 1.0]}, time_limit=1e-6)
    assert not found.proved
    assert found.plan is None
    assert found.why


def test_every_fault_of_a_box_is_told_at_once(tmp_path: Path) -> None:
    spec = tmp_path / "spec.yaml"
    spec.write_text(json.dumps(JOB), encoding="utf-8")
    wrong = ("overlap_dp=0..2", "colour=1..2", "link_efficiency", "reserve=1 s..2 GiB")
    status, out, err = run("solve", str(spec), "--robust", *(f"--box={one}" for one in wrong))
    assert (status, out) == (2, "")
    assert err.count("\n") == len(wrong)
    for said in ("cannot be 2", "'colour' is no constant", "is no interval", "1 s"):
        assert said in err
    with pytest.raises(InputError, match="lower end"):
        box_given(["link_efficiency=0.9..0.5"])
    nine = [f"{name}=0.1..0.9" for name in list(catalogue_constants())[:9]]
    with pytest.raises(InputError, match="512 corners"):
        box_given(nine)


def catalogue_constants() -> tuple[str, ...]:
    """Constants that lie between 0 and 1."""
    shares = ("utilization_peak", "utilization_fp8", "hbm_efficiency", "link_efficiency")
    more = ("network_efficiency", "overlap_tp", "fused_tp", "overlap_dp", "overlap_cp")
    return shares + more


def test_a_calibration_carries_the_intervals_of_its_fit(tmp_path: Path) -> None:
    own = catalogue.calibration("h100")
    assert own.intervals["hbm_efficiency"] == (0.3458, 0.6782)
    # h100-fsdp takes its matrix products from h100, and the memory of A100.
    based = catalogue.calibration("h100-fsdp")
    assert based.intervals["utilization_peak"] == own.intervals["utilization_peak"]
    assert "hbm_efficiency" not in based.intervals
    data = catalogue.entry("calibrations", "h100")
    file = tmp_path / "ours.yaml"
    whole = {key: data[key] for key in ("accelerators", "calibration", "fit")}
    file.write_text(json.dumps(whole), encoding="utf-8")
    assert load_calibration(file).intervals == own.intervals
    whole["calibration"] = {**data["calibration"], "intervals": {"launch_seconds": ["1 ms", 0.002]}}
    file.write_text(json.dumps(whole), encoding="utf-8")
    assert load_calibration(file).intervals == {**own.intervals, "launch_seconds": (0.001, 0.002)}


def test_intervals_are_no_part_of_the_question() -> None:
    """The plan does not depend on them, so neither does the certificate."""
    problem = load(JOB)
    assert problem.with_calibration(intervals={}).fingerprint == problem.fingerprint


def test_the_usual_box_names_where_each_interval_is_from() -> None:
    problem = load(JOB)
    best = optplan.solve(problem)
    assert best.plan is not None
    axes = axes_of(problem, None, [best.plan, *(other.plan for other in best.alternatives)])
    assert 1 <= len(axes) <= 4
    for axis in axes:
        assert axis.low <= axis.value <= axis.high
        assert axis.low < axis.high
        assert "fit of a100" in axis.origin or "what ships" in axis.origin
    low, high, origin = spread("network_efficiency")
    assert (low, high) == (0.253, 1.0)
    assert "a100-deepspeed" in origin


def test_the_command_adds_robust_plan_and_flips_to_both_forms(tmp_path: Path) -> None:
    spec = tmp_path / "spec.yaml"
    narrow: dict[str, Any] = {**JOB["search"], "tp": [2, 4], "micro_batch": [1, 2], "zero": 1}
    spec.write_text(json.dumps({**JOB, "search": narrow}), encoding="utf-8")
    asked = ("solve", str(spec), "--robust", "--box", "link_efficiency=0.2..1.0")
    status, out, err = run(*asked, "--json")
    assert (status, err) == (0, "")
    said = json.loads(out)
    found = said["robust"]
    assert found["proved"]
    assert found["scenarios"] == found["solved"] == 3
    assert found["bound"] <= found["worst_regret"] + 1e-12
    assert [axis["constant"] for axis in found["box"]] == ["link_efficiency"]
    assert said["flips"]["along"]
    result = optplan.Result.model_validate(said)
    assert result.computed_digest() == result.digest
    checks = {check.name: check.holds for check in verify(result).checks}
    assert checks["robust"]
    assert checks["flips"]
    from io import StringIO

    from rich.console import Console

    from optplan.report.terminal import show_result

    file = StringIO()
    show_result(Console(file=file, width=200), result, 5, False)
    text = file.getvalue()
    assert "proved over the corners" in text
    assert "inside of the box nothing is proved" in text
    assert "Where the recommendation changes" in text
