"""The command ``verify``: what solve wrote passes, and what was touched does not."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import optplan
from optplan.models.cost.price import TERMS
from optplan.read_back import read_result
from tests.optplan.command import ENGINES, JOBS, OPEN, job, run, solved

Change = Callable[[Any], Any]


def up(value: float) -> float:
    """A thousandth more."""
    return value * 1.001


def down(value: float) -> float:
    """A thousandth less."""
    return value * 0.999


def more(value: int) -> int:
    """One more."""
    return value + 1


def less(value: int) -> int:
    """One less."""
    return value - 1


def flip(value: bool) -> bool:
    """The other truth."""
    return not value


def to(value: object) -> Change:
    """Something else altogether."""
    return lambda _: value


TAMPERED: list[tuple[str, Change]] = [
    ("status.termination", to("time-limit-ish")),
    ("status.termination", to("failed")),
    ("status.holding", to("nothing")),
    ("status.holding", to("perfect")),
    ("plan.tp", more),
    ("plan.tp", to(8)),
    ("plan.pp", more),
    ("plan.pp", to(1)),
    ("plan.dp", more),
    ("plan.dp", less),
    ("plan.cp", more),
    ("plan.ep", more),
    ("plan.etp", more),
    ("plan.vpp", more),
    ("plan.micro_batch", more),
    ("plan.micro_batches", more),
    ("plan.micro_batches", less),
    ("plan.global_batch", more),
    ("plan.global_batch", less),
    ("plan.global_batch", to(2**31)),
    ("plan.schedule", to("gpipe")),
    ("plan.schedule", to("zb-h1")),
    ("plan.hsdp", flip),
    ("plan.context", to("ulysses")),
    ("plan.order", to("pipeline_inside")),
    ("plan.offload", flip),
    ("plan.sequence_parallel", flip),
    ("plan.zero", to(1)),
    ("plan.zero", to(3)),
    ("plan.recompute", to("full")),
    ("plan.layers_per_stage.0", more),
    ("plan.layers_per_stage.0", to(0)),
    ("plan.layers_per_stage", to([])),
    ("plan.layers_per_stage", lambda v: [v[0] + 1, v[1] - 1, *v[2:]]),
    ("plan.recomputed_layers_per_stage.0", more),
    ("plan", to(None)),
    ("estimate.step_seconds", up),
    ("estimate.step_seconds", down),
    ("estimate.tokens_per_second_per_device", up),
    ("estimate.mfu", up),
    *((f"estimate.terms.{term}", lambda v: up(v) + 1e-3) for term in TERMS),
    ("estimate.late_seconds", lambda v: v + 1e-3),
    ("estimate.memory.stages.0.recomputed", more),
    ("estimate.memory.peak_bytes", less),
    ("estimate.memory.capacity_bytes", more),
    ("estimate.memory.binding_stage", more),
    ("estimate.memory.stages.0.peak_bytes", less),
    ("estimate.memory.stages.0.layers", more),
    ("estimate.memory.stages.0.in_flight", less),
    ("estimate.memory.stages.0.micro_batch_seconds", down),
    ("estimate.memory.stages.0.parts.activations", less),
    ("estimate.memory.stages.0.parts.reserve", to(0)),
    ("estimate.memory.stages", to([])),
    ("estimate", to(None)),
    ("certificate.fingerprint", lambda v: v[:-1] + ("0" if v[-1] != "0" else "1")),
    ("certificate.goal", up),
    ("certificate.goal", down),
    ("certificate.goal", to(None)),
    ("certificate.bound", up),
    ("certificate.bound", down),
    ("certificate.bound", to(None)),
    ("certificate.bound", to(0.0)),
    ("certificate.unit", to("bytes")),
    ("certificate.bound_seconds", up),
    ("certificate.bound_seconds", to(None)),
    ("certificate.gap", to(0.5)),
    ("certificate.gap", to(1e-3)),
    ("certificate.gap", to(-1.0)),
    ("certificate.gap", to(None)),
    ("certificate.tick_seconds", to(1.0)),
    ("certificate.points", more),
    ("certificate.points", less),
    ("certificate.points", to(1)),
    ("certificate.strategies_log10", up),
    ("certificate.removed_by_bound", more),
    ("certificate.left", more),
    ("certificate.left", less),
    ("certificate.removed_by_rule.capacity.optimizer", more),
    ("certificate.removed_by_rule", to({})),
    ("certificate.removed_by_rule", lambda v: {**v, "degrees.heads": 1}),
    ("certificate.prunings", to({"Eq. 99": 1})),
    ("alternatives.0.step_seconds", down),
    ("alternatives.0.tokens_per_second_per_device", up),
    ("alternatives.0.peak_bytes", less),
    ("alternatives.0.behind", to(0.0)),
    ("alternatives.0.plan.tp", more),
    ("alternatives.0.plan.layers_per_stage", to([1])),
    ("verdict.holds", flip),
    ("verdict.broken", to({"degrees.world": "15 of 16 devices"})),
    ("verdict.kept", to({})),
    ("verdict", to(None)),
    ("warnings", to(["all is well"])),
    ("explanation.core", to([{"rule": "degrees.world", "sentence": "no", "text": ""}])),
    ("problem.workload.sequence_length", to(2048)),
    ("problem.workload.architecture.layers", to(16)),
    ("problem.workload.architecture.name", to("other")),
    ("problem.cluster.nodes", to(4)),
    ("problem.cluster.accelerator.hbm", to("80 GiB")),
    ("problem.search.global_batch", to({"min": 1, "max": 256, "multiple_of": 1})),
    ("problem.calibration.utilization_peak", to(1.0)),
    ("problem.calibration.error", to("0 %")),
    ("problem.limits", to([{"name": "mine", "rule": "tp <= 8"}])),
    ("problem.goal", to("most-headroom")),
    ("problem.prices", to("canonical")),
    ("problem.framework", to("megatron-core@0.15")),
    ("problem.overlap", to(["tp-overlap"])),
    ("problem.search.idle_devices", flip),
    ("format", more),
    ("format", to("1")),
]


def set_at(data: dict[str, Any], path: str, change: Change) -> dict[str, Any]:
    """Copy an answer with one field changed; a key may hold a dot."""
    tampered = copy.deepcopy(data)
    inside: Any = tampered
    keys = path.split(".")
    while len(keys) > 1 and not (isinstance(inside, dict) and ".".join(keys) in inside):
        key = keys.pop(0)
        inside = inside[int(key) if isinstance(inside, list) else key]
    last: str | int = int(keys[0]) if isinstance(inside, list) else ".".join(keys)
    before = inside[last]
    inside[last] = change(before)
    assert inside[last] != before, f"{path} was not changed"
    return tampered


def verified(folder: Path, data: object) -> tuple[int, str, str]:
    """Write an answer and verify it."""
    path = folder / "plan.json"
    path.write_text(json.dumps(data), encoding="utf-8")
    return run("verify", str(path))


@pytest.mark.parametrize(
    ("name", "engine"),
    [*product(JOBS, ENGINES), *product(OPEN, ("cp-sat", "milp", "exhaustive"))],
)
def test_what_solve_wrote_is_verified(name: str, engine: str, tmp_path: Path) -> None:
    """Every check holds, in the terminal and in JSON, and nothing else is printed."""
    path = tmp_path / "plan.json"
    path.write_text(solved(name, engine), encoding="utf-8")
    status, out, err = run("verify", str(path))
    assert (status, err) == (0, "")
    assert out.startswith("verified\n")
    status, out, err = run("verify", str(path), "--json")
    assert (status, err) == (0, "")
    answer = json.loads(out)
    assert answer["verdict"] == "verified"
    assert all(check["holds"] is True for check in answer["checks"])
    names = [check["name"] for check in answer["checks"]]
    assert {"fingerprint", "estimate", "rules", "gap", "points", "counts", "bound"} <= set(names)


@pytest.mark.parametrize(
    "options",
    [
        ("--limit", "peak_memory <= 20 GB"),
        ("--limit", "pp >= 2", "--set", "tp=[2, 4]"),
        ("--engine", "paper", "--time-limit", "1 us"),
        ("--engine", "exhaustive", "--set", "goal=most-headroom"),
        ("--set", "prices=canonical", "--top", "0"),
    ],
)
def test_every_kind_of_answer_is_verified(options: tuple[str, ...], tmp_path: Path) -> None:
    """No plan, narrowed, stopped, another goal, other prices: whatever solve says is checkable."""
    out = run("solve", job("baichuan2-7b"), "--json", *options)[1]
    status, said, err = verified(tmp_path, json.loads(out))
    assert (status, err) == (0, ""), said


COUNTED = [
    pair
    for pair in TAMPERED
    if pair[0].startswith(("certificate", "status")) and "capacity" not in pair[0]
]
"""What depends on the engine; the paper's prunes where others count what capacity removes."""


@pytest.mark.parametrize(
    ("path", "change", "engine"),
    [
        *((*pair, "cp-sat") for pair in TAMPERED),
        *((*pair, "paper") for pair in COUNTED),
    ],
    ids=[f"{i}-{path}" for i, (path, _) in enumerate([*TAMPERED, *COUNTED])],
)
def test_one_field_touched_is_not_verified(
    path: str, change: Change, engine: str, tmp_path: Path
) -> None:
    """Any single change is either refused as wrong (1) or as no plan of ours (2)."""
    data = json.loads(solved("baichuan2-7b", engine))
    status, out, err = verified(tmp_path, set_at(data, path, change))
    assert status in (1, 2), f"{path}: exit {status}\n{out}{err}"
    if status == 1:
        assert out.startswith("not verified\n")
        assert "FAILS" in out
    else:
        assert out == ""
        assert err.count("\n") == 1, err


@pytest.mark.parametrize("key", ["status", "plan", "estimate", "certificate", "problem", "format"])
def test_a_missing_part_is_refused(key: str, tmp_path: Path) -> None:
    data = json.loads(solved("baichuan2-7b", "cp-sat"))
    del data[key]
    status, out, err = verified(tmp_path, data)
    assert (status, out) == (2, "")
    assert err.count("\n") == 1, err
    assert key in err


def test_an_unknown_part_is_refused(tmp_path: Path) -> None:
    data = json.loads(solved("baichuan2-7b", "cp-sat"))
    status, _, err = verified(tmp_path, {**data, "note": "trust me"})
    assert (status, err.count("\n")) == (2, 1)
    assert "note" in err


def test_a_claim_that_no_plan_exists_is_checked(tmp_path: Path) -> None:
    """Plan and estimate taken out consistently: a plan exists, so the claim is refused."""
    data = json.loads(solved("baichuan2-7b", "cp-sat"))
    data |= {"plan": None, "estimate": None, "verdict": None, "alternatives": []}
    data["status"]["holding"] = "nothing"
    data["certificate"] |= {"goal": None, "bound": None, "gap": None, "bound_seconds": None}
    status, out, _ = verified(tmp_path, data)
    assert status == 1
    assert "a plan exists" in out


def test_a_worse_plan_dressed_as_the_best_is_refused(tmp_path: Path) -> None:
    """The optimum of a narrower question, put under the wider one with a bound to match."""
    spec = job("baichuan2-7b")
    worse = json.loads(run("solve", spec, "--json", "--set", "tp=8", "--top", "0")[1])
    data = json.loads(solved("baichuan2-7b", "cp-sat"))
    for key in ("plan", "estimate", "verdict", "alternatives"):
        data[key] = worse[key]
    for key in ("goal", "bound", "bound_seconds", "gap"):
        data["certificate"][key] = worse["certificate"][key]
    status, out, _ = verified(tmp_path, data)
    assert status == 1
    bound = next(line for line in out.splitlines() if line.split()[:1] == ["bound"])
    assert "FAILS" in bound


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "no JSON"),
        (b"{", "no JSON"),
        (b"\x00\xff\xfe\x01", "no JSON"),
        (b"[" * 100_000, "no JSON"),
        (b"[]", "no plan of this version"),
        (b"null", "no plan of this version"),
        (b'"format"', "no plan of this version"),
        (b"{}", "no plan of this version"),
        (b'{"format": 1}', "certificate: "),
        (b'{"format": 2}', "no plan of this version"),
        (b'{"format": 1, "plan": NaN}', "plan: "),
        (b"workload: {}\n", "no JSON"),
    ],
)
def test_another_file_is_refused(content: bytes, said: str, tmp_path: Path) -> None:
    """Exit 2, each fault on its own line with the file's name, and no traceback."""
    path = tmp_path / "other.json"
    path.write_bytes(content)
    status, out, err = run("verify", str(path))
    assert (status, out) == (2, "")
    assert all("other.json" in line for line in err.splitlines())
    assert said in err
    assert "Traceback" not in err


@pytest.mark.parametrize("name", ["nowhere.json", ".", "a\x00b"])
def test_a_file_that_cannot_be_read_is_refused(name: str, tmp_path: Path) -> None:
    status, out, err = run("verify", str(tmp_path / name))
    assert (status, out, err.count("\n")) == (2, "", 1), err
    assert "a fault of optplan" not in err


def test_python_verifies_a_result_and_a_path(tmp_path: Path) -> None:
    """The same function takes what solve returned, and reading gives back what was written."""
    result = optplan.solve(job("aquila2-7b"), top=1)
    path = tmp_path / "plan.json"
    path.write_text(result.to_json(), encoding="utf-8")
    assert optplan.verify(result) == optplan.verify(path)
    assert read_result(path) == result
