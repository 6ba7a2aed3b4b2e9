"""Runs as problems: what is taken where a table is silent, and what cannot be expressed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from optplan.runs.express import Expressed, Inexpressible, express, stack_of
from optplan.runs.table import read_runs
from tests.runs.made import table


def expressed(folder: Path, **cells: Any) -> Expressed:
    """Express one run."""
    return express(read_runs([table(folder, cells)])[0])


def test_a_complete_run_is_one_plan_and_assumes_nothing_of_it(tmp_path: Path) -> None:
    found = expressed(tmp_path, step_time_s=3.5)
    (plan,) = found.plans
    assert (plan.tp, plan.pp, plan.dp, plan.micro_batches) == (4, 2, 2, 16)
    assert plan.recomputed_layers_per_stage == plan.layers_per_stage == (12, 12)
    assert (found.step_seconds, found.measured_from) == (3.5, "step_time_s")
    assert found.assumed == ()
    assert found.problem.calibration.name == "a100"


def test_an_open_micro_batch_gives_every_divisor(tmp_path: Path) -> None:
    found = expressed(tmp_path, micro_batch="")
    assert [plan.micro_batch for plan in found.plans] == [1, 2, 4, 8, 16, 32]


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        ({"flash_attention": ""}, "flash attention off"),
        ({"flash_attention": "", "framework": "NeMo"}, "flash attention on"),
        ({"precision": ""}, "precision fp16"),
        ({"precision": "", "framework": "NeMo"}, "precision bf16"),
        ({"precision": "mxfp8", "accelerator": "H100"}, "mxfp8 priced as fp8"),
        ({"vocab_size": ""}, "vocabulary 51200"),
        ({"num_heads": "", "num_kv_heads": ""}, "32 heads"),
        ({"ffn_hidden_size": ""}, "ffn 16384"),
        ({"zero_stage": ""}, "ZeRO 0"),
        ({"zero_stage": "", "framework": "NeMo"}, "ZeRO 1"),
        ({"recompute": ""}, "nothing recomputed"),
        ({"seq_parallel": "", "framework": "NeMo"}, "sequence parallel on"),
        ({"inter_bw_gbs": ""}, "network 25 GB/s"),
        ({"devices_per_node": ""}, "8 devices per node"),
        ({"intra_bw_gbs": 150}, "links of 300 GB/s as the data sheet says, not 150"),
        ({"accelerator": "Marvel-1"}, "Marvel-1 by the row's own columns"),
        ({"accelerator": "GB200", "devices_per_node": 4}, "links that join 16 devices, not 4"),
    ],
)
def test_what_is_taken_by_default_is_said(cells: dict[str, Any], said: str, tmp_path: Path) -> None:
    found = expressed(tmp_path, **cells)
    assert any(said in text for text in found.assumed), found.assumed


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        ({"tp": ""}, "tp not stated"),
        ({"num_layers": ""}, "num_layers not stated"),
        ({"tp": 3}, "does not divide 16 devices"),
        ({"dp": 3}, "is not 16 devices"),
        ({"num_devices": 12, "tp": 4, "pp": 1, "dp": 3}, "no whole nodes"),
        ({"global_batch": "", "micro_batch": ""}, "global batch not stated"),
        ({"micro_batch": "", "global_batch": 63}, "no multiple of dp"),
        ({"precision": "int3"}, "precision int3 has no price"),
        ({"num_layers": 1}, "fewer than 2 stages"),
        ({"accelerator": "Marvel-1", "peak_bf16_tflops": ""}, "no peak"),
        ({"accelerator": "Marvel-1", "hbm_gb": ""}, "no HBM"),
        ({"num_experts": 8}, "top_k not stated"),
        ({"num_heads": 33, "num_kv_heads": 33}, "do not divide hidden"),
        ({"precision": "fp8"}, ""),
    ],
)
def test_what_cannot_be_expressed_says_why(
    cells: dict[str, Any], said: str, tmp_path: Path
) -> None:
    if not said:
        # A100 has no FP8, but twice its peak would be a data sheet's word for it.
        assert any("fp8 peak" in text for text in expressed(tmp_path, **cells).assumed)
        return
    with pytest.raises(Inexpressible, match=said):
        expressed(tmp_path, **cells)


@pytest.mark.parametrize(
    ("framework", "zero", "stack"),
    [
        ("Megatron-LM", "0", "megatron"),
        ("NeMo/Megatron-Core", "", "megatron"),
        ("Megatron-DeepSpeed", "1", "deepspeed"),
        ("Megatron-DeepSpeed", "", "megatron"),
        ("torchtitan (FSDP2)", "3", "torchtitan"),
        ("llm-foundry (PyTorch FSDP)", "3", "fsdp"),
        ("MaxText", "3", "xla"),
        ("InternEvo", "1", "internevo"),
        ("", "1", "megatron"),
    ],
)
def test_software_is_told_by_its_name(
    framework: str, zero: str, stack: str, tmp_path: Path
) -> None:
    (run,) = read_runs([table(tmp_path, {"framework": framework, "zero_stage": zero})])
    assert stack_of(run) == stack
    assert express(run).problem.calibration.name.startswith("a100")


@pytest.mark.parametrize(
    ("cells", "column"),
    [
        ({"tokens_per_s_per_device": 1000}, "tokens_per_s_per_device"),
        ({"model_tflops_per_device": 100}, "model_tflops_per_device"),
        ({"hw_tflops_per_device": 133.3}, "hw_tflops_per_device"),
        ({"mfu": 100 / 312}, "mfu"),
    ],
)
def test_step_times_follow_from_what_is_printed(
    cells: dict[str, Any], column: str, tmp_path: Path
) -> None:
    """100 TFLOP/s of 72 B s L h^2 (1 + s / 6h + V / 12Lh), or tokens over throughput."""
    found = expressed(tmp_path, **cells)
    assert found.measured_from == column
    assert found.step_seconds is not None
    if column.startswith("tokens"):
        assert found.step_seconds == pytest.approx(64 * 2048 / 16 / 1000)
        return
    h, s, layers, batch = 4096, 2048, 24, 64
    whole = 72 * batch * s * layers * h * h * (1 + s / (6 * h) + 51200 / (12 * layers * h))
    assert found.step_seconds == pytest.approx(whole / 16 / 100e12, rel=0.02)


def test_uneven_stages_are_lightest_at_their_ends(tmp_path: Path) -> None:
    (plan,) = expressed(tmp_path, num_layers=22, pp=8, tp=1, dp=2).plans
    assert plan.layers_per_stage == (2, 3, 3, 3, 3, 3, 3, 2)
    note = "uneven pipeline: num-layer-list 17,7"
    (plan,) = expressed(tmp_path, row_note=note).plans
    assert plan.layers_per_stage == (17, 7)


@pytest.mark.parametrize(
    ("note", "schedule", "vpp"),
    [
        ("schedule ZB-V", "zb-v", 2),
        ("schedule ZB-2p", "zb-h2", 1),
        ("schedule ZB-1p", "zb-h1", 1),
        ("schedule 1F1B", "1f1b", 1),
    ],
)
def test_schedules_are_read_from_notes(note: str, schedule: str, vpp: int, tmp_path: Path) -> None:
    (plan,) = expressed(tmp_path, row_note=note).plans
    assert (plan.schedule, plan.vpp) == (schedule, vpp)
