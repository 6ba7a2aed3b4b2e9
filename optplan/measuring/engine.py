"""A plan on PyTorch's own engines: DTensor, pipelining, DDP and FSDP2 around one network."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import (
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
)
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    PrepareModuleOutput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)
from torch.distributed.tensor.parallel.ddp import _pre_dp_module_transform
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from optplan.measuring.network import Part
from optplan.measuring.seats import Chunk, chunks_of, mesh_of, seat_of
from optplan.models.spec.plan import Plan
from optplan.models.spec.workload import Architecture

LEARNING_RATE = 1e-3

SCHEDULES = {"1f1b": Schedule1F1B, "gpipe": ScheduleGPipe}


class Trainer:
    """
    One process of a layout: its part of the network, and a step of training.

    Parameters
    ----------
    shape, plan
        What is trained, and how it is laid out.
    rank
        Number of this process; a process group of ``plan.devices`` must be up.
    device
        ``cpu``, ``cuda`` or ``npu``.
    precision
        ``fp32``; ``bf16`` computes in bf16 on fp32 weights.
    seed
        Of the weights.
    ends
        False to leave out embedding, head and loss.
    """

    def __init__(
        self,
        shape: Architecture,
        plan: Plan,
        rank: int,
        device: str = "cpu",
        precision: str = "fp32",
        seed: int = 0,
        ends: bool = True,
    ) -> None:
        self.plan, self.device, self.precision = plan, device, precision
        names, sizes = zip(*mesh_of(plan), strict=True)
        self.mesh = init_device_mesh(device, sizes, mesh_dim_names=names)
        self.seat = seat_of(plan, rank)
        self.ends = ends
        self.chunks = chunks_of(plan, self.seat.pp)
        self.parts = [self._part(shape, chunk, seed) for chunk in self.chunks]
        fused = device != "npu"
        self.optimizer = torch.optim.AdamW(_groups(self.parts), lr=LEARNING_RATE, fused=fused)
        self.schedule = self._pipeline() if plan.pp > 1 else None

    # -- parts -----------------------------------------------------------------------------------

    def _part(self, shape: Architecture, chunk: Chunk, seed: int) -> Any:
        """Build a chunk of the network, divided over its tensor and data ranks."""
        first, last = chunk.first and self.ends, chunk.last and self.ends
        part = Part(shape, chunk.layers, first, last, chunk.recomputed, seed)
        part = part.to(self.device)
        if self.plan.tp > 1:
            how = _tensor_plan(part, self.plan.sequence_parallel)
            parallelize_module(part, self.mesh["tp"], how)
        if self.plan.dp == 1:
            return part
        data = self.mesh["dp"]
        if self.plan.zero == 0:
            if self.plan.tp > 1:
                _pre_dp_module_transform(part)
            group = data.get_group()
            # Within a pipeline the buckets cannot be put into another order after the first step.
            fixed = self.plan.pp > 1
            return DistributedDataParallel(
                part,
                process_group=group,
                gradient_as_bucket_view=True,
                find_unused_parameters=fixed,
            )
        keep = {"mesh": data, "reshard_after_forward": self.plan.zero == 3}
        if self.precision == "bf16":
            kinds = {"param_dtype": torch.bfloat16, "reduce_dtype": torch.float32}
            keep["mp_policy"] = MixedPrecisionPolicy(**kinds)
        for block in part.blocks:
            fully_shard(block, **keep)
        return fully_shard(part, **keep)

    def _pipeline(self) -> Any:
        """Put the chunks of this process into a schedule."""
        group, plan = self.mesh["pp"].get_group(), self.plan
        stages = [
            PipelineStage(part, chunk.number, plan.pp * plan.vpp, self.device, group=group)
            for part, chunk in zip(self.parts, self.chunks, strict=True)
        ]
        count = plan.micro_batches
        if plan.schedule == "interleaved":
            return ScheduleInterleaved1F1B(stages, count, loss_fn=self._loss)
        return SCHEDULES[plan.schedule](stages[0], count, loss_fn=self._loss)

    # -- a step ----------------------------------------------------------------------------------

    def step(self, tokens: Any, labels: Any) -> list[Any]:
        """
        Train on one global batch.

        Parameters
        ----------
        tokens, labels
            All sequences, ``(global_batch, s)``; every process takes its own.

        Returns
        -------
        list
            Loss of every micro-batch, where this process has them.
        """
        mine = slice(self.seat.dp, None, self.plan.dp)
        own, wanted = tokens[mine].to(self.device), labels[mine].to(self.device)
        with loss_parallel() if self.plan.tp > 1 else nullcontext(), self._cast():
            losses = self.passes(own, wanted)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return losses

    def mean(self, losses: list[Any]) -> float:
        """Average the losses of all micro-batches and data ranks, the same in every process."""
        total = torch.zeros(2, dtype=torch.float64)
        for loss in losses:
            whole = loss.full_tensor() if hasattr(loss, "full_tensor") else loss
            total += torch.tensor([float(whole.detach()), 1.0], dtype=torch.float64)
        spread = total.to(self.device, torch.float32 if self.device == "npu" else torch.float64)
        dist.all_reduce(spread)
        return float(spread[0] / spread[1])

    def passes(self, tokens: Any, labels: Any) -> list[Any]:
        """Run forward and backward of every micro-batch; losses where this process has them."""
        count = self.plan.micro_batches
        if self.schedule is not None:
            losses: list[Any] = []
            given = (tokens,) if self.chunks[0].first else ()
            if self.chunks[-1].last:
                self.schedule.step(*given, target=labels, losses=losses)
            else:
                self.schedule.step(*given)
            return losses
        part, losses = self.parts[0], []
        pairs = zip(tokens.chunk(count), labels.chunk(count), strict=True)
        for number, (one, wanted) in enumerate(pairs):
            with self._unsynced(part, number == count - 1):
                loss = self._loss(part(one), wanted)
                (loss / count).backward()
            losses.append(loss.detach())
        return losses

    def _unsynced(self, part: Any, last: bool) -> AbstractContextManager[Any]:
        """Let DDP reduce gradients after the last micro-batch only."""
        wrapped = isinstance(part, DistributedDataParallel)
        held: AbstractContextManager[Any] = nullcontext()
        if wrapped and not last:
            held = part.no_sync()
        return held

    def _cast(self) -> AbstractContextManager[Any]:
        """Compute in 16 bits where asked."""
        if self.precision != "bf16":
            return nullcontext()
        cast: AbstractContextManager[Any] = torch.autocast(self.device, dtype=torch.bfloat16)
        return cast

    def _loss(self, logits: Any, labels: Any) -> Any:
        """Cross-entropy, mean over the tokens of a micro-batch; of hidden states any number."""
        if not self.ends:
            return logits.mean()
        return functional.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())


def _groups(parts: list[Any]) -> list[dict[str, Any]]:
    """Group weights by how they are divided: the fused optimizer takes one kind at a time."""
    kinds: dict[str, list[Any]] = {}
    for part in parts:
        for weight in part.parameters():
            mesh = getattr(weight, "device_mesh", None)
            kinds.setdefault(f"{mesh}", []).append(weight)
    return [{"params": weights} for weights in kinds.values()]


def tensor_parallel(part: Part, ways: int, device: str) -> None:
    """Divide a part of a network over all processes as tensor ranks."""
    mesh = init_device_mesh(device, (ways,), mesh_dim_names=("tp",))
    parallelize_module(part, mesh, _tensor_plan(part, split=False))


def _tensor_plan(part: Part, split: bool) -> dict[str, Any]:
    """
    Say how the modules of a part are divided over tensor ranks.

    Two all-reduces forward and two backward in a block; with sequence parallelism a gather and a
    scatter take the place of each.
    """
    between: Any = Shard(1) if split else Replicate()
    whole = PrepareModuleInput(input_layouts=(between,), desired_input_layouts=(Replicate(),))
    how: dict[str, Any] = {}
    if part.embedding is not None:
        # Positions are added between, which needs whole sequences.
        after = Replicate() if part.positions is not None else between
        how["embedding"] = RowwiseParallel(input_layouts=Replicate(), output_layouts=after)
    for number in range(len(part.blocks)):
        block = f"blocks.{number}."
        for module in ("attention", "ffn"):
            how[block + module] = whole
        for column in ("attention.query", "attention.key", "attention.value", "ffn.up", "ffn.gate"):
            if column != "ffn.gate" or part.blocks[number].ffn.gate is not None:
                how[block + column] = ColwiseParallel()
        for row in ("attention.output", "ffn.down"):
            how[block + row] = RowwiseParallel(output_layouts=between)
        if split:
            how[block + "attention_norm"] = SequenceParallel(use_local_output=True)
            how[block + "ffn_norm"] = SequenceParallel(use_local_output=True)
    if part.enter is not None and split:
        how["enter"] = PrepareModuleOutput(
            output_layouts=(Replicate(),), desired_output_layouts=(between,)
        )
    if part.head is not None:
        if split:
            how["norm"] = SequenceParallel(use_local_output=True)
        logits: Callable[..., Any] = ColwiseParallel
        how["head"] = logits(
            input_layouts=between, output_layouts=Shard(-1), use_local_output=False
        )
    return how
