"""Layouts really trained in processes of their own; skipped without PyTorch."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from optplan.measuring.measure import LOSS_TOLERANCE, Measured, measure
from optplan.models.spec.plan import Plan
from optplan.profiling.samples import KINDS, Sample, Timing
from optplan.ranks.pool import Pool
from optplan.runs.table import read_runs
from optplan.validate import validate
from tests.machine import small
from tests.machine.test_rows import machine_text

pytestmark = small.needs_torch

WAIT = 240.0
"""Seconds that a layout of the tiny network may take on a crowded machine."""


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    """Import PyTorch once for all tests."""
    with Pool() as held:
        yield held


def trained(path: Path, search: dict[str, Any], pool: Pool, **more: Any) -> Measured:
    """Measure the tiny job for two steps."""
    shape = more.pop("shape", None)
    wait = more.pop("seconds", WAIT)
    steps = {"steps": 2, "warm_up": 1} | more
    return measure(small.spec(shape, **search), path, seconds=wait, pool=pool, **steps)


def equal(found: Measured) -> bool:
    """Whether all layouts ran and computed the losses of one process."""
    return len(found.losses) == 3 and all(
        one.outcome == "ok"
        and one.step_seconds
        and (one.loss_error or 0.0) <= LOSS_TOLERANCE["fp32"]
        for one in found.measurements
    )


def test_every_engine_computes_the_same_losses(tmp_path: Path, pool: Pool) -> None:
    """Tensor, sequence, data, pipeline parallel, FSDP, recomputed, interleaved, uneven."""
    path = tmp_path / "runs.csv"
    for search in (
        {"micro_batch": 2},
        {"tp": 2, "micro_batch": 4, "sequence_parallel": True},
        {"pp": 2, "micro_batch": 4, "schedule": "gpipe", "recompute": "full"},
        {"pp": 2, "micro_batch": 2, "schedule": "interleaved"},
        {"pp": 2, "micro_batch": 4, "layers_per_stage": [1, 3]},
        {"dp": 2, "micro_batch": 2, "zero": [2, 3]},
    ):
        found = trained(path, search, pool)
        assert equal(found), found
        assert found.measurements
    runs = read_runs([path])
    assert {(run.tp, run.pp, run.dp) for run in runs} == {(2, 1, 1), (1, 2, 1), (1, 1, 2)}
    assert len({run.source_id for run in runs}) == len(runs) >= 9
    machine = tmp_path / "machine.yaml"
    machine.write_text(machine_text(), encoding="utf-8")
    scored = validate([path], calibration=machine)
    assert len(scored.rows) == len(runs) == scored.all.score.time.n
    assert all(row.measured_peak_bytes for row in scored.rows)
    priced = {one.layout for one in found.measurements}
    assert priced <= {row.layout for row in scored.rows}


def test_another_architecture_and_degrees_together(tmp_path: Path, pool: Pool) -> None:
    """LayerNorm, biases, learned positions, two matrices; data ranks over tensor ranks."""
    shape = {
        "gated": False,
        "norm": "layernorm",
        "biases": "all",
        "learned_positions": 32,
        "kv_heads": 4,
        "layers": 2,
    }
    two = {**small.spec(shape, tp=2, dp=2, micro_batch=4)}
    two["cluster"] = {"accelerator": {**small.MACHINE, "domain": 4}, "nodes": 1}
    found = measure(two, tmp_path / "runs.csv", steps=2, warm_up=1, seconds=WAIT, pool=pool)
    assert equal(found), found
    assert found.measurements[0].plan.devices == 4


def test_a_killed_process_is_a_row_and_the_rest_goes_on(tmp_path: Path, pool: Pool) -> None:
    """And what was measured before is not measured again."""
    path, hit = tmp_path / "runs.csv", list[Plan]()

    def kill(plan: Plan, pids: list[int]) -> None:
        if plan.dp == 2 and not hit:
            hit.append(plan)
            os.kill(pids[1], signal.SIGKILL)

    found = trained(path, {"dp": 2, "micro_batch": [1, 4]}, pool, started=kill)
    assert [one.outcome for one in found.measurements] == ["killed", "ok"]
    assert "SIGKILL" in found.measurements[0].detail
    runs = read_runs([path])
    assert [run.outcome for run in runs] == ["killed", "ok"]
    assert runs[0].step_time_s is None
    assert runs[0].says("[killed]")
    again = trained(path, {"dp": 2, "micro_batch": [1, 4]}, pool)
    assert (again.before, again.measurements) == (2, ())
    assert read_runs([path]) == runs


def test_a_hung_process_is_a_row(tmp_path: Path, pool: Pool) -> None:
    """A process that stands still is waited for as long as was said, and all are ended."""
    held: list[int] = []

    def stop(plan: Plan, pids: list[int]) -> None:
        if plan.dp == 2:
            held.extend(pids)
            os.kill(pids[1], signal.SIGSTOP)

    found = trained(
        tmp_path / "runs.csv", {"dp": 2, "micro_batch": 4}, pool, started=stop, seconds=45.0
    )
    assert [one.outcome for one in found.measurements] == ["hung"]
    (run,) = read_runs([tmp_path / "runs.csv"])
    assert (run.outcome, run.says("not finished after 45 s")) == ("hung", True)
    for pid in held:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_a_layout_that_does_not_fit_is_a_row(tmp_path: Path, pool: Pool) -> None:
    """The limit lets a vocabulary of 64 thousand not be held twice over with its gradients."""
    shape = {"vocabulary": 64_000, "hidden": 512, "layers": 2, "kv_heads": 4}
    found = trained(
        tmp_path / "runs.csv",
        {"dp": 2, "micro_batch": 4},
        pool,
        shape=shape,
        memory_bytes=450 * 2**20,
    )
    assert [one.outcome for one in found.measurements] == ["oom"]
    assert found.losses == ()
    assert "one process alone ended: oom" in found.notes[0]
    (run,) = read_runs([tmp_path / "runs.csv"])
    assert (run.outcome, run.peak_mem_gb, run.step_time_s) == ("oom", None, None)


def test_nothing_is_left_when_the_caller_stops(tmp_path: Path) -> None:
    """An interrupt in the middle leaves whole rows and no process."""
    held: list[int] = []

    def interrupt(plan: Plan, pids: list[int]) -> None:
        held.extend(pids)
        if plan.dp == 2:
            threading.Timer(0.05, signal.raise_signal, [signal.SIGINT]).start()

    with Pool() as own:
        found = trained(tmp_path / "runs.csv", {"dp": 2, "micro_batch": 4}, own, started=interrupt)
    assert (found.left, found.measurements, found.exit_code) == (1, (), 3)
    assert "interrupted" in found.notes[-1]
    deadline = time.monotonic() + 30.0
    while time.monotonic() < deadline and any(map(_alive, held)):
        time.sleep(0.05)
    assert not any(map(_alive, held))


def _alive(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_every_kind_of_sample_is_timed(pool: Pool) -> None:
    """The smallest of each kind, by two processes in step."""
    where = {"micro_batch": 1, "sequence": 16, "hidden": 64}
    several: dict[str, dict[str, int]] = {
        "matmul": {"hidden": 32},
        "stream": {"payload_bytes": 4096},
        "optimizer": {"count": 250_000},
        "pipeline": {**where, "group": 2, "count": 2},
        "data_alone": {**where, "group": 2, "count": 1},
        "data_synced": {**where, "group": 2, "count": 1},
        "head": {**where, "count": 128},
        "head_memory": {**where, "count": 4096},
        "tensor_layer": {**where, "ways": 2},
        "idle_memory": {},
    }
    carried = {"group": 2, "payload_bytes": 4096}
    collectives = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "p2p")
    several |= {kind: carried for kind in collectives}
    samples = [
        Sample(kind=kind, **several.get(kind, {**where, "ways": 2})).model_dump() for kind in KINDS
    ]
    arguments = {"samples": samples, "needed": 2, "budget": 500.0, "precision": "fp32"}
    ending = pool.run("optplan.profiling.rank:profile", 2, arguments, 550.0)
    assert ending.outcome == "ok", ending.detail
    first, second = ending.results
    assert (first["refused"], first["skipped"], second["timings"]) == ({}, [], [])
    timings = [Timing.model_validate(one) for one in first["timings"]]
    assert [t.sample.kind for t in timings] == list(KINDS)
    assert all(t.low <= t.seconds <= t.high for t in timings)
    assert all(t.seconds > 0 for t in timings)


def test_processes_started_anew_do_the_same() -> None:
    """As accelerators need it."""
    with Pool(spawn=True) as own:
        ending = own.run("optplan.ranks.devices:count", 2, {}, WAIT)
    assert ending.outcome == "ok", ending.detail
    assert ending.results[0] == ending.results[1]
