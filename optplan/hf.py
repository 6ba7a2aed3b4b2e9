"""The shape of a transformer from the config.json that Hugging Face models carry."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from optplan.models.spec.workload import Architecture
from optplan.places import Refusal, short

_DENSE = ("llama", "mistral", "qwen2", "qwen3")
_SPARSE = ("mixtral", "qwen2_moe", "qwen3_moe", "deepseek_v2", "deepseek_v3", "gpt_oss")
"""Families whose block is RMSNorm, rotary positions and gated feed-forward layers."""

_LARGEST = 2**20
_SIZES = {
    "layers": "num_hidden_layers",
    "hidden": "hidden_size",
    "heads": "num_attention_heads",
    "kv_heads": "num_key_value_heads",
    "head_dim": "head_dim",
    "ffn": "intermediate_size",
    "vocabulary": "vocab_size",
}
_LATENT = {
    "q_rank": "q_lora_rank",
    "kv_rank": "kv_lora_rank",
    "nope": "qk_nope_head_dim",
    "rope": "qk_rope_head_dim",
    "value": "v_head_dim",
}
_EXPERTS = {
    "mixtral": {"count": "num_local_experts", "ffn": "intermediate_size"},
    "gpt_oss": {"count": "num_local_experts", "ffn": "intermediate_size"},
    "qwen2_moe": {
        "count": "num_experts",
        "ffn": "moe_intermediate_size",
        "shared_ffn": "shared_expert_intermediate_size",
    },
    "qwen3_moe": {"count": "num_experts", "ffn": "moe_intermediate_size"},
    "deepseek_v2": {
        "count": "n_routed_experts",
        "ffn": "moe_intermediate_size",
        "leading_dense": "first_k_dense_replace",
    },
}
_EXPERTS["deepseek_v3"] = _EXPERTS["deepseek_v2"]
_OPTIONAL = ("head_dim", "q_lora_rank")
"""Keys that may be missing or null in every family."""

_COUNTS = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
"""Keys that say how many experts there are."""

_HEAD_WIDTH = {"qwen3": 128, "gpt_oss": 64}
"""Families whose head width is fixed by their code when the file is silent."""


def architecture(path: Path) -> Architecture:
    """
    Read a config.json.

    What each key means is taken from the configuration and modelling code of Hugging Face
    transformers, and for DeepSeek from the code beside the weights.

    Parameters
    ----------
    path
        The file.

    Raises
    ------
    Refusal
        The file cannot be read, or its model is of a kind that the cost model does not count.
    """
    config = _read(path)
    try:
        return shape_of(config)
    except Refusal as refusal:
        raise Refusal(f"'{short(path.name)}' {refusal.problem}", refusal.remedy) from refusal


def shape_of(config: dict[str, Any]) -> Architecture:
    """Read an architecture; a refusal's problem lacks its subject."""
    family = config.get("model_type")
    if family not in _DENSE + _SPARSE:
        raise Refusal(
            f"is of the unknown family '{short(str(family))}'",
            f"use one of {', '.join(_DENSE + _SPARSE)}, or write the architecture inline",
        )
    latent = family in ("deepseek_v2", "deepseek_v3")
    keys: dict[tuple[str, ...], str] = {(ours,): theirs for ours, theirs in _SIZES.items()}
    if latent:
        # Heads are given by the latent sizes alone; what the file says beside them is not used.
        keys = {place: theirs for place, theirs in keys.items() if "head" not in theirs}
        keys |= {("heads",): "num_attention_heads", ("head_dim",): "v_head_dim"}
        keys |= {("latent", ours): theirs for ours, theirs in _LATENT.items()}
    if family in _SPARSE:
        keys |= {("experts", ours): theirs for ours, theirs in _EXPERTS[family].items()}
        keys[("experts", "per_token")] = "num_experts_per_tok"
        _plain_pattern(config)
    elif any(type(config.get(key)) is int and config[key] > 1 for key in _COUNTS):
        raise Refusal("has experts", f"use a dense model, or one of {', '.join(_SPARSE)}")
    fields: dict[str, Any] = {}
    for place, theirs in keys.items():
        group = fields.setdefault(place[0], {}) if len(place) == 2 else fields
        group[place[-1]] = _size(config, theirs)
    if latent:
        fields["latent"]["q_rank"] = fields["latent"]["q_rank"] or 0
        fields["mtp"] = _size(config, "num_nextn_predict_layers", 0)
    else:
        fields["head_dim"] = fields["head_dim"] or _HEAD_WIDTH.get(family)
    if family in _SPARSE:
        fields["experts"] |= _beside_experts(config, family, fields["experts"]["ffn"])
    fields |= {
        "name": str(config.get("_name_or_path") or family)[:200],
        "tied_embeddings": _flag(config, "tie_word_embeddings", default=False),
        "biases": _biases(config, family),
        "qk_norm": family in ("qwen3", "qwen3_moe"),
        "sinks": family == "gpt_oss",
    }
    fields |= _window(config, family, fields["layers"])
    return _validated(fields, keys)


def _validated(fields: dict[str, Any], keys: dict[tuple[str, ...], str]) -> Architecture:
    """Check the record; a fault is named by the file's key."""
    try:
        return Architecture.model_validate(fields)
    except ValidationError as error:
        first = error.errors()[0]
        place = tuple(str(part) for part in first["loc"])
        theirs = keys.get(place, ".".join(place))
        said = f"'{theirs}' is {short(repr(first['input']))}"
        what = said if place and place != ("experts",) else "the sizes do not fit each other"
        raise Refusal(f"cannot be used: {what}", "write the architecture inline") from error


def _read(path: Path) -> dict[str, Any]:
    """Read the file as a JSON object."""
    quoted = f"'{short(str(path))}'"
    try:
        with path.open("rb") as file:
            raw = file.read(_LARGEST + 1)
        if len(raw) > _LARGEST:
            raise Refusal(f"{quoted} is larger than 1 MiB", "name a model's config.json")
        config = json.loads(raw)
    except OSError as error:
        raise Refusal(f"cannot read {quoted}: {error.strerror}", "name a config.json") from error
    except (ValueError, RecursionError) as error:
        raise Refusal(f"{quoted} is no JSON", "name a model's config.json") from error
    if not isinstance(config, dict):
        raise Refusal(f"{quoted} holds no JSON object", "name a model's config.json")
    return config


def _size(config: dict[str, Any], key: str, default: int | None = None) -> int | None:
    """Return a whole number of the file."""
    # Newer files of the Qwen families call their experts as Mixtral does.
    if key == "num_experts" and key not in config:
        key = "num_local_experts"
    # Only Llama has files so old that they lack the key heads; it has as many as query heads then.
    optional = key in _OPTIONAL or (
        key == "num_key_value_heads" and config.get("model_type") == "llama"
    )
    found = config.get(key)
    if found is None and default is None and not optional:
        raise Refusal(f"lacks '{key}'", "use a complete config.json")
    if found is not None and type(found) is not int:
        raise Refusal(
            f"cannot be used: '{key}' is {short(repr(found))}", "give a whole number there"
        )
    return default if found is None else found


def _flag(config: dict[str, Any], key: str, default: bool) -> bool:
    """Return a yes or no of the file."""
    found = config.get(key)
    if found is not None and type(found) is not bool:
        raise Refusal(f"cannot be used: '{key}' is {short(repr(found))}", "give true or false")
    return default if found is None else found


def _plain_pattern(config: dict[str, Any]) -> None:
    """Refuse blocks with and without experts in any order but first without, then with."""
    remedy = "write the architecture inline, with the nearest pattern"
    for key in ("moe_layer_freq", "decoder_sparse_step"):
        if config.get(key) not in (None, 1):
            raise Refusal(
                f"has experts in some blocks only: '{key}' is {short(repr(config[key]))}", remedy
            )
    if config.get("mlp_only_layers"):
        raise Refusal(
            "has experts in some blocks only: 'mlp_only_layers' is "
            f"{short(repr(config['mlp_only_layers']))}",
            remedy,
        )


def _beside_experts(config: dict[str, Any], family: str, width: int) -> dict[str, Any]:
    """Return what a family has beside its routed experts."""
    if family in ("deepseek_v2", "deepseek_v3"):
        # The correction of the scores that balances without a loss (arXiv 2412.19437, sec. 2.1.2).
        corrected = config.get("topk_method") in (None, "noaux_tc")
        return {
            "shared_ffn": (_size(config, "n_shared_experts", 0) or 0) * width,
            "router_bias": family == "deepseek_v3" and corrected,
        }
    return {"router_bias": family == "gpt_oss", "shared_gate": family == "qwen2_moe"}


def _biases(config: dict[str, Any], family: str) -> str:
    """Say which linear layers carry a bias."""
    attention = _flag(config, "attention_bias", default=family == "gpt_oss")
    if family == "gpt_oss":
        if not attention:
            raise Refusal("has biases in its experts only", "write the architecture inline")
        return "all"
    if family == "qwen2":
        return "qkv"
    if family == "qwen2_moe":
        return "qkv" if _flag(config, "qkv_bias", default=True) else "none"
    if family in ("mistral", "mixtral"):
        return "none"
    if family in ("llama", "deepseek_v2") and _flag(config, "mlp_bias", default=False):
        if family == "deepseek_v2" or not attention:
            raise Refusal("has biases in its feed-forward only", "write the architecture inline")
        return "all"
    return "attention" if attention else "none"


def _window(config: dict[str, Any], family: str, layers: int) -> dict[str, Any]:
    """Return the attention's window and in how many blocks it is."""
    tokens = config.get("sliding_window")
    switched = _flag(config, "use_sliding_window", default=False)
    if family in ("llama", "deepseek_v2", "deepseek_v3") or tokens is None:
        return {}
    if family.startswith("qwen") and not switched:
        return {}
    kinds = config.get("layer_types")
    if isinstance(kinds, list):
        strange = [kind for kind in kinds if kind not in ("sliding_attention", "full_attention")]
        if strange or len(kinds) != layers:
            what = f"'{short(str(strange[0]))}'" if strange else f"{len(kinds)} entries"
            raise Refusal(
                f"has layer_types with {what}",
                f"give sliding_attention or full_attention, once for each of {layers} layers",
            )
        windowed = kinds.count("sliding_attention")
    elif family == "gpt_oss":
        windowed = (layers + 1) // 2
    elif family in ("qwen2", "qwen3"):
        windowed = max(0, layers - (_size(config, "max_window_layers", 28) or 0))
    elif family in ("mistral", "mixtral", "qwen3_moe"):
        windowed = layers
    else:
        raise Refusal("has a sliding window without layer_types", "add layer_types to the file")
    if windowed == 0:
        return {}
    return {
        "sliding_window": _size(config, "sliding_window"),
        "windowed_layers": None if windowed == layers else windowed,
    }
