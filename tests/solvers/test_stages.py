"""Sharing out layers: by listing every way, by the tables, by CP-SAT; and bounds of many."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace

import pytest
from ortools.sat.python import cp_model

from optplan.models.stages import Share
from optplan.solvers.cpsat_stages import NEVER, add_rows, prove
from optplan.solvers.stages import Shared, fits, least_room, least_step, share_out
from optplan.solvers.stages_many import NEVER as HUGE
from optplan.solvers.stages_many import Shares, fit_many, memory_bound, quick_bound
from tests.solvers.shares import Way, large, order, real_of, small, ways
from tests.stages_cross import compared

TICKS = "layer again front back once_layer once_front once_back fixed"
BYTES = "room state_layer state_front state_back kept saved working working_last inside"


def shared(share: Share, way: Way) -> Shared:
    return Shared(share.step(*way), share.peak(*way), *way)


@pytest.mark.parametrize("start", range(0, 600, 100))
def test_listing_every_way_finds_the_same(start: int) -> None:
    for seed in range(start, start + 100):
        share = small(seed)
        every = list(ways(share))
        assert fits(share) == bool(every), seed
        if not every:
            assert share_out(share) is None, seed
            assert least_step(share) is None, seed
            assert least_room(share) is None, seed
            continue
        best = shared(share, min(every, key=lambda way: order(share, way)))
        assert share_out(share) == best, seed
        assert least_step(share) == best.step, seed
        least = min(every, key=lambda way: (share.peak(*way), order(share, way)))
        assert least_room(share) == shared(share, least), seed


def test_only_a_faster_step_counts() -> None:
    found = 0
    for seed in range(200):
        share = small(seed)
        best = share_out(share)
        if best is not None:
            found += 1
            assert share_out(share, best.step) is None, seed
            assert share_out(share, best.step + 1) == best, seed
            assert least_step(share, best.step) is None, seed
            assert least_step(share, best.step + 1) == best.step, seed
    assert found > 100


def test_numbers_beyond_int64_are_shared_out_alike() -> None:
    for seed in range(60):
        share = large(seed)
        scaled = {name: getattr(share, name) << 70 for name in f"{TICKS} {BYTES}".split()}
        best, huge = share_out(share), share_out(replace(share, **scaled))
        if best is None:
            assert huge is None
        else:
            assert huge == replace(best, step=best.step << 70, peak=best.peak << 70)


@pytest.mark.parametrize("draw", [small, large])
def test_bounds_of_many(draw: Callable[[int], Share]) -> None:
    alike: dict[int, list[Share]] = defaultdict(list)
    for seed in range(500):
        share = draw(seed)
        alike[share.layers].append(share)
    closest = []
    for group in alike.values():
        shares = Shares.of(group)
        quick, close, fitting = quick_bound(shares), memory_bound(shares), fit_many(shares)
        for i, share in enumerate(group):
            assert shares.at(i) == share
            best = least_step(share)
            assert fitting[i] == fits(share) == (best is not None)
            assert (close[i] == HUGE) == (best is None)
            if best is not None:
                assert quick[i] <= close[i] <= best, share
                closest.append(close[i] == best)
    assert sum(closest) > len(closest) / 2


def test_picking_of_many() -> None:
    group = [share for share in map(large, range(400)) if share.layers == 20]
    shares = Shares.of(group)
    assert len(shares) == len(group) > 3
    picked = shares.take(fit_many(shares))
    assert [picked.at(i) for i in range(len(picked))] == [one for one in group if fits(one)]


def test_a_real_pipeline_is_shared_out_quickly() -> None:
    for stages in (16, 64, 128):
        share = real_of(7, stages, 200)
        start = time.process_time()
        assert share_out(share) is not None
        assert time.process_time() - start < 2


def test_cp_sat_agrees() -> None:
    told = compared(range(100))
    assert not told.mismatches
    assert told.fitting > 70
    assert told.bound_by_memory > 20


def test_cp_sat_picks_among_many() -> None:
    for start in range(0, 400, 100):
        shares = [large(seed) for seed in range(start, start + 100)]
        steps = [step for step in map(least_step, shares) if step is not None]
        proof = prove(shares, together=1 + start // 100)
        assert proof.done
        assert proof.best is not None
        place, way = proof.best
        assert proof.bound == way.step == min(steps) == least_step(shares[place])
        assert way == shared(shares[place], (way.layers, way.again))
        assert way.peak <= shares[place].room
        below = prove(shares, below=min(steps), together=8)
        assert (below.best, below.bound, below.done) == (None, min(steps), True)


def test_cp_sat_without_any_way() -> None:
    share = next(one for one in map(large, range(100)) if not fits(one))
    proof = prove([share])
    assert (proof.best, proof.bound, proof.done) == (None, NEVER, True)


def test_cp_sat_out_of_time_bounds() -> None:
    shares = [share for share in map(large, range(50)) if fits(share)]
    proof = prove(shares, seconds=0)
    assert not proof.done
    assert not proof.interrupted
    assert proof.best is None
    assert proof.bound <= min(step for step in map(least_step, shares) if step is not None)


def posted(
    shares: list[Share],
) -> tuple[cp_model.CpModel, list[cp_model.IntVar], cp_model.IntVar, cp_model.IntVar]:
    raw = cp_model.CpModel()
    selectors = [raw.new_bool_var(f"share {k}") for k in range(len(shares))]
    raw.add_exactly_one(selectors)
    step, peak = (raw.new_int_var(-(2**40), 2**40, name) for name in ("step", "peak"))
    add_rows(raw, shares, selectors, step, peak)
    return raw, selectors, step, peak


def test_rows_of_a_larger_model_have_every_way_and_its_very_step_and_peak() -> None:
    tried = 0
    for seed in range(0, 90, 3):
        shares = [small(seed + k) for k in range(3)]
        raw, selectors, step, peak = posted(shares)
        every = {
            (k, share.step(*way), share.peak(*way))
            for k, share in enumerate(shares)
            for way in ways(share)
        }
        if len(every) > 40:
            continue
        tried += 1
        found = set()
        solver = cp_model.CpSolver()
        solver.parameters.cp_model_presolve = False
        while solver.solve(raw) in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            place = next(k for k, one in enumerate(selectors) if solver.value(one))
            this = place, int(solver.value(step)), int(solver.value(peak))
            assert this in every
            found.add(this)
            numbers = raw.new_int_var(0, 2, "")
            raw.add(numbers == sum(k * one for k, one in enumerate(selectors)))
            raw.add_forbidden_assignments([numbers, step, peak], [this])
        assert found == every, seed
    assert tried > 15
