"""Every plan that no other beats in all goals: one proved optimum after the other."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import ceil, log

from optplan.certificate import gap_of, goal_value
from optplan.costs import costs_of
from optplan.models.cost.price import Estimate
from optplan.models.formulate import Formulation, formulate, goal_in, ties_of
from optplan.models.program import Program, Row
from optplan.models.rules.registry import Rule
from optplan.models.spec.plan import Plan
from optplan.models.spec.problem import TIMED, GoalName, Problem
from optplan.models.tabulate import ROOM
from optplan.planner import answered, checked
from optplan.result import FrontClaim, FrontPoint
from optplan.solvers.base import DONE, Holding, Outcome, Solver, SolverConfig, time_left

SAME = 1e-9
"""Values that differ by less than this share count as equal, as in limits."""

SHARE = 20
"""Memory is told apart to this part of a device's, unless asked otherwise."""


@dataclass(frozen=True)
class Found:
    """
    An optimum of one goal under caps on the others.

    Parameters
    ----------
    assignment
        Values of the choices, layers included.
    plan, price
        What they mean, and what that costs.
    gap
        Share by which the goal could at most be smaller.
    level
        Devices counted against the cap: those held, or those in use.
    goal
        The goal it is an optimum of.
    """

    assignment: dict[str, int]
    plan: Plan
    price: Estimate
    gap: float
    level: int
    goal: GoalName

    @property
    def peak(self) -> int:
        """Bytes of the fullest device."""
        return self.price.memory.peak_bytes

    @property
    def pace(self) -> float:
        """Seconds a sequence."""
        return self.price.step_seconds / self.plan.global_batch


@dataclass(frozen=True)
class Front:
    """
    Points of a front, what is claimed of it, and how each point is reached.

    Parameters
    ----------
    points, claim
        As they are printed.
    assignments
        Values of the choices of every point.
    """

    points: tuple[FrontPoint, ...]
    claim: FrontClaim
    assignments: tuple[dict[str, int], ...]


class _Stopped(Exception):
    """A solve was not finished."""


@dataclass(frozen=True)
class _Asked:
    """A goal, and the most devices and bytes that a plan may have."""

    goal: GoalName
    devices: int | None
    bytes: int | None

    def within(self, other: _Asked) -> bool:
        """Tell whether all that is allowed here is allowed there."""
        pairs = ((self.devices, other.devices), (self.bytes, other.bytes))
        inside = all(b is None or (a is not None and a <= b) for a, b in pairs)
        return self.goal == other.goal and inside

    def allows(self, found: Found) -> bool:
        """Tell whether a plan keeps within the caps."""
        return (self.devices is None or found.level <= self.devices) and (
            self.bytes is None or found.peak <= self.bytes
        )


def front_of(
    problem: Problem,
    rules: tuple[Rule, ...],
    engine: str | Solver,
    config: SolverConfig,
    resolution: int | None,
    first: dict[str, int],
    say: Callable[[str], None] | None = None,
) -> Front:
    """
    Find the front of a problem's goals.

    Money and energy are a time by the devices held, which never fall as more are in use. So a
    plan that nothing beats is the fastest of all that use no more devices and no more memory than
    it does, and caps on these two, lowered below each optimum in turn, lead past every one.

    Parameters
    ----------
    engine, config
        What proves each optimum; its time is that of the whole front.
    resolution
        Bytes that count as no difference; None for a twentieth of a device's memory.
    first
        A plan of the problem, which tells the order of size of its times.
    say
        Called with what has been found.
    """
    if resolution is None:
        resolution = problem.cluster.accelerator.hbm // SHARE
    walk = _Walk(problem, rules, engine, config, resolution, first, say)
    why = ""
    try:
        walk.run()
    except _Stopped as stopped:
        why = str(stopped)
    except KeyboardInterrupt:
        why = "interrupted"
    kept = _best_of(problem, walk.points)
    claim = FrontClaim(
        complete=not why,
        goals=problem.goals,
        alike=_alike(problem),
        resolution_bytes=resolution if "most-headroom" in problem.goals else 0,
        solves=walk.solves,
        why=why,
    )
    points = tuple(_point(problem, found) for found in kept)
    return Front(points, claim, tuple(found.assignment for found in kept))


def best_first(form: Formulation, outcome: Outcome, front: Front) -> Outcome:
    """Take the front's own point for the plan that is best in the first goal."""
    if not front.points:
        return outcome
    plan, price, _ = checked(form, outcome.best[0])
    best = goal_value(form.problem, form.problem.main_goal, plan, price)
    mine = front.points[0].values[form.problem.main_goal]
    if mine > best * (1 + SAME) + price.late_seconds:
        return outcome
    return replace(outcome, best=(front.assignments[0], *outcome.best[1:]))


class _Walk:
    """One walk along a front."""

    def __init__(
        self,
        problem: Problem,
        rules: tuple[Rule, ...],
        engine: str | Solver,
        config: SolverConfig,
        resolution: int,
        first: dict[str, int],
        say: Callable[[str], None] | None,
    ) -> None:
        self.problem, self.rules, self.engine = problem, rules, engine
        self.config, self.resolution, self.say = config, resolution, say
        self.start = time.monotonic()
        self.forms: dict[int | None, Formulation] = {None: formulate(problem, rules)}
        plan, price, _ = checked(self.forms[None], first)
        self.base = price.step_seconds / plan.global_batch
        self.points: list[Found] = []
        self.answers: list[tuple[_Asked, Found | None]] = []
        self.solves = 0
        goals = problem.goals
        timed = [goal for goal in goals if goal in TIMED]
        self.count_used = "fewest-devices" in goals
        differ = problem.cluster.held != "all" and len({g == "fastest" for g in timed}) > 1
        self.by_devices = self.count_used or differ
        self.main: GoalName = timed[0] if timed else "most-headroom"
        if self.by_devices and timed:
            self.main = "fastest"
        self.saving = next((g for g in timed if g != "fastest"), None)
        self.by_memory = "most-headroom" in goals and self.main != "most-headroom"

    def run(self) -> None:
        """Walk, memory outside, devices inside."""
        cap: int | None = None
        while True:
            some = self._devices(cap)
            if not some:
                return
            self.points += some
            if not self.by_memory:
                return
            cap = max(found.peak for found in some) - max(1, self.resolution)

    def _devices(self, room: int | None) -> list[Found]:
        """Walk along the devices, within so much memory."""
        if not self.by_devices:
            one = self._best(_Asked(self.main, None, room))
            return [one] if one else []
        floor = 1
        if not self.count_used and self.saving is not None:
            # What holds fewer devices than the cheapest plan is slower and dearer.
            least = self._best(_Asked(self.saving, None, room))
            if least is None:
                return []
            floor = least.level
        some: list[Found] = []
        cap: int | None = None
        while cap is None or cap >= floor:
            one = self._best(_Asked(self.main, cap, room))
            if one is None:
                break
            some.append(one)
            cap = one.level - 1
        return some

    # -- one optimum -----------------------------------------------------------------------------

    def _best(self, asked: _Asked) -> Found | None:
        """Return a proved optimum, one that is known already where it answers this too."""
        for other, known in self.answers:
            if asked.within(other) and (known is None or asked.allows(known)):
                return known
        found = self._solved(asked)
        if found is not None and self.by_memory:
            found = self._tidy(asked, found)
        self.answers.append((asked, found))
        if self.say and found is not None:
            self.say(f"front: {self.solves} optima proved, {len(self.answers)} looked for")
        return found

    def _solved(self, asked: _Asked) -> Found | None:
        """Prove an optimum, on ticks as fine as it deserves."""
        near = [known.pace for other, known in self.answers if known and other.goal == asked.goal]
        timed = asked.goal != "most-headroom"
        rung = self._rung(max(near, default=self.base)) if timed else None
        if rung is not None:
            found = self._ask(asked, rung)
            if found is not None and found.pace < ROOM * self._pace(rung) * (1 - SAME):
                return found
        found = self._ask(asked, None)
        if found is None or asked.goal == "most-headroom":
            return found
        # Money spreads over more than time does: a slow plan on few devices may be cheap.
        few = self.forms[None].program.bounds.get("held", (1, 1))[0]
        spread = found.level / max(1, few) if asked.goal != "fastest" else 1.0
        finer = self._ask(asked, self._rung(found.pace * spread))
        return found if finer is None or finer.gap > found.gap else finer

    def _rung(self, pace: float) -> int:
        """Return which formulation has ticks fit for plans of so many seconds a sequence."""
        return ceil(log(max(pace / self.base, 1e-9), ROOM) - SAME)

    def _pace(self, rung: int) -> float:
        """Seconds a sequence that a formulation is made for."""
        return self.base * ROOM**rung

    def _form(self, rung: int | None) -> Formulation:
        """Formulate once for each order of size of times."""
        if rung not in self.forms:
            near = None if rung is None else self._pace(rung)
            self.forms[rung] = formulate(self.problem, self.rules, near=near)
        return self.forms[rung]

    def _ask(self, asked: _Asked, rung: int | None) -> Found | None:
        """Prove an optimum on given ticks."""
        form = self._form(rung)
        form = replace(form, program=self._capped(form, asked))
        return self._answer(form, asked.goal)

    def _capped(self, form: Formulation, asked: _Asked) -> Program:
        """Write goal and caps into a program."""
        rows = []
        if asked.devices is not None:
            column = "used" if self.count_used else "held"
            rows.append(Row("front.devices", ((1, column),), None, asked.devices))
        if asked.bytes is not None:
            rows.append(Row("front.memory", ((1, "peak_bytes"),), None, asked.bytes))
        return replace(
            form.program,
            statements=(*form.program.statements, *rows),
            goal=goal_in(self.problem, asked.goal, form.tick),
            ties=ties_of(asked.goal),
        )

    def _answer(self, form: Formulation, goal: GoalName) -> Found | None:
        """Ask an engine, and check what it says."""
        if self.config.seconds is not None:
            left = self.config.seconds - (time.monotonic() - self.start)
            if left <= 0:
                raise _Stopped("time limit")
        outcome = answered(form, self.engine, time_left(self.config, self.start))
        if outcome.termination not in DONE:
            raise _Stopped(outcome.termination.value.replace("-", " "))
        self.solves += 1
        if outcome.holding is not Holding.OPTIMAL:
            return None
        plan, price, _ = checked(form, outcome.best[0])
        value = goal_value(self.problem, goal, plan, price)
        bound = None if outcome.bound is None else float(outcome.bound) * form.program.goal.scale
        held: int = self.problem.cluster.held_devices(plan.devices)
        level = plan.devices if self.count_used else held
        return Found(outcome.best[0], plan, price, gap_of(value, bound), level, goal)

    def _tidy(self, asked: _Asked, found: Found) -> Found:
        """Of the plans that are as good, return one that takes the least memory."""
        rung = self._rung(found.pace)
        form = self._form(rung)
        ticks = found.pace / float(form.tick) * (1 + SAME) + 1
        program = self._capped(form, replace(asked, goal="most-headroom"))
        rows = [
            Row("front.time", ((1, "step_ticks"), (-ceil(ticks), "global_batch")), None, 0),
        ]
        if self.problem.cluster.held != "all" or self.count_used:
            column = "used" if self.count_used else "held"
            rows.append(Row("front.devices", ((1, column),), None, found.level))
        form = replace(form, program=replace(program, statements=(*program.statements, *rows)))
        tidy = self._answer(form, "most-headroom")
        if tidy is None or tidy.peak >= found.peak:
            return found
        return replace(tidy, gap=max(found.gap, tidy.pace / found.pace - 1), goal=found.goal)


def _best_of(problem: Problem, found: list[Found]) -> list[Found]:
    """Keep the points that no other beats, the first goal's best first."""
    goals = problem.goals

    def worth(one: Found) -> tuple[float, ...]:
        return tuple(goal_value(problem, goal, one.plan, one.price) for goal in goals)

    ordered = sorted(found, key=lambda one: (worth(one), one.peak, one.plan.devices))
    kept: list[Found] = []
    for one in ordered:
        if not any(no_worse(worth(other), worth(one)) for other in kept):
            kept = [other for other in kept if not no_worse(worth(one), worth(other))]
            kept.append(one)
    return kept


def no_worse(left: tuple[float, ...], right: tuple[float, ...]) -> bool:
    """Tell whether one plan's values are all as small as another's, within ``SAME``."""
    return all(a <= b * (1 + SAME) for a, b in zip(left, right, strict=True))


def _point(problem: Problem, found: Found) -> FrontPoint:
    """Write a point down."""
    plan, price = found.plan, found.price
    return FrontPoint(
        plan=plan,
        step_seconds=price.step_seconds,
        peak_bytes=found.peak,
        costs=costs_of(problem, plan, price),
        values={goal: goal_value(problem, goal, plan, price) for goal in problem.goals},
        proved=found.goal,
        gap=found.gap,
    )


def _alike(problem: Problem) -> tuple[str, ...]:
    """Name the goals that move with one named before, so that they weigh nothing."""
    seen: set[str] = set()
    alike = []
    for goal in problem.goals:
        kind = goal
        if goal in TIMED:
            kind = "fastest" if problem.cluster.held == "all" or goal == "fastest" else "cheapest"
        if kind in seen:
            alike.append(goal)
        seen.add(kind)
    return tuple(alike)
