"""The experiment's comparison, on a made-up machine whose steps are the model's own with noise."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

import optplan
from optplan.files import save
from optplan.load import load
from optplan.measuring.plans import narrowed, plans_of
from optplan.measuring.rows import Table, row_of
from optplan.models.cost.estimate import step_seconds
from optplan.profiling.constants import Machine, fitted
from optplan.profiling.profile import calibration_text
from optplan.ranks.job import Ending
from tests import experiment
from tests.machine import test_fits

NOISE = 0.02


def fake_profile(machine: Path, processes: int, **more: Any) -> None:
    """Write the known machine as a profile would."""
    made = Machine("cpu", processes, 2, processes * 2**33, "2", f"cpu-x{processes}")
    fit = fitted(test_fits.timed(processes), made, "fp32")
    save(machine, {"": calibration_text(fit, made, (0.0, 0.0)).encode()})


def fake_measure(spec: Path, runs: Path, steps: int, **more: Any) -> None:
    """Write a table whose times are the model's with a little noise; one layout is killed."""
    problem, luck, table = narrowed(load(spec)), Random(1), Table(runs)
    for number, plan in enumerate(plans_of(problem, "all")[0]):
        seconds = step_seconds(problem, plan) * luck.lognormvariate(0.0, NOISE)
        facts = {
            "framework": "pytorch 2",
            "step_time_s": seconds,
            "step_low_s": 0.9 * seconds,
            "step_high_s": 1.1 * seconds,
            "loss_error": 1e-7,
        }
        killed = number == 5
        ending = Ending(outcome="killed" if killed else "ok")
        table.add(row_of(problem, plan, ending, f"r:{number}", {} if killed else facts))


@pytest.mark.parametrize("processes", ["2", "2,4"])
def test_the_experiment_compares(
    processes: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(optplan, "profile", fake_profile)
    monkeypatch.setattr(optplan, "measure", fake_measure)
    arguments = ["experiment", "--out", str(tmp_path), "--processes", processes]
    monkeypatch.setattr("sys.argv", arguments)
    experiment.main()
    out = capsys.readouterr().out
    groups = 2 * len(processes.split(","))
    assert out.count("The model: mean error") == groups
    assert out.count("Constant rho: mean error") == groups
    assert out.count("the lemma puts it at") == 2
    for line in out.splitlines():
        if line.startswith("The model"):
            own, flat = line.split("Constant rho")
            assert error(own) < 4.0 < error(flat)
    assert ("4 processes, oversubscribed" in out) == ("4" in processes)
    assert out.count("killed") >= groups


def error(text: str) -> float:
    """Mean error that a line tells."""
    return float(text.split("mean error ")[1].split(" %")[0])
