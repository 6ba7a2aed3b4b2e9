"""A NeMo 2 job written down: a recipe, and every value of a plan as an override."""

from __future__ import annotations

from collections.abc import Mapping

from optplan.launches.amend import Keys
from optplan.launches.launch import Value
from optplan.launches.machines import machines_of
from optplan.launches.megatron_job import Job, Option, flat
from optplan.launches.megatron_network import shape_options
from optplan.launches.megatron_writing import overlap_options, plan_options
from optplan.launches.notes import plain_name, refuse
from optplan.launches.script import quoted
from optplan.models.errors import Fault, InputError
from optplan.models.spec.plan import Plan
from optplan.models.spec.problem import Problem

CORES = (((2, 4), (0, 13)), ((2, 3), (0, 12)), ((2, 2), (0, 11)), ((2, 0), (0, 9)))
"""Megatron Core below each version, as the catalogue has it."""

PRECISIONS = {"bf16": "bf16-mixed", "fp8": "bf16-mixed", "fp16": "16-mixed", "fp32": "32"}

STRATEGY = frozenset(
    [
        "tensor_model_parallel_size",
        "pipeline_model_parallel_size",
        "context_parallel_size",
        "sequence_parallel",
        "virtual_pipeline_model_parallel_size",
        "expert_model_parallel_size",
        "expert_tensor_parallel_size",
        "use_tp_pp_dp_mapping",
        "pipeline_model_parallel_layout",
        "account_for_embedding_in_pipeline_split",
        "account_for_loss_in_pipeline_split",
        "num_layers_in_first_pipeline_stage",
        "num_layers_in_last_pipeline_stage",
    ]
)
"""Arguments of MegatronStrategy, package nemo_toolkit 2.4.0."""

SHARDING = frozenset(
    [
        "use_distributed_optimizer",
        "use_custom_fsdp",
        "use_megatron_fsdp",
        "data_parallel_sharding_strategy",
        "num_distributed_optimizer_instances",
        "overlap_grad_reduce",
        "overlap_param_gather",
    ]
)
"""Fields of DistributedDataParallelConfig, megatron/core/distributed, which a strategy takes."""

_DROPPED = ("max_position_embeddings", "group_query_attention", "multi_latent_attention")
_NAMES = {
    "num_experts": "num_moe_experts",
    "swiglu": "gated_linear_unit",
    "decoder_first_pipeline_num_layers": "num_layers_in_first_pipeline_stage",
    "decoder_last_pipeline_num_layers": "num_layers_in_last_pipeline_stage",
}
_NEGATED = {
    "disable_bias_linear": "add_bias_linear",
    "untie_embeddings_and_output_weights": "share_embeddings_and_output_weights",
    "no_overlap_p2p_communication": "overlap_p2p_comm",
}


def core_of(version: tuple[int, ...]) -> tuple[int, int]:
    """Return the version of Megatron Core that a version of NeMo stands on."""
    return next((core for since, core in CORES if version[:2] >= since), (0, 9))


def home(name: str, beside: str = "") -> str:
    """
    Return what stands in front of a name.

    Parameters
    ----------
    beside
        A key of the same launch, which tells NeMo 2 from NeMo 1 and Megatron-Bridge.
    """
    second = not beside or beside.startswith(
        ("trainer.strategy", "model.config", "data.", "optim.config")
    )
    if name in ("micro_batch_size", "global_batch_size"):
        return (
            "data." if second else "train." if beside.startswith(("train.", "ddp.")) else "model."
        )
    if name in ("num_nodes", "devices"):
        return "trainer."
    if name in SHARDING:
        return "trainer.strategy.ddp." if second else "ddp."
    if not second:
        return "model."
    if name.startswith(("optimizer_", "use_precision_aware")):
        return "optim.config."
    return "trainer.strategy." if name in STRATEGY else "model.config."


def write(problem: Problem, plan: Plan, version: str) -> str:
    """
    Write a script that starts a job.

    Raises
    ------
    InputError
        This version cannot launch the plan.
    """
    faults: list[Fault] = []
    at = tuple(int(part) for part in version.split(".") if part.isdigit())
    machines = machines_of(problem, plan, faults)
    workload, shape = problem.workload, problem.workload.architecture
    core = core_of(at)
    nodes, node = (machines.nodes, machines.per_node) if machines else (1, 1)
    job = Job(shape.layers, shape.mtp, shape.experts is not None, nodes, node, core)
    _lacks(problem, at, faults)
    options = flat(shape_options(shape, workload, job, faults))
    options += flat(plan_options(plan, job, faults))
    hidden, said = overlap_options(problem, plan, job)
    if faults:
        raise InputError(faults)
    assert machines is not None
    keys = _network(problem, at) | _keys([*options, *hidden], plan, core)
    keys["seq_length"] = workload.sequence_length
    lines = [f"{home(name)}{name}={_value(value)}" for name, value in keys.items()]
    if keys.get("use_distributed_optimizer"):
        lines.append("optim.config.use_distributed_optimizer=true")
    lines += [
        f"data.seq_length={workload.sequence_length}",
        f"trainer.num_nodes={machines.nodes}",
        f"trainer.devices={machines.per_node}",
        f"trainer.plugins.precision={PRECISIONS[workload.precision]}",
    ]
    if workload.precision == "fp8":
        lines.append("trainer.plugins.fp8=hybrid")
    overrides = " \\\n  ".join(quoted(line) for line in lines)
    unfused = (
        "" if workload.flash_attention else "export NVTE_FLASH_ATTN=0\nexport NVTE_FUSED_ATTN=0\n"
    )
    vocabulary = ""
    if at < (2, 4):
        vocabulary = (
            "# Entries that the recipe's tokenizer must have; this version takes them from it.\n"
            f"VOCABULARY={shape.vocabulary}\n"
        )
    notes = "".join(f"# {plain_name(one)}\n" for one in said)
    recipe = "deepseek_v3" if shape.latent else "llama3_8b"
    return f"""#!/usr/bin/env bash
# Written for nemo@{version}: {plain_name(shape.name)} on {machines.nodes} x {machines.per_node} \
{plain_name(problem.cluster.accelerator.name)}.
# Run it on every node. The recipe only gives what is left over, such as the optimizer; every size
# below stands over its own.
{notes}set -euo pipefail
NEMO=${{NEMO:-$(command -v nemo)}}
DATA_PATHS=${{DATA_PATHS:?list of prefixes of the tokenized data, as data.paths takes it}}
MAX_STEPS=${{MAX_STEPS:?number of steps to train}}
{vocabulary}{machines.rendezvous}{unfused}export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True

torchrun {machines.torchrun} \\
  "$NEMO" llm pretrain --yes --factory {recipe} \\
  data=pre_training data.paths="$DATA_PATHS" trainer.max_steps="$MAX_STEPS" \\
  {overrides}
"""


def _lacks(problem: Problem, at: tuple[int, ...], faults: list[Fault]) -> None:
    """Refuse what overrides of a recipe cannot say."""
    workload, shape = problem.workload, problem.workload.architecture
    rules: tuple[tuple[bool, str, str], ...] = (
        (shape.mtp > 0 and at < (2, 4), "mtp", "take nemo@2.4, or mtp 0"),
        (shape.latent is not None and at < (2, 2), "latent", "take nemo@2.2"),
        (shape.sinks, "sinks", "leave them out"),
        (shape.sliding_window is not None, "sliding_window", "leave it out"),
        (workload.lora is not None, "lora", "leave it out"),
        (
            shape.learned_positions not in (0, workload.sequence_length),
            "learned_positions",
            f"take {workload.sequence_length}, the sequence, or 0",
        ),
        (
            shape.experts is not None and shape.experts.shared_gate and at < (2, 2),
            "experts.shared_gate",
            "take nemo@2.2",
        ),
        (
            shape.experts is not None and shape.experts.router_bias and at < (2, 2),
            "experts.router_bias",
            "take nemo@2.2",
        ),
    )
    for wrong, field, remedy in rules:
        if wrong:
            what = f"overrides of a recipe do not say {field} as here"
            faults.append(refuse(f"workload.architecture.{field}", what, remedy))


def _network(problem: Problem, at: tuple[int, ...]) -> dict[str, object]:
    """Return the switches of a network, each of which a recipe may have set."""
    shape = problem.workload.architecture
    found: dict[str, object] = {
        "gated_linear_unit": False,
        "add_bias_linear": True,
        "add_qkv_bias": False,
        "qk_layernorm": False,
        "share_embeddings_and_output_weights": True,
        "num_query_groups": shape.key_heads,
        "kv_channels": shape.head_width,
        "sequence_parallel": False,
        "use_distributed_optimizer": False,
        "overlap_grad_reduce": False,
        "overlap_param_gather": False,
        "recompute_granularity": None,
    }
    if shape.latent is not None:
        found["multi_latent_attention"] = True
        found["q_lora_rank"] = shape.latent.q_rank or None
        # What the recipe of DeepSeek-V3 has besides.
        found |= dict.fromkeys(("num_moe_experts", "moe_shared_expert_intermediate_size"))
        found |= {"moe_layer_freq": 1, "moe_router_enable_expert_bias": False}
        found["mtp_num_layers"] = None
    return found


def _keys(options: list[Option], plan: Plan, core: tuple[int, int]) -> dict[str, object]:
    """Return options of Megatron by NeMo's names."""
    found: dict[str, object] = {}
    for flag, *values in options:
        name = flag.lstrip("-").replace("-", "_")
        if name in _DROPPED or (name == "vocab_size" and core < (0, 13)):
            continue
        if name == "num_layers_per_virtual_pipeline_stage":
            found["virtual_pipeline_model_parallel_size"] = plan.vpp
        elif name in _NEGATED:
            found[_NEGATED[name]] = False
        else:
            ours = _NAMES.get(name, name)
            if ours.startswith("num_layers_in_") and core < (0, 11):
                ours = ours.replace("num_layers_in_", "").replace("_stage", "_num_layers")
            found[ours] = values[0] if values else True
    return found


def _value(value: object) -> str:
    """Write a value as overrides have it."""
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)


SIMPLE = {
    "tp": "tensor_model_parallel_size",
    "pp": "pipeline_model_parallel_size",
    "cp": "context_parallel_size",
    "ep": "expert_model_parallel_size",
    "etp": "expert_tensor_parallel_size",
    "vpp": "virtual_pipeline_model_parallel_size",
    "sequence_parallel": "sequence_parallel",
    "micro_batch": "micro_batch_size",
    "global_batch": "global_batch_size",
    "sequence_length": "seq_length",
    "nodes": "num_nodes",
    "devices_per_node": "devices",
}


def keys_for(values: Mapping[str, Value]) -> Keys:
    """Return the keys of a launch that asks for some values."""
    found: dict[str, object] = {SIMPLE[n]: values[n] for n in SIMPLE if n in values}
    if values.get("vpp") == 1:
        found["virtual_pipeline_model_parallel_size"] = "null"
    zero = values.get("zero")
    if zero in (0, 1):
        found["use_distributed_optimizer"] = zero == 1
    again = values.get("recompute")
    if again == "none":
        found["recompute_granularity"] = "null"
    elif again in ("selective", "full"):
        found["recompute_granularity"] = again
        held = values.get("layers_per_stage")
        if again == "full" and values.get("recomputed_layers_per_stage") in (None, held):
            found |= {"recompute_method": "uniform", "recompute_num_layers": 1}
    return found
