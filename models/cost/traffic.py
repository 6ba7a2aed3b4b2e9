"""Collectives and transfers: how long bytes take on the links they use."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from optplan.models.cost.arrays import Float, Int, largest, where, where_int
from optplan.models.cost.compute import ELEMENT_BYTES
from optplan.models.spec.problem import Problem


@dataclass(frozen=True)
class Group:
    """
    Where the members of a communication group sit.

    Parameters
    ----------
    members
        Devices of the group, at least 1.
    inside
        Members that share a node, at least 1; divides ``members``.
    """

    members: Int
    inside: Int


def group(problem: Problem, members: Int, stride: Int) -> Group:
    """
    Place a group whose consecutive members are ``stride`` devices apart.

    Devices are numbered node by node and degrees nest tensor, data, pipeline from the inside out,
    as Megatron-LM orders them. A group that does not tile the nodes counts as many members to a
    node as every node holds.
    """
    node = problem.cluster.devices_per_node
    if problem.cluster.nodes == 1:
        return Group(members, members)
    inside = np.gcd(members, np.maximum(1, np.gcd(node, stride * members) // stride))
    return Group(
        members,
        inside
        if isinstance(members, np.ndarray) or isinstance(stride, np.ndarray)
        else int(inside),
    )


def all_reduce_seconds(problem: Problem, payload: Float, place: Group) -> Float:
    """
    Time of one all-reduce, as a reduce-scatter and an all-gather.

    Inside a node: a full mesh moves ``V/n`` on every link in both halves, ``2 V / (n B)``; a
    switch carries a ring, ``2 (n-1)/n V / B``. Between ``S`` nodes each member carries its share
    on: ``2 (S-1)/S (V/n) / B_net``. All of it is slowed by ``q = 1 + q_slope (members - 2)``
    (paper, Eqs. 4-7 and 9-11; MindSpeed splits groups that span servers the same way).

    Parameters
    ----------
    payload
        Bytes V that each member holds.
    place
        Members and their places.

    Returns
    -------
    float or ndarray
        Seconds; 0 for a group of one.
    """
    cluster, calibration = problem.cluster, problem.calibration
    link = cluster.accelerator.link
    inside, nodes = place.inside, place.members // place.inside
    rate = _link_rate(problem)
    near, far = _latencies(problem)
    if link.kind == "mesh":
        within = 2.0 * payload / (inside * rate) + 2.0 * near
    else:
        within = 2.0 * (inside - 1) / inside * payload / rate + 2.0 * (inside - 1) * near
    net = cluster.network * calibration.network_efficiency
    share = payload / inside
    between = 2.0 * (nodes - 1) / nodes * share / net + 2.0 * (nodes - 1) * far
    slow = 1.0 + calibration.q_slope * np.maximum(place.members - 2, 0)
    return (where(inside > 1, within) + where(nodes > 1, between)) * slow


def _link_rate(problem: Problem) -> float:
    """Bytes per second that a link inside a node carries."""
    calibration, lump = problem.calibration, problem.calibration.lump
    share = calibration.link_efficiency
    if problem.prices == "paper" and lump is not None and lump.link_efficiency is not None:
        share = lump.link_efficiency
    return problem.cluster.accelerator.link.bandwidth * share


def _latencies(problem: Problem) -> tuple[float, float]:
    """Seconds of one step of a collective, however small, inside a node and between nodes."""
    if problem.prices == "paper":
        return problem.cluster.accelerator.link.latency, problem.cluster.network_latency
    own = problem.calibration.step_latency
    return problem.cluster.accelerator.link.latency + own, problem.cluster.network_latency + own


def all_gather_seconds(problem: Problem, payload: Float, place: Group) -> Float:
    """Time of one all-gather or reduce-scatter whose whole result has ``payload`` bytes."""
    return all_reduce_seconds(problem, payload, place) / 2.0


def all_to_all_seconds(problem: Problem, payload: Float, place: Group) -> Float:
    """
    Time of one all-to-all in which each member sends ``payload`` bytes, evenly over the members.

    What stays in the node and what leaves it move at the same time, the slower counts. On a mesh
    every pair has its own link.
    """
    cluster, calibration = problem.cluster, problem.calibration
    link = cluster.accelerator.link
    each = payload / place.members
    rate = _link_rate(problem)
    inside = each / rate if link.kind == "mesh" else each * (place.inside - 1) / rate
    net = cluster.network * calibration.network_efficiency
    outside = each * (place.members - place.inside) / net
    near = where(place.inside > 1, inside + link.latency)
    far = where(place.members > place.inside, outside + cluster.network_latency)
    slow = 1.0 + calibration.q_slope * np.maximum(place.members - 2, 0)
    return largest(near, far) * slow


def ring_seconds(problem: Problem, payload: Float, place: Group) -> Float:
    """Time in which ``payload`` bytes of every member visit all others, neighbour by neighbour."""
    cluster, calibration = problem.cluster, problem.calibration
    link = cluster.accelerator.link
    near = payload / _link_rate(problem) + link.latency
    far = payload / (cluster.network * calibration.network_efficiency) + cluster.network_latency
    return (place.members - 1) * where(place.members > place.inside, far, near)


def data_inside(problem: Problem, tp: Int, pp: Int, dp: Int, cp: Int, order: Int) -> Int:
    """
    Members of one data-parallel group, context ranks included, that share a node.

    With ``order`` 0 data ranks lie inside of pipeline stages, with 1 outside of them.
    """
    close = group(problem, cp * dp, tp).inside
    apart = group(problem, cp, tp).inside * group(problem, dp, tp * cp * pp).inside
    return where_int(order == 0, close, apart)


def expert_data(tp: Int, cp: Int, dp: Int, ep: Int, etp: Int, inside: Int) -> Group:
    """
    Data-parallel group of the experts: ``tp cp dp / (ep etp)`` ranks, and how many share a node.

    Parameters
    ----------
    inside
        Members of the dense data-parallel group that share a node.
    """
    members = np.maximum(1, tp * cp * dp // (ep * etp))
    near = np.gcd(members, np.maximum(1, tp * inside // (ep * etp)))
    if any(isinstance(n, np.ndarray) for n in (tp, cp, dp, ep, etp, inside)):
        return Group(members, near)
    return Group(int(members), int(near))


def boundary_bytes(problem: Problem, micro_batch: Float, cp: Int = 1) -> Float:
    """Bytes of one micro-batch's hidden states on one context rank."""
    workload = problem.workload
    width = ELEMENT_BYTES[workload.precision]
    whole = micro_batch * (workload.sequence_length * workload.architecture.hidden * width)
    return whole / cp


def block_all_reduce_seconds(problem: Problem, micro_batch: Float, tp: Int, cp: Int = 1) -> Float:
    """
    One of the four all-reduces of a block for one micro-batch (tau).

    The payload is ``b s h / c`` elements. With sequence parallelism a reduce-scatter and an
    all-gather move the same bytes, so the time does not depend on it.
    """
    payload = boundary_bytes(problem, micro_batch, cp)
    return all_reduce_seconds(problem, payload, group(problem, tp, 1))


def hop_seconds(
    problem: Problem, micro_batch: Float, tp: Int, cp: Int, sequence_parallel: Int
) -> tuple[Float, Float]:
    """
    Transfer of hidden states between two stages and of their gradients back, one micro-batch.

    With sequence parallelism every tensor rank sends its own part, as it does where the software
    splits hops anyway.

    Returns
    -------
    tuple
        Seconds inside a node, and between nodes.
    """
    cluster, calibration = problem.cluster, problem.calibration
    split = tp if calibration.hops_split else where(sequence_parallel == 1, tp, 1)
    payload = boundary_bytes(problem, micro_batch, cp) / split
    link = cluster.accelerator.link
    own = 0.0 if problem.prices == "paper" else calibration.hop_latency
    near = 2.0 * (payload / _link_rate(problem) + link.latency + own)
    rate = cluster.network * calibration.network_efficiency
    return near, 2.0 * (payload / rate + cluster.network_latency + own)


def p2p_exposed(problem: Problem) -> float:
    """Share of a transfer between stages that nothing hides."""
    if problem.overlap is not None and "p2p-overlap" not in problem.overlap:
        return 1.0
    return problem.calibration.p2p_exposed


def crossings(problem: Problem, tp: Int, pp: Int, dp: Int, cp: Int, order: Int) -> Int:
    """
    Boundaries between stages that lie between nodes, of ``pp - 1``.

    Stages of fewer devices than a node share it; the paper sends every boundary over the network.
    """
    hops = pp - 1
    if problem.cluster.nodes == 1:
        return 0 * hops
    if problem.prices == "paper":
        return hops
    node = problem.cluster.devices_per_node
    width = tp * cp * where_int(order == 0, dp, 1)
    few = np.minimum(hops, -(-(width * pp) // node) - 1)
    return where_int(width >= node, hops, few)
