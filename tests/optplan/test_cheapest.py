"""``size --tokens``: the cheapest cluster in time, against every number of nodes by itself."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from optplan.arguments import job as typed
from optplan.cheapest import Cheapest, cheapest_of, job_of
from optplan.models.errors import InputError
from optplan.planner import checked, run
from optplan.size import size
from tests.models import samples

START = datetime(2027, 1, 1, tzinfo=UTC)
NODES = 5
SMALL = samples.problem(
    {
        "search.tp": [1, 2],
        "search.cp": 1,
        "search.zero": [0, 1],
        "search.schedule": "1f1b",
        "search.global_batch": 24,
        "cluster.price": "2.50 USD/h",
    }
)
TOKENS = 1e6


def alone(nodes: int) -> float:
    """Time for the tokens on so many nodes, all of them paid for."""
    form, outcome = run(SMALL.with_cluster(nodes=nodes))
    plan, price, _ = checked(form, outcome.best[0])
    return price.step_seconds * TOKENS / (plan.global_batch * SMALL.workload.sequence_length)


TIMES = [alone(nodes) for nodes in range(1, NODES + 1)]
MONEY = [2.5 * 4 * nodes * seconds / 3600 for nodes, seconds in enumerate(TIMES, start=1)]


def found(seconds: float | None) -> Cheapest:
    """Ask for the cheapest cluster in a time."""
    return cheapest_of(SMALL, job_of(TOKENS, None, seconds, START, NODES))


@pytest.mark.parametrize("factor", [0.5, 1 - 1e-6, 1 + 1e-6, 2.0])
@pytest.mark.parametrize("nodes", [1, 3, NODES])
def test_the_cheapest_of_all_numbers_of_nodes_in_time(nodes: int, factor: float) -> None:
    """Just in time, just not, far off: every number of nodes is solved by itself to tell."""
    seconds = TIMES[nodes - 1] * factor
    within = [m for m, time in zip(MONEY, TIMES, strict=True) if time <= seconds]
    mine = found(seconds)
    assert mine.proved
    if not within:
        assert mine.nodes is None
        assert mine.nearest_seconds == pytest.approx(min(TIMES), rel=1e-9)
        assert mine.why == f"no cluster of up to {NODES} nodes finishes in time"
        return
    assert mine.money == pytest.approx(min(within), rel=1e-9)
    assert mine.seconds is not None
    assert mine.seconds <= seconds * (1 + 1e-8)
    assert mine.gap is not None
    assert mine.gap < 1e-6


def test_without_a_deadline_the_cheapest_of_all() -> None:
    assert found(None).money == pytest.approx(min(MONEY), rel=1e-9)


def test_a_date_counts_from_the_start() -> None:
    job = job_of(TOKENS, "2027-01-31", None, START)
    assert job.seconds == 30 * 86_400.0
    assert job.date(86_400.0) == "2027-01-02T00:00+00:00"


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (("15e12", None, None, "2027-01-01", None), None),
        ((" 300B", None, "30d", None, 64), None),
        (("15 trillion", None, None, None, None), "--tokens: '15 trillion' is no number of tokens"),
        (("0", None, None, None, None), "--tokens: 0 tokens are out of range"),
        (("1T", "2027-13-01", None, None, None), "--by: '2027-13-01' is no date"),
        (("1T", "2020-01-01", None, "2027-01-01", None), "--by: 2020-01-01T00:00+00:00 has passed"),
        (("1T", "2027-02-01", "3d", "2027-01-01", None), "--by: --by and --within are both given"),
        (("1T", None, "3", None, None), "--within: '3' has no unit"),
        (("1T", None, None, "soon", None), "--start: 'soon' is no date"),
        (("1T", None, None, None, 0), "--most-nodes: 0 is out of range"),
        ((None, "2027-02-01", None, None, None), "--by: means nothing without --tokens"),
    ],
)
def test_what_is_typed(asked: tuple[Any, ...], said: str | None) -> None:
    if said is None:
        assert typed(*asked) is not None
        return
    with pytest.raises(InputError) as caught:
        typed(*asked)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("on", "price", "said"),
    [
        ((), None, "no price of custom is known; add 'price: 2.50 USD/h' under cluster"),
        (("b200-sxm-180gb",), "2 USD/h", "write --on b200-sxm-180gb='2.50 USD/h'"),
        (("b200-sxm-180gb=3",), "2 USD/h", "--on: '3' has no currency"),
    ],
)
def test_every_device_needs_a_price(on: tuple[str, ...], price: str | None, said: str) -> None:
    spec = SMALL.model_dump(mode="json")
    spec["cluster"]["price"] = price
    with pytest.raises(InputError) as caught:
        size(spec, accelerators=on, job=job_of(TOKENS, None, None, START, 2))
    assert said in str(caught.value)


def test_paper_prices_cannot_be_weighed() -> None:
    with pytest.raises(InputError, match="paper prices know no idle devices"):
        size(SMALL.model_copy(update={"prices": "paper"}), job=job_of(TOKENS))


def test_the_best_use_of_devices_at_hand_tells_idle_ones() -> None:
    """Three devices a node and a batch of 8: dp 3 divides nothing."""
    spec = samples.problem(
        {
            "search.tp": 1,
            "search.pp": 1,
            "search.cp": 1,
            "search.global_batch": 8,
            "cluster.nodes": 1,
            "cluster.devices_per_node": 3,
        }
    )
    use = size(spec, at_hand=True).at_hand
    assert use is not None
    assert (use.devices, use.idle_devices) == (3, 1)
    assert use.why == "no plan puts every device to use"
