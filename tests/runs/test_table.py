"""Tables of measured runs: what is read, and every way they can be wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from optplan.models.errors import InputError
from optplan.runs.table import COLUMNS, MOST_ROWS, read_runs
from tests.optplan.command import run
from tests.runs.made import ROW, table, text_of


def faults(path: Path) -> list[str]:
    """Every fault of a table, as a person reads it."""
    with pytest.raises(InputError) as caught:
        read_runs([path])
    return [str(fault) for fault in caught.value.faults]


def written(folder: Path, text: str) -> Path:
    path = folder / "runs.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_every_cell_is_read_by_its_kind(tmp_path: Path) -> None:
    (one,) = read_runs([table(tmp_path, {"mfu": "0.5", "num_experts": "0", "row_note": "a; B"})])
    assert (one.place, one.file, one.source_id) == ("made.csv:2", "made", "made:1")
    assert (one.num_layers, one.gated_mlp, one.zero_stage, one.mfu) == (24, False, 1, 0.5)
    assert (one.num_experts, one.cp, one.ep, one.step_time_s) == (0, 1, None, None)
    assert one.says("b")
    assert not one.says("c")


def test_unknown_columns_and_blank_lines_are_ignored(tmp_path: Path) -> None:
    columns = ("hue", *COLUMNS)
    text = text_of([{**ROW, "hue": "red"}], columns) + "\n , ,\n"
    lines = text.splitlines()
    lines[-1] = "," * (len(columns) - 1)
    assert len(read_runs([written(tmp_path, "\n".join(lines) + "\n")])) == 1


def test_a_byte_order_mark_and_other_line_ends_do_no_harm(tmp_path: Path) -> None:
    text = text_of([ROW]).replace("\n", "\r\n")
    path = tmp_path / "runs.csv"
    path.write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert read_runs([path])[0].num_layers == 24


@pytest.mark.parametrize(
    ("column", "cell", "said"),
    [
        ("num_layers", "many", "a whole number of at least 1"),
        ("num_layers", "0", "a whole number of at least 1"),
        ("num_layers", "24.5", "a whole number of at least 1"),
        ("num_layers", "1e99", "a whole number of at least 1"),
        ("zero_stage", "-1", "a whole number of at least 0"),
        ("step_time_s", "nan", "a number above 0"),
        ("step_time_s", "0", "a number above 0"),
        ("step_time_s", "-3", "a number above 0"),
        ("mfu", "52.4", "a share of the peak, such as 0.42"),
        ("gated_mlp", "maybe", "true or false"),
        ("outcome", "crashed", "ok, oom"),
        ("recompute", "some", "none, selective, full"),
    ],
)
def test_a_wrong_cell_is_named_with_its_line(
    column: str, cell: str, said: str, tmp_path: Path
) -> None:
    (text,) = faults(table(tmp_path, {}, {column: cell}))
    assert text.startswith(f"made.csv:3: {column}: '{cell}'")
    assert said in text


def test_all_faults_of_all_tables_are_told_at_once(tmp_path: Path) -> None:
    first = table(tmp_path, {"tp": "x", "pp": "y"}, name="first")
    second = table(tmp_path, {"dp": "z"}, name="second")
    with pytest.raises(InputError) as caught:
        read_runs([first, second, tmp_path / "none.csv"])
    assert [fault.place for fault in caught.value.faults] == [
        "first.csv:2",
        "first.csv:2",
        "second.csv:2",
        str(tmp_path / "none.csv"),
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "this is no table of measured runs"),
        ("a,b\n1,2\n", "without columns num_layers"),
        (text_of([]), "the table holds no runs"),
        (text_of([ROW]) + "1,2\n", "cells under"),
        (text_of([ROW]).replace("model_name", "tp", 1), "column tp stands twice"),
        (text_of([ROW]) + '"open', "cannot be read as CSV"),
        (text_of([ROW]) + "\0", "NUL"),
    ],
)
def test_what_is_no_table_is_refused_in_a_line(text: str, said: str, tmp_path: Path) -> None:
    found = faults(written(tmp_path, text))
    assert any(said in line for line in found), found


def test_too_many_rows_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("optplan.runs.table.MOST_ROWS", 2)
    assert MOST_ROWS > 2
    assert any("more than 2 rows" in line for line in faults(table(tmp_path, {}, {}, {})))


@pytest.mark.parametrize("command", [("validate",), ("calibrate", "-o", "x.yaml")])
def test_the_commands_end_with_2_and_write_nothing(
    command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    table(tmp_path, {"tp": "x"})
    for tables in (("made.csv",), ("none.csv",), ()):
        status, out, err = run(*command, *tables)
        assert (status, out) == (2, "")
        assert len(err.strip().splitlines()) == 1
    assert not (tmp_path / "x.yaml").exists()
