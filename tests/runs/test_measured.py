"""The shipped calibrations against the public runs, within what the README claims."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from optplan.models.cost.estimate import estimate
from optplan.validate import Validation, validate
from tests import scoreboard
from tests.sweep_384 import LAYOUTS, plan_of, problem_of


@pytest.fixture(scope="module")
def found(measured: Path) -> Validation:
    """The validation half, priced."""
    return validate(scoreboard.tables(measured, "validation"))


def mean(found: Validation, names: set[str]) -> float:
    """Mean absolute error of some rows, percent."""
    errors = [p.error for p in found.rows if p.source_id in names]
    assert len(errors) == len(names)
    return 100 * float(np.mean(np.abs([e for e in errors if e is not None])))


def test_megatron_runs_with_a_known_micro_batch(found: Validation) -> None:
    assert mean(found, scoreboard.SEVENTEEN) < 8.0


@pytest.mark.parametrize(
    ("table", "most"),
    [("vtrain_multi", 12.0), ("vtrain_single", 9.0), ("bigscience_a100", 10.0), ("llm_foundry", 8)],
)
def test_mean_error_of_a_table(table: str, most: float, found: Validation) -> None:
    error = found.files[table].score.time.mean_abs_pct
    assert error is not None
    assert error < most


def test_no_complete_table_is_off_by_a_fifth_but_those_that_the_readme_explains(
    found: Validation,
) -> None:
    far = {name for name, one in found.files.items() if (one.score.time.mean_abs_pct or 0) > 20}
    assert far == {"bigscience_v100", "megatron_ci_tiny"}


def test_memory_of_allocators(found: Validation) -> None:
    for table, most in (("zero_bubble_pp", 6.0), ("megatron_ci_tiny", 6.0)):
        error = found.files[table].score.memory.mean_abs_pct
        assert error is not None
        assert error < most


def test_every_row_is_priced_or_explained(found: Validation) -> None:
    assert len(found.rows) + len(found.left_out) == found.all.rows
    assert len(found.left_out) < 20


def test_parts_of_the_model_pay_on_runs_never_seen(found: Validation) -> None:
    """Each part switched off, nothing fitted anew, makes the error larger, tables alike."""
    files = [one for one in found.files.values() if one.score.time.n]
    whole = np.mean([one.score.time.mean_abs_pct or 0.0 for one in files])
    for name in ("constant rho", "no communication", "no launch floor"):
        off = np.mean([one.ablations[name].mean_abs_pct or 0.0 for one in files])
        assert off > whole, name


def test_the_readme_prints_these_numbers(found: Validation) -> None:
    from tests.readme import part

    text = scoreboard.README.read_text(encoding="utf-8")
    assert part(text, "tables") == scoreboard.by_table(found)
    assert part(text, "peers") == scoreboard.beside_peers(found)


def test_384_devices_in_nineteen_layouts() -> None:
    """cases/threads.md, B1: order, choice, and exactly the three that ran out of memory."""
    rank, regret, _ = scoreboard.sweep()
    assert rank >= 0.8
    assert regret <= 2.0
    problem = problem_of()
    for layout in LAYOUTS:
        memory = estimate(problem, plan_of(layout)).memory
        fits = memory.allocated_bytes + problem.calibration.reserve <= memory.capacity_bytes
        assert fits == (layout.seconds is not None), layout
