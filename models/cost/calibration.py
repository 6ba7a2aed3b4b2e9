"""The few measured numbers that turn a data sheet into a prediction."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from optplan.models.record import Count, Flag, Record, Share, Text
from optplan.models.units import Bytes

NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Seen(Record):
    """Smallest and largest values among the runs behind a calibration."""

    tokens: tuple[Count, Count]
    """Tokens of a micro-batch, ``b s``."""
    shard: tuple[Count, Count]
    """Hidden columns of a tensor rank, ``h / t``."""
    devices: tuple[Count, Count]
    """Devices of a run."""


class Calibration(Record):
    """
    Constants of the cost model for one accelerator and one software stack.

    Utilization of a matrix product is ``u = u_peak / (1 + c_tokens / (b s) + c_shard t / h)``; the
    paper's time multiplier is ``rho = 1 / u``. The slow-down of a collective among ``n`` is ``q =
    1 + q_slope (n - 2)``.
    """

    name: Text
    """What to call it in print."""
    utilization_peak: Annotated[float, Field(gt=0, le=1)]
    """Share of the data-sheet peak that an endless matrix product reaches."""
    tokens_half: NotNegative = 0.0
    """Tokens of a micro-batch at which launch and latency costs halve the utilization (c1)."""
    shard_loss: NotNegative = 0.0
    """Loss from narrow shards: utilization is halved where ``t / h`` is its reciprocal (c2)."""
    attention_loss: Annotated[float, Field(ge=1, allow_inf_nan=False)] = 1.0
    """Time of a flash attention's core over that of a matrix product with as many FLOP, where the
    backward pass counts as twice the forward pass (it computes the scores again: 2.5 times)."""
    link_efficiency: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Share of the data-sheet bandwidth that a collective inside a node reaches."""
    network_efficiency: Annotated[float, Field(gt=0, le=1)] = 1.0
    """The same between nodes."""
    hbm_efficiency: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Share of the data-sheet memory bandwidth that a long stream reaches."""
    q_slope: NotNegative = 0.0
    """Growth of a collective's slow-down with each member beyond the second."""
    kappa: NotNegative = 0.0
    """Arithmetic of an all-reduce as a share of its transfer time."""
    overlap_tp: Share = 0.0
    """Share of what could hide behind the weight gradients that really does."""
    overlap_dp: Share = 0.0
    """Share of the data-parallel collective hidden behind the backward pass."""
    overlap_cp: Share = 0.0
    """Share of what a ring could hide behind attention that it really does (arXiv 2310.01889)."""
    overlap_fsdp: Share = 0.5
    """Share of what fetching weights ahead could hide behind a layer that it really does; left
    out: a half, as on H100."""
    overlap_ep: Share = 0.0
    """Share of the all-to-all of experts hidden behind arithmetic, where that is switched on."""
    p2p_exposed: Share = 1.0
    """Share of each steady-state transfer between stages that is not hidden (chi)."""
    reserve: Bytes
    """Memory that the runtime, the collectives and fragmentation take from every device."""
    measured: Flag
    """True where the numbers were fitted to runs, false for a prior."""
    fitted_on: Text
    """The runs behind the numbers, or why there are none."""
    range: Text
    """Where the numbers were seen to hold."""
    seen: Seen | None = None
    """The same in numbers, outside which an answer warns; none for a prior."""
    held_out: Share | None = None
    """Mean absolute error of the step time on runs left out of the fit; none where unknown."""
    error: Text
    """Held-out error of the step time, as printed beside every answer."""
    notes: str = ""
    """More on how it was fitted and where it fails."""
    sources: dict[str, str]
    """Origin of every field that is set."""
