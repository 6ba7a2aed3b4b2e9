"""Keys of NeMo and Megatron-Bridge, and the options of Megatron that they stand for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from optplan.launches.documents import Entry
from optplan.launches.megatron_options import Given, Options
from optplan.launches.shell import Word

PREFIXES = (
    "trainer.strategy.ddp.",
    "trainer.strategy.",
    "trainer.plugins.",
    "trainer.",
    "model.config.",
    "model.data.",
    "model.optim.",
    "model.",
    "optim.config.",
    "optim.",
    "optimizer.",
    "ddp.",
    "train.",
    "data.",
    "dataset.",
    "comm_overlap.",
    "dist.",
    "log.",
)
"""
What stands in front of a name: NeMo 2 (trainer.strategy, model.config, data, optim.config), NeMo 1
(trainer, model) and Megatron-Bridge (model, train, ddp, optimizer, dataset, comm_overlap).
"""

SAME = frozenset(
    [
        "tensor_model_parallel_size",
        "pipeline_model_parallel_size",
        "context_parallel_size",
        "expert_model_parallel_size",
        "expert_tensor_parallel_size",
        "sequence_parallel",
        "virtual_pipeline_model_parallel_size",
        "pipeline_model_parallel_layout",
        "use_tp_pp_dp_mapping",
        "account_for_embedding_in_pipeline_split",
        "account_for_loss_in_pipeline_split",
        "cp_comm_type",
        "use_distributed_optimizer",
        "data_parallel_sharding_strategy",
        "use_custom_fsdp",
        "use_megatron_fsdp",
        "use_torch_fsdp2",
        "num_distributed_optimizer_instances",
        "optimizer_cpu_offload",
        "optimizer_offload_fraction",
        "use_precision_aware_optimizer",
        "micro_batch_size",
        "global_batch_size",
        "seq_length",
        "num_layers",
        "hidden_size",
        "ffn_hidden_size",
        "num_attention_heads",
        "num_query_groups",
        "kv_channels",
        "normalization",
        "add_qkv_bias",
        "qk_layernorm",
        "hidden_dropout",
        "attention_dropout",
        "position_embedding_type",
        "vocab_size",
        "moe_router_topk",
        "moe_ffn_hidden_size",
        "moe_shared_expert_intermediate_size",
        "moe_layer_freq",
        "moe_router_enable_expert_bias",
        "moe_shared_expert_gate",
        "moe_expert_capacity_factor",
        "moe_grouped_gemm",
        "moe_token_dispatcher_type",
        "multi_latent_attention",
        "q_lora_rank",
        "kv_lora_rank",
        "qk_head_dim",
        "qk_pos_emb_head_dim",
        "v_head_dim",
        "mtp_num_layers",
        "softmax_type",
        "window_size",
        "window_attn_skip_freq",
        "recompute_granularity",
        "recompute_method",
        "recompute_num_layers",
        "recompute_modules",
        "attention_backend",
        "overlap_grad_reduce",
        "overlap_param_gather",
        "tp_comm_overlap",
        "overlap_moe_expert_parallel_comm",
        "max_position_embeddings",
        "rampup_batch_size",
    ]
)
"""Names that are Megatron's own, megatron/core/transformer/transformer_config.py and others."""

OTHER = {
    "encoder_seq_length": "seq_length",
    "sequence_length": "seq_length",
    "num_moe_experts": "num_experts",
    "num_layers_in_first_pipeline_stage": "decoder_first_pipeline_num_layers",
    "num_layers_in_last_pipeline_stage": "decoder_last_pipeline_num_layers",
    "first_pipeline_num_layers": "decoder_first_pipeline_num_layers",
    "last_pipeline_num_layers": "decoder_last_pipeline_num_layers",
    "activations_checkpoint_granularity": "recompute_granularity",
    "activations_checkpoint_method": "recompute_method",
    "activations_checkpoint_num_layers": "recompute_num_layers",
    "override_vocab_size": "vocab_size",
    "ub_tp_comm_overlap": "tp_comm_overlap",
    "use_flash_attention": "use_flash_attn",
    "num_nodes": "nnodes",
    "num_gpus_per_node": "nproc_per_node",
    "devices": "nproc_per_node",
}
"""Names of NeMo's own, NVIDIA/NeMo, megatron_gpt_config.yaml of 1.x and packages 2.0 to 2.4."""

SWITCHES = {
    "gated_linear_unit": ("swiglu", True),
    "add_bias_linear": ("disable_bias_linear", False),
    "bias": ("disable_bias_linear", False),
    "share_embeddings_and_output_weights": ("untie_embeddings_and_output_weights", False),
    "overlap_p2p_comm": ("no_overlap_p2p_communication", False),
}
"""Names whose value decides whether an option of Megatron is given, and the value that gives it."""

_TRUE, _NO = ("true", "1", "yes", "on"), ("null", "none", "~", "")
_PRECISION = (("bf16", "bf16"), ("16", "fp16"), ("fp16", "fp16"), ("half", "fp16"))


def short_name(path: str) -> str:
    """Return a key without what stands in front of its name."""
    path = path.lstrip("+~")
    for prefix in PREFIXES:
        if path.startswith(prefix):
            return path.removeprefix(prefix)
    return path


def option_of(entry: Entry) -> Given | None:
    """Return the option of Megatron that an entry stands for; None where there is none."""
    name = short_name(entry.path)
    value = entry.value
    text = str(value).strip() if not isinstance(value, bool) else str(value).lower()
    if value is None or text.lower() in _NO or "." in name:
        return None
    if name in SWITCHES:
        ours, when = SWITCHES[name]
        return _given(ours, entry, "") if (text.lower() in _TRUE) == when else None
    if name == "activation":
        # NeMo 1: swiglu, fast-swiglu, geglu and their like have three matrices.
        return _given("swiglu", entry, "") if "glu" in text.lower() else None
    if name in ("precision", "mixed_precision"):
        said = text.lower()
        found = next((ours for sign, ours in _PRECISION if sign in said), None)
        return _given(found, entry, "") if found else None
    if name == "fp8":
        return _given("fp8_format", entry, text) if text.lower() not in ("false", "0") else None
    if name == "name" and "optim" in entry.path and "distributed" in text:
        return _given("use_distributed_optimizer", entry, "")
    if name == "fsdp" and text == "megatron":
        return _given("use_custom_fsdp", entry, "")
    ours = OTHER.get(name, name if name in SAME else "")
    if not ours:
        return None
    if text.lower() == "false" and ours not in ("moe_layer_freq",):
        return None
    return _given(ours, entry, "" if text.lower() == "true" else text)


def _given(name: str, entry: Entry, text: str) -> Given:
    """Make an option of an entry."""
    words = (Word(text, entry.line, entry.span, _unknown(text)),) if text else ()
    return Given(name, entry.path, words, entry.line)


def _unknown(text: str) -> tuple[str, ...]:
    """Name the variables that a value depends on."""
    return (text.strip("${}"),) if text.startswith("${") else ()


def options_of(entries: Iterable[Entry], environment: Mapping[str, Word]) -> Options:
    """
    Return the entries of a launch as the options that Megatron gets.

    The last entry of a name counts, and one that switches an option off takes it away.
    """
    given: dict[str, Given] = {}
    launcher: dict[str, Given] = {}
    for entry in entries:
        name = short_name(entry.path)
        if name in SWITCHES:
            given.pop(SWITCHES[name][0], None)
        found = option_of(entry)
        if found is None:
            continue
        place = launcher if found.name in ("nnodes", "nproc_per_node") else given
        place.pop(found.name, None)
        place[found.name] = found
    _together(given)
    return Options("script", given, launcher, environment)


def _together(given: dict[str, Given]) -> None:
    """Add what Megatron asks for besides."""
    groups = given.get("num_query_groups")
    if groups is not None:
        given["group_query_attention"] = Given(
            "group_query_attention", groups.flag, (), groups.line
        )
    length, kind = given.get("seq_length"), given.get("position_embedding_type")
    learned = kind is None or (kind.words and kind.words[0].text == "learned_absolute")
    if length is not None and learned and kind is not None:
        # GPTConfig.configure_model: as many positions as seq_length
        # (nemo/collections/llm/gpt/model/base.py, package 2.4.0).
        name = "max_position_embeddings"
        given.setdefault(name, Given(name, length.flag, length.words, length.line))
