"""Every question of the public threads: ours is the right answer, or the table says why not."""

from __future__ import annotations

import re

import pytest

from tests.cases.case import Case
from tests.cases.table import TABLE, cases

APART = {"M9", "E3", "T15"}
"""Rows in which our answer is another one; the table explains each."""


@pytest.mark.parametrize("one", cases(), ids=lambda one: one.name)
def test_the_answer_is_right(one: Case) -> None:
    ours = one.answer()
    assert ours.agrees == (one.name not in APART), ours.text
    assert bool(one.why) == (one.name in APART)


def test_nine_of_ten_agree() -> None:
    assert len(APART) <= 0.1 * len(cases())


def test_the_page_has_every_row_and_its_agreement() -> None:
    text = TABLE.read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([A-Z]\d+) \|.*\| (yes|no: .+?) \|$", text, re.MULTILINE)
    assert [name for name, _ in rows] == [one.name for one in cases()]
    assert {name for name, agrees in rows if agrees != "yes"} == APART
