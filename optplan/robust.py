"""The plan whose largest regret over a box of uncertain constants is smallest, with its proof."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from optplan.box import Box, axes_of, corners, with_constants
from optplan.certificate import goal_of
from optplan.exactly import Clock, Key, OutOfTime, best_at
from optplan.models.cost.estimate import estimate
from optplan.models.rules.registry import Rule
from optplan.models.spec.plan import Plan
from optplan.models.spec.problem import Problem
from optplan.planner import Condition, Spec, problem_of
from optplan.scenarios import CLOSE, Scenario, TooHard, scenario
from optplan.sureness import Axis, Corner, Robust

POOL = 24
"""Plans of different shape near the best one, from which constants are weighed."""

POOL_SHARE = 0.25
"""How far behind the best one they may lie to be kept as points."""

INSIDE = 8
"""Points inside of the box that are solved to see whether the corners say enough."""

SECONDS = 300.0
"""Time unless another is given."""

MOST_LEFT = 200_000
"""Points of one scenario that are compared with those of the others."""

Say = Callable[[str], None]


def robust(
    spec: Spec,
    *,
    box: Box | None = None,
    sets: Sequence[str] = (),
    limits: Sequence[Condition] = (),
    rules: Iterable[Rule] = (),
    time_limit: float | None = None,
    seed: int = 0,
    inside: int = INSIDE,
    say: Say | None = None,
) -> Robust:
    """
    Find the plan with the smallest worst-case regret over a box of the calibration's constants.

    Every corner of the box is solved, and so is the present calibration. A plan whose largest
    regret is at most r lies within r of the best plan at each of them. So only points within the
    regret of a plan already held have to be looked at, and of them only those that are so at every
    corner. Layers are handed out as well as each corner in turn would have it; where a compromise
    between these could be better still, the bound says by how much.

    Parameters
    ----------
    spec, sets, limits, rules
        As for ``solve``.
    box
        Interval by constant; left out, the four constants with a known interval that can change
        the choice most.
    time_limit
        Seconds for all of it.
    seed
        Of the points inside of the box.
    inside
        How many of them are solved.
    say
        Called with each step.

    Raises
    ------
    InputError
        The spec or the box is wrong.
    """
    problem, own = problem_of(spec, sets, limits), tuple(rules)
    clock, tell = Clock(time_limit or SECONDS), say or (lambda line: None)
    if box is not None:
        axes_of(problem, box, ())  # A wrong box is refused before anything is solved.
    try:
        here = scenario(problem, {}, own, clock, POOL_SHARE, POOL)
    except OutOfTime:
        return Robust(box=(), scenarios=0, solved=0, why="the problem itself was not solved")
    except TooHard:
        why = "a limit asks more of time or memory than to be small"
        return Robust(box=(), scenarios=0, solved=0, why=why)
    if here.plan is None:
        return Robust(box=(), scenarios=1, solved=1, why="no plan exists")
    axes = axes_of(problem, box, here.pool)
    every = [{axis.constant: axis.value for axis in axes}, *corners(axes)] if axes else [{}]
    hunt = _Hunt(problem, own, axes, every, clock, tell)
    try:
        hunt.solve_corners(here)
        hunt.compare()
    except OutOfTime as stopped:
        hunt.why = str(stopped) or "the time was up"
    found = hunt.told(here)
    if found.plan is None or found.why:
        return found
    return _sampled(found, hunt, random.Random(seed), inside)


@dataclass
class _Hunt:
    """One search for the most robust plan."""

    problem: Problem
    rules: tuple[Rule, ...]
    axes: tuple[Axis, ...]
    every: list[dict[str, float]]
    clock: Clock
    say: Say
    scenes: list[Scenario] = field(default_factory=list)
    tried: dict[Plan, float] = field(default_factory=dict)
    best: Plan | None = None
    worst: float = math.inf
    """Largest regret of the best plan held."""
    bound: float = 0.0
    candidates: int = 0
    proved: bool = False
    why: str = ""

    def solve_corners(self, here: Scenario) -> None:
        """Solve every scenario, and price what is best in any of them in all of them."""
        share = self._guess(here.pool)
        for i, constants in enumerate(self.every):
            self.say(f"corner {i} of {len(self.every) - 1}")
            if i == 0 and here.share >= share:
                self.scenes.append(here)
                continue
            found = scenario(self.problem, constants, self.rules, self.clock, share)
            if found.plan is None:
                raise _no_plan(constants)
            self.scenes.append(found)
        for scene in (*self.scenes, here):
            for plan in scene.pool:
                self.price(plan)

    def _guess(self, pool: Sequence[Plan]) -> float:
        """Guess how far from the best plans of the corners the answer will lie."""
        regrets = dict.fromkeys(pool, 0.0)
        for constants in self.every:
            there = with_constants(self.problem, constants)
            prices = {plan: estimate(there, plan).step_seconds / plan.global_batch for plan in pool}
            least = min(prices.values())
            for plan, price in prices.items():
                regrets[plan] = max(regrets[plan], price / least - 1)
        return 1.2 * min(regrets.values()) + 0.01

    def price(self, plan: Plan) -> float:
        """Return a plan's largest regret, infinite where it is impossible; stop at the best."""
        if plan in self.tried:
            return self.tried[plan]
        most = 0.0
        for scene in self._harshest_first(plan):
            most = max(most, scene.regret(plan))
            if most >= self.worst:
                break
        if most < self.worst and not all(scene.holds(plan) for scene in self.scenes):
            most = math.inf
        self.tried[plan] = most
        if most < self.worst:
            self.best, self.worst = plan, most
        return most

    def _harshest_first(self, plan: Plan) -> list[Scenario]:
        """Order scenarios by the regret of the best plan held, which tells most soonest."""
        if self.best is None or plan == self.best:
            return self.scenes
        if self._ordered_for != self.best:
            best = self.best
            self._order = sorted(self.scenes, key=lambda scene: -scene.regret(best))
            self._ordered_for = best
        return self._order

    _order: list[Scenario] = field(default_factory=list)
    _ordered_for: Plan | None = None

    def compare(self) -> None:
        """Look at every point that lies within the best regret at every corner."""
        if self.best is None:
            self.why = "no plan that is best at some corner keeps every rule at all of them"
            return
        self._widen()
        lows = self._alive()
        self.candidates = len(lows)
        bound = self.worst
        for done, (key, low) in enumerate(sorted(lows.items(), key=lambda one: one[1])):
            if done % 64 == 0:
                self.say(f"{done:,} of {len(lows):,} candidates, worst regret {self.worst:.2%}")
                self.clock.check()
            if low >= self.worst:
                break
            bound = min(bound, self._settle(key))
        self.bound, self.proved = max(0.0, min(bound, self.worst)), True

    def _widen(self) -> None:
        """Keep points as far as the regret of the best plan held reaches, at every corner."""
        for i, scene in enumerate(self.scenes):
            if scene.share < self.worst:
                self.say(f"widening corner {i}")
                self.scenes[i] = scenario(
                    self.problem, scene.constants, self.rules, self.clock, self.worst
                )
        self._ordered_for = None

    def _alive(self) -> dict[Key, float]:
        """Choices that no corner rules out, each with the least regret that it can have."""
        by_size = sorted(self.scenes, key=lambda scene: len(scene.left))
        alive = {key: 0.0 for key in by_size[0].rows}
        for scene in by_size:
            rows = scene.rows
            lows = ((key, low, rows.get(key)) for key, low in alive.items())
            kept = {key: max(low, scene.lowest(i)) for key, low, i in lows if i is not None}
            alive = {key: low for key, low in kept.items() if low < self.worst}
        return alive

    def _settle(self, key: Key) -> float:
        """
        Hand out the layers of one choice as each corner would have it, and price all of these.

        Returns
        -------
        float
            No way to hand them out has a smaller largest regret; infinite where none is better
            than the plan held.
        """
        least = 0.0
        plans: dict[Plan, None] = {}
        for scene in self._harshest_first(self.best):  # type: ignore[arg-type]
            found = scene.settled(scene.rows[key], self.worst)
            if found is None:
                return math.inf
            least = max(least, found[0])
            if least >= self.worst:
                return math.inf
            plans[found[1]] = None
        for plan in plans:
            self.price(plan)
        return least

    # -- what is told ----------------------------------------------------------------------------

    def told(self, here: Scenario) -> Robust:
        """Write down what was found."""
        done = len(self.scenes) == len(self.every)
        base = Robust(
            box=self.axes, scenarios=len(self.every), solved=len(self.scenes), why=self.why
        )
        if not done or self.best is None or here.plan is None:
            return base
        nominal = self._worst_of(here.plan)
        price = estimate(self.problem, self.best)
        return base.model_copy(
            update={
                "plan": self.best,
                "estimate": price,
                "behind": goal_of(here.form, self.best, price) / here.goal - 1,
                "worst_regret": self.worst,
                "bound": self.bound if self.proved else 0.0,
                "proved": self.proved,
                "worst": self._worst_of(self.best),
                "nominal_regret": None if nominal is None else nominal.regret,
                "nominal_worst": nominal,
                "candidates": self.candidates,
                "priced": len(self.tried),
            }
        )

    def _worst_of(self, plan: Plan) -> Corner | None:
        """Find the corner at which a plan's regret is largest; none where it is impossible."""
        if not all(scene.holds(plan) for scene in self.scenes):
            return None
        scene = max(self.scenes, key=lambda one: one.regret(plan))
        assert scene.plan is not None
        assert scene.price is not None
        return Corner(
            constants=dict(scene.constants),
            step_seconds=estimate(scene.problem, plan).step_seconds,
            best_seconds=scene.price.step_seconds,
            best=scene.plan,
            regret=scene.regret(plan),
        )


class _Impossible(OutOfTime):
    """A corner at which no plan exists."""


def _no_plan(constants: dict[str, float]) -> _Impossible:
    """Say at which corner no plan exists."""
    where = ", ".join(f"{name} {value:g}" for name, value in constants.items())
    return _Impossible(f"no plan exists at {where}")


def _inside(axes: Sequence[Axis], rng: random.Random, count: int) -> Iterator[dict[str, float]]:
    """Draw points inside of the box."""
    for _ in range(count):
        yield {axis.constant: rng.uniform(axis.low, axis.high) for axis in axes}


def _sampled(found: Robust, hunt: _Hunt, rng: random.Random, count: int) -> Robust:
    """Solve some points inside of the box, to see whether corners say enough."""
    assert found.plan is not None
    done, largest = 0, 0.0
    for constants in _inside(found.box, rng, count):
        hunt.say(f"point {done + 1} of {count} inside of the box")
        there = with_constants(hunt.problem, constants)
        try:
            best = best_at(there, hunt.rules, hunt.clock)
        except OutOfTime:
            break
        if best is None:
            continue
        own = estimate(there, found.plan)
        price = own.step_seconds / found.plan.global_batch
        if hunt.problem.main_goal != "fastest":
            price = goal_of(hunt.scenes[0].form, found.plan, own)
        largest = max(largest, price / best.goal - 1)
        done += 1
    return found.model_copy(
        update={"inside": done, "inside_regret": max(0.0, largest - CLOSE) if done else None}
    )
