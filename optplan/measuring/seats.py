"""Who does what: layers of every stage and chunk, and the place of every process in its groups."""

from __future__ import annotations

from dataclasses import dataclass

from optplan.models.spec.plan import Plan


@dataclass(frozen=True)
class Chunk:
    """
    A run of layers that one device holds of a pipeline.

    Parameters
    ----------
    number
        Place among all chunks, in the order in which a micro-batch meets them.
    layers
        Numbers of its layers.
    recomputed
        How many of them, from the first on, are computed again.
    first, last
        Whether the embedding comes before it, the head after it.
    """

    number: int
    layers: range
    recomputed: int
    first: bool
    last: bool


def chunks_of(plan: Plan, stage: int) -> tuple[Chunk, ...]:
    """
    List the chunks of one stage, in the order in which a micro-batch meets them.

    A stage of several chunks holds every ``pp``-th of them, as Megatron-LM and PyTorch place them;
    its layers are dealt out evenly, the first of its chunks taking what is left over.

    Examples
    --------
    Two stages of four layers in two chunks each: the first holds layers 0, 1 and 4, 5.
    """
    counts = _counts(plan, plan.layers_per_stage)
    again = _counts(plan, plan.recomputed_layers_per_stage)
    total = plan.pp * plan.vpp
    begin = 0
    found = []
    for number in range(total):
        held = counts[number]
        if number % plan.pp == stage:
            layers = range(begin, begin + held)
            computed = min(again[number], held)
            found.append(Chunk(number, layers, computed, number == 0, number == total - 1))
        begin += held
    return tuple(found)


def _counts(plan: Plan, per_stage: tuple[int, ...]) -> list[int]:
    """Deal the layers of every stage out to its chunks; index ``[chunk]``."""
    dealt = []
    for chunk in range(plan.vpp):
        for count in per_stage:
            dealt.append(count // plan.vpp + (chunk < count % plan.vpp))
    return dealt


@dataclass(frozen=True)
class Seat:
    """Place of a process: its stage, its data rank, its tensor rank."""

    pp: int
    dp: int
    tp: int


def mesh_of(plan: Plan) -> tuple[tuple[str, int], ...]:
    """
    Name the dimensions of the grid of processes with their sizes, the slowest first.

    Tensor ranks lie closest together, then data ranks or stages as the plan orders them.
    """
    outer = ("pp", "dp") if plan.order == "data_inside" else ("dp", "pp")
    return (*((name, getattr(plan, name)) for name in outer), ("tp", plan.tp))


def seat_of(plan: Plan, rank: int) -> Seat:
    """Find the place of a process by its number."""
    places = {}
    for name, size in reversed(mesh_of(plan)):
        rank, places[name] = divmod(rank, size)
    return Seat(**places)
