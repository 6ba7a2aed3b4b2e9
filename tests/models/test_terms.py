"""Terms that the paper lacks: context, experts, sharding, recomputation, hosts, schedules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from optplan.models.cost.block import Busy, Ranks, block_busy
from optplan.models.cost.compute import block_operators, model_flops
from optplan.models.cost.estimate import estimate
from optplan.models.cost.layout import pieces
from optplan.models.cost.memory import Counts
from optplan.models.cost.price import Estimate
from optplan.models.cost.step import Data, fetch_seconds, once_latency, once_seconds
from optplan.models.cost.traffic import Group, all_reduce_seconds, all_to_all_seconds, ring_seconds
from optplan.models.formulate import formulate
from optplan.models.spec.problem import Problem
from tests.models import samples


def price(asked: Problem, **values: Any) -> Estimate:
    """Price a plan of the few values that matter."""
    return estimate(asked, samples.plan(asked, **values))


@pytest.mark.parametrize("seed", range(40))
def test_no_term_is_below_nothing(seed: int) -> None:
    """Whatever is chosen; TO is at most what it hides."""
    form = formulate(samples.random_problem(seed))
    for point in samples.some(form, seed, 6):
        found = estimate(form.problem, form.decode(point))
        for name, seconds in found.terms.items():
            assert seconds >= -1e-12 * found.step_seconds, name
        sent = sum(found.terms[name] for name in ("TCT", "TAT", "TCC", "TCE", "TCD"))
        assert found.terms["TO"] <= sent * (1 + 1e-12)


@pytest.mark.parametrize("seed", range(0, 40, 2))
def test_what_is_busy_is_at_least_its_forward_and_its_weight_gradients(seed: int) -> None:
    """So that no pass of a chunk takes less than no time."""
    asked = samples.random_problem(seed)
    moe = asked.workload.architecture.experts is not None
    for at in (
        Ranks(1, 1, 1, 1, 0, 1.0),
        Ranks(2, 2, 2, 1, 1, 4.0),
        Ranks(4, 3, 1, 2, 0, 2.0, True),
    ):
        busy: Busy = block_busy(asked, at, moe)
        assert 0 < busy.forward < busy.total
        assert 0 <= busy.weight <= busy.total - busy.forward


def terms_of(asked: Problem, **values: Any) -> Mapping[str, float]:
    """Seconds by term of a plan of one micro-batch."""
    return price(asked, micro_batches=1, **values).terms


ONE_NODE: Mapping[str, Any] = {
    "cluster.nodes": 1,
    "cluster.devices_per_node": 8,
    "cluster.accelerator.link": {"kind": "switch", "bandwidth": "300 MB/s"},
    "workload.architecture.layers": 4,
    "search.global_batch": 8,
}


def test_a_ring_sends_keys_and_values_three_times() -> None:
    """Once forward and, with their gradients, twice backward (arXiv 2310.01889)."""
    grouped = {"workload.architecture.kv_heads": 2}
    asked = samples.problem(ONE_NODE, grouped)
    keys = 2 * 2 * 16 * (32 / 4) * 2  # key and value, two heads of 16, a quarter of 32 tokens
    each = ring_seconds(asked, keys, Group(4, 4))
    assert terms_of(asked, cp=4)["TCC"] == pytest.approx(4 * 3 * each, rel=1e-12)
    half = ring_seconds(asked, keys / 2, Group(4, 4))
    assert terms_of(asked, cp=4, tp=2)["TCC"] == pytest.approx(4 * 3 * half, rel=1e-12)


def test_ulysses_exchanges_queries_keys_values_and_outputs() -> None:
    """By all-to-all, there and back (arXiv 2309.14509)."""
    asked = samples.problem(ONE_NODE)
    four = 4 * 64 * (32 / 4) * 2
    each = all_to_all_seconds(asked, four, Group(4, 4))
    found = terms_of(asked, cp=4, context="ulysses")["TCC"]
    assert found == pytest.approx(4 * 2 * each, rel=1e-12)


def test_a_ring_hides_behind_the_scores() -> None:
    """As far as the calibration saw, and never more than there is to hide."""
    slow = {"cluster.accelerator.peak": {"bf16": "1 kFLOP/s"}}
    for share in (0.0, 0.5, 1.0):
        asked = samples.problem(ONE_NODE, slow, {"calibration.overlap_cp": share})
        terms = terms_of(asked, cp=4)
        assert terms["TO"] == pytest.approx(share * terms["TCC"], rel=1e-12)
        assert terms_of(asked, cp=4, context="ulysses")["TO"] == 0


def test_experts_are_reached_by_four_all_to_alls() -> None:
    """Two forward, two backward; every token goes to two experts."""
    asked = samples.problem(ONE_NODE, samples.EXPERTS)
    sent = 32 * 2 * 64 * 2
    each = all_to_all_seconds(asked, sent, Group(4, 4))
    assert terms_of(asked, ep=4)["TCE"] == pytest.approx(4 * 4 * each, rel=1e-12)
    assert terms_of(asked, ep=1)["TCE"] == 0
    busier = samples.problem(ONE_NODE, samples.EXPERTS, {"workload.imbalance": 1.5})
    more = all_to_all_seconds(busier, 1.5 * sent, Group(4, 4))
    assert terms_of(busier, ep=4)["TCE"] == pytest.approx(4 * 4 * more, rel=1e-12)


def test_split_experts_gather_the_tokens_of_their_group() -> None:
    """With ``etp`` 2 each rank gathers what both were sent."""
    asked = samples.problem(ONE_NODE, samples.EXPERTS)
    sent = 32 * 2 * 64 * 2
    each = all_reduce_seconds(asked, 2 * sent, Group(2, 2)) / 2
    assert terms_of(asked, etp=2)["TCE"] == pytest.approx(4 * 4 * each, rel=1e-12)


def test_expert_exchange_hides_only_where_that_is_switched_on() -> None:
    """The user says so; the calibration says how much."""
    slow = {"cluster.accelerator.peak": {"bf16": "1 kFLOP/s"}, "calibration.overlap_ep": 0.5}
    off = samples.problem(ONE_NODE, samples.EXPERTS, slow)
    assert terms_of(off, ep=4)["TO"] == 0
    on = samples.problem(ONE_NODE, samples.EXPERTS, slow, {"overlap": ["expert-overlap"]})
    terms = terms_of(on, ep=4)
    assert terms["TO"] == pytest.approx(0.5 * terms["TCE"], rel=1e-12)


def test_work_does_not_depend_on_how_experts_are_spread() -> None:
    """The same FLOP on every rank, at constant utilization."""
    flat = {"calibration.tokens_half": 0, "calibration.shard_loss": 0}
    asked = samples.problem(ONE_NODE, samples.EXPERTS, flat)
    found = [terms_of(asked, **v)["TF"] for v in ({}, {"ep": 4}, {"ep": 2, "etp": 2}, {"etp": 8})]
    assert found == pytest.approx([found[0]] * 4, rel=1e-12)


@pytest.mark.parametrize("again", [(0, 0), (1, 0), (2, 2), (3, 1)])
@pytest.mark.parametrize("layers", [(2, 2), (3, 1)])
def test_a_recomputed_layer_costs_its_forward_pass(
    layers: tuple[int, int], again: tuple[int, int]
) -> None:
    """Stage by stage, collectives included; the slowest stage sets the pace."""
    if any(a > n for a, n in zip(again, layers, strict=True)):
        return
    asked = samples.problem(ONE_NODE)
    plan = {"tp": 2, "pp": 2, "dp": 2, "layers": layers}
    plain = price(asked, **plan)
    found = price(asked, **plan, again=again, recompute="partial")
    once = pieces(asked, Ranks(2, 1, 1, 1, 0, 1.0)).again
    assert once.reduce > 0
    for use, was, some in zip(found.memory.stages, plain.memory.stages, again, strict=True):
        more = float(once.total) * some
        assert use.micro_batch_seconds == pytest.approx(was.micro_batch_seconds + more, rel=1e-12)
        assert use.recomputed == some


def test_selective_recomputation_costs_the_scores_once_more() -> None:
    """Nothing else is computed again."""
    flat = {"calibration.tokens_half": 0, "calibration.shard_loss": 0}
    asked = samples.problem(ONE_NODE, flat)
    one, other = terms_of(asked), terms_of(asked, recompute="selective")
    scores = 4 * 4 * 64 * 32 * 32 / 2 / (10e9 * 0.5)
    assert other["TF"] - one["TF"] == pytest.approx(scores, rel=1e-9)


def data(zero: int, hsdp: int = 0) -> Data:
    """Eight data ranks, four to a node."""
    return Data(Group(8, 4), Group(2, 1), zero, hsdp, 0)


def test_each_zero_stage_moves_what_its_paper_says() -> None:
    """
    arXiv 1910.02054, section 7, in bf16 with fp32 gradients.

    Stage 0 all-reduces gradients; 1 scatters them and gathers weights; 2 scatters after every
    micro-batch; 3 gathers for every forward and backward pass instead.
    """
    asked = samples.problem()
    count, group = Counts(10**6, 0), Group(8, 4)
    whole = all_reduce_seconds(asked, 4.0e6, group)
    once = [float(once_seconds(asked, count, data(z)).reduce) for z in range(4)]
    each = [float(fetch_seconds(asked, count, data(z))) for z in range(4)]
    assert once == pytest.approx([whole, whole * 3 / 4, whole / 4, 0.0], rel=1e-12)
    assert each == pytest.approx([0.0, 0.0, whole / 2, whole / 2 + whole / 2], rel=1e-12)


def test_sharding_inside_nodes_leaves_the_sum_over_nodes() -> None:
    """Scatter and gather in the node, and an all-reduce of each rank's share between both."""
    asked = samples.problem()
    inside = all_reduce_seconds(asked, 3.0e6, Group(4, 4))
    between = all_reduce_seconds(asked, 4.0e6 / 4, Group(2, 1))
    found = once_seconds(asked, Counts(10**6, 0), data(1, hsdp=1)).reduce
    assert found == pytest.approx(inside + between, rel=1e-12)


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_no_parameters_take_no_time(zero: int) -> None:
    """An end that trains nothing pays nothing; the latency is paid by the blocks, once."""
    slow: dict[str, Any] = {"cluster.network_latency": "5 ms"}
    for asked in (samples.problem(slow), samples.problem(slow, samples.EXPERTS)):
        assert once_seconds(asked, Counts(0, 0), data(zero)).total == 0
        assert fetch_seconds(asked, Counts(0, 0), data(zero)) == 0
        latency = once_latency(asked, Counts(10, 10), data(zero)).reduce
        whole = once_seconds(asked, Counts(10**6, 0), data(zero)).reduce
        assert (latency > 0) == (zero < 3)
        assert (whole > 0) == (zero < 3)


def test_fetched_weights_hide_behind_a_layer() -> None:
    """Half of what could, as the calibration says; without it all is exposed."""
    slow = {"cluster.accelerator.peak": {"bf16": "1 kFLOP/s"}}
    exposed, hidden = (
        terms_of(samples.problem(ONE_NODE, slow, {"calibration.overlap_fsdp": share}), zero=3)
        for share in (0.0, 0.5)
    )
    assert exposed["TO"] == 0
    assert exposed["TCD"] == hidden["TCD"] > 0
    ends = fetch_ends(samples.problem(ONE_NODE, slow))
    assert hidden["TO"] == pytest.approx((hidden["TCD"] - ends) / 2, rel=1e-4)


def fetch_ends(asked: Problem) -> float:
    """Seconds in which embedding and head of eight data ranks are fetched."""
    place = Data(Group(8, 8), Group(8, 8), 3, 0, 0)
    front, back = Counts(160 * 64, 0), Counts(160 * 64 + 64, 0)
    return float(fetch_seconds(asked, front, place) + fetch_seconds(asked, back, place))


def test_an_optimizer_on_the_host_moves_gradients_and_weights() -> None:
    """Over the host's link, and its states through the processors that devices share."""
    host = {"memory": "1 GB", "link": "10 MB/s", "bandwidth": "50 MB/s"}
    asked = samples.problem(ONE_NODE, {"cluster.host": host})
    here, there = terms_of(asked, dp=1), terms_of(asked, dp=1, offload=1)
    count = here["T_opt"] * 2e9 / 40
    expected = count * (6 / 10e6 + 40 * 8 / 50e6)
    assert there["T_opt"] == pytest.approx(expected, rel=1e-9)


def test_idle_devices_cost_throughput_and_mfu() -> None:
    """Both are of the whole cluster, which has been paid for."""
    asked = samples.problem()
    half = price(asked, tp=2, pp=2, dp=1)
    full = 8 * 32 / half.step_seconds / 8
    assert half.tokens_per_second_per_device == pytest.approx(full, rel=1e-12)
    work = 8 * model_flops(asked.workload)
    assert half.mfu == pytest.approx(work / half.step_seconds / (8 * 10e9), rel=1e-12)


def test_multi_token_prediction_is_one_more_block_and_head() -> None:
    """On the last stage, at the same widths."""
    plain, more = (samples.problem(ONE_NODE, {"workload.architecture.mtp": n}) for n in (0, 1))
    at = Ranks(1, 1, 1, 1, 0, 1.0)
    one, other = pieces(plain, at), pieces(more, at)
    joint = 3 * 4 * 32 * 64**2 * (1 + 40 / 32 + 3 / 64) / 0.5 / 10e9
    expected = float(one.layer.total) + 2 * float(one.back.total) + joint
    assert float(other.back.total) == pytest.approx(expected, rel=1e-9)


def test_a_window_bounds_the_scores() -> None:
    """Flash attention computes half a square, or a band of it where a window is narrower."""
    narrow = {"workload.architecture.sliding_window": 8}
    half = {**narrow, "workload.architecture.windowed_layers": 2}

    def scores(*changes: Mapping[str, Any]) -> float:
        found = block_operators(samples.problem(*changes).workload, moe=False)
        return next(operator.flops for operator in found if operator.name == "scores")

    every = scores()
    assert every == 4 * 64 * 32 * 32 / 2
    assert scores(narrow) == 4 * 64 * (32 * 8 - 8 * 8 / 2)
    assert scores(half) == (every + scores(narrow)) / 2


@pytest.mark.parametrize("schedule", ["gpipe", "zb-h1", "zb-h2"])
def test_schedules_differ_in_the_bubble_alone(schedule: str) -> None:
    """GPipe as 1F1B, split schedules less."""
    asked = samples.problem(samples.EXPERTS if schedule == "gpipe" else {})
    one, other = (price(asked, pp=2, dp=2, schedule=s).terms for s in ("1f1b", schedule))
    assert {k: v for k, v in one.items() if k != "TB"} == {
        k: v for k, v in other.items() if k != "TB"
    }


def test_interleaving_divides_the_bubble_by_the_chunks() -> None:
    """Equal ends, two chunks: ``(p - 1) / v`` (arXiv 2104.04473)."""
    flat = {"workload.architecture.vocabulary": 1, "cluster.accelerator.hbm_bandwidth": "1000 TB/s"}
    flat |= {"workload.architecture.layers": 64}
    asked = samples.problem(flat)
    one = price(asked, pp=4, dp=1, schedule="1f1b").terms["TB"]
    for chunks in (2, 4):
        other = price(asked, pp=4, dp=1, schedule="interleaved", vpp=chunks).terms["TB"]
        assert other == pytest.approx(one / chunks, rel=2e-2)
