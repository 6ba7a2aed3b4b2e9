"""Plans beside the best one: the next best, and all that the model's error cannot tell apart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

from optplan.certificate import goal_of
from optplan.models.cost.price import Estimate
from optplan.models.domains import CHOICES, word
from optplan.models.formulate import Formulation, formulate
from optplan.models.program import Program
from optplan.models.spec.plan import Plan
from optplan.result import Alternative
from optplan.solvers.base import SolverConfig, Termination
from optplan.solvers.left import Left
from optplan.solvers.search import Search
from optplan.solvers.settle import Point, Settler
from optplan.sureness import Neighbour, WithinError

SHAPE = ("tp", "pp", "dp", "cp", "ep", "etp", "vpp", "micro_batch", "schedule")
"""What next-best plans differ in; of those that share all of it only the best is shown."""

NAMED = 4
"""Plans within the error that are named."""

MOST_SETTLED = 5_000
"""Points whose layers are handed out to count shapes; beyond that the count is a lower bound."""

SECONDS = 60.0
"""Time for the search; what is not found by then is left out."""


class Near(Search):
    """
    A search that keeps every point whose bound lies within a share of the best plan.

    Parameters
    ----------
    share
        How much worse than the best a point of interest may be, at least.
    """

    def __init__(self, program: Program, config: SolverConfig, share: float) -> None:
        super().__init__(program, config)
        self.share = share

    @property
    def ceiling(self) -> float:
        """Goal above which nothing is of interest."""
        if not self.best:
            return float("inf")
        best = float(self.settler.goal(self.best[0]))
        # Beyond any rounding of floats; whoever asks for points compares again.
        return max(self._worst, best * (1 + self.share) * (1 + 1e-9))


def neighbourhood(
    form: Formulation, plan: Plan, price: Estimate, top: int
) -> tuple[tuple[Alternative, ...], WithinError | None]:
    """
    Find the next-best plans at the same global batch, and what the model's error covers.

    Parameters
    ----------
    plan, price
        The best plan.
    top
        Next-best plans to return.

    Returns
    -------
    tuple
        The next-best plans, best first; and the plans within the held-out error, none where that
        is unknown or the goal is not a time.
    """
    accuracy = form.problem.accuracy
    error = accuracy.held_out if form.program.goal.of == "step_ticks" else None
    if top < 1 and error is None:
        return (), None
    if form.near is not None:
        # Ticks fine enough for the best plan cut slow ones off; these are fine enough for all.
        form = formulate(form.problem, form.more)
    same = form.program.fixed({"global_batch": (plan.global_batch,)})
    config = SolverConfig(seconds=SECONDS, top=top + 1, distinct=SHAPE)
    search = Near(same, config, error or 0.0)
    found = search.run()
    if found.outcome.termination is not Termination.EXHAUSTED:
        return (), None
    from optplan.planner import checked

    best = goal_of(form, plan, price)
    ranked = []
    for assignment in found.outcome.best:
        other, its, _ = checked(form, assignment)
        if other != plan:
            ranked.append(alternative(form, other, its, best))
    within = None
    if error is not None and search.best and not found.hard:
        limit = search.settler.goal(search.best[0]) * (1 + Fraction(error).limit_denominator(10**9))
        counted = _count(search.settler, found.left, limit)
        within = _told(form, counted, plan, best, error)
    return tuple(ranked[:top]), within


def alternative(form: Formulation, plan: Plan, price: Estimate, best: float) -> Alternative:
    """Summarise a plan beside the best one."""
    return Alternative(
        plan=plan,
        step_seconds=price.step_seconds,
        tokens_per_second_per_device=price.tokens_per_second_per_device,
        peak_bytes=price.memory.peak_bytes,
        behind=goal_of(form, plan, price) / best - 1,
    )


@dataclass
class _Counted:
    """What was found within an error: the best point seen of every shape, values of choices."""

    shapes: dict[tuple[int, ...], Point] = field(default_factory=dict)
    values: dict[str, set[int]] = field(default_factory=lambda: {name: set() for name in CHOICES})
    settled: int = 0
    complete: bool = True

    def is_new(self, point: Point) -> bool:
        """Tell whether a point would show anything that no point before it has."""
        if tuple(point[name] for name in SHAPE) not in self.shapes:
            return True
        return any(point[name] not in self.values[name] for name in CHOICES)


def _count(settler: Settler, left: Left, limit: Fraction) -> _Counted:
    """
    Count shapes up to a goal, and note every value that a choice takes there.

    A point is settled only where it would show something new: a shape, or a value of a choice. So
    whatever all plans within the error have in common is known exactly.
    """
    counted = _Counted()
    order = np.lexsort([*(left.columns[name] for name in reversed(CHOICES)), left.bound])
    for i in order.tolist():
        if left.bound[i] > float(limit):
            break
        point = left.at(i)
        if not counted.is_new(point):
            continue
        if counted.settled >= MOST_SETTLED:
            counted.complete = False
            break
        counted.settled += 1
        full = settler.settle(point, limit)
        if full is None or settler.goal(full) > limit:
            continue
        counted.shapes.setdefault(tuple(full[name] for name in SHAPE), full)
        for name in CHOICES:
            counted.values[name].add(full[name])
    return counted


def _told(
    form: Formulation, counted: _Counted, plan: Plan, best: float, error: float
) -> WithinError:
    """Write down what lies within an error, the plans that are furthest apart by name."""
    open_ = [name for name in CHOICES if len(form.program.domain[name]) > 1]
    open_ = [name for name in open_ if name != "global_batch"]
    values = {
        name: tuple(word(name, value) for value in sorted(counted.values[name])) for name in open_
    }
    return WithinError(
        error=error,
        calibration=form.problem.calibration.name,
        shapes=len(counted.shapes),
        complete=counted.complete,
        values=values,
        common={name: some[0] for name, some in values.items() if len(some) == 1},
        apart=tuple(_apart(form, list(counted.shapes.values()), plan, best)),
    )


def _apart(
    form: Formulation, points: Sequence[Point], plan: Plan, best: float
) -> Iterator[Neighbour]:
    """Name plans that differ in most choices from the best plan and from those named before."""
    from optplan.planner import checked

    chosen = [form.encode(plan)]
    rest = list(points)
    for _ in range(NAMED):
        far = [min(_distance(point, other) for other in chosen) for point in rest]
        if not far or max(far) == 0:
            return
        point = rest.pop(far.index(max(far)))
        chosen.append(point)
        other, price, _ = checked(form, point)
        yield Neighbour(
            plan=other,
            step_seconds=price.step_seconds,
            behind=goal_of(form, other, price) / best - 1,
            differs=differing(form.encode(plan), form.encode(other)),
        )


def _distance(one: Point, other: Point) -> int:
    """Count the parts of the shape in which two plans differ."""
    return sum(one[name] != other[name] for name in SHAPE)


def differing(before: Point, after: Point) -> dict[str, str]:
    """Name the choices in which two plans differ, as ``2 -> 4``."""
    return {
        name: f"{word(name, before[name])} -> {word(name, after[name])}"
        for name in CHOICES
        if before[name] != after[name]
    }
