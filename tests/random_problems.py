"""Random problems by seed: odd shapes, odd clusters, tight memory, limits near typical values."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

from optplan.models.formulate import Formulation, formulate
from optplan.planner import problem_of
from optplan.solvers import exhaustive
from optplan.solvers.proved import proved

MOST_POINTS = 200_000
"""No problem has more points; most have far fewer."""

LAYERS = (1, 2, 3, 4, 5, 6, 7, 8, 12, 13, 16, 23, 24, 30, 31, 32, 36, 40, 48, 53, 60, 61, 64)
NODE = (1, 2, 3, 4, 5, 6, 7, 8, 8, 12, 16)
Spec = dict[str, Any]


def random_spec(seed: int) -> Spec:
    """A spec whose space is small enough to be enumerated, its limits near what it can reach."""
    rng = random.Random(seed)
    while True:
        spec = _without_limits(rng)
        form = formulate(problem_of(spec))
        points = exhaustive.count(form.program)
        # A space without a point is worth one problem in twenty.
        if points <= MOST_POINTS and (points or rng.random() < 0.05):
            return _surcharged(seed, _dearer(seed, spec | {"limits": _limits(rng, form)}))


def _dearer(seed: int, spec: Spec) -> Spec:
    """Ask for money or energy now and then, of the problems that ask for time."""
    rng = random.Random(f"goal {seed}")
    if spec["goal"] != "fastest" or rng.random() < 0.7:
        return spec
    cluster = spec["cluster"] | {
        "price": rng.choice(("0.37 EUR/h", "2.50 USD/h")),
        "held": rng.choice(("all", "nodes", "nodes", "devices")),
        "pue": rng.choice((1.0, 1.3)),
    }
    cluster["accelerator"] = cluster["accelerator"] | {"power": rng.choice(("400 W", "1.2 kW"))}
    return spec | {"cluster": cluster, "goal": rng.choice(("cheapest", "least-energy"))}


SURCHARGES = (
    "{} s",
    "{} s * tp * pp * dp * cp",
    "{} s * (pp - 1)",
    "max({} s, {} s * dp)",
    "{} s * (micro_batches // 3 + zero)",
    "{} s * max(0, 4 - micro_batch) + {} s * (vpp % 3)",
    "{} s * ep * etp",
)
"""Times that a step takes on top, with room for numbers."""


def _surcharged(seed: int, spec: Spec) -> Spec:
    """Add prices of the user's own now and then."""
    rng = random.Random(f"surcharge {seed}")
    if spec["prices"] == "paper" or rng.random() < 0.75:
        return spec
    texts = rng.sample(SURCHARGES, rng.choice((1, 1, 2, 3)))
    # A few digits at any size: from far below a step to far above it.
    scale = 10.0 ** rng.uniform(-6, 1)
    sizes = [tuple(f"{scale * rng.random():.9f}" for _ in range(2)) for _ in texts]
    added = [text.format(*size) for text, size in zip(texts, sizes, strict=True)]
    return spec | {"surcharges": added}


def _without_limits(rng: random.Random) -> Spec:
    """Draw everything but the limits."""
    architecture = _architecture(rng)
    devices_per_node = rng.choice(NODE)
    nodes = rng.choice([n for n in (1, 1, 2, 3, 4, 5, 8, 16, 32) if n * devices_per_node <= 512])
    devices = devices_per_node * nodes
    sequence = rng.choice((1, 32, 128, 512, 1000, 2048, 4096, 8191))
    reserve = rng.choice((1, 10**7, 10**8, 2**30))
    precision = rng.choice(("bf16", "bf16", "fp16", "fp32"))
    return {
        "workload": {
            "architecture": architecture,
            "sequence_length": sequence,
            "precision": precision,
            "flash_attention": rng.random() < 0.7,
        },
        "cluster": {
            "accelerator": _accelerator(rng, _typical(rng, architecture, sequence, devices)),
            "nodes": nodes,
            "devices_per_node": devices_per_node,
            "network": _rate(rng, 1e8, 4e11),
            "network_latency": rng.choice(("0 s", "5 us", "1 ms")),
        },
        "search": _search(rng, devices),
        "goal": "fastest" if rng.random() < 0.8 else "most-headroom",
        "prices": "canonical" if rng.random() < 0.8 else "paper",
        "calibration": _calibration(rng, reserve),
    } | _framework(rng)


def _framework(rng: random.Random) -> Spec:
    """Name a framework now and then, and what is overlapped."""
    spec: Spec = {}
    if rng.random() < 0.2:
        names = ("megatron-core@0.15", "megatron-core@0.16", "torchtitan", "deepspeed", "nemo")
        spec["framework"] = rng.choice(names)
    elif rng.random() < 0.3:
        features = ("grad-reduce-overlap", "tp-overlap", "p2p-overlap", "expert-overlap")
        spec["overlap"] = rng.sample(features, rng.randint(0, 4))
    return spec


def _architecture(rng: random.Random) -> Spec:
    """Draw a transformer from a toy to some billions of weights."""
    plain = rng.random() < 0.6
    heads = rng.choice((8, 12, 16, 24, 32, 48) if plain else (1, 2, 3, 4, 5, 6, 20, 25, 40, 64))
    hidden = heads * rng.choice((1, 8, 16, 64, 80, 128))
    odd = 8 * hidden // 3 + 1
    ffn = rng.choice((hidden, 3 * hidden, 4 * hidden, 4 * hidden if plain else odd))
    layers = rng.choice((12, 24, 30, 36, 40, 48, 60, 64) if plain else LAYERS)
    return {
        "layers": layers,
        "hidden": hidden,
        "heads": heads,
        "kv_heads": rng.choice([k for k in range(1, heads + 1) if heads % k == 0]),
        "ffn": ffn,
        "vocabulary": rng.choice((17, 100, 32000, 50257, 128256)),
        "gated": rng.random() < 0.5,
        "tied_embeddings": rng.random() < 0.3,
        "biases": rng.choice(("none", "qkv", "all")),
        "norm": rng.choice(("rmsnorm", "layernorm")),
        "learned_positions": rng.choice((0, 0, 1024)),
        "dropout": rng.random() < 0.3,
    } | _kind(rng, layers, hidden)


def _kind(rng: random.Random, layers: int, hidden: int) -> Spec:
    """Draw what newer transformers have: experts, latent attention, windows, more predictions."""
    spec: Spec = {}
    if rng.random() < 0.3:
        count = rng.choice((2, 4, 8, 6))
        spec["experts"] = {
            "count": count,
            "per_token": rng.randint(1, min(count, 3)),
            "ffn": rng.choice((hidden, 2 * hidden, hidden // 2 or 1)),
            "shared_ffn": rng.choice((0, 0, hidden)),
            "leading_dense": rng.choice((0, 0, 1)) if layers > 1 else 0,
        }
    if rng.random() < 0.1:
        spec["latent"] = {
            "q_rank": rng.choice((0, 16)),
            "kv_rank": 8,
            "nope": 4,
            "rope": 2,
            "value": 4,
        }
    if rng.random() < 0.1:
        spec["sliding_window"] = 64
    if rng.random() < 0.1:
        spec["mtp"] = 1
    return spec


def _typical(rng: random.Random, shape: Mapping[str, Any], sequence: int, devices: int) -> int:
    """Memory from far too little to plenty, about what states and activations take."""
    hidden, layers = shape["hidden"], shape["layers"]
    weights = layers * (4 * hidden**2 + 3 * hidden * shape["ffn"]) + shape["vocabulary"] * hidden
    states = 18 * weights
    kept = 34 * sequence * hidden * layers + 10 * sequence * shape["vocabulary"]
    share = devices ** rng.choice((0.0, 0.3, 0.7))
    return int((states + kept) / share * 10 ** rng.uniform(-0.3, 1.5)) + 10**7


def _accelerator(rng: random.Random, typical: int) -> Spec:
    """Draw a device with a given memory beyond whatever is reserved."""
    peak = f"{rng.choice((1, 19.5, 312, 989))} TFLOP/s"
    return {
        "peak": {"bf16": peak, "fp16": peak, "fp32": peak},
        "hbm": f"{typical + rng.choice((0, 10**8, 2**31))} B",
        "hbm_bandwidth": _rate(rng, 1e10, 5e12),
        "link": {
            "kind": rng.choice(("mesh", "switch")),
            "bandwidth": _rate(rng, 1e9, 1e12),
            "latency": rng.choice(("0 s", "1 us", "10 us")),
        },
        "domain": 8,
        "units": rng.choice((None, 1, 80, 132)),
    }


def _rate(rng: random.Random, low: float, high: float) -> str:
    """Draw a bandwidth between two ends, all magnitudes alike."""
    return f"{int(low * (high / low) ** rng.random())} B/s"


def _calibration(rng: random.Random, reserve: int) -> Spec:
    """Draw every constant of the cost model, each at its neutral value now and then."""

    def some(neutral: float, low: float, high: float) -> float:
        return neutral if rng.random() < 0.3 else round(rng.uniform(low, high), 4)

    return {
        "utilization_peak": some(1.0, 0.05, 1.0),
        "tokens_half": some(0.0, 1.0, 4000.0),
        "shard_loss": some(0.0, 0.0, 400.0),
        "link_efficiency": some(1.0, 0.2, 1.0),
        "network_efficiency": some(1.0, 0.2, 1.0),
        "hbm_efficiency": some(1.0, 0.2, 1.0),
        "q_slope": some(0.0, 0.0, 0.3),
        "kappa": some(0.0, 0.0, 2.0),
        "overlap_tp": some(0.0, 0.0, 1.0),
        "overlap_dp": some(0.0, 0.0, 1.0),
        "p2p_exposed": some(1.0, 0.0, 1.0),
        "alignment_loss": some(0.0, 0.0, 0.1),
        "pointwise": some(0.0, 0.0, 2.0),
        "launch_seconds": f"{some(0.0, 0.0, 5.0)} ms",
        "step_latency": f"{some(0.0, 0.0, 100.0)} us",
        "hops_split": rng.random() < 0.3,
        "fused_tp": some(0.0, 0.0, 1.0),
        "logit_bytes": rng.choice((6, 14)),
        "weights_once": rng.random() < 0.3,
        "gradient_copies": rng.choice((0, 2)),
        "step_bytes": rng.choice((0, 0, 16)),
        "launch_adds": rng.random() < 0.2,
        "hop_latency": f"{some(0.0, 0.0, 100.0)} us",
        "launch_tensor": f"{some(0.0, 0.0, 5.0)} ms",
        "reserve": f"{reserve} B",
        "measured": False,
        "fitted_on": "nothing",
        "range": "nowhere",
        "error": "unknown",
        "sources": {},
    }


def _search(rng: random.Random, devices: int) -> Spec:
    """Draw what may be chosen: mostly open, sometimes so narrow that nothing is left."""
    search: Spec = {"global_batch": _global_batch(rng, devices)}
    degrees = [d for d in range(1, devices + 1) if devices % d == 0]
    for name in ("tp", "pp", "dp"):
        if rng.random() < 0.1:
            search[name] = _values(rng, degrees)
    for name in ("micro_batch", "micro_batches"):
        if rng.random() < 0.12:
            search[name] = _values(rng, [1, 2, 3, 4, 5, 8, 16, 32, 64])
    for name, words in (
        ("sequence_parallel", (False, True)),
        ("recompute", ("none", "selective", "partial", "full")),
        ("zero", (0, 1, 2, 3)),
        ("schedule", ("1f1b", "gpipe", "interleaved", "zb-h1", "zb-h2", "zb-v")),
        ("hsdp", (False, True)),
        ("context", ("ring", "ulysses")),
        ("order", ("data_inside", "pipeline_inside")),
    ):
        # Most new dimensions are narrowed, so that the product of all stays small.
        wide = name in ("sequence_parallel", "recompute")
        if rng.random() < (0.4 if wide else 0.8):
            some = rng.sample(words, min(len(words), rng.choice((1, 1, 2))))
            search[name] = some[0] if len(some) == 1 and rng.random() < 0.5 else some
    for name in ("cp", "vpp", "ep", "etp"):
        if rng.random() < 0.6:
            search[name] = rng.choice((1, 2, [1, 2], [1, 2, 4]))
    if rng.random() < 0.6:
        search["idle_devices"] = False
    if rng.random() < 0.2:
        search["layers_per_stage"] = "even"
    return search


def _values(rng: random.Random, some: list[int]) -> Any:
    """Draw a value, a list or a range from typical values, sometimes missing all of them."""
    kind = rng.random()
    if kind < 0.4:
        return rng.choice([*some, 11])
    if kind < 0.75:
        return rng.sample(some, rng.randint(1, min(4, len(some))))
    step = rng.choice((1, 1, 2, 3))
    low = step * rng.randint(1, 2)
    span = {"min": low, "max": low * rng.choice((1, 2, 8, 64)), "multiple_of": step}
    return span if rng.random() < 0.7 else {"min": low}


def _global_batch(rng: random.Random, devices: int) -> Any:
    """Draw one batch, a list or a range; some batches are too large for exact ratios of ticks."""
    kind = rng.random()
    each = rng.choice((1, 4, 6, 15, 32))
    if kind < 0.4:
        return rng.choice((1, 12, 60, 97, 240, 512, *[devices * each] * 6))
    if kind < 0.7:
        some = (devices, devices * each, devices + 1, 48, 64, 360, 1024, 4096, 6000, 65_536)
        return rng.sample(some, rng.randint(2, 4))
    step = rng.choice((1, 2, devices, devices * 2, 48))
    return {"min": step, "max": step * rng.randint(1, 24), "multiple_of": step}


def _limits(rng: random.Random, form: Formulation) -> list[str]:
    """Draw up to three limits, those on price and memory near what the best plan has."""
    found = proved(form.program).best
    if found:
        known = form.program.evaluate(found[0])
        memory, seconds = known["peak_bytes"], float(known["step_ticks"] * form.tick)
    else:
        memory, seconds = form.problem.cluster.accelerator.hbm, 1.0
    devices = form.problem.devices

    def size() -> str:
        return f"{max(1, int(memory * rng.choice((0.8, 1, 1, 1, 1.1, 2))))} B"

    def span() -> str:
        return f"{max(1e-9, seconds * rng.choice((0.9, 1, 1, 1, 1.01, 1.5, 4))):.9f} s"

    def few() -> int:
        return rng.choice((1, 2, 3, 4, 6, 8, 16))

    made: tuple[Callable[[], str], ...] = (
        lambda: f"tp <= {few()}",
        lambda: f"pp >= {few()}",
        lambda: f"pp * tp <= {few() * few()}",
        lambda: f"pp * tp * micro_batch != {few()}",
        lambda: f"tp in [1, {few()}, {few()}]",
        lambda: f"pp not in [{few()}, {few()}]",
        lambda: f"not (tp == {few()} or dp == {few()})",
        lambda: f"tp == 1 or pp >= {few()}",
        lambda: f"dp % {few()} == 0",
        lambda: f"micro_batches // pp >= {few()}",
        lambda: f"micro_batches % pp == 0 and (pp - tp) // 2 <= {few()}",
        lambda: f"devices // tp % {few()} <= 1",
        lambda: f"min(tp, pp) <= {few()}",
        lambda: f"max(tp, pp, dp) >= {devices // few()}",
        lambda: f"1 <= pp < tp + {few()} <= {4 * few()}",
        lambda: f"tp - 2 * pp >= -{few()}",
        lambda: f"{few()} < micro_batch + micro_batches != {few()}",
        lambda: "global_batch % (dp * micro_batch * 2) == 0",
        lambda: "sequence_parallel or tp == 1",
        lambda: f"zero == 1 and not sequence_parallel or dp < {few()}",
        lambda: f"cp * tp <= {few()}",
        lambda: f"vpp == 1 or pp * vpp <= {few()}",
        lambda: "schedule != gpipe and schedule != zb-h2",
        lambda: "schedule == 1f1b or zero >= 1",
        lambda: f"ep * etp <= {few()} and not hsdp",
        lambda: f"recompute == full or peak_memory <= {size()}",
        lambda: f"not (recompute == none and step_seconds > {span()})",
        lambda: f"peak_memory <= {size()}",
        lambda: f"peak_memory >= {size()}",
        lambda: f"{size()} < 2 * peak_memory <= {size()} + peak_memory",
        lambda: f"step_seconds <= {span()}",
        lambda: f"{span()} <= step_seconds",
        lambda: f"1.5 * step_seconds < {span()} * 2",
        lambda: f"pp * step_seconds <= {span()} * {few()}",
        lambda: f"peak_memory * tp < {size()} * {few()}",
        lambda: f"max(step_seconds, {span()}) <= {span()}",
        lambda: f"min(peak_memory, {size()}) == peak_memory or tp > {few()}",
        lambda: f"peak_memory <= {size()} or step_seconds <= {span()}",
        lambda: f"not (peak_memory > {size()} and pp > 1) or recompute == full",
    )
    return [rng.choice(made)() for _ in range(rng.choice((0, 0, 1, 1, 2, 3)))]
