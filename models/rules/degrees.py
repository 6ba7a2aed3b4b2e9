"""Products and divisibility: how many devices, and what a tensor group can split evenly."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from optplan.models.builder import LARGEST_TABLE, Builder, too_large
from optplan.models.cost.price import Estimate
from optplan.models.numbers import divisors, listed
from optplan.models.program import Integers
from optplan.models.rules.registry import Finding, Legal, Rule, rule
from optplan.models.spec.plan import Plan
from optplan.models.spec.problem import Problem

SPACE = ("tp", "pp", "dp", "cp", "context", "order")
"""Choices that a layout's place on the cluster is made of."""


@rule
class World(Rule):
    """Every device has exactly one place in the layout, or none."""

    name = "degrees.world"
    sentence = "tp * pp * dp * cp is the number of devices, or less where devices may be idle"
    source = "arXiv 2501.00254, Eq. 13: d t p = N; Megatron-LM, core/parallel_state.py, with cp"

    def post(self, say: Builder, problem: Problem) -> None:
        """Span the space of degrees; a flag without meaning has one value only."""
        devices = problem.devices
        sizes = [say.domain[n] for n in SPACE[:4]]
        shape = np.meshgrid(sizes[0], sizes[1], sizes[3], indexing="ij")
        tp, pp, cp = (axis.ravel() for axis in shape)
        most = devices // (tp * pp * cp)
        rows = []
        for dp in sizes[2].tolist():
            fits = dp <= most if _idle(problem) else tp * pp * cp * dp == devices
            rows.append(np.stack([tp[fits], pp[fits], np.full(fits.sum(), dp), cp[fits]], axis=1))
        base = np.concatenate(rows) if rows else np.empty((0, 4), dtype=np.int64)
        size = len(base) * len(say.domain["context"]) * len(say.domain["order"])
        if size > LARGEST_TABLE:
            raise too_large(self.name, size, "pp")
        found = []
        for context in say.domain["context"].tolist():
            for order in say.domain["order"].tolist():
                keep = np.ones(len(base), dtype=bool)
                if context != say.domain["context"].min():
                    keep &= base[:, 3] > 1
                if order != say.domain["order"].min():
                    keep &= (base[:, 1] > 1) & (base[:, 2] > 1) & (problem.cluster.nodes > 1)
                flags = np.tile([context, order], (int(keep.sum()), 1))
                found.append(np.concatenate([base[keep], flags], axis=1))
        say.space(self.name, SPACE, np.concatenate(found) if found else np.empty((0, 6), np.int64))

    def holds(self, problem: Problem, plan: Plan, estimate: Estimate) -> Iterator[Finding]:
        """Multiply."""
        product = f"tp {plan.tp} * pp {plan.pp} * dp {plan.dp}"
        product += f" * cp {plan.cp}" if plan.cp > 1 else ""
        text = f"{product} = {plan.devices} of {problem.devices} devices"
        ok = plan.devices == problem.devices
        if _idle(problem):
            ok = plan.devices <= problem.devices
            left = problem.devices - plan.devices
            text += f", {left} idle" if left > 0 else ""
        yield Finding(self.name, ok, text if ok else f"{text}; {_room(problem, plan)}")
        unknown = _unknown(problem, plan)
        if unknown:
            yield Finding(f"{self.name}[known]", False, unknown)


def _unknown(problem: Problem, plan: Plan) -> str:
    """Say what of a plan the workload, the cluster or the paper's prices leave no room for."""
    shape = problem.workload.architecture
    found = []
    if shape.experts is None and plan.ep * plan.etp > 1:
        found.append(
            f"ep {plan.ep} and etp {plan.etp} without experts; legal: 1; or raise tp or dp"
        )
    if problem.cluster.host is None and plan.offload:
        found.append(
            "an optimizer on the host, of which the cluster says nothing; legal: off; or give host"
        )
    if problem.cluster.nodes == 1 and plan.hsdp:
        found.append("hsdp on one node, where there is nothing to copy; legal: off; or more nodes")
    if shape.experts is not None and plan.order != "data_inside":
        found.append(f"order {plan.order} with experts; legal: data_inside; or a workload without")
    if problem.prices == "paper":
        plain = plan.cp == plan.vpp == plan.ep == plan.etp == 1 and plan.schedule == "1f1b"
        plain = plain and plan.zero <= 1 and plan.recompute in ("none", "full")
        if not plain or plan.hsdp or plan.offload:
            found.append(
                "a choice that the paper's prices do not know; legal: cp, ep, etp and vpp 1, 1f1b, "
                "zero 0 or 1, recompute none or full; or prices: canonical instead"
            )
    return "; ".join(found)


def _room(problem: Problem, plan: Plan) -> str:
    """Name the data-parallel degrees that a plan's other degrees leave, and what to change else."""
    taken, devices = plan.tp * plan.pp * plan.cp, problem.devices
    others = f"tp {plan.tp} * pp {plan.pp} * cp {plan.cp}"
    if taken > devices or (devices % taken and not _idle(problem)):
        word = f"at most {devices}" if _idle(problem) else f"a divisor of {devices}"
        return f"{others} = {taken}, legal: {word}; or more nodes"
    legal = f"dp <= {devices // taken}" if devices % taken else f"dp = {devices // taken}"
    return f"with {others} legal: {legal}; or smaller tp, pp or cp instead"


def _idle(problem: Problem) -> bool:
    """Tell whether devices may be left idle; the paper uses all of them."""
    return problem.search.idle_devices and problem.prices != "paper"


class _TensorDivides(Legal):
    """Something of the workload that a tensor group must split evenly."""

    keys = ("tp",)
    what: ClassVar[str]

    def count(self, problem: Problem) -> int:
        """How many there are."""
        raise NotImplementedError

    def legal(self, problem: Problem, *values: Integers) -> NDArray[np.bool_]:
        """Divide."""
        return np.equal(self.count(problem) % values[0], 0)

    def why(self, problem: Problem, *values: int) -> str:
        """Name count, degree, legal degrees, and what to raise instead."""
        count = self.count(problem)
        if bool(self.legal(problem, *(np.array([v]) for v in values))[0]):
            return f"tp {values[0]} splits {count} {self.what}"
        every = range(1, min(problem.devices, 4096) + 1)
        some = np.array(every, dtype=np.int64)
        legal = some[self.legal(problem, some)].tolist()
        return (
            f"tp {values[0]} does not divide {count} {self.what}, so that ranks would hold unequal "
            f"parts; legal: tp in {listed(legal)}; or raise pp, cp or dp instead"
        )


@rule
class Heads(_TensorDivides):
    """Attention is split by heads."""

    name = "degrees.heads"
    sentence = "tp divides the attention heads"
    source = "Megatron-LM, core/transformer/attention.py: heads are divided over the tensor group"
    what = "attention heads"

    def count(self, problem: Problem) -> int:
        """Query heads."""
        return problem.workload.architecture.heads


@rule
class KeyHeads(_TensorDivides):
    """Grouped keys and values are split by their heads, or copied where there are too few."""

    name = "degrees.kv_heads"
    sentence = "tp divides the key/value heads, or where they can be copied is a multiple of them"
    source = (
        "Megatron-LM before core 0.16: query groups are divided over the tensor group, not copied; "
        "from core 0.16 on copied"
    )
    what = "key/value heads"

    def applies(self, problem: Problem) -> bool:
        """Latent attention has none; with one per query head another rule says it all."""
        return problem.workload.architecture.latent is None

    def count(self, problem: Problem) -> int:
        """Key heads."""
        return problem.workload.architecture.key_heads

    def legal(self, problem: Problem, *values: Integers) -> NDArray[np.bool_]:
        """Divide, one way or the other."""
        count = self.count(problem)
        splits = count % values[0] == 0
        known = problem.framework
        copied = problem.prices != "paper" and (known is None or known.key_heads_copied)
        return np.asarray(splits | (copied & (values[0] % count == 0)), dtype=bool)


@rule
class FeedForward(_TensorDivides):
    """The feed-forward layer is split by its width."""

    name = "degrees.ffn"
    sentence = "tp divides the feed-forward width"
    source = "Megatron-LM, core/tensor_parallel/layers.py: output width divided by the tensor group"
    what = "columns of the feed-forward layer"

    def applies(self, problem: Problem) -> bool:
        """Routed experts are split by ``etp`` instead."""
        return self.count(problem) > 0

    def count(self, problem: Problem) -> int:
        """Inner width: of the plain layer, or of the shared experts."""
        shape = problem.workload.architecture
        if shape.experts is None or shape.experts.leading_dense:
            return shape.ffn
        return shape.experts.shared_ffn


@rule
class InsideNode(Legal):
    """The paper's Algorithm 1 looks at tensor groups inside a server only."""

    name = "degrees.node"
    sentence = "tp divides the devices of a node (paper prices only)"
    source = "arXiv 2501.00254, Algorithm 1: t in the divisors of 8"
    keys = ("tp",)

    def applies(self, problem: Problem) -> bool:
        """Hold it where the paper's prices are asked for; elsewhere the price decides."""
        return problem.prices == "paper"

    def legal(self, problem: Problem, *values: Integers) -> NDArray[np.bool_]:
        """Divide."""
        return np.equal(problem.cluster.devices_per_node % values[0], 0)

    def why(self, problem: Problem, *values: int) -> str:
        """Name both numbers and the legal degrees."""
        node = problem.cluster.devices_per_node
        text = f"tp {values[0]}, {node} devices in a node"
        if node % values[0] == 0:
            return text
        return f"{text}; legal: tp in {listed(divisors(node))}; or raise pp or dp instead"


@rule
class SequenceParallel(Legal):
    """Sequence parallelism needs a tensor group, and a sequence that it splits evenly."""

    name = "degrees.sequence_parallel"
    sentence = "sequence parallelism needs tp >= 2, and cp * lcm(2, tp), or at cp 1 tp, divides s"
    source = (
        "Megatron-LM, training/arguments.py: switched off at tp 1; sequence divisible by tp; with "
        "context ranks by cp lcm(2, tp) (NVIDIA-NeMo/RL pull request 3563)"
    )
    keys = ("tp", "cp", "sequence_parallel")

    def legal(self, problem: Problem, *values: Integers) -> NDArray[np.bool_]:
        """Ask both."""
        tp, cp, on = values
        fits = problem.workload.sequence_length % _pieces(tp, cp) == 0
        return np.asarray((on == 0) | ((tp >= 2) & fits), dtype=bool)

    def why(self, problem: Problem, *values: int) -> str:
        """Name what is missing."""
        tp, cp, on = values
        s = problem.workload.sequence_length
        if not on:
            return "off"
        if tp < 2:
            return "on at tp 1, where there is nothing to split; legal: off, or tp >= 2"
        pieces = int(_pieces(np.array(tp), np.array(cp)))
        text = f"on, sequence {s}, tp {tp}" + (f", cp {cp}" if cp > 1 else "")
        if s % pieces == 0:
            return text
        every = np.arange(2, min(problem.devices, 4096) + 1)
        fits = every[s % _pieces(every, np.full_like(every, cp)) == 0].tolist()
        legal = f"off, or tp in {listed(fits)}" if fits else "off"
        return (
            f"{text}: {s} is no multiple of {pieces}; legal at cp {cp}: {legal}; "
            f"or pad to {-(-s // pieces) * pieces}"
        )


def _pieces(tp: Integers, cp: Integers) -> Integers:
    """Return what must divide the sequence under sequence parallelism."""
    pieces: Integers = np.where(cp > 1, cp * np.lcm(2, tp), tp)
    return pieces


@rule
class Context(Legal):
    """A ring cuts the sequence into two pieces per rank, Ulysses also splits the heads."""

    name = "degrees.context"
    sentence = "2 * cp divides the sequence; under Ulysses tp * cp also splits query and key heads"
    source = (
        "Megatron-LM, training/arguments.py: sequence divisible by 2 cp; arXiv 2309.14509: heads "
        "are scattered over the ranks"
    )
    keys = ("tp", "cp", "context")

    def applies(self, problem: Problem) -> bool:
        """Leave out the paper, which has no context parallelism."""
        return problem.prices != "paper"

    def legal(self, problem: Problem, *values: Integers) -> NDArray[np.bool_]:
        """Divide sequence, and heads."""
        tp, cp, kind = values
        shape = problem.workload.architecture
        sequence = problem.workload.sequence_length % (2 * cp) == 0
        ranks = tp * cp
        heads = shape.heads % ranks == 0
        if shape.latent is None:
            heads = heads & ((shape.key_heads % ranks == 0) | (ranks % shape.key_heads == 0))
        return np.asarray((cp == 1) | (sequence & ((kind == 0) | heads)), dtype=bool)

    def why(self, problem: Problem, *values: int) -> str:
        """Name the sequence, and the heads."""
        tp, cp, kind = values
        if cp == 1:
            return "cp 1: nothing is split"
        s, shape = problem.workload.sequence_length, problem.workload.architecture
        if s % (2 * cp):
            legal = [1, *(d for d in divisors(s) if d > 1 and s % (2 * d) == 0)]
            return (
                f"cp {cp}: two pieces per rank do not divide a sequence of {s}; "
                f"legal: cp in {listed([d for d in legal if d <= problem.devices])}; "
                "or raise tp instead"
            )
        if kind == 0:
            return f"cp {cp}, sequence {s}, in a ring"
        text = (
            f"cp {cp} with Ulysses at tp {tp}: {tp * cp} ranks, {shape.heads} heads, "
            f"{shape.key_heads} key heads"
        )
        if bool(self.legal(problem, *(np.array([v]) for v in values))[0]):
            return text
        every = np.arange(1, min(problem.devices, 4096) + 1)
        fits = self.legal(problem, np.full_like(every, tp), every, np.full_like(every, kind))
        return f"{text}; legal: cp in {listed(every[fits].tolist())}; or context ring instead"


@rule
class Zero(Legal):
    """Sharding over one data rank shards nothing."""

    name = "degrees.zero"
    sentence = "ZeRO needs dp * cp >= 2"
    source = (
        "arXiv 1910.02054: the states are divided over the data ranks; with one they stay whole; "
        "Megatron-LM counts context ranks among them"
    )
    keys = ("dp", "cp", "zero")

    def legal(self, problem: Problem, *values: Integers) -> NDArray[np.bool_]:
        """Ask for two ranks."""
        return np.asarray((values[2] == 0) | (values[0] * values[1] >= 2), dtype=bool)

    def why(self, problem: Problem, *values: int) -> str:
        """Name both, and what is legal."""
        dp, cp, zero = values
        text = f"zero {zero} at dp {dp}" + (f", cp {cp}" if cp > 1 else "")
        if zero == 0 or dp * cp >= 2:
            return text
        return f"{text}: one rank has nobody to share with; legal: zero 0; or dp * cp >= 2"


@rule
class Hybrid(Legal):
    """Sharding inside nodes is a kind of sharding."""

    name = "degrees.hsdp"
    sentence = "hsdp needs zero >= 1"
    source = "arXiv 2304.11277, section 3.2.2: hybrid sharding replicates between nodes"
    keys = ("zero", "hsdp")

    def legal(self, problem: Problem, *values: Integers) -> NDArray[np.bool_]:
        """Ask for sharding."""
        return np.asarray((values[1] == 0) | (values[0] >= 1), dtype=bool)

    def why(self, problem: Problem, *values: int) -> str:
        """Name both, and what is legal."""
        zero, on = values
        text = f"hsdp {'on' if on else 'off'} at zero {zero}"
        if zero or not on:
            return text
        return f"{text}, which shards nothing; legal: hsdp off; or zero >= 1"
