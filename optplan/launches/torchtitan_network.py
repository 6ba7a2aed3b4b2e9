"""The network of a torchtitan job: a flavor that it has, or the arguments of one of its own."""

from __future__ import annotations

from typing import Any

from optplan.launches.notes import refuse
from optplan.launches.torchtitan_shape import cannot, named
from optplan.models.errors import Fault
from optplan.models.spec.problem import Problem


def network(problem: Problem, at: tuple[int, int], faults: list[Fault]) -> dict[str, Any]:
    """Return model and flavor, and the call and arguments that make a flavor of its own."""
    shape = problem.workload.architecture
    models = ("llama3",) if at < (0, 2) else ("llama3", "qwen3", "deepseek_v3")
    ready = named(shape, models)
    if ready is not None and not problem.workload.lora and problem.workload.flash_attention:
        return {"model": ready[0], "flavor": ready[1]}
    before = len(faults)
    faults += cannot(problem.workload, models)
    plain = shape.head_width * shape.heads == shape.hidden and not shape.qk_norm
    arguments: dict[str, object] = {
        "dim": shape.hidden,
        "n_layers": shape.layers,
        "n_heads": shape.heads,
        "n_kv_heads": shape.key_heads,
        "vocab_size": shape.vocabulary,
    }
    if (
        plain
        and not shape.experts
        and not shape.latent
        and (at >= (0, 3) or not shape.tied_embeddings)
    ):
        if at >= (0, 3):
            arguments |= {"hidden_dim": shape.ffn, "enable_weight_tying": shape.tied_embeddings}
        else:
            factor = shape.ffn / max(1, int(2 * 4 * shape.hidden / 3))
            arguments |= {"ffn_dim_multiplier": factor, "multiple_of": shape.ffn}
        return {"model": "llama3", "call": "TransformerModelArgs", "arguments": arguments}
    if at < (0, 2):
        what = "torchtitan 0.1 has llama3 alone: no experts, tied embeddings or head width"
        faults.append(refuse("workload.architecture", what, "take torchtitan@0.2"))
        return {}
    if shape.latent:
        return _latent(problem, at, arguments, faults)
    experts = shape.experts
    arguments |= {
        "head_dim": shape.head_width,
        "hidden_dim": shape.ffn,
        "qk_norm": shape.qk_norm,
        "enable_weight_tying": shape.tied_embeddings,
    }
    if at >= (0, 3) and not shape.qk_norm:
        what = "torchtitan 0.3 has experts, and heads of their own width, with norms of the heads"
        faults.append(refuse("workload.architecture.qk_norm", what, "take torchtitan@0.2"))
    if experts:
        if experts.leading_dense:
            what = f"{experts.leading_dense} leading dense layers without latent attention"
            faults.append(refuse("workload.architecture.experts", what, "take leading_dense 0"))
        arguments |= {"moe_enabled": True, "moe_inter_dim": experts.ffn}
        arguments["moe_args"] = _moe(problem, at, faults)
    if len(faults) > before:
        return {}
    return {"model": "qwen3", "call": "Qwen3ModelArgs", "arguments": arguments}


def _moe(problem: Problem, at: tuple[int, int], faults: list[Fault]) -> dict[str, object]:
    """Return the arguments of MoEArgs."""
    experts = problem.workload.architecture.experts
    assert experts is not None
    if experts.shared_ffn % experts.ffn or (at >= (0, 3) and experts.shared_ffn):
        what = f"shared experts of width {experts.shared_ffn}, routed ones of {experts.ffn}"
        remedy = f"take a multiple of {experts.ffn}" if at < (0, 3) else "take torchtitan@0.2"
        faults.append(refuse("workload.architecture.experts.shared_ffn", what, remedy))
    if at >= (0, 3) and experts.router_bias:
        what = "a corrected router"
        faults.append(
            refuse("workload.architecture.experts.router_bias", what, "take torchtitan@0.2")
        )
    return {
        "num_experts": experts.count,
        "num_shared_experts": experts.shared_ffn // experts.ffn,
        "top_k": experts.per_token,
        "load_balance_coeff": 1e-3 if experts.router_bias else None,
    }


def _latent(
    problem: Problem, at: tuple[int, int], arguments: dict[str, object], faults: list[Fault]
) -> dict[str, Any]:
    """Return a network like DeepSeek-V3."""
    shape = problem.workload.architecture
    latent, experts = shape.latent, shape.experts
    assert latent is not None
    wrong = (
        "take torchtitan@0.2 or a flavor that it knows"
        if at >= (0, 3)
        else "take experts"
        if experts is None
        else "untie them"
        if shape.tied_embeddings
        else "leave qk_norm out"
        if shape.qk_norm
        else f"take kv_heads {shape.heads}"
        if shape.key_heads != shape.heads
        else f"take head_dim {latent.value}"
        if shape.head_width != latent.value
        else ""
    )
    if wrong or experts is None:
        what = "latent attention as here is not what torchtitan builds"
        faults.append(refuse("workload.architecture.latent", what, wrong))
        return {}
    del arguments["n_kv_heads"]
    arguments |= {
        "inter_dim": shape.ffn,
        "moe_inter_dim": experts.ffn,
        "n_dense_layers": experts.leading_dense,
        "q_lora_rank": latent.q_rank,
        "kv_lora_rank": latent.kv_rank,
        "qk_nope_head_dim": latent.nope,
        "qk_rope_head_dim": latent.rope,
        "v_head_dim": latent.value,
        "moe_args": _moe(problem, at, faults),
    }
    return {"model": "deepseek_v3", "call": "DeepSeekV3ModelArgs", "arguments": arguments}
