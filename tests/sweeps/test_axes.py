"""What a sweep varies: ranges, lists, names in short, and all that can be wrong with them."""

from __future__ import annotations

from typing import Any

import pytest

from optplan.keys import SHORT, path_of
from optplan.load import load
from optplan.models.errors import InputError
from optplan.sweeps.axes import MOST_POINTS, Grid, grid_of

TAKEN = ("number", "tp", "status", "devices")


def values(text: str) -> list[Any]:
    """Values of one axis."""
    return list(grid_of([text], TAKEN).axes[0].values)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("nodes=1..4", [1, 2, 3, 4]),
        ("nodes=1..64*2", [1, 2, 4, 8, 16, 32, 64]),
        ("nodes=3..50*3", [3, 9, 27]),
        ("nodes=8..30+8", [8, 16, 24]),
        ("nodes=5..5", [5]),
        ("nodes=7", [7]),
        ("nodes=1, 2, 8", [1, 2, 8]),
        ("nodes=[1..3, 8, 16..64*2]", [1, 2, 3, 8, 16, 32, 64]),
        ("nodes=[1..3, 2..4]", [1, 2, 3, 4]),
        ("network=200 Gb/s, 400 Gb/s", ["200 Gb/s", "400 Gb/s"]),
        ("network=[200 Gb/s]", ["200 Gb/s"]),
        ("tp=[[1, 2], 8, {max: 4}]", ["[1, 2]", 8, '{"max": 4}']),
        ("tp={min: 1, max: 4}", ['{"min": 1, "max": 4}']),
        ("offload=[true, false]", ["true", "false"]),
        ("framework=[nemo, null]", ["nemo", None]),
        ("workload.imbalance=1.5, 2", [1.5, 2]),
    ],
)
def test_an_axis_is_read(text: str, expected: list[Any]) -> None:
    assert values(text) == expected


def test_python_values_mean_the_same_as_text() -> None:
    import numpy as np

    text = grid_of(["nodes=1..3", "tp=[1, 2]", "network=[400 Gb/s]"], TAKEN)
    given = {"nodes": range(1, 4), "tp": np.array([1, 2]), "network": ["400 Gb/s"]}
    assert grid_of(given, TAKEN) == text
    assert grid_of({"nodes": "1..3", "tp": ["1..2"], "network": ("400 Gb/s",)}, TAKEN) == text


@pytest.mark.parametrize(
    ("texts", "told"),
    [
        ([], "there is nothing to sweep over"),
        (["nodes"], "'nodes' is no 'key=values'"),
        (["nodes="], "is no 'key=values'"),
        (["=1..2"], "is no 'key=values'"),
        (["nodse=1..2"], "unknown key 'nodse'; did you mean 'nodes'?"),
        (["nodes=4..1"], "'4..1' runs downwards; write 1..4"),
        (["nodes=1..8*1"], "does not grow"),
        (["nodes=0..8*2"], "does not grow"),
        (["nodes=1..8+0"], "does not grow"),
        (["nodes=1..999999999999"], "more than 100,000 values"),
        (
            ["nodes=1..1000", "tp=1..1000"],
            "1,000,000 problems are too many (nodes 1,000, search_tp",
        ),
        (["nodes=[]"], "the axis has no value"),
        (["nodes=[1, 2"], "a '[' is not closed"),
        (["nodes=1", "cluster.nodes=2"], "this is swept twice"),
        (["nodes=1", "nodes=2"], "this is swept twice"),
        (["pp=1..2"], "this is set and swept"),
    ],
)
def test_a_wrong_axis_is_refused(texts: list[str], told: str) -> None:
    with pytest.raises(InputError) as refused:
        grid_of(texts, TAKEN, sets=["search.pp=4"])
    assert told in str(refused.value)


def test_all_faults_are_told_at_once() -> None:
    with pytest.raises(InputError) as refused:
        grid_of(["nodse=1", "nodes=4..1", "tp"], TAKEN)
    assert len(refused.value.faults) == 3


@pytest.mark.parametrize("wrong", [{"nodes": 3}, {"nodes": [object()]}, {"nodes": [float("nan")]}])
def test_wrong_python_values_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        grid_of(wrong, TAKEN)


def test_the_last_axis_runs_fastest() -> None:
    grid = grid_of(["nodes=1..2", "tp=[1, 2, 4]"], TAKEN)
    assert [grid.values(n) for n in range(len(grid))] == [
        (nodes, tp) for nodes in (1, 2) for tp in (1, 2, 4)
    ]
    assert grid.sets(4) == ["cluster.nodes=2", "search.tp=2"]
    assert [axis.column for axis in grid.axes] == ["nodes", "search_tp"]


def test_side_by_side_keeps_repeated_values() -> None:
    grid = grid_of(["nodes=1, 1, 2", "pp=1..3"], TAKEN, zipped=True)
    assert [grid.values(n) for n in range(len(grid))] == [(1, 1), (1, 2), (2, 3)]
    with pytest.raises(InputError, match="differ in length: nodes 2, pp 3"):
        grid_of(["nodes=1, 2", "pp=1..3"], TAKEN, zipped=True)


def test_a_cross_shows_every_value_of_every_axis() -> None:
    grid = grid_of(["nodes=1..5", "pp=1..4", "cp=1..3"], TAKEN)
    shown = [grid.values(number) for number in grid.cross()]
    assert {v[0] for v in shown} == {1, 2, 3, 4, 5}
    assert {v[1] for v in shown} == {1, 2, 3, 4}
    assert {v[2] for v in shown} == {1, 2, 3}
    assert len(shown) == 5 + 4 + 3 - 2
    long = grid_of(["nodes=1..50000"], TAKEN)
    assert len(long.cross(10)) == 10
    assert {0, 49_999} <= set(long.cross(10))


def test_columns_of_the_same_name_are_told_apart() -> None:
    grid = grid_of(["cluster.network=1 GB/s, 2 GB/s", "accelerator.network=1 GB/s, 2 GB/s"], TAKEN)
    assert [axis.column for axis in grid.axes] == [
        "cluster_network",
        "cluster_accelerator_network",
    ]


def test_a_grid_is_no_larger_than_promised() -> None:
    with pytest.raises(InputError):
        grid_of([f"nodes=1..{MOST_POINTS // 1000 + 1}", "global_batch=1..1000"], TAKEN)
    assert isinstance(grid_of(["nodes=1..2"], TAKEN), Grid)


def test_short_names_serve_set_as_well() -> None:
    spec = {
        "workload": {"architecture": "llama-2-7b", "sequence_length": 2048},
        "cluster": {"accelerator": "h100-sxm-80gb", "nodes": 1, "network": "400 Gb/s"},
        "search": {"global_batch": 8},
    }
    problem = load(spec, sets=["nodes=3", "sequence_length=4096", "accelerator=h200-sxm-141gb"])
    assert problem.cluster.nodes == 3
    assert problem.workload.sequence_length == 4096
    assert problem.cluster.accelerator.name == "h200-sxm-141gb"


def test_a_short_name_never_hides_a_section() -> None:
    for section in ("search", "workload", "cluster", "limits", "calibration"):
        assert path_of(section) == (section,)
    assert all(path[-1] == name for name, path in SHORT.items())
