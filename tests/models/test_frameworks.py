"""The shipped frameworks: every version complete, every fact sourced, known rules in place."""

from __future__ import annotations

import re
from importlib import resources
from typing import Any

import pytest
from ruamel.yaml import YAML

from optplan import catalogue
from optplan.models.spec.framework import Framework

DATA = resources.files("optplan.models") / "data" / "frameworks"
NAMES = ("accelerate", "megatron-core", "megatron-deepspeed", "mindspeed", "nemo", "torchtitan")
FIELDS = set(Framework.model_fields) - {"name", "sources"}
OPTIONAL = {name for name in FIELDS if not Framework.model_fields[name].is_required()}
VERSIONS = [f"{name}@{version}" for name in NAMES for version in catalogue.versions(name)]


def read(name: str) -> dict[str, Any]:
    """One file as plain Python values."""
    found: dict[str, Any] = YAML(typ="safe").load(
        (DATA / f"{name}.yaml").read_text(encoding="utf-8")
    )
    return found


def entries(name: str) -> list[dict[str, Any]]:
    """What one file says about each version."""
    found: list[dict[str, Any]] = read(name)["versions"]
    return found


def numbers(version: str) -> tuple[int, ...]:
    """A version as numbers."""
    return tuple(map(int, version.split(".")))


def test_the_catalogue_has_exactly_the_promised_frameworks() -> None:
    """Every promised framework has a file, and there is no other file."""
    assert sorted(file.name.removesuffix(".yaml") for file in DATA.iterdir()) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_versions_are_text_and_rise(name: str) -> None:
    """A version read as a number would lose its zeros, and the newest must be last."""
    since = [entry["since"] for entry in entries(name)]
    assert all(isinstance(version, str) for version in since)
    assert all(re.fullmatch(r"\d+(\.\d+)+", version) for version in since)
    assert since == sorted(set(since), key=numbers)
    assert numbers(read(name)["checked"]) >= numbers(since[-1])[:2]


@pytest.mark.parametrize("name", NAMES)
def test_an_entry_holds_known_fields_alone_and_the_source_of_each(name: str) -> None:
    """No field of an entry stands without saying where it is from."""
    for entry in entries(name):
        if "gone" in entry:
            assert set(entry) == {"since", "gone"}
            continue
        changed = set(entry) - {"since", "sources"}
        assert changed <= FIELDS | {"as"}
        assert changed <= set(entry["sources"])
        assert set(entry["sources"]) <= FIELDS | {"as"}
        assert all(isinstance(text, str) and text.strip() for text in entry["sources"].values())


@pytest.mark.parametrize("name", VERSIONS)
def test_every_field_of_a_version_has_a_source(name: str) -> None:
    """Whatever a version inherits, its origin comes along."""
    known = catalogue.framework(name)
    assert known.name == name
    assert set(known.sources) >= FIELDS - OPTIONAL
    kept = {field for field in OPTIONAL if getattr(known, field) != default(field)}
    assert set(known.sources) >= kept


def default(field: str) -> object:
    """What a field is where nothing is said."""
    return Framework.model_fields[field].default


@pytest.mark.parametrize("name", VERSIONS)
def test_no_version_contradicts_itself(name: str) -> None:
    """The fields of one version fit each other."""
    known = catalogue.framework(name)
    assert known.zero_with_pipeline in known.zero
    assert not known.expert_tensor or known.experts
    assert "interleaved" in known.schedules or known.interleaved_two_stages == "no"
    assert known.interleaved_two_stages != "p2p-overlap" or "p2p-overlap" in known.features
    assert "expert-overlap" not in known.features or known.experts
    for values in (known.schedules, known.zero, known.recompute, known.context, known.features):
        assert len(set(values)) == len(values)


@pytest.mark.parametrize(
    ("field", "since", "before", "then"),
    [
        ("experts_with_context", "0.8", False, True),
        ("interleaved_two_stages", "0.8", "no", "p2p-overlap"),
        ("uneven_ends", "0.9", False, True),
        ("expert_tensor", "0.10", False, True),
        ("context", "0.10", ("ring",), ("ring", "ulysses")),
        ("ends_count_as_layers", "0.11", False, True),
        ("zero", "0.12", (0, 1), (0, 1, 2, 3)),
        ("offload", "0.12", False, True),
        ("uneven_layers", "0.13", False, True),
        ("key_heads_copied", "0.16", False, True),
    ],
)
def test_megatron_core_gained_what_its_packages_show(
    field: str, since: str, before: object, then: object
) -> None:
    """Each rule changes in the first package that has it, and stays."""
    for version in catalogue.versions("megatron-core"):
        known = getattr(catalogue.framework(f"megatron-core@{version}"), field)
        assert known == (then if numbers(version) >= numbers(since) else before), version


def test_zero_beyond_the_optimizer_goes_with_a_pipeline_only_under_fsdp2() -> None:
    """DeepSpeed and Megatron Core refuse or lack it; torchtitan shards within each stage."""
    highest = {name: catalogue.framework(name).zero_with_pipeline for name in NAMES}
    assert highest.pop("torchtitan") == 3
    assert not catalogue.framework("accelerate").pipeline
    del highest["accelerate"]
    assert set(highest.values()) == {1}


def test_nemo_has_the_facts_of_the_megatron_core_below_it() -> None:
    """What stands on another framework repeats it, and says so."""
    below = catalogue.framework("megatron-core@0.9")
    above = catalogue.framework("nemo@2.0")
    apart = {"name", "sources"}
    assert above.model_dump(exclude=apart) == below.model_dump(exclude=apart)
    assert above.sources == below.sources | {"as": above.sources["as"]}
