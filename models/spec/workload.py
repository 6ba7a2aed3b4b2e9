"""The transformer to be trained: its shape, its sequence, its precision."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, Strict, model_validator

from optplan.models.record import Flag, Record, Text

Precision = Literal["bf16", "fp16", "fp32"]


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
    biases: Literal["none", "qkv", "all"] = "none"
    """Which linear layers carry a bias vector."""
    norm: Literal["rmsnorm", "layernorm"] = "rmsnorm"
    """RMSNorm has one vector of weights, LayerNorm two."""
    learned_positions: Annotated[int, Strict(), Field(ge=0, le=16_777_216)] = 0
    """Rows of a learned position table; 0 for rotary, ALiBi or none."""
    dropout: Flag = False
    """Dropout after attention and feed-forward, whose masks are kept for the backward pass."""

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


class Workload(Record):
    """What is to be trained: architecture, sequence length and number formats."""

    architecture: Architecture
    """The transformer's shape, or the name of one in the catalogue."""
    sequence_length: Annotated[int, Strict(), Field(ge=1, le=16_777_216)]
    """Tokens in one sequence."""
    precision: Precision = "bf16"
    """Number format of weights and activations in forward and backward."""
    flash_attention: Flag = True
    """Attention that never writes the scores to memory."""
