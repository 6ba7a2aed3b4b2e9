"""Each rule in its triples, and its two faces asked the same."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optplan.judge import judge
from optplan.models.cost.estimate import estimate
from optplan.models.formulate import CHOICES, Formulation, formulate
from optplan.models.program import Program
from optplan.models.rules.registry import Legal, Rule, rules
from optplan.models.spec.framework import CONTEXTS
from optplan.models.spec.plan import Plan
from optplan.models.spec.problem import Problem
from optplan.models.spec.space import ORDERS, RECOMPUTES
from optplan.solvers import exhaustive
from tests.golden import FOLDER
from tests.models import samples
from tests.models.rules.triples import EIGHT, IMPLIED, STRICT, TRIPLES, WOVEN, asked, launched

NAMES = [rule.name for rule in rules()]


def broken_by_program(form: Formulation, plan: Plan) -> set[str]:
    """Rules that the program says are broken, without their instances."""
    return {name.partition("[")[0] for name in form.program.broken(form.encode(plan))}


def broken_by_judge(form: Formulation, plan: Plan) -> set[str]:
    """Rules that the second faces say are broken, without their instances."""
    verdict = judge(form.problem, form.rules, plan, estimate(form.problem, plan))
    return {name.partition("[")[0] for name in verdict.broken}


def feasible(form: Formulation, plan: Plan, program: Program | None = None) -> bool:
    """Whether an exhaustive pass over this one point finds it."""
    code = form.encode(plan)
    fixed = (program or form.program).fixed({name: (code[name],) for name in CHOICES})
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
    alone = form.program.without(frozenset(form.program.constraints) - {name})
    assert not set(alone.broken(form.encode(plan)))
    assert feasible(form, plan, alone)


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
    """The verdict names the stages."""
    problem, plan = TRIPLES["capacity.hbm"]().breaks
    form = formulate(problem)
    verdict = judge(problem, form.rules, plan, estimate(problem, plan))
    stages = estimate(problem, plan).memory.stages
    fullest = max(stages, key=lambda use: use.peak_bytes)
    over = [use.stage for use in stages if use.peak_bytes == fullest.peak_bytes]
    assert set(verdict.broken) == {f"capacity.hbm[stage={stage}]" for stage in over}
    assert set(form.program.broken(form.encode(plan))) == {"capacity.hbm"}


def test_layers_that_are_handed_out_wrongly_are_refused_by_both_faces() -> None:
    """One lost, a stage left empty, chunks unequal, or not what the spec asks for."""
    wrong: list[tuple[Mapping[str, Any], dict[str, Any]]] = [
        ({}, {"pp": 2, "layers": (2, 1)}),
        ({}, {"pp": 2, "layers": (4, 0)}),
        (EIGHT, {"pp": 2, **WOVEN, "layers": (5, 3)}),
        ({"search.layers_per_stage": [3, 1]}, {"pp": 2, "layers": (2, 2)}),
        ({"search.layers_per_stage": "even"}, {"pp": 2, "layers": (1, 3)}),
    ]
    for changes, values in wrong:
        problem, plan = asked(changes, **values)
        form = formulate(problem)
        assert broken_by_judge(form, plan) == {"pipeline.layers"}
        assert "price.step_time" in broken_by_program(form, plan)


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
    texts = {path.stem for path in (FOLDER / "rules").glob("*.txt")} - {
        "program-paper",
        "program-canonical",
    }
    assert set(TRIPLES) == set(NAMES) == texts
    assert len(NAMES) == len(set(NAMES))


def drawn(luck: Random, form: Formulation) -> dict[str, int]:
    """Any values of the choices; mostly a point of the space, for else little can be asked."""
    point = {name: luck.choice(values) for name, values in form.program.domain.items()}
    inside = samples.drawn(luck, form) if luck.random() < 0.8 else None
    return inside or samples.handed_out(luck, form, point)


def spoiled(luck: Random, form: Formulation, plan: Plan) -> Plan:
    """Move or lose a layer, or an expert, or leave the plan as it is."""
    if form.problem.workload.architecture.experts and luck.random() < 0.2:
        plan = plan.model_copy(update={"ep": luck.randint(1, 5)})
    layers, again = list(plan.layers_per_stage), list(plan.recomputed_layers_per_stage)
    if luck.random() < 0.8 or min(layers) < 1:
        return plan
    layers[luck.randrange(plan.pp)] += luck.choice([-1, 1])
    if luck.random() < 0.5:
        layers[luck.randrange(plan.pp)] += luck.choice([-1, 1])
    layers = [max(0, n) for n in layers]
    full = plan.layers_per_stage == plan.recomputed_layers_per_stage
    again = layers if full else [min(r, n) for r, n in zip(again, layers, strict=True)]
    changed = {"layers_per_stage": tuple(layers), "recomputed_layers_per_stage": tuple(again)}
    return plan.model_copy(update=changed)


SHAPELESS = {
    "degrees.world",
    "experts.count",
    "experts.world",
    "batch.split",
    "pipeline.schedule",
    "pipeline.layers",
}
"""Rules without which a plan has no price in the program."""


def plainly(form: Formulation, plan: Plan) -> Plan:
    """Give flags without meaning the only value that the program has for them."""
    domain = form.program.domain
    changed: dict[str, str] = {}
    if plan.cp == 1:
        changed["context"] = CONTEXTS[min(domain["context"])]
    if plan.pp == 1 or plan.dp == 1 or form.problem.cluster.nodes == 1:
        changed["order"] = ORDERS[min(domain["order"])]
    return plan.model_copy(update=changed)


def agree(form: Formulation, plan: Plan) -> set[str]:
    """
    Compare both faces of one plan, and return what is broken.

    Where products or layers do not fit, no price is defined or stages are odd: there memory is not
    compared. A value that the framework or the spec excludes is none of the program's choice.
    """
    plan = plainly(form, plan)
    program, verdict = broken_by_program(form, plan), broken_by_judge(form, plan)
    outside = {name for name in program if name.startswith("choice.")}
    for name in outside:
        choice = name.partition(".")[2]
        assert {f"framework.{choice}", f"search.{choice}"} & verdict or SHAPELESS & verdict
    excluded = {f"{who}.{n.partition('.')[2]}" for n in outside for who in ("framework", "search")}
    tables = {n for n in program if n.startswith(("price.", "memory.", "place.", "pipeline.shape"))}
    assert not tables or SHAPELESS & verdict
    handed = {"pipeline.layers", "price.step_time"} & program
    assert handed or "pipeline.layers" not in verdict or len(SHAPELESS & verdict) > 1
    odd = bool(SHAPELESS & verdict)
    if "pipeline.layers" in verdict:
        program -= {"pipeline.schedule"} - verdict  # more stages than layers are no points
    memory = {name for name in program | verdict if name.startswith(("capacity.", "limits."))}
    skip = tables | outside | excluded | (memory | {"pipeline.layers"} if odd else set())
    if outside:
        assert verdict - skip <= program, plan  # a table that lacks a value refuses for more rules
    else:
        assert program - skip == verdict - skip, plan
    return verdict


@settings(max_examples=25)
@given(st.integers(0, 400), st.integers(0, 10**6))
def test_both_faces_name_the_same_rules_for_any_plan(problem: int, plan: int) -> None:
    """Random plans of random problems, whether or not their products fit."""
    form = formulate(samples.random_problem(problem))
    luck = Random(plan)
    for _ in range(3):
        agree(form, spoiled(luck, form, form.decode(drawn(luck, form))))


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("world", ["paper", "classic"])
def test_both_faces_name_the_same_rules_for_every_point(seed: int, world: str) -> None:
    """Every point of a few spaces, and the exhaustive census finds just the ones that stay."""
    changes: dict[str, Any] = {"search.global_batch": 12, "cluster.accelerator.hbm": "1 TB"}
    changes |= (
        {"prices": "paper"} if world == "paper" else {**samples.CLASSIC, "prices": "canonical"}
    )
    changes |= {"cluster.nodes": 2, "cluster.devices_per_node": 2, "search.zero": [0, 1]}
    changes |= {"search.micro_batch": [1, 3], "search.ep": [1, 2], "search.etp": 1}
    form = formulate(samples.random_problem(seed, **changes))
    verdicts = [agree(form, form.decode(point)) for point in samples.points(form.program)]
    census = exhaustive.solve(form.program).census
    assert census is not None
    assert census.points == len(verdicts)
    assert census.left == sum(not verdict for verdict in verdicts)


def test_every_rule_is_broken_by_some_random_plan() -> None:
    """The agreement above is asked about every rule of the registry, and of frameworks."""
    seen: set[str] = set()
    strict = launched(**STRICT)
    sparse = {**samples.EXPERTS, **strict, "prices": "canonical", "overlap": None}
    for seed in range(90):
        changes = sparse if seed % 3 == 0 else {}
        form = formulate(samples.random_problem(seed, **changes))
        luck = Random(seed)
        for _ in range(4):
            seen |= agree(form, spoiled(luck, form, form.decode(drawn(luck, form))))
    assert set(NAMES) <= seen


def test_what_the_search_asks_is_a_rule_with_two_faces() -> None:
    """Widened, the program refuses by ``search.<choice>`` what the verdict refuses."""
    wanted = {"search.tp": [1, 2], "search.recompute": "none", "search.zero": 1, "search.cp": 2}
    wanted |= {"search.schedule": ["gpipe", "1f1b"], "search.order": "pipeline_inside"}
    form = formulate(samples.problem(wanted), widened=True)
    luck, seen = Random(1), set()
    for _ in range(150):
        seen |= agree(form, form.decode(drawn(luck, form)))
    assert set(wanted) <= seen


def test_what_a_framework_launches_is_a_rule_with_two_faces() -> None:
    """Widened, the program refuses by ``framework.<choice>`` what the verdict refuses."""
    less = launched(
        schedules=["1f1b"], zero=[0, 1], recompute=["none", "full"], context=[], hsdp=False,
        tensor=False, experts=False,
    )  # fmt: skip
    form = formulate(samples.problem(less, samples.EXPERTS), widened=True)
    luck, seen = Random(1), set()
    for _ in range(150):
        seen |= agree(form, form.decode(drawn(luck, form)))
    choices = ("schedule", "zero", "recompute", "cp", "hsdp", "tp", "ep")
    assert {f"framework.{choice}" for choice in choices} <= seen
    narrow = formulate(samples.problem(less, samples.EXPERTS)).program.domain
    assert all(len(narrow[name]) == 1 for name in ("schedule", "cp", "hsdp", "tp", "ep"))


class OnlyFull(Legal):
    """A rule of a user's own over recomputation."""

    name = "house.full"
    sentence = "everything is computed again"
    source = "this test"
    keys = ("recompute",)

    def legal(self, problem: Problem, *values: Any) -> Any:
        """Ask for the word's code."""
        return np.equal(values[0], RECOMPUTES.index("full"))

    def why(self, problem: Problem, *values: int) -> str:
        """Name the code."""
        return f"recompute {values[0]}"


def test_a_legal_rule_over_recomputation_has_two_faces_that_agree() -> None:
    """The second face must see the plan's own word."""
    form = formulate(samples.problem(samples.CLASSIC), (OnlyFull(),))
    found = samples.allowed(form)
    assert found
    for point in found:
        assert agree(form, form.decode(point)) == set()
