"""Products and divisibility: how many devices, and what a tensor group can split evenly."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from optplan.models.builder import Builder
from optplan.models.cost.estimate import Estimate
from optplan.models.numbers import divisors, listed
from optplan.models.program import Integers
from optplan.models.rules.registry import Finding, Legal, Rule, rule
from optplan.models.spec.plan import Plan
from optplan.models.spec.problem import Problem


@rule
class World(Rule):
    """Every device has exactly one place in the layout."""

    name = "degrees.world"
    sentence = "tp * pp * dp is the number of devices"
    source = "arXiv 2501.00254, Eq. 13: d t p = N"

    def post(self, say: Builder, problem: Problem) -> None:
        """Span the space of degrees."""
        devices = problem.devices
        tp, pp = np.meshgrid(say.domain["tp"], say.domain["pp"], indexing="ij")
        fits = devices % (tp * pp) == 0
        rows = np.stack([tp[fits], pp[fits], devices // (tp * pp)[fits]], axis=1)
        keep = np.isin(rows[:, 2], say.domain["dp"])
        say.space(self.name, ("tp", "pp", "dp"), rows[keep])

    def holds(self, problem: Problem, plan: Plan, estimate: Estimate) -> Iterator[Finding]:
        """Multiply."""
        product = f"tp {plan.tp} * pp {plan.pp} * dp {plan.dp} = {plan.devices}"
        text = f"{product} of {problem.devices} devices"
        yield Finding(self.name, plan.devices == problem.devices, text)


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
        """Name count, degree and legal degrees."""
        count = self.count(problem)
        if count % values[0] == 0:
            return f"tp {values[0]} divides {count} {self.what}"
        legal = [d for d in divisors(count) if problem.devices % d == 0]
        return f"tp {values[0]} does not divide {count} {self.what}; legal: tp in {listed(legal)}"


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
    """Grouped keys and values are split by their heads."""

    name = "degrees.kv_heads"
    sentence = "tp divides the key/value heads"
    source = (
        "Megatron-LM before core 0.16: query groups are divided over the tensor group, not copied"
    )
    what = "key/value heads"

    def count(self, problem: Problem) -> int:
        """Key heads."""
        return problem.workload.architecture.key_heads


@rule
class FeedForward(_TensorDivides):
    """The feed-forward layer is split by its width."""

    name = "degrees.ffn"
    sentence = "tp divides the feed-forward width"
    source = "Megatron-LM, core/tensor_parallel/layers.py: output width divided by the tensor group"
    what = "columns of the feed-forward layer"

    def count(self, problem: Problem) -> int:
        """Inner width."""
        return problem.workload.architecture.ffn


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
        """Name both numbers."""
        return f"tp {values[0]}, {problem.cluster.devices_per_node} devices in a node"


@rule
class SequenceParallel(Legal):
    """Sequence parallelism needs a tensor group, and a sequence that it splits evenly."""

    name = "degrees.sequence_parallel"
    sentence = "sequence parallelism needs tp >= 2, and tp divides the sequence"
    source = "Megatron-LM, training/arguments.py: switched off at tp 1; sequence divisible by tp"
    keys = ("tp", "sequence_parallel")

    def legal(self, problem: Problem, *values: Integers) -> NDArray[np.bool_]:
        """Ask both."""
        tp, on = values
        fits = problem.workload.sequence_length % tp == 0
        return np.asarray((on == 0) | ((tp >= 2) & fits), dtype=bool)

    def why(self, problem: Problem, *values: int) -> str:
        """Name what is missing."""
        tp, on = values
        s = problem.workload.sequence_length
        if not on:
            return "off"
        if tp < 2:
            return "on at tp 1, where there is nothing to split; legal: off, or tp >= 2"
        return f"on, sequence {s}, tp {tp}" + (
            "" if s % tp == 0 else "; legal: tp that divides the sequence"
        )


@rule
class Zero(Legal):
    """Sharding over one data rank shards nothing."""

    name = "degrees.zero"
    sentence = "ZeRO-1 needs dp >= 2"
    source = (
        "arXiv 1910.02054: the states are divided over the data ranks; with one they stay whole"
    )
    keys = ("dp", "zero")

    def legal(self, problem: Problem, *values: Integers) -> NDArray[np.bool_]:
        """Ask for two ranks."""
        return np.asarray((values[1] == 0) | (values[0] >= 2), dtype=bool)

    def why(self, problem: Problem, *values: int) -> str:
        """Name both."""
        return f"zero {values[1]} at dp {values[0]}"
