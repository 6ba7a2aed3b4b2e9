"""Timings that a known machine would give lead back to that machine."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from optplan.models.cost.block import block_busy
from optplan.models.cost.calibration import Calibration
from optplan.models.cost.compute import block_operators, operator_seconds
from optplan.models.cost.optimizers import UPDATE_BYTES
from optplan.models.cost.parameters import layer_parameters
from optplan.models.cost.traffic import Group, all_reduce_seconds
from optplan.models.errors import InputError
from optplan.models.spec.cluster import Accelerator
from optplan.models.spec.problem import Problem
from optplan.profiling import fits
from optplan.profiling.constants import Fitted, Machine, fitted
from optplan.profiling.fits import carried, problem_of, ranks_of
from optplan.profiling.samples import (
    COLLECTIVES,
    GRIDS,
    KINDS,
    Sample,
    Timing,
    needed,
    raw_text,
    read_raw,
    samples_of,
    shape_of,
)
from optplan.ranks.job import DEVICES

IDLE = 200 * 2**20

TRUTH = Calibration.model_validate(
    {
        "name": "truth",
        "utilization_peak": 0.7,
        "tokens_half": 30.0,
        "shard_loss": 20.0,
        "attention_loss": 2.5,
        "pointwise": 3.0,
        "hbm_efficiency": 0.8,
        "link_efficiency": 0.75,
        "launch_seconds": "400 us",
        "launch_adds": True,
        "launch_tensor": "700 us",
        "step_latency": "150 us",
        "hop_latency": "250 us",
        "overlap_dp": 0.25,
        "logit_bytes": 16,
        "reserve": "230 MiB",
        "measured": True,
        "fitted_on": "nothing",
        "range": "all",
        "error": "none",
        "sources": {},
    }
)


def machine(processes: int) -> Accelerator:
    """Describe the known machine."""
    return Accelerator.model_validate(
        {
            "name": "truth",
            "peak": {"fp32": "60 GFLOP/s"},
            "hbm": "8 GiB",
            "hbm_bandwidth": "12 GB/s",
            "link": {"kind": "switch", "bandwidth": "2 GB/s", "latency": "100 us"},
            "domain": processes,
            "network": "2 GB/s",
        }
    )


def problem(sample: Sample, processes: int, q: float) -> Problem:
    """Return the problem of a layer on the known machine."""
    known = TRUTH.model_copy(update={"q_slope": q})
    return problem_of(sample, machine(processes), known, "fp32")


def seconds(sample: Sample, n: int, q: float) -> float:
    """Tell how long the known machine takes for a sample."""
    kind, device = sample.kind, machine(n)
    link = float(device.link.bandwidth) * TRUTH.link_efficiency
    rate = float(device.hbm_bandwidth) * TRUTH.hbm_efficiency
    if kind == "idle_memory":
        return IDLE
    if kind == "head_memory":
        held = 4.0 * sample.hidden * sample.count
        return TRUTH.logit_bytes * sample.tokens * sample.count + held
    if kind == "matmul":
        return 2.0 * sample.hidden**3 / (60e9 if sample.hidden == 1024 else 50e9)
    if kind == "stream":
        return sample.payload_bytes / float(device.hbm_bandwidth)
    if kind == "optimizer":
        return float(UPDATE_BYTES * sample.count / rate)
    if kind in COLLECTIVES:
        grown = 1.0 + q * max(0, sample.group - 2)
        # The fastest link is that of a transfer; every other collective has the all-reduces'.
        speed = float(device.link.bandwidth) if kind == "p2p" else link
        # A link's latency of 100 us, and what is known of a collective's step beyond it.
        steps = 2.0 * (sample.group - 1) if kind == "all_reduce" else 1.0
        start = steps * (2.5e-4 if kind == "all_reduce" else 1e-4)
        return grown * (start + carried(kind, sample.group, sample.payload_bytes) / speed)
    if kind == "head":
        return fits.head_flops(sample) / 40e9
    return engine_seconds(sample, n, q)


def engine_seconds(sample: Sample, n: int, q: float) -> float:
    """Tell how long the known machine takes for a layer, in part, divided, or in a row."""
    ways = max(1, sample.ways)
    shard = sample.model_copy(update={"ways": ways})
    here = problem(shard, n, q)
    at = ranks_of(shard)
    free = here.with_accelerator(
        link=here.cluster.accelerator.link.model_copy(
            update={"bandwidth": fits.FAST_LINK, "latency": 0.0}
        )
    ).with_calibration(step_latency=0.0)
    divided = sample.kind == "tensor_layer"
    shards = free if divided else free.with_calibration(launch_tensor=0.0)
    layer = block_busy(shards, at, moe=False)
    payload = 4.0 * sample.tokens * sample.hidden
    if sample.kind in ("products", "attention"):
        wanted = sample.kind == "products"
        operators = block_operators(here.workload, moe=False)
        each = [
            operator_seconds(free, o, at.micro_batch, at.degrees)
            for o in operators
            if o.weighted == wanted
        ]
        return sum(float(p.forward) * 3.0 for p in each)
    if sample.kind == "layer":
        return float(layer.total)
    if sample.kind == "layer_forward":
        return float(layer.forward)
    if sample.kind == "tensor_layer":
        return float(layer.total) + 4.0 * float(all_reduce_seconds(here, payload, Group(n, n)))
    if sample.kind == "pipeline":
        rate = float(here.cluster.accelerator.link.bandwidth) * TRUTH.link_efficiency
        slot = float(layer.total) + 2.0 * (payload / rate + 3.5e-4)
        return (sample.count + n - 1) * slot
    alone = sample.count * float(layer.total)
    if sample.kind == "data_alone":
        return alone
    rate = float(here.cluster.accelerator.link.bandwidth) * TRUTH.link_efficiency
    moved = carried(
        "all_reduce", n, 4.0 * sample.count * int(layer_parameters(shape_of(sample.hidden)))
    )
    reduce = 5e-4 + moved / rate
    return alone + (1.0 - TRUTH.overlap_dp) * reduce


def timed(n: int, q: float = 0.0, noise: float = 0.0) -> list[Timing]:
    """Time every sample on the known machine."""
    luck = Random(3)
    found = []
    for sample in samples_of("cpu", n):
        one = seconds(sample, n, q) * luck.lognormvariate(0.0, noise)
        found.append(Timing(sample=sample, seconds=one, low=one, high=one, repeats=5, inner=1))
    return found


def fit(timings: list[Timing], n: int) -> Fitted:
    """Fit a machine to timings."""
    return fitted(timings, Machine("cpu", n, 2, n * 8 * 2**30, "2", "truth"), "fp32")


@pytest.mark.parametrize(("n", "q"), [(2, 0.0), (4, 0.0), (4, 0.2)])
def test_a_known_machine_is_found_again(n: int, q: float) -> None:
    found = fit(timed(n, q), n)
    one, device = found.calibration, found.accelerator
    for name in (
        *("utilization_peak", "tokens_half", "shard_loss", "attention_loss", "pointwise"),
        *("launch_seconds", "launch_adds", "link_efficiency", "hbm_efficiency", "logit_bytes"),
    ):
        assert getattr(one, name) == pytest.approx(getattr(TRUTH, name), rel=2e-3), name
    assert one.q_slope == pytest.approx(q, abs=2e-3)
    assert one.reserve == pytest.approx(230 * 2**20, rel=1e-3)
    assert device.peak["fp32"] == pytest.approx(60e9)
    assert device.hbm_bandwidth == pytest.approx(12e9)
    assert device.hbm == 8 * 2**30
    assert device.link.bandwidth == pytest.approx(2e9, rel=1e-3)
    assert device.link.latency == pytest.approx(100e-6, rel=0.02)
    assert one.step_latency == pytest.approx(150e-6, rel=0.02)
    assert one.hop_latency == pytest.approx(250e-6, rel=0.02)
    assert one.launch_tensor == pytest.approx(700e-6, rel=0.02)
    if n == 2:
        assert one.overlap_dp == pytest.approx(TRUTH.overlap_dp, rel=0.01)
    assert max(map(abs, found.layers.values())) < 2e-3
    assert "0.0% mean on the" in one.error


def test_noise_moves_constants_a_little() -> None:
    found = fit(timed(2, noise=0.03), 2)
    assert found.calibration.utilization_peak == pytest.approx(0.7, rel=0.1)
    assert 0 < max(map(abs, found.layers.values())) < 0.15


def test_constant_rho_is_the_mean_of_layers() -> None:
    found = fit(timed(2), 2)
    flat = found.constant_rho
    assert flat.tokens_half == flat.shard_loss == flat.pointwise == flat.launch_seconds == 0.0
    errors = fits.layer_errors(timed(2), found.accelerator, flat, "fp32")
    assert min(errors.values()) < -0.1
    assert max(errors.values()) > 0.1


def test_every_constant_has_its_origin() -> None:
    one = fit(timed(4), 4).calibration
    skipped = {"name", "measured", "fitted_on", "range", "seen", "error", "accelerators", "sources"}
    told = one.model_dump(exclude_defaults=True).keys() - skipped
    assert told <= one.sources.keys()


def test_too_few_samples_are_refused() -> None:
    with pytest.raises(InputError, match="--budget"):
        fit(timed(2)[:8], 2)


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_a_budget_that_ends_early_still_fits(n: int) -> None:
    """Wherever it ends after what is needed."""
    every, least = timed(n), len(needed("cpu", n))
    assert [t.sample for t in every[:least]] == needed("cpu", n)
    for end in (*range(least, len(every), 7), len(every)):
        found = fit(every[:end], n)
        assert 0 < found.calibration.utilization_peak <= 1


def test_samples_are_told_once_and_in_reach() -> None:
    for device in DEVICES:
        for n in (1, 2, 3, 4, 8):
            samples = samples_of(device, n)
            kept = [s for s in samples if s.kind not in ("layer", "products", "attention")]
            assert len(set(kept)) == len(kept)
            assert all(s.ways <= n and s.group <= n for s in samples)
        for side in {shape[2] for shape in GRIDS[device].layers}:
            shape = shape_of(side)
            assert shape.head_width * shape.heads == side
            assert all(shape.ffn % t == shape.heads % t == 0 for t in (1, 2, 4))
    kinds = {s.kind for s in samples_of("cpu", 2)}
    assert kinds == set(KINDS)


def test_raw_timings_are_read_back(tmp_path: Path) -> None:
    path = tmp_path / "raw.csv"
    every = timed(2)
    path.write_text(raw_text(every), encoding="utf-8")
    back = read_raw(path)
    assert [t.sample for t in back] == [t.sample for t in every]
    assert [t.seconds for t in back] == pytest.approx([t.seconds for t in every])
    for text in ("a,b\n1,2\n", raw_text(every).replace("matmul", "x"), "\x00"):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(InputError, match="raw table"):
            read_raw(path)
