"""Each sample as a function to call once: operators, layers, engines, collectives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.nn import functional

from optplan.measuring.engine import Trainer, tensor_parallel
from optplan.measuring.network import Block, Part
from optplan.models.spec.plan import Plan
from optplan.profiling.samples import Sample, shape_of
from optplan.ranks.rank import Here

Once = Callable[[], object]


class Bench:
    """
    Builds samples in one process.

    Parameters
    ----------
    here
        This process.
    precision
        ``fp32``, or ``bf16`` for products in 16 bits on fp32 weights.
    """

    def __init__(self, here: Here, precision: str) -> None:
        self.here, self.device = here, here.device
        self.kind = torch.bfloat16 if precision == "bf16" else torch.float32
        self.precision = precision
        self.groups: dict[int, Any] = {}

    def build(self, sample: Sample) -> Once:
        """Return a function that runs the sample once."""
        made: Once = getattr(self, f"_{sample.kind}")(sample)
        return made

    def tensor(self, *shape: int, grad: bool = False) -> Any:
        """Draw numbers."""
        return torch.randn(*shape, device=self.device, dtype=self.kind, requires_grad=grad)

    def group(self, members: int) -> Any:
        """Return this process's group of neighbours; all processes make all groups."""
        if members == self.here.ranks:
            return dist.group.WORLD
        if members not in self.groups:
            for first in range(0, self.here.ranks, members):
                made = dist.new_group(list(range(first, first + members)))
                if first <= self.here.rank < first + members:
                    self.groups[members] = made
        return self.groups[members]

    # -- operators -------------------------------------------------------------------------------

    def _matmul(self, sample: Sample) -> Once:
        left, right = (
            self.tensor(sample.hidden, sample.hidden),
            self.tensor(sample.hidden, sample.hidden),
        )
        out = torch.empty_like(left)
        return lambda: torch.mm(left, right, out=out)

    def _stream(self, sample: Sample) -> Once:
        source = torch.zeros(sample.payload_bytes // 8, device=self.device, dtype=torch.float32)
        target = torch.empty_like(source)
        return lambda: target.copy_(source)

    def _products(self, sample: Sample) -> Once:
        block = self._block(sample)
        attention, ffn = block.attention, block.ffn
        linears = (
            *(attention.query, attention.key, attention.value, attention.output),
            *(ffn.gate, ffn.up, ffn.down),
        )
        weights = [linear.weight.detach().to(self.kind).requires_grad_() for linear in linears]
        given = [
            self.tensor(sample.micro_batch, sample.sequence, w.shape[1], grad=True) for w in weights
        ]
        slopes = [self.tensor(sample.micro_batch, sample.sequence, w.shape[0]) for w in weights]

        def once() -> None:
            for x, w, slope in zip(given, weights, slopes, strict=True):
                torch.autograd.grad(functional.linear(x, w), (x, w), slope)

        return once

    def _attention(self, sample: Sample) -> Once:
        shape = shape_of(sample.hidden)
        heads = shape.heads // sample.ways
        size = (sample.micro_batch, heads, sample.sequence, shape.head_width)
        q, k, v = (self.tensor(*size, grad=True) for _ in range(3))
        slope = self.tensor(*size)

        def once() -> None:
            out = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            torch.autograd.grad(out, (q, k, v), slope)

        return once

    def _block(self, sample: Sample) -> Any:
        """Build one layer's shard."""
        return Block(shape_of(sample.hidden), sample.ways).to(self.device)

    def _hidden(self, sample: Sample, grad: bool = True) -> Any:
        """Draw hidden states."""
        size = (sample.micro_batch, sample.sequence, sample.hidden)
        return torch.randn(*size, device=self.device, requires_grad=grad)

    def _cast(self) -> Any:
        """Compute in the precision asked for."""
        on = self.kind is torch.bfloat16
        return torch.autocast(self.device, dtype=torch.bfloat16, enabled=on)

    def _passes(self, module: Any, x: Any, backward: bool) -> Once:
        """Run a module forward, and back where asked."""
        slope = torch.randn_like(x)

        def once() -> None:
            with self._cast():
                out = module(x)
            if backward:
                out.backward(slope)

        return once

    def _layer_forward(self, sample: Sample) -> Once:
        return self._passes(self._block(sample), self._hidden(sample), backward=False)

    def _layer(self, sample: Sample) -> Once:
        return self._passes(self._block(sample), self._hidden(sample), backward=True)

    def _head(self, sample: Sample) -> Once:
        shape = shape_of(sample.hidden).model_copy(update={"vocabulary": sample.count})
        part = Part(shape, range(0), first=False, last=True).to(self.device)
        x = self._hidden(sample)
        labels = torch.randint(sample.count, (sample.tokens,), device=self.device)

        def once() -> None:
            with self._cast():
                logits = part(x)
            functional.cross_entropy(logits.flatten(0, 1).float(), labels).backward()

        return once

    _head_memory = _head

    def _optimizer(self, sample: Sample) -> Once:
        sides = [torch.zeros(1000, 250, device=self.device) for _ in range(sample.count // 250_000)]
        weights = [torch.nn.Parameter(side) for side in sides]
        for weight in weights:
            weight.grad = torch.ones_like(weight)
        optimizer = torch.optim.AdamW(weights, lr=1e-9, fused=self.device != "npu")
        return lambda: optimizer.step()

    # -- engines ---------------------------------------------------------------------------------

    def _tensor_layer(self, sample: Sample) -> Once:
        part = Part(shape_of(sample.hidden), range(1), first=False, last=False).to(self.device)
        tensor_parallel(part, self.here.ranks, self.device)
        return self._passes(part, self._hidden(sample), backward=True)

    def _pipeline(self, sample: Sample) -> Once:
        n = sample.group
        shape = shape_of(sample.hidden).model_copy(update={"layers": n})
        plan = Plan(
            tp=1,
            pp=n,
            dp=1,
            micro_batch=sample.micro_batch,
            micro_batches=sample.count,
            global_batch=sample.micro_batch * sample.count,
            layers_per_stage=(1,) * n,
            recomputed_layers_per_stage=(0,) * n,
        )
        trainer = Trainer(shape, plan, self.here.rank, self.device, self.precision, ends=False)
        size = (plan.global_batch, sample.sequence, sample.hidden)
        x = torch.randn(*size, device=self.device, requires_grad=True)
        labels = torch.zeros(plan.global_batch, device=self.device)
        return lambda: trainer.passes(x, labels)

    def _stack(self, sample: Sample) -> Any:
        """Wrap a stack of layers in what reduces its gradients."""
        shape = shape_of(sample.hidden).model_copy(update={"layers": sample.count})
        part = Part(shape, range(sample.count), first=False, last=False).to(self.device)
        return torch.nn.parallel.DistributedDataParallel(part, gradient_as_bucket_view=True)

    def _data_alone(self, sample: Sample) -> Once:
        stack = self._stack(sample)
        once = self._passes(stack, self._hidden(sample, grad=False), backward=True)

        def alone() -> None:
            with stack.no_sync():
                once()

        return alone

    def _data_synced(self, sample: Sample) -> Once:
        return self._passes(self._stack(sample), self._hidden(sample, grad=False), backward=True)

    # -- collectives -----------------------------------------------------------------------------

    def _bytes(self, count: int) -> Any:
        """Hold so many bytes."""
        return torch.zeros(max(1, count // 4), device=self.device, dtype=torch.float32)

    def _all_reduce(self, sample: Sample) -> Once:
        held, group = self._bytes(sample.payload_bytes), self.group(sample.group)
        return lambda: dist.all_reduce(held, group=group)

    def _all_gather(self, sample: Sample) -> Once:
        group = self.group(sample.group)
        part = self._bytes(sample.payload_bytes // sample.group)
        whole = part.new_empty(sample.group * len(part))
        return lambda: dist.all_gather_into_tensor(whole, part, group=group)

    def _reduce_scatter(self, sample: Sample) -> Once:
        group = self.group(sample.group)
        part = self._bytes(sample.payload_bytes // sample.group)
        whole = part.new_zeros(sample.group * len(part))
        return lambda: dist.reduce_scatter_tensor(part, whole, group=group)

    def _all_to_all(self, sample: Sample) -> Once:
        group = self.group(sample.group)
        given = self._bytes(sample.payload_bytes // sample.group * sample.group)
        taken = torch.empty_like(given)
        return lambda: dist.all_to_all_single(taken, given, group=group)

    def _p2p(self, sample: Sample) -> Once:
        """Send to the neighbour and back: twice one transfer."""
        held, rank = self._bytes(sample.payload_bytes), self.here.rank
        other = rank ^ 1

        def once() -> None:
            if rank % 2 == 0:
                dist.send(held, other)
                dist.recv(held, other)
            else:
                dist.recv(held, other)
                dist.send(held, other)

        return once
