"""Launches of Accelerate: read, written, amended, refused."""

from __future__ import annotations

import pytest

from optplan.launches.accelerate import DIALECT
from optplan.models.errors import InputError
from tests.launches.jobs import differences, plan, problem, refused, rules, survives

CONFIG = """\
compute_environment: LOCAL_MACHINE
distributed_type: FSDP
downcast_bf16: 'no'
fsdp_config:
  fsdp_sharding_strategy: SHARD_GRAD_OP
  fsdp_offload_params: false
  fsdp_activation_checkpointing: true
mixed_precision: bf16
num_machines: 2
num_processes: 16
"""

SCRIPT = f"""\
#!/bin/bash
MBS=2
cat > fsdp.yaml <<'YAML'
{CONFIG}YAML
accelerate launch --config_file fsdp.yaml train.py \\
  --model_name_or_path meta-llama/Meta-Llama-3-8B --max_seq_length 4096 \\
  --per_device_train_batch_size $MBS --gradient_accumulation_steps 4 --bf16 True
"""

PLANS = [
    {"zero": 3},
    {"zero": 2, "recompute": "full", "micro_batch": 2},
    {"zero": 3, "hsdp": True},
    {"zero": 0},
]


@pytest.mark.parametrize("version", ["1.0", "1.6", "1.12"])
@pytest.mark.parametrize("changed", PLANS)
def test_a_plan_comes_back_from_what_was_written(version: str, changed: dict[str, object]) -> None:
    asked = problem(f"accelerate@{version}")
    wanted = plan(tp=1, pp=1, **changed)
    text = DIALECT.write(asked, wanted, version)
    assert DIALECT.recognises(text)
    launch = DIALECT.read(text)
    assert launch.version == version
    assert differences(asked, wanted, launch) == []


@pytest.mark.parametrize(
    "changed", [{"tp": 4}, {"tp": 2, "cp": 2}, {"tp": 2, "cp": 1, "hsdp": True}]
)
def test_a_mesh_comes_back(changed: dict[str, object]) -> None:
    asked = problem("accelerate@1.12")
    wanted = plan(pp=1, zero=3, **changed)
    launch = DIALECT.read(DIALECT.write(asked, wanted, "1.12"))
    assert differences(asked, wanted, launch) == []
    assert launch.remarks == ()


def test_a_script_is_read_with_places() -> None:
    launch = DIALECT.read(SCRIPT)
    wanted = {"nodes": 2, "devices_per_node": 8, "dp": 16, "zero": 2, "recompute": "full"}
    wanted |= {"micro_batch": 2, "micro_batches": 4, "global_batch": 128, "sequence_length": 4096}
    assert {name: launch.value(name) for name in wanted} == wanted
    assert launch.value("layers") == 32
    found = launch.find("micro_batch")
    assert found is not None
    assert found.span is not None
    assert (found.line, SCRIPT[slice(*found.span)]) == (2, "2")


@pytest.mark.parametrize(
    ("old", "new", "rule"),
    [
        ("--bf16 True", "--bf16 True --global_batch_size 100", "accelerate.global-batch"),
        ("--bf16 True", "--fp16 True", "accelerate.precision"),
        ("--bf16 True", "--gradient_checkpointing True", "accelerate.checkpointing-twice"),
        ("num_processes: 16", "num_processes: 15", "accelerate.processes"),
        ("num_processes: 16", "num_processes: 8", "accelerate.processes-in-all"),
        ("  fsdp_offload", "  fsdp_version: 2\n  fsdp_offload", "accelerate.strategy-ignored"),
        ("distributed_type: FSDP", "distributed_type: MEGATRON_LM", "accelerate.kind"),
        ("--config_file fsdp", "--config_file other", "accelerate.file-apart"),
    ],
)
def test_what_bites_is_remarked(old: str, new: str, rule: str) -> None:
    assert rules(DIALECT.read(SCRIPT)) == []
    assert rule in rules(DIALECT.read(SCRIPT.replace(old, new)))


def test_a_wrong_global_batch_names_the_near_ones() -> None:
    """OpenRLHF issue 346: 256 on 7 devices of 2."""
    text = SCRIPT.replace("num_machines: 2", "num_machines: 1").replace(": 16", ": 7")
    text = text.replace("steps 4", "steps 18 --global_batch_size 256")
    remark = next(r for r in DIALECT.read(text).remarks if r.rule == "accelerate.global-batch")
    assert "= 252" in remark.problem
    assert "252 or 266" in remark.remedy


@pytest.mark.parametrize(
    ("changed", "version", "field"),
    [
        ({"pp": 2}, "1.12", "pp"),
        ({"zero": 1}, "1.12", "zero"),
        ({"tp": 2}, "1.0", "tp"),
        ({"tp": 2, "sequence_parallel": True}, "1.12", "sequence_parallel"),
        ({"cp": 2, "context": "ulysses"}, "1.12", "context"),
    ],
)
def test_what_it_cannot_launch_is_refused_by_field(
    changed: dict[str, object], version: str, field: str
) -> None:
    wanted = plan(**{"tp": 1, "pp": 1, "zero": 3, **changed})
    found = refused(DIALECT, problem("accelerate@1.12"), wanted, version)
    assert field in found
    assert found[field].startswith("take ")


def test_a_network_of_no_family_is_refused() -> None:
    asked = problem("accelerate@1.12", gated=False)
    found = refused(DIALECT, asked, plan(tp=1, pp=1, zero=3), "1.12")
    assert list(found) == ["workload.architecture"]


def test_amending_touches_the_literals_alone() -> None:
    new = DIALECT.amend(SCRIPT, {"micro_batch": 1, "micro_batches": 8, "zero": 3})
    assert new == SCRIPT.replace("MBS=2", "MBS=1").replace("steps 4", "steps 8").replace(
        "SHARD_GRAD_OP", "FULL_SHARD"
    )


def test_amending_adds_what_is_not_there() -> None:
    text = SCRIPT.replace(" --gradient_accumulation_steps 4", "")
    text = text.replace("  fsdp_activation_checkpointing: true\n", "")
    launch = DIALECT.read(DIALECT.amend(text, {"micro_batches": 8, "recompute": "full"}))
    assert (launch.value("micro_batches"), launch.value("recompute")) == (8, "full")


@pytest.mark.parametrize(
    ("text", "line", "problem_"),
    [
        (CONFIG.replace("16", "many"), "line 10", "no whole number"),
        (CONFIG.replace("SHARD_GRAD_OP", "SHARD_GRADS"), "line 5", "no choice here"),
        (CONFIG.replace("bf16\n", "bf16\nmixed_precision: no\n"), "line 9", "given twice"),
        (CONFIG.replace("fsdp_config:", "fsdp_config: ["), "line", ""),
    ],
)
def test_a_broken_configuration_is_refused_with_its_line(
    text: str, line: str, problem_: str
) -> None:
    with pytest.raises(InputError) as error:
        DIALECT.read(text)
    fault = error.value.faults[0]
    assert fault.place.startswith(line)
    assert problem_ in fault.problem
    assert fault.remedy


@pytest.mark.parametrize("text", [CONFIG, SCRIPT])
def test_spoilt_launches_never_end_in_a_traceback(text: str) -> None:
    assert survives(DIALECT, text) > 5
