"""The README shows what the package really says."""

from __future__ import annotations

import re

import pytest

from tests.readme import PARTS, README, WHOLE, part

pytestmark = pytest.mark.skipif(not README.is_file(), reason="the README is not beside the tests")


@pytest.mark.parametrize("name", ["rules", "calibrations", *WHOLE])
def test_a_generated_part_is_up_to_date(name: str) -> None:
    assert part(README.read_text(encoding="utf-8"), name) == PARTS[name](), (
        "run python -m tests.readme"
    )


def test_the_screen_is_what_the_first_example_prints() -> None:
    def plain(text: str) -> str:
        # The engine's version is another on another machine.
        return re.sub(r"\[cp-sat \(ortools [^)]*\)\]", "[cp-sat]", text)

    shown = part(README.read_text(encoding="utf-8"), "screen")
    assert plain(shown) == plain(PARTS["screen"]()), "run python -m tests.readme"


def test_the_readme_speaks_of_nothing_on_this_machine() -> None:
    text = README.read_text(encoding="utf-8")
    assert not re.search(r"/work/|/root/|/tmp/|shared/", text)
    assert "TODO" not in text
    assert "@@" not in text
