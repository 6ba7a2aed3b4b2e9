"""Wrong specs: every fault has its place, its words and its remedy, and nothing else is raised."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from optplan.load import load
from optplan.models.errors import Fault, InputError
from tests.optplan.bad_specs import (
    CASES,
    DEVICE,
    GOOD,
    INLINE,
    Expected,
    swap,
)


def faults_of(source: object, **more: list[str]) -> tuple[Fault, ...]:
    """Load, which must fail, and check the form of every fault."""
    with pytest.raises(InputError) as caught:
        load(source, **more)  # type: ignore[arg-type]
    for fault in caught.value.faults:
        text = str(fault)
        assert ";" in text
        assert len(text.splitlines()) == 1
        assert text.isprintable()
        assert fault.problem
        assert fault.remedy
        for word in ("pydantic", "Input should", "http", "ruamel", "Traceback"):
            assert word not in text
    return caught.value.faults


def test_the_good_spec_is_good() -> None:
    assert load(GOOD)
    assert load(swap("llama-3-70b", INLINE))
    assert load(swap("h100-sxm-80gb", DEVICE))


@pytest.mark.parametrize("case", CASES)
def test_every_fault_has_its_place_and_its_words(case: str, tmp_path: Path) -> None:
    text, expected = CASES[case]
    spec = tmp_path / "spec.yaml"
    spec.write_text(text, encoding="utf-8")
    faults = faults_of(spec)
    assert [fault.place for fault in faults] == [f"{spec}{place}" for place in expected]
    for fault, words in zip(faults, expected.values(), strict=True):
        assert words in str(fault)


@pytest.mark.parametrize(
    ("sets", "limits", "expected"),
    [
        (["tp=x"], [], {"--set tp": "search.tp: 'x' is no whole number"}),
        (["tp=0"], [], {"--set tp": "'0' is below 1"}),
        (["tp"], [], {"--set tp": "'tp' is no 'key=value'; write --set tp=8"}),
        (["tp="], [], {"--set tp": "is no 'key=value'"}),
        (["=8"], [], {"--set": "is no 'key=value'"}),
        (["tp=# 8"], [], {"--set tp": "has no value"}),
        (["tpp=8"], [], {"--set tpp": "unknown key 'tpp'; did you mean 'tp'?"}),
        (["cluster.node=8"], [], {"--set cluster.node": "did you mean 'nodes'?"}),
        (["tp=[1, 2"], [], {"--set tp": "search.tp: a '[' is not closed before this"}),
        (["tp=1e400"], [], {"--set tp": "too large"}),
        (["tp={max: 4, max: 5}"], [], {"--set tp": "given twice; keep one of them"}),
        (["tp=" + "[" * 5000], [], {"--set tp": "deeper than 40 levels"}),
        (["tp=4", "search.tp=8"], [], {"--set search.tp": "is set twice; keep one of them"}),
        (["a.b.c.=3"], [], {"--set a.b.c.": "unknown key 'a'"}),
        (["search.tp.max=4"], [], {"--set search.tp.max": "search.tp is a list and has no 'max'"}),
        (
            ["cluster.accelerator.hbm=40 GB"],
            [],
            {"--set cluster.accelerator.hbm": "is 'h100-sxm-80gb' and has no 'hbm'"},
        ),
        (["cluster.network=400"], [], {"--set cluster.network": "'400' has no unit"}),
        (["goal=\0"], [], {"--set goal": "character U+0000"}),
        ([], ["pp <="], {"--limit 'pp <='": "limits.1: "}),
        ([], ["pq <= 4"], {"--limit 'pq <= 4'": "'pq' is not a name"}),
        ([], [""], {"--limit ''": "too short"}),
    ],
)
def test_a_wrong_option_is_a_fault_at_the_option(
    sets: list[str], limits: list[str], expected: Expected
) -> None:
    faults = faults_of(GOOD, sets=sets, limits=limits)
    assert [fault.place for fault in faults] == list(expected)
    for fault, words in zip(faults, expected.values(), strict=True):
        assert words in str(fault)


def test_a_missing_file_is_one_fault(tmp_path: Path) -> None:
    (fault,) = faults_of(tmp_path / "none.yaml")
    assert fault.place == f"{tmp_path / 'none.yaml'}"
    assert fault.problem == "there is no such file"


@pytest.mark.parametrize(
    ("content", "place", "said"),
    [
        (b"\xff\xfe\x00w", ":1:1", "the file is no UTF-8 text"),
        (b"workload: 1\nb: \x80\n", ":2:4", "the file is no UTF-8 text"),
        (b"# " + b"x" * 2**20, "", "the file is larger than 1 MiB"),
        (bytes(range(256)), ":2:118", "the file is no UTF-8 text"),
        (b"\x7fELF\x02\x01", ":1:1", "character U+007F is no part of a text"),
    ],
)
def test_a_file_of_something_else_is_one_fault(
    tmp_path: Path, content: bytes, place: str, said: str
) -> None:
    spec = tmp_path / "spec.yaml"
    spec.write_bytes(content)
    (fault,) = faults_of(spec)
    assert fault.problem == said
    assert fault.place == f"{spec}{place}"


def test_a_directory_is_one_fault(tmp_path: Path) -> None:
    (fault,) = faults_of(tmp_path)
    assert fault.problem == "this is a directory"


@pytest.mark.parametrize("name", ["a\0b", "x" * 5000, ""])
def test_an_impossible_name_is_one_fault(name: str) -> None:
    assert len(faults_of(name)) == 1


@pytest.mark.parametrize("source", [None, 5, [], b"workload: 1"])
def test_something_that_is_no_spec_is_one_fault(source: object) -> None:
    (fault,) = faults_of(source)
    assert fault.remedy == "give a file name, YAML text or a mapping"


def test_python_data_is_judged_like_a_file() -> None:
    data = load(GOOD).model_dump(mode="json")
    endless: dict[str, object] = {}
    endless["search"] = endless
    for wrong, said in (
        ({"cluster": data["cluster"] | {"nodes": float("nan")}}, "no finite number"),
        ({"cluster": data["cluster"] | {"network": 10**30}}, "more than 18 digits"),
        ({"cluster": data["cluster"] | {8: 8}}, "key 8 is no text"),
        ({"search": endless}, "nests deeper than 40 levels"),
        ({"search": {"global_batch": object()}}, "'a object' is no whole number"),
    ):
        faults = faults_of(data | wrong)
        assert any(said in fault.problem for fault in faults)
        assert {fault.place for fault in faults} == {""}


def test_bombs_are_refused_without_being_lit() -> None:
    started = time.process_time()
    for case in ("anchor bomb", "very deep nesting", "very deep mappings", "long list"):
        faults_of(CASES[case][0])
    # No judgement of speed: lit, the bomb alone has 9^8 values.
    assert time.process_time() - started < 60
