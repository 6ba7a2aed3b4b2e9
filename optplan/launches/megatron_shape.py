"""The network in the options of Megatron, and the defaults that it takes in silence."""

from __future__ import annotations

import re

from optplan.launches.megatron_options import Given
from optplan.launches.reading import Reading

TOKENIZERS = {
    "gpt2bpetokenizer": 50257,
    "llama2tokenizer": 32000,
}
"""
Entries of vocabularies that a tokenizer names: GPT-2 (its paper, section 2.2: 50,257) and
Llama 2's (arXiv 2307.09288, section 2.2: 32k).
"""

USUAL_VOCABULARY = 50257
"""What is taken where nothing is known, and said."""

MOST_PATTERN = 10_000
"""Layers that a pattern may describe."""


def read_shape(reading: Reading, latent: bool = True) -> None:
    """
    State the architecture.

    Parameters
    ----------
    latent
        Whether latent attention is read by Megatron Core's own options.
    """
    layers = reading.count("layers", "num_layers", "decoder_num_layers", "encoder_num_layers")
    hidden = reading.count("hidden", "hidden_size")
    heads = reading.count("heads", "num_attention_heads")
    gated = reading.on("swiglu", "quick_geglu", "geglu")
    if gated:
        reading.state("gated", True, gated, literal=False)
    else:
        reading.assume("gated", False, "no --swiglu: two matrices")
    ffn = _ffn(reading, hidden, bool(gated))
    _heads(reading, heads, hidden)
    _vocabulary(reading)
    _ends(reading)
    _details(reading)
    if latent:
        _latent(reading)
    _experts(reading, layers, ffn)
    _windows(reading, layers)
    mtp = reading.find("mtp_num_layers")
    if mtp is not None:
        reading.state("mtp", reading.whole(mtp, 0), mtp)
    else:
        reading.assume("mtp", 0, "no --mtp-num-layers")


def _ffn(reading: Reading, hidden: int, gated: bool) -> int:
    """State the width of the feed-forward layer."""
    # megatron/training/arguments.py: 4 h, or two thirds of it in whole 64s where it is gated.
    default = int(4 * hidden * 2 / 3 / 64) * 64 if gated else 4 * hidden
    why = "no --ffn-hidden-size: " + ("4 h * 2/3 in whole 64s" if gated else "4 h")
    return reading.count("ffn", "ffn_hidden_size", default=default or None, why=why)


def _heads(reading: Reading, heads: int, hidden: int) -> None:
    """State key heads and the width of a head."""
    groups, switch = reading.find("num_query_groups"), reading.on("group_query_attention")
    if switch and groups:
        reading.state("kv_heads", reading.whole(groups), groups)
    elif switch:
        # --num-query-groups is 1 unless given (megatron/training/arguments.py).
        reading.assume("kv_heads", 1, "--group-query-attention without --num-query-groups: 1")
    elif heads:
        reading.assume("kv_heads", heads, "no --group-query-attention: one for every head")
        count = reading.whole(groups) if groups and reading.options.kind != "log" else None
        if groups and count not in (None, 1, heads):
            reading.remark(
                "megatron.query-groups-ignored",
                "error",
                f"--num-query-groups {count} without --group-query-attention is ignored: all "
                f"{heads} heads get keys and values of their own",
                "add --group-query-attention",
                groups,
            )
    if reading.options.has("kv_channels"):
        reading.count("head_dim", "kv_channels")
    elif heads and hidden % heads == 0:
        reading.assume("head_dim", hidden // heads, "no --kv-channels: hidden / heads")


def _vocabulary(reading: Reading) -> None:
    """State the entries of the vocabulary; Megatron pads them to a multiple of 128 tp by itself."""
    found = reading.find("vocab_size")
    if found is None:
        found = reading.find("padded_vocab_size")
    reading.find("padded_vocab_size", "make_vocab_size_divisible_by")
    if found is not None and not (found.words and found.words[0].unknown):
        reading.state("vocabulary", reading.whole(found), found)
        return
    kind = reading.text(reading.find("tokenizer_type")) or ""
    known = TOKENIZERS.get(kind.lower())
    if known:
        reading.assume("vocabulary", known, f"as {kind} has it")


def _ends(reading: Reading) -> None:
    """State embedding, positions and head."""
    untied = reading.on("untie_embeddings_and_output_weights")
    if untied:
        reading.state("tied_embeddings", False, untied, literal=False)
    else:
        reading.assume("tied_embeddings", True, "no --untie-embeddings-and-output-weights")
    kind, rotary = (
        reading.find("position_embedding_type"),
        reading.on("use_rotary_position_embeddings"),
    )
    most = reading.find("max_position_embeddings")
    rows = reading.whole(most)
    word = reading.text(kind) or "learned_absolute"
    if rotary or word != "learned_absolute":
        given = rotary or kind
        if given is not None:
            reading.state("learned_positions", 0, given, literal=False)
    elif most is not None and rows:
        reading.state("learned_positions", rows, most)
    sequence = reading.options.given.get("seq_length")
    if most is not None and rows and sequence and sequence.words:
        text = sequence.words[0].text
        if text.isdigit() and len(text) < 10 and int(text) > rows:
            reading.remark(
                "megatron.positions",
                "error",
                f"--seq-length {text} is longer than --max-position-embeddings {rows}; Megatron "
                "refuses it (megatron/training/arguments.py)",
                f"write --max-position-embeddings {text}",
                most,
            )


def _details(reading: Reading) -> None:
    """State norms, biases, dropout, sinks."""
    norm = reading.find("normalization")
    word = (reading.text(norm) or "LayerNorm").lower()
    if norm is not None:
        reading.state("norm", "rmsnorm" if "rms" in word else "layernorm", norm)
    else:
        reading.assume("norm", "layernorm", "no --normalization: LayerNorm")
    plain, keys = reading.on("disable_bias_linear"), reading.on("add_qkv_bias")
    if plain:
        reading.state("biases", "qkv" if keys else "none", keys or plain, literal=False)
    else:
        reading.assume("biases", "all", "no --disable-bias-linear")
    split = reading.on("qk_layernorm")
    if split and not reading.options.has("multi_latent_attention"):
        reading.state("qk_norm", True, split, literal=False)
    else:
        reading.assume("qk_norm", False, "no --qk-layernorm")
    dropped = [reading.find("attention_dropout"), reading.find("hidden_dropout")]
    shares = [0.1 if one is None else reading.number(one) for one in dropped]
    given = next((one for one in dropped if one is not None), None)
    if given is not None:
        reading.state("dropout", any(shares), given, literal=False)
    else:
        reading.assume("dropout", True, "no --attention-dropout, --hidden-dropout: 0.1")
    sink = reading.find("softmax_type")
    if reading.text(sink) == "learnable" and sink is not None:
        reading.state("sinks", True, sink, literal=False)
    else:
        reading.assume("sinks", False, "no --softmax-type learnable")


def _latent(reading: Reading) -> None:
    """State latent attention."""
    switch = reading.on("multi_latent_attention")
    names = ("q_lora_rank", "kv_lora_rank", "qk_head_dim", "qk_pos_emb_head_dim", "v_head_dim")
    found = {name: reading.find(name) for name in names}
    if not switch:
        return
    # Defaults of MLATransformerConfig (megatron/core/transformer/transformer_config.py).
    usual = {"kv_lora_rank": 32, "qk_head_dim": 128, "qk_pos_emb_head_dim": 64, "v_head_dim": 128}
    for name, field in zip(names, ("q_rank", "kv_rank", "nope", "rope", "value"), strict=True):
        given = found[name]
        if given is not None:
            reading.state(f"latent.{field}", reading.whole(given, 0), given)
        else:
            value = usual.get(name, 0)
            reading.assume(f"latent.{field}", value, f"no --{name.replace('_', '-')}")


def _experts(reading: Reading, layers: int, ffn: int) -> None:
    """State the mixture of experts."""
    number = reading.find("num_experts")
    names = (
        "moe_router_topk",
        "moe_ffn_hidden_size",
        "moe_shared_expert_intermediate_size",
        "moe_layer_freq",
        "moe_router_enable_expert_bias",
        "moe_shared_expert_gate",
        "moe_expert_capacity_factor",
    )
    top, width, shared, often, bias, gate, capacity = (reading.find(name) for name in names)
    count = reading.whole(number, 0)
    if number is None or not count or count < 2:
        return
    reading.state("experts.count", count, number)
    if top is not None:
        reading.state("experts.per_token", reading.whole(top), top)
    else:
        reading.assume("experts.per_token", 2, "no --moe-router-topk: 2")
    if width is not None:
        reading.state("experts.ffn", reading.whole(width), width)
    elif ffn:
        reading.assume("experts.ffn", ffn, "no --moe-ffn-hidden-size: --ffn-hidden-size")
    if shared is not None:
        reading.state("experts.shared_ffn", reading.whole(shared, 0), shared)
    for name, one in (("router_bias", bias), ("shared_gate", gate)):
        if one is not None and reading.on(one.name):
            reading.state(f"experts.{name}", True, one, literal=False)
    factor = reading.number(capacity)
    if capacity is not None and factor and factor > 0:
        reading.state("capacity_factor", factor, capacity)
    if often is not None:
        _frequency(reading, often, layers)


def _frequency(reading: Reading, given: Given, layers: int) -> None:
    """State how many leading layers are dense."""
    pattern = layer_pattern(" ".join(word.text for word in given.words), layers)
    if pattern is None:
        reading.refuse(
            given,
            f"'{given.written}' is no pattern of layers",
            'write 1, or a list such as "([0]*1+[1]*60)"',
        )
        return
    dense = pattern.index(True) if True in pattern else len(pattern)
    if not all(pattern[dense:]) or dense >= len(pattern):
        reading.refuse(
            given,
            "dense layers behind layers with experts, which have no price",
            "name a launch whose dense layers all lead",
        )
        return
    if layers and len(pattern) != layers:
        reading.remark(
            "megatron.layer-pattern",
            "error",
            f"{given.flag} describes {len(pattern)} layers, --num-layers is {layers}; Megatron "
            "refuses it",
            f'write "([0]*{dense}+[1]*{max(0, layers - dense)})"',
            given,
        )
    reading.state("experts.leading_dense", dense, given, literal=False)


def _windows(reading: Reading, layers: int) -> None:
    """State a sliding window and the layers that have it."""
    size, often = reading.find("window_size"), reading.find("window_attn_skip_freq")
    if size is None or not size.words:
        return
    found = re.match(r"\D*(\d{1,8})", " ".join(word.text for word in size.words))
    if not found or int(found[1]) < 1:
        return
    reading.state("sliding_window", int(found[1]), size, literal=False)
    if often is None or not layers:
        return
    text = " ".join(word.text for word in often.words)
    if text.isdigit() and 0 < int(text) <= layers:
        # Every n-th layer looks at everything (megatron/core/transformer/utils.py).
        reading.state("windowed_layers", layers - layers // int(text), often, literal=False)
        return
    pattern = layer_pattern(text, layers)
    if pattern is not None:
        reading.state("windowed_layers", sum(pattern), often, literal=False)


def layer_pattern(text: str, layers: int) -> list[bool] | None:
    """
    Read which layers have something: ``1``, ``2`` (every second), ``([0]*3+[1]*58)``.

    Returns
    -------
    list[bool] or None
        One flag a layer, or None for what cannot be read.
    """
    text = re.sub(r"[\s'\"]", "", text)
    if re.fullmatch(r"\d{1,6}", text):
        step = int(text)
        return [i % step == 0 for i in range(layers)] if step else None
    flags: list[bool] = []
    for part in text.removeprefix("(").removesuffix(")").split("+"):
        found = re.fullmatch(r"\(?\[([01](?:,[01])*)\]\)?(?:\*(\d{1,5}))?", part)
        if found is None:
            return None
        flags += [one == "1" for one in found[1].split(",")] * int(found[2] or 1)
        if len(flags) > MOST_PATTERN:
            return None
    return flags
