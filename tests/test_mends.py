"""What doctor offers in place of a spoilt launch: free of errors, and what it says it is."""

from __future__ import annotations

import pytest

from optplan.doctor import doctor
from optplan.launches.dialects import known
from tests.launches.samples import changed, with_options
from tests.mends import faults, mended, patched

SHARED = ("    --use-distributed-optimizer \\\n", "")
SPLIT = ("    --sequence-parallel \\\n", "")


@pytest.mark.parametrize("framework", known())
def test_spoilt_launches_are_mended(framework: str) -> None:
    tally = mended(framework, count=4, seed=5, priced=0.0)
    assert tally.wrong == []
    assert tally.done == 4


@pytest.mark.parametrize(
    ("text", "rule", "anew"),
    [
        (with_options("--fp16"), "megatron.precision", True),
        (with_options("--overlap-param-gather", SHARED), "megatron.overlap", False),
        (with_options("--tp-comm-overlap", SPLIT), "megatron.overlap", False),
    ],
)
def test_a_layout_that_is_right_may_need_another_text(text: str, rule: str, anew: bool) -> None:
    found = doctor(text)
    assert [one.rule for one in found.findings if one.severity == "error"] == [rule]
    assert found.corrected is not None
    assert found.corrected.plan == found.plan
    assert (found.corrected.patch == "") == anew
    assert faults(found, "megatron-core", "") == []


def test_what_a_caller_sets_is_written_into_the_mended_file() -> None:
    text = changed(("--global-batch-size 128", "--global-batch-size 127"))
    found = doctor(text, sets=["tp=8", "pp=1"])
    assert found.corrected is not None
    assert found.corrected.plan.tp == 8
    assert doctor(found.corrected.text).plan == found.corrected.plan


def test_an_impossible_speed_is_no_fault_of_the_layout() -> None:
    found = doctor(changed(), on="h100-sxm-80gb", measured_seconds=0.001)
    assert [one.rule for one in found.findings if one.severity == "error"] == ["speed.impossible"]
    assert found.corrected is None
    assert found.mended()


def test_a_patch_is_applied_as_it_says() -> None:
    assert patched("a\nb\nc\n", "--- x\n+++ y\n@@ -1,3 +1,3 @@\n a\n-b\n+d\n c\n") == "a\nd\nc\n"
    with pytest.raises(AssertionError):
        patched("a\n", "--- x\n+++ y\n@@ -1 +1 @@\n-b\n+c\n")
