"""A profile's timings as a calibration and as the description of the machine they are of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from optplan.models.cost.calibration import Calibration, Seen
from optplan.models.cost.utilization import rho as rho_of
from optplan.models.errors import Fault, InputError
from optplan.models.spec.cluster import Accelerator
from optplan.models.spec.workload import Precision
from optplan.models.units import show
from optplan.profiling import fits
from optplan.profiling.fits import Found, Timings
from optplan.profiling.samples import Sample, Timing
from optplan.ranks.job import Device

NEEDED = ("matmul", "stream", "products", "attention", "layer")
"""Kinds without which nothing can be fitted."""

WIDTHS: dict[Precision, int] = {"fp32": 4, "bf16": 2}
"""Bytes of an activation."""

RESERVE_OVER_IDLE = 1.15
"""
What a process needs beside what is counted, over what it holds when it holds nothing: buffers of
collectives, the allocator's slack, modules that are loaded late. A round number of ours; ``optplan
validate`` tells how near it comes.
"""


@dataclass(frozen=True)
class Machine:
    """
    What the processes ran on.

    Parameters
    ----------
    device, processes, processors
        Kind of device, processes, and processors of the machine.
    memory_bytes
        Of the machine on a CPU, of one device otherwise.
    torch
        Version of PyTorch.
    name
        What the accelerator is to be called.
    """

    device: Device
    processes: int
    processors: int
    memory_bytes: int
    torch: str
    name: str


@dataclass(frozen=True)
class Fitted:
    """
    What a profile came to.

    Parameters
    ----------
    calibration, accelerator
        Ready for a spec.
    constants
        Every fitted number with its origin.
    layers
        Priced over measured time of every layer, less one.
    constant_rho
        The same calibration with one utilization in place of shapes, for comparison.
    notes
        What did not come out as the model has it.
    """

    calibration: Calibration
    accelerator: Accelerator
    constants: Mapping[str, Found]
    layers: Mapping[Sample, float]
    constant_rho: Calibration
    notes: tuple[str, ...]


def fitted(timings: Sequence[Timing], machine: Machine, precision: Precision) -> Fitted:
    """
    Fit every constant to the samples that show it.

    Raises
    ------
    InputError
        The budget was too short for the samples that are needed.
    """
    known = Timings(timings)
    missing = [kind for kind in NEEDED if not known.of(kind)]  # type: ignore[arg-type]
    if missing or len(known.of("products")) < 3:
        text = "too few samples were timed to fit anything"
        raise InputError([Fault("", "--budget", text, "give it more time, such as --budget 3min")])
    notes: list[str] = []
    found: dict[str, Found] = {}
    peak = fits.peak_flops(known)
    found["peak"] = peak
    found |= fits.utilization(known, peak.value)
    stream, optimizer = fits.stream_rate(known), fits.optimizer_rate(known)
    rate = optimizer or stream
    bandwidth = max(stream.value, rate.value)
    found["hbm_bandwidth"] = Found(bandwidth, stream.origin)
    if rate.value > stream.value:
        text = f"{rate.origin}, faster than a copy as 40 bytes a parameter are counted"
        found["hbm_bandwidth"] = Found(bandwidth, text)
    found["hbm_efficiency"] = Found(rate.value / bandwidth, rate.origin)
    found |= _links(known, machine, precision)
    flat = _assembled(found, machine, precision, Timings(timings))
    accelerator = flat[0]

    def rho(sample: Sample) -> float:
        shape = (sample.micro_batch, sample.sequence, sample.hidden, max(1, sample.ways))
        return float(rho_of(flat[1], *shape))

    found["attention_loss"] = fits.attention_loss(known, rho, peak.value)

    def bytes_of(sample: Sample) -> float:
        return fits.moved_bytes(sample, fits.problem_of(sample, accelerator, flat[1], precision))

    found |= fits.around_products(known, bytes_of, rate.value, machine.device == "cpu")
    share = fits.loss_share(known, rho, peak.value, rate.value)
    if share is not None:
        notes.append(
            f"head and loss are priced at {share:.2f} times what they took; nothing is fitted to "
            "them"
        )
    logits = fits.logit_bytes(known)
    if logits is not None:
        found["logit_bytes"] = logits
    _, calibration = _assembled(found, machine, precision, known)
    layers = fits.layer_errors(timings, accelerator, calibration, precision)
    error = float(np.mean(np.abs(list(layers.values()))))
    text = f"{error:.1%} mean on the {len(layers)} layers it was fitted to; on whole steps unknown "
    text += "until optplan measure and optplan validate tell"
    calibration = calibration.model_copy(update={"error": text})
    constant = fits.constant_utilization(known, peak.value)["utilization_peak"].value
    plain = {"tokens_half": 0.0, "shard_loss": 0.0, "attention_loss": 1.0, "pointwise": 0.0}
    flattened = calibration.model_copy(
        update={
            **plain,
            "launch_seconds": 0.0,
            "launch_adds": False,
            "utilization_peak": _short(constant),
            "name": f"{machine.name}-constant-rho",
        }
    )
    return Fitted(calibration, accelerator, found, layers, flattened, tuple(notes))


def _links(known: Timings, machine: Machine, precision: Precision) -> dict[str, Found]:
    """Fit bandwidths and latencies, alone and inside the engines."""
    n = machine.processes
    if n == 1:
        none = "a single process: nothing is carried"
        free = Found(float(fits.FAST_LINK), none)
        return {"link": free, "link_efficiency": Found(1.0, none), "latency": Found(0.0, none)}
    group = 2 if n % 2 == 0 else n
    reduce, pair = fits.line(known, "all_reduce", group), fits.line(known, "p2p", 2)
    if reduce is None:
        text = "no collective was timed"
        raise InputError([Fault("", "--budget", text, "give it more time, such as --budget 3min")])
    kinds = ("all_reduce", "p2p", "all_gather", "reduce_scatter", "all_to_all")
    lines = {kind: fits.line(known, kind, 2) for kind in kinds}  # type: ignore[arg-type]
    rates = {kind: one.rate for kind, one in lines.items() if one is not None}
    rates["all_reduce"] = reduce.rate
    fastest = max(rates, key=lambda kind: rates[kind])
    best = rates[fastest]
    width = WIDTHS[precision]
    shown = ", ".join(f"{kind} {value / 1e9:.3g} GB/s" for kind, value in rates.items())
    found = {
        "link": Found(best, f"measured: the fastest of {shown}"),
        "link_efficiency": Found(
            reduce.rate / best,
            f"all-reduces among {group} over the fastest, {reduce.error:.1%} mean residual",
        ),
    }
    # A bare all-reduce among g takes 2 (g - 1) steps.
    step = reduce.latency / (2.0 * (group - 1))
    hop = fits.hop_latency(known, reduce.rate, width)
    bare = pair.latency if pair else step
    latency = min(bare, step, *([] if hop is None else [hop.value]))
    found["latency"] = Found(latency, "the shortest of bare transfers, all-reduces and hops")
    text = f"a step of bare all-reduces among {group}, {1e6 * step:.0f} us, less the link's"
    found["step_latency"] = Found(step - latency, text)
    if hop is None:
        hop = Found(bare, f"bare transfers, {1e6 * bare:.0f} us; no pipeline was timed")
    found["hop_latency"] = Found(hop.value - latency, hop.origin)
    whole = fits.line(known, "all_reduce", n)
    divided = fits.tensor_launch(known, whole or reduce, n, width)
    if divided is not None:
        found["launch_tensor"] = divided
    grown = fits.growth(known, reduce, n)
    if grown is not None:
        found["q_slope"] = grown
    hidden = fits.data_overlap(known, reduce, n)
    if hidden is not None:
        found["overlap_dp"] = hidden
    return found


def _assembled(
    found: Mapping[str, Found], machine: Machine, precision: Precision, known: Timings
) -> tuple[Accelerator, Calibration]:
    """Put what is known so far into the records of the model."""
    cpu = machine.device == "cpu"
    memory = machine.memory_bytes // machine.processes if cpu else machine.memory_bytes
    link = show(_short(found["link"].value), "bytes/s")
    accelerator = Accelerator.model_validate(
        {
            "name": machine.name,
            "peak": {precision: show(_short(found["peak"].value), "FLOP/s")},
            "hbm": show(max(1, memory), "bytes"),
            "hbm_bandwidth": show(_short(found["hbm_bandwidth"].value), "bytes/s"),
            "link": {
                "kind": "switch",
                "bandwidth": link,
                "latency": show(_short(found["latency"].value), "seconds"),
            },
            "domain": machine.processes,
            "network": link,
        }
    )
    idle = next((t.seconds for t in known.of("idle_memory")), 0.0)
    reserve = max(1, round(RESERVE_OVER_IDLE * idle))
    peak = found["peak"].value
    seen = [
        t.sample for t in known.of("layer") if fits.product_flops(t.sample) / peak >= fits.SHORT
    ]
    tokens = [sample.tokens for sample in seen]
    shards = [sample.hidden // max(1, sample.ways) for sample in seen]
    constants = {
        name: _short(found[name].value)
        for name in (
            *("utilization_peak", "tokens_half", "shard_loss", "attention_loss", "pointwise"),
            *("link_efficiency", "hbm_efficiency", "q_slope", "overlap_dp"),
        )
        if name in found
    }
    times = {
        name: show(_short(found[name].value), "seconds")
        for name in ("launch_seconds", "launch_tensor", "step_latency", "hop_latency")
        if name in found
    }
    sources = {name: found[name].origin for name in (*constants, *times)}
    sources["reserve"] = (
        f"{RESERVE_OVER_IDLE:g} times the {idle / 2**20:.0f} MiB that a process holds before it "
        "holds anything"
    )
    if "logit_bytes" in found:
        constants["logit_bytes"] = int(found["logit_bytes"].value)
        sources["logit_bytes"] = found["logit_bytes"].origin
    if cpu:
        sources["launch_adds"] = "the processor that computes is the one that launches"
    text = f"{len(known.every)} samples on {machine.processes} x {machine.device}, PyTorch "
    calibration = Calibration.model_validate(
        {
            **constants,
            **times,
            "name": machine.name,
            "launch_adds": cpu,
            "reserve": show(reserve, "bytes"),
            "measured": True,
            "fitted_on": f"a profile: {text}{machine.torch}",
            "range": (
                f"tokens of a micro-batch {min(tokens)} to {max(tokens)}, hidden columns of a "
                f"tensor rank {min(shards)} to {max(shards)}, {machine.processes} devices"
            ),
            "seen": Seen(
                tokens=(min(tokens), max(tokens)),
                shard=(min(shards), max(shards)),
                devices=(1, machine.processes),
            ),
            "error": "not yet known",
            "accelerators": (machine.name,),
            "overlap_fsdp": 0.0 if cpu else 0.5,
            "sources": {
                **sources,
                "overlap_fsdp": (
                    "nothing: one thread computes and carries"
                    if cpu
                    else "as on H100, not profiled"
                ),
                "p2p_exposed": "the whole of a hop, to which its latency was fitted",
            },
        }
    )
    return accelerator, calibration


def _short(value: float) -> float:
    """Keep four digits."""
    return float(f"{value:.4g}")


def plain(fit: Fitted) -> dict[str, Any]:
    """Return the constants with their origin as a file writes them."""
    return {
        name: {"value": _short(one.value), "from": one.origin}
        for name, one in fit.constants.items()
    }
