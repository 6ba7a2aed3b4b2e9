"""The shape of a transformer from the config.json that Hugging Face models carry."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from optplan.models.spec.workload import Architecture
from optplan.places import Refusal, short

_FAMILIES = ("llama", "mistral", "qwen2", "qwen3")
"""Families whose block is RMSNorm, rotary positions and a gated feed-forward."""

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
_OPTIONAL = ("kv_heads", "head_dim")
_EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")


def architecture(path: Path) -> Architecture:
    """
    Read a config.json.

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
    family = config.get("model_type")
    if any(type(config.get(key)) is int and config[key] > 1 for key in _EXPERTS):
        raise Refusal(f"'{short(path.name)}' has experts", "use a dense model")
    if family not in _FAMILIES:
        raise Refusal(
            f"'{short(path.name)}' is of the unknown family '{short(str(family))}'",
            f"use one of {', '.join(_FAMILIES)}, or write the architecture inline",
        )
    sizes = {ours: config.get(theirs) for ours, theirs in _SIZES.items()}
    for ours, theirs in _SIZES.items():
        if sizes[ours] is None and ours not in _OPTIONAL:
            raise Refusal(f"'{short(path.name)}' lacks '{theirs}'", "use a complete config.json")
    if family == "qwen3":
        # The one family whose head width is fixed by its code when the file is silent.
        sizes["head_dim"] = sizes["head_dim"] or 128
    fields = sizes | {
        "name": str(config.get("_name_or_path") or family)[:200],
        "tied_embeddings": config.get("tie_word_embeddings", False),
        "biases": _biases(config),
    }
    try:
        return Architecture.model_validate(fields)
    except ValidationError as error:
        first = error.errors()[0]
        ours = str(first["loc"][0]) if first["loc"] else ""
        said = f"'{_SIZES.get(ours, ours)}' is {short(repr(first['input']))}"
        what = said if ours else "the sizes do not fit each other"
        raise Refusal(
            f"'{short(path.name)}' cannot be used: {what}", "write the architecture inline"
        ) from error


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


def _biases(config: dict[str, Any]) -> str:
    """Say which linear layers carry a bias; the output projection's vector is below any error."""
    if config.get("mlp_bias"):
        return "all"
    return "qkv" if config.get("attention_bias") or config["model_type"] == "qwen2" else "none"
