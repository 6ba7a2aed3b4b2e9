"""A Megatron-DeepSpeed job written down: options, DeepSpeed's JSON, the command."""

from __future__ import annotations

import json

from optplan.launches.machines import Machines, machines_of
from optplan.launches.notes import plain_name, refuse
from optplan.models.errors import Fault, InputError
from optplan.models.spec.plan import Plan
from optplan.models.spec.problem import Problem
from optplan.models.spec.workload import Workload


def write(problem: Problem, plan: Plan, version: str) -> str:
    """
    Write a script that starts a job.

    Raises
    ------
    InputError
        Megatron-DeepSpeed cannot launch the plan.
    """
    faults: list[Fault] = []
    machines = machines_of(problem, plan, faults)
    _check(problem, plan, faults)
    _lacks(problem.workload, faults)
    if faults:
        raise InputError(faults)
    assert machines is not None
    flags = [*_network(problem.workload), *_layout(problem, plan)]
    return _script(problem, plan, version, machines, flags)


def _check(problem: Problem, plan: Plan, faults: list[Fault]) -> None:
    """Refuse layouts that Megatron-DeepSpeed does not have."""
    experts = problem.workload.architecture.experts
    even = len(set(plan.layers_per_stage)) == 1
    whole = plan.recompute != "full" or plan.recomputed_layers_per_stage == plan.layers_per_stage
    layers = problem.workload.architecture.layers
    rules: tuple[tuple[bool, str, str, str], ...] = (
        (plan.schedule != "1f1b" or plan.vpp > 1, "schedule", plan.schedule, "take 1f1b"),
        (
            plan.zero > 1 and plan.pp > 1,
            "zero",
            f"zero {plan.zero} at pp {plan.pp}, which PipelineEngine refuses",
            "take zero 1, or pp 1",
        ),
        (plan.hsdp, "hsdp", "sharding over a part of the data ranks", "take hsdp off"),
        (plan.order != "data_inside", "order", plan.order, "take data_inside"),
        (
            not even,
            "layers_per_stage",
            f"{', '.join(map(str, plan.layers_per_stage[:8]))}: DeepSpeed parts layers by itself",
            f"take a pp that divides {layers}",
        ),
        (
            plan.recompute in ("selective", "partial") or not whole,
            "recompute",
            f"recompute {plan.recompute} of some layers",
            "take none, or full for all layers",
        ),
        (
            plan.cp > 1 and plan.context != "ulysses",
            "context",
            f"context {plan.context}",
            "take ulysses, which is what DeepSpeed has",
        ),
        (
            plan.cp > 1 and plan.sequence_parallel,
            "sequence_parallel",
            "--sequence-parallel beside --ds-sequence-parallel-size",
            "take sequence_parallel off, or cp 1",
        ),
        (
            experts is not None and plan.etp not in (1, plan.tp),
            "etp",
            f"etp {plan.etp} at tp {plan.tp}",
            f"take etp 1 or {plan.tp}",
        ),
        (
            plan.offload and plan.zero == 0,
            "offload",
            "an optimizer on the host without ZeRO",
            "take zero 1 or more",
        ),
    )
    faults += [refuse(field, what, fix) for wrong, field, what, fix in rules if wrong]


def _lacks(workload: Workload, faults: list[Fault]) -> None:
    """Refuse networks that its options cannot describe."""
    shape = workload.architecture
    experts = shape.experts
    rules: tuple[tuple[bool, str, str], ...] = (
        (shape.biases not in ("none", "all"), "biases", "take none or all"),
        (shape.qk_norm, "qk_norm", "leave it out"),
        (shape.sinks, "sinks", "leave them out"),
        (shape.latent is not None, "latent", "leave it out"),
        (shape.mtp > 0, "mtp", "take mtp 0"),
        (shape.sliding_window is not None, "sliding_window", "leave it out"),
        (workload.lora is not None, "lora", "leave it out"),
        (
            0 < shape.learned_positions < workload.sequence_length,
            "learned_positions",
            f"take {workload.sequence_length} or more rows",
        ),
        (
            experts is not None
            and (
                experts.ffn != shape.ffn
                or experts.shared_ffn > 0
                or experts.leading_dense > 0
                or experts.router_bias
                or experts.shared_gate
            ),
            "experts",
            f"take routed experts of width {shape.ffn} and nothing beside them",
        ),
    )
    for wrong, field, remedy in rules:
        if wrong:
            what = f"options of Megatron-DeepSpeed do not describe {field} as here"
            faults.append(refuse(f"workload.architecture.{field}", what, remedy))


def _network(workload: Workload) -> list[str]:
    """Return the options of a network, megatron/arguments.py."""
    shape = workload.architecture
    flags = [
        f"--num-layers {shape.layers}",
        f"--hidden-size {shape.hidden}",
        f"--num-attention-heads {shape.heads}",
        f"--num-key-value-heads {shape.key_heads}",
        f"--kv-channels {shape.head_width}",
        f"--ffn-hidden-size {shape.ffn}",
        f"--vocab-size {shape.vocabulary}",
        f"--seq-length {workload.sequence_length}",
        f"--max-position-embeddings {shape.learned_positions or workload.sequence_length}",
        f"--normalization {shape.norm}",
    ]
    dropped = ["--attention-dropout 0.1", "--hidden-dropout 0.1"]
    flags += dropped if shape.dropout else [flag.replace("0.1", "0") for flag in dropped]
    for wanted, flag in (
        (not shape.learned_positions, "--use-rotary-position-embeddings"),
        (shape.gated, "--swiglu"),
        (shape.biases == "none", "--disable-bias-linear"),
        (not shape.tied_embeddings, "--untie-embeddings-and-output-weights"),
        (workload.flash_attention, "--use-flash-attn-v2"),
        (workload.precision in ("bf16", "fp8"), "--bf16"),
        (workload.precision == "fp16", "--fp16"),
        (workload.precision == "fp8", "--transformer-impl transformer_engine"),
        (workload.precision == "fp8", "--fp8-hybrid"),
    ):
        flags += [flag] if wanted else []
    return flags


def _layout(problem: Problem, plan: Plan) -> list[str]:
    """Return the options of a layout."""
    flags = [
        f"--tensor-model-parallel-size {plan.tp}",
        f"--pipeline-model-parallel-size {plan.pp}",
        f"--ds-sequence-parallel-size {plan.cp}",
        f"--micro-batch-size {plan.micro_batch}",
        f"--global-batch-size {plan.global_batch}",
        f"--zero-stage {plan.zero}",
    ]
    experts = problem.workload.architecture.experts
    if experts:
        flags += [
            f"--num-experts {experts.count}",
            f"--topk {experts.per_token}",
            "--expert-interval 1",
            f"--moe-expert-parallel-size {plan.ep}",
        ]
        factor = problem.workload.capacity_factor
        flags.append(
            "--disable-moe-token-dropping"
            if factor is None
            else f"--moe-train-capacity-factor {factor}"
        )
    for wanted, flag in (
        (
            bool(experts) and plan.tp > 1 and plan.etp == plan.tp,
            "--enable-expert-tensor-parallelism",
        ),
        (plan.pp == 1, "--no-pipeline-parallel"),
        (plan.sequence_parallel, "--sequence-parallel"),
        (plan.recompute == "full", "--checkpoint-activations"),
        (plan.recompute == "full", "--deepspeed-activation-checkpointing"),
        (plan.offload, "--cpu-optimizer"),
    ):
        flags += [flag] if wanted else []
    return flags


def settings(problem: Problem, plan: Plan) -> dict[str, object]:
    """Return DeepSpeed's own configuration."""
    zero: dict[str, object] = {"stage": plan.zero, "overlap_comm": True}
    if plan.offload:
        zero["offload_optimizer"] = {"device": "cpu", "pin_memory": True}
    precision = problem.workload.precision
    return {
        "train_batch_size": plan.global_batch,
        "train_micro_batch_size_per_gpu": plan.micro_batch,
        "gradient_accumulation_steps": plan.micro_batches,
        "steps_per_print": 10,
        "zero_optimization": zero,
        "bf16": {"enabled": precision in ("bf16", "fp8")},
        "fp16": {"enabled": precision == "fp16"},
    }


def _script(
    problem: Problem, plan: Plan, version: str, machines: Machines, flags: list[str]
) -> str:
    """Return the whole script."""
    name = plain_name(problem.workload.architecture.name)
    device = plain_name(problem.cluster.accelerator.name)
    hosts = 'HOSTFILE=${HOSTFILE:?file with a line "host slots=N" for each node}\n'
    told = ' --hostfile "$HOSTFILE"'
    if machines.nodes == 1:
        hosts = told = ""
    options = " \\\n  ".join(flags)
    return f"""#!/usr/bin/env bash
# Written for megatron-deepspeed@{version}: {name} on {machines.nodes} x {machines.per_node} \
{device}.
# Run it on the first node, in the folder of Megatron-DeepSpeed.
set -euo pipefail
DATA_PATH=${{DATA_PATH:?prefix of the tokenized data}}
TOKENIZER_TYPE=${{TOKENIZER_TYPE:?kind of tokenizer, such as HFTokenizer}}
TOKENIZER_MODEL=${{TOKENIZER_MODEL:?file or folder of the tokenizer}}
TRAIN_ITERS=${{TRAIN_ITERS:?number of steps to train}}
LEARNING_RATE=${{LEARNING_RATE:?learning rate, such as 3e-4}}
{hosts}export CUDA_DEVICE_MAX_CONNECTIONS=1
export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True

cat > optplan_deepspeed.json <<'JSON'
{json.dumps(settings(problem, plan), indent=2)}
JSON

deepspeed --num_nodes {machines.nodes} --num_gpus {machines.per_node}{told} pretrain_gpt.py \\
  --deepspeed --deepspeed_config optplan_deepspeed.json \\
  {options} \\
  --train-iters "$TRAIN_ITERS" --lr "$LEARNING_RATE" --data-path "$DATA_PATH" \\
  --tokenizer-type "$TOKENIZER_TYPE" --tokenizer-model "$TOKENIZER_MODEL"
"""
