"""How a global batch is cut into micro-batches."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from optplan.models.builder import LARGEST_TABLE, Builder, too_large
from optplan.models.cost.estimate import Estimate
from optplan.models.numbers import divisors
from optplan.models.rules.registry import Finding, Rule, rule
from optplan.models.spec.plan import Plan
from optplan.models.spec.problem import Problem


@rule
class Split(Rule):
    """Every sequence of the batch is in exactly one micro-batch."""

    name = "batch.split"
    sentence = "micro_batch * micro_batches * dp is the global batch"
    source = "arXiv 2501.00254, Eq. 13: G = b m d"

    def post(self, say: Builder, problem: Problem) -> None:
        """Span the space of batches."""
        wanted = set(say.domain["micro_batch"].tolist())
        counts = set(say.domain["micro_batches"].tolist())
        rows: list[tuple[int, int, int, int]] = []
        for dp in say.domain["dp"].tolist():
            for batch in say.domain["global_batch"].tolist():
                if batch % dp:
                    continue
                each = batch // dp
                rows += [
                    (dp, b, each // b, batch)
                    for b in divisors(each)
                    if b in wanted and each // b in counts
                ]
            if len(rows) > LARGEST_TABLE:
                raise too_large(self.name, len(rows), "global_batch")
        keys = ("dp", "micro_batch", "micro_batches", "global_batch")
        say.space(self.name, keys, np.array(rows, dtype=np.int64))

    def holds(self, problem: Problem, plan: Plan, estimate: Estimate) -> Iterator[Finding]:
        """Multiply."""
        product = plan.micro_batch * plan.micro_batches * plan.dp
        text = (
            f"micro_batch {plan.micro_batch} * micro_batches {plan.micro_batches} * dp {plan.dp} "
            f"= {product}, global_batch {plan.global_batch}"
        )
        yield Finding(self.name, product == plan.global_batch, text)
