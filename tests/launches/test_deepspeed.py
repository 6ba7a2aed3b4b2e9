"""Jobs of Megatron-DeepSpeed: read, written, amended, refused."""

from __future__ import annotations

from functools import partial

import pytest

from optplan.launches.deepspeed import DIALECT
from optplan.models.errors import InputError
from tests.launches.jobs import differences, problem, refused, rules, survives
from tests.launches.jobs import plan as any_plan

plan = partial(any_plan, context="ulysses")
"""A plan as the program makes it for this framework, which knows no ring."""

JSON = """\
{
  "train_batch_size": 256,
  "train_micro_batch_size_per_gpu": 2,
  "gradient_accumulation_steps": 16,
  "zero_optimization": {"stage": 1, "overlap_comm": true},
  "bf16": {"enabled": true}
}
"""

SCRIPT = f"""\
#!/bin/bash
TP=2
cat <<EOT > ds.json
{JSON}EOT
deepspeed --num_nodes 4 --num_gpus 8 pretrain_gpt.py \\
  --deepspeed --deepspeed_config ds.json --zero-stage 1 \\
  --tensor-model-parallel-size $TP --pipeline-model-parallel-size 2 \\
  --num-layers 24 --hidden-size 1024 --num-attention-heads 16 --seq-length 2048 \\
  --max-position-embeddings 2048 --micro-batch-size 2 --global-batch-size 256 --bf16 \\
  --checkpoint-activations --deepspeed-activation-checkpointing
"""

PLANS = [
    {"zero": 1},
    {"zero": 3, "pp": 1, "recompute": "full"},
    {"zero": 2, "pp": 1, "tp": 1, "cp": 4},
    {"zero": 1, "sequence_parallel": True, "micro_batch": 2},
]


@pytest.mark.parametrize("changed", PLANS)
def test_a_plan_comes_back_from_what_was_written(changed: dict[str, object]) -> None:
    asked = problem("megatron-deepspeed@0.19", norm="layernorm", biases="all", gated=False)
    wanted = plan(**changed)
    text = DIALECT.write(asked, wanted, "0.19")
    assert DIALECT.recognises(text)
    launch = DIALECT.read(text)
    assert launch.version == "0.19"
    assert launch.remarks == ()
    assert differences(asked, wanted, launch) == []


def test_experts_come_back() -> None:
    experts = {"count": 8, "per_token": 2, "ffn": 2816}
    asked = problem("megatron-deepspeed@0.19", experts=experts, capacity_factor=1.25)
    wanted = plan(zero=1, pp=1, ep=4, etp=2, sequence_parallel=True)
    launch = DIALECT.read(DIALECT.write(asked, wanted, "0.19"))
    assert differences(asked, wanted, launch) == []


def test_a_script_is_read_with_places() -> None:
    launch = DIALECT.read(SCRIPT)
    wanted = {"tp": 2, "pp": 2, "dp": 8, "zero": 1, "micro_batch": 2, "micro_batches": 16}
    wanted |= {"global_batch": 256, "nodes": 4, "devices_per_node": 8, "layers": 24}
    assert {name: launch.value(name) for name in wanted} == wanted
    assert launch.value("precision") == "bf16"
    found = launch.find("tp")
    assert found is not None
    assert found.span is not None
    assert (found.line, SCRIPT[slice(*found.span)]) == (2, "2")


def test_a_configuration_alone_is_read() -> None:
    launch = DIALECT.read(JSON)
    wanted = {"micro_batch": 2, "micro_batches": 16, "global_batch": 256, "zero": 1}
    assert {name: launch.value(name) for name in wanted} == wanted
    assert launch.overlap == ("grad-reduce-overlap",)


@pytest.mark.parametrize(
    ("old", "new", "rule"),
    [
        ('"train_batch_size": 256', '"train_batch_size": 250', "deepspeed.global-batch"),
        ('_per_gpu": 2', '_per_gpu": 4', "deepspeed.micro-batch"),
        ('_steps": 16', '_steps": 8', "deepspeed.batch"),
        ('"stage": 1', '"stage": 0', "deepspeed.zero-stage"),
        ('"stage": 1', '"stage": 2', "deepspeed.zero-with-pipeline"),
        ("--bf16", "--fp16", "deepspeed.precision"),
        ("--zero-stage 1", "--zero-stage 1 --no-pipeline-parallel", "deepspeed.no-pipeline"),
        ("--checkpoint-activations ", "", "deepspeed.checkpointing-off"),
        ("--num_nodes 4 --num_gpus 8", "--num_nodes 1 --num_gpus 7", "deepspeed.world"),
        ("--bf16", "--bf16 --cpu-optimizer", "deepspeed.cpu-optimizer"),
        ("--bf16", "--bf16 --num-experts 8", "deepspeed.expert-interval"),
        (
            "--bf16",
            "--bf16 --sequence-parallel --ds-sequence-parallel-size 2",
            "deepspeed.two-sequence-splits",
        ),
    ],
)
def test_contradictions_are_remarked(old: str, new: str, rule: str) -> None:
    assert rules(DIALECT.read(SCRIPT)) == []
    assert rule in rules(DIALECT.read(SCRIPT.replace(old, new)))


def test_a_wrong_batch_names_the_near_ones() -> None:
    """OpenRLHF issue 346: train batch 256, micro-batch 2, 7 devices."""
    text = SCRIPT.replace("--num_nodes 4 --num_gpus 8", "--num_nodes 1 --num_gpus 7")
    text = text.replace("TP=2", "TP=1").replace("parallel-size 2", "parallel-size 1")
    text = text.replace('_steps": 16', '_steps": 18')
    remark = next(r for r in DIALECT.read(text).remarks if r.rule == "deepspeed.batch")
    assert "= 252" in remark.problem
    assert "252 or 266" in remark.remedy


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"zero": 2}, "zero"),
        ({"zero": 1, "layers_per_stage": (5, 3)}, "layers_per_stage"),
        ({"zero": 1, "cp": 2, "context": "ring"}, "context"),
        ({"zero": 1, "recompute": "selective"}, "recompute"),
        ({"zero": 0, "offload": True}, "offload"),
    ],
)
def test_what_it_cannot_launch_is_refused_by_field(changed: dict[str, object], field: str) -> None:
    found = refused(DIALECT, problem("megatron-deepspeed"), plan(**changed), "0.19")
    assert list(found) == [field]
    assert found[field].startswith("take ")


def test_amending_changes_both_statements_of_a_value() -> None:
    """Half the data ranks and twice the micro-batch leave batch and accumulation as they are."""
    new = DIALECT.amend(SCRIPT, {"micro_batch": 4, "tp": 4})
    assert new == SCRIPT.replace("TP=2", "TP=4").replace('_per_gpu": 2', '_per_gpu": 4').replace(
        "--micro-batch-size 2", "--micro-batch-size 4"
    )


def test_amending_keeps_the_batch() -> None:
    new = DIALECT.amend(SCRIPT, {"tp": 4})
    assert new == SCRIPT.replace("TP=2", "TP=4").replace('_steps": 16', '_steps": 32')


def test_amending_adds_what_is_not_there() -> None:
    launch = DIALECT.read(DIALECT.amend(SCRIPT, {"cp": 2}))
    assert launch.value("cp") == 2


@pytest.mark.parametrize(
    ("text", "line", "problem_"),
    [
        (SCRIPT.replace("--num-layers 24", "--num-layers many"), "line 15", "no whole number"),
        (JSON.replace("256,", '256,\n"train_batch_size": 8,'), "line", "given twice"),
        (JSON.replace("256,", "256"), "line 3", "no JSON"),
        (JSON.replace("256", "9" * 30), "line 2", "out of range"),
    ],
)
def test_a_broken_job_is_refused_with_its_line(text: str, line: str, problem_: str) -> None:
    with pytest.raises(InputError) as error:
        DIALECT.read(text)
    fault = error.value.faults[0]
    assert fault.place.startswith(line)
    assert problem_ in fault.problem
    assert fault.remedy


@pytest.mark.parametrize("text", [JSON, SCRIPT])
def test_spoilt_jobs_never_end_in_a_traceback(text: str) -> None:
    assert survives(DIALECT, text) > 3
