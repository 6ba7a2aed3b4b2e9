"""What people hit in public threads: every refusal says why, what is legal, what else to change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np

from optplan import catalogue
from optplan.models.cost.estimate import estimate
from optplan.models.numbers import divisors
from optplan.models.rules.registry import Legal, Rule, rules
from optplan.models.spec.plan import Plan
from optplan.models.spec.problem import Problem
from tests.models import samples

DENSE: Mapping[str, Any] = {"workload.sequence_length": 36, "cluster.devices_per_node": 6}


def worlds() -> Iterator[Problem]:
    """Problems in which every rule of three families has something to say."""
    mixed = {**DENSE, **samples.EXPERTS}
    for changes in (DENSE, mixed):
        for name in (None, "megatron-core@0.7", "megatron-core@0.9", "megatron-core@0.15"):
            known = catalogue.framework(name).model_dump(mode="json") if name else None
            yield samples.problem(changes, framework=known)
    for wanted in ("even", [2, 2]):
        yield samples.problem(DENSE, {"search.layers_per_stage": wanted})
    strict = catalogue.framework("megatron-core@0.15").model_dump(mode="json")
    strict["interleaved_multiple"] = "pp*vpp"
    yield samples.problem(DENSE, framework=strict)
    yield samples.problem(DENSE, prices="paper")


def some_rules(problem: Problem) -> list[Rule]:
    """Return the rules of three families that a problem has."""
    families = ("degrees.", "experts.", "pipeline.")
    return [r for r in rules() if r.name.startswith(families) and r.applies(problem)]


VALUES: Mapping[str, Sequence[int]] = {
    "sequence_parallel": (0, 1),
    "hsdp": (0, 1),
    "context": (0, 1),
    "zero": (0, 1, 2, 3),
    "schedule": range(6),
}
"""Values of choices that are no degree; degrees are small numbers."""


def speaks(text: str) -> bool:
    """Tell whether a refusal has its three parts: why, what is legal, what else to change."""
    why, _, rest = text.partition("legal")
    return len(why) > 8 and ("; or " in rest or ", or " in rest)


def test_d31_every_question_of_a_rule_is_answered_in_three_parts() -> None:
    """vllm-project/vllm PR 52535: why, legal values, another axis."""
    refusals: dict[str, set[str]] = {}
    for problem in worlds():
        for rule in some_rules(problem):
            if not isinstance(rule, Legal):
                continue
            degrees = (1, 2, 3, 4, 5, 6, 8)
            tuples = list(product(*(VALUES.get(key, degrees) for key in rule.keys)))
            legal = rule.legal(problem, *np.array(tuples, dtype=np.int64).T)
            for values, ok in zip(tuples, np.broadcast_to(legal, len(tuples)), strict=True):
                text = rule.why(problem, *values)
                if not ok:
                    refusals.setdefault(rule.name, set()).add(text)
                    assert speaks(text), (rule.name, text)
    asked = {r.name for p in worlds() for r in some_rules(p) if isinstance(r, Legal)}
    assert set(refusals) == asked


def test_d31_every_refused_plan_is_told_in_three_parts() -> None:
    """The same of rules that ask a whole plan; of equal chunks both lists are enough."""
    told: set[str] = set()
    for problem in worlds():
        shape = {"tp": 1, "dp": 1, "micro_batch": 1, "global_batch": 8}
        base = samples.plan(problem, pp=2)
        price = estimate(problem, base)
        for plan in changed(base.model_copy(update=shape)):
            for rule in some_rules(problem):
                for finding in rule.holds(problem, plan, price):
                    if not finding.holds:
                        told.add(finding.name)
                        both = finding.name.endswith("[stages]")
                        assert both or speaks(finding.text), (finding.name, finding.text)
    whole = {r.name for p in worlds() for r in some_rules(p) if not isinstance(r, Legal)}
    assert whole <= told
    assert "pipeline.layers[all]" in told


def changed(base: Plan) -> Iterator[Plan]:
    """Plans that break what only a whole plan can break."""
    for tp, dp, cp in ((1, 7, 1), (16, 1, 1), (5, 1, 1), (2, 1, 4), (64, 2, 1)):
        yield base.model_copy(update={"tp": tp, "dp": dp, "cp": cp})
    for schedule, vpp in (("interleaved", 1), ("zb-v", 1), ("1f1b", 2), ("interleaved", 2)):
        for micro_batches in (1, 3, 5):
            update = {"schedule": schedule, "vpp": vpp, "micro_batches": micro_batches}
            yield base.model_copy(update=update)
    for held in ((4,), (2, 1), (3, 2), (4, 0), (3, 1), (1,) * 5):
        none = (0,) * len(held)
        layout = {"pp": len(held), "layers_per_stage": held, "recomputed_layers_per_stage": none}
        yield base.model_copy(update=layout)
        yield base.model_copy(update={**layout, "schedule": "interleaved", "vpp": 2})


def test_d25_every_refused_batch_is_told_in_three_parts() -> None:
    """And what it calls legal is."""
    problem = samples.problem()
    (split,) = (r for r in rules() if r.name == "batch.split")
    base = samples.plan(problem)
    price = estimate(problem, base)
    for dp, size, count, batch in product((1, 2, 3, 7), (1, 2, 5), (1, 3, 18), (6, 7, 256)):
        cut = {"dp": dp, "micro_batch": size, "micro_batches": count, "global_batch": batch}
        (finding,) = split.holds(problem, base.model_copy(update=cut), price)
        assert finding.holds == (dp * size * count == batch)
        if finding.holds:
            continue
        assert speaks(finding.text), finding.text
        named = finding.text.partition("or dp ")[2]
        if batch % (dp * size) and batch % size == 0:
            assert {int(d) for d in named.split(" or ")} <= set(divisors(batch // size))
