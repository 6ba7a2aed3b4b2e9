"""Small problems and plans for the tests of the models, made from a few words or at random."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from random import Random
from typing import Any

from optplan import catalogue
from optplan.models.domains import CHOICES
from optplan.models.formulate import Formulation, plan_of
from optplan.models.numbers import divisors
from optplan.models.program import Program, Table
from optplan.models.spec.plan import Plan
from optplan.models.spec.problem import Problem

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

    Degrees default to 1, flags to off, ``global_batch`` to the only one of the search.
    """
    degrees = {name: int(values.pop(name, 1)) for name in ("tp", "pp", "micro_batch")}
    dp = values.pop("dp", asked.devices // (degrees["tp"] * degrees["pp"]))
    batch = values.pop("global_batch", asked.search.global_batch)
    assert isinstance(batch, int)
    m = values.pop("micro_batches", batch // (degrees["micro_batch"] * dp))
    flags = {name: int(values.pop(name, 0)) for name in ("sequence_parallel", "recompute", "zero")}
    assert not values, values
    return plan_of(asked, degrees | flags | {"dp": dp, "micro_batches": m, "global_batch": batch})


def points(program: Program) -> Iterator[dict[str, int]]:
    """Yield every point of a program's space, by joining its two spanning tables by hand."""
    spans = {s.name: s.rows for s in program.statements if isinstance(s, Table) and s.spans}
    free = ("sequence_parallel", "recompute", "zero")
    for tp, pp, dp in spans["degrees.world"].tolist():
        for d, b, m, batch in spans["batch.split"].tolist():
            if d == dp:
                for flags in product(*(program.domain[name] for name in free)):
                    values = (tp, pp, dp, b, m, batch, *flags)
                    yield dict(zip(CHOICES, values, strict=True))


def allowed(form: Formulation) -> list[dict[str, int]]:
    """List the points of a program that it refuses by none of its statements."""
    return [point for point in points(form.program) if not any(form.program.broken(point))]


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
    return problem(chosen, changes)
