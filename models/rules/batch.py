"""How a global batch is cut into micro-batches."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from optplan.models.builder import LARGEST_TABLE, Builder, too_large
from optplan.models.cost.price import Estimate
from optplan.models.numbers import divisors, factor_pairs
from optplan.models.program import Integers
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
        batches = say.domain["global_batch"]
        rows: list[Integers] = [np.empty((0, 4), dtype=np.int64)]
        for dp in say.domain["dp"].tolist():
            pairs = factor_pairs(batches[batches % dp == 0] // dp)
            keep = np.isin(pairs[:, 0], say.domain["micro_batch"])
            keep &= np.isin(pairs[:, 1], say.domain["micro_batches"])
            b, m = pairs[keep].T
            rows.append(np.stack([np.full_like(b, dp), b, m, b * m * dp], axis=1))
            size = sum(map(len, rows))
            if size > LARGEST_TABLE:
                raise too_large(self.name, size, "global_batch")
        keys = ("dp", "micro_batch", "micro_batches", "global_batch")
        say.space(self.name, keys, np.concatenate(rows))

    def holds(self, problem: Problem, plan: Plan, estimate: Estimate) -> Iterator[Finding]:
        """Multiply."""
        product = plan.micro_batch * plan.micro_batches * plan.dp
        text = (
            f"micro_batch {plan.micro_batch} * micro_batches {plan.micro_batches} * dp {plan.dp} "
            f"= {product}, global_batch {plan.global_batch}"
        )
        ok = product == plan.global_batch
        yield Finding(self.name, ok, text if ok else f"{text}; {_near(plan)}")


def _near(plan: Plan) -> str:
    """Name the nearest batches, and the nearest data-parallel degrees, that come out even."""
    batch, unit = plan.global_batch, plan.micro_batch * plan.dp
    if batch % unit == 0:
        return f"legal: micro_batches {batch // unit}; or another micro_batch or dp"
    low = batch // unit * unit
    batches = f"{low} or {low + unit}" if low else f"{unit}"
    text = f"legal at micro_batch {plan.micro_batch} and dp {plan.dp}: global_batch {batches}; or "
    if batch % plan.micro_batch:
        return f"{text}a micro_batch that divides {batch}"
    ranks = divisors(batch // plan.micro_batch)
    below = max(d for d in ranks if d <= plan.dp)
    above = min((d for d in ranks if d > plan.dp), default=None)
    return f"{text}dp {below}" + (f" or {above}" if above else "")
