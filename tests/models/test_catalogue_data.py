"""The shipped catalogue: complete, sourced, in agreement with published parameter counts."""

from __future__ import annotations

import re
from importlib import resources
from typing import Any

import pytest
from ruamel.yaml import YAML

DATA = resources.files("optplan.models") / "data"

WORKLOADS = (
    "aquila2-7b",
    "baichuan2-7b",
    "bloom-176b",
    "falcon-40b",
    "gpt3-175b",
    "llama-2-13b",
    "llama-2-70b",
    "llama-2-7b",
    "llama-3-70b",
    "llama-3-8b",
    "llama-3.1-405b",
    "mistral-7b",
    "qwen-14b",
    "qwen2.5-72b",
    "qwen2.5-7b",
)
EXACT = set(WORKLOADS) - {"aquila2-7b", "baichuan2-7b", "bloom-176b", "falcon-40b", "gpt3-175b"}

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


def parameters(shape: dict[str, Any]) -> int:
    """The parameters of a decoder-only transformer, summed matrix by matrix from its shape."""
    hidden, ffn = shape["hidden"], shape["ffn"]
    query = shape["heads"] * shape["head_dim"]
    key = shape["kv_heads"] * shape["head_dim"]
    norm = hidden * (2 if shape["norm"] == "layernorm" else 1)
    up = 2 if shape["gated"] else 1

    attention = hidden * (query + 2 * key) + query * hidden
    feed_forward = hidden * ffn * up + ffn * hidden
    biases = {
        "none": 0,
        "qkv": query + 2 * key,
        "all": query + 2 * key + hidden + up * ffn + hidden,
    }[shape["biases"]]
    block = attention + feed_forward + biases + 2 * norm

    embedding = shape["vocabulary"] * hidden
    head = 0 if shape["tied_embeddings"] else embedding
    positions = shape["learned_positions"] * hidden
    return int(embedding + positions + shape["layers"] * block + norm + head)


def test_the_catalogue_has_exactly_the_promised_workloads() -> None:
    """Every promised workload has a file, and there is no other file."""
    assert names("workloads") == sorted(WORKLOADS)


def test_the_catalogue_has_exactly_the_promised_accelerators() -> None:
    """Every promised accelerator has a file, and there is no other file."""
    assert names("accelerators") == sorted(ACCELERATORS)


@pytest.mark.parametrize("name", ACCELERATORS)
def test_every_accelerator_field_has_a_source(name: str) -> None:
    """No figure of a device stands without saying where it is from."""
    entry = read("accelerators", name)
    assert set(entry["sources"]) == set(entry["accelerator"])
    assert all(isinstance(source, str) and source.strip() for source in entry["sources"].values())


@pytest.mark.parametrize("name", ACCELERATORS)
def test_every_accelerator_figure_is_written_with_its_unit(name: str) -> None:
    """Rates, sizes and peaks are spelled in the units that the catalogue uses."""
    device = read("accelerators", name)["accelerator"]
    assert set(device["peak"]) <= {"bf16", "fp16", "fp32"}
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
