"""Collectives and transfers against values worked out by hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from optplan.models.cost.traffic import Group, all_reduce_seconds, group, hop_seconds
from tests.models import samples

HAND: dict[str, Any] = {
    "cluster.accelerator.link": {"kind": "mesh", "bandwidth": "10 MB/s", "latency": "1 ms"},
    "cluster.network": "1 MB/s",
    "cluster.network_latency": "10 ms",
}


@pytest.mark.parametrize(
    ("members", "inside", "expected"),
    [
        (1, 1, 0.0),
        (2, 2, 2 * 1.2 / (2 * 10) + 0.002),
        (4, 4, 2 * 1.2 / (4 * 10) + 0.002),
        (3, 1, 2 * 2 / 3 * 1.2 / 1 + 2 * 2 * 0.010),
        (8, 4, 2 * 1.2 / (4 * 10) + 0.002 + 2 * 1 / 2 * (1.2 / 4) / 1 + 2 * 1 * 0.010),
        (12, 4, 2 * 1.2 / (4 * 10) + 0.002 + 2 * 2 / 3 * (1.2 / 4) / 1 + 2 * 2 * 0.010),
    ],
)
def test_an_all_reduce_of_1200_kb_on_a_mesh_takes(
    members: int, inside: int, expected: float
) -> None:
    """Mesh ``2 V / (n B)`` inside, ring ``2 (S-1)/S (V/n) / B_net`` between ``S`` nodes."""
    found = all_reduce_seconds(samples.problem(HAND), 1.2e6, Group(members, inside))
    assert found == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("members", "inside", "expected"),
    [
        (1, 1, 0.0),
        (2, 2, 2 * 1 / 2 * 1.2 / 10 + 2 * 0.001),
        (4, 4, 2 * 3 / 4 * 1.2 / 10 + 2 * 3 * 0.001),
        (8, 4, 2 * 3 / 4 * 1.2 / 10 + 2 * 3 * 0.001 + (1.2 / 4) + 2 * 0.010),
    ],
)
def test_an_all_reduce_of_1200_kb_on_a_switch_takes(
    members: int, inside: int, expected: float
) -> None:
    """A ring on the switch, ``2 (n-1)/n V / B``."""
    link = {"kind": "switch", "bandwidth": "10 MB/s", "latency": "1 ms"}
    asked = samples.problem(HAND, {"cluster.accelerator.link": link})
    found = all_reduce_seconds(asked, 1.2e6, Group(members, inside))
    assert found == pytest.approx(expected, rel=1e-12)


def test_efficiencies_divide_the_rates_and_the_slow_down_multiplies_all() -> None:
    """Half the links, a quarter of the network, and q at eight members."""
    rough = {
        "calibration.link_efficiency": 0.5,
        "calibration.network_efficiency": 0.25,
        "calibration.q_slope": 0.1,
    }
    free = {
        "cluster.accelerator.link": {"kind": "mesh", "bandwidth": "10 MB/s"},
        "cluster.network_latency": "0 s",
    }
    found = all_reduce_seconds(samples.problem(HAND, free, rough), 1.2e6, Group(8, 4))
    assert found == pytest.approx((2 * 1.2 / (4 * 5) + (1.2 / 4) / 0.25) * 1.6, rel=1e-12)


@pytest.mark.parametrize(
    ("members", "stride", "inside"),
    [
        (1, 1, 1),
        (2, 1, 2),
        (8, 1, 8),
        (16, 1, 8),
        (2, 8, 1),
        (4, 4, 2),
        (8, 2, 4),
        (2, 2, 2),
        (16, 8, 1),
        (3, 1, 1),
        (6, 1, 2),
        (12, 1, 4),
        (3, 2, 1),
    ],
)
def test_a_group_on_nodes_of_eight_has_so_many_members_to_a_node(
    members: int, stride: int, inside: int
) -> None:
    """Tensor groups have stride 1, data groups that of tp; 3 in a row do not tile a node of 8."""
    asked = samples.problem({"cluster.nodes": 12, "cluster.devices_per_node": 8})
    assert group(asked, members, stride) == Group(members, inside)


@pytest.mark.parametrize(("members", "stride"), [(1, 1), (3, 1), (2, 4), (5, 3), (8, 1)])
def test_a_single_node_holds_every_group_whole(members: int, stride: int) -> None:
    """However the members lie."""
    asked = samples.problem({"cluster.nodes": 1, "cluster.devices_per_node": 24})
    assert group(asked, members, stride) == Group(members, members)


def really_inside(members: int, stride: int, first: int, node: int) -> int:
    """Most members of one group that share a node, by counting them."""
    places = [(first + i * stride) // node for i in range(members)]
    return max(places.count(place) for place in places)


@pytest.mark.parametrize("node", [1, 2, 4, 6, 8, 16])
def test_a_group_that_tiles_the_nodes_is_counted_right(node: int) -> None:
    """By numbering the devices, for every pair of degrees whose product tiles a node or nodes."""
    asked = samples.problem({"cluster.nodes": 48, "cluster.devices_per_node": node})
    seen = 0
    for stride in (1, 2, 3, 4, 8, 16):
        for members in (1, 2, 3, 4, 6, 8, 16, 32):
            width = stride * members
            if (node % width and width % node) or (node % stride and stride % node):
                continue
            inside = {
                really_inside(members, stride, block + offset, node)
                for block in range(0, 12 * max(width, node), width)
                for offset in range(stride)
            }
            assert {group(asked, members, stride).inside} == inside
            seen += 1
    assert seen > 5


def hops(
    tp: int, pp: int, dp: int, changes: Mapping[str, Any] | None = None, sp: int = 0
) -> tuple[float, float]:
    """Steady and fill seconds on two nodes of four, 4096 bytes a micro-batch of one sequence."""
    found = hop_seconds(samples.problem(HAND, changes or {}), 1, tp, pp, dp, sp)
    return float(found.steady), float(found.fill)


NEAR = 2 * (4096 / 10e6 + 0.001)
FAR = 2 * (4096 / 1e6 + 0.010)


@pytest.mark.parametrize(
    ("tp", "pp", "dp", "steady", "fill"),
    [
        (1, 1, 8, 0.0, 0.0),
        (4, 2, 1, FAR, FAR),
        (2, 2, 2, FAR, FAR),
        (1, 8, 1, FAR, FAR + 6 * NEAR),
        (2, 4, 1, FAR, FAR + 2 * NEAR),
    ],
)
def test_transfers_cross_nodes_only_where_stages_do(
    tp: int, pp: int, dp: int, steady: float, fill: float
) -> None:
    """Stages are ``tp dp`` devices wide, four devices to a node."""
    assert hops(tp, pp, dp) == pytest.approx((steady, fill), rel=1e-12)


def test_the_paper_sends_every_transfer_over_the_network() -> None:
    """All seven of eight stages, unless there is a single node."""
    assert hops(1, 8, 1, {"prices": "paper"}) == pytest.approx((FAR, 7 * FAR), rel=1e-12)
    one: dict[str, Any] = {"cluster.nodes": 1, "cluster.devices_per_node": 8, "prices": "paper"}
    assert hops(1, 8, 1, one) == pytest.approx((NEAR, 7 * NEAR), rel=1e-12)


def test_sequence_parallelism_sends_a_share_of_the_hidden_states() -> None:
    """Every tensor rank sends its own quarter; latencies stay."""
    expected = 2 * (4096 / 4 / 1e6 + 0.010)
    assert hops(4, 2, 1, sp=1) == pytest.approx((expected, expected), rel=1e-12)
