"""What an engine from outside tells of itself, type by type and number by number."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from numbers import Integral, Rational, Real
from typing import Any

from optplan.models.program import Program
from optplan.solvers import exhaustive
from optplan.solvers.base import DONE, PROVEN, Census, Holding, Outcome, Termination

ROUNDING = 1e-9
"""Share by which a bound in floats may be above the goal in whole ticks, and is that goal."""


class Untrue(Exception):
    """Something told is of a wrong type, or contradicts the rest: what is wrong, the remedy."""

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(problem)
        self.problem, self.remedy = problem, remedy


def words(outcome: Outcome) -> tuple[Termination, Holding]:
    """
    Return why it stopped and what it holds, once both fit each other and the plans returned.

    Raises
    ------
    Untrue
        They are no such words, or do not.
    """
    try:
        termination, held = Termination(outcome.termination), Holding(outcome.holding)
    except (ValueError, TypeError):
        problem = f"it ended {_short(outcome.termination)} and holds {_short(outcome.holding)}"
        raise Untrue(problem, "take a Termination and a Holding of solvers.base") from None
    try:
        plans = len(tuple(outcome.best))
    except TypeError:
        raise Untrue(f"best is {_kind(outcome.best)}", "return a tuple of plans") from None
    if (held is Holding.NOTHING) != (plans == 0):
        problem = f"it holds {held.value} and returns {plans} plans"
        raise Untrue(problem, "let holding say what best has")
    if (held is Holding.OPTIMAL and termination not in DONE) or (
        held is Holding.FEASIBLE and termination in DONE
    ):
        problem = f"it ended {termination.value} and holds {held.value}"
        raise Untrue(problem, "what is proved or exhausted holds an optimum or nothing")
    return termination, held


def plan_of(program: Program, told: object) -> dict[str, int]:
    """
    Return the choices of a plan, and what it hands out, as Python's own whole numbers.

    Raises
    ------
    Untrue
        It is no such mapping, lacks something, or breaks a rule.
    """
    if not isinstance(told, Mapping):
        raise Untrue(f"a plan is {_kind(told)}", "return a mapping of names to whole numbers")
    handed = program.pipeline is not None
    missing = [choice.name for choice in program.choices if choice.name not in told]
    missing += ["layers[0]"] if handed and "layers[0]" not in told else []
    if missing:
        remedy = "return every choice, and layers[i] and again[i] of every stage"
        raise Untrue(f"its plan gives no {', '.join(missing)}", remedy)
    values = {choice.name: _whole(choice.name, told[choice.name]) for choice in program.choices}
    stages = values.get("pp", 0) if handed else 0
    for stage in range(min(stages, len(told))):
        for name in (f"layers[{stage}]", f"again[{stage}]"):
            if name not in told:
                remedy = "return layers[i] and again[i] of every stage"
                raise Untrue(f"its plan gives no {name}", remedy)
            values[name] = _whole(name, told[name])
    broken = list(dict.fromkeys(program.broken(values)))
    if broken:
        more = f" and {len(broken) - 5} more" if len(broken) > 5 else ""
        problem = f"its plan breaks {', '.join(broken[:5])}{more}"
        raise Untrue(problem, "return plans that pass program.broken")
    return values


def bound_of(told: object, goal: Fraction | None, held: Holding) -> Fraction | None:
    """
    Return a bound as an exact number, at least 0 and no higher than the plan's own goal.

    Raises
    ------
    Untrue
        It is no number, is above the goal, or does not prove the optimum that is claimed.
    """
    bound = None if told is None else _exact(told)
    if goal is None:
        return bound
    if bound is not None and bound > goal:
        if isinstance(told, Rational) or bound - goal > goal * Fraction(ROUNDING):
            problem = f"its bound {_size(bound)} is above its own plan's goal {_size(goal)}"
            raise Untrue(problem, "return a bound that no plan undercuts")
        bound = goal
    if held is Holding.OPTIMAL and (bound is None or goal - bound > goal * Fraction(PROVEN)):
        known = "no bound" if bound is None else f"a bound of {_size(bound)}"
        problem = f"it calls {_size(goal)} optimal and has {known}"
        raise Untrue(problem, "return a bound that proves it, or hold a feasible plan")
    return bound


def census_of(program: Program, outcome: Outcome) -> Census | None:
    """
    Return where the points went, once all of them are accounted for.

    Raises
    ------
    Untrue
        Numbers are none, unknown rules are named, or more points went than there are.
    """
    census = outcome.census
    if census is None:
        return None
    if not isinstance(census, Census):
        raise Untrue(f"census is {_kind(census)}", "return a Census, or none")
    points = _count("census.points", census.points)
    true = exhaustive.count(program)
    if points != true:
        raise Untrue(f"its census has {points:,} points of {true:,}", "count every point once")
    removed = _counts("census.removed_by_rule", census.removed_by_rule)
    unknown = sorted(set(removed) - set(program.constraints))
    if unknown:
        raise Untrue(
            f"its census names {unknown[0]!r}, which is no rule", "name those of the program"
        )
    gone = sum(removed.values()) + _count("removed_by_bound", outcome.removed_by_bound)
    gone += sum(_counts("prunings", outcome.prunings).values())
    if gone > points:
        raise Untrue(f"{gone:,} of {points:,} points are removed", "count every point once")
    return Census(points, removed)


def tallies(outcome: Outcome) -> dict[str, Any]:
    """
    Return the counts and the remark of an outcome, as plain numbers and one line.

    Raises
    ------
    Untrue
        One is none.
    """
    counts = {n: _count(n, getattr(outcome, n)) for n in ("priced", "removed_by_bound", "nodes")}
    if not isinstance(outcome.detail, str):
        raise Untrue(f"detail is {_kind(outcome.detail)}", "return a text")
    detail = "".join(c if c.isprintable() else " " for c in outcome.detail)[:500]
    return counts | {"prunings": _counts("prunings", outcome.prunings), "detail": detail}


def _whole(name: str, value: object) -> int:
    """Read a whole number of any kind; one in floats is one."""
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real) and float(value).is_integer():
        return int(float(value))
    raise Untrue(f"its plan says {name} is {_short(value)}", "return whole numbers")


def _exact(value: object) -> Fraction:
    """Read a bound; below nothing it says nothing."""
    if isinstance(value, Rational):
        return max(Fraction(0), Fraction(int(value.numerator), int(value.denominator)))
    if isinstance(value, Real) and math.isfinite(value):
        return max(Fraction(0), Fraction(float(value)))
    raise Untrue(f"its bound is {_short(value)}", "return a finite number, or none")


def _count(name: str, value: object) -> int:
    """Read a number of points."""
    if not isinstance(value, Integral) or value < 0:
        raise Untrue(f"{name} is {_short(value)}", "return a whole number from 0")
    return int(value)


def _counts(name: str, told: object) -> dict[str, int]:
    """Read numbers of points by their reasons."""
    if not isinstance(told, Mapping) or not all(isinstance(reason, str) for reason in told):
        raise Untrue(f"{name} is {_short(told)}", "return a mapping of names to whole numbers")
    return {reason: _count(f"{name}[{reason!r}]", value) for reason, value in told.items()}


def _kind(value: object) -> str:
    """Name the type of a value."""
    return type(value).__name__


def _size(value: Fraction) -> str:
    """Show a goal or a bound, which may be beyond any float."""
    try:
        return f"{float(value):g}"
    except OverflowError:
        return f"10^{len(str(int(value))) - 1}"


def _short(value: object) -> str:
    """Show a value on part of a line."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
