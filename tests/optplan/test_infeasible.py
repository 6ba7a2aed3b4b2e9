"""Why there is no plan: nearest plans, their numbers, and ways out of every kind."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pytest

import optplan
from optplan.infeasible import find_clashes, more_ways_out
from optplan.models.cost.memory import Counts, Shards, states
from optplan.models.units import bytes_like
from optplan.planner import problem_of
from optplan.report.phases import phases_table
from optplan.report.terminal import Screen
from optplan.result import Explanation, Reason, WayOut
from optplan.solvers.core import clashes
from optplan.ways import KINDS, MOST_WAYS, sorted_ways
from tests import cores
from tests.models import samples
from tests.optplan.threads import GIB, ONE_WAY, SMALL, spec


def told(asked: dict[str, Any]) -> Explanation:
    """Explain a spec that has no plan."""
    result = optplan.solve(asked, top=0)
    assert result.exit_code == 1
    return result.explanation


def every(asked: dict[str, Any]) -> tuple[Explanation, list[WayOut]]:
    """Explain, with all ways out."""
    known = told(asked)
    more = list(more_ways_out(problem_of(asked), (), known))
    return known, [*known.ways_out, *more]


def kinds(ways: list[WayOut]) -> set[str]:
    """Sorts of changes."""
    return {way.kind for way in ways}


# -- reasons ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def m1() -> tuple[Explanation, list[WayOut]]:
    """Llama-3-70B on two nodes of H100, NVIDIA/Megatron-LM#1308, narrowed to what it turns on."""
    search = {**ONE_WAY, "global_batch": 16, "sequence_parallel": True, "recompute": "full"}
    return every(spec("llama-3-70b", 16, search, sequence=512))


def only(known: Explanation) -> Reason:
    """The one rule of a core."""
    (reason,) = known.core
    return reason


def test_memory_is_told_at_the_nearest_plan(m1: tuple[Explanation, list[WayOut]]) -> None:
    """70.55e9 parameters of 18 bytes on 16 devices are 73.9 GiB, whatever shares them."""
    reason = only(m1[0])
    assert reason.rule == "capacity.optimizer"
    assert reason.plan is not None
    assert reason.plan.devices == 16
    assert "less a reserve of 7.50 GiB" in reason.text
    assert "too much" in reason.text
    first, second, *remedies = reason.details
    assert "73.9 GiB of model states (parameters 8.21 GiB, gradients 16.4 GiB" in first
    assert second.startswith("model states alone are too much")
    assert [text.partition(":")[0].split()[0] for text in remedies] == ["ZeRO", "tp", "optimizer"]
    assert all("GB" not in text for text in (reason.text, *reason.details))


def test_the_nearest_plan_is_the_least(m1: tuple[Explanation, list[WayOut]]) -> None:
    """No plan that obeys the other rules holds less: the figure is the price of its own plan."""
    reason = only(m1[0])
    assert reason.plan is not None
    search = {**ONE_WAY, "global_batch": 16, "sequence_parallel": True, "recompute": "full"}
    large = spec("llama-3-70b", 16, search, sequence=512, goal="most-headroom")
    problem = problem_of(large)
    roomy = problem.with_accelerator(hbm=2**41)
    best = optplan.solve(roomy, top=0)
    asked = optplan.evaluate(problem, reason.plan)
    assert best.estimate is not None
    assert asked.estimate.memory.peak_bytes == best.estimate.memory.peak_bytes
    assert {name.split("[")[0] for name in asked.verdict.broken} <= {
        "capacity.hbm",
        "capacity.optimizer",
    }


def test_ways_out_of_too_little_memory(m1: tuple[Explanation, list[WayOut]]) -> None:
    known, ways = m1
    changes = {way.change: way for way in ways}
    assert {"memory", "devices", "accelerator"} <= kinds(ways)
    assert any("adam-8bit" in change for change in changes)
    assert any("adam-bf16-moments" in change for change in changes)
    host = next(way for change, way in changes.items() if "on the host" in change)
    assert host.plan.offload
    assert "DGX H100" in host.note
    grown = next(way for way in ways if way.kind == "devices")
    assert grown.edit == {"cluster.nodes": grown.plan.devices // 8}
    assert not any("lora" in change.lower() for change in changes)
    order = [KINDS.index(way.kind) for way in sorted_ways(ways)]
    assert order == sorted(order)
    assert len(order) <= MOST_WAYS
    assert known.ways_out == sorted_ways(known.ways_out)


def test_more_devices_are_the_fewest(m1: tuple[Explanation, list[WayOut]]) -> None:
    grown = next(way for way in m1[1] if way.kind == "devices")
    nodes = grown.edit["cluster.nodes"]
    search = {**ONE_WAY, "global_batch": 16, "sequence_parallel": True, "recompute": "full"}
    asked = problem_of(spec("llama-3-70b", 16, search, sequence=512))
    assert nodes == 3
    assert optplan.solve(asked.with_cluster(nodes=nodes), top=0).exit_code == 0


def test_a_host_that_is_too_small_is_named() -> None:
    """QwenLM/Qwen3#804: 12 bytes a parameter are more than the server has."""
    asked = spec("llama-2-7b", 1, {**ONE_WAY, "recompute": "full", "global_batch": 1}, sequence=512)
    asked["cluster"]["host"] = {"memory": "60 GB", "link": "64 GB/s", "bandwidth": "400 GB/s"}
    known, ways = every(asked)
    rules = {reason.rule: reason for reason in known.core}
    assert "capacity.host" in rules
    assert len(rules) == 2
    assert "75.3 GiB of 55.9 GiB" in rules["capacity.host"].text
    way = next(way for way in ways if "cluster.host.memory" in way.edit)
    assert way.edit["cluster.host.memory"] == "76 GiB"
    assert way.plan.offload


def test_activations_that_do_not_fit() -> None:
    """THUDM/slime#1522: a long sequence on one context rank; cp, recomputation and less help."""
    shape = {**SMALL, "layers": 8, "hidden": 4096, "heads": 32, "ffn": 16384}
    search = {**ONE_WAY, "tp": 2, "pp": 1, "recompute": "none", "zero": 1, "global_batch": 4}
    known, ways = every(spec(shape, 4, search, sequence=131_072))
    memory = next(r for r in known.core if r.rule == "capacity.hbm")
    assert memory.details[1].startswith("most of it: activations")
    said = "\n".join(memory.details)
    assert "recompute all layers: refused by search.recompute" in said
    assert "micro-batch: 1 already" in said
    changes = {way.change for way in ways}
    assert {"leave cp open", "leave recompute open"} <= changes
    shorter = next(way for way in ways if "sequence of" in way.change)
    assert shorter.edit["workload.sequence_length"] < 131_072


def test_a_batch_that_does_not_split_says_what_would() -> None:
    """OpenRLHF/OpenRLHF#346: 252, 266, or 4 or 8 ranks."""
    search = {**ONE_WAY, "micro_batch": 2, "global_batch": 256, "dp": 7}
    known, ways = every(spec({**SMALL, "layers": 8}, 7, search))
    assert known.core[0].rule == "search.dp"
    assert any("252 or 266; or dp 4 or 8" in text for text in known.core[0].details)
    edits = [way.edit for way in ways]
    assert {"search.global_batch": 252} in edits
    assert {"search.global_batch": 266} in edits
    assert {"search.dp": None} in edits


def test_equal_stages_name_every_legal_pipeline_and_the_framework() -> None:
    """NVIDIA/Megatron-LM#1303."""
    search = {**ONE_WAY, "pp": 16, "zero": 0, "recompute": "none", "tp": 1}
    asked = spec(SMALL, 16, search, framework="megatron-core@0.10")
    known, ways = every(asked)
    said = "\n".join(text for reason in known.core for text in reason.details)
    assert "pp in {1, 2, 4, 5, 8, 10}" in said
    assert {"choice", "framework"} <= kinds(ways)


def test_a_limit_is_told_in_its_own_unit() -> None:
    search = {**ONE_WAY, "tp": 1, "pp": 1, "zero": 0, "recompute": "none"}
    for limit, unit, other in (
        ("peak_memory <= 9 GB", "GB", "GiB"),
        ("peak_memory <= 9 GiB", "GiB", " GB"),
    ):
        text = only(told(spec(SMALL, 1, search, limits=[limit]))).text
        assert unit in text
        assert other not in text
    assert bytes_like(81_234_000_000, "peak_memory <= 72 GB") == "81.2 GB"
    assert bytes_like(8 * GIB, "tp <= 8") == "8.00 GiB"


def test_a_flag_without_meaning_is_in_nobodys_way() -> None:
    """With one context rank there is nothing that Ulysses could do, and nothing to clash."""
    search = {**ONE_WAY, "tp": 1, "context": "ulysses", "order": "pipeline_inside"}
    asked = spec(SMALL, 1, search, limits=["peak_memory <= 1 GB"])
    _, found = find_clashes(problem_of(asked))
    names = {name for clash in found for name in clash.rules}
    assert names == {"limits.limit-1"}
    assert optplan.evaluate(asked, {"tp": 1, "pp": 1, "dp": 1}).verdict.broken.keys() == {
        "limits.limit-1"
    }


def test_limits_that_meet_only_from_below_clash_all_the_same() -> None:
    """Time and memory that are each within reach, but not together."""
    kind, problem = cores.infeasible(6)
    assert kind == "time"
    form, found = find_clashes(problem_of(problem))
    assert found
    with pytest.raises(ValueError, match="feasible"):
        list(clashes(form.program.without(frozenset(form.program.constraints))))


# -- optimizers ------------------------------------------------------------------------------------

BYTES = {
    ("bf16", "adam"): 12,
    ("bf16", "adam-bf16-moments"): 8,
    ("bf16", "adam-8bit"): 6,
    ("fp16", "adam-8bit"): 10,
    ("fp32", "adam-bf16-moments"): 4,
}
"""Master copy and two moments, and for fp16 the gradient in fp32."""


@pytest.mark.parametrize(("precision", "optimizer"), BYTES)
@pytest.mark.parametrize("ranks", [1, 4])
def test_moments_take_the_bytes_they_say(precision: str, optimizer: str, ranks: int) -> None:
    changes = {"workload.precision": precision, "workload.optimizer": optimizer}
    count = 8 * 12_345
    held = states(samples.problem(changes), Counts(count, 0), Shards(ranks, 1, 1, 0))
    scales = math.ceil(2 * 4 * count / 2048) if optimizer == "adam-8bit" else 0
    assert held.optimizer == -(-(BYTES[precision, optimizer] * count + scales) // ranks)


def test_smaller_moments_take_less_time_and_memory() -> None:
    plan = {"tp": 2, "pp": 1, "dp": 2, "micro_batch": 1}
    asked = spec({**SMALL, "layers": 8}, 4, {**ONE_WAY, "zero": 0, "recompute": "none"})
    prices = []
    for name in ("adam", "adam-bf16-moments", "adam-8bit"):
        asked["workload"]["optimizer"] = name
        prices.append(optplan.evaluate(asked, plan).estimate)
    peaks = [price.memory.peak_bytes for price in prices]
    assert peaks == sorted(peaks, reverse=True)
    updates = [price.terms["T_opt"] for price in prices]
    assert updates[1] == pytest.approx(updates[0] * 32 / 40)
    assert updates[2] == pytest.approx(updates[0] * 28 / 40)


# -- screens ---------------------------------------------------------------------------------------


def test_phases_are_shown_stage_by_stage() -> None:
    asked = spec({**SMALL, "layers": 8}, 4, {**ONE_WAY, "zero": 0, "recompute": "full"})
    answer = optplan.evaluate(asked, {"tp": 1, "pp": 4, "dp": 1, "micro_batch": 1})
    screen = Screen(width=120, record=True, quiet=False, file=open_nowhere())
    screen.print(phases_table(answer.problem, answer.estimate))
    text = screen.export_text()
    assert "Memory by phase" in text
    for word in ("start", "forward", "backward", "optimizer step", "left at worst"):
        assert word in text
    assert text.count("*") >= 4


def open_nowhere() -> Any:
    """A file that keeps nothing."""
    import io

    return io.StringIO()


# -- random problems -------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [*range(7), 104])
def test_cores_are_minimal_and_ways_out_lead_out(seed: int) -> None:
    """A problem of each kind, and one of huge numbers; ``python -m tests.cores`` draws many."""
    routes: Counter[str] = Counter()
    kind, known = cores.check(seed, routes, everything=False)
    assert kind == sorted(cores.KINDS)[seed % len(cores.KINDS)]
    assert known.core


# -- people who have waited long enough ------------------------------------------------------------


def cut_short(after: int) -> tuple[optplan.Result, list[str]]:
    """Solve a spec that fits nowhere, and press Ctrl-C at the so-manieth way out."""
    tried: list[str] = []

    def say(line: str) -> None:
        if line.startswith("way out"):
            tried.append(line)
            if len(tried) > after:
                raise KeyboardInterrupt

    search = {**ONE_WAY, "global_batch": 16, "sequence_parallel": True, "recompute": "full"}
    asked = spec("llama-3-70b", 16, search, sequence=512)
    return optplan.solve(asked, top=0, say=say), tried


@pytest.mark.parametrize("after", [0, 1])
def test_ctrl_c_keeps_the_clash_and_the_ways_found(after: int) -> None:
    result, tried = cut_short(after)
    assert len(tried) == after + 1
    assert result.exit_code == 1
    assert result.explanation.core
    assert not result.explanation.complete
    assert len(result.explanation.ways_out) <= after
    verdict = optplan.verify(result.to_json()).verdict
    assert verdict == "verified"


def test_a_way_out_that_was_made_up_is_no_matter_of_time() -> None:
    result, _ = cut_short(1)
    (way,) = result.explanation.ways_out
    better = way.model_copy(update={"step_seconds": way.step_seconds / 2})
    forged = result.explanation.model_copy(update={"ways_out": (better,)})
    changed = result.model_copy(update={"explanation": forged}).sealed()
    assert optplan.verify(changed.to_json()).verdict != "verified"
    whole = forged.model_copy(update={"complete": True, "ways_out": ()})
    changed = result.model_copy(update={"explanation": whole}).sealed()
    assert optplan.verify(changed.to_json()).verdict == "not verified"
