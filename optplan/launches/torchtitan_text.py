"""A torchtitan job written down: keys of its configuration, its network, its command."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from optplan.launches.chunks import chunks_of
from optplan.launches.machines import Machines, machines_of
from optplan.launches.notes import refuse
from optplan.launches.torchtitan_network import network
from optplan.launches.torchtitan_shape import OWN
from optplan.models.cost.traffic import data_inside
from optplan.models.errors import Fault, InputError
from optplan.models.spec.plan import Plan
from optplan.models.spec.problem import Problem

SCHEDULES = {
    "1f1b": "1F1B",
    "gpipe": "GPipe",
    "interleaved": "Interleaved1F1B",
    "zb-v": "ZBVZeroBubble",
}
"""Classes of torch/distributed/pipelining/schedules.py, get_schedule_class."""

PRECISIONS = {"bf16": "bfloat16", "fp32": "float32", "fp8": "bfloat16"}
SHARDING = {2: "never", 3: "always"}

Settings = dict[str, object]


def family(version: str) -> tuple[int, int]:
    """Return the first two numbers of a version."""
    parts = [int(part) for part in version.split(".")[:2]]
    return (parts[0], parts[1] if len(parts) > 1 else 0)


def write(problem: Problem, plan: Plan, version: str) -> str:
    """
    Write a script that starts a job.

    Raises
    ------
    InputError
        torchtitan cannot launch the plan.
    """
    faults: list[Fault] = []
    at = family(version)
    machines = machines_of(problem, plan, faults)
    found = settings(problem, plan, version, faults)
    flavor = network(problem, at, faults)
    if plan.pp > 1 and problem.workload.architecture.tied_embeddings:
        what = f"pp {plan.pp} with tied embeddings, which torchtitan does not tie across stages"
        faults.append(refuse("pp", what, "take pp 1, or untie them"))
    if faults:
        raise InputError(faults)
    assert machines is not None
    name = problem.workload.architecture.name
    head = _head(name, version, problem, machines)
    if at >= (0, 3):
        return head + _registry(problem, found, flavor, machines)
    return head + _toml_job(found, flavor, machines, at)


def settings(problem: Problem, plan: Plan, version: str, faults: list[Fault]) -> Settings:
    """Return the keys of a job's configuration, as of a version."""
    at = family(version)
    workload = problem.workload
    found: Settings = {}
    if workload.precision not in PRECISIONS:
        known = ", ".join(PRECISIONS)
        faults.append(refuse("workload.precision", "torchtitan trains in no fp16", f"take {known}"))
    local = plan.micro_batch * (plan.micro_batches if plan.pp > 1 else 1)
    found["training.local_batch_size"] = local
    found["training.global_batch_size"] = plan.global_batch
    found["training.seq_len"] = workload.sequence_length
    found["training.mixed_precision_param"] = PRECISIONS.get(workload.precision, "bfloat16")
    found["training.enable_cpu_offload"] = plan.offload
    found |= _data(problem, plan, faults)
    found["parallelism.tensor_parallel_degree"] = plan.tp
    _sequence(plan, at, found, faults)
    found["parallelism.context_parallel_degree"] = plan.cp
    found["parallelism.pipeline_parallel_degree"] = plan.pp
    if plan.pp > 1:
        found |= _pipeline(plan, at, faults)
    if workload.architecture.experts:
        found |= _experts(problem, plan, at, faults)
    if plan.recompute not in ("none", "full") or (
        plan.recompute == "full" and plan.recomputed_layers_per_stage != plan.layers_per_stage
    ):
        what = "torchtitan recomputes no number of layers per stage, and other operators"
        faults.append(refuse("recompute", what, "take recompute none, or full for all layers"))
    found["activation_checkpoint.mode"] = plan.recompute
    overlapped = problem.overlap is not None and "tp-overlap" in problem.overlap and plan.tp > 1
    if overlapped:
        where = "compile" if at >= (0, 3) else "parallelism"
        found[f"{where}.enable_async_tensor_parallel"] = True
    if overlapped or workload.precision == "fp8":
        found["compile.enable" if at >= (0, 2) else "training.compile"] = True
    if workload.precision == "fp8":
        found["model.converters"] = ["float8" if at < (0, 2) else "quantize.linear.float8"]
    return found


def _data(problem: Problem, plan: Plan, faults: list[Fault]) -> Settings:
    """Return how data ranks share."""
    copies, shards = 1, plan.dp
    if plan.order != "data_inside":
        what = "torchtitan lays pipeline ranks outside of data ranks"
        faults.append(refuse("order", what, "take order data_inside"))
    if plan.zero == 1:
        what = "torchtitan has no zero 1; FSDP2 shards weights and gradients too"
        faults.append(refuse("zero", what, "take zero 2 or 3, or 0"))
    if plan.zero == 0:
        copies, shards = plan.dp, 1
        if plan.cp > 1 or (plan.dp > 1 and plan.tp * plan.pp > 1):
            what = f"zero 0 with tp {plan.tp}, pp {plan.pp}, cp {plan.cp}: DDP goes with no other"
            faults.append(refuse("zero", what, "take zero 2 or 3"))
        if plan.offload:
            what = "an optimizer on the host needs FSDP2"
            faults.append(refuse("offload", what, "take zero 2 or 3, or no offload"))
    if plan.hsdp:
        inside = int(data_inside(problem, plan.tp, plan.pp, plan.dp, plan.cp, 0))
        if inside % plan.cp or inside in (1, plan.dp * plan.cp):
            what = f"hsdp with {inside} of {plan.dp * plan.cp} data ranks in a node"
            faults.append(refuse("hsdp", what, "take hsdp off"))
        else:
            shards = inside // plan.cp
            copies = plan.dp // shards
    found: Settings = {
        "parallelism.data_parallel_replicate_degree": copies,
        "parallelism.data_parallel_shard_degree": shards,
    }
    if plan.zero in SHARDING:
        found["parallelism.fsdp_reshard_after_forward"] = SHARDING[plan.zero]
    return found


def _sequence(plan: Plan, at: tuple[int, int], found: Settings, faults: list[Fault]) -> None:
    """Say how sequences are split beside tensors, and over context ranks."""
    if at >= (0, 3):
        found["parallelism.enable_sequence_parallel"] = plan.sequence_parallel
    elif plan.sequence_parallel != (plan.tp > 1):
        what = f"tp {plan.tp} without sequence parallelism"
        faults.append(refuse("sequence_parallel", what, "take it on; tp brings it before 0.3"))
    if plan.cp > 1 and plan.context != "ring":
        what = f"context {plan.context}, where torchtitan has a ring"
        faults.append(refuse("context", what, "take context ring"))


def _pipeline(plan: Plan, at: tuple[int, int], faults: list[Fault]) -> Settings:
    """Return schedule, micro-batches and the layers of every chunk."""
    if plan.schedule not in SCHEDULES:
        what = f"torchtitan has no schedule {plan.schedule}"
        faults.append(refuse("schedule", what, f"take {', '.join(SCHEDULES)}"))
        return {}
    chunks = chunks_of(plan)
    if chunks is None:
        what = "chunks that differ by more than the ends are not told apart by stages"
        faults.append(refuse("layers_per_stage", what, "take equal stages, or vpp 1"))
        return {}
    found: Settings = {
        "parallelism.pipeline_parallel_schedule": SCHEDULES[plan.schedule],
        "parallelism.pipeline_parallel_microbatch_size": plan.micro_batch,
    }
    ends = [sum(chunks[: i + 1]) for i in range(len(chunks))]
    if at < (0, 2):
        if min(chunks) < 1:
            what = f"a chunk without layers in {'-'.join(map(str, chunks))}"
            faults.append(refuse("layers_per_stage", what, "give every chunk a layer"))
        splits = [f"layers.{end}" for end in ends[:-1]]
        found["parallelism.pipeline_parallel_split_points"] = splits
        return found
    parts = [
        [f"layers.{i}" for i in range(end - n, end)] for end, n in zip(ends, chunks, strict=True)
    ]
    parts[0].insert(0, "tok_embeddings")
    parts[-1] += ["norm", "lm_head" if at >= (0, 3) else "output"]
    found["parallelism.module_fqns_per_model_part"] = parts
    return found


def _experts(problem: Problem, plan: Plan, at: tuple[int, int], faults: list[Fault]) -> Settings:
    """Return how experts are split, by the checks of torchtitan/distributed/parallel_dims.py."""
    found: Settings = {"parallelism.expert_parallel_degree": plan.ep}
    copies = 1
    if plan.zero == 0:
        copies = plan.dp
    ranks = plan.dp // copies * plan.cp
    if plan.hsdp:
        ranks = int(data_inside(problem, plan.tp, plan.pp, plan.dp, plan.cp, 0))
    if at >= (0, 3):
        if plan.etp != 1:
            faults.append(refuse("etp", f"etp {plan.etp}; 0.3 has none", "take etp 1"))
        if plan.ep > 1 and ranks * plan.tp % plan.ep:
            what = f"ep {plan.ep} of {ranks * plan.tp} sharded ranks of a stage"
            faults.append(refuse("ep", what, f"take a divisor of {ranks * plan.tp}"))
        return found
    if plan.ep == 1:
        if plan.etp != plan.tp:
            what = f"etp {plan.etp} at ep 1, where torchtitan splits experts as all else"
            faults.append(refuse("etp", what, f"take etp {plan.tp}, or ep >= 2"))
        return found
    own = plan.cp * (1 if plan.etp == plan.tp else plan.tp)
    room = ranks * (1 if plan.etp == plan.tp else plan.tp)
    if plan.etp not in (1, plan.tp):
        faults.append(refuse("etp", f"etp {plan.etp}", f"take etp 1 or {plan.tp}"))
    elif plan.ep % own or room % plan.ep:
        what = f"ep {plan.ep}; with etp {plan.etp} it is a multiple of {own} that divides {room}"
        faults.append(refuse("ep", what, f"take ep {room}"))
    found["parallelism.expert_tensor_parallel_degree"] = plan.etp
    return found


# -- texts -----------------------------------------------------------------------------------------


def _head(name: str, version: str, problem: Problem, machines: Machines) -> str:
    """Return the top of the script."""
    safe = "".join(c if c.isalnum() or c in "-._ " else "_" for c in name)
    device = "".join(
        c if c.isalnum() or c in "-._ " else "_" for c in problem.cluster.accelerator.name
    )
    return f"""#!/usr/bin/env bash
# Written for torchtitan@{version}: {safe} on {machines.nodes} x {machines.per_node} {device}.
# Run it on every node, with the same MASTER_ADDR.
set -euo pipefail
"""


def _toml_job(
    found: Settings, made: Mapping[str, Any], machines: Machines, at: tuple[int, int]
) -> str:
    """Write flavor and configuration, and start the job, before 0.3."""
    sections: dict[str, dict[str, object]] = {
        "model": {"name": made["model"], "flavor": made.get("flavor", OWN)}
    }
    for path, value in found.items():
        section, _, key = path.partition(".")
        sections.setdefault(section, {})[key] = value
    file = ""
    if "call" in made:
        sections["experimental"] = {"custom_import": "optplan_flavor"}
        file = f"cat > optplan_flavor.py <<'PY'\n{_flavor(made, at)}PY\n"
    text = "\n".join(
        f"[{section}]\n" + "".join(f"{key} = {literal(value)}\n" for key, value in keys.items())
        for section, keys in sections.items()
    )
    tokenizer = "model.tokenizer_path" if at < (0, 2) else "model.hf_assets_path"
    return f"""DATASET=${{DATASET:?a dataset that torchtitan knows, such as c4}}
TOKENIZER=${{TOKENIZER:?path of the tokenizer}}
STEPS=${{STEPS:?number of steps to train}}
{machines.rendezvous}export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True

{file}cat > optplan_job.toml <<'TOML'
{text}TOML

PYTHONPATH="$PWD:${{PYTHONPATH:-}}" torchrun {machines.torchrun} \\
  -m torchtitan.train --job.config_file optplan_job.toml \\
  --training.dataset "$DATASET" --training.steps "$STEPS" --{tokenizer} "$TOKENIZER"
"""


def literal(value: object) -> str:
    """Write a value as TOML has it."""
    return json.dumps(value)


def _call(name: str, arguments: Mapping[str, object], indent: str = "    ") -> str:
    """Write a call with an argument on each line."""
    lines = []
    for key, value in arguments.items():
        said = (
            _call("MoEArgs", value, indent + "    ") if isinstance(value, Mapping) else repr(value)
        )
        lines.append(f"{indent}{key}={said},\n")
    return f"{name}(\n{''.join(lines)}{indent[4:]})"


def _flavor(made: Mapping[str, Any], at: tuple[int, int]) -> str:
    """Write a module that adds a flavor to a model, before 0.3."""
    model, call = made["model"], made["call"]
    table = {"llama3": "llama3_args", "qwen3": "qwen3_args", "deepseek_v3": "deepseekv3_args"}[
        model
    ]
    if at < (0, 2):
        table = "llama3_configs"
    moe = "from torchtitan.models.moe import MoEArgs\n" if "moe_args" in made["arguments"] else ""
    return f"""import torchtitan.models.{model} as family
{moe}from torchtitan.models.{model}.model.args import {call}

family.{table}["{OWN}"] = {_call(call, made["arguments"])}
"""


def _registry(
    problem: Problem, found: Settings, made: Mapping[str, Any], machines: Machines
) -> str:
    """Write a module of configurations and start the job, from 0.3 on."""
    from optplan.launches.torchtitan_registry import module

    return f"""export DATASET=${{DATASET:?a dataset that torchtitan knows, such as c4}}
export TOKENIZER=${{TOKENIZER:?folder with the tokenizer}}
export STEPS=${{STEPS:?number of steps to train}}
{machines.rendezvous}export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True

cat > optplan_job.py <<'PY'
{module(problem, found, made)}PY

PYTHONPATH="$PWD:${{PYTHONPATH:-}}" torchrun {machines.torchrun} \\
  -m torchtitan.train --module optplan_job --config job
"""
