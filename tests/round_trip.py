"""
Export and read back: random plans of random problems, framework by framework.

    python -m tests.round_trip --count 200 [--framework megatron-core] [--seed 1]

A plan is drawn, not the best one: some choices at random, the rest what makes them feasible. What
a dialect refuses to write is counted by its reason; what it writes must come back the same.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

from optplan import catalogue
from optplan.launches.dialects import dialect, known
from optplan.launches.values import plan_from, shape_from
from optplan.models.errors import InputError
from optplan.models.formulate import Formulation, formulate
from optplan.models.spec.plan import Plan
from optplan.models.spec.problem import Problem
from optplan.planner import problem_of
from optplan.solvers import exhaustive
from optplan.solvers.base import SolverConfig
from optplan.solvers.search import Search
from tests.random_problems import random_spec

OPEN = ("tp", "pp", "cp", "ep", "etp", "micro_batch", "schedule", "vpp", "zero", "recompute")
MORE = ("sequence_parallel", "hsdp", "context", "order", "offload")
MOST_TRIES = 60
"""Problems drawn for every plan that is wanted, at most."""


def version_of(framework: str, rng: random.Random) -> str:
    """A version of a framework, any that is known."""
    return rng.choice(catalogue.versions(framework))


def random_problem(framework: str, rng: random.Random) -> Problem | None:
    """A problem that a framework may launch; None where the draw makes none."""
    spec: dict[str, Any] = random_spec(rng.randrange(2**30))
    work, cluster = spec["workload"], spec["cluster"]
    shape = work["architecture"]
    if shape["learned_positions"]:
        shape["learned_positions"] = max(1024, work["sequence_length"])
    if shape.get("experts") and rng.random() < 0.2:
        work["capacity_factor"] = rng.choice((1.0, 1.25, 2.0))
    if shape.get("experts"):
        shape["experts"] |= {"router_bias": rng.random() < 0.2, "shared_gate": False}
    if "latent" not in shape:
        shape["qk_norm"] = rng.random() < 0.2
    if work["precision"] == "bf16" and rng.random() < 0.1:
        work["precision"] = "fp8"
        cluster["accelerator"]["peak"]["fp8"] = cluster["accelerator"]["peak"]["bf16"]
    if shape.get("sliding_window") and rng.random() < 0.5:
        shape["windowed_layers"] = rng.randint(0, shape["layers"])
    if rng.random() < 0.2:
        cluster["host"] = {"memory": "100 TB", "link": "64 GB/s", "bandwidth": "400 GB/s"}
    # Plenty of memory, so that plans of every kind are feasible.
    cluster["accelerator"]["hbm"] = "30 TB"
    devices = cluster["nodes"] * cluster["devices_per_node"]
    batch = devices * rng.choice((1, 2, 4, 8, 12))
    spec["search"] = {"global_batch": batch, "idle_devices": False}
    spec |= {"framework": f"{framework}@{version_of(framework, rng)}", "prices": "canonical"}
    spec |= {"limits": [], "goal": "fastest"}
    spec.pop("overlap", None)
    try:
        return problem_of(spec)
    except InputError:
        return None


PLAIN = {
    "gated": True,
    "biases": "none",
    "norm": "rmsnorm",
    "learned_positions": 0,
    "dropout": False,
    "sinks": False,
    "qk_norm": False,
    "tied_embeddings": False,
    "latent": None,
    "experts": None,
    "mtp": 0,
    "sliding_window": None,
    "windowed_layers": None,
}
"""A network that every framework has."""


def plainer(problem: Problem, error: InputError) -> Problem | None:
    """The same problem without what a framework refuses of a network; None where it is plain."""
    paths = [fault.path for fault in error.faults if fault.path.startswith("workload")]
    names = {path.removeprefix("workload.architecture").strip(".") for path in paths}
    whole = "" in names
    shape = problem.workload.architecture
    changed = {n: v for n, v in PLAIN.items() if whole or n in names}
    if "sliding_window" in changed:
        changed["windowed_layers"] = None
    work: dict[str, Any] = {"architecture": shape.model_copy(update=changed)}
    if any(path.endswith("precision") for path in paths):
        work["precision"] = "bf16"
        peak = problem.cluster.accelerator.peak
        problem = problem.with_accelerator(peak={"bf16": next(iter(peak.values())), **peak})
    if any(path.endswith("flash_attention") for path in paths):
        work["flash_attention"] = True
    workload = problem.workload.model_copy(update=work)
    return (
        None if workload == problem.workload else problem.model_copy(update={"workload": workload})
    )


def random_plans(problem: Problem, rng: random.Random, count: int) -> Iterator[Plan]:
    """Feasible plans of a problem, a few choices of each at random."""
    form = formulate(problem)
    if not 0 < exhaustive.count(form.program) <= 3_000_000:
        return
    for _ in range(count):
        found = _feasible(form, rng)
        if found is not None:
            yield _recomputed(found, rng)


def _feasible(form: Formulation, rng: random.Random) -> Plan | None:
    """One plan; choices are fixed one after the other as long as something is left."""
    fixed: dict[str, tuple[int, ...]] = {}
    names = [*rng.sample(OPEN, rng.randint(2, 4)), *rng.sample(MORE, 2)]
    for name in names:
        domain = form.program.domain.get(name)
        if domain is None or len(domain) < 2:
            continue
        tried = fixed | {name: (int(rng.choice(list(domain))),)}
        if exhaustive.count(form.program.fixed(tried)):
            fixed = tried
    best = Search(form.program.fixed(fixed), SolverConfig(seconds=20.0)).run().outcome.best
    return form.decode(best[0]) if best else None


def _recomputed(plan: Plan, rng: random.Random) -> Plan:
    """Let some plans recompute some layers, as many on every stage."""
    if plan.recompute != "full" or plan.vpp > 1 or rng.random() < 0.3:
        return plan
    some = rng.randint(1, max(plan.layers_per_stage))
    again = tuple(min(some, n) for n in plan.layers_per_stage)
    return plan.model_copy(update={"recomputed_layers_per_stage": again})


def differences(problem: Problem, plan: Plan, framework: str) -> list[str]:
    """What does not come back of a plan; raises InputError where it is not written at all."""
    assert problem.framework is not None
    version = problem.framework.name.partition("@")[2]
    speaks = dialect(framework)
    text = speaks.write(problem, plan, version)
    launch = speaks.read(text)
    found = []
    again = plan_from(launch, {})
    for name in Plan.model_fields:
        if getattr(plan, name) != getattr(again, name):
            found.append(f"{name}: {getattr(plan, name)} came back as {getattr(again, name)}")
    shape, _, fault = shape_from(launch)
    if shape is None:
        return [*found, f"architecture: {fault}"]
    asked = problem.workload.architecture
    for name in type(asked).model_fields:
        if name == "name":
            continue
        one, other = getattr(asked, name), getattr(shape, name)
        if name == "kv_heads":
            one, other = asked.key_heads, shape.key_heads
        if name == "head_dim":
            one, other = asked.head_width, shape.head_width
        if one != other:
            found.append(f"architecture.{name}: {one} came back as {other}")
    for name in ("sequence_length", "precision", "flash_attention", "capacity_factor"):
        told = launch.value(name)
        if name == "capacity_factor" and asked.experts is None:
            continue  # It means nothing without experts, which a framework may have refused.
        if getattr(problem.workload, name) != told:
            found.append(f"workload.{name}: {getattr(problem.workload, name)} came back as {told}")
    for name in ("nodes", "devices_per_node"):
        if getattr(problem.cluster, name) != launch.value(name):
            stated = launch.value(name)
            found.append(f"cluster.{name}: {getattr(problem.cluster, name)} came back as {stated}")
    if not speaks.recognises(text):
        found.append("the dialect does not recognise its own file")
    return found


def round_trips(
    framework: str, count: int, seed: int, each: int = 4
) -> tuple[int, list[str], Counter[str]]:
    """Count the plans that came back, what differed, and what was refused by its reason."""
    rng = random.Random(f"{framework} {seed}")
    done, wrong, refused = 0, list[str](), Counter[str]()
    for _ in range(MOST_TRIES * count):
        wanted = random_problem(framework, rng)
        while wanted is not None and done < count:
            # A network that the framework refuses is drawn once more, without what it refuses.
            problem, wanted = wanted, None
            for plan in random_plans(problem, rng, each):
                try:
                    found = differences(problem, plan, framework)
                except InputError as error:
                    refused[error.faults[0].path] += 1
                    wanted = plainer(problem, error)
                    if wanted is not None:
                        break
                    continue
                done += 1
                wrong += [f"{plan}: {one}" for one in found]
                if done >= count:
                    break
        if done >= count:
            break
    return done, wrong, refused


def main() -> None:
    """Try every framework."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--framework", default="")
    asked = parser.parse_args()
    names = [asked.framework] if asked.framework else list(known())
    failed = False
    for name in names:
        done, wrong, refused = round_trips(name, asked.count, asked.seed)
        said = ", ".join(f"{reason} {n}" for reason, n in refused.most_common())
        print(f"{name}: {done} plans, {len(wrong)} differences; refused: {said or 'none'}")
        for one in wrong[:10]:
            print(f"  {one}")
        failed = failed or bool(wrong) or done < asked.count
    raise SystemExit(failed)


if __name__ == "__main__":
    main()
