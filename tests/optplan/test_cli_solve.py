"""The command ``solve``: what it prints, what it proves, and how it refuses."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import optplan
from optplan import catalogue
from optplan.models.cost.price import NEW_TERMS, PARTS, TERMS
from tests.optplan.command import ENGINES, JOBS, OPEN, facts, job, run, script, solved

KEYS = {
    "": "format status plan estimate certificate alternatives within_error robust flips "
    "explanation verdict costs front front_claim warnings rules digest seconds problem",
    "status": "termination holding",
    "plan": "tp pp dp cp ep etp micro_batch micro_batches global_batch vpp schedule "
    "sequence_parallel zero hsdp context order offload recompute layers_per_stage "
    "recomputed_layers_per_stage",
    "estimate": "step_seconds tokens_per_second_per_device mfu terms late_seconds memory",
    "estimate.terms": "TF TCT TAT TCC TCE TL TO TCD TAD TB TCP T_opt T_own",
    "estimate.memory": "peak_bytes allocated_bytes capacity_bytes risk binding_stage stages",
    "estimate.memory.stages.0": "stage layers recomputed peak_bytes parts phases in_flight "
    "micro_batch_seconds",
    "estimate.memory.stages.0.parts": "parameters gradients optimizer activations working reserve",
    "certificate": "fingerprint goal bound unit bound_seconds gap tick_seconds points "
    "strategies_log10 removed_by_rule removed_by_bound left prunings priced engine seed",
    "alternatives.0": "plan step_seconds tokens_per_second_per_device peak_bytes behind",
    "explanation": "core further ways_out complete",
}
"""The contract of design.md, section 5, and the keys that were added to it."""

QWEN = job("qwen-14b")
every_job = pytest.mark.parametrize("name", JOBS)
any_job = pytest.mark.parametrize("name", [*JOBS, *OPEN])
every_engine = pytest.mark.parametrize("engine", ENGINES)


def engines(name: str) -> tuple[str, ...]:
    """Engines that take a job: the paper's knows the paper's world only."""
    return ENGINES if name in JOBS else ENGINES[:2]


def at(data: Any, path: str) -> Any:
    """Value under a dotted path."""
    for key in path.split(".") if path else ():
        data = data[int(key) if isinstance(data, list) else key]
    return data


def account(certificate: dict[str, Any]) -> int:
    """Points that a certificate says something about."""
    removed = sum(certificate["removed_by_rule"].values()) + certificate["removed_by_bound"]
    return int(removed + sum(certificate["prunings"].values()) + certificate["left"])


@any_job
def test_every_engine_proves_the_same_optimum(name: str) -> None:
    """Different roads lead to one step time, one plan and no gap."""
    answers = {engine: facts(solved(name, engine)) for engine in engines(name)}
    first = answers["cp-sat"]
    for engine, answer in answers.items():
        seconds = answer["estimate"]["step_seconds"]
        assert seconds == pytest.approx(first["estimate"]["step_seconds"], rel=1e-9), engine
        assert answer["plan"] == first["plan"], engine
        assert 0 <= answer["certificate"]["gap"] <= 1e-6
        assert answer["status"]["holding"] == "optimal"
        assert answer["status"]["termination"] in ("proved", "exhausted")
        assert answer["certificate"]["engine"].startswith(engine)


@any_job
def test_every_point_is_accounted_for(name: str) -> None:
    """Refused by a rule, fallen to the bound, pruned, or left: nothing is lost."""
    for engine in engines(name):
        certificate = facts(solved(name, engine))["certificate"]
        assert account(certificate) == certificate["points"] > 0
        assert min(certificate["left"], certificate["removed_by_bound"], certificate["priced"]) >= 0
        assert all(n > 0 for n in certificate["removed_by_rule"].values())


@every_engine
@pytest.mark.parametrize("path", KEYS)
def test_the_keys_of_the_json_are_the_contract(path: str, engine: str) -> None:
    """No key is missing, none is new without this list knowing, and the order is fixed."""
    assert list(at(json.loads(solved("qwen-14b", engine)), path)) == KEYS[path].split()


@any_job
def test_the_terms_add_up_to_the_step(name: str) -> None:
    estimate = facts(solved(name, "cp-sat"))["estimate"]
    terms = estimate["terms"]
    total = sum(terms.values()) - 2 * terms["TO"]
    assert total == pytest.approx(estimate["step_seconds"], rel=1e-12)
    assert (tuple(terms), tuple(estimate["memory"]["stages"][0]["parts"])) == (tuple(TERMS), PARTS)


@any_job
def test_the_parts_of_a_stage_add_up_to_its_peak(name: str) -> None:
    answer = facts(solved(name, "cp-sat"))
    memory, plan = answer["estimate"]["memory"], answer["plan"]
    assert [use["stage"] for use in memory["stages"]] == list(range(plan["pp"]))
    assert [use["layers"] for use in memory["stages"]] == plan["layers_per_stage"]
    again = plan["recomputed_layers_per_stage"]
    assert [use["recomputed"] for use in memory["stages"]] == again
    for use in memory["stages"]:
        assert sum(use["parts"].values()) == use["peak_bytes"]
    peaks = [use["peak_bytes"] for use in memory["stages"]]
    assert max(peaks) == memory["peak_bytes"] == peaks[memory["binding_stage"]]
    assert memory["peak_bytes"] <= memory["capacity_bytes"]


@any_job
def test_alternatives_follow_the_plan_in_order(name: str) -> None:
    """Every next-best plan is another plan, none is faster, and each says how far behind it is."""
    answer = facts(solved(name, "cp-sat"))
    behind = [other["behind"] for other in answer["alternatives"]]
    assert len(behind) == 2
    assert behind == sorted(behind)
    assert min(behind) >= -1e-9
    best = answer["estimate"]["step_seconds"]
    for other in answer["alternatives"]:
        assert other["plan"] != answer["plan"]
        assert other["plan"]["global_batch"] == answer["plan"]["global_batch"]
        assert other["step_seconds"] / best - 1 == pytest.approx(other["behind"], abs=1e-9)


@any_job
def test_the_same_question_gets_the_same_bytes(name: str) -> None:
    for engine in engines(name):
        again = run("solve", job(name), "--json", "--engine", engine, "--top", "2")[1]
        assert facts(again) == facts(solved(name, engine))
        assert list(facts(again)) == list(facts(solved(name, engine)))


@any_job
def test_workers_do_not_change_the_answer(name: str) -> None:
    two = run("solve", job(name), "--json", "--top", "2", "--workers", "2")[1]
    assert facts(two) == facts(solved(name, "cp-sat"))


def test_the_seed_does_not_change_the_plan() -> None:
    other = facts(run("solve", QWEN, "--json", "--top", "2", "--seed", "7")[1])
    assert other["certificate"].pop("seed") == 7
    first = facts(solved("qwen-14b", "cp-sat"))
    first["certificate"].pop("seed")
    assert other.pop("digest") != first.pop("digest")
    assert other == first


def test_a_mapping_and_a_file_get_the_same_answer() -> None:
    """Python mirrors the command."""
    result = optplan.solve(optplan.load(QWEN), top=2)
    assert facts(result.to_json()) == facts(solved("qwen-14b", "cp-sat"))


@every_engine
def test_set_and_limit_narrow_the_answer(engine: str) -> None:
    """A value set and a condition added are obeyed, and the condition is a named rule."""
    options = ("--set", "tp=8", "--set", "micro_batch=[1, 2]", "--limit", "pp * dp <= 4")
    status, out, err = run("solve", QWEN, "--json", "--engine", engine, *options)
    assert (status, err) == (0, "")
    answer = facts(out)
    assert answer["plan"]["tp"] == 8
    assert answer["plan"]["micro_batch"] in (1, 2)
    assert answer["plan"]["pp"] * answer["plan"]["dp"] <= 4
    assert "limits.limit-1" in answer["verdict"]["kept"]
    assert account(answer["certificate"]) == answer["certificate"]["points"]
    free = facts(solved("qwen-14b", engine))
    assert answer["certificate"]["goal"] >= free["certificate"]["goal"]
    assert answer["certificate"]["fingerprint"] != free["certificate"]["fingerprint"]


def test_a_limit_that_forbids_the_best_plan_never_prunes_with_it() -> None:
    best = facts(solved("qwen-14b", "cp-sat"))
    forbid = f"tp != {best['plan']['tp']}"
    answers = [
        facts(run("solve", QWEN, "--json", "--engine", engine, "--limit", forbid)[1])
        for engine in ENGINES
    ]
    assert answers[0]["plan"] == answers[1]["plan"] == answers[2]["plan"]
    for answer in answers:
        assert answer["certificate"]["gap"] <= 1e-6
        assert answer["certificate"]["goal"] > best["certificate"]["goal"]


@pytest.mark.parametrize("top", [0, 1, 4])
def test_top_says_how_many_next_plans_are_shown(top: int) -> None:
    answer = facts(run("solve", QWEN, "--json", "--top", str(top))[1])
    assert len(answer["alternatives"]) == top
    assert answer["plan"] == facts(solved("qwen-14b", "cp-sat"))["plan"]


def test_an_ample_time_limit_changes_nothing() -> None:
    limited = facts(run("solve", QWEN, "--json", "--top", "2", "--time-limit", "10min")[1])
    assert limited == facts(solved("qwen-14b", "cp-sat"))


@every_engine
def test_an_impossible_spec_names_the_clash_and_ways_out(engine: str) -> None:
    """Exit 1, the smallest clash by name, and changes that were solved."""
    options = ("--engine", engine, "--limit", "peak_memory <= 20 GB")
    status, out, err = run("solve", QWEN, "--json", *options)
    assert (status, err) == (1, "")
    answer = facts(out)
    assert answer["status"]["holding"] == "nothing"
    assert answer["plan"] is answer["estimate"] is answer["certificate"]["gap"] is None
    assert [reason["rule"] for reason in answer["explanation"]["core"]] == ["limits.limit-1"]
    assert "25.4 GB against 20.0 GB" in answer["explanation"]["core"][0]["text"]
    ways = answer["explanation"]["ways_out"]
    assert ways[0]["change"].startswith("drop the limit limit-1")
    best = facts(solved("qwen-14b", engine))
    assert ways[0]["plan"] == best["plan"]
    assert ways[0]["step_seconds"] == best["estimate"]["step_seconds"]
    assert account(answer["certificate"]) == answer["certificate"]["points"]


def test_an_impossible_spec_is_explained_to_people() -> None:
    status, out, err = run("solve", QWEN, "--set", "tp=16")
    assert (status, err) == (1, "")
    for part in ("no plan exists", "degrees.node", "search.tp", "Ways out", "leave tp open"):
        assert part in out


@every_job
def test_the_terminal_shows_the_same_facts(name: str) -> None:
    """The plan, the figures, the proof, every term, every stage, every count."""
    status, out, err = run("solve", job(name), "--top", "2")
    assert (status, err) == (0, "")
    answer = facts(solved(name, "cp-sat"))
    plan, certificate = answer["plan"], answer["certificate"]
    for part in (
        *(f"{key} {plan[key]}  " for key in ("tp", "pp", "dp")),
        f"global batch {plan['global_batch']}",
        "proven optimal, gap",
        "on hardware:",
        "tokens/s/device",
        "MFU",
        "peak memory",
        f"{certificate['points']:,} points",
        *certificate["removed_by_rule"],
        *(name for name in TERMS if name not in NEW_TERMS),
        *PARTS,
        "Next-best plans",
    ):
        assert part in out, part
    for count in certificate["removed_by_rule"].values():
        assert f"{count:,}" in out
    assert "\x1b" not in out


def test_the_terminal_shows_what_the_paper_does_not_know() -> None:
    """Expert and context parallelism, chunks, the framework, and the layers of every stage."""
    status, out, err = run("solve", job("experts"), "--top", "2")
    assert (status, err) == (0, "")
    answer = facts(solved("experts", "cp-sat"))
    plan, terms = answer["plan"], answer["estimate"]["terms"]
    degrees = [key for key in ("cp", "ep", "vpp") if plan[key] > 1]
    assert "ep" in degrees
    assert f"{plan['layers_per_stage'][0]}*{plan['pp']}" in out
    for part in (
        "megatron-core@0.15",
        f"schedule {plan['schedule']}",
        f"zero {plan['zero']}",
        *(f"{key} {plan[key]} " for key in degrees),
        *(name for name in NEW_TERMS if terms[name]),
    ):
        assert part in out, part


def test_the_paper_engine_says_that_it_knows_the_papers_world_only() -> None:
    """Nothing is found, and nothing is claimed."""
    code, out, err = run("solve", job("dense"), "--json", "--engine", "paper")
    answer = facts(out)
    assert (code, err) == (3, "")
    status = answer["status"]
    assert (status["termination"], status["holding"]) == ("unsupported", "nothing")
    assert any("prices: paper" in warning for warning in answer["warnings"])
    assert answer["plan"] is answer["certificate"]["gap"] is None


@every_engine
def test_a_limit_on_time_from_below_is_answered_or_refused(engine: str) -> None:
    best = facts(solved("qwen-14b", "cp-sat"))["estimate"]["step_seconds"]
    limit = ("--limit", f"step_seconds >= {best + 1} s")
    status, out, err = run("solve", QWEN, "--json", "--engine", engine, *limit)
    answer = facts(out)
    assert err == ""
    if engine in ("cp-sat", "milp"):
        assert status == 0
        assert answer["estimate"]["step_seconds"] >= best + 1
        assert answer["certificate"]["gap"] <= 1e-6
    else:
        assert (status, answer["status"]["termination"]) == (3, "unsupported")


def test_breakdown_shows_every_stage() -> None:
    """A long pipeline is cut in the middle unless every stage is asked for."""
    options = ("--set", "pp=16", "--set", "tp=1", "--limit", "dp == 1")
    status, short, err = run("solve", job("baichuan2-7b"), *options)
    assert (status, err) == (0, "")
    long = run("solve", job("baichuan2-7b"), "--breakdown", *options)[1]
    assert any(line.split() == ["..."] for line in short.splitlines())
    numbers = {line.split()[0].rstrip("*") for line in long.splitlines() if line.split()}
    assert {str(stage) for stage in range(16)} <= numbers


@pytest.mark.parametrize("option", [(), ("--json",)])
def test_a_pipe_gets_no_colours(option: tuple[str, ...]) -> None:
    """A real pipe: no escape codes, nothing on stderr, and JSON alone where JSON is asked for."""
    code = script("from optplan.cli import main\nsys.exit(main(sys.argv[1:]))")
    done = subprocess.run(
        [sys.executable, "-c", code, "solve", QWEN, *option], capture_output=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"\x1b" not in done.stdout
    if option:
        assert facts(done.stdout.decode())["plan"] == facts(solved("qwen-14b", "cp-sat"))["plan"]


REFUSED = [
    (("solve", QWEN, "--engine", "cpsat"), ("engine", "cpsat", "did you mean cp-sat")),
    (("solve", QWEN, "--top", "-1"), ("--top", "-1", "0 to 1000")),
    (("solve", QWEN, "--top", "x"), ("--top", '"x"', "int")),
    (("solve", QWEN, "--top", "1", "--top", "2"), ("--top", "multiple times")),
    (("solve", QWEN, "--time-limit", "60"), ("--time-limit", "'60'", "60 s")),
    (("solve", QWEN, "--time-limit", "0s"), ("--time-limit", "'0s'", "more than 0 s")),
    (("solve", QWEN, "--time-limit", "5 GB"), ("--time-limit", "'5 GB'")),
    (("solve", QWEN, "--workers", "0"), ("--workers", "1 to 1024")),
    (("solve", QWEN, "--seed", "-1"), ("--seed", "-1")),
    (("solve", QWEN, "--set", "tp"), ("--set tp", "key=value")),
    (("solve", QWEN, "--set", "tpp=3"), ("tpp", "did you mean 'tp'")),
    (("solve", QWEN, "--set", "tp=0"), ("--set tp", "search.tp", "'0'", "at least 1")),
    (("solve", QWEN, "--set", "cluster.nodes=2.5"), ("cluster.nodes", "'2.5'", "whole number")),
    (("solve", QWEN, "--limit", "pp <"), ("--limit 'pp <'", "missing")),
    (("solve", QWEN, "--limit", "qq <= 4"), ("--limit", "qq")),
    (("solve", QWEN, "--jsn"), ("--jsn", "Did you mean --json")),
    (("solve", QWEN, "more"), ("more",)),
    (("solve",), ("SPEC",)),
    (("sovle", QWEN), ("sovle", 'Did you mean "solve"')),
    (("--bogus",), ("--bogus", "optplan --help")),
    (("catalogue", "h10"), ("'h10'", "did you mean h100")),
    (("catalogue", "nothing-like-it"), ("nothing-like-it", "optplan catalogue lists all names")),
    (("solve", "nowhere.yaml"), ("nowhere.yaml", "no such file")),
    (("solve", ""), ("file",)),
]


@pytest.mark.parametrize(("arguments", "said"), REFUSED)
def test_a_wrong_call_is_refused_on_one_line(
    arguments: tuple[str, ...], said: tuple[str, ...]
) -> None:
    """Exit 2, one line that quotes the value and says what would be right, and no traceback."""
    status, out, err = run(*arguments)
    assert (status, out) == (2, "")
    assert err.count("\n") == 1, err
    assert "Traceback" not in err
    for part in said:
        assert part in err, err


def test_every_wrong_option_value_of_a_spec_is_reported_at_once() -> None:
    status, out, err = run("solve", QWEN, "--set", "tp=x", "--set", "pp=-1", "--limit", "dp <")
    assert (status, out, len(err.splitlines())) == (2, "", 3)


def test_the_catalogue_lists_and_shows_everything_it_ships() -> None:
    """The list has every name, and each entry shows its sources."""
    status, out, err = run("catalogue")
    assert (status, err) == (0, "")
    listed = json.loads(run("catalogue", "--json")[1])
    for kind in ("workloads", "accelerators", "calibrations", "frameworks"):
        names = catalogue.names(kind)
        assert [row["name"] for row in listed[kind]] == list(names)
        assert all(name in out for name in names)
    for name in ("llama-3-70b", "ascend-910b", "mixtral-8x7b"):
        status, out, err = run("catalogue", name)
        assert (status, err) == (0, "")
        assert name in out
        assert "source" in out
        assert json.loads(run("catalogue", name, "--json")[1])["name"] == name


def test_the_schema_accepts_the_examples() -> None:
    """What editors check with knows every key of the shipped specs."""
    jsonschema = pytest.importorskip("jsonschema")
    yaml = pytest.importorskip("ruamel.yaml").YAML(typ="safe", pure=True)
    status, out, err = run("schema")
    assert (status, err) == (0, "")
    schema = json.loads(out)
    for name in (*JOBS, *OPEN):
        jsonschema.validate(yaml.load(Path(job(name))), schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"workload": {}, "cluster": {}, "serach": {}}, schema)
