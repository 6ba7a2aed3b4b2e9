"""A job of Hugging Face Accelerate written down: its configuration, its network, its command."""

from __future__ import annotations

import json

from optplan.launches.hf_config import FAMILIES, config_of
from optplan.launches.machines import Machines, machines_of
from optplan.launches.notes import plain_name, refuse
from optplan.models.cost.traffic import data_inside
from optplan.models.errors import Fault, InputError
from optplan.models.spec.plan import Plan
from optplan.models.spec.problem import Problem

PRECISIONS = {"bf16": "bf16", "fp16": "fp16", "fp32": "no", "fp8": "fp8"}
"""Values of ``mixed_precision``, accelerate/utils/dataclasses.py, PrecisionType."""

STRATEGIES = {
    (3, False): "FULL_SHARD",
    (2, False): "SHARD_GRAD_OP",
    (3, True): "HYBRID_SHARD",
    (2, True): "HYBRID_SHARD_ZERO2",
}
"""``fsdp_sharding_strategy`` by ZeRO stage and whether sharding stays inside of nodes."""


def write(problem: Problem, plan: Plan, version: str) -> str:
    """
    Write a script that starts a job.

    Raises
    ------
    InputError
        This version cannot launch the plan.
    """
    faults: list[Fault] = []
    machines = machines_of(problem, plan, faults)
    at = tuple(int(part) for part in version.split(".")[:2])
    workload = problem.workload
    config = config_of(workload.architecture, workload.sequence_length, faults)
    _check(problem, plan, at >= (1, 10), faults)
    known = _settings(problem, plan, at, config.get("model_type", ""), faults)
    if faults:
        raise InputError(faults)
    assert machines is not None
    return _script(problem, plan, version, machines, known, json.dumps(config, indent=2))


def _check(problem: Problem, plan: Plan, meshed: bool, faults: list[Fault]) -> None:
    """Refuse what Accelerate cannot launch."""
    workload = problem.workload
    since = "take accelerate@1.10"
    rules: tuple[tuple[bool, str, str, str], ...] = (
        (plan.pp > 1, "pp", f"pp {plan.pp}; Accelerate trains without a pipeline", "take pp 1"),
        (plan.ep * plan.etp > 1, "ep", "Accelerate has no expert parallelism", "take ep = etp = 1"),
        (plan.zero == 1, "zero", "FSDP has no zero 1", "take zero 2 or 3, or 0"),
        (plan.tp > 1 and not meshed, "tp", f"tp {plan.tp}", f"take tp 1, or {since[5:]}"),
        (plan.cp > 1 and not meshed, "cp", f"cp {plan.cp}", f"take cp 1, or {since[5:]}"),
        (plan.cp > 1 and plan.context != "ring", "context", plan.context, "take context ring"),
        (plan.cp > 1 and plan.zero == 0, "zero", "cp needs FSDP2", "take zero 2 or 3"),
        (
            plan.zero == 0 and plan.dp > 1 and plan.tp > 1,
            "zero",
            f"dp {plan.dp} without sharding beside tp {plan.tp}",
            "take zero 2 or 3",
        ),
        (
            plan.sequence_parallel,
            "sequence_parallel",
            "tensor-parallel plans of transformers leave sequences whole",
            "take sequence_parallel off",
        ),
        (plan.offload and plan.zero == 0, "offload", "offload needs FSDP", "take zero 2 or 3"),
        (plan.order != "data_inside", "order", f"order {plan.order}", "take data_inside"),
        (
            plan.recompute not in ("none", "full")
            or (
                plan.recompute == "full"
                and plan.recomputed_layers_per_stage[0] < plan.layers_per_stage[0]
            ),
            "recompute",
            f"recompute {plan.recompute} of {plan.recomputed_layers_per_stage[0]} layers",
            "take none, or full for all layers",
        ),
        (
            not workload.flash_attention,
            "workload.flash_attention",
            "transformers fuses the attention unless its script says otherwise",
            "take flash_attention true",
        ),
        (workload.lora is not None, "workload.lora", "adapters are the script's", "leave lora out"),
        (
            workload.capacity_factor is not None,
            "workload.capacity_factor",
            "experts of transformers drop no token",
            "leave it out",
        ),
    )
    faults += [refuse(field, what, fix) for wrong, field, what, fix in rules if wrong]
    if plan.hsdp:
        inside = int(data_inside(problem, plan.tp, plan.pp, plan.dp, plan.cp, 0))
        node = problem.cluster.devices_per_node
        whole = inside % plan.cp == 0 and 1 < inside < plan.dp * plan.cp
        alone = inside == plan.cp and plan.tp * plan.cp > 1
        if not whole or alone or (not meshed and inside != node):
            what = f"hsdp with {inside} of {plan.dp * plan.cp} data ranks in a node of {node}"
            faults.append(refuse("hsdp", what, "take hsdp off"))


def _settings(
    problem: Problem, plan: Plan, at: tuple[int, ...], family: str, faults: list[Fault]
) -> dict[str, object]:
    """Return the keys of the configuration below its machines."""
    second = at >= (1, 6) and not (plan.hsdp and at < (1, 10))
    if plan.zero == 0:
        found: dict[str, object] = {"distributed_type": "MULTI_GPU" if plan.devices > 1 else "NO"}
    else:
        block = FAMILIES[family][1] if family else ""
        inner: dict[str, object] = {
            "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
            "fsdp_transformer_layer_cls_to_wrap": block,
            "fsdp_state_dict_type": "SHARDED_STATE_DICT",
            "fsdp_offload_params": plan.offload,
            "fsdp_activation_checkpointing": plan.recompute == "full",
            "fsdp_cpu_ram_efficient_loading": True,
        }
        if second:
            inner = {"fsdp_version": 2, "fsdp_reshard_after_forward": plan.zero == 3} | inner
        else:
            strategy = STRATEGIES.get((plan.zero, plan.hsdp), "FULL_SHARD")
            inner = {"fsdp_sharding_strategy": strategy, "fsdp_sync_module_states": True} | inner
            inner |= {"fsdp_backward_prefetch": "BACKWARD_PRE", "fsdp_use_orig_params": True}
        found = {"distributed_type": "FSDP", "fsdp_config": inner}
    if at >= (1, 10) and (plan.tp * plan.cp > 1 or plan.hsdp):
        inside = int(data_inside(problem, plan.tp, plan.pp, plan.dp, plan.cp, 0))
        shards = max(1, inside // plan.cp) if plan.hsdp else plan.dp
        found["parallelism_config"] = {
            "parallelism_config_dp_replicate_size": max(1, plan.dp // shards),
            "parallelism_config_dp_shard_size": shards,
            "parallelism_config_tp_size": plan.tp,
            "parallelism_config_cp_size": plan.cp,
        }
    if plan.zero == 0 and plan.cp == 1 and plan.tp > 1:
        found["distributed_type"] = "MULTI_GPU"
    found["mixed_precision"] = PRECISIONS[problem.workload.precision]
    return found


def _yaml(known: dict[str, object], indent: str = "") -> str:
    """Write keys as YAML; texts that YAML would take for something else stand in quotes."""
    lines = []
    for key, value in known.items():
        if isinstance(value, dict):
            lines.append(f"{indent}{key}:\n{_yaml(value, indent + '  ')}")
        else:
            said = f"'{value}'" if value in ("no", "NO") else value
            said = str(value).lower() if isinstance(value, bool) else said
            lines.append(f"{indent}{key}: {said}\n")
    return "".join(lines)


def _script(
    problem: Problem,
    plan: Plan,
    version: str,
    machines: Machines,
    known: dict[str, object],
    config: str,
) -> str:
    """Return the whole script."""
    workload = problem.workload
    top: dict[str, object] = {"compute_environment": "LOCAL_MACHINE"}
    top |= known
    top |= {
        "num_machines": machines.nodes,
        "num_processes": machines.nodes * machines.per_node,
        "machine_rank": "$MACHINE_RANK",
        "main_process_ip": "$MASTER_ADDR",
        "main_process_port": "$MASTER_PORT",
        "rdzv_backend": "static",
        "same_network": True,
        "main_training_function": "main",
    }
    flags = {"bf16": " --bf16 True", "fp16": " --fp16 True"}.get(workload.precision, "")
    if plan.zero == 0 and plan.recompute == "full":
        flags += " --gradient_checkpointing True"
    first = ":-127.0.0.1" if machines.nodes == 1 else ":?address of the first node"
    rank = ":-0" if machines.nodes == 1 else ":?rank of this node, from 0"
    return f"""#!/usr/bin/env bash
# Written for accelerate@{version}: {plain_name(workload.architecture.name)} on \
{machines.nodes} x {machines.per_node} {plain_name(problem.cluster.accelerator.name)}.
# Run it on every node. TRAIN is run_clm.py of the examples of transformers, or takes its arguments.
set -euo pipefail
TRAIN=${{TRAIN:?path of run_clm.py}}
DATASET=${{DATASET:?a dataset of the hub, or a folder}}
TOKENIZER=${{TOKENIZER:?name or path of the tokenizer}}
STEPS=${{STEPS:?number of steps to train}}
OUTPUT=${{OUTPUT:?folder for checkpoints}}
MASTER_ADDR=${{MASTER_ADDR{first}}}
MASTER_PORT=${{MASTER_PORT:-29500}}
MACHINE_RANK=${{MACHINE_RANK{rank}}}
export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True

mkdir -p optplan_model
cat > optplan_model/config.json <<'JSON'
{config}
JSON
cat > optplan_accelerate.yaml <<YAML
{_yaml(top)}YAML

accelerate launch --config_file optplan_accelerate.yaml "$TRAIN" \\
  --config_name optplan_model --tokenizer_name "$TOKENIZER" --dataset_name "$DATASET" \\
  --block_size {workload.sequence_length} \\
  --per_device_train_batch_size {plan.micro_batch} \\
  --gradient_accumulation_steps {plan.micro_batches}{flags} \\
  --do_train --max_steps "$STEPS" --output_dir "$OUTPUT"
"""
