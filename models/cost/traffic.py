"""Collectives and transfers: how long bytes take on the links they use."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from optplan.models.cost.arrays import Float, Int, where
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
    rate = link.bandwidth * calibration.link_efficiency
    if link.kind == "mesh":
        within = 2.0 * payload / (inside * rate) + 2.0 * link.latency
    else:
        within = 2.0 * (inside - 1) / inside * payload / rate + 2.0 * (inside - 1) * link.latency
    net = cluster.network * calibration.network_efficiency
    share = payload / inside
    between = 2.0 * (nodes - 1) / nodes * share / net + 2.0 * (nodes - 1) * cluster.network_latency
    slow = 1.0 + calibration.q_slope * np.maximum(place.members - 2, 0)
    return (where(inside > 1, within) + where(nodes > 1, between)) * slow


def block_all_reduce_seconds(problem: Problem, micro_batch: Int, tp: Int) -> Float:
    """
    One of the four all-reduces of a block for one micro-batch (tau).

    The payload is ``b s h`` elements. With sequence parallelism a reduce-scatter and an all-gather
    move the same bytes, so the time does not depend on it.
    """
    payload = boundary_bytes(problem, micro_batch)
    return all_reduce_seconds(problem, payload, group(problem, tp, 1))


def boundary_bytes(problem: Problem, micro_batch: Int) -> Int:
    """Bytes of one micro-batch's hidden states, whole."""
    workload = problem.workload
    width = ELEMENT_BYTES[workload.precision]
    return micro_batch * (workload.sequence_length * workload.architecture.hidden * width)


@dataclass(frozen=True)
class Hops:
    """
    Seconds of the transfers between stages for one micro-batch, forward and backward together.

    Parameters
    ----------
    steady
        Of the slowest boundary: what each micro-batch adds when the pipeline is full.
    fill
        Of all boundaries one after the other: what filling and draining adds.
    """

    steady: Float
    fill: Float


def hop_seconds(
    problem: Problem, micro_batch: Int, tp: Int, pp: Int, dp: Int, sequence_parallel: Int
) -> Hops:
    """
    Transfers of hidden states and their gradients between neighbouring stages.

    With sequence parallelism every tensor rank sends its own part. Boundaries that lie inside a
    node use its links, as many as ``tp * dp`` allows; the paper sends all of them over the
    network.
    """
    cluster, calibration = problem.cluster, problem.calibration
    node = cluster.devices_per_node
    payload = boundary_bytes(problem, micro_batch) / where(sequence_parallel == 1, tp, 1)
    link = cluster.accelerator.link
    near = 2.0 * (payload / (link.bandwidth * calibration.link_efficiency) + link.latency)
    far = 2.0 * (
        payload / (cluster.network * calibration.network_efficiency) + cluster.network_latency
    )
    hops = pp - 1
    if cluster.nodes == 1:
        return Hops(where(hops > 0, near), hops * near)
    if problem.prices == "paper":
        return Hops(where(hops > 0, far), hops * far)
    width = tp * dp
    crossing = where(width >= node, hops, np.minimum(hops, -(-(width * pp) // node) - 1))
    return Hops(
        where(hops > 0, where(crossing > 0, far, near)), crossing * far + (hops - crossing) * near
    )
