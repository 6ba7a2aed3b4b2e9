"""Layers of the chunks of a pipeline, in the order of the network, and of its stages."""

from __future__ import annotations

from collections.abc import Sequence

from optplan.models.spec.plan import Plan


def stage_of(chunk: int, pp: int, folded: bool) -> int:
    """Return the stage that holds a chunk: round and round, or there and back."""
    if folded and chunk >= pp:
        return 2 * pp - 1 - chunk
    return chunk % pp


def stages_of(chunks: Sequence[int], pp: int, folded: bool) -> tuple[int, ...]:
    """Return the layers of each stage, from those of the chunks."""
    held = [0] * pp
    for chunk, layers in enumerate(chunks):
        held[stage_of(chunk, pp, folded)] += layers
    return tuple(held)


def chunks_of(plan: Plan) -> tuple[int, ...] | None:
    """
    Return the layers of each chunk of a plan, in the order of the network; None where unknown.

    Chunks are equal, but for the last and then the first, which may be one short: embedding and
    head take the place of a layer there. Without virtual stages the stages are the chunks.
    """
    return chunks_from(plan.layers_per_stage, plan.vpp, plan.schedule == "zb-v")


def chunks_from(held: tuple[int, ...], vpp: int, folded: bool) -> tuple[int, ...] | None:
    """Return the layers of each chunk from those of the stages; None where they do not tell."""
    if vpp == 1:
        return held
    pp = len(held)
    layers, count = sum(held), pp * vpp
    each = -(-layers // count)
    chunks, short = [each] * count, count * each - layers
    if short >= 1:
        chunks[-1] -= 1
    if short >= 2:
        chunks[0] -= 1
    if sum(chunks) != layers or stages_of(chunks, pp, folded) != held:
        return None
    return tuple(chunks)
