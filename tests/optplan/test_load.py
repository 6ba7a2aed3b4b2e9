"""From a spec to a problem: what is filled in, what the command line changes, what is fast."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from optplan import catalogue
from optplan.faults import EXAMPLES, record_at
from optplan.load import load
from optplan.models.errors import Fault, InputError
from optplan.models.spec.cluster import Accelerator
from optplan.models.spec.problem import Problem
from optplan.models.spec.space import Span
from optplan.models.spec.workload import Architecture
from optplan.places import Refusal
from optplan.schema import json_schema

CALIBRATION = (
    "{utilization_peak: 0.6, reserve: 4 GiB, measured: false, "
    "fitted_on: a prior, range: any, error: unknown, sources: {}}"
)
GOOD = f"""\
workload: {{architecture: llama-3-70b, sequence_length: 8192, precision: bf16}}
cluster:  {{accelerator: h100-sxm-80gb, nodes: 8, devices_per_node: 8, network: 400 Gb/s}}
search:                       # what may be chosen
  global_batch: 512           # or a list, or a range
  micro_batch: {{max: 8}}
  tp: [1, 2, 4, 8]
limits:
  - tp == 8
  - pp * tp <= 32
  - {{name: keep-headroom, rule: "peak_memory <= 72 GB"}}
goal: fastest
calibration: {CALIBRATION}
"""
SMALL = f"""\
workload: {{architecture: {{layers: 4, hidden: 64, heads: 4, ffn: 128, vocabulary: 100}},
  sequence_length: 32}}
cluster:
  accelerator:
    peak: {{bf16: 1 TFLOP/s}}
    hbm: 1 GiB
    hbm_bandwidth: 1 GB/s
    link: {{kind: switch, bandwidth: 1 GB/s}}
    domain: 4
    network: 8 Gb/s
  nodes: 2
search: {{global_batch: 8}}
calibration: {CALIBRATION}
"""


def test_the_example_of_the_design_is_read(tmp_path: Path) -> None:
    spec = tmp_path / "spec.yaml"
    spec.write_text(GOOD, encoding="utf-8")
    problem = load(spec)
    assert problem.workload.architecture == catalogue.architecture("llama-3-70b")
    assert problem.cluster.network == 50_000_000_000
    assert problem.search.tp == (1, 2, 4, 8)
    assert isinstance(problem.search.micro_batch, Span)
    assert [limit.name for limit in problem.limits] == ["limit-1", "limit-2", "keep-headroom"]
    assert load(str(spec)) == problem


def test_text_with_a_mark_and_foreign_line_ends_is_the_same_spec(tmp_path: Path) -> None:
    spec = tmp_path / "spec.yaml"
    spec.write_bytes(b"\xef\xbb\xbf" + GOOD.replace("\n", "\r\n").encode())
    assert load(spec) == load(GOOD)


def test_a_problem_reads_its_own_dump() -> None:
    problem = load(GOOD)
    assert load(problem) == problem
    assert load(problem.model_dump(mode="json")) == problem
    assert Problem.model_validate(problem.model_dump(mode="json")) == problem
    assert load(json.dumps(problem.model_dump(mode="json"))) == problem


def test_an_accelerator_brings_its_usual_node_and_network() -> None:
    problem = load(SMALL)
    assert problem.cluster.devices_per_node == 4
    assert problem.cluster.network == 10**9
    assert problem.calibration.name == "custom"
    known = load(GOOD.replace(", devices_per_node: 8, network: 400 Gb/s", ""))
    device = catalogue.accelerator("h100-sxm-80gb")
    assert known.cluster.devices_per_node == device.domain
    assert known.cluster.network == device.network


def test_python_records_are_taken_as_they_are() -> None:
    cluster = load(GOOD).cluster
    spec = load(GOOD).model_dump(mode="json") | {"cluster": cluster}
    assert load(spec).cluster == cluster


def test_sets_go_over_the_spec() -> None:
    problem = load(
        GOOD,
        sets=[
            "tp=8",
            "cluster.nodes=4",
            "micro_batch=[1, 2, 4]",
            "workload.sequence_length = 4096",
            "search.pp={max: 4}",
            "cluster.network=200 Gb/s",
            "schedule=[1f1b, zb-v]",
            "zero=[2, 3]",
            "layers_per_stage=[41, 39]",
            "idle_devices=false",
            "framework=megatron-core@0.15",
            "overlap=[tp-overlap]",
        ],
    )
    assert problem.search.schedule == ("1f1b", "zb-v")
    assert problem.search.zero == (2, 3)
    assert problem.search.layers_per_stage == (41, 39)
    assert problem.search.idle_devices is False
    assert problem.framework == catalogue.framework("megatron-core@0.15")
    assert problem.overlap == ("tp-overlap",)
    assert problem.search.tp == 8
    assert problem.cluster.nodes == 4
    assert problem.search.micro_batch == (1, 2, 4)
    assert problem.workload.sequence_length == 4096
    assert problem.search.pp == Span(max=4)
    assert problem.cluster.network == 25 * 10**9


def test_a_set_can_write_the_whole_spec() -> None:
    base = load(SMALL)
    parts = base.model_dump(mode="json")
    sets = [f"{key}={json.dumps(value)}" for key, value in parts.items()]
    assert load({}, sets=sets) == base


def test_limits_of_the_command_line_are_appended() -> None:
    problem = load(GOOD, limits=["pp <= 4"])
    assert [(limit.name, limit.rule) for limit in problem.limits][-1] == ("limit-4", "pp <= 4")
    assert [limit.name for limit in load(SMALL, limits=["pp <= 4"]).limits] == ["limit-1"]


def test_an_alias_repeats_a_value() -> None:
    text = GOOD.replace("micro_batch: {max: 8}", "micro_batch: &few {max: 8}\n  pp: *few")
    assert load(text).search.pp == Span(max=8)


def test_yaml_is_read_by_the_rules_of_1_2() -> None:
    text = SMALL.replace("global_batch: 8", "global_batch: 010, micro_batch: 0x4, pp: null")
    problem = load(text)
    assert problem.search.global_batch == 10
    assert problem.search.micro_batch == 4
    assert problem.search.pp is None


def test_a_calibration_comes_from_a_file_beside_the_spec(tmp_path: Path) -> None:
    body = f"aliases: []\ncalibration: {CALIBRATION}\n"
    (tmp_path / "ours.yaml").write_text(body, encoding="utf-8")
    spec = tmp_path / "spec.yaml"
    spec.write_text(SMALL.replace(CALIBRATION, "ours.yaml"), encoding="utf-8")
    problem = load(spec)
    assert problem.calibration.name == "ours"
    assert problem.calibration.reserve == 4 * 2**30


def test_a_fault_in_a_calibration_file_names_that_file(tmp_path: Path) -> None:
    (tmp_path / "ours.yaml").write_text("utilization_peak: 2\nreserve: 4 Gb\n", encoding="utf-8")
    spec = tmp_path / "spec.yaml"
    spec.write_text(SMALL.replace(CALIBRATION, "ours.yaml"), encoding="utf-8")
    with pytest.raises(InputError) as caught:
        load(spec)
    places = {fault.path: fault.place for fault in caught.value.faults}
    assert places["calibration.utilization_peak"] == "ours.yaml:1:19"
    assert places["calibration.reserve"] == "ours.yaml:2:10"


# -- Hugging Face ----------------------------------------------------------------------------------

CONFIG: dict[str, Any] = {
    "model_type": "qwen2",
    "num_hidden_layers": 28,
    "hidden_size": 3584,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "intermediate_size": 18944,
    "vocab_size": 152064,
    "tie_word_embeddings": False,
    "hidden_act": "silu",
}


def hf_spec(tmp_path: Path, config: object) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    spec = tmp_path / "spec.yaml"
    shape = "architecture: {layers: 4, hidden: 64, heads: 4, ffn: 128, vocabulary: 100}"
    spec.write_text(SMALL.replace(shape, "hf: config.json"), encoding="utf-8")
    return spec


def test_a_config_json_gives_the_architecture(tmp_path: Path) -> None:
    shape = load(hf_spec(tmp_path, CONFIG)).workload.architecture
    assert (shape.layers, shape.hidden, shape.kv_heads, shape.ffn) == (28, 3584, 4, 18944)
    assert shape.gated
    assert shape.biases == "qkv"
    spec = tmp_path / "inside.yaml"
    beside = hf_spec(tmp_path, CONFIG).read_text(encoding="utf-8")
    inside = "architecture: {hf: config.json}"
    spec.write_text(beside.replace("hf: config.json", inside), encoding="utf-8")
    assert load(spec).workload.architecture == shape
    plain = load(hf_spec(tmp_path, CONFIG | {"model_type": "llama"})).workload.architecture
    assert plain.biases == "none"


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (CONFIG | {"num_experts": 8}, "has experts"),
        (CONFIG | {"model_type": "bert"}, "unknown family 'bert'"),
        (CONFIG | {"hidden_size": "wide"}, "'hidden_size' is 'wide'"),
        (CONFIG | {"num_attention_heads": 27}, "do not fit"),
        ({k: v for k, v in CONFIG.items() if k != "vocab_size"}, "lacks 'vocab_size'"),
        ([], "holds no JSON object"),
    ],
)
def test_a_foreign_config_json_is_refused(tmp_path: Path, config: object, said: str) -> None:
    with pytest.raises(InputError) as caught:
        load(hf_spec(tmp_path, config))
    (fault,) = caught.value.faults
    assert said in fault.problem
    assert fault.place == f"{tmp_path / 'spec.yaml'}:1:16"


# -- catalogue -------------------------------------------------------------------------------------


def test_a_name_is_found_however_it_is_spelt() -> None:
    assert catalogue.canonical("workloads", "Llama_3 70B") == "llama-3-70b"
    assert catalogue.accelerator("H100 SXM 80GB").name == "h100-sxm-80gb"
    with pytest.raises(Refusal, match="did you mean 'h100-sxm-80gb'"):
        catalogue.canonical("accelerators", "h100-sxm-80")
    with pytest.raises(Refusal, match="optplan catalogue"):
        catalogue.canonical("workloads", "../accelerators/mi300x")


def test_every_entry_of_the_catalogue_is_a_valid_record() -> None:
    for name in catalogue.names("workloads"):
        assert isinstance(catalogue.architecture(name), Architecture)
    for name in catalogue.names("accelerators"):
        assert isinstance(catalogue.accelerator(name), Accelerator)
    for name in catalogue.names("calibrations"):
        assert catalogue.calibration(name).name == name
    for name in catalogue.names("frameworks"):
        for version in catalogue.versions(name):
            assert catalogue.framework(f"{name}@{version}").name == f"{name}@{version}"


def test_an_exact_name_opens_one_file() -> None:
    # In a process of its own, because files once read are kept.
    code = (
        "from optplan import catalogue; catalogue.architecture('llama-3-70b'); "
        "assert catalogue._file.cache_info().misses == 1; "
        "assert catalogue.names.cache_info().misses == 0"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# -- schema ----------------------------------------------------------------------------------------


def test_every_key_that_may_be_missing_has_an_example() -> None:
    paths: list[tuple[str | int, ...]] = [
        (),
        ("workload",),
        ("workload", "architecture"),
        ("cluster",),
        ("cluster", "accelerator"),
        ("cluster", "accelerator", "link"),
        ("search",),
        ("search", "tp"),
        ("limits", 0),
        ("calibration",),
        ("framework",),
        ("cluster", "host"),
        ("workload", "architecture", "experts"),
    ]
    for path in paths:
        record = record_at(path)
        assert record is not None
        assert issubclass(record, BaseModel)
        for name, field in record.model_fields.items():
            assert not field.is_required() or name in EXAMPLES, name


@pytest.mark.parametrize(
    ("text", "good"),
    [
        (GOOD, True),
        (SMALL, True),
        (GOOD.replace("llama-3-70b", "llama-3-70c"), False),
        (GOOD.replace("400 Gb/s", "400 Gb"), False),
        (GOOD.replace("400 Gb/s", "400"), False),
        (GOOD.replace("goal: fastest", "goal: fast"), False),
        (GOOD.replace("nodes: 8", "nodes: 0"), False),
        (GOOD.replace("nodes: 8", "nods: 8"), False),
        (GOOD.replace("goal:", "framework: megatron-core@0.15\ngoal:"), True),
        (GOOD.replace("tp: [", "schedule: [1f1b, zb-v]\n  tp: ["), True),
        (GOOD.replace("tp: [", "schedule: zb-w\n  tp: ["), False),
        (GOOD.replace("tp: [", "zero: 4\n  tp: ["), False),
        (GOOD.replace("tp: [", "layers_per_stage: [41, 39]\n  tp: ["), True),
        (GOOD.replace("goal:", "overlap: [tp-overlp]\ngoal:"), False),
        (GOOD.replace("architecture: llama-3-70b", "hf: config.json"), True),
    ],
)
def test_editors_accept_what_is_accepted(text: str, good: bool) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    from ruamel.yaml import YAML

    checker = jsonschema.Draft202012Validator
    schema = json_schema()
    checker.check_schema(schema)
    assert checker(schema).is_valid(YAML(typ="safe", pure=True).load(text)) is good


# -- anything at all -------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(300))
def test_a_damaged_spec_is_refused_or_read(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    lines = rng.choice((GOOD, SMALL)).encode().split(b"\n")
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(lines))
        match rng.randrange(5):
            case 0:
                del lines[at]
                lines = lines or [b""]
            case 1:
                lines.insert(at, lines[rng.randrange(len(lines))])
            case 2:
                lines[at] = b" " * rng.randrange(4) + lines[at].lstrip()
            case _:
                line = bytearray(lines[at] or b" ")
                spot = rng.randrange(len(line))
                new = rng.choice(
                    (rng.randbytes(1), b"[", b"{", b":", b"'", b"&a ", b"*a", b"!", b"9")
                )
                line[spot : spot + rng.randrange(2)] = new
                lines[at] = bytes(line)
    spec = tmp_path / "spec.yaml"
    spec.write_bytes(b"\n".join(lines))
    faults: tuple[Fault, ...] | None = None
    try:
        load(spec)
    except InputError as error:
        faults = error.faults
    assert faults is None or faults
    for fault in faults or ():
        text = str(fault)
        assert ";" in text
        assert len(text.splitlines()) == 1
        assert "pydantic" not in text
        assert "Input should" not in text
