"""What a step pays once, or each micro-batch for its weights: data-parallel exchange and update."""

from __future__ import annotations

from dataclasses import dataclass

from optplan.models.cost.arrays import Float, Int, where, where_int
from optplan.models.cost.compute import stream_seconds
from optplan.models.cost.memory import Counts, Shards
from optplan.models.cost.optimizers import state_bytes, update_bytes
from optplan.models.cost.traffic import Group, all_reduce_seconds
from optplan.models.spec.problem import Problem


@dataclass(frozen=True)
class Data:
    """
    Where the data ranks of dense parameters and of experts sit, and what they share.

    Parameters
    ----------
    dense, experts
        Groups; members are all data ranks, ``inside`` those that share a node.
    zero, hsdp, offload
        ZeRO stage, whether it shares inside a node only, whether the optimizer is on the host.
    """

    dense: Group
    experts: Group
    zero: Int
    hsdp: Int
    offload: Int

    @property
    def shards(self) -> Shards:
        """Ranks that share the states."""
        return Shards(
            shared_group(self.dense, self.hsdp).members,
            shared_group(self.experts, self.hsdp).members,
            self.zero,
            self.offload,
        )


@dataclass(frozen=True)
class Once:
    """
    Seconds that a step pays once, whatever the number of micro-batches.

    Parameters
    ----------
    reduce
        Exposed data-parallel collectives (TCD).
    arithmetic
        Additions inside them (TAD).
    update
        Optimizer step (T_opt); the paper has none.
    """

    reduce: Float
    arithmetic: Float
    update: Float

    @property
    def total(self) -> Float:
        """All of it."""
        return self.reduce + self.arithmetic + self.update


def once_seconds(problem: Problem, counts: Counts, data: Data) -> Once:
    """
    Price the end of a step for some parameters, without the latency of the collectives.

    Without ZeRO the gradients are all-reduced; with ZeRO-1 they are reduce-scattered and the
    updated weights, in their own width, all-gathered, and each rank updates its share. ZeRO-2 and
    ZeRO-3 have scattered the gradients already (`fetch_seconds`), and ZeRO-3 gathers weights when
    they are needed. Sharing inside nodes leaves the sum over nodes to do. An optimizer on the host
    fetches its gradients, streams its states through the processors, and sends weights back.
    """
    reduce = _latent(problem, counts, data, 1.0) - _latent(problem, counts, data, 0.0)
    return _finished(problem, reduce, _update(problem, counts, data))


def once_latency(problem: Problem, counts: Counts, data: Data) -> Once:
    """Price what the end of a step takes however few its parameters are."""
    none: Float = 0.0 * stream_seconds(problem, 1.0 * data.dense.members)
    return _finished(problem, _latent(problem, counts, data, 0.0), none)


def _finished(problem: Problem, reduce: Float, update: Float) -> Once:
    """Hide what the calibration saw hidden, and leave out what the paper leaves out."""
    calibration = problem.calibration
    share = calibration.overlap_dp
    if problem.overlap is not None and "grad-reduce-overlap" not in problem.overlap:
        share = 0.0
    exposed = reduce * (1.0 - share)
    if problem.prices == "paper":
        update = update * 0.0
    return Once(exposed, exposed * calibration.kappa, update)


def _latent(problem: Problem, counts: Counts, data: Data, scale: float) -> Float:
    """Seconds of the collectives; ``scale`` 0 leaves their latency alone."""
    unit = state_bytes(problem.workload)
    zero = data.zero
    wide: Float = where(
        zero >= 3,
        0.0,
        where(
            zero >= 2,
            unit.sent / 2,
            where(zero >= 1, (unit.gradients + unit.sent) / 2, float(unit.gradients)),
        ),
    )
    total: Float = 0.0
    for count, place in ((counts.dense, data.dense), (counts.experts, data.experts)):
        if place is data.experts and problem.workload.architecture.experts is None:
            continue
        here = shared_group(place, data.hsdp)
        alone = where(wide > 0, all_reduce_seconds(problem, scale * wide * count, here))
        total = total + alone
        copies = Group(place.members // here.members, 1 + 0 * here.members)
        share = unit.gradients / here.members
        apart = all_reduce_seconds(problem, scale * share * count, copies)
        total = total + where((data.hsdp == 1) & (zero >= 1), apart)
    return total


def shared_group(place: Group, hsdp: Int) -> Group:
    """Ranks that share: the whole group, or its part inside a node."""
    return Group(where_int(hsdp == 1, place.inside, place.members), place.inside)


def _update(problem: Problem, counts: Counts, data: Data) -> Float:
    """Seconds of the optimizer's step."""
    shards = data.shards
    owned = counts.dense / where(data.zero >= 1, shards.dense, 1) + counts.experts / where(
        data.zero >= 1, shards.experts, 1
    )
    moves = update_bytes(problem.workload)
    here = stream_seconds(problem, moves * owned)
    host = problem.cluster.host
    if host is None:
        return here
    unit = state_bytes(problem.workload)
    moved = (unit.gradients + unit.sent) * owned / host.link
    streamed = moves * owned * problem.cluster.devices_per_node / host.bandwidth
    return where(data.offload == 1, moved + streamed, here)


def fetch_seconds(problem: Problem, counts: Counts, data: Data) -> Float:
    """
    Data-parallel exchange that each micro-batch pays for some parameters.

    ZeRO-2 scatters gradients after every backward pass; ZeRO-3 also gathers weights before the
    forward and before the backward pass (arXiv 1910.02054, section 7; FSDP alike).
    """
    unit = state_bytes(problem.workload)
    frozen = counts.frozen_dense, counts.frozen_experts
    total: Float = 0.0
    for count, still, place in (
        (counts.dense, frozen[0], data.dense),
        (counts.experts, frozen[1], data.experts),
    ):
        here = shared_group(place, data.hsdp)
        scattered = unit.gradients / 2 * count
        gathered = unit.sent * (count + still)
        moved = where(data.zero >= 2, scattered, 0.0 * scattered) + where(
            data.zero >= 3, gathered, 0.0 * gathered
        )
        seconds = all_reduce_seconds(problem, moved, here)
        total = total + where(moved > 0, seconds, 0.0 * seconds)
    return total
