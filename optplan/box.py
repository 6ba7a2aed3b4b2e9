"""The box of constants that a robust plan has to answer for, and the scenarios at its corners."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import product
from typing import Any

from optplan import catalogue
from optplan.models.cost.calibration import UNCERTAIN, constant_ends
from optplan.models.cost.estimate import step_seconds
from optplan.models.errors import Fault, InputError
from optplan.models.spec.plan import Plan
from optplan.models.spec.problem import Problem
from optplan.sureness import Axis

MOST_AXES = 8
"""Constants of a box at most: 256 corners."""

USUAL_AXES = 4
"""Constants of a box that nobody gives: 16 corners."""

MOVES = 1e-9
"""Share of a price that a constant must move to be of interest."""

LUMPED = ("utilization_peak", "tokens_half", "shard_loss", "link_efficiency")
"""Constants of which Eq. 1 has values of its own."""

KEPT = ("reserve",)
"""Constants whose spread over calibrations says nothing: each is of one software's habits."""

Box = Mapping[str, Any]
"""Ends by constant, such as ``{"network_efficiency": [0.5, 1.0]}``."""


def box_given(texts: Sequence[str]) -> dict[str, tuple[float, float]]:
    """
    Read ``network_efficiency=0.5..1.0``.

    Raises
    ------
    InputError
        With everything that is wrong.
    """
    faults: list[Fault] = []
    found: dict[str, Any] = {}
    for text in texts:
        name, equals, ends = (part.strip() for part in text.partition("="))
        low, dots, high = (part.strip() for part in ends.partition(".."))
        if not (name and equals and low and dots and high):
            remedy = "write --box network_efficiency=0.5..1.0"
            faults.append(Fault(f"--box {text[:40]}", "", "this is no interval", remedy))
        elif name in found:
            faults.append(Fault(f"--box {name}", "", f"{name} is given twice", "give it once"))
        else:
            found[name] = (low, high)
    return _checked(found, faults)


def _checked(box: Box, faults: list[Fault]) -> dict[str, tuple[float, float]]:
    """Read every interval, and refuse all that is wrong at once."""
    read = {}
    for name, ends in box.items():
        try:
            read[name] = constant_ends(name, ends)
        except ValueError as error:
            problem, _, remedy = str(error).partition("; ")
            remedy = remedy or "write it as --box network_efficiency=0.5..1.0"
            faults.append(Fault(f"--box {name}"[:60], "", problem, remedy))
    for name, (low, high) in read.items():
        if low == high:
            problem, remedy = f"both ends of {name} are {low:g}", "give two different ends"
            faults.append(Fault(f"--box {name}", "", problem, remedy))
    if len(box) > MOST_AXES:
        problem = f"{len(box)} constants make {2 ** len(box):,} corners"
        faults.append(Fault("--box", "", problem, f"give at most {MOST_AXES}"))
    if faults:
        raise InputError(faults)
    return read


def axes_of(problem: Problem, box: Box | None, pool: Sequence[Plan]) -> tuple[Axis, ...]:
    """
    Choose the constants that move, and how far.

    Parameters
    ----------
    box
        Ends by constant; None for the constants that can change the choice among the plans of a
        pool most, each over its interval.
    pool
        Plans near the best one, the best first.

    Raises
    ------
    InputError
        An interval is wrong.
    """
    if box is not None:
        ends = _checked(box, [])
        return tuple(_axis(problem, n, *e, "given") for n, e in ends.items())
    weighed = []
    for axis in known_axes(problem):
        regret, moved = _weight(problem, axis, pool)
        if moved > MOVES:
            weighed.append((regret, moved, axis))
    weighed.sort(key=lambda one: (-one[0], -one[1]))
    return tuple(axis for _, _, axis in weighed[:USUAL_AXES])


def known_axes(problem: Problem) -> Iterator[Axis]:
    """List the constants of a problem whose interval is known, widened to their present value."""
    calibration = problem.calibration
    lumped = problem.prices == "paper" and calibration.lump is not None
    for name in UNCERTAIN:
        if lumped and name in LUMPED:
            continue
        if name in calibration.intervals:
            low, high = calibration.intervals[name]
            origin = f"95 % interval of the fit of {calibration.name}"
        elif name in KEPT:
            continue
        else:
            low, high, origin = spread(name)
        axis = _axis(problem, name, low, high, origin)
        if axis.low < axis.high:
            yield axis


def _axis(problem: Problem, name: str, low: float, high: float, origin: str) -> Axis:
    """Write down one side of the box."""
    found = getattr(problem.calibration, name)
    value = float(problem.calibration.utilization_peak if found is None else found)
    if origin != "given":
        low, high = min(low, value), max(high, value)
    return Axis(constant=name, low=low, value=value, high=high, origin=origin)


@cache
def spread(name: str) -> tuple[float, float, str]:
    """Return the lowest and the highest value of a constant among the shipped calibrations."""
    held = {n: getattr(catalogue.calibration(n), name) for n in catalogue.names("calibrations")}
    values = {n: float(v) for n, v in held.items() if v is not None}
    low, high = (pick(values, key=lambda n: values[n]) for pick in (min, max))
    origin = f"spread over what ships: {values[low]:g} ({low}) to {values[high]:g} ({high})"
    return values[low], values[high], origin


def _weight(problem: Problem, axis: Axis, pool: Sequence[Plan]) -> tuple[float, float]:
    """How far behind the first plan of a pool falls at an end, and how far any price moves."""
    now = [_each(problem, plan) for plan in pool]
    regret = moved = 0.0
    for end in (axis.low, axis.high):
        changed = with_constants(problem, {axis.constant: end})
        there = [_each(changed, plan) for plan in pool]
        regret = max(regret, there[0] / min(there) - 1)
        moved = max(moved, *(abs(b / a - 1) for a, b in zip(now, there, strict=True)))
    return regret, moved


def _each(problem: Problem, plan: Plan) -> float:
    """Seconds per sequence."""
    return step_seconds(problem, plan) / plan.global_batch


def with_constants(problem: Problem, values: Mapping[str, float]) -> Problem:
    """Return the problem under changed constants, those of Eq. 1 moved along where it has any."""
    update: dict[str, Any] = dict(values)
    if "reserve" in update:
        update["reserve"] = int(update["reserve"])
    lump = problem.calibration.lump
    if problem.prices == "paper" and lump is not None:
        own = {n: v for n, v in values.items() if n in LUMPED and getattr(lump, n) is not None}
        update["lump"] = lump.model_copy(update=own)
    return problem.with_calibration(**update)


def corners(axes: Iterable[Axis]) -> Iterator[dict[str, float]]:
    """Every combination of ends."""
    axes = tuple(axes)
    for ends in product(*((axis.low, axis.high) for axis in axes)):
        yield {axis.constant: end for axis, end in zip(axes, ends, strict=True)}
