"""``size``: the fewest devices that hold a job."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import optplan
from tests.optplan.command import run

POWERS = [1, 2, 4, 8, 16]


def job(architecture: str, **search: Any) -> dict[str, Any]:
    """Training with Adam and nothing shared among data ranks, on 80 GB devices."""
    return {
        "workload": {"architecture": architecture, "sequence_length": 2048},
        "cluster": {"accelerator": "a100-sxm-80gb", "nodes": 1},
        "search": {"global_batch": 64, "zero": 0, "cp": 1, **search},
    }


@pytest.mark.parametrize(
    ("architecture", "devices"), [("llama-2-7b", 2), ("falcon-40b", 16), ("llama-2-70b", 32)]
)
def test_minimum_clusters_of_a_published_faq(architecture: str, devices: int) -> None:
    """epfLLM/Megatron-LLM, FAQ and issue 6: degrees in powers of two, no ZeRO."""
    sizing = optplan.size(job(architecture, tp=POWERS[:4], pp=POWERS))
    assert (sizing.fewest.devices, sizing.fewest.proved) == (devices, True)


@pytest.mark.parametrize("search", [{}, {"recompute": "none"}, {"tp": [2, 4], "zero": [0, 1]}])
def test_one_device_less_is_too_few(search: dict[str, Any]) -> None:
    spec = job("llama-2-13b", **search)
    found = optplan.size(spec).fewest
    assert found.proved
    assert found.devices is not None
    assert found.plan is not None
    spec["cluster"]["nodes"] = found.nodes
    used = "tp * pp * dp * cp"
    on_so_many = optplan.solve(spec, limits=[f"{used} <= {found.devices}"])
    assert on_so_many.plan == found.plan
    assert optplan.solve(spec, limits=[f"{used} <= {found.devices - 1}"]).exit_code == 1


def test_nothing_holds_a_limit_that_no_cluster_meets() -> None:
    spec = job("llama-2-7b", pp=1, tp=1)
    found = optplan.size({**spec, "limits": ["peak_memory <= 1 GB"]})
    assert found.exit_code == 1
    assert found.fewest.devices is None


def test_the_command_tells_the_cheapest_cluster_in_time(tmp_path: Path) -> None:
    spec = tmp_path / "spec.yaml"
    asked = job("llama-2-7b")
    asked["cluster"]["price"] = "2.50 USD/h"
    spec.write_text(json.dumps(asked), encoding="utf-8")
    ask = ("size", str(spec), "--tokens", "2B", "--within", "30d", "--most-nodes", "2")
    status, out, err = run(*ask, "--json")
    assert (status, err) == (0, "")
    found = json.loads(out)["cheapest"]
    assert found["proved"]
    assert found["nodes"] in (1, 2)
    rate = 2.5 * found["devices"] * found["seconds"] / 3600
    assert found["money"] == pytest.approx(rate)
    status, out, _ = run(*ask)
    assert status == 0
    assert f"{found['seconds'] / 3600:.1f} h" in out
    assert "proved over every number of nodes up to 2" in out


def test_the_command_asks_about_other_devices(tmp_path: Path) -> None:
    spec = tmp_path / "spec.yaml"
    spec.write_text(json.dumps(job("llama-2-7b")), encoding="utf-8")
    status, out, err = run("size", str(spec), "--on", "h200-sxm-141gb", "--json")
    said = json.loads(out)
    assert (status, err) == (0, "")
    assert set(said["fewest"]) >= {"devices", "plan", "estimate"}
    assert said["others"][0]["devices"] < said["fewest"]["devices"]
    status, out, _ = run("size", str(spec))
    assert status == 0
    assert "one device less" in out
    for wrong in ("h2000", "tpu-v4,v100-sxm-32gb"):
        status, _, err = run("size", str(spec), "--on", wrong)
        assert status == 2
        assert "--on" in err
