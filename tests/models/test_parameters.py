"""Parameters per rank: whole sums, shards, copies, experts, prediction modules, adapters."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from optplan.models.cost.parameters import (
    active_parameters,
    adapter_parameters,
    attention_parameters,
    back_parameters,
    dense_ffn_parameters,
    expert_parameters,
    front_parameters,
    key_width,
    layer_parameters,
    moe_adapter_parameters,
    moe_parameters,
    mtp_expert_parameters,
    mtp_parameters,
    norm_parameters,
    stage_parameters,
    total_parameters,
)
from optplan.models.spec.workload import Adapters, Architecture, Experts, Latent, Workload

H, HEADS, KEYS, WIDTH, FFN, VOCABULARY = 64, 8, 2, 16, 96, 1000


def shape(**changes: Any) -> Architecture:
    """A small network with grouped heads and a head width of its own."""
    sizes: dict[str, Any] = {
        "layers": 6,
        "hidden": H,
        "heads": HEADS,
        "kv_heads": KEYS,
        "head_dim": WIDTH,
        "ffn": FFN,
        "vocabulary": VOCABULARY,
    }
    return Architecture.model_validate(sizes | changes)


EXPERTS = Experts(count=8, per_token=2, ffn=32, shared_ffn=48, leading_dense=1)
LATENT = Latent(q_rank=24, kv_rank=16, nope=8, rope=4, value=12)


def workload(architecture: Architecture, rank: int = 4, layers: str = "all") -> Workload:
    lora = Adapters.model_validate({"rank": rank, "layers": layers})
    return Workload(architecture=architecture, sequence_length=128, lora=lora)


# -- attention -------------------------------------------------------------------------------------


def test_attention_is_divided_and_key_heads_are_copied_beyond_their_number() -> None:
    plain = shape()
    q, k = H * HEADS * WIDTH, H * KEYS * WIDTH
    assert attention_parameters(plain) == 2 * q + 2 * k
    assert attention_parameters(plain, 2) == (2 * q + 2 * k) // 2
    # One key and one value head of two is the least a rank can hold.
    assert attention_parameters(plain, 4) == 2 * q // 4 + k
    assert attention_parameters(plain, 8) == 2 * q // 8 + k
    assert key_width(plain, 8) == WIDTH


def test_biases_norms_and_sinks_lie_where_their_layers_do() -> None:
    q, k, bare = HEADS * WIDTH, KEYS * WIDTH, attention_parameters
    assert bare(shape(biases="qkv"), 2) - bare(shape(), 2) == (q + 2 * k) // 2
    assert bare(shape(biases="attention"), 2) - bare(shape(biases="qkv"), 2) == H
    assert bare(shape(biases="all"), 2) == bare(shape(biases="attention"), 2)
    assert bare(shape(qk_norm=True), 2) - bare(shape(), 2) == 2 * WIDTH
    assert bare(shape(sinks=True), 2) - bare(shape(), 2) == HEADS // 2
    ffn = dense_ffn_parameters
    assert ffn(shape(biases="all"), 2) - ffn(shape(), 2) == 2 * FFN // 2 + H
    assert ffn(shape(biases="all", gated=False)) == 2 * H * FFN + FFN + H


def test_latent_attention_divides_what_expands_and_repeats_what_compresses() -> None:
    latent = shape(latent=LATENT, kv_heads=None)
    whole = H * 24 + 24 + H * (16 + 4) + 16
    divided = 24 * HEADS * 12 + 16 * HEADS * (8 + 12) + HEADS * 12 * H
    assert attention_parameters(latent) == whole + divided
    assert attention_parameters(latent, 4) == whole + divided // 4
    straight = shape(latent=LATENT.model_copy(update={"q_rank": 0}), kv_heads=None)
    gone = H * 24 + 24 + 24 * HEADS * 12
    assert attention_parameters(straight) == whole + divided - gone + H * HEADS * 12
    biased = attention_parameters(latent.model_copy(update={"biases": "attention"}), 4)
    assert biased - attention_parameters(latent, 4) == 24 + 16 + 4 + H


# -- blocks ----------------------------------------------------------------------------------------


def test_a_block_is_its_parts() -> None:
    for dense in (shape(), shape(biases="all", norm="layernorm"), shape(latent=LATENT)):
        parts = attention_parameters(dense, 2) + dense_ffn_parameters(dense, 2)
        assert layer_parameters(dense, 2) == parts + norm_parameters(dense)
    assert norm_parameters(shape(norm="layernorm")) == 4 * H


def test_a_block_with_experts_is_its_parts() -> None:
    sparse = shape(experts=EXPERTS)
    around = attention_parameters(sparse, 2) + norm_parameters(sparse)
    assert moe_parameters(sparse, 2) == around + 8 * H + 3 * H * 48 // 2
    extra = EXPERTS.model_copy(update={"router_bias": True, "shared_gate": True})
    assert moe_parameters(shape(experts=extra), 2) == moe_parameters(sparse, 2) + 8 + H


def test_experts_are_dealt_out_whole_and_then_divided() -> None:
    sparse = shape(experts=EXPERTS)
    assert expert_parameters(sparse) == 8 * 3 * H * 32
    assert expert_parameters(sparse, ep=4) == 2 * 3 * H * 32
    assert expert_parameters(sparse, ep=3) == 3 * 3 * H * 32
    assert expert_parameters(sparse, ep=4, etp=2) == 2 * 3 * H * 16
    biased = shape(experts=EXPERTS, biases="all")
    assert expert_parameters(biased, ep=4, etp=2) == 2 * (3 * H * 16 + 32 + H)
    with pytest.raises(ValueError, match="no experts"):
        expert_parameters(shape())


# -- ends ------------------------------------------------------------------------------------------


def test_the_ends_share_a_table_only_on_one_device() -> None:
    table = VOCABULARY * H
    assert front_parameters(shape(learned_positions=10), 2) == table // 2 + 10 * H
    assert back_parameters(shape(), 2, alone=False) == table // 2 + H
    assert back_parameters(shape(), 2, alone=True) == table // 2 + H
    tied = shape(tied_embeddings=True)
    assert back_parameters(tied, 2, alone=True) == H
    assert back_parameters(tied, 2, alone=False) == table // 2 + H


def test_prediction_modules_are_blocks_of_the_last_kind_with_a_projection() -> None:
    table = VOCABULARY * H
    dense, sparse = shape(mtp=2), shape(mtp=2, experts=EXPERTS)
    beside = 2 * H * H // 2 + 3 * H
    assert mtp_parameters(dense, 2) == 2 * (layer_parameters(dense, 2) + beside)
    assert mtp_parameters(sparse, 2) == 2 * (moe_parameters(sparse, 2) + beside)
    assert mtp_expert_parameters(sparse, 4, 2) == 2 * expert_parameters(sparse, 4, 2)
    assert mtp_expert_parameters(dense, 4, 2) == 0
    # They read the embedding: a last stage of its own needs a copy of it, tied or not.
    plain = back_parameters(shape(), 2) + mtp_parameters(dense, 2)
    assert back_parameters(dense, 2, alone=True) == plain
    assert back_parameters(dense, 2, alone=False) == plain + table // 2
    tied = shape(mtp=2, tied_embeddings=True)
    assert back_parameters(tied, 2, alone=False) == plain


# -- whole -----------------------------------------------------------------------------------------


def test_totals_are_the_sums_of_the_parts() -> None:
    sparse = shape(experts=EXPERTS, mtp=1, latent=LATENT)
    blocks = layer_parameters(sparse) + 5 * (moe_parameters(sparse) + expert_parameters(sparse))
    ends = front_parameters(sparse) + back_parameters(sparse) + mtp_expert_parameters(sparse)
    assert total_parameters(sparse) == blocks + ends
    idle = 5 * 6 * 3 * H * 32 + mtp_parameters(sparse) + mtp_expert_parameters(sparse)
    assert active_parameters(sparse) == total_parameters(sparse) - idle
    assert active_parameters(shape(mtp=1)) == total_parameters(shape())


def test_stages_of_plain_blocks_add_up() -> None:
    for plain in (shape(), shape(tied_embeddings=True, norm="layernorm", biases="all")):
        copied = VOCABULARY * H if plain.tied_embeddings else 0
        first = stage_parameters(plain, 2, first=True, last=False)
        last = stage_parameters(plain, 4, first=False, last=True)
        assert first + last == total_parameters(plain) + copied


def test_arrays_are_counted_element_by_element() -> None:
    sparse = shape(experts=EXPERTS, mtp=1, biases="all", sinks=True, qk_norm=True)
    tp = np.array([1, 2, 4, 8])
    for count in (attention_parameters, layer_parameters, moe_parameters, front_parameters):
        assert list(np.asarray(count(sparse, tp))) == [count(sparse, int(t)) for t in tp]
    alone = np.array([True, False, True, False])
    for tied in (sparse, shape(tied_embeddings=True), shape(mtp=1)):
        many = np.asarray(back_parameters(tied, tp, alone))
        one_by_one = zip(tp, alone, strict=True)
        assert list(many) == [back_parameters(tied, int(t), bool(a)) for t, a in one_by_one]
    ep, etp = np.array([1, 3, 4, 8]), np.array([1, 2, 1, 4])
    pairs = list(zip(ep, etp, strict=True))
    many = np.asarray(expert_parameters(sparse, ep, etp))
    assert list(many) == [expert_parameters(sparse, int(e), int(t)) for e, t in pairs]
    for work in (workload(sparse), workload(shape(experts=EXPERTS, latent=LATENT))):
        for adapters in (adapter_parameters, moe_adapter_parameters):
            many = np.asarray(adapters(work, tp))
            assert list(many) == [adapters(work, int(t)) for t in tp]


# -- adapters --------------------------------------------------------------------------------------


def test_adapters_count_both_matrices_of_every_linear_layer() -> None:
    q, k, r = HEADS * WIDTH, KEYS * WIDTH, 4
    attention = r * ((H + q) + 2 * (H + k) + (q + H))
    ffn = r * (2 * (H + FFN) + (FFN + H))
    assert adapter_parameters(workload(shape())) == attention + ffn
    assert adapter_parameters(workload(shape(), layers="attention")) == attention
    # Of each pair the half at the divided side is divided.
    divided = attention + ffn - r * (2 * q + 2 * k + 3 * FFN) // 2
    assert adapter_parameters(workload(shape()), 2) == divided
    none = Workload(architecture=shape(), sequence_length=128)
    assert adapter_parameters(none) == 0


def test_adapters_of_a_block_with_experts_are_on_attention_and_shared_experts() -> None:
    sparse, r = shape(experts=EXPERTS), 4
    attention = moe_adapter_parameters(workload(sparse, layers="attention"))
    assert moe_adapter_parameters(workload(sparse)) == attention + r * 3 * (H + 48)
    routed = shape(experts=EXPERTS.model_copy(update={"shared_ffn": 0}))
    assert moe_adapter_parameters(workload(routed)) == attention


def test_adapters_of_latent_attention_follow_its_matrices() -> None:
    r, q, kv, out = 4, HEADS * 12, HEADS * 20, HEADS * 12
    latent = workload(shape(latent=LATENT), layers="attention")
    pairs = [(H, 24), (24, q), (H, 20), (16, kv), (out, H)]
    assert adapter_parameters(latent) == r * sum(n + m for n, m in pairs)
    assert adapter_parameters(latent, 4) == r * (
        H + 24 + 24 + H + 20 + 16 + H + (q + kv + out) // 4
    )
    straight = workload(shape(latent=LATENT.model_copy(update={"q_rank": 0})), layers="attention")
    pairs = [(H, q), (H, 20), (16, kv), (out, H)]
    assert adapter_parameters(straight) == r * sum(n + m for n, m in pairs)
