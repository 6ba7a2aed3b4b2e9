"""The algebra of the step time: what must follow from Eq. 1 and its terms, term by term."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optplan.models.cost.block import Ranks
from optplan.models.cost.calibration import Calibration
from optplan.models.cost.compute import block_operators
from optplan.models.cost.estimate import estimate
from optplan.models.cost.layout import pieces
from optplan.models.cost.price import Estimate
from optplan.models.cost.traffic import hop_seconds
from optplan.models.cost.utilization import rho
from optplan.models.formulate import formulate
from optplan.models.spec.problem import Problem
from tests.models import samples

NODE: Mapping[str, Any] = {
    "cluster.nodes": 2,
    "cluster.devices_per_node": 8,
    "workload.architecture.layers": 16,
    "workload.architecture.heads": 8,
    "workload.architecture.kv_heads": 8,
    "search.global_batch": 96,
}
"""The paper's machine, two nodes of eight, and a network that 16 stages divide."""

CURVED: Mapping[str, Any] = {"calibration.tokens_half": 300, "calibration.shard_loss": 0.5}
"""A utilization that depends on micro-batch and shard."""


def price(asked: Problem, **values: Any) -> Estimate:
    """Price a plan of the few values that matter."""
    return estimate(asked, samples.plan(asked, **values))


def layer_flops(asked: Problem) -> float:
    """Forward FLOP of one gated block and one sequence, written out (paper, Eq. 3)."""
    shape, s = asked.workload.architecture, asked.workload.sequence_length
    h = shape.hidden
    keys = shape.key_heads / shape.heads
    return 2 * s * h * h * (2 + 2 * keys) + 6 * s * h * shape.ffn + 2 * s * s * h


def head_flops(asked: Problem) -> float:
    """Forward FLOP of the head and one sequence (paper, Eq. 3)."""
    shape = asked.workload.architecture
    return 2 * asked.workload.sequence_length * shape.hidden * shape.vocabulary


@pytest.mark.parametrize("tp", [1, 2, 4, 8])
@pytest.mark.parametrize("recompute", [0, 1])
def test_tf_is_linear_in_p_at_fixed_devices(tp: int, recompute: int) -> None:
    """Eq. 2: blocks are divided over all devices, the head is not divided over the stages."""
    asked = samples.problem(samples.PLAIN, NODE)
    peak, utilization, batch, layers = 10e9, 0.5, 96, 16
    for pp in (p for p in (1, 2, 4, 8, 16) if 16 % (p * tp) == 0):
        blocks = (3 + recompute) * layers * layer_flops(asked)
        flops = batch * (blocks + pp * 3 * head_flops(asked))
        found = price(asked, tp=tp, pp=pp, recompute=3 * recompute).terms["TF"]
        assert found == pytest.approx(flops / (16 * peak * utilization), rel=1e-12)


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("flash", [False, True])
def test_a_block_counts_the_work_of_equation_3(gated: bool, flash: bool) -> None:
    """A GPT block is ``24 s h^2 + 4 s^2 h``; a gated one ``2 s h^2 (2 + 2 kv/a) + 6 s h f``."""
    asked = samples.problem(
        {
            "workload.architecture.gated": gated,
            "workload.architecture.ffn": 256,
            "workload.flash_attention": flash,
        }
    )
    s, h = 32, 64
    square = (2 if flash else 4) * s * s * h
    expected = (8 * s * h**2 + 6 * s * h * 256 if gated else 24 * s * h**2) + square
    assert (
        sum(operator.flops for operator in block_operators(asked.workload, moe=False)) == expected
    )


def tensor_time(asked: Problem, tp: int, pp: int = 1, b: int = 1) -> float:
    """TCT of a plan."""
    return price(asked, tp=tp, pp=pp, micro_batch=b).terms["TCT"]


@pytest.mark.parametrize(("pp", "b"), [(1, 1), (2, 1), (2, 3), (1, 6)])
def test_tct_on_a_mesh_does_not_depend_on_t(pp: int, b: int) -> None:
    """``16 G L s h / (N B)`` for every 1 < t <= 8 at q = 1, and nothing at t = 1."""
    asked = samples.problem(samples.PLAIN, NODE)
    expected = 16 * 96 * 16 * 32 * 64 / (16 * 300e6)
    assert tensor_time(asked, 1, pp, b) == 0
    for tp in (2, 4, 8):
        assert tensor_time(asked, tp, pp, b) == pytest.approx(expected, rel=1e-12)


def test_tct_on_a_ring_between_nodes_grows_with_t_minus_one() -> None:
    """The mesh form with the network's bandwidth, times ``t - 1``."""
    asked = samples.problem(
        samples.PLAIN, NODE, {"cluster.nodes": 16, "cluster.devices_per_node": 1}
    )
    for tp in (1, 2, 4, 8):
        expected = (tp - 1) * 16 * 96 * 16 * 32 * 64 / (16 * 100e6)
        assert tensor_time(asked, tp) == pytest.approx(expected, rel=1e-12)


def test_only_q_makes_tct_on_a_mesh_grow_with_t() -> None:
    """TCT at t over TCT at 2 is ``q(t) = 1 + q_slope (t - 2)``, and TAT is kappa of it."""
    rough = {"calibration.q_slope": 0.05, "calibration.kappa": 0.2}
    asked = samples.problem(samples.PLAIN, NODE, rough)
    for tp in (2, 4, 8):
        slower = tensor_time(asked, tp) / tensor_time(asked, 2)
        assert slower == pytest.approx(1 + 0.05 * (tp - 2), rel=1e-12)
        terms = price(asked, tp=tp).terms
        assert terms["TAT"] == pytest.approx(0.2 * terms["TCT"], rel=1e-12)
        assert terms["TAD"] == pytest.approx(0.2 * terms["TCD"], rel=1e-12)


@pytest.mark.parametrize("seed", range(30))
def test_at_most_half_of_the_tensor_collectives_is_hidden(seed: int) -> None:
    """Only the two backward all-reduces of a block can hide: ``2 TO <= TCT + TAT``."""
    none = {f"calibration.overlap_{kind}": 0.0 for kind in ("cp", "ep", "fsdp")}
    asked = samples.random_problem(seed, **{"calibration.overlap_tp": 1.0}, **none)
    form = formulate(asked)
    for point in samples.some(form, seed, 6):
        terms = estimate(asked, form.decode(point)).terms
        assert 0 <= 2 * terms["TO"] <= (terms["TCT"] + terms["TAT"]) * (1 + 1e-12)


def test_half_of_tct_is_hidden_where_arithmetic_is_slow() -> None:
    """The limit of TO is reached, and overlap scales what is reached."""
    slow = {"cluster.accelerator.peak": {"bf16": "1 MFLOP/s"}}
    for overlap in (0.0, 0.4, 1.0):
        asked = samples.problem(samples.PLAIN, NODE, slow, {"calibration.overlap_tp": overlap})
        terms = price(asked, tp=4).terms
        assert terms["TO"] == pytest.approx(overlap * terms["TCT"] / 2, rel=1e-12)


@pytest.mark.parametrize("prices", ["paper", "canonical"])
def test_a_sequence_gets_cheaper_with_every_larger_batch(prices: str) -> None:
    """Eq. 15: strictly while anything is paid once a step; b d divides every batch here."""
    batches = [48, 96, 144, 480]
    asked = samples.problem(samples.PLAIN, NODE, CURVED, {"prices": prices})
    for tp, pp, b in ((1, 1, 1), (1, 1, 3), (2, 4, 3), (4, 4, 6), (8, 2, 2), (1, 16, 4)):
        each = [
            price(asked, tp=tp, pp=pp, micro_batch=b, global_batch=batch).step_seconds / batch
            for batch in batches
        ]
        assert all(more < less for less, more in pairwise(each))


def test_a_sequence_costs_the_same_in_any_batch_where_nothing_is_paid_once() -> None:
    """Eq. 15 at phi2 = 0: one device alone in the paper's prices."""
    asked = samples.problem(
        samples.PLAIN, {"cluster.nodes": 1, "cluster.devices_per_node": 1}, CURVED
    )
    each = [price(asked, global_batch=batch).step_seconds / batch for batch in (1, 2, 8, 96)]
    assert each == pytest.approx([each[0]] * 4, rel=1e-12)


def costs(asked: Problem, tp: int, pp: int, batch: int = 96) -> dict[int, float]:
    """Step time by micro-batch, over all divisors of the batch of a data rank."""
    each = batch // (asked.devices // (tp * pp))
    return {
        b: price(asked, tp=tp, pp=pp, micro_batch=b, global_batch=batch).step_seconds
        for b in range(1, each + 1)
        if each % b == 0
    }


def slopes(by_b: Mapping[int, float]) -> list[float]:
    """Differences over distances, in order."""
    return [(y2 - y1) / (b2 - b1) for (b1, y1), (b2, y2) in pairwise(by_b.items())]


@pytest.mark.parametrize("prices", ["paper", "canonical"])
@pytest.mark.parametrize("overlap", [0.0, 1.0])
@pytest.mark.parametrize(("tp", "pp"), [(1, 1), (4, 1), (1, 2), (2, 4), (4, 4), (1, 16)])
def test_the_step_is_convex_in_the_micro_batch(
    tp: int, pp: int, overlap: float, prices: str
) -> None:
    """M3: slopes between neighbouring divisors never fall."""
    free = {"calibration.overlap_tp": overlap, "prices": prices, "search.global_batch": 960}
    asked = samples.problem(samples.PLAIN, NODE, CURVED, free)
    found = slopes(costs(asked, tp, pp, 960))
    assert len(found) > 3
    assert all(one <= two + 1e-9 * abs(one) for one, two in pairwise(found))


@pytest.mark.parametrize("overlap", [0.0, 0.7])
@pytest.mark.parametrize("tp", [1, 2, 8])
def test_one_stage_has_no_inner_optimum_in_the_micro_batch(tp: int, overlap: float) -> None:
    """M3: at p = 1 the step only falls, so that memory alone limits the micro-batch."""
    asked = samples.problem(samples.PLAIN, NODE, CURVED, {"calibration.overlap_tp": overlap})
    assert all(slope < 0 for slope in slopes(costs(asked, tp, 1)))


def best_real_micro_batch(asked: Problem, tp: int, pp: int, batch: int) -> float:
    """Return ``b* = sqrt(rho_inf omega1 b0 / (rho_inf omega3 + omega4))`` of M3, at TO = 0."""
    d, n, s, h = 16 // (tp * pp), 16, 32, 64
    eta = 3 * (16 * layer_flops(asked) + pp * head_flops(asked)) / (n * 10e9)
    tensor = 16 * batch * 16 * s * h / (n * 300e6) if tp > 1 else 0.0
    omega1, omega3 = eta * batch, eta * (pp - 1) * d
    omega4 = tensor * (pp - 1) * d / batch + 2 * (pp - 1) * (2 * s * h) / 100e6
    limit = (1 + 0.5 * tp / h) / 0.5
    b0 = (300 / s) / (1 + 0.5 * tp / h)
    return math.sqrt(limit * omega1 * b0 / (limit * omega3 + omega4))


@pytest.mark.parametrize("batch", [96, 480, 1920])
@pytest.mark.parametrize(("tp", "pp"), [(1, 2), (1, 4), (2, 4), (4, 4), (8, 2), (1, 16)])
def test_the_best_micro_batch_is_a_neighbour_of_the_lemma(tp: int, pp: int, batch: int) -> None:
    """M3: for p >= 2 the best divisor lies next to b*, and is no end of the list."""
    asked = samples.problem(samples.PLAIN, NODE, CURVED)
    found = costs(asked, tp, pp, batch)
    best, star = min(found, key=found.__getitem__), best_real_micro_batch(asked, tp, pp, batch)
    below = max((b for b in found if b <= star), default=min(found))
    above = min((b for b in found if b >= star), default=max(found))
    assert best in (below, above)
    if 2 < star < max(found) / 2:
        assert min(found) < best < max(found)


def test_an_inner_optimum_of_the_micro_batch_exists() -> None:
    """Fig. 4's shape comes out without being put in: neither 1 nor all that is there."""
    asked = samples.problem(samples.PLAIN, NODE, CURVED)
    found = costs(asked, 2, 2, 1920)
    best = min(found, key=found.__getitem__)
    assert 1 < best < max(found)


def step(asked: Problem, b: float, tp: int, pp: int, batch: int) -> float:
    """Step time at a micro-batch that need not be whole, from the parts of the cost model."""
    dp = asked.devices // (tp * pp)
    m = batch / (b * dp)
    found = pieces(asked, Ranks(tp, 1, 1, 1, 0, b))
    busy = found.layer.times(16 / pp).total + found.front.total + found.back.total
    _, far = hop_seconds(asked, b, tp, 1, 0)
    hops = (pp - 1 + m) * far if pp > 1 else 0.0
    return float((m + pp - 1) * busy + hops)


@pytest.mark.parametrize(("tp", "pp"), [(1, 1), (2, 1), (1, 4), (2, 4), (8, 2)])
@pytest.mark.parametrize("b", [1.0, 2.5, 6.0])
def test_the_slope_in_the_micro_batch_is_equation_16(tp: int, pp: int, b: float) -> None:
    """Finite differences against ``(omega1 + omega3 b) rho' + omega3 rho + omega4``."""
    batch, n, s, h = 96, 16, 32, 64
    asked = samples.problem(samples.PLAIN, NODE, CURVED)
    d = n // (tp * pp)
    eta = 3 * (16 * layer_flops(asked) + pp * head_flops(asked)) / (n * 10e9)
    tensor = 16 * batch * 16 * s * h / (n * 300e6) if tp > 1 else 0.0
    omega1, omega3 = eta * batch, eta * (pp - 1) * d
    omega4 = tensor * (pp - 1) * d / batch + 2 * (pp - 1) * (2 * s * h) / 100e6
    slope_of_rho = -300 / s / b**2 / 0.5
    value_of_rho = (1 + 300 / (b * s) + 0.5 * tp / h) / 0.5
    expected = (omega1 + omega3 * b) * slope_of_rho + omega3 * value_of_rho + omega4
    near = 1e-4
    found = (step(asked, b + near, tp, pp, batch) - step(asked, b - near, tp, pp, batch)) / (
        2 * near
    )
    assert found == pytest.approx(expected, rel=1e-5)


CALIBRATIONS = st.builds(
    lambda u, c1, c2: (
        samples.problem(
            {
                "calibration.utilization_peak": u,
                "calibration.tokens_half": c1,
                "calibration.shard_loss": c2,
            }
        ).calibration
    ),
    st.floats(0.01, 1.0),
    st.floats(0.0, 1e5),
    st.floats(0.0, 1e5),
)
SIZES = st.integers(1, 2**20)


@given(CALIBRATIONS, SIZES, SIZES, SIZES, st.integers(1, 64))
def test_rho_is_at_least_one_and_moves_as_declared(
    known: Calibration, b: int, s: int, h: int, tp: int
) -> None:
    """It falls in micro-batch, sequence and width, and rises in the tensor degree (m3)."""
    here = rho(known, b, s, h, tp)
    assert here >= 1
    assert rho(known, b + 1, s, h, tp) <= here
    assert rho(known, b, s + 1, h, tp) <= here
    assert rho(known, b, s, h + 1, tp) <= here
    assert rho(known, b, s, h, tp + 1) >= here


def test_half_of_the_peak_is_left_where_the_calibration_says() -> None:
    """At ``tokens_half`` tokens, and at the shard whose reciprocal is ``shard_loss``."""
    base = {"calibration.tokens_half": 640, "calibration.shard_loss": 0}
    tokens = samples.problem(base).calibration
    assert rho(tokens, 20, 32, 64, 4) == pytest.approx(2 / 0.5)
    shard = samples.problem(base, {"calibration.tokens_half": 0, "calibration.shard_loss": 16})
    assert rho(shard.calibration, 20, 32, 64, 4) == pytest.approx(2 / 0.5)


EMPTY: Mapping[str, Any] = {
    "cluster.nodes": 1,
    "cluster.devices_per_node": 16,
    "cluster.accelerator.hbm_bandwidth": "1000000 TB/s",
    "cluster.accelerator.hbm": "30 TB",
    "workload.architecture.hidden": 2**20,
    "workload.architecture.heads": 8192,
    "workload.architecture.kv_heads": 8192,
    "workload.architecture.ffn": 2**20,
    "workload.architecture.layers": 16,
    "workload.architecture.vocabulary": 1,
    "search.tp": 1,
    "search.global_batch": 96,
}
"""No term that the paper lacks: memory at no cost, one node, no tensor group, no head."""


def test_canonical_prices_are_the_papers_where_the_extra_terms_vanish() -> None:
    """Optimizer, loss, embedding, extra all-reduces, near hops and unequal stages all zero."""
    paper = samples.problem(samples.PLAIN, EMPTY, CURVED)
    canonical = samples.problem(samples.PLAIN, EMPTY, CURVED, prices="canonical")
    seen = 0
    form = formulate(paper)
    for point in samples.points(form.program):
        if any(
            not n.startswith("capacity.") for n in form.program.broken(samples.even(form, point))
        ):
            continue
        one, other = price(paper, **point), price(canonical, **point)
        assert other.step_seconds == pytest.approx(one.step_seconds, rel=1e-6)
        for name in one.terms:
            assert other.terms[name] == pytest.approx(
                one.terms[name], rel=1e-5, abs=1e-6 * one.step_seconds
            )
        seen += 1
    assert seen == 40


SLOW = {"kind": "mesh", "bandwidth": "1 MB/s"}


@pytest.mark.parametrize(
    ("back", "grows"),
    [
        ({"workload.architecture.vocabulary": 2**17}, "TF"),
        ({"cluster.accelerator.hbm_bandwidth": "1 GB/s"}, "T_opt"),
        ({"search.tp": 2, "cluster.accelerator.link": SLOW}, "TCT"),
    ],
)
def test_canonical_prices_differ_by_each_extra_term(back: dict[str, Any], grows: str) -> None:
    """Putting one of them back, the prices part."""
    paper = samples.problem(samples.PLAIN, EMPTY, back)
    canonical = samples.problem(samples.PLAIN, EMPTY, back, prices="canonical")
    values = {"tp": int(back.get("search.tp", 1)), "pp": 4, "micro_batch": 2}
    one, other = price(paper, **values), price(canonical, **values)
    assert abs(other.step_seconds / one.step_seconds - 1) > 1e-6
    assert other.terms[grows] >= one.terms[grows]
