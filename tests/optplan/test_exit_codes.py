"""Exit 4: what only a defect of optplan can cause is said on one line, and nothing is printed."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import optplan
from optplan import planner
from optplan.models import errors
from optplan.models.cost.estimate import estimate
from optplan.models.errors import OwnFault
from optplan.models.formulate import formulate
from optplan.result import Result
from optplan.solvers import cpsat, cpsat_pipeline, exhaustive
from optplan.solvers import paper as paper_engine
from optplan.solvers.base import Holding, Outcome, SolverConfig, Termination
from optplan.solvers.search import Search
from tests.optplan.command import job, run

QWEN = job("qwen-14b")
ROADS = {
    "exhaustive": (exhaustive, "solve"),
    "cp-sat": (cpsat_pipeline, "prove_left"),
    "paper": (paper_engine, "solve"),
}
"""Function that has the last word on the plan, by engine."""


def lying(engine: str, monkeypatch: pytest.MonkeyPatch, **values: int) -> None:
    """Let an engine return its plan with some values changed."""
    module, name = ROADS[engine]
    honest: Callable[..., Outcome] = getattr(module, name)

    def solve(*given: Any, **named: Any) -> Outcome:
        outcome = honest(*given, **named)
        return replace(outcome, best=tuple({**plan, **values} for plan in outcome.best))

    monkeypatch.setattr(module, name, solve)


def assert_own_fault(answer: tuple[int, str, str], *said: str) -> None:
    """Exit 4, one line on stderr with every part, and not a word on stdout."""
    status, out, err = answer
    assert (status, out) == (4, "")
    assert err.count("\n") == 1, err
    assert err.startswith("a fault of optplan itself: ")
    assert "Traceback" not in err
    for part in said:
        assert part in err, err


@pytest.mark.parametrize("engine", ROADS)
@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"dp": 4}, ("degrees.world", "tp 4 * pp 2 * dp 4 = 32 of 16 devices")),
        ({"micro_batches": 63}, ("batch.split", "504", "global_batch 512")),
        ({"tp": 16, "dp": 1, "pp": 1}, ("degrees.heads", "tp 16 does not divide 40")),
        ({"micro_batch": 64, "micro_batches": 4}, ("capacity.", "of 64.0 GiB")),
        ({"zero": 1}, ("search.zero", "zero = 1")),
        ({"schedule": 2, "vpp": 3}, ("degrees.world[known]", "the paper's prices")),
        ({"layers[0]": 21}, ("pipeline.layers", "41 of 40 layers")),
    ],
)
def test_a_plan_that_breaks_a_rule_is_our_fault(
    engine: str, values: dict[str, int], said: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message names the rule and both numbers; the plan is not printed."""
    lying(engine, monkeypatch, **values)
    answer = run("solve", QWEN, "--engine", engine, "--json")
    assert_own_fault(answer, "the verifier refuses an engine's plan by", *said)


def test_a_rule_of_the_users_own_is_asked_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that overlooks a limit is caught by the limit's second face."""
    lying("exhaustive", monkeypatch, **{"tp": 8, "pp": 1, "layers[0]": 40})
    answer = run("solve", QWEN, "--engine", "exhaustive", "--limit", "pp >= 2")
    assert_own_fault(answer, "limits.limit-1", "pp = 1")


def test_a_program_that_prices_differently_is_our_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """Program and estimate price every plan twice; a difference names both prices."""
    form = formulate(optplan.load(QWEN))
    honest = estimate

    def dearer(*given: Any) -> Any:
        price = honest(*given)
        return price.model_copy(update={"step_seconds": price.step_seconds * 1.01})

    monkeypatch.setattr(planner, "estimate", dearer)
    found = exhaustive.solve(form.program)
    with pytest.raises(OwnFault, match=r"the program prices a plan at 40\.7\d+ s, the estimate at"):
        planner.checked(form, found.best[0])
    assert_own_fault(run("solve", QWEN, "--engine", "exhaustive"), "40.7", "41.1")


def test_a_program_that_counts_other_bytes_is_our_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = estimate

    def lighter(*given: Any) -> Any:
        price = honest(*given)
        memory = price.memory.model_copy(update={"peak_bytes": price.memory.peak_bytes - 1})
        return price.model_copy(update={"memory": memory})

    monkeypatch.setattr(planner, "estimate", lighter)
    answer = run("solve", QWEN, "--engine", "exhaustive")
    assert_own_fault(answer, "60220069888 bytes", "60220069887")


@pytest.mark.parametrize(
    "error",
    [ZeroDivisionError("division by zero"), KeyError("tau"), MemoryError(), OSError(5, "x")],
)
@pytest.mark.parametrize(
    "command", [("solve", QWEN), ("solve", QWEN, "--json"), ("evaluate", QWEN, "tp=8")]
)
def test_an_unexpected_error_is_one_line(
    error: Exception, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever breaks, a person sees the kind of error and where it arose, never a traceback."""

    def broken(*_: Any, **__: Any) -> Outcome:
        raise error

    monkeypatch.setattr(Search, "run", broken)
    assert_own_fault(run(*command), type(error).__name__, "test_exit_codes.py:")


def test_an_engine_that_fails_is_not_read_as_no_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that broke down has proven nothing: neither exit 0 nor exit 1."""

    def broken(program: Any, config: SolverConfig | None = None, *_: Any) -> Outcome:
        return Outcome(Termination.FAILED, Holding.NOTHING, engine="broken")

    monkeypatch.setattr(exhaustive, "solve", broken)
    status, out, _ = run("solve", QWEN, "--engine", "exhaustive")
    assert status in (3, 4)
    assert "no plan exists" not in out


def test_a_multiline_message_stays_on_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> Outcome:
        raise RuntimeError("first\nsecond\r\nthird")

    monkeypatch.setattr(Search, "run", broken)
    assert_own_fault(run("solve", QWEN), "first second")


@pytest.mark.parametrize(
    ("status", "arguments"),
    [
        (0, ("solve", QWEN)),
        (0, ("evaluate", QWEN, "tp=8")),
        (0, ("catalogue",)),
        (0, ("--help",)),
        (0, ("solve", "--help")),
        (0, ("--version",)),
        (1, ("solve", QWEN, "--set", "tp=16")),
        (1, ("evaluate", QWEN, "tp=16")),
        (2, ("solve", QWEN, "--set", "tp=x")),
        (2, ("verify", QWEN)),
        (3, ("solve", job("baichuan2-7b"), "--engine", "paper", "--time-limit", "1 us")),
        (3, ("solve", job("dense"), "--engine", "paper")),
    ],
)
def test_the_exit_status_says_what_happened(status: int, arguments: tuple[str, ...]) -> None:
    """0 found, 1 none exists or a rule breaks, 2 wrong input, 3 nothing proven in time."""
    assert run(*arguments)[0] == status


@pytest.mark.parametrize(
    ("termination", "holding", "status"),
    [
        (Termination.PROVED, Holding.OPTIMAL, 0),
        (Termination.EXHAUSTED, Holding.OPTIMAL, 0),
        (Termination.PROVED, Holding.NOTHING, 1),
        (Termination.EXHAUSTED, Holding.NOTHING, 1),
        (Termination.TIME_LIMIT, Holding.FEASIBLE, 3),
        (Termination.TIME_LIMIT, Holding.NOTHING, 3),
        (Termination.INTERRUPTED, Holding.FEASIBLE, 3),
        (Termination.INTERRUPTED, Holding.NOTHING, 3),
    ],
)
def test_status_and_exit_code_agree(
    termination: Termination, holding: Holding, status: int
) -> None:
    result = optplan.solve(QWEN, engine="exhaustive", top=0)
    ended = result.status.model_copy(
        update={"termination": termination.value, "holding": holding.value}
    )
    assert isinstance(result, Result)
    assert result.model_copy(update={"status": ended}).exit_code == status


def test_every_error_class_is_raised_somewhere() -> None:
    """A kind of error that nothing raises is a promise nobody keeps."""
    ours = {
        name
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, errors.OptplanError)
    } - {"OptplanError"}
    raised = set()
    folder = Path(errors.__file__).resolve().parent
    homes = {folder, Path(optplan.__file__).resolve().parent, Path(cpsat.__file__).resolve().parent}
    for path in {path for home in homes for path in home.rglob("*.py")}:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
                raised.add(ast.unparse(node.exc.func).rpartition(".")[2])
    assert ours <= raised
