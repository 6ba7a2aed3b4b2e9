"""One problem of a sweep: solved into one row of the table, whatever comes of it."""

from __future__ import annotations

import traceback
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from time import monotonic
from typing import Literal

import optplan
from optplan.models.errors import InputError
from optplan.models.formulate import Formulation
from optplan.models.record import Record
from optplan.models.rules.registry import Rule
from optplan.models.spec.plan import Plan
from optplan.models.spec.problem import Problem
from optplan.own_rules import RuleSet
from optplan.solvers.exhaustive import count
from optplan.tables import Cell, plan_cells, price_cells

SETTLED = ("optimal", "infeasible", "input")
"""Statuses after which nothing is left to know."""

UNSETTLED = ("time-limit", "memory-limit", "killed", "fault")
"""Statuses that another try, or more time or memory, may settle."""

RESULTS = (
    *("status", "reason", "devices"),
    *Plan.model_fields,
    *("step_seconds", "tokens_per_second", "tokens_per_second_per_device", "mfu"),
    *("peak_bytes", "capacity_bytes", "goal", "bound", "unit", "bound_seconds", "gap"),
    *("engine", "fingerprint", "versions", "seconds"),
)
"""Columns behind those of the axes."""

UNLIKE = ("seconds",)
"""Columns in which two runs of the same sweep may differ."""

FLAGS = tuple(name for name, one in Plan.model_fields.items() if isinstance(one.default, bool))
"""Columns that hold true or false."""

MOST_POINTS = 2_000_000
"""Points up to which a clash is looked for; of more, only how many each rule removed."""

LONGEST = 500
"""Characters that a reason may have."""

Status = Literal["optimal", "infeasible", "input", "time-limit", "memory-limit", "killed", "fault"]


class Task(Record):
    """One problem, complete enough to be solved in another process."""

    problem: Problem
    """The question."""
    fingerprint: str
    """Its hash."""
    engine: str
    """Which engine."""
    time_limit: float | None
    """Seconds for the search."""
    rules: RuleSet
    """Rules of the user's own."""


def versions() -> str:
    """Name what an answer may depend on, with versions."""
    return f"optplan {optplan.__version__}, {_libraries()}"


@lru_cache(maxsize=1)
def _libraries() -> str:
    """Name the libraries that compute, with versions."""
    return ", ".join(f"{name} {metadata.version(name)}" for name in ("numpy", "ortools"))


def empty(status: Status, reason: str, fingerprint: str = "") -> dict[str, Cell]:
    """Return a row that holds no plan."""
    row: dict[str, Cell] = dict.fromkeys(RESULTS)
    text = " ".join(reason.split())
    text = text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."
    return row | {
        "status": status,
        "reason": text,
        "fingerprint": fingerprint or None,
        "versions": versions(),
    }


def wrong(error: InputError) -> str:
    """Return the reason of a row whose input is wrong."""
    return "; ".join(dict.fromkeys(map(str, error.faults)))


def solved(task: Task) -> dict[str, Cell]:
    """
    Solve one problem; a failure of any kind is a row too.

    Returns
    -------
    dict
        One value for each of ``RESULTS``.
    """
    start = monotonic()
    mark = task.fingerprint
    try:
        if task.problem.fingerprint != mark:
            row = empty("fault", "the problem changed on its way to the worker", mark)
        else:
            row = _row(task)
    except InputError as error:
        row = empty("input", wrong(error), mark)
    except MemoryError:
        row = empty("memory-limit", "the problem needs more memory than it may have", mark)
    except Exception as error:
        row = empty("fault", _fault(error), mark)
    row["devices"] = task.problem.devices
    row["seconds"] = monotonic() - start
    return row


def _fault(error: Exception) -> str:
    """Name an unexpected error and where it arose."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "unknown place"
    return f"{type(error).__name__}: {error} ({where})"


@lru_cache(maxsize=4)
def _rules(given: RuleSet) -> tuple[Rule, ...]:
    """Load rules once a process."""
    return given.load()


def _row(task: Task) -> dict[str, Cell]:
    """Solve, verify and write down."""
    from optplan.certificate import certificate_of
    from optplan.planner import checked, run
    from optplan.solvers.base import SolverConfig

    problem, own = task.problem, _rules(task.rules)
    config = SolverConfig(seconds=task.time_limit)
    form, outcome = run(problem, own, task.engine, config)
    plan = price = None
    if outcome.best:
        plan, price, _ = checked(form, outcome.best[0])
    told = certificate_of(form, outcome, plan, price, config)
    status, reason = _status(outcome.termination, outcome.detail, plan is not None)
    if status == "infeasible":
        reason = _clash(form, told.removed_by_rule)
    capacity = price.memory.capacity_bytes if price else None
    rate = price.tokens_per_second_per_device * problem.devices if price else None
    row = empty(status, reason, task.fingerprint) | plan_cells(plan) | price_cells(price)
    return row | {
        "tokens_per_second": rate,
        "capacity_bytes": capacity,
        "goal": told.goal,
        "bound": told.bound,
        "unit": told.unit,
        "bound_seconds": told.bound_seconds,
        "gap": told.gap,
        "engine": told.engine,
    }


def _status(termination: str, detail: str, held: bool) -> tuple[Status, str]:
    """Name how a search ended in the words of the table."""
    if termination in ("proved", "exhausted"):
        return ("optimal", "") if held else ("infeasible", "")
    if termination == "time-limit":
        what = "the best plan so far, not proved" if held else "no plan was found"
        return "time-limit", f"the time was up: {what}"
    return "fault", detail or f"the engine ended with {termination}"


def _clash(form: Formulation, removed: dict[str, int]) -> str:
    """
    Name the rules that no plan obeys together.

    What the search fixes stays fixed here, which ``optplan explain`` opens: that would take many
    times longer than the answer itself.
    """
    from optplan.infeasible import core_of
    from optplan.models.formulate import formulate

    none = [name for name, values in form.program.domain.items() if not values]
    if none:
        return "; ".join(f"search.{name}: no value asked for is possible here" for name in none)
    points = count(form.program)
    if points > MOST_POINTS:
        told = ", ".join(f"{n:,} by {name}" for name, n in removed.items())
        return f"{points:,} points were removed: {told}"
    if not points:
        form = formulate(form.problem, form.more, widened=True)
    return "; ".join(f"{one.rule}: {one.text or one.sentence}" for one in core_of(form))
