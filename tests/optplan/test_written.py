"""Models written to files that other solvers read."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import highspy
import pytest
from ortools.sat.python import cp_model as sat

import optplan
from tests.optplan.command import PAPER, job, run
from tests.optplan.test_live import MEMORY, best, goal, small

EXAMPLES = PAPER.parent


def read_back(path: Path) -> tuple[float, dict[str, float]]:
    """Solve a model file by HiGHS alone: its optimum, and the columns that are not nothing."""
    highs: Any = highspy.Highs()  # type: ignore[no-untyped-call]
    highs.setOptionValue("output_flag", False)
    highs.setOptionValue("mip_rel_gap", 1e-9)
    assert highs.readModel(str(path)) == highspy.HighsStatus.kOk
    highs.run()
    assert highs.getModelStatus() == highspy.HighsModelStatus.kOptimal
    values = highs.getSolution().col_value
    found = {highs.getColName(i)[1]: v for i, v in enumerate(values) if abs(v) > 1e-6}
    return highs.getInfo().objective_function_value, found


@pytest.mark.parametrize("form", ["lp", "mps"])
@pytest.mark.parametrize(
    ("name", "within"),
    [
        ("paper/aquila2-7b", "all"),
        ("llama-3-70b-64-h100", "2%"),
        ("qwen3-30b-a3b-16-h100", "5%"),
    ],
)
def test_a_file_read_back_by_highs_has_the_same_optimum(
    name: str, within: str, form: str, tmp_path: Path
) -> None:
    spec, path = EXAMPLES / f"{name}.yaml", tmp_path / f"model.{form}"
    written = optplan.write_model(spec, path, form, within=within)
    optimum, found = read_back(path)
    assert optimum == pytest.approx(goal(optplan.solve(spec, top=0)), rel=1e-6)
    assert written.best == pytest.approx(optimum, rel=1e-6)
    names = json.loads(Path(str(written.names)).read_text(encoding="utf-8"))
    assert set(found) <= set(names["variables"])
    assert any(variable.startswith("choice.") for variable in found)
    assert names["rules asked before"]


def test_rows_bear_the_names_of_rules(tmp_path: Path) -> None:
    path = tmp_path / "model.lp"
    optplan.write_model(small(), path, "lp", limits=[f"peak_memory <= {MEMORY} B"])
    text = path.read_text(encoding="utf-8")
    for name in ("capacity.hbm(", "price.step_time(", "pipeline.layers(", "point(", "limits."):
        assert name in text, name


def test_an_nl_file_has_names_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "model.nl"
    optplan.write_model(small(), path, "nl")
    assert path.read_text(encoding="utf-8").startswith("g3")
    rows = Path(f"{path}.row").read_text(encoding="utf-8")
    assert "capacity.hbm" in rows
    assert "goal" in rows
    assert "layers" in Path(f"{path}.col").read_text(encoding="utf-8")


def test_a_users_own_name_does_not_break_a_file(tmp_path: Path) -> None:
    """A minus ends a name in an LP file."""
    path = tmp_path / "model.lp"
    limit = optplan.Limit(name="keep-some-room", rule=f"peak_memory <= {MEMORY} B")
    optplan.write_model(small(), path, "lp", limits=[limit])
    limited = optplan.solve(small(), limits=[limit], top=0)
    assert read_back(path)[0] == pytest.approx(goal(limited), rel=1e-6)
    assert "limits.keep_some_room(" in path.read_text(encoding="utf-8")


def test_a_limit_that_asks_for_slowness_leaves_the_best_unknown(tmp_path: Path) -> None:
    slower = f"step_seconds >= {best().estimate.step_seconds * 1.05} s"  # type: ignore[union-attr]
    path = tmp_path / "model.lp"
    written = optplan.write_model(small(), path, "lp", limits=[slower])
    assert written.best is written.within is None
    proved = optplan.solve(small(), limits=[slower], top=0)
    assert read_back(path)[0] == pytest.approx(goal(proved), rel=1e-6)


@pytest.mark.parametrize("name", ["model.pb", "model.pbtxt"])
def test_a_proto_is_read_back_by_cp_sat(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    optplan.write_model(small(), path, "cpsat-proto", within="5%")
    model = sat.CpModel()
    raw = path.read_bytes()
    if name.endswith("txt"):
        model.proto.parse_text_format(raw.decode())
    else:
        assert raw
        return
    solver = sat.CpSolver()
    solver.parameters.num_workers = 1
    assert solver.solve(model) == sat.OPTIMAL


def test_the_text_form_is_the_whole_program(tmp_path: Path) -> None:
    path = tmp_path / "model.txt"
    written = optplan.write_model(small(), path, "text")
    text = path.read_text(encoding="utf-8")
    assert "degrees.heads: table" in text
    assert "goal: min step_ticks / global_batch" in text
    assert written.within is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--format", "xls", "-o", "m.x"), "--format: there is no form 'xls'; one of lp, mps"),
        (("--within", "-3", "-o", "m.lp"), "within: cannot read '-3' as a share; write a share"),
        (("--within", "some", "-o", "m.lp"), "cannot read 'some' as a share"),
        (("-o", "/no/such/folder/m.lp"), "m.lp: cannot write the file: No such file or directory"),
    ],
)
def test_a_wrong_request_for_a_model_is_refused(
    arguments: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = job("baichuan2-7b")
    monkeypatch.chdir(tmp_path)
    status, out, err = run("model", spec, *arguments)
    assert (status, out) == (2, "")
    assert message in err
    assert list(tmp_path.iterdir()) == []


def test_where_there_is_no_plan_there_is_nothing_to_write(tmp_path: Path) -> None:
    path = tmp_path / "m.lp"
    limits = ("--limit", "pp == 99", "-o", str(path))
    status, out, err = run("model", job("baichuan2-7b"), *limits)
    assert (status, out) == (1, "")
    assert "there is no plan to be written down; run optplan solve" in err
    assert not path.exists()


def test_nothing_but_a_file_is_written_over(tmp_path: Path) -> None:
    """A folder or a pipe stays, also where only a second file would go; a link is followed."""
    spec = tmp_path / "spec.yaml"
    spec.write_text(Path(job("baichuan2-7b")).read_text(encoding="utf-8"), encoding="utf-8")
    before = spec.read_bytes()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "m.lp.names.json").mkdir()
    for name, said in (
        ("pipe", "there is something that is no file"),
        ("m.lp", "there is something that is no file"),
        ("spec.yaml", "this is the spec itself"),
        ("", "no file is named"),
        ("x" * 300, "File name too long"),
    ):
        status, out, err = run("model", str(spec), "-o", str(tmp_path / name) if name else "")
        assert (status, out) == (2, ""), name
        assert said in err, name
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.lp.names.json", "pipe", "spec.yaml"]
    assert spec.read_bytes() == before
    (tmp_path / "real.lp").write_text("old", encoding="utf-8")
    (tmp_path / "link.lp").symlink_to("real.lp")
    assert run("model", str(spec), "-o", str(tmp_path / "link.lp"))[0] == 0
    assert (tmp_path / "link.lp").is_symlink()
    assert "choice.pp" in (tmp_path / "real.lp").read_text(encoding="utf-8")


def test_the_command_says_what_it_wrote(tmp_path: Path) -> None:
    status, out, err = run("model", job("baichuan2-7b"), "-o", str(tmp_path / "m.lp"))
    assert (status, err) == (0, "")
    assert "every plan within 20" in out
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.lp", "m.lp.names.json"]
