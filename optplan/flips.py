"""Flip points: where the recommendation changes when one quantity moves and nothing else does."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from optplan.exactly import Best, Clock, Key, OutOfTime, allowed, best_at
from optplan.models.domains import CHOICES
from optplan.models.rules.registry import Rule
from optplan.models.spec.problem import Problem
from optplan.parameters import Ladder, Parameter, parameters, touches
from optplan.planner import Condition, Spec, problem_of
from optplan.scenarios import TooHard, scenario
from optplan.sureness import Along, Flip, Flips
from optplan.within import differing

SECONDS = 120.0
"""Time for all parameters unless another is given."""

TIE = 2e-8
"""Share by which a plan may be dearer than the best and still be the recommendation: what whole
ticks may hide of the prices of both."""

DIGITS = 3
"""Digits that a flip point prints with, or decimals of a share; more where it lies close by."""

MOST_DIGITS = 7
"""Beyond that a change lies at the present value."""

POOL, POOL_SHARE = 12, 0.1
"""Plans near the best one, by which parameters that move nothing are told apart."""

MOST_ROUNDS = 12
"""Plans that are found better at a crossing, one after the other, before a side is given up."""

Say = Callable[[str], None]


def flips(
    spec: Spec,
    *,
    only: Sequence[str] | None = None,
    sets: Sequence[str] = (),
    limits: Sequence[Condition] = (),
    rules: Iterable[Rule] = (),
    time_limit: float | None = None,
    say: Say | None = None,
) -> Flips:
    """
    Find the nearest change of the recommendation on either side of every parameter's value.

    Both ends of a parameter's range are solved. Where another plan is better at an end, the two are
    priced between, and the problem is solved where they cross: if a third plan is better there, it
    takes the place of the other. What is printed was solved half a unit of its last digit below
    and above. Changes that concern layers per stage alone do not count.

    Parameters
    ----------
    spec, sets, limits, rules
        As for ``solve``.
    only
        Names of the parameters to look along, as ``parameters`` lists them; left out, all.
    time_limit
        Seconds for all parameters; those that were not reached are named.
    say
        Called with each parameter.

    Raises
    ------
    InputError
        The spec is wrong.
    """
    problem, own = problem_of(spec, sets, limits), tuple(rules)
    clock = Clock(time_limit or SECONDS)
    every = [one for one in parameters(problem) if only is None or one.name in only]
    try:
        best = best_at(problem, own, clock)
        pool = scenario(problem, {}, own, clock, POOL_SHARE, POOL).pool
    except OutOfTime:
        return Flips(along=(), left=tuple(one.name for one in every))
    except TooHard:
        pool = () if best is None else (best.plan,)
    if best is None:
        return Flips(along=())
    untouched = [one.name for one in every if not touches(problem, one, pool)]
    along, left = [], []
    for one in every:
        if one.name in untouched:
            continue
        try:
            clock.check()
        except OutOfTime:
            left.append(one.name)
            continue
        if say:
            say(f"flip points: {one.name}")
        along.append(Line(problem, own, one, best, clock).told())
    return Flips(along=tuple(along), untouched=tuple(untouched), left=tuple(left))


@dataclass
class Line:
    """
    One parameter, and the problems that were solved along it.

    Parameters
    ----------
    best
        The recommendation at its present value.
    solved, owned
        Best plans by value, and prices of one choice of everything but layers.
    """

    problem: Problem
    rules: tuple[Rule, ...]
    parameter: Parameter
    best: Best
    clock: Clock
    solved: dict[float, Best | None] = field(default_factory=dict)
    owned: dict[tuple[Key, float], float] = field(default_factory=dict)

    def told(self) -> Along:
        """Look on both sides."""
        one, why = self.parameter, []
        found: dict[bool, Flip | None] = {False: None, True: None}
        for rising in found:
            beyond = one.high > one.now if rising else one.low < one.now
            try:
                found[rising] = self._side(rising) if beyond else None
            except OutOfTime:
                why.append(f"{'above' if rising else 'below'}: the time was up")
            except _Unsettled as error:
                why.append(f"{'above' if rising else 'below'}: {error}")
        return Along(
            parameter=one.name,
            now=one.about(one.now),
            low=one.about(min(one.low, one.now)),
            high=one.about(max(one.high, one.now)),
            falls=found[False],
            rises=found[True],
            solved=len(self.solved),
            complete=not why,
            why="; ".join(why),
        )

    def _side(self, rising: bool) -> Flip | None:
        """Find the nearest change on one side; None where there is none."""
        for digits in range(DIGITS + (not self.parameter.priced), MOST_DIGITS + 1):
            ladder = Ladder(self.parameter, rising, digits)
            rung = self._nearest(ladder)
            if rung is None:
                return None
            if rung > 1:
                return self._flip(ladder, rung)
        raise _Unsettled("another plan is as good at the present value")

    def _nearest(self, ladder: Ladder) -> int | None:
        """Find a rung at which the recommendation is another one, with it still good before."""
        last = ladder.rungs - 1
        high = next((r for r in (last, last // 2) if r and not self.holds(ladder.value(r))), None)
        if high is None:
            return None
        low = 0
        for _ in range(MOST_ROUNDS):
            rung = self._crossing(ladder, low, high)
            if rung - 1 <= low or self.holds(ladder.value(rung - 1)):
                # Whoever is best at the rung itself, it is not the plan that was best before it.
                return rung if not self.holds(ladder.value(rung)) else self._unequal()
            high = rung - 1
        raise _Unsettled("too many plans are best one after the other")

    def _unequal(self) -> int:
        raise _Unsettled("two plans cost the same over a stretch")

    def _crossing(self, ladder: Ladder, low: int, high: int) -> int:
        """First rung, as far as halving tells, at which the best plan of a rung is the better."""
        other = self.at(ladder.value(high))
        key = None if other is None else other.key
        while high - low > 1:
            middle = (low + high) // 2
            value = ladder.value(middle)
            own = self.own(self.best.key, value)
            theirs = math.inf if key is None else self.own(key, value)
            if own > theirs * (1 + TIE) or (math.isinf(own) and math.isinf(theirs)):
                high = middle
            else:
                low = middle
        return high

    def _flip(self, ladder: Ladder, rung: int) -> Flip:
        """Write a change down."""
        beyond = self.at(ladder.value(rung))
        before = dict(zip(CHOICES, self.best.key, strict=True))
        changes = {}
        if beyond is not None:
            changes = differing(before, dict(zip(CHOICES, beyond.key, strict=True)))
        printed = ladder.printed(rung)
        ends = sorted((ladder.value(rung - 1), ladder.value(rung)))
        return Flip(
            at=self.parameter.text(printed),
            value=float(printed * self.parameter.size),
            below=ends[0],
            above=ends[1],
            changes=changes,
            plan=None if beyond is None else beyond.plan,
        )

    def at(self, value: float) -> Best | None:
        """Solve the problem at a value."""
        if value not in self.solved:
            changed = self.parameter.put(self.problem, value)
            self.solved[value] = best_at(changed, self.rules, self.clock)
        return self.solved[value]

    def own(self, key: Key, value: float) -> float:
        """Price of one choice of everything but layers at a value; infinite where impossible."""
        if (key, value) not in self.owned:
            changed = self.parameter.put(self.problem, value)
            found = allowed(changed, key, self.rules, self.clock)
            self.owned[key, value] = math.inf if found is None else found.goal
        return self.owned[key, value]

    def holds(self, value: float) -> bool:
        """Tell whether the present recommendation is still the best at a value."""
        found = self.at(value)
        if found is None:
            return False
        if found.key == self.best.key:
            return True
        return self.own(self.best.key, value) <= found.goal * (1 + TIE)


class _Unsettled(Exception):
    """A side on which no flip point can be printed."""
