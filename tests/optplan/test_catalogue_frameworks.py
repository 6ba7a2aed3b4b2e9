"""Frameworks by name and version, and on the screen."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from optplan import catalogue
from optplan.models.errors import InputError
from optplan.places import Refusal
from optplan.report import shelf


@pytest.mark.parametrize(
    ("asked", "name", "as_in"),
    [
        ("megatron-core@0.15", "megatron-core@0.15", "0.14"),
        ("megatron-core@0.15.2", "megatron-core@0.15.2", "0.14"),
        ("megatron-core@0.9", "megatron-core@0.9", "0.9"),
        ("megatron-core@0.9.0", "megatron-core@0.9.0", "0.9"),
        ("megatron-core@0.10", "megatron-core@0.10", "0.10"),
        ("megatron-core@0.7", "megatron-core@0.7", "0.6"),
        ("megatron-core@1.0", "megatron-core@1.0", "0.16"),
        ("megatron-core", "megatron-core@0.16", "0.16"),
        ("MCore @ v0.12", "megatron-core@0.12", "0.12"),
        ("Megatron_LM@0.11", "megatron-core@0.11", "0.11"),
    ],
)
def test_the_last_change_in_or_before_a_version_holds(asked: str, name: str, as_in: str) -> None:
    found = catalogue.framework(asked)
    assert found.name == name
    same = catalogue.framework(f"megatron-core@{as_in}")
    assert found.model_dump(exclude={"name"}) == same.model_dump(exclude={"name"})


def test_other_names_lead_to_the_same_framework() -> None:
    assert catalogue.framework("deepspeed") == catalogue.framework("megatron-deepspeed")
    assert catalogue.framework("torch titan@0.2").name == "torchtitan@0.2"


@pytest.mark.parametrize(
    ("asked", "problem", "remedy"),
    [
        ("megatron-cor", "no framework 'megatron-cor'", "did you mean 'megatron-core'?"),
        ("torchtita@0.2", "no framework 'torchtita'", "did you mean 'torchtitan'?"),
        ("jax", "no framework 'jax'", "list all with `optplan catalogue`"),
        ("", "no framework ''", "list all with `optplan catalogue`"),
        ("../workloads/bloom-176b", "no framework", "optplan catalogue"),
        ("megatron-core@0.4", "nothing is known of megatron-core@0.4", "from megatron-core@0.5"),
        ("megatron-core@main", "'main' is no version of megatron-core", "megatron-core@0.16"),
        ("megatron-core@0.15rc1", "'0.15rc1' is no version", "megatron-core@0.16"),
        ("megatron-core@", "'' is no version of megatron-core", "megatron-core@0.16"),
        ("megatron-core@0.1@5", "'0.1@5' is no version", "megatron-core@0.16"),
        ("nemo@3.0", "nothing is known of nemo@3.0", "nemo@2.4"),
    ],
)
def test_what_is_not_known_is_refused_with_what_is(asked: str, problem: str, remedy: str) -> None:
    with pytest.raises(Refusal) as refused:
        catalogue.framework(asked)
    assert problem in refused.value.problem
    assert remedy in refused.value.remedy


def test_a_framework_is_shown_with_its_sources() -> None:
    """Without a version it is the newest; with one, that version."""
    assert shelf.describe("mcore")["name"] == "megatron-core@0.16"
    entry = shelf.describe("mcore@0.10")
    assert entry["kind"] == "frameworks"
    assert entry["name"] == "megatron-core@0.10"
    assert entry["framework"]["context"] == ("ring", "ulysses")
    screen = Console(file=io.StringIO(), width=200)
    shelf.show_entry(screen, entry)
    assert isinstance(screen.file, io.StringIO)
    out = screen.file.getvalue()
    assert "megatron-core@0.10 (frameworks)" in out
    assert "cp_comm_type" in out
    assert "ring, ulysses" in out
    assert "changes in: 0.5, 0.6" in out
    assert "also called: mcore" in out


def test_what_a_framework_stands_on_is_shown() -> None:
    screen = Console(file=io.StringIO(), width=200)
    shelf.show_entry(screen, shelf.describe("nemo@2.0"))
    assert isinstance(screen.file, io.StringIO)
    assert "Software Component Versions" in screen.file.getvalue()


@pytest.mark.parametrize("name", ["mcore@0.1", "mcor@0.10", "mcore@x"])
def test_a_version_that_cannot_be_shown_is_an_input_error(name: str) -> None:
    with pytest.raises(InputError):
        shelf.describe(name)


def test_the_list_has_every_framework() -> None:
    found = shelf.listing()
    assert [row["name"] for row in found["frameworks"]] == list(catalogue.names("frameworks"))
    screen = Console(file=io.StringIO(), width=200)
    shelf.show_listing(screen, found)
    assert isinstance(screen.file, io.StringIO)
    assert all(name in screen.file.getvalue() for name in catalogue.names("frameworks"))
