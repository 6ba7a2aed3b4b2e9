"""The config.json of a transformer, in the words of Hugging Face."""

from __future__ import annotations

from typing import Any

from optplan.hf import shape_of
from optplan.launches.launch import Value
from optplan.launches.notes import refuse, shape_values
from optplan.models.errors import Fault
from optplan.models.spec.workload import Architecture
from optplan.places import Refusal

FAMILIES = {
    "llama": ("LlamaForCausalLM", "LlamaDecoderLayer"),
    "qwen2": ("Qwen2ForCausalLM", "Qwen2DecoderLayer"),
    "qwen3": ("Qwen3ForCausalLM", "Qwen3DecoderLayer"),
    "mistral": ("MistralForCausalLM", "MistralDecoderLayer"),
    "mixtral": ("MixtralForCausalLM", "MixtralDecoderLayer"),
    "qwen3_moe": ("Qwen3MoeForCausalLM", "Qwen3MoeDecoderLayer"),
    "qwen2_moe": ("Qwen2MoeForCausalLM", "Qwen2MoeDecoderLayer"),
    "deepseek_v2": ("DeepseekV2ForCausalLM", "DeepseekV2DecoderLayer"),
    "deepseek_v3": ("DeepseekV3ForCausalLM", "DeepseekV3DecoderLayer"),
    "gpt_oss": ("GptOssForCausalLM", "GptOssDecoderLayer"),
}
"""Model types, the class of each and of its block, by their names in Hugging Face transformers."""


def config_of(shape: Architecture, sequence_length: int, faults: list[Fault]) -> dict[str, Any]:
    """
    Return a configuration whose network has a shape; empty after a fault.

    Every family is tried; what it makes is read back, so that only an equal network is returned.
    """
    wanted = shape_values(shape)
    nearest: dict[str, Value] | None = None
    for family in FAMILIES:
        config = _config(shape, family, sequence_length)
        try:
            found = shape_values(shape_of(config))
        except Refusal:
            continue
        if found == wanted:
            return config
        apart = {n: v for n, v in wanted.items() if found.get(n, 0) != v}
        apart |= {n: v for n, v in found.items() if n not in wanted and v}
        if nearest is None or len(apart) < len(nearest):
            nearest = apart
    listed = ", ".join(f"{name} {value}" for name, value in sorted((nearest or {}).items())[:4])
    what = "no family of Hugging Face transformers that is known here has this shape"
    faults.append(
        refuse(
            "workload.architecture",
            f"{what}: {listed or 'sizes do not fit each other'}",
            "take a network like Llama, Qwen, Mistral, Mixtral, DeepSeek or gpt-oss",
        )
    )
    return {}


def _config(shape: Architecture, family: str, sequence_length: int) -> dict[str, Any]:
    """Write a shape as a family has it, whether or not it fits."""
    config: dict[str, Any] = {
        "architectures": [FAMILIES[family][0]],
        "model_type": family,
        "num_hidden_layers": shape.layers,
        "hidden_size": shape.hidden,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.key_heads,
        "head_dim": shape.head_width,
        "intermediate_size": shape.ffn,
        "vocab_size": shape.vocabulary,
        "tie_word_embeddings": shape.tied_embeddings,
        "max_position_embeddings": sequence_length,
        "torch_dtype": "float32",
    }
    if family in ("llama", "qwen3", "qwen3_moe", "gpt_oss", "deepseek_v2", "deepseek_v3"):
        config["attention_bias"] = shape.biases in ("attention", "all")
    if family in ("llama", "deepseek_v2"):
        config["mlp_bias"] = shape.biases == "all"
    if family == "qwen2_moe":
        config["qkv_bias"] = shape.biases == "qkv"
    config |= _windowed(shape, family)
    experts, latent = shape.experts, shape.latent
    if experts is not None:
        config["num_experts_per_tok"] = experts.per_token
        config |= {"num_local_experts": experts.count, "num_experts": experts.count}
        if family.startswith("qwen"):
            del config["num_local_experts"]
            config |= {"moe_intermediate_size": experts.ffn, "decoder_sparse_step": 1}
            config |= {"mlp_only_layers": []}
            if family == "qwen2_moe":
                config["shared_expert_intermediate_size"] = experts.shared_ffn
        elif family.startswith("deepseek"):
            del config["num_local_experts"], config["num_experts"]
            config |= {
                "n_routed_experts": experts.count,
                "moe_intermediate_size": experts.ffn,
                "n_shared_experts": experts.shared_ffn // experts.ffn,
                "first_k_dense_replace": experts.leading_dense,
                "moe_layer_freq": 1,
                "topk_method": "noaux_tc" if experts.router_bias else "greedy",
            }
        else:
            del config["num_experts"]
            config["intermediate_size"] = experts.ffn
    if latent is not None and family.startswith("deepseek"):
        del config["head_dim"]
        config |= {
            "q_lora_rank": latent.q_rank or None,
            "kv_lora_rank": latent.kv_rank,
            "qk_nope_head_dim": latent.nope,
            "qk_rope_head_dim": latent.rope,
            "v_head_dim": latent.value,
        }
        if shape.mtp:
            config["num_nextn_predict_layers"] = shape.mtp
    return config


def _windowed(shape: Architecture, family: str) -> dict[str, Any]:
    """Write the window of the attention."""
    if shape.sliding_window is None or family in ("llama", "deepseek_v2", "deepseek_v3"):
        return {"sliding_window": None} if family in ("mistral", "mixtral") else {}
    many = shape.layers if shape.windowed_layers is None else shape.windowed_layers
    kinds = ["sliding_attention"] * many + ["full_attention"] * (shape.layers - many)
    found: dict[str, Any] = {"sliding_window": shape.sliding_window, "layer_types": kinds}
    if family.startswith("qwen"):
        found["use_sliding_window"] = True
    return found
