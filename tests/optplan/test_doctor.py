"""Doctor and export: each finding in a triple, patches that mend, and files that are none."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from optplan.doctor import Diagnosis, doctor
from optplan.export import export
from optplan.launches.dialects import dialect
from optplan.launches.values import plan_from
from optplan.models.errors import InputError
from optplan.planner import solve
from tests.launches.samples import CLEAN, changed, with_options
from tests.optplan.command import ROOT, run

ON = "h100-sxm-80gb"


def errors(found: Diagnosis) -> set[str]:
    return {one.rule for one in found.findings if one.severity == "error"}


def warned(found: Diagnosis) -> set[str]:
    return {one.rule for one in found.findings if one.severity == "warning"}


LOST = (
    ("PP=2", "PP=3"),
    ("NNODES:-2", "NNODES:-3"),
    ("global-batch-size 128", "global-batch-size 12"),
)
ODD_HEADS = (
    ("--num-attention-heads 32", "--num-attention-heads 26"),
    ("--hidden-size 4096", "--hidden-size 3328"),
    ("    --group-query-attention \\\n    --num-query-groups 8 \\\n", ""),
)
WIDE = (("TP=4", "TP=16"), ("PP=2", "PP=1"), ("    --use-distributed-optimizer \\\n", ""))
VPP = "--num-layers-per-virtual-pipeline-stage 4"
FEW = ("--global-batch-size 128", "--global-batch-size 6")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (CLEAN, set()),
        # layers and stages: D3
        (changed(*LOST, ("--num-layers 32", "--num-layers 33")), set()),
        (changed(*LOST), {"megatron.layers-lost"}),
        (changed(*LOST, ("--num-layers 32", "--num-layers 2")), {"megatron.layers-lost"}),
        # the last stage alone: D5
        (with_options("--decoder-last-pipeline-num-layers 15"), set()),
        (
            with_options("--decoder-last-pipeline-num-layers 31", ("PP=2", "PP=1")),
            {"megatron.last-stage-alone"},
        ),
        (
            with_options("--decoder-last-pipeline-num-layers 1", ("PP=2", "PP=1")),
            {"megatron.last-stage-alone"},
        ),
        # heads: D19, D21
        (changed(("TP=4", "TP=8"), ("PP=2", "PP=1")), set()),
        (changed(("--num-query-groups 8", "--num-query-groups 1")), set()),
        (changed(*ODD_HEADS), {"degrees.heads", "degrees.kv_heads"}),
        # sequence with cp and sp: D15
        (with_options("--context-parallel-size 2"), set()),
        (
            with_options("--context-parallel-size 2", ("--seq-length 8192", "--seq-length 8188")),
            {"degrees.sequence_parallel"},
        ),
        # group products: D9, D11, D17
        (changed(*WIDE), set()),
        (changed(("PP=2", "PP=4"), ("TP=4", "TP=8")), {"degrees.world"}),
        (with_options("--num-experts 8 --expert-model-parallel-size 2"), set()),
        (with_options("--num-experts 8 --expert-model-parallel-size 4"), {"experts.world"}),
        # batches: D25
        (changed(("--global-batch-size 128", "--global-batch-size 2")), set()),
        (changed(("--global-batch-size 128", "--global-batch-size 127")), {"batch.split"}),
        (changed(("--global-batch-size 128", "--global-batch-size 1")), {"batch.split"}),
        # interleaving: D13, D27
        (with_options(VPP), set()),
        (with_options(f"{VPP} --no-overlap-p2p-communication"), {"pipeline.two_stages"}),
        (with_options(VPP, FEW), {"pipeline.interleaved"}),
        # the environment
        (changed(("MAX_CONNECTIONS=1", "MAX_CONNECTIONS=8")), {"megatron.connections"}),
        (changed(("export CUDA_DEVICE_MAX_CONNECTIONS=1", "")), {"megatron.connections"}),
    ],
)
def test_structure_is_judged_without_a_machine(text: str, expected: set[str]) -> None:
    found = doctor(text)
    assert errors(found) == expected
    assert found.estimate is None
    assert any("--on" in one for one in found.lacks)
    if expected:
        assert found.exit_code == 1
        assert found.corrected is not None
        again = doctor(found.corrected.text)
        assert errors(again) == set()
        assert again.plan == found.corrected.plan


def test_group_products_and_the_default_are_printed() -> None:
    found = doctor(with_options("--num-experts 8 --expert-model-parallel-size 2"))
    text = " ".join(found.groups)
    assert "etp 4 * ep 2 * pp 2 = 16, which must divide 16 devices" in text
    assert "etp 4 by default" in text


def test_a_batch_nearby_is_the_smallest_change() -> None:
    found = doctor(changed(("--global-batch-size 128", "--global-batch-size 127")))
    assert found.corrected is not None
    assert found.corrected.changes == {"global_batch": "127 -> 126"}
    (split,) = [one for one in found.findings if one.rule == "batch.split"]
    assert "126 or 128" in split.remedy


def test_versions_differ() -> None:
    text = changed(("--num-query-groups 8", "--num-query-groups 2"))
    assert errors(doctor(text, framework="megatron-core@0.16")) == set()
    assert errors(doctor(text, framework="megatron-core@0.15")) == {"degrees.kv_heads"}


def test_variables_may_be_given() -> None:
    text = changed(("${NNODES:-2}", "$SLURM_NNODES"))
    found = doctor(text, sets=["SLURM_NNODES=4"])
    assert found.plan.dp == 4
    left = doctor(text)
    assert any(one.rule == "launch.unknown" for one in left.findings)
    assert any("nodes" in one for one in left.lacks)
    assert doctor(text, sets=["nodes=8"]).plan.dp == 8


@pytest.fixture(scope="module")
def priced() -> Diagnosis:
    """A launch that recomputes for nothing, on a known machine."""
    again = "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1"
    return doctor(with_options(again), on=ON)


def test_recomputation_that_saves_what_nobody_needs(priced: Diagnosis) -> None:
    (idle,) = [one for one in priced.findings if one.rule == "recompute.useless"]
    assert "recompute none" in idle.remedy
    assert priced.best is not None
    assert priced.best.gain is not None
    assert priced.best.gain > 0.2
    assert not priced.best.within_error
    assert priced.best.error
    assert "--recompute-granularity" not in priced.best.text
    assert priced.best.patch.startswith("--- launch\n+++ launch, mended\n")
    assert "recompute.useless" not in warned(doctor(priced.best.text, on=ON))


def test_out_of_memory_names_stage_and_phase() -> None:
    big = changed(
        ("--num-layers 32", "--num-layers 80"),
        ("--hidden-size 4096", "--hidden-size 8192"),
        ("--ffn-hidden-size 14336", "--ffn-hidden-size 28672"),
        ("--num-attention-heads 32", "--num-attention-heads 64"),
        ("NNODES:-2", "NNODES:-4"),
    )
    found = doctor(big, on=ON)
    (out,) = [one for one in found.findings if one.rule == "memory.out"]
    assert "phase" in out.problem
    assert "stage 0" in out.problem
    assert found.corrected is not None
    assert "memory.out" not in {one.rule for one in doctor(found.corrected.text, on=ON).findings}


@pytest.mark.parametrize(
    ("seconds", "impossible"), [(60.0, False), (3.0, False), (1.0, True), (0.001, True)]
)
def test_speed_beyond_the_peak_raises_an_alarm(seconds: float, impossible: bool) -> None:
    found = doctor(
        changed(("--global-batch-size 128", "--global-batch-size 64")),
        on=ON,
        measured_seconds=seconds,
    )
    assert ("speed.impossible" in errors(found)) == impossible
    text = " ".join(one.problem for one in found.findings if one.rule.startswith("speed."))
    assert "989 TFLOP/s, the dense bf16 peak" in text


def test_a_spec_fills_what_the_launch_leaves_out() -> None:
    spec = {
        "workload": {"architecture": "llama-3-8b", "sequence_length": 4096},
        "cluster": {"accelerator": ON, "nodes": 2},
        "search": {"global_batch": 64},
        "limits": ["tp <= 2"],
    }
    text = (
        "torchrun x.py --tensor-model-parallel-size 4 --micro-batch-size 1 --bf16 --num-layers 32"
    )
    found = doctor(text + "\n", spec)
    assert found.problem.workload.architecture.hidden == 4096
    assert found.plan.global_batch == 64
    assert any("global batch 64" in one for one in found.taken)
    assert any(one.rule.startswith("limits.") for one in found.findings)
    with pytest.raises(InputError, match="does not tell hidden"):
        doctor(text + "\n")


def test_export_and_doctor_give_back_a_plan(tmp_path: Path) -> None:
    spec = {
        "workload": {"architecture": "llama-3-8b", "sequence_length": 8192},
        "cluster": {"accelerator": ON, "nodes": 2},
        "search": {"global_batch": 128, "recompute": ["none", "full"]},
        "framework": "megatron-core@0.15",
    }
    result = solve(spec, top=0)
    written = export(result, "megatron-core@0.15")
    found = doctor(written.text, on=ON)
    assert found.plan == result.plan
    assert errors(found) == set()
    name = tmp_path / "plan.json"
    name.write_text(result.to_json(), encoding="utf-8")
    told = run("export", str(name), "--to", "megatron-core@0.15", "-o", str(tmp_path / "go.sh"))
    assert told[0] == 0
    assert (tmp_path / "go.sh").read_text(encoding="utf-8") == written.text
    data = json.loads(name.read_text(encoding="utf-8"))
    data["plan"]["tp"] = 99
    name.write_text(json.dumps(data), encoding="utf-8")
    told = run("export", str(name), "--to", "megatron-core")
    assert told[:2] == (2, "")
    assert "changed since" in told[2]


def test_a_plan_that_a_version_cannot_launch_names_the_nearest() -> None:
    spec = {
        "workload": {"architecture": "llama-3-70b", "sequence_length": 8192},
        "cluster": {"accelerator": ON, "nodes": 8},
        "search": {"global_batch": 512, "tp": 1, "pp": 8, "recompute": "partial"},
    }
    result = solve(spec, top=0)
    assert result.plan is not None
    if len(set(result.plan.recomputed_layers_per_stage)) == 1:
        pytest.skip("the best plan recomputes as many layers on every stage")
    with pytest.raises(InputError, match=r"--nearest writes the nearest it can"):
        export(result, "megatron-core@0.15")
    near = export(result, "megatron-core@0.15", nearest=True)
    assert len(set(near.plan.recomputed_layers_per_stage)) == 1
    assert near.behind >= 0


def test_the_example_of_the_readme() -> None:
    text = (ROOT / "examples" / "llama-3-8b-16-h100.sh").read_text(encoding="utf-8")
    found = doctor(text)
    assert errors(found) == {"megatron.layers-lost", "megatron.connections", "degrees.world"}
    assert found.corrected is not None
    assert found.corrected.plan.pp == 4


def test_files_that_are_no_launch(tmp_path: Path) -> None:
    launch = tmp_path / "go.sh"
    for content in (
        b"",
        b"\x00\xff\x80",
        b"echo hello\n",
        b"\x89PNG\r\n",
        b"{]",
        CLEAN[:700].encode(),
    ):
        launch.write_bytes(content)
        told = run("doctor", str(launch))
        assert told[0] == 2, content
        assert "Traceback" not in told[2]
        assert told[2].strip()
    assert run("doctor", str(tmp_path / "none.sh"))[0] == 2
    assert run("doctor", str(tmp_path))[0] == 2


def test_broken_launches_never_end_in_a_fault_of_ours() -> None:
    rng = random.Random(11)
    bits = (
        "--",
        "8",
        "$",
        "$((",
        '"',
        "'",
        "\\\n",
        "#",
        "=",
        "-1",
        "0",
        "99999999999",
        "NaN",
        "\x00",
    )
    for _ in range(60):
        letters = list(CLEAN)
        for _ in range(rng.randint(1, 8)):
            at = rng.randrange(len(letters))
            letters[at : at + rng.randint(0, 30)] = [rng.choice(bits)]
        try:
            plan_from(dialect("megatron-core").read("".join(letters)), {})
        except InputError:
            continue


def test_the_command_writes_what_it_mends(tmp_path: Path) -> None:
    launch, mended = tmp_path / "go.sh", tmp_path / "mended.sh"
    launch.write_text(changed(("export CUDA_DEVICE_MAX_CONNECTIONS=1\n", "")), encoding="utf-8")
    told = run("doctor", str(launch), "-o", str(mended))
    assert told[0] == 1
    assert "+export CUDA_DEVICE_MAX_CONNECTIONS=1" in told[1]
    assert "export CUDA_DEVICE_MAX_CONNECTIONS=1" in mended.read_text(encoding="utf-8")
    assert run("doctor", str(mended))[0] == 0
    data = json.loads(run("doctor", str(launch), "--json")[1])
    assert data["findings"][0]["rule"] == "megatron.connections"
    assert run("doctor", str(launch), "-o", str(launch))[0] == 2
