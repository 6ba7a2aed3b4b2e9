"""What a measured run trained: architecture, sequence, precision, as far as its table says."""

from __future__ import annotations

import re
from functools import cache

from pydantic import ValidationError

from optplan import catalogue
from optplan.models.spec.workload import Adapters, Architecture, Experts, Precision, Workload
from optplan.places import Refusal
from optplan.runs.stacks import FLASH, Inexpressible, first_fault, is_legacy
from optplan.runs.table import Run


def workload_of(run: Run, assumed: list[str]) -> Workload:
    """Describe what was trained."""
    precision = _precision(run, assumed)
    flash = _flash(run, assumed)
    try:
        return Workload(
            architecture=_architecture(run, assumed),
            sequence_length=run.seq_len or 1,
            precision=precision,
            flash_attention=flash,
            lora=_adapters(run),
        )
    except ValidationError as error:
        raise Inexpressible(first_fault(error)) from None


def _flash(run: Run, assumed: list[str]) -> bool:
    """Read whether attention is fused."""
    if run.flash_attention is not None:
        return run.flash_attention
    if run.says("ci golden values") and (run.cp or 1) == 1 and run.seq_len == 1024:
        assumed.append("attention not fused, as Megatron's small deterministic tests have it")
        return False
    flash = any(word in run.framework.lower() for word in FLASH)
    assumed.append(f"flash attention {'on' if flash else 'off'}, as {run.framework or '?'} has it")
    return flash


PRECISIONS: dict[str, Precision] = {
    "bf16": "bf16",
    "fp16": "fp16",
    "fp32": "fp32",
    "fp8": "fp8",
    "mxfp8": "fp8",
    "fp8-cs": "fp8",
    "fp8_cs": "fp8",
    "fp8-mx": "fp8",
    "fp8_mx": "fp8",
}
"""Number formats by the words of tables."""


def _precision(run: Run, assumed: list[str]) -> Precision:
    """Read the number format."""
    written = run.precision.lower()
    if not written:
        early = is_legacy(run) or "v100" in run.accelerator.lower()
        precision: Precision = "fp16" if early else "bf16"
        assumed.append(f"precision {precision}")
        return precision
    if written not in PRECISIONS:
        raise Inexpressible(f"precision {run.precision} has no price")
    if PRECISIONS[written] != written:
        assumed.append(f"{written} priced as {PRECISIONS[written]}")
    return PRECISIONS[written]


def _adapters(run: Run) -> Adapters | None:
    """Tell whether adapters alone were trained."""
    if not run.says("lora"):
        return None
    return Adapters(rank=16)


def _architecture(run: Run, assumed: list[str]) -> Architecture:
    """Describe the network."""
    hidden, layers = run.hidden_size or 1, run.num_layers or 1
    known = _known_shape(run.model_name, layers, hidden)
    if known is not None and run.num_experts:
        return known
    if run.says("mla attention", "hybrid", "mamba"):
        raise Inexpressible("attention or layers of a kind that the columns cannot say")
    gated = run.gated_mlp if run.gated_mlp is not None else bool(known and known.gated)
    ffn = run.ffn_hidden_size
    if ffn is None:
        ffn = known.ffn if known else (round(8 / 3 * hidden) if gated else 4 * hidden)
        assumed.append(f"ffn {ffn}")
    heads = run.num_heads
    if heads is None:
        heads = known.heads if known else _heads(hidden)
        assumed.append(f"{heads} heads")
    vocabulary = run.vocab_size
    if vocabulary is None:
        vocabulary = known.vocabulary if known else (32_000 if gated else 51_200)
        assumed.append(f"vocabulary {vocabulary}")
    head_dim = known.head_dim if known and known.heads == heads else None
    if head_dim is None and hidden % heads:
        raise Inexpressible(f"{heads} heads do not divide hidden {hidden}, and no width is known")
    experts = _experts(run, ffn, assumed)
    tied = known.tied_embeddings if known else not gated
    if run.says("untied"):
        tied = False
    elif run.says("tied embeddings when ffn<10000"):
        tied = ffn < 10_000
    return Architecture(
        name=run.model_name or "custom",
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=run.num_kv_heads if run.num_kv_heads and run.num_kv_heads < heads else None,
        head_dim=head_dim,
        ffn=ffn,
        vocabulary=vocabulary,
        gated=gated,
        tied_embeddings=tied,
        biases="none" if gated else "all",
        norm="rmsnorm" if gated else "layernorm",
        dropout=not gated and (is_legacy(run) or run.says("ci golden values")),
        experts=experts,
    )


def _heads(hidden: int) -> int:
    """Guess a number of heads: of width 128, or the nearest width that divides."""
    return next(hidden // width for width in (128, 64, 96, 80, 1) if hidden % width == 0)


def _experts(run: Run, ffn: int, assumed: list[str]) -> Experts | None:
    """Describe the experts."""
    if not run.num_experts or run.num_experts < 2:
        return None
    if run.top_k is None:
        raise Inexpressible("top_k not stated")
    shared = re.search(r"shared expert ffn (\d+)", run.row_note)
    width = run.moe_ffn
    if width is None:
        width = ffn
        assumed.append(f"experts as wide as ffn, {ffn}")
    return Experts(
        count=run.num_experts,
        per_token=run.top_k,
        ffn=width,
        shared_ffn=int(shared[1]) if shared else 0,
    )


@cache
def _known_shape(name: str, layers: int, hidden: int) -> Architecture | None:
    """Find a shipped architecture by name, where its size agrees."""
    text = name.lower().replace("llama3.1", "llama-3.1").replace("llama3", "llama-3")
    for word in (text, text.replace("llama2", "llama-2"), text.replace("llama-3.1-", "llama-3-")):
        try:
            shape = catalogue.architecture(word)
        except Refusal:
            continue
        if shape.hidden == hidden:
            return shape.model_copy(update={"layers": layers}) if shape.layers != layers else shape
    return None
