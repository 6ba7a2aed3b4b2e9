"""Each rule in triples, just kept, just broken, far off; and its two faces asked the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optplan.judge import judge
from optplan.models.cost.estimate import estimate
from optplan.models.formulate import Formulation, formulate
from optplan.models.rules.registry import Legal, Rule, rules
from optplan.models.spec.plan import Plan
from optplan.models.spec.problem import Problem
from optplan.solvers import exhaustive
from tests.golden import FOLDER
from tests.models import samples

Asked = tuple[Problem, Plan]
"""A plan, and the problem it is an answer to."""


def asked(changes: Mapping[str, Any], **values: Any) -> Asked:
    """Build a problem and a plan of it."""
    problem = samples.problem(changes)
    return problem, samples.plan(problem, **values)


@dataclass(frozen=True)
class Triple:
    """Three plans: one that just keeps a rule, one that just breaks it, one far off."""

    fits: Asked
    breaks: Asked
    far: Asked


def divides(tp: int, far: int, counts: Mapping[str, int]) -> Triple:
    """Make a triple of a rule that tp divides something, on 48 devices."""
    room = {"cluster.nodes": 2, "cluster.devices_per_node": 24, "search.global_batch": 48}
    fine = {f"workload.architecture.{name}": count for name, count in counts.items()}
    return Triple(
        asked(room | fine, tp=tp), asked(room | fine, tp=2 * tp), asked(room | fine, tp=far)
    )


def fits(part: str, sequence: int, **values: Any) -> Triple:
    """Make a triple of a memory rule: a device that its parts fill, one byte less, half of it."""
    long = {"workload.sequence_length": sequence}
    problem, plan = asked(long | {"cluster.accelerator.hbm": "1 GB"}, **values)
    rule = next(known for known in rules() if known.name == f"capacity.{part}")
    parts: tuple[str, ...] = rule.parts  # type: ignore[attr-defined]
    stages = estimate(problem, plan).memory.stages
    held = max(sum(use.parts[p] for p in parts) for use in stages)

    def on(room: int) -> Asked:
        return asked(long | {"cluster.accelerator.hbm": f"{room + 1_000_000} B"}, **values)

    return Triple(on(held), on(held - 1), on(held // 2))


PAPER = {
    "prices": "paper",
    "cluster.nodes": 4,
    "search.global_batch": 16,
    "workload.architecture.heads": 16,
    "workload.architecture.kv_heads": 16,
}
DEEP = {"tp": 2, "pp": 2, "micro_batch": 2}

TRIPLES: Mapping[str, Callable[[], Triple]] = {
    "degrees.world": lambda: Triple(
        asked({}, tp=2, pp=2, dp=2), asked({}, tp=2, pp=1, dp=2), asked({}, tp=8, pp=8, dp=8)
    ),
    "degrees.heads": lambda: divides(4, 16, {"heads": 12, "kv_heads": 12, "hidden": 96}),
    "degrees.kv_heads": lambda: divides(4, 24, {"heads": 24, "kv_heads": 4, "hidden": 96}),
    "degrees.ffn": lambda: divides(4, 16, {"ffn": 60, "heads": 48, "kv_heads": 48, "hidden": 96}),
    "degrees.node": lambda: Triple(asked(PAPER, tp=4), asked(PAPER, tp=8), asked(PAPER, tp=16)),
    "degrees.sequence_parallel": lambda: Triple(
        asked({"workload.sequence_length": 32}, tp=2, sequence_parallel=1),
        asked({"workload.sequence_length": 33}, tp=2, sequence_parallel=1),
        asked({}, tp=1, sequence_parallel=1),
    ),
    "degrees.zero": lambda: Triple(
        asked({}, tp=4, dp=2, zero=1),
        asked({}, tp=4, pp=2, dp=1, zero=1),
        asked({"cluster.nodes": 1, "cluster.devices_per_node": 1}, zero=1),
    ),
    "batch.split": lambda: Triple(
        asked({}, dp=8, micro_batch=1, micro_batches=1),
        asked({}, dp=8, micro_batch=1, micro_batches=2),
        asked({}, dp=8, micro_batch=8, micro_batches=8),
    ),
    "pipeline.layers": lambda: Triple(
        asked({"workload.architecture.layers": 4}, pp=4),
        asked({"workload.architecture.layers": 5}, pp=4),
        asked({"workload.architecture.layers": 1}, pp=8),
    ),
    "capacity.parameters": lambda: fits("parameters", 8, **DEEP),
    "capacity.optimizer": lambda: fits("optimizer", 32, **DEEP, zero=1),
    "capacity.activations": lambda: fits("activations", 512, **DEEP),
    "capacity.hbm": lambda: fits("hbm", 32, **DEEP, sequence_parallel=1, recompute=1),
}
"""One triple for every rule of the registry."""

IMPLIED = {
    "degrees.heads": {"degrees.kv_heads"},
    "capacity.parameters": {"capacity.optimizer", "capacity.hbm"},
    "capacity.optimizer": {"capacity.hbm"},
    "capacity.activations": {"capacity.hbm"},
}
"""
Rules that break with a rule: what fills a device by a part alone leaves no room for the rest, and
key heads divide the heads.
"""

NAMES = [rule.name for rule in rules()]


def broken_by_program(form: Formulation, plan: Plan) -> set[str]:
    """Rules that the program says are broken, without their instances."""
    return {name.partition("[")[0] for name in form.program.broken(form.encode(plan))}


def broken_by_judge(form: Formulation, plan: Plan) -> set[str]:
    """Rules that the second faces say are broken, without their instances."""
    verdict = judge(form.problem, form.rules, plan, estimate(form.problem, plan))
    return {name.partition("[")[0] for name in verdict.broken}


def feasible(form: Formulation, plan: Plan) -> bool:
    """Whether an exhaustive pass over this one point finds it."""
    fixed = form.program.fixed({name: (value,) for name, value in form.encode(plan).items()})
    return bool(exhaustive.solve(fixed).best)


@pytest.mark.parametrize("name", NAMES)
def test_a_plan_that_just_fits_is_taken_by_both_faces(name: str) -> None:
    """By all rules; where it fills memory by a part alone, by all but those that count more."""
    problem, plan = TRIPLES[name]().fits
    form = formulate(problem)
    assert name in {rule.name for rule in form.rules}
    more = IMPLIED.get(name, set()) if name.startswith("capacity.") else set()
    assert broken_by_program(form, plan) == broken_by_judge(form, plan) == more
    assert feasible(form, plan) == (not more)
    narrow = replace(
        form, program=form.program.without(frozenset(form.program.constraints) - {name})
    )
    assert feasible(narrow, plan)


@pytest.mark.parametrize("which", ["breaks", "far"])
@pytest.mark.parametrize("name", NAMES)
def test_a_plan_that_does_not_is_refused_by_both_faces(name: str, which: str) -> None:
    """By name, in the program and in the verdict."""
    problem, plan = getattr(TRIPLES[name](), which)
    form = formulate(problem)
    assert name in broken_by_program(form, plan)
    assert name in broken_by_judge(form, plan)
    assert not feasible(form, plan)


@pytest.mark.parametrize("name", NAMES)
def test_a_plan_that_just_does_not_breaks_that_rule_alone(name: str) -> None:
    """Save those that it implies."""
    problem, plan = TRIPLES[name]().breaks
    assert broken_by_judge(formulate(problem), plan) == {name} | IMPLIED.get(name, set())


def test_a_stage_one_byte_over_is_named() -> None:
    """The verdict names the stages, the program the end of the pipeline."""
    problem, plan = TRIPLES["capacity.hbm"]().breaks
    form = formulate(problem)
    verdict = judge(problem, form.rules, plan, estimate(problem, plan))
    stages = estimate(problem, plan).memory.stages
    fullest = max(stages, key=lambda use: use.peak_bytes)
    over = [use.stage for use in stages if use.peak_bytes == fullest.peak_bytes]
    assert set(verdict.broken) == {f"capacity.hbm[stage={stage}]" for stage in over}
    ends = {"first": 0, "last": plan.pp - 1}
    named = {f"capacity.hbm[stage={end}]" for end, stage in ends.items() if stage in over}
    assert set(form.program.broken(form.encode(plan))) == named


@pytest.mark.parametrize("rule", rules(), ids=NAMES)
def test_no_rule_of_the_registry_is_without_its_papers(rule: Rule) -> None:
    """A triple, a sentence, a source, a door sign, and a golden text."""
    assert rule.name in TRIPLES
    assert len(rule.sentence.split()) > 3
    assert not rule.sentence.endswith(".")
    assert len(rule.source.split()) > 3
    assert type(rule).__doc__
    assert (FOLDER / "rules" / f"{rule.name}.txt").is_file()


def test_no_triple_or_golden_text_is_left_of_a_rule_that_is_gone() -> None:
    """The registry is all there is."""
    texts = {path.stem for path in (FOLDER / "rules").glob("*.txt")} - {"program"}
    assert set(TRIPLES) == set(NAMES) == texts
    assert len(NAMES) == len(set(NAMES))


def drawn(luck: Random, form: Formulation) -> dict[str, int]:
    """Any values of the choices; mostly a point of the space, for else little can be asked."""
    domain = form.program.domain
    point = {name: luck.choice(values) for name, values in domain.items()}
    if luck.random() < 0.8:
        inside = luck.choice(list(samples.points(form.program)))
        point |= {name: inside[name] for name in domain}
    return point


def agree(form: Formulation, point: Mapping[str, int]) -> set[str]:
    """
    Compare both faces of one assignment, and return what is broken.

    Where products or layers do not fit, no price is defined and stages are uneven: there memory is
    not compared.
    """
    plan = form.decode(point)
    program, verdict = broken_by_program(form, plan), broken_by_judge(form, plan)
    assert ("degrees.world" in program) == ("degrees.world" in verdict)
    odd = {"degrees.world", "batch.split", "pipeline.layers"} & verdict
    priced = {name for name in program | verdict if name.startswith(("capacity.", "limits."))}
    tables = {name for name in program if name.startswith(("price.", "memory."))}
    assert not tables or "degrees.world" in verdict
    skip = tables | (priced if odd else set())
    assert program - skip == verdict - skip
    return verdict


@given(st.integers(0, 400), st.integers(0, 10**6))
def test_both_faces_name_the_same_rules_for_any_plan(problem: int, plan: int) -> None:
    """Random plans of random problems, whether or not their products fit."""
    form = formulate(samples.random_problem(problem))
    agree(form, drawn(Random(plan), form))


@pytest.mark.parametrize("seed", range(12))
def test_both_faces_name_the_same_rules_for_every_point(seed: int) -> None:
    """Every point of a few spaces, and the exhaustive census finds just the ones that stay."""
    form = formulate(samples.random_problem(seed, **{"search.global_batch": 12}))
    verdicts = [agree(form, point) for point in samples.points(form.program)]
    census = exhaustive.solve(form.program).census
    assert census is not None
    assert census.points == len(verdicts)
    assert census.left == sum(not verdict for verdict in verdicts)


def test_every_rule_is_broken_by_some_random_plan() -> None:
    """The agreement above is asked about every rule of the registry."""
    seen: set[str] = set()
    for seed in range(200):
        form = formulate(samples.random_problem(seed))
        luck = Random(seed)
        for _ in range(5):
            seen |= agree(form, drawn(luck, form))
    assert set(NAMES) <= seen


def test_what_the_search_asks_is_a_rule_with_two_faces() -> None:
    """Widened, the program refuses by ``search.<choice>`` what the verdict refuses."""
    wanted = {"search.tp": [1, 2], "search.recompute": "none", "search.zero": 1}
    form = formulate(samples.problem(wanted), widened=True)
    seen: set[str] = set()
    for point in samples.points(form.program):
        seen |= agree(form, point)
    assert {"search.tp", "search.recompute", "search.zero"} <= seen


class OnlyFull(Legal):
    """A rule of a user's own over recomputation."""

    name = "house.full"
    sentence = "everything is computed again"
    source = "this test"
    keys = ("recompute",)

    def legal(self, problem: Problem, *values: Any) -> Any:
        """Ask for the word's code."""
        return np.equal(values[0], 1)

    def why(self, problem: Problem, *values: int) -> str:
        """Name the code."""
        return f"recompute {values[0]}"


def test_a_legal_rule_over_recomputation_has_two_faces_that_agree() -> None:
    """The second face must see the plan's own word."""
    form = formulate(samples.problem(), (OnlyFull(),))
    for point in samples.allowed(form):
        assert agree(form, point) == set()
