"""Plans become processes and rows; rows are read back as the plans they were."""

from __future__ import annotations

import json
import random
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from optplan.load import load
from optplan.measuring.measure import measure
from optplan.measuring.plans import narrowed, plans_of, runnable
from optplan.measuring.rows import COLUMNS, HEADER, Table, row_of
from optplan.measuring.seats import chunks_of, mesh_of, seat_of
from optplan.models.cost.estimate import step_seconds
from optplan.models.errors import InputError
from optplan.models.spec.plan import Plan
from optplan.models.spec.problem import Problem
from optplan.ranks.job import OUTCOMES, Ending, Outcome
from optplan.runs.express import express
from optplan.runs.table import COLUMNS as READ
from optplan.runs.table import read_runs
from optplan.validate import validate
from tests.machine import small

WIDE: dict[str, Any] = {
    "schedule": ["1f1b", "gpipe", "interleaved"],
    "zero": [0, 2, 3],
    "recompute": ["none", "full"],
}


@cache
def every() -> tuple[Problem, list[Plan]]:
    """Every layout of the small job on two devices that the engines can run."""
    whole = small.problem(**WIDE, sequence_parallel=[True, False], layers_per_stage="any")
    problem = narrowed(whole)
    return problem, plans_of(problem, "all")[0]


def test_every_layer_lies_on_one_chunk() -> None:
    """For random stages, chunks and layers, in the order in which a micro-batch meets them."""
    luck = random.Random(5)
    for _ in range(300):
        pp, vpp = luck.randint(1, 6), luck.randint(1, 3)
        layers = tuple(luck.randint(vpp, 9) for _ in range(pp))
        again = tuple(luck.randint(0, n) for n in layers)
        plan = Plan(
            tp=1,
            pp=pp,
            dp=1,
            micro_batch=1,
            micro_batches=1,
            global_batch=1,
            vpp=vpp,
            schedule="interleaved" if vpp > 1 else "1f1b",
            layers_per_stage=layers,
            recomputed_layers_per_stage=again,
        )
        chunks = [chunk for stage in range(pp) for chunk in chunks_of(plan, stage)]
        chunks.sort(key=lambda chunk: chunk.number)
        assert [layer for chunk in chunks for layer in chunk.layers] == list(range(sum(layers)))
        assert [chunk.first for chunk in chunks] == [True] + [False] * (pp * vpp - 1)
        assert [chunk.last for chunk in chunks] == [False] * (pp * vpp - 1) + [True]
        for stage in range(pp):
            own = chunks_of(plan, stage)
            assert sum(len(chunk.layers) for chunk in own) == layers[stage]
            assert sum(chunk.recomputed for chunk in own) == again[stage]
            assert all(chunk.recomputed <= len(chunk.layers) for chunk in own)


@pytest.mark.parametrize("order", ["data_inside", "pipeline_inside"])
def test_every_process_has_a_seat_of_its_own(order: str) -> None:
    plan = Plan(
        tp=2,
        pp=3,
        dp=4,
        micro_batch=1,
        micro_batches=1,
        global_batch=4,
        order=order,  # type: ignore[arg-type]
        layers_per_stage=(1, 1, 1),
        recomputed_layers_per_stage=(0, 0, 0),
    )
    seats = [seat_of(plan, rank) for rank in range(24)]
    assert len(set(seats)) == 24
    assert (seats[0].tp, seats[1].tp) == (0, 1)
    assert mesh_of(plan)[-1] == ("tp", 2)
    # The next tensor group is of the next data rank, or of the next stage.
    near = seats[2].dp if order == "data_inside" else seats[2].pp
    assert near == 1


def test_plans_differ_and_are_ordered() -> None:
    problem, plans = every()
    prices = [step_seconds(problem, plan) for plan in plans]
    assert prices == pytest.approx(sorted(prices), rel=1e-9)
    told = {
        (
            p.tp,
            p.pp,
            p.dp,
            p.micro_batch,
            p.schedule,
            p.vpp,
            p.sequence_parallel,
            p.zero,
            p.recompute,
        )
        for p in plans
    }
    assert len(told) == len(plans) > 30
    assert {p.schedule for p in plans} == {"1f1b", "gpipe", "interleaved"}
    assert {p.zero for p in plans if p.pp > 1} == {0}
    assert all(not runnable(problem, plan) for plan in plans)


def test_a_choice_of_plans() -> None:
    problem, plans = every()
    assert plans_of(problem, "top:3")[0] == plans[:3]
    some = plans_of(problem, "random:5", seed=1)[0]
    assert some == plans_of(problem, "random:5", seed=1)[0] != plans_of(problem, "random:5")[0]
    assert len(some) == 5
    assert all(plan in plans for plan in some)
    assert plans_of(problem, "random:9999")[0] == plans
    for wrong in ("most", "top:0", "top:-1", "random", "random:x", ""):
        with pytest.raises(InputError, match="write all, top:10 or random:10"):
            plans_of(problem, wrong)


@pytest.mark.parametrize(
    ("shape", "word"),
    [
        ({"dropout": True}, "dropout"),
        ({"sliding_window": 8}, "sliding_window"),
        ({"qk_norm": True}, "qk_norm"),
        ({"experts": {"count": 4, "per_token": 2, "ffn": 64}}, "experts"),
        ({"head_dim": 15}, "even width"),
    ],
)
def test_what_the_network_has_not_is_refused(shape: dict[str, object], word: str) -> None:
    with pytest.raises(InputError, match=word):
        narrowed(small.problem(shape))


def test_what_one_machine_cannot_run_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of it at once, before anything is written; and several batches are no fair comparison."""
    monkeypatch.setattr("optplan.measuring.measure.require_torch", lambda command: "2")
    wide = {"accelerator": {**small.MACHINE, "domain": 128}, "nodes": 2}
    path = tmp_path / "runs.csv"
    with pytest.raises(InputError) as refused:
        measure({**small.spec(), "cluster": wide}, path)
    assert [fault.path for fault in refused.value.faults] == [
        "cluster.nodes",
        "cluster.devices_per_node",
    ]
    with pytest.raises(InputError, match="one number"):
        measure(small.spec(global_batch=[8, 16]), path)
    assert not path.exists()


def test_what_engines_cannot_run_is_told() -> None:
    problem = narrowed(small.problem({"vocabulary": 255, "tied_embeddings": True}))
    plans, left = plans_of(problem, "all")
    assert {(p.tp, p.pp) for p in plans} == {(1, 1)}
    assert sum(left.values()) > 0
    assert any("vocabulary of 255" in reason for reason in left)
    assert any("tied embeddings" in reason for reason in left)


def test_a_row_is_read_back_as_its_plan(tmp_path: Path) -> None:
    """Through the table and the reader of measured runs: same plan, same price."""
    problem, plans = every()
    table = Table(tmp_path / "runs.csv")
    for number, plan in enumerate(plans):
        facts = {"framework": "pytorch 2", "step_time_s": 1.0, "peak_mem_gb": 0.25, "job": "j"}
        ending = Ending(outcome="ok")
        table.add(row_of(problem, plan, ending, f"runs:{number:04d}", facts))
    runs = read_runs([tmp_path / "runs.csv"])
    assert len(runs) == len(plans)
    for run, plan in zip(runs, plans, strict=True):
        device = problem.cluster.accelerator
        found = express(run, problem.calibration, device)
        assert len(found.plans) == 1
        back = found.plans[0]
        assert back.model_copy(update={"order": plan.order}) == plan
        assert step_seconds(found.problem, back) == pytest.approx(step_seconds(problem, plan))
        assert found.assumed == ()


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_every_outcome_is_a_row_that_validate_reads(outcome: Outcome, tmp_path: Path) -> None:
    problem, plans = every()
    path = tmp_path / "runs.csv"
    facts = {"framework": "pytorch 2", "note": f"[{outcome}] it\nended"}
    if outcome == "ok":
        facts["step_time_s"] = "0.5"
    Table(path).add(row_of(problem, plans[0], Ending(outcome=outcome), "runs:1", facts))
    (run,) = read_runs([path])
    assert run.outcome == outcome
    assert run.row_note.endswith(f"[{outcome}] it ended")
    machine = tmp_path / "machine.yaml"
    machine.write_text(machine_text(), encoding="utf-8")
    found = validate([path], calibration=machine)
    assert len(found.rows) == 1
    assert found.all.score.time.n == (outcome == "ok")
    assert found.all.score.oom.n == (outcome in ("ok", "oom"))


def machine_text() -> str:
    """Write the made-up machine as a profile does."""
    return json.dumps({"calibration": small.CALIBRATION, "accelerator": small.MACHINE})


def test_a_spec_names_the_file_of_a_machine(tmp_path: Path) -> None:
    (tmp_path / "machine.yaml").write_text(machine_text(), encoding="utf-8")
    told = {**small.spec(), "calibration": "machine.yaml"}
    told["cluster"] = {"accelerator": "machine.yaml", "nodes": 1}
    (tmp_path / "spec.yaml").write_text(json.dumps(told), encoding="utf-8")
    found = load(tmp_path / "spec.yaml")
    assert found.cluster == small.problem().cluster
    assert found.calibration.name == "machine"
    for text, word in (
        ("{calibration: {}}", "describes no accelerator"),
        ("", "describes no accelerator"),
        ("a: [", "a value is missing"),
        ("{accelerator: {name: x}}", "cluster.accelerator.peak"),
        ("{accelerator: 7}", "describes no accelerator"),
    ):
        (tmp_path / "machine.yaml").write_text(text, encoding="utf-8")
        with pytest.raises(InputError, match=word):
            load(tmp_path / "spec.yaml")
    (tmp_path / "machine.yaml").unlink()
    with pytest.raises(InputError, match=r"spec\.yaml:1:.*no such file"):
        load(tmp_path / "spec.yaml")


def test_the_header_is_that_of_measured_runs() -> None:
    assert set(READ) <= set(HEADER)
    assert len(set(COLUMNS)) == len(COLUMNS)


def test_a_table_is_gone_on_with(tmp_path: Path) -> None:
    """Also where its last row was cut off in the middle."""
    problem, plans = every()
    path = tmp_path / "runs.csv"
    table = Table(path)
    for plan in plans[:3]:
        table.add(row_of(problem, plan, Ending(outcome="ok"), "r", {"job": "j"}))
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    again = Table(path)
    assert len(again.rows) == 2
    assert len(again.done("j")) == 2
    assert again.done("another") == set()
    again.add(row_of(problem, plans[2], Ending(outcome="ok"), "r", {"job": "j"}))
    assert path.read_bytes() == whole


@pytest.mark.parametrize(
    "text",
    ["a,b\n1,2\n", "source_id\n", "\x00\n", ",".join(COLUMNS) + "\n1,2\n", '"' + "x\n" * 3],
)
def test_what_is_no_table_of_ours_is_left_alone(text: str, tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match="name a new file"):
        Table(path)
    assert path.read_text(encoding="utf-8") == text


def test_a_table_that_cannot_be_is_refused_at_once(tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "nowhere" / "runs.csv"):
        with pytest.raises(InputError):
            Table(place)
