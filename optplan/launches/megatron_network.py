"""A network as options of Megatron."""

from __future__ import annotations

from optplan.launches.megatron_job import Groups, Job, Option
from optplan.models.errors import Fault
from optplan.models.spec.workload import Architecture, Workload

FORMATS: dict[str, tuple[Option, ...]] = {
    "bf16": (("--bf16",),),
    "fp16": (("--fp16",),),
    "fp8": (("--bf16",), ("--fp8-format", "hybrid")),
    "fp32": (),
}
"""Options by number format."""


def shape_options(shape: Architecture, workload: Workload, job: Job, faults: list[Fault]) -> Groups:
    """Write an architecture as options."""
    network: list[Option] = [
        ("--num-layers", str(shape.layers)),
        ("--hidden-size", str(shape.hidden)),
        ("--ffn-hidden-size", str(shape.ffn)),
        ("--num-attention-heads", str(shape.heads)),
    ]
    if shape.key_heads != shape.heads:
        network += [("--group-query-attention",), ("--num-query-groups", str(shape.key_heads))]
    if shape.head_dim is not None:
        network.append(("--kv-channels", str(shape.head_dim)))
    network += _ends(shape, workload, faults)
    network.append(("--normalization", "RMSNorm" if shape.norm == "rmsnorm" else "LayerNorm"))
    if shape.gated:
        network.append(("--swiglu",))
    if shape.biases in ("none", "qkv"):
        network.append(("--disable-bias-linear",))
    if shape.biases == "qkv":
        network.append(("--add-qkv-bias",))
    if shape.biases == "attention":
        problem = "biases in the attention alone, which no option says"
        faults.append(Fault("", "workload.architecture.biases", problem, "take qkv or all"))
    if shape.qk_norm:
        network.append(("--qk-layernorm",))
    share = "0.1" if shape.dropout else "0.0"
    network += [("--attention-dropout", share), ("--hidden-dropout", share)]
    found: Groups = {"network": network}
    found["network"] += _extras(shape, job, faults)
    if shape.experts is not None:
        found["experts"] = expert_options(shape, workload)
    return found


def _ends(shape: Architecture, workload: Workload, faults: list[Fault]) -> list[Option]:
    """Write vocabulary, positions and head."""
    found: list[Option] = [("--vocab-size", str(shape.vocabulary))]
    if shape.learned_positions:
        rows = shape.learned_positions
        found.append(("--position-embedding-type", "learned_absolute"))
        found.append(("--max-position-embeddings", str(rows)))
        if rows < workload.sequence_length:
            problem = f"{rows} learned positions for sequences of {workload.sequence_length}"
            remedy = f"take {workload.sequence_length} or more"
            faults.append(Fault("", "workload.architecture.learned_positions", problem, remedy))
    else:
        found.append(("--position-embedding-type", "rope"))
        found.append(("--max-position-embeddings", str(workload.sequence_length)))
    if not shape.tied_embeddings:
        found.append(("--untie-embeddings-and-output-weights",))
    return found


def _extras(shape: Architecture, job: Job, faults: list[Fault]) -> list[Option]:
    """Write what newer networks have."""
    found: list[Option] = []
    latent = shape.latent
    if latent is not None:
        found.append(("--multi-latent-attention",))
        if latent.q_rank:
            found.append(("--q-lora-rank", str(latent.q_rank)))
        found += [
            ("--kv-lora-rank", str(latent.kv_rank)),
            ("--qk-head-dim", str(latent.nope)),
            ("--qk-pos-emb-head-dim", str(latent.rope)),
            ("--v-head-dim", str(latent.value)),
        ]
    if shape.mtp:
        found.append(("--mtp-num-layers", str(shape.mtp)))
    if shape.sinks:
        found.append(("--softmax-type", "learnable"))
    if shape.sliding_window is not None:
        found.append(("--window-size", f"{shape.sliding_window},0"))
        some = shape.windowed_layers
        if some is not None:
            pattern = f"([1]*{some}+[0]*{shape.layers - some})"
            found.append(("--window-attn-skip-freq", pattern))
    return found


def expert_options(shape: Architecture, workload: Workload) -> list[Option]:
    """Write a mixture of experts."""
    experts = shape.experts
    assert experts is not None
    found: list[Option] = [
        ("--num-experts", str(experts.count)),
        ("--moe-router-topk", str(experts.per_token)),
        ("--moe-ffn-hidden-size", str(experts.ffn)),
        ("--moe-token-dispatcher-type", "alltoall"),
    ]
    if experts.shared_ffn:
        found.append(("--moe-shared-expert-intermediate-size", str(experts.shared_ffn)))
    if experts.leading_dense:
        rest = shape.layers - experts.leading_dense
        found.append(("--moe-layer-freq", f"([0]*{experts.leading_dense}+[1]*{rest})"))
    if experts.router_bias:
        found.append(("--moe-router-enable-expert-bias",))
    if experts.shared_gate:
        found.append(("--moe-shared-expert-gate",))
    if workload.capacity_factor is not None:
        found.append(("--moe-expert-capacity-factor", repr(workload.capacity_factor)))
    elif workload.precision in ("bf16", "fp8"):
        found.append(("--moe-grouped-gemm",))
    return found


def number_options(workload: Workload, job: Job) -> list[Option]:
    """Write number formats and attention."""
    found = list(FORMATS[workload.precision])
    if job.version >= (0, 10):
        kind = "flash" if workload.flash_attention else "unfused"
        return [*found, ("--attention-backend", kind)]
    if workload.flash_attention:
        return [*found, ("--use-flash-attn",)]
    return [*found, ("--transformer-impl", "local")]
