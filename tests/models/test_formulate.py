"""A problem as a program: its size, its way back, and prices that agree with the estimate."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest

from optplan.models.columns import PARTIAL, READS, Columns
from optplan.models.cost.estimate import estimate
from optplan.models.domains import WORDS
from optplan.models.errors import InputError
from optplan.models.formulate import Formulation, even_layers, formulate
from optplan.models.program import LARGEST
from optplan.models.tabulate import ROOM
from optplan.models.ticks import LONGEST_TICKS
from optplan.planner import problem_of, run
from optplan.solvers import exhaustive
from tests.models import samples
from tests.random_problems import random_spec

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
    assert exhaustive.count(form.program) == len(list(samples.points(form.program))) == 130
    assert 19 <= len(samples.allowed(form)) <= 37


def test_the_canonical_space_is_the_one_joined_by_hand() -> None:
    """Degrees up to the devices, flags without meaning fixed, schedules with their chunks."""
    for changes in ({}, {"search.idle_devices": False}, samples.EXPERTS):
        form = formulate(samples.problem(changes, {"search.micro_batch": 2, "search.zero": [1, 3]}))
        found = list(samples.points(form.program))
        assert exhaustive.count(form.program) == len(found) > 2000
        assert len({tuple(point.values()) for point in found}) == len(found)
        for point in found[::7]:
            devices = point["tp"] * point["pp"] * point["dp"] * point["cp"]
            assert devices <= 8
            assert devices == 8 or form.problem.search.idle_devices
            assert point["cp"] > 1 or point["context"] == 0
            assert min(point["pp"], point["dp"]) > 1 or point["order"] == 0


SEEDS = range(48)


@cache
def cases(seed: int) -> list[tuple[Formulation, dict[str, int]]]:
    """Plans of a random problem, of any shape that its rules allow."""
    form = formulate(samples.random_problem(seed))
    return [(form, point) for point in samples.some(form, seed, 12)]


def test_random_plans_reach_every_value_of_every_choice() -> None:
    """So that what is asked of them below is asked of every dimension."""
    seen: dict[str, set[int]] = {}
    for seed in SEEDS:
        for form, point in cases(seed):
            assert form.program.evaluate(point)["pp"] == point["pp"]
            for name in form.program.domain:
                seen.setdefault(name, set()).add(point[name])
    for name, words in WORDS.items():
        assert seen[name] == set(range(len(words))), name
    for name in ("hsdp", "offload", "sequence_parallel"):
        assert seen[name] == {0, 1}, name
    assert seen["zero"] == {0, 1, 2, 3}
    for name in ("tp", "pp", "dp", "cp", "ep", "etp", "vpp"):
        assert len(seen[name]) >= 3, name


@pytest.mark.parametrize("seed", SEEDS)
def test_a_plan_comes_back_from_its_code(seed: int) -> None:
    """Decoding what was encoded, and encoding what was decoded, layers handed out included."""
    for form, point in cases(seed):
        plan = form.decode(point)
        code = form.encode(plan)
        assert form.decode(code) == plan
        if point["recompute"] != PARTIAL:
            assert code == point
        else:
            # Recomputing none or all of the layers is another word for the same plan.
            assert {**code, "recompute": PARTIAL} == point
        assert sum(plan.layers_per_stage) == form.problem.workload.architecture.layers


@pytest.mark.parametrize(
    ("layers", "pp", "expected"), [(7, 3, (3, 2, 2)), (4, 4, (1, 1, 1, 1)), (2, 3, (1, 1, 0))]
)
def test_layers_are_handed_out_evenly(layers: int, pp: int, expected: tuple[int, ...]) -> None:
    """Earlier stages take what is left over."""
    assert even_layers(layers, pp) == expected


@pytest.mark.parametrize("seed", SEEDS)
def test_program_and_estimate_agree_on_every_plan(seed: int) -> None:
    """
    Memory to the byte, time to the ticks that roundings may add up to.

    Under 1F1B without an exchange for every micro-batch nothing is subtracted, and the program is
    never above, so that its optimum is a bound.
    """
    for form, point in cases(seed):
        plan = form.decode(point)
        found = estimate(form.problem, plan)
        known = form.program.evaluate(point)
        assert known["peak_bytes"] == found.memory.peak_bytes, plan
        seconds, price = Fraction(found.step_seconds), known["step_ticks"] * form.tick
        noise = seconds / 10**12
        blur = Fraction(form.rounding_seconds(plan)) + noise
        plain = plan.schedule == "1f1b" and plan.zero < 2
        assert price <= seconds + (noise if plain else blur), plan
        assert price >= seconds - Fraction(found.late_seconds) - blur, plan


@pytest.mark.parametrize("seed", SEEDS)
def test_no_way_of_handing_out_layers_undercuts_the_quick_bounds(seed: int) -> None:
    """What engines discard by is below time and memory of every plan, whatever it recomputes."""
    for form, point in cases(seed):
        known = form.program.evaluate(point)
        pipeline = form.program.pipeline
        assert pipeline is not None
        one = Columns({name: np.array([known[name]], dtype=np.int64) for name in READS})
        time = float(pipeline.quick_step(one)[0])
        assert min(time, pipeline.most) <= known["step_ticks"] * (1 + 1e-12), point
        size = float(pipeline.quick_peak(one)[0]) + pipeline.reserve + known["fetched"]
        assert min(size, pipeline.most_bytes) <= known["peak_bytes"], point


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
SPARSE: Mapping[str, Any] = {
    **HUGE,
    "workload.architecture.experts": {
        "count": 65_536,
        "per_token": 64,
        "ffn": 1_048_576,
        "leading_dense": 3,
    },
    "search.tp": [1, 8, 8192],
    "search.cp": [1, 1024],
    "search.ep": [1, 64, 65_536],
    "search.etp": [1, 8],
}
FULL: Mapping[str, Any] = {"search.idle_devices": False}
MACHINES: Mapping[str, Mapping[str, Any]] = {
    "one device": {"cluster.nodes": 1, "cluster.devices_per_node": 1},
    "a hundred": {"cluster.nodes": 16, "cluster.devices_per_node": 8},
    "a thousand": {"cluster.nodes": 128, "cluster.devices_per_node": 8, **FULL},
    "a million": {"cluster.nodes": 2**17, "cluster.devices_per_node": 8, **FULL},
}
BATCHES: Mapping[str, object] = {
    "one": 1,
    "many": 100_000,
    "a million": 2**20,
    "a range": {"min": 1024, "max": 10_240, "multiple_of": 1024},
    "far apart": [1, 100_000],
}


SHAPES: Mapping[str, Mapping[str, Any]] = {
    "tiny": TINY,
    "small": {},
    "huge": HUGE,
    "sparse": SPARSE,
}

EXTREMES = [
    (shape, machine, batch)
    for shape, machine, batch in product(SHAPES, MACHINES, BATCHES)
    if shape in ("tiny", "small") or batch in ("one", "a million", "far apart")
]


def asked_batch(batch: str) -> dict[str, object]:
    """The change that asks for a batch."""
    return {"search.global_batch": BATCHES[batch]}


@pytest.mark.parametrize(("shape", "machine", "batch"), EXTREMES)
def test_extreme_problems_stay_within_64_bits_and_are_priced_finely_once_a_plan_is_known(
    shape: str, machine: str, batch: str
) -> None:
    """
    Every column lies within 2^60, on either side of zero.

    Ticks are as fine as a plan held deserves: 2^48 of them are eight times the plan, or as many as
    the next power of ten makes; memory is no object here.
    """
    problem = samples.problem(SHAPES[shape], MACHINES[machine], asked_batch(batch))
    form = formulate(problem)
    for name, (low, high) in form.program.bounds.items():
        assert -LARGEST <= low <= high <= LARGEST, name
    for point in samples.some(form, 1, 1):
        plan = form.decode(point)
        found = estimate(problem, plan)
        seconds, late = found.step_seconds, found.late_seconds
        finer = formulate(problem, near=seconds / plan.global_batch)
        assert finer.tick <= form.tick
        assert finer.tick <= 10 * ROOM * seconds / LONGEST_TICKS
        for known in (form, finer):
            price = known.program.evaluate(point)["step_ticks"] * float(known.tick)
            blur = known.rounding_seconds(plan) + 1e-12 * seconds
            assert seconds - late - blur <= price <= seconds + blur, point
        if plan.micro_batches <= 1000:
            assert finer.rounding_seconds(plan) <= 1e-4 * seconds


@pytest.mark.parametrize("seed", [92020, 3, 11, 12, 19])
def test_no_column_outgrows_what_an_engine_can_hold(seed: int) -> None:
    """Seed 92020 fetches weights behind layers, on ticks a thousandth of the usual."""
    problem = problem_of(random_spec(seed))
    fine, _ = run(problem)
    for form in (fine, formulate(problem)):
        wide = {name: ends for name, ends in form.program.bounds.items() if max(ends) > LARGEST}
        assert wide == {}


def test_an_empty_search_is_a_program_without_points() -> None:
    """What no layout has is no fault of the input: an answer, not an error."""
    for changes in ({"search.tp": 16}, {"search.dp": 16}, {"search.micro_batch": 5}):
        form = formulate(samples.problem(changes))
        assert exhaustive.count(form.program) == 0
        assert exhaustive.solve(form.program).best == ()


def test_a_degree_that_divides_nothing_is_refused_by_its_rule() -> None:
    """Devices may be left idle, so that tp 3 is a layout, but one that heads do not allow."""
    form = formulate(samples.problem({"search.tp": 3, "search.micro_batch": 1}))
    assert exhaustive.count(form.program) > 0
    for point in list(samples.points(form.program))[::50]:
        assert "degrees.heads" in set(form.program.broken(samples.even(form, point)))


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
    plan = samples.plan(problem, micro_batch=2**20)
    seconds = estimate(problem, plan).step_seconds
    price = form.program.evaluate(form.encode(plan))["step_ticks"] * float(form.tick)
    assert price == pytest.approx(seconds, rel=1e-6)
