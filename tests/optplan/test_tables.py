"""Answers as tables: rows for files, notebooks and data frames."""

from __future__ import annotations

import builtins
import csv
import io
from typing import Any

import pytest

import optplan
from optplan.models.errors import InputError
from optplan.result import Reply
from optplan.tables import SHOWN, Table, table_from
from tests.sweep_kills import SPEC

MIXED = Table(
    columns=("name", "count", "share", "on"),
    rows=(("<a>", 1, 0.25, True), ('b, "c"', None, 1e-30, False)),
)


def test_a_table_leaves_as_csv_and_dicts() -> None:
    rows = list(csv.reader(io.StringIO(MIXED.to_csv())))
    assert rows[0] == list(MIXED.columns)
    assert rows[1:] == [["<a>", "1", "0.25", "True"], ['b, "c"', "", "1e-30", "False"]]
    assert MIXED.to_dicts()[0] == {"name": "<a>", "count": 1, "share": 0.25, "on": True}
    assert MIXED.column("count") == (1, None)
    with pytest.raises(KeyError, match="no column 'cuont'; there are name, count"):
        MIXED.column("cuont")


def test_cells_keep_their_kind() -> None:
    """True is not 1, and 1.0 is not 1."""
    table = Table(columns=("a", "b", "c"), rows=((True, 1, 1.0),))
    assert [type(cell) for cell in table.rows[0]] == [bool, int, float]
    assert Table.model_validate_json(table.model_dump_json()) == table


def test_a_notebook_shows_texts_as_texts() -> None:
    shown = MIXED._repr_html_()
    assert "<a>" not in shown
    assert "&lt;a&gt;" in shown
    long = Table(columns=("n",), rows=tuple((n,) for n in range(SHOWN + 40)))
    shown = long._repr_html_()
    assert "40 rows are not shown" in shown
    assert shown.count("<tr>") == SHOWN + 2


def test_a_frame_needs_pandas_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name == "pandas":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(InputError, match="pip install pandas"):
        MIXED.to_frame()


def test_a_frame_holds_what_the_table_holds() -> None:
    pytest.importorskip("pandas")
    frame = MIXED.to_frame()
    assert list(frame.columns) == list(MIXED.columns)
    assert frame.shape == (2, 4)


def test_rows_without_a_column_are_empty_there() -> None:
    table = table_from([{"a": 1}, {"b": 2}])
    assert (table.columns, table.rows) == (("a", "b"), ((1, None), (None, 2)))
    assert len(table) == 2


def test_every_answer_has_a_table() -> None:
    """Plans best first; terms; changes; devices; engines: each with the answer's own figures."""
    result = optplan.solve(SPEC, top=2)
    assert result.plan is not None
    assert result.estimate is not None
    rows = result.table().to_dicts()
    assert [row["rank"] for row in rows] == [0, 1, 2]
    assert rows[0]["step_seconds"] == result.estimate.step_seconds
    assert rows[0]["layers_per_stage"] == "32"
    assert [row["tp"] for row in rows[1:]] == [one.plan.tp for one in result.alternatives]

    evaluation = optplan.evaluate(SPEC, {"pp": 2, "tp": 1})
    terms = {row["term"]: row["seconds"] for row in evaluation.table().to_dicts()}
    assert terms == evaluation.estimate.terms

    sizing = optplan.size(SPEC)
    (fewest,) = sizing.table().to_dicts()
    assert fewest["devices"] == sizing.fewest.devices

    comparison = optplan.compare(SPEC, "cp-sat,exhaustive")
    rows = comparison.table().to_dicts()
    assert [row["engine"] for row in rows] == ["cp-sat", "exhaustive"]
    assert rows[0]["goal"] == comparison.engines[0].goal

    answer = optplan.explain(SPEC, sets=["tp=3"])
    ways = (*answer.result.explanation.ways_out, *answer.more_ways_out)
    assert [row["change"] for row in answer.table().to_dicts()] == [way.change for way in ways]
    assert ways
    for one in (result, evaluation, sizing, comparison, answer):
        assert len(set(one.table().columns)) == len(one.table().columns)


def test_an_answer_without_rows_is_one_row_of_its_values() -> None:
    class Other(Reply):
        figure: float = 2.5
        plan: dict[str, int] = {}  # noqa: RUF012 - a record's default

    assert Other().table().to_dicts() == [{"figure": 2.5}]
