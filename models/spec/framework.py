"""What a training framework can launch, version by version."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from optplan.models.record import Flag, Record, Text

Schedule = Literal["1f1b", "gpipe", "interleaved", "zb-h1", "zb-h2", "zb-v"]

SCHEDULES: tuple[Schedule, ...] = ("1f1b", "gpipe", "interleaved", "zb-h1", "zb-h2", "zb-v")
"""Pipeline schedules, in the order of their code in the program."""

Context = Literal["ring", "ulysses"]

CONTEXTS: tuple[Context, ...] = ("ring", "ulysses")
"""Ways to split a sequence over devices, in the order of their code in the program."""

Feature = Literal[
    "grad-reduce-overlap",
    "param-gather-overlap",
    "tp-overlap",
    "p2p-overlap",
    "expert-overlap",
]
"""Communication that can run behind computation."""


class Framework(Record):
    """
    What one version of a framework can launch.

    Everything here narrows the choices; nothing adds to them.
    """

    name: Text
    """Name and version, such as ``megatron-core@0.15``."""
    schedules: Annotated[tuple[Schedule, ...], Field(min_length=1)]
    """Pipeline schedules."""
    zero: Annotated[tuple[Annotated[int, Field(ge=0, le=3)], ...], Field(min_length=1)]
    """ZeRO stages."""
    zero_with_pipeline: Annotated[int, Field(ge=0, le=3)]
    """Highest ZeRO stage that goes with more than one pipeline stage."""
    unsharded_alone: Flag = False
    """Several data ranks without sharding (ZeRO 0) go with no other kind of parallelism."""
    hsdp: Flag
    """Sharding over a part of the data ranks, replicating over the others."""
    recompute: Annotated[
        tuple[Literal["none", "selective", "partial", "full"], ...], Field(min_length=1)
    ]
    """Kinds of recomputation; ``partial`` is a number of layers per stage, or per chunk of it."""
    recompute_alike: Flag = False
    """One number of recomputed layers for all stages, where it is ``partial``."""
    context: tuple[Context, ...]
    """Context parallelism; empty for none."""
    tensor: Flag
    """Tensor parallelism."""
    pipeline: Flag
    """Pipeline parallelism."""
    experts: Flag
    """Expert parallelism."""
    expert_tensor: Flag
    """A tensor degree of its own for experts; otherwise it is the dense one."""
    expert_tensor_degrees: Literal["any", "dense-or-one", "one"] = "any"
    """What that degree may be, if experts have one of their own."""
    experts_with_context: Flag = True
    """Expert and context parallelism both above 1."""
    uneven_layers: Flag
    """Any number of layers per stage, and per chunk where a stage has several."""
    uneven_ends: Flag = False
    """
    Any number of layers in the first and the last stage, the others equal.

    Without either, all stages are equal.
    """
    ends_count_as_layers: Flag
    """Embedding and head may each take the place of a layer, so that the ends hold one less."""
    key_heads_copied: Flag
    """A tensor degree may be a multiple of the key heads; otherwise it must divide them."""
    interleaved_multiple: Literal["any", "pp", "pp*vpp"]
    """What the micro-batches must be a multiple of under the interleaved schedule, as launched."""
    interleaved_two_stages: Literal["yes", "no", "p2p-overlap"]
    """Whether two stages may interleave, or only with transfers overlapped."""
    offload: Flag
    """Optimizer state and step on the host."""
    features: tuple[Feature, ...]
    """Overlaps that it has; the user says which are switched on."""
    sources: dict[str, str]
    """Origin of every field."""
