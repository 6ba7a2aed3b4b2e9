"""Products by their shape, operators that only move bytes, launches, FP8, and memory by phase."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from optplan.models.cost.block import Ranks, again_busy, block_busy
from optplan.models.cost.estimate import estimate, step_seconds
from optplan.models.cost.pointwise import pointwise_bytes, softmax_bytes
from optplan.models.cost.tiles import TILES, alignment, tile_loss
from tests.models import samples

UNITS = {"cluster.accelerator.units": 108}


@pytest.mark.parametrize(
    ("rows", "columns", "expected"),
    [
        (2048, 1536, 108 / 96),  # 96 tiles of 128 x 256 on 108 processors: one wave
        (2048, 1728, 108 / 108),  # 7 x 16 = 112 of 256 x 128 or 128 x 256, but 14 x 16 of 128
        (108 * 128, 256, 1.0),
        (100 * 108 * 128, 256 * 7, 1.0),
    ],
)
def test_waves_are_whole(rows: int, columns: int, expected: float) -> None:
    asked = samples.problem(UNITS)
    best = min(
        -(-(-(-rows // a) * -(-columns // b)) // 108) * 108 * a * b / (rows * columns * speed)
        for a, b, speed in TILES
    )
    assert tile_loss(asked, rows, columns) == pytest.approx(best, rel=1e-12)
    if expected != 1.0 or rows != 2048:
        assert tile_loss(asked, rows, columns) == pytest.approx(expected, rel=0.15)


@pytest.mark.parametrize("seed", range(20))
def test_tiles_never_help_and_vanish_in_the_limit(seed: int) -> None:
    luck = np.random.default_rng(seed)
    rows, columns = luck.uniform(1, 50_000, 2)
    asked = samples.problem(UNITS)
    assert tile_loss(asked, rows, columns) >= 1.0
    assert tile_loss(asked, 2**20, 2**14) == pytest.approx(1.0, rel=0.02)
    together = tile_loss(asked, rows, columns, 64)
    assert together <= tile_loss(asked, rows, columns) * (1 + 1e-12)


@pytest.mark.parametrize("changes", [{}, {**UNITS, "prices": "paper"}])
def test_without_processors_and_in_the_paper_there_are_no_tiles(changes: dict[str, Any]) -> None:
    assert tile_loss(samples.problem(changes), 100, 100) == 1.0


@pytest.mark.parametrize(
    ("columns", "halvings"), [(64, 0), (4096, 0), (32, 1), (1800, 3), (1728, 0), (7, 6), (0.5, 6)]
)
def test_columns_out_of_line_cost_by_the_power_of_two(columns: float, halvings: int) -> None:
    asked = samples.problem({"calibration.alignment_loss": 0.06})
    assert alignment(asked, columns) == pytest.approx(0.06 * halvings)
    assert alignment(samples.problem(), columns) == 0.0


def test_moved_bytes_are_counted_pass_by_pass() -> None:
    """A GPT block without dropout: 20 h, 8 (q + 2 kv) and 8 f bytes per token, by hand."""
    gpt = {"workload.architecture.gated": False, "workload.architecture.ffn": 256}
    asked = samples.problem(gpt, {"workload.architecture.dropout": False})
    h = asked.workload.architecture.hidden
    q, kv = asked.workload.architecture.query_width, asked.workload.architecture.key_width
    tokens = 3 * asked.workload.sequence_length
    expected = tokens * (20 * h + 4 * (q + 2 * kv) + 4 * 256)
    assert pointwise_bytes(asked, 3, 1, 1, False, False) == pytest.approx(expected)
    split = tokens * (20 * h / 2 + (4 * (q + 2 * kv) + 4 * 256) / 2)
    assert pointwise_bytes(asked, 3, 2, 1, True, False) == pytest.approx(split)
    assert softmax_bytes(asked, 3, 1, 1) == 0
    unfused = samples.problem(gpt, {"workload.flash_attention": False})
    s, heads = unfused.workload.sequence_length, unfused.workload.architecture.heads
    assert softmax_bytes(unfused, 3, 1, 1) == pytest.approx(3 * s * s * heads * 8)


def at(**changes: Any) -> Ranks:
    """One device, one sequence."""
    values = {"tp": 1, "cp": 1, "ep": 1, "etp": 1, "context": 0, "micro_batch": 1.0, **changes}
    return Ranks(**values)


def test_no_pass_is_shorter_than_its_launches() -> None:
    free = samples.problem({"calibration.launch_seconds": "0 s"})
    slow = samples.problem({"calibration.launch_seconds": "1 s"})
    busy, bound = block_busy(free, at(), False), block_busy(slow, at(), False)
    assert busy.launch == 0
    assert bound.forward == pytest.approx(1.0, rel=1e-6)
    assert bound.total == pytest.approx(2.0, rel=1e-6)
    assert bound.total - bound.launch == pytest.approx(busy.total, rel=1e-12)
    assert again_busy(slow, at(), False).total == pytest.approx(1.0, rel=1e-6)


def test_where_the_host_computes_launching_adds_to_every_pass() -> None:
    """A CPU cannot launch ahead of itself; one pass forward, one back, one of what is repeated."""
    free = samples.problem({"calibration.launch_seconds": "0 s"})
    slow = samples.problem({"calibration.launch_seconds": "1 ms", "calibration.launch_adds": True})
    without, added = (block_busy(p, at(tp=2, micro_batch=4.0), False) for p in (free, slow))
    assert added.total - without.total == pytest.approx(2e-3)
    assert added.forward - without.forward == pytest.approx(1e-3)
    assert added.launch == pytest.approx(2e-3)
    again = [again_busy(p, at(), False).total for p in (free, slow)]
    assert again[1] - again[0] == pytest.approx(1e-3)


def test_launches_matter_little_to_long_passes_and_never_help() -> None:
    free = samples.problem({"calibration.launch_seconds": "0 s"})
    length = block_busy(free, at(), False).forward
    for share in (0.01, 0.1, 0.5, 1.0, 2.0):
        asked = samples.problem({"calibration.launch_seconds": f"{share * length} s"})
        found = float(block_busy(asked, at(), False).forward)
        assert max(length, share * length) <= found <= 2**0.25 * max(length, share * length) + 1e-15
    assert step_seconds(free, samples.plan(free)) == estimate(free, samples.plan(free)).step_seconds


def test_an_engine_that_divides_layers_launches_longer() -> None:
    """Only where there is more than one tensor rank."""
    adds = {"calibration.launch_adds": True}
    free = samples.problem(adds, {"calibration.launch_tensor": "0 s"})
    slow = samples.problem(adds, {"calibration.launch_tensor": "2 ms"})
    for tp, more in ((1, 0.0), (2, 4e-3)):
        one, other = (block_busy(p, at(tp=tp), False).total for p in (free, slow))
        assert other - one == pytest.approx(more, abs=1e-12)


def test_fp8_quickens_products_with_weights_alone() -> None:
    peaks = {"bf16": "10 GFLOP/s", "fp8": "20 GFLOP/s"}
    base = {"cluster.accelerator.peak": peaks, "calibration.utilization_fp8": 0.4}
    wide = samples.problem(base, {"workload.precision": "bf16"})
    narrow = samples.problem(base, {"workload.precision": "fp8"})
    before, after = block_busy(wide, at(), False), block_busy(narrow, at(), False)
    u = wide.calibration.utilization_peak
    assert after.weight / before.weight == pytest.approx((u / 0.4) / 2, rel=1e-9)
    assert after.compute > before.compute * (u / 0.4) / 2


def test_phases_hold_what_lies_there_at_the_same_time() -> None:
    asked = samples.problem(
        {
            "workload.precision": "fp16",
            "calibration.step_bytes": 10,
            "calibration.workspace": "9 kB",
        }
    )
    use = estimate(asked, samples.plan(asked, recompute="none")).memory.stages[0]
    parts, phases = use.parts, use.phases
    states = parts["parameters"] + parts["gradients"]
    assert set(phases) == {"start", "forward", "backward", "step"}
    assert phases["step"] == 9000 + states + parts["optimizer"]
    lasts = parts["optimizer"] * 12 // 26
    assert phases["start"] == 9000 + states + lasts
    assert phases["backward"] == 9000 + states + lasts + parts["activations"] + parts["working"]
    assert phases["start"] <= phases["forward"] <= phases["backward"]
    assert max(phases.values()) <= use.peak_bytes + 9000


def test_risk_is_one_half_where_it_just_fits() -> None:
    base = {"calibration.memory_error": 0.05}
    asked = samples.problem(base)
    plan = samples.plan(asked, recompute="none")
    used = estimate(asked, plan).memory.allocated_bytes
    for share, low, high in ((1.0, 0.49, 0.51), (1.2, 0.0, 0.01), (0.8, 0.99, 1.0)):
        room = int(used * share) + asked.calibration.reserve
        changed = samples.problem(base, {"cluster.accelerator.hbm": f"{room} B"})
        risk = estimate(changed, plan).memory.risk
        assert risk is not None
        assert low <= risk <= high
    assert estimate(samples.problem(), plan).memory.risk is None


def test_logits_and_copies_follow_the_software() -> None:
    plan = samples.plan(samples.problem(), recompute="none")
    plain = estimate(samples.problem(), plan).memory.stages[-1].parts
    wide = samples.problem({"calibration.logit_bytes": 14})
    assert estimate(wide, plan).memory.stages[-1].parts["working"] == plain["working"] // 6 * 14
    copies = samples.problem({"calibration.gradient_copies": 2})
    found = estimate(copies, plan).memory.stages[-1].parts
    assert found["gradients"] == plain["gradients"] * 6 // 4
