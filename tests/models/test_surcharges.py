"""Prices of the user's own: what may be written, and that every engine counts them."""

from __future__ import annotations

import itertools
import json
import warnings
from math import inf

import pytest

import optplan
from optplan.models.cost.estimate import estimate
from optplan.models.cost.surcharges import seconds_of, surcharge_seconds
from optplan.models.errors import InputError
from optplan.models.expression import ExpressionError, amount_of, names, parse_time
from optplan.models.expression.spans import span
from optplan.models.formulate import formulate
from optplan.models.spec.problem import Problem
from optplan.models.spec.surcharge import Surcharge
from tests.models.samples import problem

GOOD = {
    "40 ms": (0.04, 0.04),
    "2 us * dp * tp": (2e-6, inf),
    "1 ms * (pp - 1)": (0.0, inf),
    "max(0 s, 1 ms * (dp - pp))": (0.0, inf),
    "min(1 s, 1 ms * (zero + 1))": (0.001, 0.004),
    "3 s - 1 s * min(zero, 2)": (1.0, 3.0),
    "1 s * (micro_batches // 4)": (0.0, inf),
    "1 s * (12 // tp)": (0.0, 12.0),
    "1 s * (dp % 5)": (0.0, 5.0),
}
"""Times that may be written, and between what they lie."""

BAD = {
    "tp": "a number, not a time",
    "": "empty",
    "1 ms * devices": "tp * pp * dp * cp",
    "step_seconds": "depends on the time itself",
    "1 ms * (dp - pp)": "less than nothing",
    "-1 ms": "less than nothing",
    "1 s * (8 // zero)": "divide by zero",
    "1 GB": "bytes",
    "1 ms <= 2 ms": "cannot stand here",
    "schedule": "one of the words",
    "1 ms * tq": "not a name",
}
"""What may not be, and words of the reason."""


def told(*texts: str) -> list[dict[str, str]]:
    """Give surcharges names, as the loader does."""
    return [{"name": f"s-{i}", "seconds": text} for i, text in enumerate(texts)]


@pytest.mark.parametrize("text", GOOD)
def test_a_time_lies_where_its_span_says(text: str) -> None:
    node = parse_time(text)
    low, high = map(float, span(node))
    assert (low, high) == pytest.approx(GOOD[text])
    asked = sorted(names(node))
    for values in itertools.product((1, 2, 3, 7, 64), repeat=len(asked)):
        at = dict(zip(asked, values, strict=True))
        at = {name: min(value, 3) if name == "zero" else value for name, value in at.items()}
        assert low * (1 - 1e-12) <= float(amount_of(node, at)) <= high * (1 + 1e-12)


@pytest.mark.parametrize("text", BAD)
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ExpressionError, match=BAD[text].replace("*", r"\*")):
        parse_time(text)


def test_all_faults_of_a_spec_are_told_at_their_places() -> None:
    spec = {"surcharges": ["40 ms", {"name": "a", "seconds": "1 ms * (dp - pp)"}, "tp"]}
    with pytest.raises(InputError) as raised:
        optplan.load(
            {
                "workload": {"architecture": "llama-2-7b", "sequence_length": 4096},
                "cluster": {"accelerator": "h100-sxm-80gb", "nodes": 1},
                "search": {"global_batch": 8},
                **spec,
            }
        )
    paths = [fault.path for fault in raised.value.faults]
    assert paths == ["surcharges.1.seconds", "surcharges.2"]


@pytest.mark.parametrize(
    "text",
    [
        "1 s * " + " * ".join(["999999999999999999"] * 40),
        "1 s * " + " * ".join(["global_batch"] * 48),
        "1 ms * pp + 1000000000 s * tp * 1000000000 * 1000000000",
    ],
)
def test_times_beyond_all_reason_are_refused(text: str) -> None:
    """Also those that no float can hold, and long products are read in no time."""
    with pytest.raises(InputError, match=r"surcharges.s-0: it may be .* at most 2\^62 seconds"):
        formulate(problem(surcharges=told(text)))


def test_a_table_that_is_too_large_names_its_surcharge() -> None:
    some = problem(
        search={"global_batch": {"min": 1, "max": 3_000}},
        surcharges=told("1 us * micro_batch * micro_batches * global_batch"),
    )
    with pytest.raises(InputError, match=r"surcharges.s-0 would need [0-9,]+ combinations"):
        formulate(some)


def test_times_that_drown_all_others_leave_no_warning() -> None:
    """Layers take no tick at all there; bounds stay numbers."""
    few = {"global_batch": 16, "micro_batch": [1, 2], "schedule": "1f1b", "cp": 1, "zero": 0}
    drowned = problem(search=few, surcharges=told("1000000000000000 s"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = optplan.solve(drowned, top=0)
    assert found.plan is not None


def test_paper_prices_have_none() -> None:
    with pytest.raises(ValueError, match=r"no part of Eq\. 1"):
        problem(prices="paper", surcharges=told("1 s"))


def test_a_surcharge_is_a_term_and_adds_up() -> None:
    free = problem()
    dear = problem(surcharges=told("0.5 s", "10 ms * tp * pp * dp * cp"))
    plan = optplan.solve(dear).plan
    assert plan is not None
    added = 0.5 + 0.01 * plan.devices
    assert surcharge_seconds(dear, plan) == pytest.approx(added)
    price = estimate(dear, plan)
    assert price.terms["T_own"] == pytest.approx(added)
    assert price.step_seconds == pytest.approx(estimate(free, plan).step_seconds + added)


def test_without_surcharges_nothing_changes() -> None:
    """Program, fingerprint and prices are those of a spec that never heard of them."""
    one, other = problem(), problem(surcharges=[])
    assert one.fingerprint == other.fingerprint
    assert str(formulate(one).program) == str(formulate(other).program)
    assert "surcharge" not in str(formulate(one).program)


def test_a_surcharge_decides() -> None:
    """One that is dear enough makes the plan leave devices idle, and every engine sees it."""
    dear = problem(surcharges=told("100 s * tp * pp * dp * cp"))
    found = [optplan.solve(dear, engine=e) for e in ("cp-sat", "milp", "exhaustive")]
    assert {one.plan for one in found} == {found[0].plan}
    assert found[0].plan is not None
    free = optplan.solve(problem()).plan
    assert free is not None
    assert found[0].plan.devices < free.devices
    for one in found:
        assert optplan.verify(one.to_json()).verdict == "verified"


def test_arrays_are_priced_as_single_plans_are() -> None:
    import numpy as np

    one = Surcharge(name="a", seconds="3 us * (dp % 3) + 1 ms * max(0, tp - 2)")
    tp, dp = np.meshgrid(np.arange(1, 9), np.arange(1, 9))
    many = seconds_of(one, {"tp": tp, "dp": dp})
    for i, j in np.ndindex(tp.shape):
        single = seconds_of(one, {"tp": int(tp[i, j]), "dp": int(dp[i, j])})
        assert many[i, j] == pytest.approx(single)


@pytest.mark.parametrize(
    ("key", "item"),
    [("surcharges", {"name": "a", "seconds": "tp"}), ("limits", {"name": "a", "rule": "pp <"})],
)
def test_a_problem_that_no_spec_was_read_for_is_asked_too(key: str, item: dict[str, str]) -> None:
    """One that a program built, or that stands in a changed file."""
    built = Problem.model_validate(problem().model_dump(mode="json") | {key: [item]})
    with pytest.raises(InputError, match=rf"{key}\.a"):
        optplan.solve(built)
    told = json.loads(optplan.solve(problem(), top=0).to_json())
    told["problem"][key] = [item]
    with pytest.raises(InputError, match=rf"{key}\.a"):
        optplan.verify(json.dumps(told))
