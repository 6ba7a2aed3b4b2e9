"""Collectives and transfers against values worked out by hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from optplan.models.cost.estimate import estimate
from optplan.models.cost.traffic import (
    Group,
    all_gather_seconds,
    all_reduce_seconds,
    all_to_all_seconds,
    block_all_reduce_seconds,
    boundary_bytes,
    crossings,
    data_inside,
    expert_data,
    group,
    hop_seconds,
    ring_seconds,
)
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


@pytest.mark.parametrize(("members", "inside"), [(1, 1), (4, 4), (8, 4), (3, 1)])
def test_an_all_gather_is_half_of_an_all_reduce(members: int, inside: int) -> None:
    """Either half moves the same bytes."""
    asked, place = samples.problem(HAND), Group(members, inside)
    whole = all_reduce_seconds(asked, 1.2e6, place)
    assert all_gather_seconds(asked, 1.2e6, place) == whole / 2


@pytest.mark.parametrize(
    ("kind", "members", "inside", "expected"),
    [
        ("mesh", 1, 1, 0.0),
        ("mesh", 4, 4, 1.2 / 4 / 10 + 0.001),
        ("switch", 4, 4, 3 * 1.2 / 4 / 10 + 0.001),
        ("mesh", 8, 4, 4 * 1.2 / 8 / 1 + 0.010),
        ("switch", 8, 4, 4 * 1.2 / 8 / 1 + 0.010),
        ("mesh", 3, 1, 2 * 1.2 / 3 / 1 + 0.010),
    ],
)
def test_an_all_to_all_of_1200_kb_takes(
    kind: str, members: int, inside: int, expected: float
) -> None:
    """Each member sends ``V/n`` to every other, node and network at the same time."""
    link = {"kind": kind, "bandwidth": "10 MB/s", "latency": "1 ms"}
    asked = samples.problem(HAND, {"cluster.accelerator.link": link})
    found = all_to_all_seconds(asked, 1.2e6, Group(members, inside))
    assert found == pytest.approx(expected, rel=1e-12)


def test_an_all_to_all_waits_for_the_slower_of_node_and_network() -> None:
    """A network that is fast enough leaves the links of the node."""
    link = {"kind": "switch", "bandwidth": "10 MB/s"}
    fast: dict[str, Any] = {"cluster.network": "1 GB/s", "cluster.network_latency": "0 s"}
    asked = samples.problem(HAND, fast, {"cluster.accelerator.link": link})
    found = all_to_all_seconds(asked, 1.2e6, Group(8, 4))
    assert found == pytest.approx(3 * 1.2 / 8 / 10, rel=1e-12)


@pytest.mark.parametrize(
    ("members", "inside", "expected"),
    [(1, 1, 0.0), (4, 4, 3 * (1.2 / 10 + 0.001)), (4, 2, 3 * (1.2 / 1 + 0.010))],
)
def test_a_ring_of_1200_kb_takes(members: int, inside: int, expected: float) -> None:
    """``n - 1`` steps, each as slow as its slowest link."""
    found = ring_seconds(samples.problem(HAND), 1.2e6, Group(members, inside))
    assert found == pytest.approx(expected, rel=1e-12)


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


def places(tp: int, pp: int, dp: int, cp: int, order: int) -> dict[tuple[int, ...], int]:
    """Number of the device of every (stage, data, context, tensor) rank, by nesting."""
    found: dict[tuple[int, ...], int] = {}
    for stage in range(pp):
        for data in range(dp):
            for context in range(cp):
                for tensor in range(tp):
                    outer = stage * dp + data if order == 0 else data * pp + stage
                    found[stage, data, context, tensor] = (outer * cp + context) * tp + tensor
    return found


LAYOUTS = [
    (tp, pp, dp, cp)
    for tp in (1, 2, 4, 8)
    for pp in (1, 2, 4, 8)
    for dp in (1, 2, 4)
    for cp in (1, 2, 4)
    if 8 <= tp * pp * dp * cp <= 64
]


@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize(("tp", "pp", "dp", "cp"), LAYOUTS)
def test_neighbours_are_counted_as_the_devices_are_numbered(
    tp: int, pp: int, dp: int, cp: int, order: int
) -> None:
    """Data ranks that share a node, and boundaries between stages that leave one."""
    node = 8
    asked = samples.problem({"cluster.nodes": 64, "cluster.devices_per_node": node})
    at = places(tp, pp, dp, cp, order)
    ranks = [at[0, d, c, 0] // node for d in range(dp) for c in range(cp)]
    inside = max(ranks.count(n) for n in ranks)
    assert data_inside(asked, tp, pp, dp, cp, order) == inside
    crossed = sum(
        any(
            at[stage, d, c, t] // node != at[stage + 1, d, c, t] // node
            for d in range(dp)
            for c in range(cp)
            for t in range(tp)
        )
        for stage in range(pp - 1)
    )
    assert crossings(asked, tp, pp, dp, cp, order) == crossed


@pytest.mark.parametrize(
    ("ep", "etp", "expected"),
    [(1, 1, Group(32, 8)), (2, 1, Group(16, 4)), (8, 1, Group(4, 1)), (4, 4, Group(2, 1)),
     (1, 8, Group(4, 1)), (32, 1, Group(1, 1))],
)  # fmt: skip
def test_data_ranks_of_experts_are_what_experts_leave(ep: int, etp: int, expected: Group) -> None:
    """A stage of tp 2, cp 2, dp 8 on nodes of eight, whose dense data group has 4 to a node."""
    assert expert_data(2, 2, 8, ep, etp, 4) == expected


def hops(
    tp: int,
    pp: int,
    dp: int,
    changes: Mapping[str, Any] | None = None,
    sp: int = 0,
    **more: Any,
) -> tuple[float, float]:
    """Steady and fill seconds on two nodes of four, 4096 bytes a micro-batch of one sequence."""
    one = {"search.global_batch": 64}
    asked = samples.problem(HAND, one, changes or {})
    plan = samples.plan(asked, tp=tp, pp=pp, dp=dp, sequence_parallel=sp, **more)
    alone = estimate(asked, plan.model_copy(update={"micro_batches": 1})).terms["TCP"]
    found = estimate(asked, plan).terms["TCP"]
    steady = (found - alone) / (plan.micro_batches - 1)
    return steady, alone - steady


NEAR = 2 * (4096 / 10e6 + 0.001)
FAR = 2 * (4096 / 1e6 + 0.010)


def test_a_hop_sends_hidden_states_there_and_gradients_back() -> None:
    """Inside a node and between nodes; context ranks send a part each."""
    asked = samples.problem(HAND)
    assert boundary_bytes(asked, 1) == 4096
    assert boundary_bytes(asked, 3, 4) == 3072
    assert hop_seconds(asked, 1, 2, 1, 0) == pytest.approx((NEAR, FAR), rel=1e-12)
    quarter = 2 * (1024 / 10e6 + 0.001), 2 * (1024 / 1e6 + 0.010)
    assert hop_seconds(asked, 1, 2, 4, 0) == pytest.approx(quarter, rel=1e-12)
    assert hop_seconds(asked, 1, 2, 2, 1) == pytest.approx(quarter, rel=1e-12)
    slow = asked.with_calibration(hop_latency=0.5)
    assert hop_seconds(slow, 1, 2, 1, 0) == pytest.approx((NEAR + 1.0, FAR + 1.0), rel=1e-12)


def test_context_ranks_reduce_their_own_part_of_the_sequence() -> None:
    """The all-reduces of a block shrink with the sequence."""
    free = {"cluster.accelerator.link": {"kind": "mesh", "bandwidth": "10 MB/s"}}
    asked = samples.problem(free)
    whole = block_all_reduce_seconds(asked, 2, 4)
    assert block_all_reduce_seconds(asked, 2, 4, 2) == pytest.approx(whole / 2, rel=1e-12)


@pytest.mark.parametrize(
    ("tp", "pp", "dp", "steady", "fill"),
    [
        (1, 1, 8, 0.0, 0.0),
        (4, 2, 1, FAR, FAR),
        (2, 2, 2, FAR, FAR),
        (1, 4, 2, FAR, FAR + 2 * NEAR),
        (2, 4, 1, FAR, FAR + 2 * NEAR),
        (1, 4, 1, NEAR, 3 * NEAR),
    ],
)
def test_transfers_cross_nodes_only_where_stages_do(
    tp: int, pp: int, dp: int, steady: float, fill: float
) -> None:
    """Stages are ``tp dp`` devices wide, four devices to a node; the last one is half idle."""
    assert hops(tp, pp, dp) == pytest.approx((steady, fill), rel=1e-9)


def test_stages_inside_of_data_ranks_stay_in_the_node() -> None:
    """Two pipelines of four stages, each in its own node."""
    assert hops(1, 4, 2, order="pipeline_inside") == pytest.approx((NEAR, 3 * NEAR), rel=1e-9)


def test_interleaved_stages_send_as_often_as_they_have_chunks() -> None:
    """Each micro-batch visits every device twice."""
    found = hops(4, 2, 1, vpp=2, schedule="interleaved")
    assert found == pytest.approx((2 * FAR, FAR), rel=1e-9)


def test_the_share_that_is_exposed_is_paid_by_every_micro_batch() -> None:
    """All of it where the user has switched the overlap off; filling is never hidden."""
    half: dict[str, Any] = {"calibration.p2p_exposed": 0.5}
    assert hops(4, 2, 1, half) == pytest.approx((FAR / 2, FAR), rel=1e-9)
    assert hops(4, 2, 1, half | {"overlap": []}) == pytest.approx((FAR, FAR), rel=1e-9)
    on = {"overlap": ["p2p-overlap"]}
    assert hops(4, 2, 1, half | on) == pytest.approx((FAR / 2, FAR), rel=1e-9)


def test_the_paper_sends_every_transfer_over_the_network() -> None:
    """All three of four stages, unless there is a single node."""
    assert hops(1, 4, 1, {"prices": "paper"}) == pytest.approx((FAR, 3 * FAR), rel=1e-9)
    one: dict[str, Any] = {"cluster.nodes": 1, "cluster.devices_per_node": 8, "prices": "paper"}
    assert hops(1, 4, 1, one) == pytest.approx((NEAR, 3 * NEAR), rel=1e-9)


def test_sequence_parallelism_sends_a_share_of_the_hidden_states() -> None:
    """Every tensor rank sends its own quarter; latencies stay."""
    expected = 2 * (4096 / 4 / 1e6 + 0.010)
    assert hops(4, 2, 1, sp=1) == pytest.approx((expected, expected), rel=1e-9)
