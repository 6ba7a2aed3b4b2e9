"""Small problems and plans for the tests of the models, made from a few words or at random."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from random import Random
from typing import Any

from optplan import catalogue
from optplan.models.domains import CHOICES, coded
from optplan.models.formulate import Formulation, plan_of
from optplan.models.numbers import divisors
from optplan.models.program import Program, Table
from optplan.models.spec.plan import Plan
from optplan.models.spec.problem import Problem
from optplan.models.spec.space import RECOMPUTES

BASE: Mapping[str, Any] = {
    "workload.architecture.layers": 4,
    "workload.architecture.hidden": 64,
    "workload.architecture.heads": 4,
    "workload.architecture.kv_heads": 4,
    "workload.architecture.ffn": 96,
    "workload.architecture.vocabulary": 160,
    "workload.sequence_length": 32,
    "cluster.accelerator.peak": {"bf16": "10 GFLOP/s", "fp16": "9 GFLOP/s", "fp32": "3 GFLOP/s"},
    "cluster.accelerator.hbm": "16 MB",
    "cluster.accelerator.hbm_bandwidth": "2 GB/s",
    "cluster.accelerator.link": {"kind": "mesh", "bandwidth": "300 MB/s"},
    "cluster.accelerator.domain": 4,
    "cluster.nodes": 2,
    "cluster.devices_per_node": 4,
    "cluster.network": "100 MB/s",
    "search.global_batch": 8,
    "calibration.name": "tests",
    "calibration.utilization_peak": 0.5,
    "calibration.tokens_half": 40,
    "calibration.shard_loss": 3,
    "calibration.reserve": "1 MB",
    "calibration.measured": False,
    "calibration.fitted_on": "nothing",
    "calibration.range": "tests",
    "calibration.error": "unknown",
    "calibration.sources": {},
}
"""Four blocks on two nodes of four; every value may be replaced by its dotted path."""

PLAIN: Mapping[str, Any] = {
    "calibration.tokens_half": 0,
    "calibration.shard_loss": 0,
    "search.sequence_parallel": False,
    "search.recompute": "none",
    "search.zero": 0,
    "prices": "paper",
}
"""The paper's own world: constant utilization, Eq. 1, none of the flags it lacks."""

CLASSIC: Mapping[str, Any] = {
    "search.cp": 1,
    "search.vpp": 1,
    "search.schedule": "1f1b",
    "search.recompute": ["none", "full"],
    "search.zero": [0, 1],
    "search.hsdp": False,
    "search.order": "data_inside",
    "search.layers_per_stage": "even",
    "search.idle_devices": False,
}
"""Canonical prices where every point has one way only to hand out its layers."""

EXPERTS: Mapping[str, Any] = {
    "workload.architecture.experts": {"count": 8, "per_token": 2, "ffn": 48, "shared_ffn": 32},
}
"""Eight experts of which a token takes two, and a shared one."""


def problem(*changes: Mapping[str, Any], **words: Any) -> Problem:
    """
    Build a problem from `BASE` and changes by dotted path, the later ones winning.

    ``words`` are the top-level fields: ``prices``, ``goal``, ``limits`` (texts).
    """
    merged: dict[str, Any] = {}
    for layer in (BASE, *changes, words):
        merged |= layer
    return _built(merged)


def catalogued(workload: str, device: str, changes: Mapping[str, Any] | None = None) -> Problem:
    """Build a problem from the catalogue, 4.5 GiB reserved and utilization constant."""
    usual = {
        "workload.architecture": catalogue.architecture(workload).model_dump(mode="json"),
        "cluster.accelerator": catalogue.accelerator(device).model_dump(mode="json"),
        "calibration.reserve": "4.5 GiB",
        "calibration.tokens_half": 0,
        "calibration.shard_loss": 0,
    }
    kept = {
        path: value
        for path, value in BASE.items()
        if not path.startswith(("workload.architecture", "cluster.accelerator"))
    }
    return _built(kept | usual | dict(changes or {}))


def _built(merged: Mapping[str, Any]) -> Problem:
    """Nest what dotted paths name, and read it as a problem."""
    whole: dict[str, Any] = {}
    for path, value in merged.items():
        *parents, last = path.split(".")
        place = whole
        for parent in parents:
            place = place.setdefault(parent, {})
        place[last] = value
    texts = whole.pop("limits", ())
    whole["limits"] = [{"name": f"l{i}", "rule": text} for i, text in enumerate(texts)]
    return Problem.model_validate(whole)


def plan(asked: Problem, **values: Any) -> Plan:
    """
    Build a plan whose products fit: ``dp`` and ``micro_batches`` follow from the rest.

    Degrees default to 1, flags and words to the first of their values, ``global_batch`` to the
    only one of the search. Words may be given as words or by their codes; ``layers`` and ``again``
    are tuples, left out as even as they can be.
    """
    known = {name: int(values.pop(name, 1)) for name in ("tp", "pp", "cp", "ep", "etp", "vpp")}
    known["micro_batch"] = int(values.pop("micro_batch", 1))
    dp = values.pop("dp", asked.devices // (known["tp"] * known["pp"] * known["cp"]))
    batch = values.pop("global_batch", asked.search.global_batch)
    assert isinstance(batch, int)
    m = values.pop("micro_batches", batch // (known["micro_batch"] * dp))
    known |= {"dp": dp, "micro_batches": m, "global_batch": batch}
    for name in CHOICES[len(known) - 1 :]:
        if name not in known:
            wanted = values.pop(name, 0)
            known[name] = coded(name, wanted) if isinstance(wanted, str) else int(wanted)
    for name in ("layers", "again"):
        handed = values.pop(name, ())
        known |= {f"{name}[{i}]": n for i, n in enumerate(handed)}
        if handed and name == "layers" and "again" not in values:
            many = RECOMPUTES[known["recompute"]] == "full"
            known |= {f"again[{i}]": n * many for i, n in enumerate(handed)}
    known |= {name: values.pop(name) for name in list(values) if name.endswith("]")}
    assert not values, values
    return plan_of(asked, known)


def points(program: Program) -> Iterator[dict[str, int]]:
    """Yield every point of a program's space, by joining its spanning tables by hand."""
    joined: list[dict[str, int]] = [{}]
    for table in _spans(program):
        rows = [dict(zip(table.keys, row, strict=True)) for row in table.rows.tolist()]
        joined = [one | row for one in joined for row in rows if _agree(one, row)]
    domain = program.domain
    free = [name for name in CHOICES if joined and name not in joined[0]]
    for known in joined:
        if all(known[name] in domain[name] for name in known):
            for flags in product(*(domain[name] for name in free)):
                whole = known | dict(zip(free, flags, strict=True))
                yield {name: whole[name] for name in CHOICES}


def _spans(program: Program) -> list[Table]:
    """Tables that make up the space."""
    return [s for s in program.statements if isinstance(s, Table) and s.spans]


def _agree(one: Mapping[str, int], other: Mapping[str, int]) -> bool:
    """Whether two parts of a point say the same of what both know."""
    return all(other[name] == value for name, value in one.items() if name in other)


def drawn(luck: Random, form: Formulation, tries: int = 50) -> dict[str, int] | None:
    """Draw a point of the space with layers handed out; None where it has none or luck fails."""
    domain = form.program.domain
    for _ in range(tries):
        point: dict[str, int] = {}
        for table in _spans(form.program):
            rows = table.rows
            for i, key in enumerate(table.keys):
                rows = rows[rows[:, i] == point[key]] if key in point else rows
            if not len(rows):
                break
            row = rows[luck.randrange(len(rows))].tolist()
            point |= dict(zip(table.keys, row, strict=True))
        else:
            point |= {name: luck.choice(domain[name]) for name in CHOICES if name not in point}
            return handed_out(luck, form, {name: point[name] for name in CHOICES})
    return None


def handed_out(luck: Random, form: Formulation, point: Mapping[str, int]) -> dict[str, int]:
    """
    Hand out a point's layers at random: uneven where they may be, some of them recomputed.

    Where the point breaks a rule, so that no shape is known, they are as even as can be.
    """
    usual = dict(point) | _handed(form.decode(point))
    pipeline = form.program.pipeline
    assert pipeline is not None
    try:
        known = form.program.evaluate(usual)
    except KeyError:
        return usual
    pp, total = point["pp"], pipeline.layers
    layers = form.decode(point).layers_per_stage
    if not pipeline.is_fixed(known) and total - max(1, pipeline.least_first) >= pp - 1:
        cuts = sorted(luck.sample(range(max(1, pipeline.least_first), total), pp - 1))
        layers = tuple(b - a for a, b in zip([0, *cuts], [*cuts, total], strict=True))
    word = RECOMPUTES[point["recompute"]]
    again = layers if word == "full" else (0,) * pp
    if word == "partial" and known["free"]:
        again = tuple(luck.randint(0, n) for n in layers)
    elif word == "partial" and min(layers) >= 0:
        again = pipeline.again_of(known, luck.randint(0, known["chunk"]))
        again = tuple(min(r, n) for r, n in zip(again, layers, strict=True))
    handed = {f"layers[{i}]": n for i, n in enumerate(layers)}
    return dict(point) | handed | {f"again[{i}]": n for i, n in enumerate(again)}


def _handed(found: Plan) -> dict[str, int]:
    """What a plan hands out to its stages, as an assignment carries it."""
    handed = {f"layers[{i}]": n for i, n in enumerate(found.layers_per_stage)}
    return handed | {f"again[{i}]": n for i, n in enumerate(found.recomputed_layers_per_stage)}


def even(form: Formulation, point: Mapping[str, int]) -> dict[str, int]:
    """Add to a point layers as even as they can be, all of them or none recomputed."""
    return dict(point) | _handed(form.decode(point))


ROOMY = ("capacity.", "limits.")
"""Rules that ask for time or memory, and say nothing of a plan's shape."""


def some(form: Formulation, seed: int, number: int) -> list[dict[str, int]]:
    """Draw points whose degrees and layers obey every rule, whatever time or memory they take."""
    luck = Random(seed)
    found: list[dict[str, int]] = []
    for _ in range(20 * number):
        point = drawn(luck, form)
        if point is None or len(found) == number:
            break
        if all(name.startswith(ROOMY) for name in form.program.broken(point)):
            found.append(point)
    return found


def allowed(form: Formulation) -> list[dict[str, int]]:
    """List the points of a program that it refuses by none of its statements, layers even."""
    every = (even(form, point) for point in points(form.program))
    return [point for point in every if not any(form.program.broken(point))]


def random_problem(seed: int, **changes: Any) -> Problem:
    """
    Build a random problem: shapes, machine, calibration and prices all move.

    The same seed gives the same problem; a failing test prints it.
    """
    luck = Random(seed)
    heads = luck.choice([1, 2, 4, 6, 8])
    width = luck.choice([4, 8, 16])
    node = luck.choice([1, 2, 4, 6, 8])
    nodes = luck.choice([1, 1, 2, 3, 4])
    batch: object = luck.choice([1, 6, 12, 16, 24, 32])
    if luck.random() < 0.4:
        batch = sorted(luck.sample([2, 3, 4, 8, 12, 16, 24], 3))
    chosen: dict[str, Any] = {
        "workload.architecture.layers": luck.choice([1, 2, 3, 4, 6, 8, 12]),
        "workload.architecture.heads": heads,
        "workload.architecture.kv_heads": luck.choice(divisors(heads)),
        "workload.architecture.hidden": heads * width,
        "workload.architecture.ffn": luck.choice([24, 32, 60, 96]),
        "workload.architecture.vocabulary": luck.choice([1, 50, 160, 3000]),
        "workload.architecture.gated": luck.random() < 0.5,
        "workload.architecture.tied_embeddings": luck.random() < 0.5,
        "workload.architecture.biases": luck.choice(["none", "qkv", "all"]),
        "workload.architecture.norm": luck.choice(["rmsnorm", "layernorm"]),
        "workload.architecture.learned_positions": luck.choice([0, 32]),
        "workload.architecture.dropout": luck.random() < 0.5,
        "workload.sequence_length": luck.choice([8, 12, 32, 64]),
        "workload.precision": luck.choice(["bf16", "fp16", "fp32"]),
        "workload.flash_attention": luck.random() < 0.5,
        "cluster.nodes": nodes,
        "cluster.devices_per_node": node,
        "cluster.accelerator.hbm": f"{luck.choice([1200, 1500, 2500, 20_000])} kB",
        "cluster.accelerator.link": {
            "kind": luck.choice(["mesh", "switch"]),
            "bandwidth": f"{luck.choice([50, 300, 5000])} MB/s",
            "latency": luck.choice(["0 s", "1 us", "2 ms"]),
        },
        "cluster.network": f"{luck.choice([20, 100, 1000])} MB/s",
        "cluster.network_latency": luck.choice(["0 s", "10 us", "5 ms"]),
        "search.global_batch": batch,
        "calibration.utilization_peak": luck.choice([0.3, 0.6, 1.0]),
        "calibration.tokens_half": luck.choice([0, 40, 400]),
        "calibration.shard_loss": luck.choice([0, 3, 30]),
        "calibration.link_efficiency": luck.choice([0.5, 1.0]),
        "calibration.q_slope": luck.choice([0, 0.1]),
        "calibration.kappa": luck.choice([0, 0.2]),
        "calibration.overlap_tp": luck.choice([0, 0.5, 1]),
        "calibration.overlap_dp": luck.choice([0, 0.7]),
        "calibration.p2p_exposed": luck.choice([0, 0.5, 1]),
        "prices": luck.choice(["canonical", "canonical", "paper"]),
    }
    if changes.get("prices", chosen["prices"]) == "canonical":
        chosen |= _dimensions(luck, heads)
    return problem(chosen, changes)


def _details(luck: Random) -> dict[str, Any]:
    """Draw what only a closer look at devices and software shows: tiles, launches, copies."""
    return {
        "cluster.accelerator.units": luck.choice([None, 1, 3, 108]),
        "calibration.alignment_loss": luck.choice([0, 0.06]),
        "calibration.pointwise": luck.choice([0, 0, 1]),
        "calibration.hbm_efficiency": luck.choice([0.4, 1]),
        "calibration.launch_seconds": luck.choice(["0 s", "0 s", "1 us", "3 ms"]),
        "calibration.step_latency": luck.choice(["0 s", "20 us"]),
        "calibration.hops_split": luck.random() < 0.3,
        "calibration.fused_tp": luck.choice([0, 0.6]),
        "calibration.logit_bytes": luck.choice([6, 14]),
        "calibration.weights_once": luck.random() < 0.3,
        "calibration.gradient_copies": luck.choice([0, 2]),
        "calibration.step_bytes": luck.choice([0, 0, 16]),
        "calibration.memory_error": luck.choice([None, 0.05]),
        "calibration.launch_adds": luck.random() < 0.2,
        "calibration.hop_latency": luck.choice(["0 s", "0 s", "30 us"]),
        "calibration.launch_tensor": luck.choice(["0 s", "0 s", "2 ms"]),
    }


def _dimensions(luck: Random, heads: int) -> dict[str, Any]:
    """Draw what the paper does not know: experts, latent attention, adapters, hosts, launchers."""
    shape = "workload.architecture."
    chosen: dict[str, Any] = {
        "calibration.overlap_cp": luck.choice([0, 0.6]),
        "calibration.overlap_ep": luck.choice([0, 0.4]),
        "calibration.overlap_fsdp": luck.choice([0, 0.5, 1]),
        "calibration.attention_loss": luck.choice([1, 1.7]),
        "search.idle_devices": luck.random() < 0.5,
        "search.layers_per_stage": luck.choice(["any", "any", "even"]),
        shape + "mtp": luck.choice([0, 0, 0, 1]),
    } | _details(Random(luck.random()))
    if luck.random() < 0.35:
        chosen[shape + "layers"] = luck.choice([2, 3, 4, 6])
        chosen[shape + "experts"] = {
            "count": luck.choice([2, 4, 6, 8]),
            "per_token": luck.choice([1, 2]),
            "ffn": luck.choice([12, 24]),
            "shared_ffn": luck.choice([0, 24, 36]),
            "leading_dense": luck.choice([0, 0, 1]),
            "router_bias": luck.random() < 0.3,
        }
        chosen["workload.imbalance"] = luck.choice([1.0, 1.25])
        chosen["workload.capacity_factor"] = luck.choice([None, None, 1.5])
    if luck.random() < 0.2:
        parts = {"kv_rank": 8, "nope": 4, "rope": 2, "value": 4, "q_rank": luck.choice([0, 6])}
        chosen[shape + "latent"] = parts
    if luck.random() < 0.2:
        chosen[shape + "sliding_window"] = luck.choice([4, 16])
    if luck.random() < 0.15:
        chosen["workload.lora"] = {"rank": 2, "layers": luck.choice(["attention", "all"])}
    if luck.random() < 0.3:
        size = luck.choice(["300 kB", "2 MB", "1 GB"])
        chosen["cluster.host"] = {"memory": size, "link": "50 MB/s", "bandwidth": "500 MB/s"}
    if luck.random() < 0.3:
        names = ("megatron-core@0.6", "megatron-core@0.15", "nemo@2.2", "torchtitan@0.2")
        known = catalogue.framework(luck.choice(names))
        chosen["framework"] = known.model_dump(mode="json")
        if luck.random() < 0.5:
            chosen["overlap"] = [f for f in known.features if luck.random() < 0.5]
    return chosen
