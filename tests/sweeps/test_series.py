"""What a sweep shows: series with the changes of the layout marked, and their drawing."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from typing import Any

import pytest

from optplan.report.sweeps import drawing
from optplan.sweep import series
from optplan.sweeps.points import RESULTS
from optplan.tables import Table


def table_with(*rows: tuple[int, str | None, int | None, float | None]) -> Table:
    """A table of nodes, network, tp and throughput."""
    columns = ("number", "nodes", "network", *RESULTS)
    made = []
    for number, (nodes, network, tp, rate) in enumerate(rows):
        told: dict[str, Any] = dict.fromkeys(columns)
        told |= {"number": number, "nodes": nodes, "network": network, "devices": 8 * nodes}
        told |= {"status": "infeasible" if tp is None else "optimal", "tp": tp}
        if tp is not None:
            told |= {"pp": 1, "micro_batch": 1, "zero": 0, "schedule": "1f1b", "recompute": "none"}
            told |= dict.fromkeys(("cp", "ep", "etp", "vpp"), 1)
            told |= {"tokens_per_second_per_device": rate}
            told |= {"tokens_per_second": None if rate is None else rate * 8 * nodes}
        made.append(tuple(told[name] for name in columns))
    return Table(columns=columns, rows=tuple(made))


def test_series_mark_where_the_layout_changes() -> None:
    found = series(
        table_with(
            *((4, "a", 2, 900.0), (1, "a", 1, 1000.0), (2, "a", None, None)),
            *((1, "<b>", 1, 800.0), (2, "<b>", 1, 700.0), (4, "<b>", 4, 600.0)),
        )
    )
    assert [one.label for one in found] == ["network a", "network <b>"]
    assert [point.x for point in found[0].points] == [1, 2, 4]
    assert [point.changed for point in found[0].points] == [False, False, True]
    assert [point.changed for point in found[1].points] == [False, False, True]
    assert found[0].points[0].device_hours_per_billion_tokens == pytest.approx(1e9 / 1000 / 3600)
    picture = drawing(found)
    root = ElementTree.fromstring(picture)
    assert "<b>" not in picture
    dots = [dot for dot in root.iter() if dot.tag.endswith("circle") and dot.get("data-changed")]
    assert len(dots) == 2 * 2
    assert len([one for one in root.iter() if one.get("data-panel")]) == 2


@pytest.mark.parametrize("rows", [[], [(1, "a", None, None)], [(3, "a", 1, 5.0)]])
def test_a_drawing_of_next_to_nothing_is_still_one(rows: list[Any]) -> None:
    table = table_with(*rows)
    ElementTree.fromstring(drawing(series(table)))


def test_an_axis_of_words_is_drawn_in_its_order() -> None:
    """Also where one of them is nothing: no framework, any framework."""
    table = table_with((1, "b", 1, 5.0), (1, None, 2, 6.0), (1, "a", 2, 7.0))
    (one,) = series(table, "network")
    assert [point.x for point in one.points] == ["b", None, "a"]
    assert [point.changed for point in one.points] == [False, True, False]
    ElementTree.fromstring(drawing([one]))
