"""The bubble in closed form, against the event simulation of 1F1B that defines it (M2)."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optplan.models.cost.estimate import estimate
from optplan.models.cost.memory import in_flight
from optplan.models.cost.schedule import Pass, bubble_seconds, order_1f1b, simulate_1f1b
from optplan.models.formulate import formulate
from tests.models import samples

SECONDS = st.floats(0.001, 1000.0)
STAGES = st.lists(st.tuples(SECONDS, SECONDS), min_size=1, max_size=8)
MICRO_BATCHES = st.integers(1, 24)

Stages = list[tuple[float, float]]


def closed(stages: Stages, m: int) -> float:
    """Seconds of a step by the closed form: the slowest stage's work and the bubble."""
    busy = [forward + backward for forward, backward in stages]
    return m * max(busy) + float(bubble_seconds(busy))


def simulated(stages: Stages, m: int) -> float:
    """Seconds of a step by the event simulation."""
    return max(event.end for event in passes(stages, m))


def passes(stages: Stages, m: int) -> list[Pass]:
    """Every event of a step."""
    return simulate_1f1b([forward for forward, _ in stages], [back for _, back in stages], m)


@pytest.mark.parametrize("m", [1, 2, 3, 4, 8, 16, 32])
@pytest.mark.parametrize("p", [1, 2, 3, 4, 8])
def test_equal_stages_take_exactly_m_plus_p_minus_one_turns(p: int, m: int) -> None:
    """All 35 cases of the paper's notes, among them those with fewer micro-batches than stages."""
    stages = [(0.7, 1.3)] * p
    assert simulated(stages, m) == pytest.approx((m + p - 1) * 2.0, rel=1e-12)
    assert closed(stages, m) == pytest.approx((m + p - 1) * 2.0, rel=1e-12)


@given(STAGES, MICRO_BATCHES)
def test_the_closed_form_is_exact_when_no_stage_is_slower_than_the_last(
    stages: Stages, m: int
) -> None:
    """Slower is meant forward and backward, each for itself."""
    last = (max(forward for forward, _ in stages), max(back for _, back in stages))
    stages = [*stages[:-1], last]
    busy = [forward + back for forward, back in stages]
    assert closed(stages, m) == pytest.approx((m - 1) * max(busy) + sum(busy), rel=1e-9)
    assert simulated(stages, m) == pytest.approx(closed(stages, m), rel=1e-9)


@given(st.lists(SECONDS, min_size=1, max_size=8), st.floats(0.05, 0.95), MICRO_BATCHES)
def test_the_closed_form_is_never_below_the_simulation_where_all_stages_split_alike(
    busy: list[float], share: float, m: int
) -> None:
    """Where forward is the same share of every stage, a price is on the safe side."""
    stages = [(share * x, (1 - share) * x) for x in busy]
    assert simulated(stages, m) <= closed(stages, m) * (1 + 1e-9)


@given(STAGES, MICRO_BATCHES)
def test_no_stages_take_longer_than_the_slowest_forward_and_the_slowest_backward(
    stages: Stages, m: int
) -> None:
    """The bound that holds whatever the stages: every pair of passes as slow as the slowest."""
    pair = max(forward for forward, _ in stages) + max(back for _, back in stages)
    bound = (m - 1) * pair + sum(forward + back for forward, back in stages)
    assert simulated(stages, m) <= bound * (1 + 1e-9)


def test_the_closed_form_can_fall_short_where_stages_split_differently() -> None:
    """A slow backward before a slow forward: the closed form is no bound for such stages."""
    stages = [(1.0, 4.0), (4.0, 1.0), (1.0, 1.0)]
    assert simulated(stages, 2) == 18.0
    assert closed(stages, 2) == 17.0


@given(STAGES, MICRO_BATCHES)
def test_the_simulation_is_never_below_the_slowest_stage_or_the_longest_path(
    stages: Stages, m: int
) -> None:
    """One micro-batch passes every stage twice, and the slowest stage runs all of them."""
    busy = [forward + back for forward, back in stages]
    assert simulated(stages, m) >= max(sum(busy), m * max(busy)) * (1 - 1e-9)


def differences(most: float, alike: bool) -> tuple[float, float]:
    """
    Smallest and largest share by which the closed form exceeds the simulation.

    Over 2000 random pipelines whose stages differ up to ``most`` times; ``alike`` where forward is
    a third of all of them.
    """
    luck, seen = Random(2501), []
    for _ in range(2000):
        forward = [luck.uniform(1.0, most) for _ in range(luck.randint(2, 8))]
        stages = [(x, 2 * (x if alike else luck.uniform(1.0, most))) for x in forward]
        m = luck.randint(1, 24)
        seen.append(closed(stages, m) / simulated(stages, m) - 1)
    return min(seen), max(seen)


@pytest.mark.parametrize(
    ("most", "alike", "short", "over"),
    [
        (1.1, True, 1e-9, 0.04),
        (10, True, 1e-9, 0.5),
        (1.1, False, 0.001, 0.04),
        (10, False, 0.02, 0.5),
    ],
)
def test_the_closed_form_is_near_the_simulation(
    most: float,
    alike: bool,
    short: float,
    over: float,
    record_property: Callable[[str, object], None],
) -> None:
    """The differences seen are printed and recorded, for stages that differ little and much."""
    least, largest = differences(most, alike)
    text = f"stages up to {most} times, {'one share' if alike else 'free shares'} of forward"
    record_property(text, (least, largest))
    print(f"closed form against simulation, {text}: {least:+.2%} to {largest:+.2%}")
    assert -short <= least <= 1e-12
    assert 0.005 < largest < over


def held_at_once(events: list[Pass], stage: int) -> int:
    """Most micro-batches whose forward has begun and whose backward has not ended, at a stage."""
    moves = [
        (event.end, -1) if event.backward else (event.start, 1)
        for event in events
        if event.stage == stage
    ]
    held = most = 0
    for _, step in sorted(moves):
        held += step
        most = max(most, held)
    return most


@given(STAGES, MICRO_BATCHES)
def test_every_stage_holds_as_many_micro_batches_as_memory_counts(stages: Stages, m: int) -> None:
    """``min(p - stage, m)``, whatever the times of the stages."""
    events = passes(stages, m)
    for stage in range(len(stages)):
        assert held_at_once(events, stage) == in_flight(len(stages), m, stage)


@given(STAGES, MICRO_BATCHES)
def test_every_pass_runs_once_after_its_input_and_alone_on_its_stage(
    stages: Stages, m: int
) -> None:
    """What the simulation means by an order of events, asked of its result."""
    p, events = len(stages), passes(stages, m)
    end = {(event.stage, event.micro_batch, event.backward): event.end for event in events}
    assert len(end) == len(events) == 2 * p * m
    for event in events:
        if not event.backward and event.stage:
            needs = (event.stage - 1, event.micro_batch, False)
        elif event.backward and event.stage < p - 1:
            needs = (event.stage + 1, event.micro_batch, True)
        elif event.backward:
            needs = (event.stage, event.micro_batch, False)
        else:
            continue
        assert event.start >= end[needs]
    for stage in range(p):
        own = [event for event in events if event.stage == stage]
        assert [(event.micro_batch, event.backward) for event in own] == order_1f1b(stage, p, m)
        assert all(one.end <= two.start for one, two in pairwise(own))


def test_the_paper_bubble_is_its_four_terms_over_m_times_p_minus_one() -> None:
    """Eq. 8 repaired: no term of the bubble is the bubble, for every plan of a space."""
    noisy = {"calibration.kappa": 0.3, "calibration.overlap_tp": 0.5, "search.global_batch": 16}
    asked = samples.problem(samples.PLAIN, noisy)
    deep = 0
    for point in samples.allowed(formulate(asked)):
        terms = estimate(asked, samples.plan(asked, **point)).terms
        bracket = terms["TF"] + terms["TCT"] + terms["TAT"] - terms["TO"]
        expected = bracket * (point["pp"] - 1) / point["micro_batches"]
        assert terms["TB"] == pytest.approx(expected, rel=1e-12, abs=0)
        deep += point["pp"] > 1
    assert deep > 20


@pytest.mark.parametrize("prices", ["paper", "canonical"])
def test_one_stage_has_no_bubble(prices: str) -> None:
    """TB is zero at p = 1 and above zero beyond."""
    asked = samples.problem(prices=prices)
    for pp in (1, 2, 4):
        bubble = estimate(asked, samples.plan(asked, tp=2, pp=pp)).terms["TB"]
        assert (bubble == 0) == (pp == 1)
        assert bubble >= 0


@pytest.mark.parametrize("m", [1, 2, 7])
def test_a_plan_whose_last_stage_is_slowest_costs_what_the_simulation_says(m: int) -> None:
    """From the plan's own stages, a third of each forward and two thirds backward."""
    asked = samples.problem({"workload.architecture.vocabulary": 3000, "search.global_batch": m})
    found = estimate(asked, samples.plan(asked, tp=2, pp=4, dp=1))
    busy = [use.micro_batch_seconds for use in found.memory.stages]
    assert max(busy) == busy[-1] > busy[0] > busy[1]
    terms = found.terms
    total = terms["TF"] + terms["TCT"] + terms["TAT"] - terms["TO"] + terms["TB"]
    assert total == pytest.approx(simulated([(x / 3, 2 * x / 3) for x in busy], m), rel=1e-12)
