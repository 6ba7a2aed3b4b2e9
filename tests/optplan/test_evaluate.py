"""The command ``evaluate``: one plan priced, judged, and compared with the best."""

from __future__ import annotations

import json
from typing import Any

import pytest

import optplan
from optplan.models.expression import ALIASES
from optplan.models.formulate import CHOICES
from optplan.result import Evaluation
from tests.optplan.command import JOBS, OPEN, facts, job, run, solved

QWEN = job("qwen-14b")
BEST = {"tp": 4, "pp": 2, "dp": 2, "micro_batch": 4, "micro_batches": 64, "global_batch": 512}
FLAGS = {
    "cp": 1,
    "ep": 1,
    "etp": 1,
    "vpp": 1,
    "schedule": "1f1b",
    "sequence_parallel": False,
    "recompute": "none",
    "zero": 0,
    "hsdp": False,
    "context": "ring",
    "order": "data_inside",
    "offload": False,
}


def evaluated(*choices: str, spec: str = QWEN) -> tuple[int, dict[str, Any]]:
    """Exit status and JSON of one call."""
    status, out, err = run("evaluate", spec, *choices, "--json")
    assert err == ""
    answer: dict[str, Any] = json.loads(out)
    return status, answer


def words(**choices: object) -> list[str]:
    """Write choices as a person types them."""
    return [f"{name}={str(value).lower()}" for name, value in choices.items()]


@pytest.mark.parametrize("name", [*JOBS, *OPEN])
def test_the_optimum_is_priced_as_solve_priced_it(name: str) -> None:
    """A full plan gets the same estimate and verdict, is the best, and nothing was chosen."""
    best = facts(solved(name, "cp-sat"))
    choices = {key: best["plan"][key] for key in CHOICES}
    status, answer = evaluated(*words(**choices), spec=job(name))
    assert status == 0
    assert answer["chosen"] == []
    assert answer["plan"] == best["plan"]
    assert answer["estimate"] == best["estimate"]
    assert answer["verdict"] == best["verdict"]
    assert answer["optimum"]["plan"] == best["plan"]
    assert answer["behind"] == 0
    assert set(answer["terms_behind"].values()) == {0.0}


@pytest.mark.parametrize("given", [(), ("tp=4",), ("t=4", "p=2"), ("micro_batch=4", "dp=2")])
def test_what_is_left_open_is_chosen_as_well_as_possible(given: tuple[str, ...]) -> None:
    """Parts of the optimum are completed to the optimum, and the rest is named as chosen."""
    status, answer = evaluated(*given)
    assert status == 0
    assert {key: answer["plan"][key] for key in BEST} == BEST
    named = {ALIASES.get(word.partition("=")[0], word.partition("=")[0]) for word in given}
    assert named.isdisjoint(answer["chosen"])
    assert set(answer["chosen"]) <= set(CHOICES)
    assert answer["behind"] == 0


def test_a_partial_plan_is_completed_to_the_best_of_its_kind() -> None:
    """The completion of tp=8 is what solve finds with tp=8 set."""
    status, answer = evaluated("tp=8")
    fixed = facts(run("solve", QWEN, "--json", "--set", "tp=8")[1])
    assert status == 0
    assert answer["plan"] == fixed["plan"]
    assert answer["behind"] > 0


@pytest.mark.parametrize(
    ("letter", "name"),
    [("t", "tp"), ("p", "pp"), ("d", "dp"), ("b", "micro_batch"), ("m", "micro_batches")],
)
def test_the_papers_letters_are_accepted(letter: str, name: str) -> None:
    assert evaluated(f"{letter}={BEST[name]}") == evaluated(f"{name}={BEST[name]}")


def test_the_papers_letter_for_the_global_batch_is_accepted() -> None:
    assert evaluated("G=256") == evaluated("global_batch=256")


@pytest.mark.parametrize(
    "choices",
    [
        ("tp=8",),
        ("tp=1", "pp=8"),
        ("global_batch=256",),
        tuple(words(tp=8, pp=2, dp=1, micro_batch=1, micro_batches=7, global_batch=7, **FLAGS)),
        tuple(words(tp=4, pp=2, dp=3, micro_batch=3, micro_batches=5, global_batch=7)),
    ],
)
def test_the_distance_and_its_terms_add_up(choices: tuple[str, ...]) -> None:
    """Seconds beyond the optimum, term by term, are the whole difference for the same batch."""
    _, answer = evaluated(*choices)
    mine, best = answer["estimate"]["step_seconds"], answer["optimum"]["step_seconds"]
    batch, its = answer["plan"]["global_batch"], answer["optimum"]["plan"]["global_batch"]
    scaled = best * batch / its
    terms = answer["terms_behind"]
    total = sum(terms.values()) - 2 * terms["TO"]
    assert total == pytest.approx(mine - scaled, abs=1e-9 * mine)
    assert answer["behind"] == pytest.approx(mine / scaled - 1, rel=1e-9)
    assert list(terms) == list(answer["estimate"]["terms"])


def test_every_broken_rule_is_listed_with_its_numbers() -> None:
    """A plan wrong in seven ways hears all seven at once, and exit 1."""
    status, answer = evaluated(
        *words(tp=16, pp=3, dp=3, micro_batch=3, micro_batches=5, global_batch=7),
        *words(sequence_parallel=True, recompute="full", zero=1),
    )
    assert status == 1
    broken = answer["verdict"]["broken"]
    assert set(broken) == {
        "degrees.world",
        "degrees.heads",
        "degrees.kv_heads",
        "degrees.node",
        "batch.split",
        "pipeline.layers",
        "search.sequence_parallel",
        "search.recompute",
        "search.zero",
    }
    assert "144 of 16 devices" in broken["degrees.world"]
    assert "45, global_batch 7" in broken["batch.split"]
    assert "pp 3 x vpp 1 does not divide 40 layers" in broken["pipeline.layers"]
    assert answer["verdict"]["holds"] is False


def test_a_plan_that_does_not_fit_names_every_stage() -> None:
    """Memory is asked stage by stage; two full stages are two findings."""
    plan = words(tp=1, pp=2, dp=8, micro_batch=8, micro_batches=8, global_batch=512, **FLAGS)
    status, answer = evaluated(*plan)
    assert status == 1
    broken = answer["verdict"]["broken"]
    assert {"capacity.hbm[stage=0]", "capacity.hbm[stage=1]"} <= set(broken)
    assert all(name.startswith("capacity.") for name in broken)
    assert all("of 64.0 GiB" in text for text in broken.values())


def test_a_limit_is_one_of_the_rules() -> None:
    status, out, _ = run("evaluate", QWEN, "tp=8", "--limit", "pp >= 2", "--json", "--set", "pp=1")
    assert status == 1
    assert "limits.limit-1" in json.loads(out)["verdict"]["broken"]


@pytest.mark.parametrize(
    ("choices", "forced"),
    [
        (("tp=16",), {"degrees.heads", "degrees.kv_heads", "degrees.node"}),
        (("tp=8", "pp=2", "dp=1", "zero=1"), {"degrees.zero", "search.zero"}),
    ],
)
def test_a_completion_breaks_no_rule_that_it_need_not(
    choices: tuple[str, ...], forced: set[str]
) -> None:
    """What a person left open must not add findings to those that the given values force."""
    status, answer = evaluated(*choices)
    assert status == 1
    assert set(answer["verdict"]["broken"]) == forced


REFUSED = [
    (("tp=3",), ("tp=3", "no layout of 16 devices", "{1, 2, 4, 8, 16}")),
    (("tp=4", "pp=8"), ("tp=4 pp=8", "no layout of 16 devices")),
    (("tp=0",), ("tp", "cannot read 0", "from 1")),
    (("tp=-4",), ("tp", "'-4'", "from 1")),
    (("tp=4.0",), ("tp", "'4.0'")),
    (("tp=99999999999",), ("tp", "99999999999")),
    (("zero=4",), ("zero", "4", "from 0 to 3")),
    (("zero=3",), ("zero=3", "no layout of 16 devices", "legal: zero in {0, 1}")),
    (("recompute=some",), ("recompute", "'some'", "none, selective, partial, full")),
    (("recompute=selective",), ("recompute=selective", "recompute in {none, full}")),
    (("schedule=zb-h9",), ("schedule", "'zb-h9'", "1f1b, gpipe, interleaved, zb-h1")),
    (("schedule=gpipe",), ("schedule=gpipe", "legal: schedule in {1f1b}")),
    (("context=rings",), ("context", "'rings'", "ring, ulysses")),
    (("sequence_parallel=2",), ("sequence_parallel", "true or false")),
    (("hsdp=1",), ("hsdp", "true or false")),
    (("layers_per_stage=20,x",), ("layers_per_stage", "'20,x'", "one whole number a stage")),
    (("tp",), ("'tp'", "tp=8")),
    (("=4",), ("'=4'", "tp=8")),
    (("tp=4", "t=8"), ("'t=8'", "given twice")),
    (("foo=3",), ("foo", "known choices", "micro_batch")),
    (("cp=2",), ("cp=2", "legal: cp in {1}")),
]


@pytest.mark.parametrize(("choices", "said"), REFUSED)
def test_an_impossible_value_is_refused_on_one_line(
    choices: tuple[str, ...], said: tuple[str, ...]
) -> None:
    """Exit 2, the value as it was written, and what would be right."""
    status, out, err = run("evaluate", QWEN, *choices)
    assert (status, out) == (2, "")
    assert err.count("\n") == 1, err
    for part in said:
        assert part in err, err


def test_every_impossible_value_is_reported_at_once() -> None:
    status, out, err = run("evaluate", QWEN, "tp=0", "zero=9", "recompute=some")
    assert (status, out, len(err.splitlines())) == (2, "", 3)


def test_python_takes_a_mapping_and_a_plan() -> None:
    """A dictionary of choices, and a plan that solve returned."""
    best = optplan.solve(QWEN, top=0)
    assert best.plan is not None
    by_plan = optplan.evaluate(QWEN, best.plan)
    by_names = optplan.evaluate(QWEN, {**BEST, **FLAGS})
    assert isinstance(by_plan, Evaluation)
    assert by_plan == by_names
    assert by_plan.chosen == ()
    assert by_plan.verdict.holds
    assert by_plan.exit_code == 0


@pytest.mark.parametrize(
    "given",
    [
        ("zero=3", "dp=4"),
        ("cp=2", "context=ulysses"),
        ("pp=3",),
        ("schedule=zb-v", "vpp=2"),
        ("recompute=selective", "tp=8"),
        ("tp=2", "pp=2", "dp=1"),
    ],
)
def test_every_new_choice_may_be_given_and_the_rest_is_chosen(given: tuple[str, ...]) -> None:
    """Schedules, sharding, context parallelism, odd pipelines and devices left idle."""
    status, answer = evaluated(*given, spec=job("dense"))
    assert (status, answer["verdict"]["broken"]) == (0, {})
    for name, value in (word.split("=") for word in given):
        assert str(answer["plan"][name]) == value
        assert name not in answer["chosen"]
    assert answer["behind"] >= 0


def test_layers_may_be_handed_out_by_hand() -> None:
    """Layers per stage, and how many of them are recomputed, are part of a plan."""
    given = ("layers_per_stage=20,12", "recomputed_layers_per_stage=1,0")
    status, answer = evaluated(*given, spec=job("dense"))
    plan = answer["plan"]
    assert status == 0
    assert (plan["pp"], plan["layers_per_stage"]) == (2, [20, 12])
    assert (plan["recompute"], plan["recomputed_layers_per_stage"]) == ("full", [1, 0])
    status, answer = evaluated("layers_per_stage=20,11", spec=job("dense"))
    assert status == 1
    assert "31 of 32 layers" in answer["verdict"]["broken"]["pipeline.layers[all]"]


def test_a_framework_is_one_of_the_rules() -> None:
    """What the launcher cannot do is named with the framework and what it can."""
    status, answer = evaluated("schedule=zb-h1", "pp=4", "ep=8", spec=job("experts"))
    assert status == 1
    assert "megatron-core@0.15" in answer["verdict"]["broken"]["framework.schedule"]


def test_python_judges_a_plan_with_uneven_stages() -> None:
    """A plan object may hold what no choice can say; the rules still judge it."""
    best = optplan.solve(QWEN, top=0).plan
    assert best is not None
    uneven = optplan.evaluate(QWEN, best.model_copy(update={"layers_per_stage": (21, 18)}))
    assert "stages hold 39 of 40 layers" in uneven.verdict.broken["pipeline.layers[all]"]


@pytest.mark.parametrize("change", [{"pp": 4}, {"layers_per_stage": (40,)}])
def test_python_refuses_a_plan_that_contradicts_itself(change: dict[str, Any]) -> None:
    """Stages and the list of their layers must agree; anything else is an input error."""
    best = optplan.solve(QWEN, top=0).plan
    assert best is not None
    with pytest.raises(optplan.InputError, match="layers_per_stage"):
        optplan.evaluate(QWEN, best.model_copy(update=change))


@pytest.mark.parametrize("value", [True, 2.0, "4", None, [4]])
def test_python_refuses_a_value_of_the_wrong_kind(value: object) -> None:
    with pytest.raises(optplan.InputError, match="tp"):
        optplan.evaluate(QWEN, {"tp": value})


def test_a_spec_without_any_plan_still_prices_the_given_one() -> None:
    """There is no optimum to compare with, and the plan is judged all the same."""
    status, out, err = run("evaluate", QWEN, "tp=8", "--json", "--limit", "peak_memory <= 20 GB")
    answer = json.loads(out)
    assert (status, err) == (1, "")
    assert answer["optimum"] is answer["behind"] is None
    assert answer["terms_behind"] == {}
    assert "limits.limit-1" in answer["verdict"]["broken"]


def test_the_terminal_shows_the_verdict_and_the_distance() -> None:
    """The same facts for people."""
    status, out, err = run("evaluate", QWEN, "tp=8")
    assert (status, err) == (0, "")
    for part in ("every rule holds", "against the best layout", "beyond best", "+1.", "TCT"):
        assert part in out, part
    status, out, err = run("evaluate", QWEN, "tp=16")
    assert (status, err) == (1, "")
    for part in ("Broken rules", "degrees.heads", "does not divide 40 attention heads"):
        assert part in out, part
    assert "it is the best" in run("evaluate", QWEN)[1]
