"""The transformer that is trained and profiled: embedding, blocks, head, in plain PyTorch."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from optplan.models.spec.workload import Architecture

WEIGHT_SPREAD = 0.02
"""Standard deviation of fresh weights, as GPT-2 draws them."""

ROTARY_BASE = 10_000.0
"""Base of the rotary angles (arXiv 2104.09864, section 3.3)."""


class Attention(nn.Module):
    """Causal attention with grouped keys; each tensor rank holds its part of the heads."""

    def __init__(self, shape: Architecture, ways: int = 1) -> None:
        super().__init__()
        width, queries, keys = shape.head_width, shape.query_width, shape.key_width
        biased = shape.biases != "none"
        self.width, self.rotary = width, shape.learned_positions == 0
        self.query = nn.Linear(shape.hidden, queries // ways, bias=biased)
        self.key = nn.Linear(shape.hidden, keys // ways, bias=biased)
        self.value = nn.Linear(shape.hidden, keys // ways, bias=biased)
        output = shape.biases in ("attention", "all")
        self.output = nn.Linear(queries // ways, shape.hidden, bias=output)

    def forward(self, x: Any) -> Any:
        """Attend; ``(b, s, h)`` in and out."""
        q, k, v = self.query(x), self.key(x), self.value(x)
        # Sequence-parallel inputs are gathered by the projections, so the length is theirs.
        batch, length = q.shape[0], q.shape[1]
        q, k, v = (y.view(batch, length, -1, self.width).transpose(1, 2) for y in (q, k, v))
        if self.rotary:
            q, k = _rotated(q), _rotated(k)
        grouped = q.shape[1] != k.shape[1]
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=grouped)
        return self.output(mixed.transpose(1, 2).reshape(batch, length, -1))


def _rotated(x: Any) -> Any:
    """Turn pairs of columns by angles that grow with the position."""
    half = x.shape[-1] // 2
    steps = torch.arange(half, device=x.device, dtype=torch.float32)
    rates = ROTARY_BASE ** (-steps / half)
    angles = torch.outer(torch.arange(x.shape[-2], device=x.device, dtype=torch.float32), rates)
    cosine, sine = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    left, right = x[..., :half], x[..., half : 2 * half]
    turned = (left * cosine - right * sine, right * cosine + left * sine)
    return torch.cat((*turned, x[..., 2 * half :]), dim=-1)


class FeedForward(nn.Module):
    """Two matrices and a GELU, or three and a SiLU where gated."""

    def __init__(self, shape: Architecture, ways: int = 1) -> None:
        super().__init__()
        wide, biased = shape.ffn // ways, shape.biases == "all"
        self.gate: Any = nn.Linear(shape.hidden, wide, bias=biased) if shape.gated else None
        self.up = nn.Linear(shape.hidden, wide, bias=biased)
        self.down = nn.Linear(wide, shape.hidden, bias=biased)

    def forward(self, x: Any) -> Any:
        """Map every token; ``(b, s, h)`` in and out."""
        if self.gate is None:
            return self.down(functional.gelu(self.up(x)))
        return self.down(functional.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    """One layer: norm, attention, norm, feed-forward, each added to what came in."""

    def __init__(self, shape: Architecture, ways: int = 1) -> None:
        super().__init__()
        self.attention_norm = _norm(shape)
        self.attention = Attention(shape, ways)
        self.ffn_norm = _norm(shape)
        self.ffn = FeedForward(shape, ways)

    def forward(self, x: Any) -> Any:
        """Pass through the layer."""
        x = x + self.attention(self.attention_norm(x))
        return x + self.ffn(self.ffn_norm(x))


def _norm(shape: Architecture) -> Any:
    """Build the norm that an architecture names."""
    return nn.LayerNorm(shape.hidden) if shape.norm == "layernorm" else nn.RMSNorm(shape.hidden)


class Part(nn.Module):
    """
    A run of layers, with the embedding before or the head after it where they belong to it.

    Parameters
    ----------
    shape
        The whole network.
    layers
        Numbers of the layers held, first to last.
    first, last
        Whether embedding and head are held.
    recomputed
        How many of the layers, from the first on, are computed again in the backward pass.
    seed
        Of the weights; every layer draws its own, so that any cut of the network has the same.
    """

    def __init__(
        self,
        shape: Architecture,
        layers: range,
        first: bool,
        last: bool,
        recomputed: int = 0,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.recomputed = recomputed
        self.embedding: Any = nn.Embedding(shape.vocabulary, shape.hidden) if first else None
        learned = shape.learned_positions if first else 0
        self.positions: Any = nn.Embedding(learned, shape.hidden) if learned else None
        # Where sequence-parallel ranks take their part of the sum of both.
        self.enter: Any = nn.Identity() if learned else None
        self.blocks = nn.ModuleList(Block(shape) for _ in layers)
        self.norm: Any = _norm(shape) if last else None
        self.head: Any = nn.Linear(shape.hidden, shape.vocabulary, bias=False) if last else None
        total = shape.layers
        for place, module in (
            (total, self.embedding),
            (total + 1, self.positions),
            (total + 2, self.head),
            *zip(layers, self.blocks, strict=True),
        ):
            if module is not None:
                _draw(module, seed * (total + 3) + place)
        if shape.tied_embeddings and self.embedding is not None and self.head is not None:
            self.head.weight = self.embedding.weight

    def forward(self, x: Any) -> Any:
        """Tokens or hidden states in; hidden states or logits out."""
        if self.embedding is not None:
            length = x.shape[1]
            x = self.embedding(x)
            if self.positions is not None:
                x = self.enter(x + self.positions(torch.arange(length, device=x.device)))
        for number, block in enumerate(self.blocks):
            if number < self.recomputed and self.training:
                from torch.utils.checkpoint import checkpoint

                x = checkpoint(block, x, use_reentrant=False)
            else:
                x = block(x)
        if self.head is not None:
            x = self.head(self.norm(x))
        return x


def _draw(module: Any, seed: int) -> None:
    """Draw the weights of a module; norms begin at one and biases at nothing."""
    source = torch.Generator(device="cpu").manual_seed(seed)
    with torch.no_grad():
        for name, weight in module.named_parameters():
            if weight.dim() > 1:
                fresh = torch.randn(weight.shape, generator=source) * WEIGHT_SPREAD
                weight.copy_(fresh)
            elif name.endswith("bias"):
                weight.zero_()
            else:
                weight.fill_(1.0)


def batch(shape: Architecture, sequences: int, length: int, seed: int) -> tuple[Any, Any]:
    """
    Draw a global batch of tokens and what comes after each; both ``(sequences, length)``.

    The same seed gives the same batch in every process.
    """
    source = torch.Generator(device="cpu").manual_seed(seed)
    tokens = torch.randint(shape.vocabulary, (sequences, length + 1), generator=source)
    return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
