"""The transformer to be trained: its shape, its sequence, its precision."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, Strict, model_validator

from optplan.models.record import Flag, Record, Text

Precision = Literal["bf16", "fp16", "fp32", "fp8"]

Optimizer = Literal["adam", "adam-bf16-moments", "adam-8bit"]


class Latent(Record):
    """Multi-head latent attention: low-rank queries, keys, values (arXiv 2405.04434, 2.1)."""

    q_rank: Annotated[int, Strict(), Field(ge=0, le=1_048_576)] = 0
    """Width queries are compressed to; 0: queries straight from the residual stream."""
    kv_rank: Annotated[int, Strict(), Field(ge=1, le=1_048_576)]
    """Width keys and values are compressed to."""
    nope: Annotated[int, Strict(), Field(ge=1, le=65_536)]
    """Width of a head's part without positions."""
    rope: Annotated[int, Strict(), Field(ge=0, le=65_536)]
    """Width of a head's part with rotary positions, one for all heads on the key side."""
    value: Annotated[int, Strict(), Field(ge=1, le=65_536)]
    """Width of a value head."""


class Experts(Record):
    """Feed-forward layers that are many, of which each token takes a few."""

    count: Annotated[int, Strict(), Field(ge=2, le=65_536)]
    """Routed experts of a layer."""
    per_token: Annotated[int, Strict(), Field(ge=1, le=65_536)]
    """Routed experts that each token takes (top-k)."""
    ffn: Annotated[int, Strict(), Field(ge=1, le=16_777_216)]
    """Width of one routed expert."""
    shared_ffn: Annotated[int, Strict(), Field(ge=0, le=16_777_216)] = 0
    """Width of all shared experts together, which every token takes; 0 for none."""
    leading_dense: Annotated[int, Strict(), Field(ge=0, le=10_000)] = 0
    """Blocks at the front with a plain feed-forward layer of the architecture's ``ffn`` instead."""
    router_bias: Flag = False
    """One more number per routed expert in the router: a bias, or a correction of its scores."""
    shared_gate: Flag = False
    """A gate of one output that weighs the shared experts (Qwen2-MoE)."""

    @model_validator(mode="after")
    def _enough(self) -> Experts:
        if self.per_token > self.count:
            raise ValueError(
                f"{self.per_token} experts per token, of {self.count}; take at most all of them"
            )
        return self


class Architecture(Record):
    """
    The shape of a decoder-only transformer.

    Every matrix is counted from these numbers; nothing else of the network matters to the cost.
    """

    name: Text = "custom"
    """What to call it in print."""
    layers: Annotated[int, Strict(), Field(ge=1, le=10_000)]
    """Transformer blocks."""
    hidden: Annotated[int, Strict(), Field(ge=1, le=1_048_576)]
    """Width of the residual stream."""
    heads: Annotated[int, Strict(), Field(ge=1, le=65_536)]
    """Query heads."""
    kv_heads: Annotated[int, Strict(), Field(ge=1, le=65_536)] | None = None
    """Key and value heads; left out: as many as query heads."""
    head_dim: Annotated[int, Strict(), Field(ge=1, le=65_536)] | None = None
    """Width of one head; left out: hidden / heads."""
    ffn: Annotated[int, Strict(), Field(ge=1, le=16_777_216)]
    """Width of the feed-forward layer."""
    vocabulary: Annotated[int, Strict(), Field(ge=1, le=16_777_216)]
    """Tokens in the vocabulary, as trained (before padding by a framework)."""
    gated: Flag = True
    """Feed-forward with three matrices (SwiGLU and kin) instead of two."""
    tied_embeddings: Flag = False
    """Input embedding and output head share one matrix."""
    biases: Literal["none", "qkv", "attention", "all"] = "none"
    """Which linear layers carry a bias vector: queries, keys and values; the attention's output
    too; the feed-forward's, or its experts', too."""
    qk_norm: Flag = False
    """A norm of every query and key head, one vector for all heads of a kind; not with latent."""
    sinks: Flag = False
    """A learned logit per query head that takes attention from the tokens (gpt-oss)."""
    norm: Literal["rmsnorm", "layernorm"] = "rmsnorm"
    """RMSNorm has one vector of weights, LayerNorm two."""
    learned_positions: Annotated[int, Strict(), Field(ge=0, le=16_777_216)] = 0
    """Rows of a learned position table; 0 for rotary, ALiBi or none."""
    dropout: Flag = False
    """Dropout after attention and feed-forward, whose masks are kept for the backward pass."""
    latent: Latent | None = None
    """Multi-head latent attention instead of plain or grouped heads."""
    experts: Experts | None = None
    """A mixture of experts in place of the feed-forward layer."""
    mtp: Annotated[int, Strict(), Field(ge=0, le=64)] = 0
    """Multi-token-prediction blocks after the last one, each with its share of the output head."""
    sliding_window: Annotated[int, Strict(), Field(ge=1, le=16_777_216)] | None = None
    """Tokens that a windowed attention looks back on; left out: all of them."""
    windowed_layers: Annotated[int, Strict(), Field(ge=0, le=10_000)] | None = None
    """Blocks whose attention is windowed; left out: all, where there is a window."""

    @model_validator(mode="after")
    def _divisible(self) -> Architecture:
        if self.heads % (self.kv_heads or self.heads):
            raise ValueError(
                f"heads {self.heads} is no multiple of kv_heads {self.kv_heads}; "
                "every key head must serve the same number of query heads"
            )
        if self.head_dim is None and self.hidden % self.heads:
            raise ValueError(
                f"hidden {self.hidden} is no multiple of heads {self.heads}; "
                "give head_dim, or a hidden size that the heads divide"
            )
        if self.experts and self.experts.leading_dense >= self.layers:
            raise ValueError(
                f"{self.experts.leading_dense} leading dense layers of {self.layers}; "
                "leave at least one layer with experts, or leave experts out"
            )
        if (self.windowed_layers or 0) > self.layers:
            raise ValueError(
                f"{self.windowed_layers} windowed layers of {self.layers}; give at most all"
            )
        if self.windowed_layers and self.sliding_window is None:
            raise ValueError("windowed_layers without sliding_window; give the window's tokens too")
        return self

    @property
    def key_heads(self) -> int:
        """Key and value heads."""
        return self.kv_heads or self.heads

    @property
    def head_width(self) -> int:
        """Width of one head."""
        return self.head_dim or self.hidden // self.heads

    @property
    def query_width(self) -> int:
        """Width of all query heads together."""
        return self.heads * self.head_width

    @property
    def key_width(self) -> int:
        """Width of all key heads together (values are as wide again)."""
        return self.key_heads * self.head_width


class Adapters(Record):
    """Low-rank adapters on frozen weights (LoRA, arXiv 2106.09685)."""

    rank: Annotated[int, Strict(), Field(ge=1, le=65_536)]
    """Rank of every adapter."""
    layers: Literal["attention", "all"] = "all"
    """Linear layers that carry one: those of the attention, or the feed-forward's too."""


class Workload(Record):
    """What is to be trained: architecture, sequence length and number formats."""

    architecture: Architecture
    """The transformer's shape, or the name of one in the catalogue."""
    sequence_length: Annotated[int, Strict(), Field(ge=1, le=16_777_216)]
    """Tokens in one sequence."""
    precision: Precision = "bf16"
    """Number format of weights and activations in forward and backward."""
    optimizer: Optimizer = "adam"
    """Mixed-precision Adam, or the same with both moments in bf16 or in 8 bits."""
    flash_attention: Flag = True
    """Attention that never writes the scores to memory."""
    capacity_factor: Annotated[float, Field(gt=0, le=64, allow_inf_nan=False)] | None = None
    """Tokens an expert takes at most, over its even share; left out: no token is dropped."""
    imbalance: Annotated[float, Field(ge=1, le=64, allow_inf_nan=False)] = 1.0
    """Tokens of the busiest expert rank over the mean, where no token is dropped."""
    lora: Adapters | None = None
    """Train adapters only and freeze everything else; left out: train all weights."""

    @property
    def expert_load(self) -> float:
        """Tokens that the busiest expert rank works on, over its even share."""
        return self.capacity_factor if self.capacity_factor is not None else self.imbalance
