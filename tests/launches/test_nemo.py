"""Launches of NeMo: read, written, amended, refused."""

from __future__ import annotations

from typing import Any

import pytest

from optplan.launches.nemo import DIALECT
from optplan.models.errors import InputError
from tests.launches.jobs import differences, plan, problem, refused, rules, survives

SECOND = """\
TP=2
nemo llm pretrain --factory "llama3_8b(num_nodes=2)" trainer.devices=8 \\
  trainer.strategy.tensor_model_parallel_size=$TP trainer.strategy.pipeline_model_parallel_size=2 \\
  data.micro_batch_size=1 data.global_batch_size=64 data.seq_length=8192
"""

FIRST = """\
trainer:
  devices: 8
  num_nodes: 2
  precision: bf16
model:
  micro_batch_size: 1
  global_batch_size: 64
  tensor_model_parallel_size: 4
  pipeline_model_parallel_size: 2
  encoder_seq_length: 2048
  max_position_embeddings: ${.encoder_seq_length}
  num_layers: 24
  hidden_size: 2048
  ffn_hidden_size: 8192
  num_attention_heads: 16
  activations_checkpoint_granularity: selective
  sequence_parallel: True
  optim:
    name: distributed_fused_adam
"""

BRIDGE = """\
torchrun --nnodes 2 --nproc_per_node 8 scripts/pretrain.py \\
  model.tensor_model_parallel_size=2 model.expert_model_parallel_size=4 model.num_layers=16 \\
  model.hidden_size=1024 model.ffn_hidden_size=2048 model.num_attention_heads=16 \\
  model.num_moe_experts=8 train.global_batch_size=64 train.micro_batch_size=1 \\
  model.seq_length=4096 ddp.use_distributed_optimizer=true mixed_precision=bf16_mixed
"""

PLANS = [
    {"zero": 1, "sequence_parallel": True},
    {"zero": 0, "recompute": "full"},
    {"zero": 1, "recompute": "selective", "micro_batch": 2},
    {"zero": 1, "vpp": 2, "schedule": "interleaved", "pp": 4, "tp": 1},
]


@pytest.mark.parametrize("version", ["2.0", "2.2", "2.4"])
@pytest.mark.parametrize("changed", PLANS)
def test_a_plan_comes_back_from_what_was_written(version: str, changed: dict[str, object]) -> None:
    asked = problem(f"nemo@{version}")
    wanted = plan(**changed)
    text = DIALECT.write(asked, wanted, version)
    assert DIALECT.recognises(text)
    launch = DIALECT.read(text)
    assert launch.version == version
    assert differences(asked, wanted, launch) == []


def test_stages_of_any_size_come_back_where_there_is_a_layout() -> None:
    asked = problem("nemo@2.4")
    wanted = plan(zero=1, pp=4, tp=1, layers_per_stage=(1, 3, 2, 2))
    assert differences(asked, wanted, DIALECT.read(DIALECT.write(asked, wanted, "2.4"))) == []
    assert list(refused(DIALECT, problem("nemo@2.0"), wanted, "2.0")) == ["layers_per_stage"]


def test_latent_attention_comes_back() -> None:
    latent = {"q_rank": 0, "kv_rank": 64, "nope": 32, "rope": 16, "value": 64}
    asked = problem("nemo@2.4", latent=latent, kv_heads=16)
    wanted = plan(zero=1)
    assert differences(asked, wanted, DIALECT.read(DIALECT.write(asked, wanted, "2.4"))) == []


def test_a_recipe_with_overrides_is_read_with_places() -> None:
    launch = DIALECT.read(SECOND)
    wanted = {"tp": 2, "pp": 2, "nodes": 2, "devices_per_node": 8, "micro_batch": 1}
    wanted |= {"global_batch": 64, "sequence_length": 8192, "layers": 32, "ffn": 14336}
    assert {name: launch.value(name) for name in wanted} == wanted
    found = launch.find("nodes")
    assert found is not None
    assert found.span is not None
    assert SECOND[slice(*found.span)] == "2"


def test_a_configuration_of_nemo_1_is_read() -> None:
    launch = DIALECT.read(FIRST)
    wanted = {"tp": 4, "pp": 2, "nodes": 2, "devices_per_node": 8, "zero": 1, "layers": 24}
    wanted |= {"sequence_length": 2048, "learned_positions": 2048}
    assert {name: launch.value(name) for name in wanted} == wanted
    assert launch.value("precision") == "bf16"
    assert launch.value("recompute") == "selective"
    assert launch.value("sequence_parallel") is True


def test_megatron_bridge_is_read() -> None:
    launch = DIALECT.read(BRIDGE)
    wanted = {"tp": 2, "ep": 4, "etp": 2, "zero": 1, "nodes": 2, "devices_per_node": 8}
    wanted |= {"experts.count": 8, "global_batch": 64}
    assert {name: launch.value(name) for name in wanted} == wanted
    assert launch.value("precision") == "bf16"


def test_the_expert_degree_that_follows_tensors_is_remarked() -> None:
    """NVIDIA-NeMo/Speech issue 14838: the four group products, and the default."""
    remark = next(r for r in DIALECT.read(BRIDGE).remarks if r.rule == "nemo.expert-tensor-default")
    assert "dense tp 2 x cp 1 = 2, experts ep 4 x etp 2 = 8" in remark.problem
    assert "dp 8 and expert dp 2, times pp 1" in remark.problem
    assert remark.severity == "warning"
    wrong = DIALECT.read(BRIDGE.replace("--nnodes 2", "--nnodes 1").replace("node 8", "node 4"))
    severe = {r.rule: r.severity for r in wrong.remarks}
    assert severe["nemo.expert-tensor-default"] == "error"
    told = BRIDGE.replace("ddp.", "model.expert_tensor_parallel_size=1 ddp.")
    assert "nemo.expert-tensor-default" not in rules(DIALECT.read(told))


def test_what_only_the_recipe_knows_is_remarked() -> None:
    assert "nemo.recipe-defaults" not in rules(DIALECT.read(SECOND))
    text = SECOND.replace(" trainer.strategy.pipeline_model_parallel_size=2", "")
    assert "nemo.recipe-defaults" in rules(DIALECT.read(text))


@pytest.mark.parametrize(
    ("shape", "changed", "field"),
    [
        ({"sinks": True}, {"zero": 1}, "workload.architecture.sinks"),
        ({"learned_positions": 8192}, {"zero": 1}, "workload.architecture.learned_positions"),
        ({}, {"zero": 1, "schedule": "gpipe"}, "schedule"),
    ],
)
def test_what_it_cannot_launch_is_refused_by_field(
    shape: dict[str, Any], changed: dict[str, object], field: str
) -> None:
    found = refused(DIALECT, problem("nemo@2.4", **shape), plan(**changed), "2.4")
    assert list(found) == [field]
    assert found[field]


def test_amending_touches_the_literals_alone() -> None:
    assert DIALECT.amend(SECOND, {"tp": 4, "global_batch": 128}) == SECOND.replace(
        "TP=2", "TP=4"
    ).replace("global_batch_size=64", "global_batch_size=128")
    assert DIALECT.amend(FIRST, {"tp": 8}) == FIRST.replace("size: 4", "size: 8")


def test_amending_adds_what_is_not_there() -> None:
    launch = DIALECT.read(DIALECT.amend(SECOND, {"cp": 2, "recompute": "full"}))
    assert (launch.value("cp"), launch.value("recompute")) == (2, "full")


@pytest.mark.parametrize(
    ("text", "line", "problem_"),
    [
        (SECOND.replace("TP=2", "TP=two"), "line 1", "no whole number"),
        (FIRST.replace("layers: 24", "layers: lots"), "line 12", "no whole number"),
        (FIRST.replace("model:", "model: ["), "line", ""),
        (FIRST.replace("  devices: 8", "  devices: 8\n  devices: 4"), "line 3", "given twice"),
    ],
)
def test_a_broken_launch_is_refused_with_its_line(text: str, line: str, problem_: str) -> None:
    with pytest.raises(InputError) as error:
        DIALECT.read(text)
    fault = error.value.faults[0]
    assert fault.place.startswith(line)
    assert problem_ in fault.problem
    assert fault.remedy


@pytest.mark.parametrize("text", [FIRST, SECOND, BRIDGE])
def test_spoilt_launches_never_end_in_a_traceback(text: str) -> None:
    assert survives(DIALECT, text) > 3
