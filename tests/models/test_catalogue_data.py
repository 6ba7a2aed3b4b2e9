"""The shipped catalogue: complete, sourced, in agreement with published parameter counts."""

from __future__ import annotations

import re
from importlib import resources
from typing import Any

import pytest
from ruamel.yaml import YAML

from optplan.models.cost.parameters import active_parameters, total_parameters
from optplan.models.spec.workload import Architecture

DATA = resources.files("optplan.models") / "data"

WORKLOADS = (
    "aquila2-7b",
    "baichuan2-7b",
    "bloom-176b",
    "deepseek-v2",
    "deepseek-v3",
    "falcon-40b",
    "gpt-oss-120b",
    "gpt3-175b",
    "llama-2-13b",
    "llama-2-70b",
    "llama-2-7b",
    "llama-3-70b",
    "llama-3-8b",
    "llama-3.1-405b",
    "mistral-7b",
    "mixtral-8x22b",
    "mixtral-8x7b",
    "qwen-14b",
    "qwen2.5-72b",
    "qwen2.5-7b",
    "qwen3-0.6b",
    "qwen3-1.7b",
    "qwen3-14b",
    "qwen3-235b-a22b",
    "qwen3-30b-a3b",
    "qwen3-32b",
    "qwen3-4b",
    "qwen3-8b",
)
EXACT = set(WORKLOADS) - {"aquila2-7b", "baichuan2-7b", "bloom-176b", "falcon-40b", "gpt3-175b"}

MORE_ACCELERATORS = (
    "a800-sxm-80gb",
    "b300-sxm-270gb",
    "gb200-nvl72",
    "gb300-nvl72",
    "h100-sxm-96gb",
    "h800-sxm-80gb",
    "tpu-v4",
    "tpu-v5e",
    "tpu-v6e",
)

ACCELERATORS = (
    "a100-sxm-40gb",
    "a100-sxm-80gb",
    "ascend-910b",
    "b200-sxm-180gb",
    "h100-sxm-80gb",
    "h200-sxm-141gb",
    "mi300x",
    "tpu-v5p",
    "v100-sxm-32gb",
)

NUMBER = r"\d+(\.\d+)? "
UNITS = {
    "peak": NUMBER + "[TP]FLOP/s",
    "hbm": NUMBER + "([MG]iB|GB)",
    "rate": NUMBER + "([GT]B|Gb)/s",
}


def read(kind: str, name: str) -> dict[str, Any]:
    """One catalogue file as plain Python values."""
    text = (DATA / kind / f"{name}.yaml").read_text(encoding="utf-8")
    found: dict[str, Any] = YAML(typ="safe").load(text)
    return found


def names(kind: str) -> list[str]:
    """The names of all files of one kind."""
    return sorted(file.name.removesuffix(".yaml") for file in (DATA / kind).iterdir())


def spelling(name: str) -> str:
    """A name as the catalogue compares it: without case, hyphen, underscore and space."""
    return re.sub(r"[-_ ]", "", name).lower()


def attention(shape: dict[str, Any]) -> int:
    """The parameters of one block's attention, matrix by matrix."""
    hidden, heads = shape["hidden"], shape["heads"]
    if latent := shape.get("latent"):
        wide = latent["nope"] + latent["rope"]
        queries = hidden * latent["q_rank"] + latent["q_rank"] * (1 + heads * wide)
        into = hidden * (latent["kv_rank"] + latent["rope"]) + latent["kv_rank"]
        out = latent["kv_rank"] * heads * (latent["nope"] + latent["value"])
        return int(queries + into + out + heads * latent["value"] * hidden)
    query, key = heads * shape["head_dim"], shape["kv_heads"] * shape["head_dim"]
    biases = {"none": 0, "qkv": query + 2 * key, "all": query + 2 * key + hidden}[shape["biases"]]
    norms = 2 * shape["head_dim"] if shape.get("qk_norm") else 0
    sinks = heads if shape.get("sinks") else 0
    return int(hidden * (query + 2 * key) + query * hidden + biases + norms + sinks)


def feed_forward(shape: dict[str, Any], width: int) -> int:
    """The parameters of a feed-forward layer, matrix by matrix."""
    up = 2 if shape["gated"] else 1
    biases = up * width + shape["hidden"] if shape["biases"] == "all" else 0
    return int(shape["hidden"] * width * (up + 1) + biases)


def parameters(shape: dict[str, Any]) -> int:
    """The parameters of a decoder-only transformer, summed matrix by matrix from its shape."""
    hidden, experts = shape["hidden"], shape.get("experts")
    norm = hidden * (2 if shape["norm"] == "layernorm" else 1)
    both = attention(shape) + 2 * norm
    dense = both + feed_forward(shape, shape["ffn"])
    blocks = shape["layers"] * dense
    if experts:
        sparse = both + experts["count"] * (hidden + feed_forward(shape, experts["ffn"]))
        if experts.get("router_bias"):
            sparse += experts["count"]
        if experts.get("shared_ffn"):
            sparse += feed_forward(shape, experts["shared_ffn"])
        first = experts.get("leading_dense", 0)
        blocks = first * dense + (shape["layers"] - first) * sparse
        blocks += shape.get("mtp", 0) * (sparse + 2 * hidden * hidden + 3 * norm)

    embedding = shape["vocabulary"] * hidden
    head = 0 if shape["tied_embeddings"] else embedding
    positions = shape["learned_positions"] * hidden
    return int(embedding + positions + blocks + norm + head)


def test_the_catalogue_has_exactly_the_promised_workloads() -> None:
    """Every promised workload has a file, and there is no other file."""
    assert names("workloads") == sorted(WORKLOADS)


def test_the_catalogue_has_exactly_the_promised_accelerators() -> None:
    """Every promised accelerator has a file, and there is no other file."""
    assert names("accelerators") == sorted((*ACCELERATORS, *MORE_ACCELERATORS))


@pytest.mark.parametrize("name", [*ACCELERATORS, *MORE_ACCELERATORS])
def test_every_accelerator_field_has_a_source(name: str) -> None:
    """No figure of a device stands without saying where it is from."""
    entry = read("accelerators", name)
    assert set(entry["sources"]) == set(entry["accelerator"])
    assert all(isinstance(source, str) and source.strip() for source in entry["sources"].values())


@pytest.mark.parametrize("name", ACCELERATORS)
def test_every_accelerator_figure_is_written_with_its_unit(name: str) -> None:
    """Rates, sizes and peaks are spelled in the units that the catalogue uses."""
    device = read("accelerators", name)["accelerator"]
    assert set(device["peak"]) <= {"bf16", "fp16", "fp32", "fp8"}
    assert all(re.fullmatch(UNITS["peak"], peak) for peak in device["peak"].values())
    assert re.fullmatch(UNITS["hbm"], device["hbm"])
    rates = (device["hbm_bandwidth"], device["link"]["bandwidth"], device["network"])
    assert all(re.fullmatch(UNITS["rate"], rate) for rate in rates)
    assert device["link"]["kind"] in {"mesh", "switch"}
    assert device["domain"] >= 1


@pytest.mark.parametrize("name", WORKLOADS)
def test_every_workload_names_the_sources_of_its_shape_and_count(name: str) -> None:
    """The shape and the published count each have a source, and overrides name real fields."""
    entry = read("workloads", name)
    sources = entry["sources"]
    assert {"architecture", "published_parameters"} <= set(sources)
    assert set(sources) <= set(entry["architecture"]) | {"architecture", "published_parameters"}
    assert all(isinstance(source, str) and source.strip() for source in sources.values())


@pytest.mark.parametrize("name", WORKLOADS)
def test_every_workload_counts_to_its_published_parameters(name: str) -> None:
    """The shape sums to the published count within half a per cent."""
    entry = read("workloads", name)
    published = entry["published_parameters"]
    assert abs(parameters(entry["architecture"]) - published) <= 0.005 * published


@pytest.mark.parametrize("name", sorted(EXACT))
def test_workloads_with_an_exact_published_count_match_it_exactly(name: str) -> None:
    """Where the count is published to the last parameter, the shape gives it to the last one."""
    entry = read("workloads", name)
    assert parameters(entry["architecture"]) == entry["published_parameters"]


@pytest.mark.parametrize("name", WORKLOADS)
def test_the_cost_model_counts_every_workload_alike(name: str) -> None:
    """The cost model's count of a whole network is the sum over its matrices."""
    shape = read("workloads", name)["architecture"]
    assert total_parameters(Architecture.model_validate(shape)) == parameters(shape)


def blocks_of(rows: int, columns: int) -> int:
    """The 128 x 128 blocks that cover a matrix."""
    return -(-rows // 128) * -(-columns // 128)


def test_deepseek_v3_is_what_its_files_hold_less_scales_and_copies() -> None:
    """The safetensors total is the shape's, the FP8 scales and the stored second copies."""
    entry = read("workloads", "deepseek-v3")
    shape = entry["architecture"]
    hidden, heads, latent = shape["hidden"], shape["heads"], shape["latent"]
    experts = shape["experts"]
    queries = blocks_of(hidden, 1536) + blocks_of(1536, heads * 192)
    keys = blocks_of(hidden, latent["kv_rank"] + 64) + blocks_of(512, heads * 256)
    around = queries + keys + blocks_of(heads * 128, hidden)
    dense = 3 * blocks_of(hidden, shape["ffn"])
    sparse = (experts["count"] + 1) * 3 * blocks_of(hidden, experts["ffn"])
    scales = 3 * (around + dense) + 59 * (around + sparse)
    copies = 2 * shape["vocabulary"] * hidden
    # By type in the files: what is FP8, BF16, and FP32 (the scales, the routers' corrections).
    assert scales + 59 * experts["count"] == 41_555_600
    assert parameters(shape) + scales + copies == 684_531_386_000
    assert parameters(shape | {"mtp": 0}) == 671_026_419_200


@pytest.mark.parametrize(
    ("name", "active", "off", "embedding"),
    [
        # Published figure, half a unit of its last place, and whether it counts the embedding.
        ("mixtral-8x7b", 12.9e9, 0.05e9, True),
        ("mixtral-8x22b", 39e9, 0.5e9, True),
        ("qwen3-30b-a3b", 3.3e9, 0.1e9, True),  # cut off rather than rounded: 3.35
        ("qwen3-235b-a22b", 22e9, 0.5e9, True),
        ("deepseek-v2", 21e9, 0.5e9, True),
        ("deepseek-v3", 36.6e9, 0.05e9, False),
        ("deepseek-v3", 37e9, 0.5e9, False),
        ("gpt-oss-120b", 5.13e9, 0.005e9, False),
    ],
)
def test_active_parameters_are_the_published_ones(
    name: str, active: float, off: float, embedding: bool
) -> None:
    """What one token meets is as published, to the published places."""
    shape = Architecture.model_validate(read("workloads", name)["architecture"])
    found = active_parameters(shape)
    if not embedding:
        found -= shape.vocabulary * shape.hidden
    assert abs(found - active) <= off


def test_bloom_lacks_only_the_layernorm_after_its_embedding() -> None:
    """The one norm that the shape cannot express is the whole gap to BLOOM's published count."""
    entry = read("workloads", "bloom-176b")
    shape = entry["architecture"]
    assert entry["published_parameters"] - parameters(shape) == 2 * shape["hidden"]


@pytest.mark.parametrize("kind", ["workloads", "accelerators"])
def test_no_spelling_belongs_to_two_files(kind: str) -> None:
    """A name or alias, however hyphenated or capitalised, leads to one file."""
    owner: dict[str, str] = {}
    for name in names(kind):
        for written in (name, *read(kind, name)["aliases"]):
            assert owner.setdefault(spelling(written), name) == name, written
