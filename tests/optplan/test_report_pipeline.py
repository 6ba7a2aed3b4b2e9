"""Time line, trace and places: what the drawings show is what the cost model prices."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import pytest

import optplan
from optplan.models.cost.estimate import chunk_passes, estimate
from optplan.models.cost.schedule import allowed
from optplan.models.cost.traffic import crossings, data_inside, group
from optplan.models.spec.framework import SCHEDULES
from optplan.models.spec.plan import Plan
from optplan.models.spec.problem import Problem
from optplan.models.spec.space import ORDERS
from optplan.report.html import timeline
from optplan.report.html.pipeline import run as simulated
from optplan.report.html.ranks import coordinates
from tests.optplan import answers
from tests.optplan.command import run

BASE: dict[str, Any] = {
    "workload": {"architecture": "llama-3-8b", "sequence_length": 4096},
    "cluster": {"accelerator": "h100-sxm-80gb", "nodes": 4, "devices_per_node": 8},
    "search": {"global_batch": 64},
}


def laid(**values: Any) -> Plan:
    """A plan of 32 layers on even stages unless said otherwise."""
    pp, vpp = values.get("pp", 1), values.get("vpp", 1)
    layers = values.pop("layers", (32 // pp,) * pp)
    assert sum(layers) == 32 or vpp > 1
    recompute = values.get("recompute", "none")
    again = layers if recompute == "full" else (0,) * pp
    full = {"tp": 1, "dp": 1, "micro_batch": 1, "micro_batches": 16, "global_batch": 16}
    return Plan(
        **{**full, **values, "layers_per_stage": layers, "recomputed_layers_per_stage": again}
    )


def plans() -> list[Plan]:
    """Plans of every schedule, with and without recomputation and shared weights."""
    chunks = {"interleaved": 2, "zb-v": 2}
    return [
        *(
            laid(schedule=schedule, pp=pp, vpp=chunks.get(schedule, 1), recompute=recompute)
            for schedule, pp, recompute in product(SCHEDULES, (1, 2, 4), ("none", "full"))
        ),
        laid(pp=4, layers=(5, 9, 10, 8), recompute="full", zero=2, dp=2, global_batch=32),
        laid(pp=2, layers=(31, 1), micro_batches=3, global_batch=3),
    ]


@pytest.mark.parametrize("plan", plans(), ids=lambda p: f"{p.schedule}-{p.pp}-{p.recompute}")
def test_the_drawing_never_exceeds_the_price(plan: Plan) -> None:
    """What is simulated takes no longer than the same passes in the step time."""
    problem = optplan.load(BASE)
    price = estimate(problem, plan)
    found = simulated(problem, plan)
    assert found is not None
    priced = timeline.priced_seconds(plan, price)
    assert found.seconds <= priced * (1 + 1e-9)
    assert found.seconds >= 0.5 * priced
    more = sum(price.terms[name] for name in ("TCP", "TCD", "TAD", "T_opt"))
    if plan.zero < 2:
        assert priced == pytest.approx(price.step_seconds - more)
    else:
        assert price.step_seconds - more < priced < price.step_seconds


@pytest.mark.parametrize("prices", ["canonical", "paper"])
@pytest.mark.parametrize("plan", plans(), ids=lambda p: f"{p.schedule}-{p.pp}-{p.recompute}")
def test_the_chunks_of_a_stage_are_the_stage(plan: Plan, prices: str) -> None:
    """Passes of all chunks together take what the estimate says of a stage."""
    problem = optplan.load({**BASE, "prices": prices})
    if prices == "paper" and plan.vpp > 1:
        return  # the paper knows no chunks
    stages = estimate(problem, plan).memory.stages
    for use, chunks in zip(stages, chunk_passes(problem, plan), strict=True):
        assert len(chunks) == plan.vpp
        assert sum(map(sum, chunks)) == pytest.approx(use.micro_batch_seconds)
        assert all(seconds >= 0 for chunk in chunks for seconds in chunk)


def test_a_chunk_at_an_end_of_the_model_is_the_light_one() -> None:
    """Where embedding and head take a layer's place, first and last chunk hold one less."""
    problem = optplan.load(BASE)
    plan = laid(pp=2, vpp=2, schedule="interleaved", layers=(15, 15), micro_batches=4)
    whole = chunk_passes(problem, plan)
    inner = whole[0][1][0], whole[1][0][0]
    assert inner[0] == pytest.approx(inner[1])
    assert inner[0] * 7 / 8 == pytest.approx(whole[0][0][0], rel=0.02)  # and an embedding


def test_a_time_line_shows_every_pass_or_says_how_many_not() -> None:
    problem = optplan.load(BASE)
    plan = laid(pp=4, micro_batches=64, global_batch=64)
    line = timeline.line(problem, plan, estimate(problem, plan))
    assert line is not None
    assert sum(path.count("M") for _, path in line.paths) == 2 * 4 * 64
    assert line.gaps == ()
    assert not any("Left out" in note for note in line.notes)
    long = laid(pp=4, micro_batches=1024, global_batch=1024)
    line = timeline.line(problem, long, estimate(problem, long))
    assert line is not None
    boxes = sum(path.count("M") for _, path in line.paths)
    assert boxes <= timeline.MOST_BOXES * 1.1
    assert len(line.gaps) == 2
    assert any("Left out between them" in note for note in line.notes)


def test_the_boxes_of_a_lane_never_overlap() -> None:
    problem = optplan.load(BASE)
    for plan in plans():
        line = timeline.line(problem, plan, estimate(problem, plan))
        assert line is not None
        lanes: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for _, path in line.paths:
            for piece in path.split("M")[1:]:
                place, width = piece.split("h")
                x, y = map(int, place.split())
                lanes[y // timeline.LANE].append((x, int(width)))
        assert set(lanes) == set(range(plan.pp))
        for boxes in lanes.values():
            boxes.sort()
            assert all(x + width <= after for (x, width), (after, _) in pairwise(boxes))
            assert boxes[-1][0] + boxes[-1][1] <= timeline.WIDE


def test_what_cannot_be_simulated_is_said() -> None:
    problem = optplan.load(BASE)
    plan = laid(pp=4, vpp=2, schedule="interleaved", micro_batches=5, global_batch=5)
    assert not allowed(plan.schedule, plan.pp, plan.vpp, plan.micro_batches)
    assert timeline.line(problem, plan, estimate(problem, plan)) is None
    assert "interleaved does not run 5 micro-batches" in timeline.why_none(plan)


def test_the_trace_holds_every_pass(tmp_path: Path) -> None:
    result = answers.result("small")
    plan = result.plan
    assert plan is not None
    path, trace = tmp_path / "plan.json", tmp_path / "trace.json"
    path.write_text(result.to_json(), encoding="utf-8")
    status, out, err = run(
        "report", str(path), "-o", str(tmp_path / "page.html"), "--trace", str(trace), "--json"
    )
    assert (status, err) == (0, "")
    said = json.loads(out)
    assert said["micro_batches_traced"] == said["micro_batches"] == plan.micro_batches
    data = json.loads(trace.read_text(encoding="utf-8"))
    events = [event for event in data["traceEvents"] if event["ph"] == "X"]
    found = simulated(result.problem, plan)
    assert found is not None
    assert len(events) == len(found.passes)
    last = max(event["ts"] + event["dur"] for event in events)
    assert last == pytest.approx(1e6 * found.seconds, rel=1e-6)
    names = {e["tid"]: e["args"]["name"] for e in data["traceEvents"] if e["name"] == "thread_name"}
    assert names == {stage: f"stage {stage}" for stage in range(plan.pp)}
    by_thread = Counter(event["tid"] for event in events)
    assert set(by_thread.values()) == {len(events) // plan.pp}
    assert "&lt;" not in trace.read_text(encoding="utf-8")
    again = tmp_path / "again.json"
    run("report", str(path), "-o", str(tmp_path / "page.html"), "--trace", str(again))
    assert again.read_bytes() == trace.read_bytes()


def test_there_is_no_trace_without_a_plan(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(answers.result("clash").to_json(), encoding="utf-8")
    status, out, err = run(
        "report", str(path), "-o", str(tmp_path / "a.html"), "--trace", str(tmp_path / "t.json")
    )
    assert (status, out) == (2, "")
    assert "no pipeline to trace" in err
    assert list(tmp_path.iterdir()) == [path]


LAYOUTS = [
    dict(tp=2, pp=4, dp=4, cp=1),
    dict(tp=1, pp=2, dp=2, cp=8),
    dict(tp=8, pp=2, dp=1, cp=2),
    dict(tp=4, pp=1, dp=8, cp=1),
    dict(tp=2, pp=2, dp=4, cp=2),
]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("degrees", LAYOUTS, ids=str)
def test_ranks_sit_where_the_cost_model_prices_them(degrees: dict[str, int], order: str) -> None:
    """Groups counted on the drawing share nodes as the prices of their collectives say."""
    problem = optplan.load(BASE)
    plan = laid(**degrees, order=order)
    node = problem.cluster.devices_per_node
    places = [coordinates(plan, rank) for rank in range(plan.devices)]
    assert len({(p.tp, p.cp, p.dp, p.pp) for p in places}) == plan.devices
    assert close(problem, plan, places, ("tp",), node) == int(group(problem, plan.tp, 1).inside)
    data = data_inside(problem, plan.tp, plan.pp, plan.dp, plan.cp, ORDERS.index(plan.order))
    assert close(problem, plan, places, ("dp", "cp"), node) == int(data)
    lead = [r for r, p in enumerate(places) if (p.tp, p.cp, p.dp) == (0, 0, 0)]
    lead.sort(key=lambda rank: places[rank].pp)
    far = sum(a // node != b // node for a, b in pairwise(lead))
    told = crossings(problem, plan.tp, plan.pp, plan.dp, plan.cp, ORDERS.index(plan.order))
    assert far == int(told)


def close(
    problem: Problem, plan: Plan, places: list[Any], along: tuple[str, ...], node: int
) -> int:
    """Members of a group that share a node, where every node holds equally many."""
    groups: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for rank, place in enumerate(places):
        rest = tuple(getattr(place, n) for n in ("tp", "cp", "dp", "pp") if n not in along)
        groups[rest].append(rank // node)
    counts = {frozenset(Counter(members).values()) for members in groups.values()}
    assert len(counts) == 1
    (one,) = counts
    assert len(one) == 1, "a group that does not tile the nodes"
    return next(iter(one))


def test_experts_take_the_ranks_of_a_stage_anew() -> None:
    """Every expert group has one member of each number, and its members lie in one stage."""
    plan = laid(tp=2, pp=2, dp=8, cp=1, ep=4, etp=2)
    places = [coordinates(plan, rank) for rank in range(plan.devices)]
    for first in range(0, plan.devices, plan.ep * plan.etp):
        held = places[first : first + plan.ep * plan.etp]
        assert {(p.ep, p.etp) for p in held} == set(product(range(4), range(2)))
        assert len({p.pp for p in held}) == 1
