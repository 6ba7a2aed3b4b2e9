"""Prices of pipeline schedules, against the event simulation that defines them (M2)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optplan.models.cost.schedule import (
    SPLIT,
    allowed,
    bubble_seconds,
    chunks,
    enough,
    even_bubble_seconds,
    even_seconds,
    excess_seconds,
    flight,
    late_seconds,
    uneven_seconds,
)
from optplan.models.cost.simulation import held, order, place, simulate, step_seconds
from optplan.models.spec.framework import SCHEDULES, Schedule
from tests.schedules import SPREADS, Rows, Seconds, row

BARRIER = pytest.mark.parametrize("barrier", [False, True])
EVERY = pytest.mark.parametrize("schedule", SCHEDULES)
SECONDS = st.floats(0.001, 1000.0)
STAGES = st.lists(st.tuples(SECONDS, SECONDS), min_size=1, max_size=8)
MICRO_BATCHES = st.integers(1, 24)

Stages = list[tuple[float, float]]


def grid(schedule: Schedule) -> list[tuple[int, int, int]]:
    """All ``(p, v, m)`` up to 8, 4 and 24 that a schedule runs."""
    return [
        (p, v, m)
        for p in range(1, 9)
        for v in (range(1, 5) if schedule == "interleaved" else [chunks(schedule)])
        for m in range(1, 25)
        if allowed(schedule, p, v, m)
    ]


def times(seed: int, size: int = 60) -> tuple[Seconds, Seconds, Seconds]:
    """
    Seconds of forward, backward and weights of many kinds of chunk.

    A third each: as blocks take them (``w <= f <= b``), free within four decades, and corners in
    which one is zero or all are equal.
    """
    luck = np.random.default_rng(seed)
    usual = np.ones(size), luck.uniform(1.0, 3.0, size), luck.uniform(0.3, 1.0, size)
    free = 10 ** luck.uniform(-2.0, 2.0, (3, size))
    corners = luck.integers(0, 3, (3, size)).astype(float)
    corners[:, 0] = 1.0
    f, b, w = (np.concatenate(three) for three in zip(usual, free, corners, strict=True))
    return f, b, w


def even(p: int, v: int, one: Seconds) -> Rows:
    """Give every chunk the same."""
    return [[one] * v] * p


def between(schedule: Schedule, p: int, m: int) -> bool:
    """Tell where the price of a V is exact for usual chunks alone."""
    return schedule == "zb-v" and p < m < 2 * p - 1


@BARRIER
@EVERY
def test_equal_chunks_take_what_the_closed_form_says(schedule: Schedule, barrier: bool) -> None:
    """Over the whole grid, whatever f, b and w: the bubble is exact."""
    for p, v, m in grid(schedule):
        f, b, w = times(p * m)
        passes = simulate(schedule, even(p, v, f), even(p, v, b), even(p, v, w), m)
        found = np.asarray(step_seconds(passes, barrier))
        price = np.asarray(even_seconds(schedule, p, v, m, f, b, w, barrier))
        assert np.all(price >= found * (1 - 1e-9))
        exact = (w <= f) & (f <= b) if between(schedule, p, m) else np.full(f.shape, True)
        assert price[exact] == pytest.approx(found[exact], rel=1e-9)


@EVERY
def test_deep_pipelines_take_what_the_closed_form_says(schedule: Schedule) -> None:
    """Beyond the grid: 13 and 24 stages."""
    f, b, w = times(5, 8)
    for p in (13, 24):
        v = chunks(schedule, 3)
        for m in (p - 1, p, p + 2, 2 * p - 2, 2 * p - 1, 2 * p):
            if not allowed(schedule, p, v, m):
                continue
            passes = simulate(schedule, even(p, v, f), even(p, v, b), even(p, v, w), m)
            exact = (w <= f) & (f <= b) if between(schedule, p, m) else np.full(f.shape, True)
            for barrier in (False, True):
                price = np.asarray(even_seconds(schedule, p, v, m, f, b, w, barrier))
                found = np.asarray(step_seconds(passes, barrier))
                assert price[exact] == pytest.approx(found[exact], rel=1e-9)


@pytest.mark.parametrize(
    ("schedule", "bubble", "waiting"),
    [
        ("1f1b", 3.0, 3.0),
        ("gpipe", 3.0, 3.0),
        ("interleaved", 3.0, 3.0),
        ("zb-h1", 1.0, 1.0),
        ("zb-h2", 0.0, 1.0),
        ("zb-v", 0.0, 1.0),
    ],
)
def test_the_bubbles_are_those_of_the_papers(
    schedule: Schedule, bubble: float, waiting: float
) -> None:
    """At f = b = w, in units of ``(p - 1) f``: a barrier leaves no schedule without a bubble."""
    for p in range(1, 20):
        assert even_bubble_seconds(schedule, p, 2.0, 2.0, 2.0) == bubble * 2 * (p - 1)
        assert even_bubble_seconds(schedule, p, 2.0, 2.0, 2.0, barrier=True) == waiting * 2 * (
            p - 1
        )


@BARRIER
@EVERY
def test_enough_micro_batches_make_the_bubble_final(schedule: Schedule, barrier: bool) -> None:
    """From there on it is that of no ``m``; before, it is longer, and that of one is the most."""
    f, b, w = times(11)
    usual = (w <= f) & (f <= b) if schedule == "zb-v" else np.full(f.shape, True)
    for p in range(1, 9):
        final = np.asarray(even_bubble_seconds(schedule, p, f, b, w, barrier=barrier))
        one = np.asarray(even_bubble_seconds(schedule, p, f, b, w, 1, barrier))
        before, least = one, int(np.asarray(enough(schedule, p)))
        for m in range(1, 2 * p + 3):
            bubble = np.asarray(even_bubble_seconds(schedule, p, f, b, w, m, barrier))
            assert np.all((bubble <= before + 1e-9)[usual])
            if m >= least:
                assert bubble == pytest.approx(final, rel=1e-12)
            before = bubble
        assert np.all((final <= one + 1e-9)[usual | (w <= b)])


def test_a_v_of_one_micro_batch_bounds_all_others() -> None:
    """While ``w <= b``, asked of the simulation."""
    f, b, w = (x[times(3)[2] <= times(3)[1]] for x in times(3))
    for p, v, m in grid("zb-v"):
        passes = simulate("zb-v", even(p, v, f), even(p, v, b), even(p, v, w), m)
        bound = m * v * (f + b + w) + np.asarray(even_bubble_seconds("zb-v", p, f, b, w, 1))
        assert np.all(np.asarray(step_seconds(passes, True)) <= bound * (1 + 1e-12))


@EVERY
def test_arrays_are_priced_as_their_members_are(schedule: Schedule) -> None:
    """Stages, micro-batches and seconds, all at once; plain numbers stay plain numbers."""
    luck, (f, b, w) = Random(7), times(7)
    p = np.array([luck.randint(1, 9) for _ in f])
    m = p * [luck.randint(1, 3) for _ in f] if schedule == "interleaved" else p + (f > 1) * 2
    v = chunks(schedule, 3)
    for barrier in (False, True):
        many = np.asarray(even_seconds(schedule, p, v, m, f, b, w, barrier))
        for i, price in enumerate(many.tolist()):
            one = even_seconds(
                schedule, int(p[i]), v, int(m[i]), float(f[i]), float(b[i]), float(w[i]), barrier
            )
            assert isinstance(one, float)
            assert one == pytest.approx(price, rel=1e-13)
    for until in ("B", "W"):
        for part, counts in enumerate(flight(schedule, p, v, m, until)):
            numbers = np.broadcast_to(np.asarray(counts), p.shape).tolist()
            for i, number in enumerate(numbers):
                assert flight(schedule, int(p[i]), v, int(m[i]), until)[part] == number
    rows = [[f, b][:v] if v < 3 else [f, b, w], [w, f][:v] if v < 3 else [w, f, b]]
    whole = uneven_seconds(schedule, rows, rows, rows, 6)
    for i, price in enumerate(np.asarray(whole).tolist()):
        single = [[float(time[i]) for time in each] for each in rows]
        assert uneven_seconds(schedule, single, single, single, 6) == pytest.approx(price)


@EVERY
def test_every_order_runs_everything_once(schedule: Schedule) -> None:
    """Each device every op of its own; nothing waits for ever."""
    kinds = "FBW" if schedule in SPLIT else "FB"
    zero = np.zeros(1)
    for p, v, m in grid(schedule):
        every = sorted((kind, c, k) for kind in kinds for c in range(v) for k in range(m))
        for device in range(p):
            assert sorted(order(schedule, p, v, m, device)) == every
        passes = simulate(schedule, even(p, v, zero), even(p, v, zero), even(p, v, zero), m)
        assert len(passes) == p * len(every)
        assert sorted(place(schedule, p, d, c) for d in range(p) for c in range(v)) == list(
            range(p * v)
        )


@EVERY
def test_every_pass_runs_after_its_input_and_alone_on_its_device(schedule: Schedule) -> None:
    """What the simulation means by an order of events, asked of its result."""
    luck = np.random.default_rng(17)
    for p, v, m in grid(schedule)[::7]:
        rows = [[list(row) for row in luck.uniform(0.1, 9.0, (p, v))] for _ in range(3)]
        passes = simulate(schedule, rows[0], rows[1], rows[2], m)
        end = {
            (place(schedule, p, one.device, one.chunk), one.micro_batch, one.kind): one.end
            for one in passes
        }
        free: dict[int, object] = defaultdict(float)
        ran = defaultdict(list)
        for one in passes:
            stage, k = place(schedule, p, one.device, one.chunk), one.micro_batch
            needs = {
                "F": (stage - 1, k, "F"),
                "B": (stage + 1, k, "B") if stage + 1 < p * v else (stage, k, "F"),
                "W": (stage, k, "B"),
            }[one.kind]
            ready = max(float(end.get(needs, 0.0)), float(free[one.device]))  # type: ignore[arg-type]
            assert one.start == ready
            assert (needs in end) == (needs[0] >= 0)
            work = {"F": 0, "B": 1, "W": 2}[one.kind]
            took = rows[work][one.device][one.chunk]
            if one.kind == "B" and schedule not in SPLIT:
                took = took + rows[2][one.device][one.chunk]
            assert one.end == one.start + took
            free[one.device] = one.end
            ran[one.device].append((one.kind, one.chunk, k))
        assert all(ran[d] == order(schedule, p, v, m, d) for d in range(p))


@EVERY
def test_devices_hold_as_much_as_is_counted(schedule: Schedule) -> None:
    """``min(most, first - slope i)`` chunks, until backward and until weights."""
    for p, v, m in grid(schedule):
        for until in ("B", "W"):
            first, slope, most = flight(schedule, p, v, m, until)
            counted = [int(min(most, first - slope * device)) for device in range(p)]
            seen = [held(schedule, p, v, m, device, until) for device in range(p)]
            if schedule == "zb-v" and m < 2 * p - 1:
                assert all(one <= other for one, other in zip(seen, counted, strict=True))
                assert seen[-1] == counted[-1]
            else:
                assert seen == counted


def test_what_is_refused() -> None:
    """No micro-batch, a broken round, chunks that a schedule does not have."""
    assert not allowed("1f1b", 2, 1, 0)
    assert not allowed("1f1b", 2, 2, 4)
    assert not allowed("zb-v", 2, 1, 4)
    assert not allowed("interleaved", 4, 2, 6)
    assert allowed("interleaved", 4, 2, 8)
    with pytest.raises(ValueError, match="interleaved does not run p=1, v=1, m=0"):
        simulate("interleaved", [[1.0]], [[1.0]], [[1.0]], 0)


@BARRIER
@EVERY
def test_no_price_of_unequal_chunks_is_below_the_simulation(
    schedule: Schedule,
    barrier: bool,
    record_property: Callable[[str, object], None],
) -> None:
    """Chunks that differ little and much; the differences seen are recorded."""
    for most, seen in zip(SPREADS, row(schedule, barrier, count=12, size=40), strict=True):
        record_property(f"up to {most:g} times", (float(np.min(seen)), float(np.max(seen))))
        assert np.min(seen) >= -1e-9
        if schedule == "gpipe" or most == 1.0:
            assert np.max(seen) <= 1e-9
        assert np.max(seen) < {1.0: 1e-9, 1.1: 0.1, 2.0: 0.5, 10.0: 1.5}[most]


@BARRIER
@EVERY
def test_no_price_of_extreme_chunks_is_below_the_simulation(
    schedule: Schedule, barrier: bool
) -> None:
    """Six decades apart, and with chunks that take no time."""
    luck = np.random.default_rng(23)
    for p, v, m in grid(schedule)[::5]:
        drawn = 10 ** luck.uniform(-3.0, 3.0, (3, p, v, 40)) * (luck.random((3, p, v, 40)) < 0.8)
        forward, backward, weight = ([list(row) for row in rows] for rows in drawn)
        steps = 1 if barrier else 3
        passes = simulate(schedule, forward, backward, weight, m, steps)
        price = np.asarray(uneven_seconds(schedule, forward, backward, weight, m, True))
        again = np.asarray(uneven_seconds(schedule, forward, backward, weight, m))
        found = np.asarray(step_seconds(passes, True))
        assert np.all(found <= (price + (steps - 1) * again) * (1 + 1e-9))


@EVERY
def test_any_base_bounds_a_step(schedule: Schedule) -> None:
    """Whatever is taken for the equal chunks, their price and the excess are enough."""
    luck = np.random.default_rng(29)
    for p, v, m in grid(schedule)[::11]:
        drawn = 10 ** luck.uniform(-1.0, 1.0, (3, p, v, 30))
        rows = [[list(row) for row in each] for each in drawn]
        f, b, w = 10 ** luck.uniform(-1.0, 1.0, (3, 30))
        price = np.asarray(even_seconds(schedule, p, v, m, f, b, w, barrier=True))
        for each, least in zip(drawn, (f, b, w), strict=True):
            price = price + np.asarray(excess_seconds(list(each.reshape(-1, 30)), least, m))
        passes = simulate(schedule, rows[0], rows[1], rows[2], m)
        assert np.all(np.asarray(step_seconds(passes, True)) <= price * (1 + 1e-9))


def closed(stages: Stages, m: int) -> float:
    """Seconds of a step of 1F1B without what may come late."""
    busy = [forward + backward for forward, backward in stages]
    return m * max(busy) + float(np.asarray(bubble_seconds(busy)))


def late(stages: Stages, m: int) -> float:
    """What may come late."""
    forward, backward = [f for f, _ in stages], [b for _, b in stages]
    return float(np.asarray(late_seconds(forward, backward, m)))


def simulated(stages: Stages, m: int) -> float:
    """Seconds of a step of 1F1B by the event simulation."""
    forward, backward = [[f] for f, _ in stages], [[b] for _, b in stages]
    passes = simulate("1f1b", forward, backward, [[0.0]] * len(stages), m)
    return float(np.asarray(step_seconds(passes)))


@given(STAGES, MICRO_BATCHES)
def test_1f1b_is_never_above_its_price(stages: Stages, m: int) -> None:
    """Whatever the stages."""
    assert simulated(stages, m) <= (closed(stages, m) + late(stages, m)) * (1 + 1e-9)


def test_1f1b_is_never_above_its_price_in_20000_pipelines() -> None:
    """Seeded, half of them six decades wide; some come late, and the price is then met closely."""
    luck, near, seen = np.random.default_rng(31), np.inf, 0
    for p in range(1, 9):
        for m in (1, 2, 3, 4, 5, 6, 8, 12, 17, 24):
            wide = 10 ** luck.uniform(-3.0, 3.0, (2, p, 125))
            few = luck.integers(1, 6, (2, p, 125)).astype(float)
            forward, backward = (list(rows) for rows in np.concatenate([wide, few], axis=2))
            more = np.asarray(late_seconds(forward, backward, m))
            busy = [f + b for f, b in zip(forward, backward, strict=True)]
            price = m * np.max(busy, axis=0) + np.asarray(bubble_seconds(busy)) + more
            passes = simulate(
                "1f1b", [[f] for f in forward], [[b] for b in backward], [[0.0]] * p, m
            )
            found = np.asarray(step_seconds(passes))
            assert np.all(found <= price * (1 + 1e-9))
            seen += found.size
            if np.any(more > 0):
                near = min(near, float(np.min((price / found)[more > 0])))
    assert seen == 20000
    assert near < 1.0001


def test_without_what_comes_late_the_price_of_1f1b_falls_short() -> None:
    """A slow forward behind a slow backward: 18 seconds, of which the stages explain 17."""
    stages = [(1.0, 4.0), (4.0, 1.0), (1.0, 1.0)]
    assert (closed(stages, 2), simulated(stages, 2), late(stages, 2)) == (17.0, 18.0, 2.0)


@given(STAGES, MICRO_BATCHES)
def test_1f1b_is_exact_when_no_stage_is_slower_than_the_last(stages: Stages, m: int) -> None:
    """Slower is meant forward and backward, each for itself."""
    last = (max(forward for forward, _ in stages), max(back for _, back in stages))
    stages = [*stages[:-1], last]
    assert simulated(stages, m) == pytest.approx(closed(stages, m), rel=1e-9)


@given(st.lists(SECONDS, min_size=1, max_size=8), st.floats(0.05, 0.95), MICRO_BATCHES)
def test_nothing_comes_late_in_1f1b_where_all_stages_split_alike(
    busy: list[float], share: float, m: int
) -> None:
    """Where forward is the same share of every stage, the stages explain the step."""
    stages = [(share * x, (1 - share) * x) for x in busy]
    assert simulated(stages, m) <= closed(stages, m) * (1 + 1e-9)


@given(STAGES, MICRO_BATCHES)
def test_the_simulation_is_never_below_the_slowest_stage_or_the_longest_path(
    stages: Stages, m: int
) -> None:
    """One micro-batch passes every stage twice, and the slowest stage runs all of them."""
    busy = [forward + back for forward, back in stages]
    assert simulated(stages, m) >= max(sum(busy), m * max(busy)) * (1 - 1e-9)
