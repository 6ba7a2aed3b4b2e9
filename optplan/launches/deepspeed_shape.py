"""The network and number formats in the options of Megatron-DeepSpeed."""

from __future__ import annotations

from collections.abc import Callable

from optplan.launches.documents import Entry
from optplan.launches.notes import Notes

Find = Callable[[str], Entry | None]


def network(notes: Notes, flag: Find) -> None:
    """
    State the network, with the defaults of deepspeedai/Megatron-DeepSpeed, megatron/arguments.py.

    Parameters
    ----------
    flag
        Finds an option by its name with underscores.
    """
    sizes: dict[str, int] = {}
    for ours, name in (
        ("layers", "num_layers"),
        ("hidden", "hidden_size"),
        ("heads", "num_attention_heads"),
        ("kv_heads", "num_key_value_heads"),
        ("head_dim", "kv_channels"),
        ("vocabulary", "vocab_size"),
        ("sequence_length", "seq_length"),
    ):
        entry = flag(name)
        value = notes.whole(entry)
        if entry is not None and value is not None:
            notes.state(ours, value, entry)
            sizes[ours] = value
    gated = _switch(notes, flag, "gated", True, "swiglu")
    ffn = flag("ffn_hidden_size")
    width = notes.whole(ffn)
    if ffn is not None:
        notes.state("ffn", width, ffn)
    elif "hidden" in sizes:
        hidden = sizes["hidden"]
        width = int(4 * hidden * 2 / 3 / 64) * 64 if gated else 4 * hidden
        notes.assume("ffn", width, "no --ffn-hidden-size")
    heads = sizes.get("heads")
    if heads and "kv_heads" not in sizes:
        notes.assume("kv_heads", heads, "no --num-key-value-heads")
    if heads and "hidden" in sizes and "head_dim" not in sizes and sizes["hidden"] % heads == 0:
        notes.assume("head_dim", sizes["hidden"] // heads, "no --kv-channels")
    _rest(notes, flag)
    if width:
        _experts(notes, flag, width)


def _switch(notes: Notes, flag: Find, ours: str, on: bool | str | int, name: str) -> bool:
    """State what a switch means where it is given; its opposite is assumed where it is not."""
    entry = flag(name)
    if entry is not None:
        notes.state(ours, on, entry, literal=False)
        return True
    if isinstance(on, bool):
        notes.assume(ours, not on, f"no --{name.replace('_', '-')}")
    return False


def _rest(notes: Notes, flag: Find) -> None:
    """State norms, biases, positions, dropout, ends and attention."""
    norm = flag("normalization")
    word = notes.word(norm, ("layernorm", "rmsnorm"))
    if norm is not None:
        notes.state("norm", word, norm)
    else:
        notes.assume("norm", "layernorm", "no --normalization")
    if not _switch(notes, flag, "biases", "none", "disable_bias_linear"):
        notes.assume("biases", "all", "no --disable-bias-linear")
    _switch(notes, flag, "tied_embeddings", False, "untie_embeddings_and_output_weights")
    most, none = flag("max_position_embeddings"), flag("no_position_embedding")
    rotary = flag("use_rotary_position_embeddings") or none
    if rotary is not None:
        notes.state("learned_positions", 0, rotary, literal=False)
    elif most is not None:
        notes.state("learned_positions", notes.whole(most), most)
    shares = [flag("attention_dropout"), flag("hidden_dropout")]
    given = [one for one in shares if one is not None]
    on = any(one is None or _number(notes, one) > 0 for one in shares)
    if given:
        notes.state("dropout", on, given[0], literal=False)
    else:
        notes.assume("dropout", True, "no --attention-dropout, --hidden-dropout: 0.1")
    names = ("use_flash_attn", *(f"use_flash_attn_{x}" for x in ("v1", "v2", "triton", "builder")))
    fused = [entry for name in names if (entry := flag(name)) is not None]
    if fused:
        notes.state("flash_attention", True, fused[0], literal=False)
    else:
        notes.assume("flash_attention", False, "no --use-flash-attn-v2")


def _number(notes: Notes, entry: Entry) -> float:
    """Return an option as a number; a fault where it is none."""
    try:
        return float(str(entry.value))
    except ValueError:
        notes.fault(entry, f"'{str(entry.value)[:60]}' is no number", "write a number such as 0.1")
        return 0.0


def _experts(notes: Notes, flag: Find, width: int) -> None:
    """State the mixture of experts."""
    count = flag("num_experts")
    number = notes.whole(count)
    top, interval, kind = flag("topk"), flag("expert_interval"), flag("mlp_type")
    factor, whole = flag("moe_train_capacity_factor"), flag("disable_moe_token_dropping")
    for unused in ("moe_eval_capacity_factor", "moe_min_capacity", "create_moe_param_group"):
        flag(unused)
    if count is None or number is None or number < 2:
        return
    notes.state("experts.count", number, count)
    if top is not None:
        notes.state("experts.per_token", notes.whole(top), top)
    else:
        notes.assume("experts.per_token", 1, "no --topk")
    notes.assume("experts.ffn", width, "experts are as wide as the feed-forward layer")
    if whole is None:
        if factor is not None:
            notes.state("capacity_factor", _number(notes, factor), factor)
        else:
            notes.assume("capacity_factor", 1.0, "no --moe-train-capacity-factor")
    often = notes.whole(interval) if interval else 2
    if often != 1:
        notes.remark(
            "deepspeed.expert-interval",
            "warning",
            interval.line if interval else count.line,
            f"experts are in every {often}. layer only (--expert-interval, 2 unless given); the "
            "price has them in every layer",
            "add --expert-interval 1 if every layer shall have them",
        )
    if kind is not None and str(kind.value) == "residual":
        notes.state("experts.shared_ffn", width, kind, literal=False)


def precision(notes: Notes, flag: Find, own: Find) -> None:
    """State the number format; options and configuration must agree."""
    eight = flag("fp8_hybrid") or flag("fp8_e4m3")
    flag("transformer_impl")
    said = [(word, entry) for word in ("bf16", "fp16") if (entry := flag(word)) is not None]
    inside = []
    for word, path in (("bf16", "bf16"), ("bf16", "bfloat16"), ("fp16", "fp16")):
        entry = own(f"{path}.enabled")
        if entry is not None and notes.flag(entry):
            inside.append((word, entry))
    found = said or inside
    if eight is not None:
        notes.state("precision", "fp8", eight, literal=False)
    elif found:
        notes.state("precision", found[0][0], found[0][1], literal=False)
    else:
        notes.assume("precision", "fp32", "neither --bf16 nor --fp16")
    words = {word for word, _ in (*said, *inside)}
    if len(words) > 1:
        entry = (said or inside)[-1][1]
        notes.remark(
            "deepspeed.precision",
            "error",
            entry.line,
            f"{' and '.join(sorted(words))} are both asked for, by options and configuration",
            "ask for one in both",
        )
