"""torchtitan's jobs: read, written, amended, refused."""

from __future__ import annotations

import pytest

from optplan.launches.torchtitan import DIALECT
from optplan.models.errors import InputError
from tests.launches.jobs import differences, plan, problem, refused, rules, survives

JOB = """\
[model]
name = "llama3"
flavor = "8B"

[training]
local_batch_size = 8   # on every rank
global_batch_size = 32
seq_len = 8192

[parallelism]
data_parallel_shard_degree = 4
tensor_parallel_degree = 2
pipeline_parallel_degree = 2
pipeline_parallel_schedule = "1F1B"

[activation_checkpoint]
mode = "full"  # or none
"""

PLANS = [
    {"zero": 3},
    {"zero": 2, "micro_batch": 2, "layers_per_stage": (5, 3)},
    {"zero": 3, "pp": 1, "recompute": "full"},
    {"zero": 3, "vpp": 2, "schedule": "interleaved"},
    {"zero": 3, "vpp": 2, "schedule": "zb-v"},
    {"zero": 2, "schedule": "gpipe", "cp": 2},
]


@pytest.mark.parametrize("version", ["0.1", "0.2", "0.3"])
@pytest.mark.parametrize("changed", PLANS)
def test_a_plan_comes_back_from_what_was_written(version: str, changed: dict[str, object]) -> None:
    asked = problem(f"torchtitan@{version}")
    wanted = plan(sequence_parallel=True, **changed)
    text = DIALECT.write(asked, wanted, version)
    assert DIALECT.recognises(text)
    launch = DIALECT.read(text)
    assert launch.version == version
    assert differences(asked, wanted, launch) == []


@pytest.mark.parametrize("version", ["0.2", "0.3"])
def test_experts_come_back(version: str) -> None:
    experts = {"count": 16, "per_token": 2, "ffn": 512}
    asked = problem(f"torchtitan@{version}", experts=experts, qk_norm=True, head_dim=128)
    wanted = plan(zero=3, ep=8, pp=1, sequence_parallel=True)
    launch = DIALECT.read(DIALECT.write(asked, wanted, version))
    assert differences(asked, wanted, launch) == []


def test_sharding_inside_of_nodes_comes_back() -> None:
    asked = problem("torchtitan@0.2")
    wanted = plan(tp=1, pp=1, zero=3, hsdp=True)
    text = DIALECT.write(asked, wanted, "0.2")
    assert "data_parallel_replicate_degree = 2\ndata_parallel_shard_degree = 8\n" in text
    assert differences(asked, wanted, DIALECT.read(text)) == []


def test_a_named_network_is_named() -> None:
    asked = problem("torchtitan@0.2").model_copy(
        update={"workload": problem("torchtitan@0.2").workload}
    )
    shape = DIALECT.read(JOB)
    assert shape.value("layers") == 32
    assert shape.value("ffn") == 14336
    assert "optplan_flavor" in DIALECT.write(asked, plan(zero=3, sequence_parallel=True), "0.2")


def test_a_job_is_read_with_places() -> None:
    launch = DIALECT.read(JOB)
    wanted = {"tp": 2, "pp": 2, "dp": 4, "micro_batch": 1, "micro_batches": 8, "global_batch": 32}
    assert {name: launch.value(name) for name in wanted} == wanted
    found = launch.find("tp")
    assert found is not None
    assert found.span is not None
    assert (found.line, JOB[slice(*found.span)]) == (12, "2")
    assert launch.value("layers_per_stage") == (16, 16)


@pytest.mark.parametrize(
    ("old", "new", "rule"),
    [
        ("local_batch_size = 8", "local_batch_size = 3", "torchtitan.global-batch"),
        (
            'schedule = "1F1B"',
            'schedule = "1F1B"\npipeline_parallel_microbatch_size = 3',
            "torchtitan.microbatch",
        ),
        ("global_batch_size = 32", "global_batch_size = 64", "torchtitan.pipeline-drained"),
        ("local_batch_size = 8", "local_batch_size = 1", "torchtitan.few-microbatches"),
        ('"1F1B"', '"DualPipeV"', "torchtitan.schedule"),
        ('mode = "full"', 'mode = "selective"\nselective_ac_option = "op"', "torchtitan.selective"),
        (
            'schedule = "1F1B"',
            'schedule = "1F1B"\npipeline_parallel_split_points = ["layers.8", "layers.9"]',
            "torchtitan.chunks",
        ),
    ],
)
def test_what_bites_is_remarked(old: str, new: str, rule: str) -> None:
    assert rule not in rules(DIALECT.read(JOB))
    assert rule in rules(DIALECT.read(JOB.replace(old, new)))


def test_degrees_that_are_not_the_devices_are_remarked() -> None:
    text = DIALECT.write(problem("torchtitan@0.2"), plan(zero=3, sequence_parallel=True), "0.2")
    assert "torchtitan.world" not in rules(DIALECT.read(text))
    wrong = text.replace("data_parallel_shard_degree = 4", "data_parallel_shard_degree = 3")
    assert "torchtitan.world" in rules(DIALECT.read(wrong))
    left = text.replace("data_parallel_shard_degree = 4", "data_parallel_shard_degree = -1")
    assert DIALECT.read(left).value("dp") == 4


def test_every_nth_layer_is_counted() -> None:
    text = JOB.replace('mode = "full"', 'mode = "selective"\nselective_ac_option = "3"')
    launch = DIALECT.read(text)
    assert launch.value("recompute") == "full"
    assert launch.value("recomputed_layers_per_stage") == (5, 5)


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"zero": 1}, "zero"),
        ({"zero": 3, "schedule": "zb-h1"}, "schedule"),
        ({"zero": 3, "recompute": "selective"}, "recompute"),
        ({"zero": 3, "sequence_parallel": False}, "sequence_parallel"),
        ({"zero": 0}, "zero"),
        ({"zero": 3, "order": "pipeline_inside"}, "order"),
    ],
)
def test_what_it_cannot_launch_is_refused_by_field(changed: dict[str, object], field: str) -> None:
    wanted = plan(**{"sequence_parallel": True, **changed})
    found = refused(DIALECT, problem("torchtitan@0.2"), wanted, "0.2")
    assert list(found) == [field]
    assert found[field].startswith("take ")


def test_amending_touches_the_literals_alone() -> None:
    """Half the data ranks take twice the micro-batches; the global batch stays."""
    new = DIALECT.amend(JOB, {"tp": 4, "dp": 2, "recompute": "none"})
    wanted = JOB.replace("tensor_parallel_degree = 2", "tensor_parallel_degree = 4")
    wanted = wanted.replace("shard_degree = 4", "shard_degree = 2")
    wanted = wanted.replace("local_batch_size = 8", "local_batch_size = 16")
    assert new == wanted.replace('mode = "full"', 'mode = "none"')


def test_a_batch_that_is_not_stated_is_not_guessed() -> None:
    """Without nodes and batch nobody can say how many micro-batches another degree needs."""
    text = JOB.replace("global_batch_size = 32\n", "").replace(
        "shard_degree = 4", "shard_degree = -1"
    )
    with pytest.raises(InputError) as error:
        DIALECT.amend(text, {"tp": 4})
    assert error.value.faults[0].path == "global_batch"


def test_what_no_key_can_say_is_refused_when_amending() -> None:
    with pytest.raises(InputError):
        DIALECT.amend(JOB, {"schedule": "zb-h1"})


def test_amending_adds_what_is_not_there() -> None:
    launch = DIALECT.read(DIALECT.amend(JOB, {"zero": 3, "layers_per_stage": (17, 15)}))
    assert launch.value("zero") == 3
    assert launch.value("layers_per_stage") == (17, 15)


@pytest.mark.parametrize("version", ["0.1", "0.2", "0.3"])
def test_a_written_job_can_be_amended(version: str) -> None:
    asked = problem(f"torchtitan@{version}")
    text = DIALECT.write(asked, plan(zero=3, sequence_parallel=True), version)
    launch = DIALECT.read(DIALECT.amend(text, {"zero": 2, "micro_batch": 2, "micro_batches": 4}))
    assert (launch.value("zero"), launch.value("micro_batch")) == (2, 2)
    assert (launch.value("micro_batches"), launch.value("global_batch")) == (4, 32)


@pytest.mark.parametrize(
    ("text", "line", "problem_"),
    [
        (JOB.replace("= 2\n", '= "two"\n', 1), "line 12", "'two' is no whole number"),
        (JOB.replace("= 2\n", f"= {'9' * 30}\n", 1), "line 12", "out of range"),
        (
            JOB.replace("shard_degree = 4", "shard_degree = 4\ndata_parallel_shard_degree = 2"),
            "line",
            "twice",
        ),
        (JOB.replace('"1F1B"', '"2F2B"'), "line 14", "no choice here"),
        (JOB.replace("[training]", "[training"), "line 5", "no TOML"),
    ],
)
def test_a_broken_job_is_refused_with_its_line(text: str, line: str, problem_: str) -> None:
    with pytest.raises(InputError) as error:
        DIALECT.read(text)
    fault = error.value.faults[0]
    assert fault.place.startswith(line)
    assert problem_ in fault.problem
    assert fault.remedy


@pytest.mark.parametrize("version", ["", "0.1", "0.3"])
def test_spoilt_jobs_never_end_in_a_traceback(version: str) -> None:
    wanted = plan(zero=3, sequence_parallel=True)
    text = DIALECT.write(problem("torchtitan@0.2"), wanted, version) if version else JOB
    assert survives(DIALECT, text) > 5
