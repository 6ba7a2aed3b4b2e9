"""A torchtitan job as a Python module of configurations, the form of version 0.3."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from optplan.launches.torchtitan_shape import OWN
from optplan.models.spec.problem import Problem

CALLS = {
    "training": "TrainingConfig",
    "parallelism": "ParallelismConfig",
    "compile": "CompileConfig",
}
"""Records of a job, torchtitan/config/configs.py of package 0.3.0, by the section they replace."""

NETWORKS = {"llama3": "llama3_network", "qwen3": "qwen3_network"}
"""Functions of a written module that build a network from plain sizes."""


def module(problem: Problem, found: Mapping[str, object], network: Mapping[str, Any]) -> str:
    """
    Write the module; ``job`` in it is the configuration.

    It follows the registries of package 0.3.0, torchtitan/models/*/config_registry.py and
    __init__.py, whose builders of layers it calls.
    """
    model = network["model"]
    fp8 = problem.workload.precision == "fp8"
    calls = {section: {} for section in CALLS}  # type: dict[str, dict[str, object]]
    for path, value in found.items():
        section, _, key = path.partition(".")
        if section in calls:
            calls[section][key] = value
    again = "FullAC.Config()" if found["activation_checkpoint.mode"] == "full" else "None"
    lines = []
    for section, keys in calls.items():
        inner = "".join(f"            {key}={value!r},\n" for key, value in keys.items())
        if section == "training":
            inner += '            steps=int(os.environ["STEPS"]),\n'
        lines.append(f"        {section}={CALLS[section]}(\n{inner}        ),\n")
    made = _own(network) if "call" in network else ""
    flavor = network.get("flavor", OWN)
    converters = (
        ", converters=[Float8LinearConverter.Config(model_compile_enabled=True)]" if fp8 else ""
    )
    imports = (
        "from torchtitan.components.quantization import Float8LinearConverter\n" if fp8 else ""
    )
    return f"""import os

import torchtitan.models.{model} as family
from torchtitan.components.loss import ChunkedLossWrapper, CrossEntropyLoss
from torchtitan.components.optimizer import default_adamw
{imports}from torchtitan.config import CompileConfig, ParallelismConfig, TrainingConfig
from torchtitan.distributed.activation_checkpoint import FullAC
from torchtitan.hf_datasets.text_datasets import HuggingFaceTextDataLoader
from torchtitan.models.common.config_utils import decoder_vocab_size
from torchtitan.trainer import Trainer

{made}
def job():
    model_spec = family.model_registry("{flavor}"{converters})
    return Trainer.Config(
        loss=ChunkedLossWrapper.Config(
            loss_fn=CrossEntropyLoss.Config(global_vocab_size=decoder_vocab_size(model_spec)),
        ),
        hf_assets_path=os.environ["TOKENIZER"],
        model_spec=model_spec,
        optimizer=default_adamw(lr=8e-4),
        dataloader=HuggingFaceTextDataLoader.Config(dataset=os.environ["DATASET"]),
{"".join(lines)}        activation_checkpoint={again},
    )
"""


def _own(network: Mapping[str, Any]) -> str:
    """Write the function that builds a network, and its call with the sizes."""
    model = network["model"]
    arguments = dict(network["arguments"])
    moe = arguments.pop("moe_args", {})
    for name in ("moe_enabled", "num_shared_experts", "load_balance_coeff"):
        arguments.pop(name, None)
    if moe:
        arguments |= {"num_experts": moe["num_experts"], "top_k": moe["top_k"]}
    inner = "".join(f"    {key}={value!r},\n" for key, value in arguments.items())
    text = _LLAMA if model == "llama3" else _QWEN_MOE if moe else _QWEN
    call = NETWORKS[model]
    return f'{text}\n\nfamily.{model}_configs["{OWN}"] = {call}(\n{inner})\n\n'


_LLAMA = """
def llama3_network(
    *, dim, n_layers, n_heads, n_kv_heads, vocab_size, hidden_dim, enable_weight_tying
):
    def build(attn_backend, tp_gemm_backend="default"):
        return family.Llama3Model.Config(
            dim=dim,
            vocab_size=vocab_size,
            enable_weight_tying=enable_weight_tying,
            norm=family.RMSNorm.Config(normalized_shape=dim, param_init=family._NORM_INIT),
            tok_embeddings=family.Embedding.Config(
                num_embeddings=vocab_size,
                embedding_dim=dim,
                param_init=family._EMBEDDING_SKIP_INIT
                if enable_weight_tying
                else family._EMBEDDING_INIT,
            ),
            lm_head=family.Linear.Config(
                in_features=dim,
                out_features=vocab_size,
                param_init=family._output_linear_init(dim),
            ),
            layers=family._build_llama3_layers(
                n_layers=n_layers,
                dim=dim,
                n_heads=n_heads,
                n_kv_heads=n_kv_heads,
                hidden_dim=hidden_dim,
                rope=family.ComplexRoPE.Config(
                    dim=dim // n_heads, max_seq_len=131072, theta=500000, scaling="llama"
                ),
                attn_backend=attn_backend,
                tp_gemm_backend=tp_gemm_backend,
            ),
        )

    return build
"""

_QWEN_TOP = """
        return family.Qwen3Model.Config(
            dim=dim,
            vocab_size=vocab_size,
            enable_weight_tying=enable_weight_tying,
            norm=family._qwen3_norm(dim),
            tok_embeddings=family.Embedding.Config(
                num_embeddings=vocab_size,
                embedding_dim=dim,
                param_init=family._EMBEDDING_SKIP_INIT
                if enable_weight_tying
                else family._EMBEDDING_INIT,
            ),
            lm_head=family.Linear.Config(
                in_features=dim, out_features=vocab_size, param_init=family._LINEAR_INIT
            ),
"""

_QWEN_ROPE = """rope=family.CosSinRoPE.Config(
                    dim=head_dim, max_seq_len=262144, theta=1000000.0
                ),"""

_QWEN = f"""
def qwen3_network(
    *, dim, n_layers, n_heads, n_kv_heads, vocab_size, head_dim, hidden_dim, qk_norm,
    enable_weight_tying
):
    assert qk_norm, "layers of qwen3 have norms of their heads"

    def build(attn_backend):{_QWEN_TOP}            layers=family._build_qwen3_layers(
                n_layers=n_layers,
                dim=dim,
                n_heads=n_heads,
                n_kv_heads=n_kv_heads,
                head_dim=head_dim,
                hidden_dim=hidden_dim,
                attn_backend=attn_backend,
                {_QWEN_ROPE}
            ),
        )

    return build
"""

_QWEN_MOE = f"""
def qwen3_network(
    *, dim, n_layers, n_heads, n_kv_heads, vocab_size, head_dim, hidden_dim, qk_norm,
    enable_weight_tying, moe_inter_dim, num_experts, top_k
):
    assert qk_norm, "layers of qwen3 have norms of their heads"

    # No layer is without experts, so that hidden_dim is told for the record alone.
    def build(attn_backend, moe_comm_backend="standard"):{_QWEN_TOP}            \
layers=family._build_qwen3_moe_layers(
                n_layers=n_layers,
                dim=dim,
                n_heads=n_heads,
                n_kv_heads=n_kv_heads,
                head_dim=head_dim,
                moe_hidden_dim=moe_inter_dim,
                num_experts=num_experts,
                top_k=top_k,
                attn_backend=attn_backend,
                moe_comm_backend=moe_comm_backend,
                {_QWEN_ROPE}
            ),
        )

    return build
"""
