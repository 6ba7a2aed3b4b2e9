"""A sweep: one row a problem, whatever comes of it, in a table that outlives its run."""

from __future__ import annotations

import csv
import io
import json
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import optplan
from optplan.models.errors import InputError
from optplan.report.sweeps import page
from optplan.sweep import Progress, Sweep
from optplan.sweeps import pool
from optplan.sweeps.points import RESULTS
from optplan.sweeps.store import Lock
from tests.optplan.command import run, script
from tests.sweep_kills import MAIN, SPEC, alike

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals as on POSIX")

OVER = [
    "nodes=1, 2, 4",
    "network=[400 Gb/s, 50 GB/s]",
    "accelerator=[h100-sxm-80gb, v100-sxm-32gb]",
    "tp=[1, 3]",
]
"""24 problems: 12 without bf16, 6 without a plan; half of the others are the same once more."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a spec."""
    found = tmp_path_factory.mktemp("sweep")
    (found / "spec.yaml").write_text(SPEC, encoding="utf-8")
    return found


@pytest.fixture(scope="module")
def swept(folder: Path) -> Sweep:
    """A small sweep, by one worker."""
    return optplan.sweep(folder / "spec.yaml", OVER, path=folder / "t.sqlite", workers=1)


def dicts(sweep: Sweep) -> list[dict[str, Any]]:
    """Rows by column."""
    return list(sweep.table().to_dicts())


def test_every_problem_is_a_row_with_its_status(swept: Sweep) -> None:
    assert swept.total == len(swept.rows) == 24
    assert swept.counts() == {"input": 12, "infeasible": 6, "optimal": 6}
    assert swept.columns == (
        *("number", "nodes", "network", "accelerator", "search_tp"),
        *RESULTS,
    )
    for row in dicts(swept):
        if row["accelerator"].startswith("v100"):
            assert "precision bf16 has no peak" in row["reason"]
        elif row["search_tp"] == 3:
            assert row["reason"] == "search.tp: no value asked for is possible here"
            assert (row["tp"], row["step_seconds"]) == (None, None)
    assert swept.exit_code == 0


def test_a_row_says_what_solve_says(swept: Sweep, folder: Path) -> None:
    row = next(row for row in dicts(swept) if row["status"] == "optimal" and row["nodes"] == 2)
    sets = ["nodes=2", "network=400 Gb/s", "tp=1"]
    result = optplan.solve(folder / "spec.yaml", sets=sets, top=0)
    assert result.plan is not None
    assert result.estimate is not None
    for name in ("tp", "pp", "dp", "schedule", "sequence_parallel", "zero", "offload"):
        assert row[name] == getattr(result.plan, name), name
    assert row["step_seconds"] == result.estimate.step_seconds
    assert row["tokens_per_second"] == 16 * result.estimate.tokens_per_second_per_device
    assert row["bound_seconds"] == result.certificate.bound_seconds
    assert row["gap"] == result.certificate.gap
    assert row["fingerprint"] == result.certificate.fingerprint == result.problem.fingerprint
    assert row["devices"] == 16


def test_the_same_problem_in_other_words_is_solved_once(swept: Sweep) -> None:
    """50 GB/s is 400 Gb/s; the time it took tells that one answer was copied."""
    rows = [row for row in dicts(swept) if row["fingerprint"]]
    by_mark: dict[str, set[float]] = {}
    for row in rows:
        by_mark.setdefault(row["fingerprint"], set()).add(row["seconds"])
    assert len(rows) == 12
    assert len(by_mark) == 6
    assert all(len(seconds) == 1 for seconds in by_mark.values())


def test_the_same_command_again_solves_nothing(
    swept: Sweep, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*given: object) -> None:
        raise AssertionError("a worker was asked")

    monkeypatch.setattr(pool, "_launched", refuse)
    again = optplan.sweep(folder / "spec.yaml", OVER, path=folder / "t.sqlite", workers=1)
    assert again.rows == swept.rows
    assert optplan.read_sweep(folder / "t.sqlite") == swept
    assert not (folder / "t.sqlite.lock").exists()


def test_what_is_missing_is_solved_anew_and_alike(swept: Sweep, folder: Path) -> None:
    """The table does not depend on the order in which its rows came."""
    base = sqlite3.connect(folder / "t.sqlite")
    with base:
        base.execute("DELETE FROM sweep WHERE number % 3 = 0 AND status = 'optimal'")
    base.close()
    news: list[Progress] = []
    again = optplan.sweep(
        folder / "spec.yaml", OVER, path=folder / "t.sqlite", workers=1, progress=news.append
    )
    assert alike(again.table()) == alike(swept.table())
    assert news[-1].left == 0
    assert 0 < news[0].done <= 24


@pytest.mark.parametrize(
    ("over", "changed", "told"),
    [
        ([*OVER[:3], "tp=[1, 2]"], {}, "not the same axes"),
        (OVER, {"limits": ["pp <= 2"]}, "not the same spec"),
        (OVER, {"sets": ["sequence_length=4096"]}, "not the same spec"),
        (OVER, {"engine": "exhaustive"}, "not the same engine"),
    ],
)
def test_a_table_of_another_sweep_is_left_alone(
    swept: Sweep, folder: Path, over: list[str], changed: dict[str, Any], told: str
) -> None:
    before = (folder / "t.sqlite").read_bytes()
    with pytest.raises(InputError, match=told):
        optplan.sweep(folder / "spec.yaml", over, path=folder / "t.sqlite", **changed)
    assert (folder / "t.sqlite").read_bytes() == before
    assert not (folder / "t.sqlite.lock").exists()


def test_two_runs_do_not_write_one_table(swept: Sweep, folder: Path) -> None:
    held = Lock(folder / "t.sqlite")
    try:
        with pytest.raises(InputError, match="another run is writing this table"):
            optplan.sweep(folder / "spec.yaml", OVER, path=folder / "t.sqlite")
        assert len(optplan.read_sweep(folder / "t.sqlite").rows) == 24
    finally:
        held.release()
    Lock(folder / "t.sqlite").release()


def test_a_lock_left_behind_by_a_killed_run_is_none(swept: Sweep, folder: Path) -> None:
    (folder / "t.sqlite.lock").write_text("1", encoding="utf-8")
    again = optplan.sweep(folder / "spec.yaml", OVER, path=folder / "t.sqlite")
    assert len(again.rows) == 24


@pytest.mark.parametrize("content", [b"", b"not a database" * 100])
def test_another_file_is_never_taken_for_a_table(folder: Path, content: bytes) -> None:
    path = folder / "other.sqlite"
    path.write_bytes(content)
    with pytest.raises(InputError, match="this is no table of a sweep"):
        optplan.sweep(folder / "spec.yaml", ["nodes=1"], path=path)
    assert path.read_bytes() == content
    with pytest.raises(InputError, match="this is no table of a sweep"):
        optplan.read_sweep(path)
    path.unlink()
    base = sqlite3.connect(path)
    base.execute("CREATE TABLE sweep (number)")
    base.close()
    with pytest.raises(InputError, match="this is no table of a sweep"):
        optplan.sweep(folder / "spec.yaml", ["nodes=1"], path=path)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (
            ("--over", "nodes=1..2", "-o", "no/such/folder/t.sqlite"),
            "lies in no folder that is there",
        ),
        (("--over", "nodes=1..2", "-o", "x" * 300), "cannot write the file: File name too long"),
        (("--over", "nodes=1..2", "-o", "a\0b"), "cannot write the file: embedded null"),
        (("--over", "nodes=1", "--plot", "no/folder.svg"), "lies in no folder that is there"),
        (("--over", "nodes=1", "--memory-limit", "1 B"), "less than a worker itself takes"),
        (("--over", "nodes.=1"), "'nodes.' is no key"),
        (("--over", "nodes=1..2", "-o", "."), "directory"),
        (("--over", "nodes=0..2", "--set", "tp=x"), "search.tp: 'x' is no whole number"),
        (("--over", "nodes=-1, 0"), "--over cluster.nodes"),
        (("--over", "nodes=1", "--plot", "p.png"), "let it end in .html or .svg"),
        (("--over", "nodes=1", "--memory-limit", "4"), "--memory-limit"),
        (("--over", "nodes=1", "--workers", "0"), "--workers"),
        (("--over", "nodes=1", "--engine", "cpsat"), "cp-sat"),
        (("--over", "nodes=1", "--time-limit", "0 s"), "--time-limit"),
        (("--over", "nodes=1", "--table", "t.sqlite"), "leave SPEC and --over out"),
        ((), "there is nothing to sweep over"),
    ],
)
def test_wrong_input_is_told_and_nothing_is_written(
    arguments: tuple[str, ...], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("spec.yaml").write_text(SPEC, encoding="utf-8")
    status, out, err = run("sweep", "spec.yaml", *arguments)
    assert (status, out) == (2, ""), err
    assert told in err
    assert [path.name for path in tmp_path.iterdir()] == ["spec.yaml"]


def test_the_spec_is_never_overwritten(tmp_path: Path) -> None:
    spec = tmp_path / "spec.sqlite"
    spec.write_text(SPEC, encoding="utf-8")
    status, _, err = run("sweep", str(spec), "--over", "nodes=1", "-o", str(spec))
    assert (status, "this is a file that is read" in err) == (2, True)
    assert spec.read_text(encoding="utf-8") == SPEC


def test_the_screen_and_the_json_tell_the_same(swept: Sweep, folder: Path) -> None:
    status, out, err = run("sweep", "--table", str(folder / "t.sqlite"))
    assert (status, err) == (0, "")
    assert "24 problems over nodes (3) x network (2) x accelerator (2) x search_tp (2)" in out
    assert "12 input, 6 infeasible, 6 optimal" in out
    assert "Best by nodes" in out
    assert "search.tp" in out
    status, out, err = run("sweep", "--table", str(folder / "t.sqlite"), "--json")
    said = json.loads(out)
    assert said["counts"] == {"input": 12, "infeasible": 6, "optimal": 6}
    assert len(said["rows"]) == 24
    assert said["by_axis"]["search_tp"][1]["layout"] == ""
    assert sum(one["count"] for one in said["reasons"]) == 18


def test_the_table_leaves_as_csv_and_frame(swept: Sweep, folder: Path) -> None:
    target = folder / "t.csv"
    status, _, err = run("sweep", "--table", str(folder / "t.sqlite"), "-o", str(target))
    assert (status, err) == (0, "")
    rows = list(csv.DictReader(io.StringIO(target.read_text(encoding="utf-8"))))
    assert [row["step_seconds"] for row in rows] == [
        "" if row["step_seconds"] is None else repr(row["step_seconds"]) for row in dicts(swept)
    ]
    pandas = pytest.importorskip("pandas")
    frame = swept.table().to_frame()
    assert isinstance(frame, pandas.DataFrame)
    assert list(frame["number"]) == list(range(24))


def test_the_table_leaves_as_parquet(swept: Sweep, folder: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    target = folder / "t.parquet"
    status, _, err = run("sweep", "--table", str(folder / "t.sqlite"), "-o", str(target))
    assert (status, err) == (0, "")
    held = parquet.read_table(target)
    assert held.column("step_seconds").to_pylist() == list(swept.table().column("step_seconds"))


# -- failures of every kind, each by a rule that brings it about ----------------------------------

TROUBLE = """
import os, signal, sys, time
import numpy as np
import optplan

class Trouble(optplan.Rule):
    name = "test.trouble"
    sentence = "brings trouble on some clusters"
    source = "a test"

    def post(self, say, problem):
        nodes = problem.cluster.nodes
        if nodes == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        if nodes == 3:
            print("noise on standard output")
            time.sleep(3600)
        if nodes == 4:
            held = np.ones(2**31)
        if nodes == 5:
            raise ValueError("a fault of the rule's own")
        if nodes == 6:
            os._exit(3)

    def holds(self, problem, plan, estimate):
        yield optplan.Finding(self.name, True, "no trouble")
"""


def test_every_failure_is_a_row_and_the_rest_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed, hung, out of memory, a rule that fails, a worker that leaves: each says so."""
    monkeypatch.setattr(pool, "patience", lambda limit: 20.0)
    monkeypatch.setattr(pool, "TRIES", 2)
    spec, rules = tmp_path / "spec.yaml", tmp_path / "trouble.py"
    spec.write_text(SPEC, encoding="utf-8")
    rules.write_text(TROUBLE, encoding="utf-8")
    table = tmp_path / "t.sqlite"
    arguments = ["--rules", str(rules), "--rules", "none", "-o", str(table), "--workers", "2"]
    arguments += ["--memory-limit", "4 GiB", "--json"]
    status, out, err = run("sweep", str(spec), "--over", "nodes=1..7", *arguments)
    assert (status, err) == (3, "")
    found = optplan.read_sweep(table)
    rows = dicts(found)
    assert [row["status"] for row in rows] == [
        *("optimal", "killed", "time-limit", "memory-limit", "input", "killed", "optimal")
    ]
    assert [row["nodes"] for row in rows] == [1, 2, 3, 4, 5, 6, 7]
    assert rows[1]["reason"] == "2 workers ended over it, the last one by SIGKILL"
    assert "did not stop by itself" in rows[2]["reason"]
    line = 1 + TROUBLE[: TROUBLE.index("raise")].count("\n")
    told = f"{rules}:{line}: test.trouble: the rule fails: ValueError: a fault of the rule's own"
    assert told in rows[4]["reason"]
    assert rows[5]["reason"] == "2 workers ended over it, the last one with status 3"
    assert json.loads(out)["rules"] == ["test.trouble"]
    assert found.exit_code == 3


def test_what_was_not_settled_is_done_again_when_asked(folder: Path, tmp_path: Path) -> None:
    table = tmp_path / "t.sqlite"
    hasty: dict[str, Any] = {"path": table, "workers": 1}
    first = optplan.sweep(folder / "spec.yaml", ["nodes=1, 2"], time_limit=1e-6, **hasty)
    assert set(first.counts()) == {"time-limit"}
    assert first.exit_code == 3
    again = optplan.sweep(folder / "spec.yaml", ["nodes=1, 2"], **hasty)
    assert again.rows == first.rows
    patient = optplan.sweep(folder / "spec.yaml", ["nodes=1, 2"], retry=True, **hasty)
    assert patient.counts() == {"optimal": 2}


# -- stopped ---------------------------------------------------------------------------------------


def test_ctrl_c_ends_with_what_is_done_and_the_rest_follows(folder: Path, tmp_path: Path) -> None:
    table = tmp_path / "t.sqlite"
    call = ["sweep", str(folder / "spec.yaml"), "--over=global_batch=64..6400+64"]
    call += ["--over=nodes=1, 2", "-o", str(table), "--workers", "1"]
    # Whoever runs the tests in the background has them ignore the signal.
    heard = "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
    command = [sys.executable, "-c", script(heard + MAIN), *call]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    start = time.monotonic()
    while not table.exists() or not optplan.read_sweep(table).rows:
        assert process.poll() is None
        assert time.monotonic() - start < 240
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=240)
    assert process.returncode == 3
    assert "Traceback" not in err
    # The signal may come between two steps, where the command can say no more than that.
    told = "are left; the same command goes on with them" in out
    assert told or err.strip().startswith("interrupted"), err
    held = optplan.read_sweep(table)
    assert 0 < len(held.rows) < 200
    assert not Path(f"{table}.lock").exists()


def test_a_page_asks_for_nothing_from_outside(swept: Sweep, folder: Path) -> None:
    target = folder / "plot.html"
    status, _, _ = run("sweep", "--table", str(folder / "t.sqlite"), "--plot", str(target))
    assert status == 0
    text = target.read_text(encoding="utf-8")
    assert text == page(swept)
    assert not [
        word
        for word in ("http://", "https://", "<script", "src=")
        if word in text.replace("http://www.w3.org/2000/svg", "")
    ]
    again = folder / "report.html"
    status, out, err = run("report", str(folder / "t.sqlite"), "-o", str(again))
    assert (status, err) == (0, "")
    assert again.read_text(encoding="utf-8") == text
    assert "one file that needs nothing else" in out


def test_a_database_that_is_no_sweep_has_no_page(tmp_path: Path) -> None:
    other = tmp_path / "other.sqlite"
    with sqlite3.connect(other) as base:
        base.execute("create table t (x)")
    status, out, err = run("report", str(other), "-o", str(tmp_path / "page.html"))
    assert (status, out) == (2, "")
    assert "Traceback" not in err
    assert not (tmp_path / "page.html").exists()
