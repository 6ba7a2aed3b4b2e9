"""The few measured numbers that turn a data sheet into a prediction."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field, Strict, field_validator

from optplan.models.errors import QuantityError
from optplan.models.record import Count, Flag, Record, Share, Text
from optplan.models.units import Bytes, Seconds, parse

NotNegative = Annotated[float, Field(ge=0, le=1e12)]
"""A loss or a share of work: far above any that was measured, prices still are floats."""

Ends = tuple[
    Annotated[float, Field(allow_inf_nan=False)], Annotated[float, Field(allow_inf_nan=False)]
]


class Seen(Record):
    """Smallest and largest values among the runs behind a calibration."""

    tokens: tuple[Count, Count]
    """Tokens of a micro-batch, ``b s``."""
    shard: tuple[Count, Count]
    """Hidden columns of a tensor rank, ``h / t``."""
    devices: tuple[Count, Count]
    """Devices of a run."""


class Lump(Record):
    """Utilization where everything that is no matrix product is inside it, as Eq. 1 has it."""

    utilization_peak: Annotated[float, Field(gt=0, le=1)]
    """As that of the calibration."""
    tokens_half: NotNegative = 0.0
    """As that of the calibration."""
    shard_loss: NotNegative = 0.0
    """As that of the calibration."""
    link_efficiency: Annotated[float, Field(gt=0, le=1)] | None = None
    """As that of the calibration; left out: the same."""
    held_out: NotNegative | None = None
    """As that of the calibration."""
    error: str = ""
    """As that of the calibration."""


class Calibration(Record):
    """
    Constants of the cost model for one accelerator and one software stack.

    Utilization of a matrix product is ``u = u_peak / (1 + c_tokens / (b s) + c_shard t / h)``; the
    paper's time multiplier is ``rho = 1 / u``. What tiles and their alignment lose comes on top
    (``cost.tiles``). The slow-down of a collective among ``n`` is ``q = 1 + q_slope (n - 2)``.
    """

    name: Text
    """What to call it in print."""
    utilization_peak: Annotated[float, Field(gt=0, le=1)]
    """Share of the data-sheet peak that an endless matrix product reaches."""
    tokens_half: NotNegative = 0.0
    """Tokens of a micro-batch at which launch and latency costs halve the utilization (c1)."""
    shard_loss: NotNegative = 0.0
    """Loss from narrow shards: utilization is halved where ``t / h`` is its reciprocal (c2)."""
    utilization_fp8: Annotated[float, Field(gt=0, le=1)] | None = None
    """Share of the FP8 peak that an endless product of FP8 matrices reaches, casts included; left
    out: as of the other formats."""
    alignment_loss: NotNegative = 0.0
    """Time that a matrix product loses for every halving of the largest power of two, up to 64,
    that divides the columns of its input or output on a device."""
    lump: Lump | None = None
    """What ``prices: paper`` takes for utilization; left out: the same numbers."""
    attention_loss: Annotated[float, Field(ge=1, allow_inf_nan=False)] = 1.0
    """Time of a flash attention's core over that of a matrix product with as many FLOP, where the
    backward pass counts as twice the forward pass (it computes the scores again: 2.5 times)."""
    link_efficiency: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Share of the data-sheet bandwidth that a collective inside a node reaches."""
    network_efficiency: Annotated[float, Field(gt=0, le=1)] = 1.0
    """The same between nodes."""
    hbm_efficiency: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Share of the data-sheet memory bandwidth that a long stream reaches."""
    pointwise: NotNegative = 0.0
    """Memory traffic of norms, residuals, activations and unfused softmax over what is counted for
    them (``cost.pointwise``); 0: it is inside the utilization."""
    launch_seconds: Annotated[Seconds, Field(le=1.0)] = 0.0
    """Time that the host needs to launch one pass of one layer; no pass is shorter."""
    launch_tensor: Annotated[Seconds, Field(le=1.0)] = 0.0
    """The same beyond it where a layer is divided over tensor ranks by an engine that dispatches
    each operator itself, as PyTorch's DTensor does."""
    launch_adds: Flag = False
    """The host computes what it launches, as a CPU does, so that launching adds to every pass
    instead of hiding behind the arithmetic."""
    step_latency: Annotated[Seconds, Field(le=1.0)] = 0.0
    """Time of one step of a collective beyond what links and network are said to take."""
    hop_latency: Annotated[Seconds, Field(le=1.0)] = 0.0
    """Time of a transfer between stages beyond what links and network are said to take."""
    hops_split: Flag = False
    """Tensor ranks send a part each of what a stage sends on, whatever sequence parallelism."""
    q_slope: NotNegative = 0.0
    """Growth of a collective's slow-down with each member beyond the second."""
    kappa: NotNegative = 0.0
    """Arithmetic of an all-reduce as a share of its transfer time."""
    overlap_tp: Share = 0.0
    """Share of what could hide behind the weight gradients that really does."""
    fused_tp: Share = 0.0
    """Share of every tensor-parallel transfer that products fused with it hide, with sequence
    parallelism and where that is switched on."""
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
    logit_bytes: Annotated[int, Strict(), Field(ge=2, le=64)] = 6
    """Bytes per logit alive at once on the last stage: its 16-bit value and the loss's copies of
    it; 6 where the loss works in place, 14 for plain PyTorch (2 + 4 + 4 + 4)."""
    weights_once: Flag = False
    """Under ZeRO-3 the optimizer's copy of a weight is the only one that lasts (FSDP)."""
    gradient_copies: Annotated[int, Strict(), Field(ge=0, le=8)] = 0
    """Bytes per parameter of 16-bit gradients kept beside their sum in fp32 (DeepSpeed's bf16)."""
    workspace: Bytes | None = None
    """Part of the reserve that libraries allocate for themselves, such as the workspaces of matrix
    products, and that an allocator's peak therefore counts."""
    step_bytes: Annotated[int, Strict(), Field(ge=0, le=64)] = 0
    """Bytes per parameter that the optimizer's step takes for a moment besides its states."""
    memory_error: NotNegative | None = None
    """Mean absolute error of allocated memory on runs left out; none where unknown."""
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
    held_out: NotNegative | None = None
    """Mean absolute error of the step time on runs left out of the fit; none where unknown."""
    error: Text
    """Held-out error of the step time, as printed beside every answer."""
    accelerators: tuple[Text, ...] = ()
    """Devices that it is of; on any other an answer warns. Empty: of none in particular."""
    notes: str = ""
    """More on how it was fitted and where it fails."""
    intervals: dict[str, Ends] = Field(default_factory=dict)
    """Ends between which a constant lies with 95 % probability, by the fit; in seconds and bytes
    where the constant has a unit. Prices do not depend on them."""
    sources: dict[str, str]
    """Origin of every field that is set."""

    @field_validator("intervals", mode="before")
    @classmethod
    def _read_ends(cls, given: object) -> object:
        """Read ends that carry a unit, and refuse what no constant could be."""
        if not isinstance(given, Mapping):
            return given
        return {name: constant_ends(str(name), ends) for name, ends in given.items()}


@dataclass(frozen=True)
class Reach:
    """
    Values that a constant can have.

    Parameters
    ----------
    least, most
        Ends, both possible.
    dimension
        ``seconds`` or ``bytes`` where it has a unit.
    """

    least: float
    most: float = math.inf
    dimension: Literal["seconds", "bytes"] | None = None


_SHARE, _POSITIVE, _LOSS = Reach(0.0, 1.0), Reach(1e-6, 1.0), Reach(0.0)

UNCERTAIN = {
    "utilization_peak": _POSITIVE,
    "utilization_fp8": _POSITIVE,
    "attention_loss": Reach(1.0),
    "hbm_efficiency": _POSITIVE,
    "link_efficiency": _POSITIVE,
    "network_efficiency": _POSITIVE,
    "launch_seconds": Reach(0.0, 1.0, "seconds"),
    "step_latency": Reach(0.0, 1.0, "seconds"),
    "overlap_tp": _SHARE,
    "fused_tp": _SHARE,
    "overlap_dp": _SHARE,
    "overlap_cp": _SHARE,
    "overlap_fsdp": _SHARE,
    "overlap_ep": _SHARE,
    "p2p_exposed": _SHARE,
    "tokens_half": _LOSS,
    "shard_loss": _LOSS,
    "alignment_loss": _LOSS,
    "pointwise": _LOSS,
    "q_slope": _LOSS,
    "kappa": _LOSS,
    "reserve": Reach(0.0, 2.0**45, "bytes"),
}
"""Constants that may be given an interval: numbers that runs could teach."""


def constant_ends(name: str, ends: Any) -> tuple[float, float]:
    """
    Read the two ends of a constant's interval: numbers, or quantities with their unit.

    Raises
    ------
    ValueError
        There is no such constant, an end is no value of it, or the ends are in the wrong order.
    """
    if name not in UNCERTAIN:
        raise ValueError(f"'{name}' is no constant with an interval; known: {', '.join(UNCERTAIN)}")
    if not isinstance(ends, list | tuple) or len(ends) != 2:
        raise ValueError(f"{name} needs two ends; write them as [0.5, 1.0]")
    low, high = (_constant(name, end) for end in ends)
    if low > high:
        raise ValueError(f"{low:g} is above {high:g}; write the lower end of {name} first")
    return low, high


def _constant(name: str, value: Any) -> float:
    """Read one value of a constant."""
    reach = UNCERTAIN[name]
    try:
        if isinstance(value, str) and reach.dimension is not None:
            found = float(parse(value, reach.dimension))
        elif isinstance(value, bool):
            raise ValueError
        else:
            found = float(value)
    except QuantityError as error:
        raise ValueError(f"{name}: {error}") from None
    except (TypeError, ValueError):
        raise ValueError(f"'{value}' is no number; give {name} two ends") from None
    if not reach.least <= found <= reach.most or math.isinf(found):
        raise ValueError(f"{name} cannot be {found:g}; it lies between {_span(reach)}")
    return found


def _span(reach: Reach) -> str:
    """Print the values that a constant can have."""
    return f"{reach.least:g} and {reach.most:g}"
