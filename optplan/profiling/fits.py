"""From timings to constants, each from the samples that show it and from no step of training."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from optplan.models.cost.block import Ranks, block_busy
from optplan.models.cost.calibration import Calibration
from optplan.models.cost.compute import LOSS_BYTES_PER_LOGIT, block_operators
from optplan.models.cost.optimizers import UPDATE_BYTES
from optplan.models.cost.pointwise import pointwise_bytes
from optplan.models.spec.cluster import Accelerator, Cluster, Link
from optplan.models.spec.problem import Problem
from optplan.models.spec.space import Search
from optplan.models.spec.workload import Precision, Workload
from optplan.profiling.samples import Kind, Sample, Timing, shape_of

LARGE = 2_000_000
"""Bytes from which on a collective is limited by bandwidth more than by latency."""

SHORT = 1e-4
"""Seconds of ideal arithmetic below which a product shows its launching and not its shape."""

NOISE = 0.25
"""Shares beyond none or all by more than this are no measurement."""

FAST_LINK = 10**15
"""Bytes per second of links that do not matter."""


@dataclass(frozen=True)
class Found:
    """
    One constant.

    Parameters
    ----------
    value
        What it is.
    origin
        The samples behind it and how well they agree, in a sentence.
    """

    value: float
    origin: str


class Timings:
    """Timings by what was timed."""

    def __init__(self, timings: Iterable[Timing]) -> None:
        self.every = list(timings)
        self.seconds = {one.sample: one.seconds for one in self.every}

    def of(self, *kinds: Kind) -> list[Timing]:
        """List the timings of some kinds."""
        return [one for one in self.every if one.sample.kind in kinds]

    def like(self, sample: Sample, kind: Kind, **changed: int) -> float | None:
        """Find the time of the same shape as another kind; None where it was not timed."""
        return self.seconds.get(sample.model_copy(update={"kind": kind, **changed}))


# -- arithmetic -----------------------------------------------------------------------------------


def problem_of(
    sample: Sample, accelerator: Accelerator, calibration: Calibration, precision: Precision
) -> Problem:
    """Return the problem that a layer of a profile belongs to."""
    workload = Workload(
        architecture=shape_of(sample.hidden), sequence_length=sample.sequence, precision=precision
    )
    cluster = Cluster(
        accelerator=accelerator,
        nodes=1,
        devices_per_node=accelerator.domain,
        network=f"{FAST_LINK} B/s",  # type: ignore[arg-type]
    )
    search = Search(global_batch=sample.micro_batch)
    return Problem(workload=workload, cluster=cluster, search=search, calibration=calibration)


def ranks_of(sample: Sample) -> Ranks:
    """Return the degrees of a layer of a profile."""
    return Ranks(sample.ways, 1, 1, 1, 0, float(sample.micro_batch))


def product_flops(sample: Sample) -> float:
    """FLOP of a layer's matrix products on one rank, forward and backward."""
    workload = Workload(architecture=shape_of(sample.hidden), sequence_length=sample.sequence)
    operators = block_operators(workload, moe=False)
    forward = sum(operator.flops for operator in operators if operator.weighted)
    return 3.0 * forward * sample.micro_batch / sample.ways


def score_flops(sample: Sample) -> float:
    """FLOP of a layer's attention on one rank as the model counts them, forward and backward."""
    workload = Workload(architecture=shape_of(sample.hidden), sequence_length=sample.sequence)
    operators = block_operators(workload, moe=False)
    forward = sum(operator.flops for operator in operators if not operator.weighted)
    return 3.0 * forward * sample.micro_batch / sample.ways


def head_flops(sample: Sample) -> float:
    """FLOP of an output head, forward and backward."""
    return 6.0 * sample.tokens * sample.hidden * sample.count


def peak_flops(timings: Timings) -> Found:
    """Best rate of any matrix product: square ones, and those of the layers."""
    rates = {t.sample.label: 2.0 * t.sample.hidden**3 / t.seconds for t in timings.of("matmul")}
    rates |= {t.sample.label: product_flops(t.sample) / t.seconds for t in timings.of("products")}
    best = max(rates, key=lambda label: rates[label])
    return Found(rates[best], f"measured: the fastest of {len(rates)} products, {best}")


def utilization(timings: Timings, peak: float) -> dict[str, Found]:
    """
    Fit ``rho = (1 + c1 / (b s) + c2 t / h) / u`` to the products of layers.

    Least squares on relative errors, no coefficient below zero.
    """
    from scipy.optimize import nnls

    rows = timings.of("products")
    rows = [t for t in rows if product_flops(t.sample) / peak >= SHORT] or rows
    measured = np.array([t.seconds for t in rows])
    ideal = np.array([product_flops(t.sample) / peak for t in rows])
    parts = np.array([[1.0, 1.0 / t.sample.tokens, t.sample.ways / t.sample.hidden] for t in rows])
    scaled = parts * (ideal / measured)[:, None]
    level, tokens, shard = nnls(scaled, np.ones(len(rows)))[0]
    level = max(level, 1.0)
    error = float(np.mean(np.abs(scaled @ np.array([level, tokens, shard]) - 1.0)))
    origin = f"products of {len(rows)} layer shapes, {error:.1%} mean residual"
    return {
        "utilization_peak": Found(1.0 / level, origin),
        "tokens_half": Found(tokens / level, origin),
        "shard_loss": Found(shard / level, origin),
    }


def constant_utilization(timings: Timings, peak: float) -> dict[str, Found]:
    """Fit one utilization to whole layers, as if neither shape nor launching mattered."""
    rows = [t for t in timings.of("layer") if product_flops(t.sample) / peak >= SHORT]
    rates = [(product_flops(t.sample) + score_flops(t.sample)) / (t.seconds * peak) for t in rows]
    value = min(1.0, float(np.exp(np.mean(np.log(rates)))))
    return {"utilization_peak": Found(value, f"one number for {len(rows)} whole layers")}


def attention_loss(timings: Timings, rho: Callable[[Sample], float], peak: float) -> Found:
    """Time of a fused attention over that of a product with as many FLOP."""
    rows = timings.of("attention")
    rows = [t for t in rows if product_flops(t.sample) / peak >= SHORT] or rows
    ratios = [t.seconds * peak / (score_flops(t.sample) * rho(t.sample)) for t in rows]
    value = max(1.0, float(median(ratios)))
    text = f"median of {len(rows)} shapes, {min(ratios):.3g} to {max(ratios):.3g}"
    return Found(value, text)


def around_products(
    timings: Timings, bytes_of: Callable[[Sample], float], rate: float, adds: bool
) -> dict[str, Found]:
    """
    Fit what a layer takes beyond its products and its attention: bytes moved, and launching.

    Three passes over the bytes of the operators between, and a constant for each of two passes;
    least squares weighed by the time of the layer. Where launching hides behind the device's work
    (``adds`` False), it is half of the shortest layer, which shows nothing else, and the bytes are
    fitted alone.
    """
    from scipy.optimize import nnls

    parts, beyond, whole = [], [], []
    for t in timings.of("layer"):
        products, attention = (timings.like(t.sample, k) for k in ("products", "attention"))
        if products is not None and attention is not None:
            parts.append([3.0 * bytes_of(t.sample) / rate, 2.0 if adds else 0.0])
            beyond.append(t.seconds - products - attention)
            whole.append(t.seconds)
    weight = 1.0 / np.array(whole)
    found = nnls(np.array(parts) * weight[:, None], np.maximum(0.0, np.array(beyond)) * weight)[0]
    residual = np.abs((np.array(parts) @ found - np.array(beyond)) * weight)
    share = float(np.mean(np.array(beyond) * weight))
    origin = (
        f"{len(whole)} layers less their products and attention, which is {share:.0%} of them; "
        f"residual {residual.mean():.1%} of a layer"
    )
    launch = Found(float(found[1]), origin)
    if not adds:
        shortest = min(timings.of("layer"), key=lambda t: t.seconds)
        text = f"half of the shortest layer, {shortest.sample.label}"
        launch = Found(shortest.seconds / 2.0, text)
    return {"pointwise": Found(float(found[0]), origin), "launch_seconds": launch}


# -- memory ---------------------------------------------------------------------------------------


def stream_rate(timings: Timings) -> Found:
    """Bytes per second that a copy beyond the caches reads and writes."""
    one = timings.of("stream")[0]
    rate = one.sample.payload_bytes / one.seconds
    return Found(rate, f"measured: a copy, {one.sample.payload_bytes:,} bytes read and written")


def optimizer_rate(timings: Timings) -> Found | None:
    """Bytes per second of an optimizer's step, were they as many as the model counts."""
    rows = timings.of("optimizer")
    if not rows:
        return None
    sizes = np.array([UPDATE_BYTES * t.sample.count for t in rows])
    seconds = np.array([t.seconds for t in rows])
    rate = float(1.0 / np.mean(seconds / sizes))
    apart = float(np.mean(np.abs(sizes / rate / seconds - 1.0)))
    return Found(rate, f"steps of fused AdamW over {len(rows)} sizes, {apart:.1%} mean residual")


def loss_share(
    timings: Timings, rho: Callable[[Sample], float], peak: float, rate: float
) -> float | None:
    """Head and loss as the model prices them over what they took; a check, nothing is fitted."""
    ratios = []
    for t in timings.of("head"):
        logits = t.sample.tokens * t.sample.count
        product = head_flops(t.sample) * rho(t.sample.model_copy(update={"ways": 1})) / peak
        ratios.append((product + LOSS_BYTES_PER_LOGIT * logits / rate) / t.seconds)
    return float(median(ratios)) if ratios else None


# -- links ----------------------------------------------------------------------------------------


def carried(kind: Kind, group: int, payload: float) -> float:
    """
    Bytes that cross a member's link in a collective of some payload.

    A ring's all-reduce sends all but one part twice, gather and scatter once; a transfer sends all.
    """
    if kind == "p2p":
        return payload
    share = (group - 1) / group * payload
    return 2.0 * share if kind == "all_reduce" else share


@dataclass(frozen=True)
class Line:
    """Latency and bandwidth of one kind of collective in one size of group."""

    latency: float
    rate: float
    error: float


def line(timings: Timings, kind: Kind, group: int) -> Line | None:
    """Fit ``seconds = latency + bytes / rate`` on relative errors; None with too few sizes."""
    from scipy.optimize import nnls

    rows = [t for t in timings.of(kind) if t.sample.group == group]
    if len(rows) < 3:
        return None
    measured = np.array([t.seconds for t in rows])
    moved = np.array([carried(kind, group, t.sample.payload_bytes) for t in rows])
    parts = np.stack([np.ones(len(rows)), moved], axis=1) / measured[:, None]
    scale = np.array([1e-6, 1e-9])
    latency, slope = nnls(parts * scale, np.ones(len(rows)))[0] * scale
    error = float(np.mean(np.abs(parts @ np.array([latency, slope]) - 1.0)))
    return Line(float(latency), 1.0 / max(float(slope), 1e-15), error)


def growth(timings: Timings, pair: Line, processes: int) -> Found | None:
    """Slow-down of an all-reduce with each member beyond the second, where it is large."""
    rows = [
        t
        for t in timings.of("all_reduce")
        if t.sample.group == processes and t.sample.payload_bytes >= LARGE
    ]
    if processes < 3 or not rows:
        return None
    slow = [
        t.seconds
        / (
            (processes - 1) * pair.latency
            + carried("all_reduce", processes, t.sample.payload_bytes) / pair.rate
        )
        for t in rows
    ]
    value = max(0.0, (float(median(slow)) - 1.0) / (processes - 2))
    return Found(value, f"all-reduces among {processes} against pairs, {len(rows)} sizes")


# -- engines --------------------------------------------------------------------------------------


def tensor_launch(timings: Timings, reduce: Line, processes: int, width: int) -> Found | None:
    """
    Time to launch a pass of a layer that is really divided, beyond that of its shard.

    What the layer takes beyond its shard and four bare all-reduces, a half for each pass.
    """
    found = []
    for t in timings.of("tensor_layer"):
        shard = timings.like(t.sample, "layer")
        if shard is not None:
            payload = float(t.sample.tokens * t.sample.hidden * width)
            each = reduce.latency + carried("all_reduce", processes, payload) / reduce.rate
            found.append((t.seconds - shard - 4.0 * each) / 2.0)
    if not found:
        return None
    shown = ", ".join(f"{1e3 * value:.2g} ms" for value in found)
    text = f"divided layers less their shards and four bare all-reduces, a half each: {shown}"
    return Found(max(0.0, float(median(found))), text)


def hop_latency(timings: Timings, rate: float, width: int) -> Found | None:
    """
    Latency of a transfer between stages, as the pipeline's engine makes it.

    What a further micro-batch adds to a pipeline beyond the layer itself, a half for each of two
    transfers, less the bytes.
    """
    found = []
    for sample in {t.sample.model_copy(update={"count": 0}) for t in timings.of("pipeline")}:
        layer = timings.like(sample, "layer", group=0, ways=1)
        few, many = (timings.like(sample, "pipeline", count=k * sample.group) for k in (1, 3))
        if layer is not None and few is not None and many is not None:
            slope = (many - few) / (2.0 * sample.group)
            payload = sample.tokens * sample.hidden * width
            found.append((slope - layer) / 2.0 - payload / rate)
    if not found:
        return None
    shown = ", ".join(f"{1e6 * value:.0f} us" for value in sorted(found))
    text = f"a further micro-batch of a pipeline less its layer, a half, less the bytes: {shown}"
    return Found(max(0.0, float(median(found))), text)


def data_overlap(timings: Timings, all_reduce: Line, processes: int) -> Found | None:
    """Share of a stack's gradient all-reduce that runs behind its backward pass."""
    for t in timings.of("data_synced"):
        alone = timings.like(t.sample, "data_alone")
        if alone is not None:
            from optplan.models.cost.parameters import layer_parameters

            payload = 4.0 * t.sample.count * int(layer_parameters(shape_of(t.sample.hidden)))
            moved = carried("all_reduce", processes, payload)
            whole = all_reduce.latency + moved / all_reduce.rate
            seen = (t.seconds - alone) / whole
            text = f"a stack under DDP shows {seen:.0%} of its all-reduce"
            if not -NOISE <= seen <= 1.0 + NOISE:
                return Found(0.0, f"{text}, which is noise: nothing is taken as hidden")
            return Found(min(1.0, max(0.0, 1.0 - seen)), text)
    return None


def logit_bytes(timings: Timings) -> Found | None:
    """Bytes per logit that a head holds for a moment, gradients of its weights left out."""
    for t in timings.of("head_memory"):
        logits = t.sample.tokens * t.sample.count
        held = t.seconds - 4.0 * t.sample.hidden * t.sample.count
        value = float(min(64, max(2, round(held / logits))))
        return Found(value, f"peak of a head of {logits:,} logits less what it held before")
    return None


# -- the check ------------------------------------------------------------------------------------


def layer_errors(
    timings: Sequence[Timing],
    accelerator: Accelerator,
    calibration: Calibration,
    precision: Precision,
) -> dict[Sample, float]:
    """Priced over measured time of every whole layer, less one."""
    found = {}
    for t in timings:
        if t.sample.kind == "layer":
            problem = problem_of(t.sample, accelerator, calibration, precision)
            shard = calibration.model_copy(update={"step_latency": 0.0, "launch_tensor": 0.0})
            free = Link(kind="switch", bandwidth=f"{FAST_LINK} B/s")  # type: ignore[arg-type]
            problem = problem.with_accelerator(link=free).model_copy(update={"calibration": shard})
            priced = float(block_busy(problem, ranks_of(t.sample), moe=False).total)
            found[t.sample] = priced / t.seconds - 1.0
    return found


def moved_bytes(sample: Sample, problem: Problem) -> float:
    """Bytes of the operators between a layer's products, forward."""
    return float(pointwise_bytes(problem, sample.micro_batch, sample.ways, 1, False, False))
