"""
Random problems without a plan: is every core minimal, and does every way out lead out?

``python -m tests.cores --count 500`` draws problems of several kinds, each small enough to look at
every point. A core is checked by another route than the one that found it: every point of the
program is decoded into plans, and the second face of each rule is asked of them. Where that is too
many plans, the exhaustive engine is asked instead, and both are counted. A way out is made again
from its ``edit`` on the written spec, loaded from scratch, and solved by the exhaustive engine.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from optplan.infeasible import explain_infeasible, find_clashes, more_ways_out
from optplan.load import load
from optplan.models.spec.problem import Problem
from optplan.planner import checked, problem_of
from optplan.planner import run as solved
from optplan.result import Explanation, WayOut
from optplan.solvers import exhaustive
from tests.oracle import Oracle, Wrong

Spec = dict[str, Any]

MOST_POINTS = 40_000
"""Points of the widened space that are still looked at one by one."""

MOST_AGAIN = 400_000
"""Points of a changed problem that the exhaustive engine solves."""

SAME = 1e-6
"""Share by which two engines may price the best plan differently."""


# -- problems --------------------------------------------------------------------------------------


def infeasible(seed: int) -> tuple[str, Spec]:
    """Draw a problem without a plan, and say of which kind it is."""
    rng = random.Random(seed)
    names_ = sorted(KINDS)
    while True:
        kind = names_[seed % len(names_)]
        spec = _base(rng, kind == "experts")
        KINDS[kind](rng, spec)
        problem = problem_of(spec)
        _, outcome = solved(problem)
        if not outcome.best:
            return kind, spec


def _base(rng: random.Random, experts: bool) -> Spec:
    """Draw a small job on a small machine, with room enough for most layouts."""
    heads = rng.choice((2, 4, 6, 8))
    hidden = heads * rng.choice((16, 64))
    layers = rng.choice((2, 3) if experts else (2, 3, 4, 5))
    shape: Spec = {
        "layers": layers,
        "hidden": hidden,
        "heads": heads,
        "kv_heads": rng.choice([k for k in (1, 2, heads) if heads % k == 0]),
        "ffn": rng.choice((2, 3, 4)) * hidden,
        "vocabulary": rng.choice((100, 32000)),
    }
    if experts:
        shape["experts"] = {"count": rng.choice((4, 6)), "per_token": 2, "ffn": hidden}
    devices = rng.choice((2, 3, 4) if experts else (1, 2, 3, 4, 4, 6))
    nodes = rng.choice([n for n in (1, 1, 2) if devices % n == 0])
    search: Spec = {
        "global_batch": rng.choice((4, 6, 8)),
        "vpp": 1,
        "schedule": "1f1b",
        "hsdp": False,
        "order": "data_inside",
        "context": "ring",
    }
    if not experts:
        search |= {"cp": rng.choice((1, [1, 2]))}
    return {
        "workload": {
            "architecture": shape,
            "sequence_length": rng.choice((64, 100, 512)),
            "precision": rng.choice(("bf16", "fp16")),
        },
        "cluster": {
            "accelerator": {
                "peak": {"bf16": "312 TFLOP/s", "fp16": "312 TFLOP/s"},
                "hbm": "40 GiB",
                "hbm_bandwidth": "1.5 TB/s",
                "link": {"kind": "switch", "bandwidth": "300 GB/s"},
                "domain": 8,
            },
            "nodes": nodes,
            "devices_per_node": devices // nodes,
            "network": "200 Gb/s",
        },
        "search": search,
        "limits": [],
    }


def _memory(rng: random.Random, spec: Spec) -> None:
    """Leave less memory than the job takes, and fix some of what could help."""
    shape = spec["workload"]["architecture"]
    weights = (
        shape["layers"] * shape["hidden"] ** 2 * 10 + 2 * shape["vocabulary"] * shape["hidden"]
    )
    kept = 60 * spec["workload"]["sequence_length"] * shape["hidden"] * shape["layers"]
    room = int((18 * weights + kept) * 10 ** rng.uniform(-1.5, 0.3)) + 10**6
    # Beside the reserve of the calibration that such a device gets.
    spec["cluster"]["accelerator"]["hbm"] = f"{7_680 * 2**20 + room} B"
    if rng.random() < 0.4:
        memory = int(12 * weights * 10 ** rng.uniform(-1.5, 0.5)) + 1
        host = {"memory": f"{memory} B", "link": "32 GB/s", "bandwidth": "200 GB/s"}
        spec["cluster"]["host"] = host
    for name, values in (
        ("recompute", ("none", "selective", "full")),
        ("zero", (0, 1)),
        ("micro_batch", (1, 2, 4)),
        ("tp", (1, 2)),
        ("pp", (1, 2)),
        ("sequence_parallel", (False,)),
    ):
        if rng.random() < 0.3:
            spec["search"][name] = rng.choice(values)


def _divisibility(rng: random.Random, spec: Spec) -> None:
    """Ask for degrees that do not divide what they should."""
    some = ["tp", "pp", "dp"]
    if "cp" in spec["search"]:
        some.append("cp")
    for name in rng.sample(some, rng.choice((1, 2, 3))):
        spec["search"][name] = rng.choice((2, 3, 4, 5))
    spec["search"]["idle_devices"] = rng.random() < 0.5
    if rng.random() < 0.4:
        spec["search"]["sequence_parallel"] = True


def _limits(rng: random.Random, spec: Spec) -> None:
    """Contradict oneself."""
    made = (
        "tp >= 2",
        "tp == 1",
        "pp >= 2",
        "pp == 1",
        "tp * pp <= 2",
        "dp >= 2",
        "dp == 1",
        "micro_batch >= 2",
        "micro_batches >= 4",
        "zero >= 1",
        "sequence_parallel",
        "recompute == full",
        "recompute != full",
        "micro_batch * dp >= 6",
        "devices // tp % 2 == 1",
    )
    spec["limits"] = rng.sample(made, rng.choice((3, 4, 5)))


def _framework(rng: random.Random, spec: Spec) -> None:
    """Ask a framework for what it cannot launch."""
    some = ("megatron-core@0.15", "torchtitan", "deepspeed", "megatron-deepspeed")
    spec["framework"] = rng.choice(some)
    search = spec["search"]
    del search["schedule"], search["context"]
    asked: tuple[Spec, ...] = (
        {"schedule": "zb-v", "vpp": 2},
        {"zero": 3, "pp": 2},
        {"context": "ulysses", "cp": 2},
        {"schedule": "gpipe", "pp": 2},
        {"tp": 2, "pp": 2},
        {"zero": 2},
        {"recompute": "selective"},
        {"order": "pipeline_inside", "pp": 2},
    )
    for one in rng.sample(asked, rng.choice((1, 2))):
        search |= {k: v for k, v in one.items() if k != "cp" or "cp" in search}


def _batch(rng: random.Random, spec: Spec) -> None:
    """Ask for a batch that does not split."""
    search = spec["search"]
    search["global_batch"] = rng.choice((5, 6, 7, 9, 10))
    for name in rng.sample(("dp", "micro_batch", "micro_batches"), rng.choice((1, 2))):
        search[name] = rng.choice((2, 3, 4))
    if rng.random() < 0.3:
        search["idle_devices"] = False


def _time(rng: random.Random, spec: Spec) -> None:
    """Ask for a step that is too short, or for a peak that is too small."""
    form, outcome = solved(problem_of(spec))
    limits = [rng.choice(("tp == 1", "pp == 1", "dp == 1", "recompute == full", "zero == 0"))]
    if outcome.best:
        _, price, _ = checked(form, outcome.best[0])
        factor = rng.choice((0.3, 0.8, 0.99, 1.2))
        limits.append(f"step_seconds <= {price.step_seconds * factor:.12f} s")
        if rng.random() < 0.5:
            peak = int(price.memory.peak_bytes * rng.choice((0.9, 0.99, 1.0)))
            limits.append(f"peak_memory <= {peak} B")
    spec["limits"] = limits


def _experts(rng: random.Random, spec: Spec) -> None:
    """Ask for expert degrees that nothing divides."""
    search = spec["search"]
    search["ep"] = rng.choice((2, 3, 4))
    for name in rng.sample(("etp", "tp", "dp", "pp"), rng.choice((1, 2))):
        search[name] = rng.choice((1, 2, 3, 4))


KINDS: dict[str, Callable[[random.Random, Spec], None]] = {
    "memory": _memory,
    "divisibility": _divisibility,
    "limits": _limits,
    "framework": _framework,
    "batch": _batch,
    "time": _time,
    "experts": _experts,
}
"""What can be wrong with a problem."""


# -- ways out --------------------------------------------------------------------------------------


def check_way(problem: Problem, way: WayOut, routes: Counter[str]) -> None:
    """
    Make a change again on the written spec, and solve it from scratch with another engine.

    Raises
    ------
    Wrong
        There is no plan, or another price.
    """
    changed = load(edited(problem.model_dump(mode="json"), way.edit))
    form, outcome = solved(changed, engine="exhaustive")
    routes[f"way out: {way.kind}"] += 1
    if outcome.termination == "unsupported":
        form, outcome = solved(changed)
        routes["way out: cp-sat, since a limit asks more than to be small"] += 1
    if not outcome.best:
        raise Wrong(f"no plan after: {way.change}")
    _, price, _ = checked(form, outcome.best[0])
    if problem.goal == "fastest" and abs(price.step_seconds / way.step_seconds - 1) > SAME:
        raise Wrong(f"{price.step_seconds} s, not {way.step_seconds} s, after: {way.change}")


def edited(spec: Spec, edit: dict[str, Any]) -> Spec:
    """Apply a way out's edit to a spec."""
    for path, value in edit.items():
        if path == "limits":
            spec["limits"] = [one for one in spec["limits"] if one["name"] not in value]
            continue
        *above, key = path.split(".")
        part = spec
        for step in above:
            part = part[step]
        if value is None:
            part.pop(key, None)
        else:
            part[key] = value
    return spec


def check(seed: int, routes: Counter[str], everything: bool) -> tuple[str, Explanation]:
    """
    Check one random problem.

    Raises
    ------
    Wrong
        With what is wrong.
    """
    kind, spec = infeasible(seed)
    problem = problem_of(spec)
    form, found = find_clashes(problem)
    if exhaustive.count(form.program) > MOST_POINTS:
        routes["space too large, core not asked"] += 1
    else:
        oracle = Oracle(form, routes)
        for clash in found:
            oracle.check(clash)
            routes["cores"] += clash is found[0]
            routes["further clashes"] += clash is not found[0]
    told = explain_infeasible(problem)
    ways = list(told.ways_out)
    if everything:
        ways += more_ways_out(problem, (), told)
    for way in ways:
        check_way(problem, way, routes)
    routes["ways out"] += len(ways)
    routes["problems without a way out"] += not ways
    return kind, told


def sweep(
    seeds: Sequence[int], each: int, routes: Counter[str], seconds: float
) -> Iterator[tuple[int, str, str]]:
    """Check problems one after the other; yields what is wrong with each, or nothing."""
    end = time.monotonic() + seconds
    for seed in seeds:
        if time.monotonic() > end:
            return
        try:
            kind, _ = check(seed, routes, seed % each == 0)
            yield seed, kind, ""
        except Exception as error:  # a crash is a finding like any other
            yield seed, "", f"{type(error).__name__}: {error}"


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--each", type=int, default=5, help="all ways out of every so many")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after this time")
    given = parser.parse_args()
    start, wrong = time.monotonic(), 0
    kinds: Counter[str] = Counter()
    routes: Counter[str] = Counter()
    seeds = range(given.first, given.first + given.count)
    for seed, kind, problem in sweep(seeds, given.each, routes, given.seconds):
        kinds[kind or "wrong"] += 1
        if problem:
            wrong += 1
            print(f"seed {seed}: {problem}", flush=True)
    print(*(f"  {count:>7,}  {what}" for what, count in sorted(routes.items())), sep="\n")
    spent = time.monotonic() - start
    print(f"{sum(kinds.values())} problems, {wrong} wrong, {spent:.0f} s; {dict(kinds)}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
