"""A config.json of every family counts right, and what cannot be counted is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from optplan import catalogue, hf
from optplan.models.cost.parameters import total_parameters
from optplan.models.spec.workload import Architecture
from optplan.places import Refusal

Config = dict[str, Any]

BASE: Config = {
    "num_hidden_layers": 4,
    "hidden_size": 64,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "intermediate_size": 96,
    "vocab_size": 1000,
}
DENSE = 4 * (64 * (64 + 2 * 16) + 64 * 64 + 3 * 64 * 96 + 2 * 64) + 2 * 1000 * 64 + 64
"""Parameters of a plain network of these sizes."""

ROUTED: Config = {"num_experts_per_tok": 2, "moe_intermediate_size": 32}
QWEN: Config = BASE | ROUTED | {"num_experts": 8, "head_dim": 8}
SPARSE = DENSE + 4 * (8 * 64 + 8 * 3 * 64 * 32 - 3 * 64 * 96)
"""Parameters with eight experts, 32 wide, in place of every feed-forward layer."""

DEEPSEEK: Config = (
    BASE
    | ROUTED
    | {
        "model_type": "deepseek_v2",
        "num_key_value_heads": 8,
        "n_routed_experts": 8,
        "n_shared_experts": 2,
        "first_k_dense_replace": 1,
        "moe_layer_freq": 1,
        "q_lora_rank": 24,
        "kv_lora_rank": 16,
        "qk_nope_head_dim": 8,
        "qk_rope_head_dim": 4,
        "v_head_dim": 12,
    }
)
OSS: Config = BASE | {
    "model_type": "gpt_oss",
    "head_dim": 8,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
    "attention_bias": True,
    "sliding_window": 128,
}


def read(tmp_path: Path, config: object) -> Architecture:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    return hf.architecture(path)


def latent_attention(q_rank: int) -> int:
    """Parameters of one block's attention of the DeepSeek sizes."""
    queries = 64 * q_rank + q_rank + q_rank * 8 * 12 if q_rank else 64 * 8 * 12
    return queries + 64 * (16 + 4) + 16 + 16 * 8 * (8 + 12) + 8 * 12 * 64


def deepseek(q_rank: int, shared: int, bias: int = 0) -> tuple[int, int]:
    """Parameters of the DeepSeek sizes without prediction modules, and of a block with experts."""
    around = latent_attention(q_rank) + 2 * 64
    sparse = around + 8 * 64 + bias + 8 * 3 * 64 * 32 + 3 * 64 * 32 * shared
    return around + 3 * 64 * 96 + 3 * sparse + 2 * 1000 * 64 + 64, sparse


# -- dense -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "count"),
    [
        ({"model_type": "llama"}, DENSE),
        ({"model_type": "mistral"}, DENSE),
        ({"model_type": "llama", "attention_bias": True}, DENSE + 4 * (96 + 64)),
        (
            {"model_type": "llama", "attention_bias": True, "mlp_bias": True},
            DENSE + 4 * (96 + 64 + 2 * 96 + 64),
        ),
        ({"model_type": "qwen2", "tie_word_embeddings": True}, DENSE + 4 * 96 - 64_000),
        ({"model_type": "qwen3", "head_dim": 8}, DENSE + 4 * 16),
        ({"model_type": "qwen3", "head_dim": 8, "attention_bias": True}, DENSE + 4 * 176),
    ],
)
def test_a_dense_family_counts_right(tmp_path: Path, config: Config, count: int) -> None:
    assert total_parameters(read(tmp_path, BASE | config)) == count


def test_a_family_fixes_what_its_file_leaves_out(tmp_path: Path) -> None:
    assert read(tmp_path, BASE | {"model_type": "qwen3"}).head_width == 128
    silent = {key: value for key, value in OSS.items() if key != "head_dim"}
    assert read(tmp_path, silent).head_width == 64
    old = {key: value for key, value in BASE.items() if key != "num_key_value_heads"}
    assert read(tmp_path, old | {"model_type": "llama"}).key_heads == 8


# -- experts ---------------------------------------------------------------------------------------


def test_mixtral_counts_right(tmp_path: Path) -> None:
    config = BASE | {"model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2}
    shape = read(tmp_path, config)
    assert total_parameters(shape) == DENSE + 4 * (8 * 64 + 7 * 3 * 64 * 96)
    assert shape.experts is not None
    assert shape.experts.per_token == 2


def test_qwen_with_experts_counts_right(tmp_path: Path) -> None:
    three = read(tmp_path, QWEN | {"model_type": "qwen3_moe", "mlp_only_layers": []})
    assert total_parameters(three) == SPARSE + 4 * 16
    renamed = {key: value for key, value in QWEN.items() if key != "num_experts"}
    renamed |= {"model_type": "qwen3_moe", "num_local_experts": 8}
    assert read(tmp_path, renamed) == three
    two = QWEN | {"model_type": "qwen2_moe", "shared_expert_intermediate_size": 48}
    shared = 4 * (3 * 64 * 48 + 64)
    assert total_parameters(read(tmp_path, two)) == SPARSE + shared + 4 * 96
    assert total_parameters(read(tmp_path, two | {"qkv_bias": False})) == SPARSE + shared


def test_deepseek_v2_counts_right(tmp_path: Path) -> None:
    assert total_parameters(read(tmp_path, DEEPSEEK)) == deepseek(24, 2)[0]
    lite = DEEPSEEK | {"q_lora_rank": None, "n_shared_experts": None}
    assert total_parameters(read(tmp_path, lite)) == deepseek(0, 0)[0]
    biased = read(tmp_path, DEEPSEEK | {"attention_bias": True})
    assert total_parameters(biased) == deepseek(24, 2)[0] + 4 * (24 + 20 + 64)


def test_deepseek_v3_counts_right(tmp_path: Path) -> None:
    three = DEEPSEEK | {"model_type": "deepseek_v3", "head_dim": 4}
    whole, block = deepseek(24, 2, bias=8)
    assert total_parameters(read(tmp_path, three)) == whole
    assert total_parameters(read(tmp_path, three | {"topk_method": "noaux_tc"})) == whole
    assert total_parameters(read(tmp_path, three | {"topk_method": "greedy"})) == whole - 3 * 8
    ahead = read(tmp_path, three | {"num_nextn_predict_layers": 1})
    assert total_parameters(ahead) == whole + block + 2 * 64 * 64 + 3 * 64


def test_gpt_oss_counts_right(tmp_path: Path) -> None:
    expert = 3 * 64 * 96 + 2 * 96 + 64
    block = 64 * 96 + 96 + 64 * 64 + 64 + 8 + 2 * 64 + 8 * 64 + 8 + 8 * expert
    assert total_parameters(read(tmp_path, OSS)) == 4 * block + 2 * 1000 * 64 + 64


DEEPSEEK_V3: Config = {
    "model_type": "deepseek_v3",
    "num_hidden_layers": 61,
    "hidden_size": 7168,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "vocab_size": 129280,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "first_k_dense_replace": 3,
    "moe_layer_freq": 1,
    "topk_method": "noaux_tc",
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "num_nextn_predict_layers": 1,
    "attention_bias": False,
    "tie_word_embeddings": False,
}
GPT_OSS: Config = {
    "model_type": "gpt_oss",
    "num_hidden_layers": 36,
    "hidden_size": 2880,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "intermediate_size": 2880,
    "vocab_size": 201088,
    "num_local_experts": 128,
    "num_experts_per_tok": 4,
    "attention_bias": True,
    "sliding_window": 128,
    "layer_types": ["sliding_attention", "full_attention"] * 18,
    "tie_word_embeddings": False,
}


@pytest.mark.parametrize(
    ("name", "config"), [("deepseek-v3", DEEPSEEK_V3), ("gpt-oss-120b", GPT_OSS)]
)
def test_a_published_file_gives_the_shipped_record(
    tmp_path: Path, name: str, config: Config
) -> None:
    shipped = catalogue.architecture(name)
    found = read(tmp_path, config).model_copy(update={"name": name})
    assert found.model_copy(update={"kv_heads": found.key_heads}) == shipped


@pytest.mark.parametrize(
    ("config", "published"),
    [
        # Safetensors parameter totals on Hugging Face: Qwen/Qwen1.5-MoE-A2.7B,
        # deepseek-ai/DeepSeek-V2-Lite; openai/gpt-oss-20b as its GGUF conversion counts it.
        (
            {
                "model_type": "qwen2_moe",
                "num_hidden_layers": 24,
                "hidden_size": 2048,
                "num_attention_heads": 16,
                "num_key_value_heads": 16,
                "intermediate_size": 5632,
                "moe_intermediate_size": 1408,
                "shared_expert_intermediate_size": 5632,
                "num_experts": 60,
                "num_experts_per_tok": 4,
                "vocab_size": 151936,
            },
            14_315_784_192,
        ),
        (
            DEEPSEEK_V3
            | {
                "model_type": "deepseek_v2",
                "num_hidden_layers": 27,
                "hidden_size": 2048,
                "num_attention_heads": 16,
                "num_key_value_heads": 16,
                "intermediate_size": 10944,
                "moe_intermediate_size": 1408,
                "vocab_size": 102400,
                "n_routed_experts": 64,
                "n_shared_experts": 2,
                "num_experts_per_tok": 6,
                "first_k_dense_replace": 1,
                "q_lora_rank": None,
                "num_nextn_predict_layers": 0,
            },
            15_706_484_224,
        ),
        (
            GPT_OSS | {"num_hidden_layers": 24, "num_local_experts": 32, "layer_types": None},
            20_914_757_184,
        ),
    ],
)
def test_published_models_beside_the_catalogue_count_right(
    tmp_path: Path, config: Config, published: int
) -> None:
    assert total_parameters(read(tmp_path, config)) == published


# -- windows ---------------------------------------------------------------------------------------

SLIDING, FULL = "sliding_attention", "full_attention"


@pytest.mark.parametrize(
    ("config", "window", "layers"),
    [
        ({"model_type": "mistral", "sliding_window": 32}, 32, None),
        ({"model_type": "mistral", "sliding_window": None}, None, None),
        ({"model_type": "llama", "sliding_window": 32}, None, None),
        ({"model_type": "qwen2", "sliding_window": 32}, None, None),
        (
            {
                "model_type": "qwen2",
                "sliding_window": 32,
                "use_sliding_window": True,
                "max_window_layers": 3,
            },
            32,
            1,
        ),
        (
            {
                "model_type": "qwen3",
                "sliding_window": 32,
                "use_sliding_window": True,
                "layer_types": [SLIDING, SLIDING, FULL, SLIDING],
            },
            32,
            3,
        ),
        (
            {"model_type": "mistral", "sliding_window": 32, "layer_types": [FULL] * 4},
            None,
            None,
        ),
        (OSS, 128, 2),
        (OSS | {"num_hidden_layers": 3}, 128, 2),
    ],
)
def test_the_window_is_read(
    tmp_path: Path, config: Config, window: int | None, layers: int | None
) -> None:
    shape = read(tmp_path, BASE | config)
    assert (shape.sliding_window, shape.windowed_layers) == (window, layers)


# -- refusals --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (BASE | {"model_type": "llama", "num_local_experts": 8}, "has experts; use a dense model"),
        (BASE | {"model_type": "llama", "mlp_bias": True}, "biases in its feed-forward only"),
        (BASE | {"model_type": "llama", "mlp_bias": "yes"}, "'mlp_bias' is 'yes'"),
        (BASE | {"model_type": "bamba"}, "unknown family 'bamba'; use one of llama"),
        (BASE | {"model_type": "qwen2", "hidden_size": True}, "'hidden_size' is True"),
        (
            {k: v for k, v in BASE.items() if k != "num_key_value_heads"} | {"model_type": "qwen2"},
            "lacks 'num_key_value_heads'",
        ),
        (QWEN | {"model_type": "qwen3_moe", "mlp_only_layers": [0]}, "'mlp_only_layers' is"),
        (
            QWEN | {"model_type": "qwen3_moe", "decoder_sparse_step": 2},
            "'decoder_sparse_step' is 2",
        ),
        (QWEN | {"model_type": "qwen2_moe"}, "lacks 'shared_expert_intermediate_size'"),
        (QWEN | {"model_type": "qwen3_moe", "num_experts_per_tok": 9}, "do not fit"),
        (QWEN | {"model_type": "qwen3_moe", "num_experts": 1}, "'num_experts' is 1"),
        (
            QWEN
            | {
                "model_type": "qwen2_moe",
                "shared_expert_intermediate_size": 48,
                "sliding_window": 32,
                "use_sliding_window": True,
            },
            "sliding window without layer_types",
        ),
        (DEEPSEEK | {"moe_layer_freq": 2}, "'moe_layer_freq' is 2"),
        (DEEPSEEK | {"first_k_dense_replace": 4}, "do not fit"),
        (DEEPSEEK | {"kv_lora_rank": 0}, "'kv_lora_rank' is 0"),
        (DEEPSEEK | {"mlp_bias": True}, "biases in its feed-forward only"),
        (DEEPSEEK | {"n_shared_experts": 1.5}, "'n_shared_experts' is 1.5"),
        (OSS | {"attention_bias": False}, "biases in its experts only"),
        (OSS | {"layer_types": [SLIDING] * 3}, "layer_types with 3 entries"),
        (OSS | {"layer_types": [SLIDING, "linear_attention"] * 2}, "with 'linear_attention'"),
        (OSS | {"sliding_window": "all"}, "'sliding_window' is 'all'"),
    ],
)
def test_what_cannot_be_counted_is_refused(tmp_path: Path, config: Config, said: str) -> None:
    with pytest.raises(Refusal) as caught:
        read(tmp_path, config)
    assert said in str(caught.value)
    assert caught.value.problem.startswith("'config.json' ")
