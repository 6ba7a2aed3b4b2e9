"""Certificates of which any one value was changed."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import optplan
from optplan.read_back import read_result
from tests.optplan.command import job, solved
from tests.optplan.test_verify import verified

FREE = {"certificate.seed", "certificate.engine", "digest"}
"""What any honest run may say otherwise: its seed, the versions of its engine."""

PARTS_TOLD = ("status", "plan", "estimate", "certificate", "alternatives", "verdict", "warnings")

TAMPERINGS, CHUNK = 200, 20


def leaves(data: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Places of all values that are neither lists nor mappings."""
    if isinstance(data, dict):
        for key, inside in data.items():
            yield from leaves(inside, (*path, key))
    elif isinstance(data, list):
        for place, inside in enumerate(data):
            yield from leaves(inside, (*path, place))
    else:
        yield path


def other(before: Any, luck: random.Random) -> Any:
    """Another value of the same kind, near or far."""
    if isinstance(before, bool):
        return not before
    if isinstance(before, int):
        return before + luck.choice((-1, 1, 7, 1000))
    if isinstance(before, float):
        return before * luck.choice((0.5, 0.999, 1.001, 2.0)) or luck.choice((0.1, 1.0))
    return luck.choice(("other", "")) if before is None else f"{before}x"


def touched(seed: int) -> tuple[str, dict[str, Any]]:
    """An answer with one value changed, by seed, and where."""
    luck = random.Random(seed)
    name, engine = luck.choice((("aquila2-7b", "milp"), ("baichuan2-7b", "cp-sat")))
    data = json.loads(solved(name, engine))
    told = [part for part in PARTS_TOLD if any(leaves(data[part]))]
    part = luck.choice(("certificate", "certificate", *told))
    places = [p for p in leaves(data[part]) if f"{part}.{p[-1] if p else ''}" not in FREE]
    path: tuple[str | int, ...] = (part, *luck.choice(places))
    inside: Any = data
    for key in path[:-1]:
        inside = inside[key]
    inside[path[-1]] = other(inside[path[-1]], luck)
    return ".".join(map(str, path)), data


@pytest.mark.parametrize("first", range(0, TAMPERINGS, CHUNK))
def test_whatever_value_is_touched_the_answer_is_refused(first: int, tmp_path: Path) -> None:
    """As it is, by its digest; and with a digest to match, by what is derived anew."""
    for seed in range(first, first + CHUNK):
        path, data = touched(seed)
        status, out, _ = verified(tmp_path, data)
        assert status in (1, 2), f"seed {seed}: {path}\n{out}"
        if status == 2:
            continue
        sealed = read_result(tmp_path / "plan.json").sealed()
        status, out, _ = verified(tmp_path, json.loads(sealed.to_json()))
        assert status == 1, f"seed {seed}: {path}, sealed again\n{out}"


def test_a_bound_that_a_plan_undercuts_fails_in_whole_numbers(tmp_path: Path) -> None:
    """The bound raised a little, with goal and gap to match: arithmetic alone must refuse it."""
    result = optplan.solve(job("aquila2-7b"), top=0)
    bound = result.certificate.bound
    assert bound is not None
    forged = result.certificate.model_copy(update={"bound": bound * 1.001})
    checks = optplan.verify(result.model_copy(update={"certificate": forged}).sealed()).checks
    exact = next(check for check in checks if check.name == "bound, exactly")
    assert exact.holds is False
    assert "undercuts it" in exact.text
    honest = optplan.verify(result).checks
    assert next(check for check in honest if check.name == "bound, exactly").holds is True
