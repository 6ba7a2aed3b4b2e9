"""A problem as a program: its size, its way back, and prices that agree with the estimate."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from itertools import product
from typing import Any

import pytest

from optplan.models.cost.estimate import estimate
from optplan.models.errors import InputError
from optplan.models.formulate import Formulation, even_layers, formulate
from optplan.models.program import LARGEST, Table
from optplan.models.spec.problem import Problem
from optplan.solvers import exhaustive
from tests.models import samples

PAPER: Mapping[str, Any] = {
    **samples.PLAIN,
    "workload.sequence_length": 4096,
    "cluster.nodes": 2,
    "cluster.devices_per_node": 8,
}


def baichuan(batch: object) -> Formulation:
    """Formulate the paper's first job on its 16 devices."""
    changes = {**PAPER, "search.global_batch": batch}
    return formulate(samples.catalogued("baichuan2-7b", "ascend-910b", changes))


def test_the_paper_space_has_15_triples_and_24878_points() -> None:
    """Counted by hand over d t p = 16 and G = b m d, G in 1..512."""
    form = baichuan({"min": 1, "max": 512})
    triples = [
        (d, t, 16 // (d * t)) for d, t in product(range(1, 17), repeat=2) if 16 % (d * t) == 0
    ]
    by_hand = sum(
        sum(1 for b in range(1, batch // d + 1) if (batch // d) % b == 0)
        for d, _, _ in triples
        for batch in range(d, 513, d)
    )
    assert len(triples) == 15
    assert exhaustive.count(form.program) == by_hand == 24_878


def test_fixing_the_batch_leaves_130_points() -> None:
    """The paper's first pruning, by Eq. 15; memory, heads and layers leave 19 to 37 of them."""
    form = baichuan(512)
    found = exhaustive.solve(form.program)
    assert found.census is not None
    assert found.census.points == len(list(samples.points(form.program))) == 130
    assert 19 <= found.census.left <= 37


@pytest.mark.parametrize("seed", range(20))
def test_a_plan_comes_back_from_its_code(seed: int) -> None:
    """Decoding what was encoded, and encoding what was decoded, for every point."""
    form = formulate(samples.random_problem(seed))
    for point in samples.points(form.program):
        plan = form.decode(point)
        assert form.encode(plan) == point
        assert form.decode(form.encode(plan)) == plan
        assert sum(plan.layers_per_stage) == form.problem.workload.architecture.layers


@pytest.mark.parametrize(
    ("layers", "pp", "expected"), [(7, 3, (3, 2, 2)), (4, 4, (1, 1, 1, 1)), (2, 3, (1, 1, 0))]
)
def test_layers_are_handed_out_evenly(layers: int, pp: int, expected: tuple[int, ...]) -> None:
    """Earlier stages take what is left over."""
    assert even_layers(layers, pp) == expected


def legal(problem: Problem, point: Mapping[str, int]) -> bool:
    """Whether heads and layers are divided: only then do prices mean a plan."""
    shape = problem.workload.architecture
    return shape.heads % point["tp"] == 0 and shape.layers % point["pp"] == 0


@pytest.mark.parametrize("seed", range(60))
def test_prices_are_the_estimate_rounded_down_by_a_few_ticks(seed: int) -> None:
    """Never above, so that the optimum is a bound; below by a tick a sequence and two a step."""
    problem = samples.random_problem(seed)
    form = formulate(problem)
    for point in samples.points(form.program):
        if not legal(problem, point):
            continue
        seconds = Fraction(estimate(problem, form.decode(point)).step_seconds)
        price = form.program.evaluate(point)["step_ticks"] * form.tick
        noise = seconds / 10**12
        assert price <= seconds + noise
        assert price >= seconds - (point["global_batch"] + 2) * form.tick - noise


@pytest.mark.parametrize("seed", range(60))
def test_memory_is_the_estimate_to_the_byte(seed: int) -> None:
    """Peak, both ends, and their parts, for every plan whose stages are equal."""
    problem = samples.random_problem(seed)
    form = formulate(problem)
    for point in samples.points(form.program):
        if problem.workload.architecture.layers % point["pp"]:
            continue
        known = form.program.evaluate(point)
        memory = estimate(problem, form.decode(point)).memory
        assert known["peak_bytes"] == memory.peak_bytes
        for end, use in (("first", memory.stages[0]), ("last", memory.stages[-1])):
            assert known[f"peak_{end}"] == use.peak_bytes
            parts = use.parts
            assert known[f"weights_{end}"] == parts["parameters"] + parts["gradients"]
            assert known[f"optimizer_{end}"] == parts["optimizer"]
            assert known[f"activations_{end}"] == parts["activations"]
            assert known[f"working_{end}"] == parts["working"]


@pytest.mark.parametrize("seed", range(30))
def test_no_point_is_cheaper_than_the_least(seed: int) -> None:
    """The bound that costs nothing, and it is above zero wherever there is a plan."""
    form = formulate(samples.random_problem(seed))
    least, goals = form.program.goal.least, []
    assert least is not None
    for point in samples.allowed(form):
        known = form.program.evaluate(point)
        goals.append(Fraction(known["step_ticks"], known["global_batch"]))
    assert all(goal >= least for goal in goals)
    assert not goals or least > 0


TINY: Mapping[str, Any] = {
    "workload.architecture.layers": 1,
    "workload.architecture.hidden": 1,
    "workload.architecture.heads": 1,
    "workload.architecture.kv_heads": 1,
    "workload.architecture.ffn": 1,
    "workload.architecture.vocabulary": 1,
    "workload.sequence_length": 1,
    "cluster.accelerator.peak": {"bf16": "1000 PFLOP/s"},
}
HUGE: Mapping[str, Any] = {
    "workload.architecture.layers": 1024,
    "workload.architecture.hidden": 1_048_576,
    "workload.architecture.heads": 8192,
    "workload.architecture.kv_heads": 8192,
    "workload.architecture.ffn": 4_194_304,
    "workload.architecture.vocabulary": 1_000_000,
    "workload.sequence_length": 1_048_576,
    "cluster.accelerator.hbm": "30 TB",
}
MACHINES: Mapping[str, Mapping[str, Any]] = {
    "one device": {"cluster.nodes": 1, "cluster.devices_per_node": 1},
    "a thousand": {"cluster.nodes": 128, "cluster.devices_per_node": 8},
    "a million": {"cluster.nodes": 2**17, "cluster.devices_per_node": 8},
}
BATCHES: Mapping[str, object] = {
    "one": 1,
    "many": 100_000,
    "a million": 2**20,
    "a range": {"min": 1024, "max": 100_000, "multiple_of": 1024},
    "far apart": [1, 100_000],
}


SHAPES: Mapping[str, Mapping[str, Any]] = {"tiny": TINY, "small": {}, "huge": HUGE}

EXTREMES = list(product(SHAPES, MACHINES, BATCHES))


@pytest.mark.parametrize(("shape", "machine", "batch"), EXTREMES)
def test_extreme_problems_stay_within_64_bits(shape: str, machine: str, batch: str) -> None:
    """Every column lies within 2^60, on either side of zero."""
    form = formulate(samples.problem(SHAPES[shape], MACHINES[machine], asked_batch(batch)))
    for name, (low, high) in form.program.bounds.items():
        assert -LARGEST <= low <= high <= LARGEST, name


def asked_batch(batch: str) -> dict[str, object]:
    """The change that asks for a batch."""
    return {"search.global_batch": BATCHES[batch]}


@pytest.mark.parametrize(("shape", "machine", "batch"), EXTREMES)
def test_the_best_plan_of_an_extreme_problem_is_priced_finely_once_it_is_known(
    shape: str, machine: str, batch: str
) -> None:
    """Ticks as fine as the plan deserves: one part in two million; memory is no object here."""
    problem = samples.problem(SHAPES[shape], MACHINES[machine], asked_batch(batch))
    form = formulate(problem)
    memory = frozenset(n for n in form.program.constraints if n.startswith("capacity."))
    found = exhaustive.solve(form.program.without(memory))
    known, rows = problem.workload.architecture, form.program.statements
    spans = {s.name: s.rows for s in rows if isinstance(s, Table) and s.spans}
    degrees = [
        dp
        for tp, pp, dp in spans["degrees.world"].tolist()
        if known.heads % tp == 0 and known.layers % pp == 0
    ]
    assert bool(found.best) == (not set(degrees).isdisjoint(spans["batch.split"][:, 0].tolist()))
    for point in found.best:
        plan = form.decode(point)
        seconds = estimate(problem, plan).step_seconds
        coarse = form.program.evaluate(point)["step_ticks"] * float(form.tick)
        assert -form.rounding_seconds(plan) <= coarse - seconds <= 1e-12 * seconds
        finer = formulate(problem, near=seconds / plan.global_batch)
        price = finer.program.evaluate(point)["step_ticks"] * float(finer.tick)
        assert seconds * (1 - 5e-7) <= price <= seconds * (1 + 1e-12), point


def test_an_empty_search_is_a_program_without_points() -> None:
    """What no layout has is no fault of the input: an answer, not an error."""
    for changes in ({"search.tp": 3}, {"search.dp": 16}, {"search.micro_batch": 5}):
        form = formulate(samples.problem(changes))
        assert exhaustive.count(form.program) == 0
        assert exhaustive.solve(form.program).best == ()


def test_a_space_too_large_to_write_down_is_refused_with_the_choice_to_narrow() -> None:
    """Instead of an endless table."""
    wide = {"search.global_batch": {"min": 1, "max": 20_000}}
    with pytest.raises(InputError, match="give micro_batch a shorter list"):
        formulate(samples.problem(MACHINES["a million"], wide))


def test_a_tick_is_a_power_of_ten() -> None:
    """So that seconds in limits are whole ticks."""
    for seed in range(20):
        tick = formulate(samples.random_problem(seed)).tick
        assert tick == Fraction(10) ** round(math.log10(tick))


def test_bytes_that_outgrow_64_bits_are_priced_all_the_same() -> None:
    """Embedding and loss of a huge micro-batch, on a memory so slow that they are the price."""
    slow = {"cluster.accelerator.hbm_bandwidth": "1 B/s"}
    problem = samples.problem(HUGE, MACHINES["one device"], asked_batch("a million"), slow)
    form = formulate(problem)
    flags = ("sequence_parallel", "recompute", "zero")
    point = dict.fromkeys(("tp", "pp", "dp", "micro_batches"), 1) | dict.fromkeys(flags, 0)
    point |= {"micro_batch": 2**20, "global_batch": 2**20}
    seconds = estimate(problem, form.decode(point)).step_seconds
    price = form.program.evaluate(point)["step_ticks"] * float(form.tick)
    assert price == pytest.approx(seconds, rel=1e-6)
