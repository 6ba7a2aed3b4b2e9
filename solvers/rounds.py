"""The best plan of a program, then the next ones, by minimising linear combinations in rounds."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from fractions import Fraction

from optplan.models.program import LARGEST, Program, Terms
from optplan.solvers.base import (
    Outcome,
    SolverConfig,
    Termination,
    chosen,
    holding,
    ratio,
)

Held = dict[str, int]


class Rounds:
    """
    One run of an engine over a program: several solves of one live model under a shared clock.

    A goal per unit of another column is minimised by Dinkelbach's method: with the best plan so
    far at ``T0 / G0``, minimise ``G0 T - T0 G`` in whole numbers; a minimum of zero is the proof,
    anything below is a better plan.

    An engine says how a linear combination is minimised, and how its model is narrowed.
    """

    engine: str

    def __init__(self, program: Program, config: SolverConfig) -> None:
        self.program, self.config = program.without_factor(), config
        self.start = time.monotonic()
        self.nodes = 0
        self.stopped: Termination | None = None

    # -- what an engine says ---------------------------------------------------------------------

    def minimise(self, terms: Terms, hint: Held | None) -> tuple[Held | None, int | None]:
        """
        Minimise a linear combination of columns.

        Parameters
        ----------
        hint
            A plan that is known to be possible.

        Returns
        -------
        tuple
            The values found, and a lower bound; both exact, and equal unless ``stopped`` is set.
        """
        raise NotImplementedError

    def demand(self, terms: Terms, low: int | None, high: int | None) -> None:
        """Narrow the model: a linear combination of columns lies within bounds."""
        raise NotImplementedError

    def forbid(self, held: Held) -> None:
        """Narrow the model: rule out one assignment of the choices."""
        raise NotImplementedError

    def exists(self) -> bool:
        """Tell whether the model, as narrowed, has any plan; True where it cannot be told."""
        raise NotImplementedError

    def aside(self) -> AbstractContextManager[None]:
        """Narrow a copy of the model for a while."""
        raise NotImplementedError

    # -- what all engines do ---------------------------------------------------------------------

    def run(self, incumbent: Mapping[str, int] | None) -> Outcome:
        """Prove the best plan, then the next ones."""
        best: list[Held] = []
        goal = bound = None
        for place in range(max(1, self.config.top)):
            held, low = self._best(dict(incumbent) if incumbent and place == 0 else None)
            if place == 0:
                bound = low
                goal = ratio(self.program, held) if held else None
            if held is None:
                break
            if self.stopped is None:
                held = self._settle_ties(held)
            best.append(held)
            if self.stopped is not None:
                break
            self.forbid(held)
        if self.stopped is not None:
            known = [b for b in (bound, self.program.goal.least) if b is not None]
            bound = max(known, default=None)
        proved = self.stopped is None or (goal is not None and goal == bound)
        return Outcome(
            termination=Termination.PROVED if proved else self.stopped or Termination.FAILED,
            holding=holding(bool(best), proved),
            best=tuple(chosen(self.program, plan) for plan in best),
            goal=goal,
            bound=bound,
            engine=self.engine,
            seconds=self.spent,
            nodes=self.nodes,
        )

    @property
    def spent(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.start

    @property
    def rest(self) -> float | None:
        """Seconds left; None where there is no limit."""
        if self.config.seconds is None:
            return None
        return max(self.config.seconds - self.spent, 0.001)

    def at(self, terms: Terms, values: Mapping[str, int]) -> int:
        """Value of a linear combination."""
        return sum(k * values[c] for k, c in terms)

    def least(self, terms: Terms) -> int:
        """Smallest value that the bounds of the columns allow."""
        bounds = self.program.bounds
        return sum(min(k * bounds[c][0], k * bounds[c][1]) for k, c in terms)

    def printed(self, terms: Terms) -> float | None:
        """Factor from an objective to the goal's printed unit; None for any other objective."""
        of, per = self.program.goal.of, self.program.goal.per
        plain = terms == ((1, of),) and (per is None or len(set(self.program.bounds[per])) == 1)
        return (
            self.program.goal.scale / (self.program.bounds[per][0] if per else 1) if plain else None
        )

    def _best(self, incumbent: Held | None) -> tuple[Held | None, Fraction | None]:
        """Minimise the goal; the best plan and a bound that nothing beats."""
        of, per = self.program.goal.of, self.program.goal.per
        held = self.program.evaluate(incumbent) if incumbent else None
        if per is None or len(set(self.program.bounds[per])) == 1:
            unit = self.program.bounds[per][0] if per else 1
            found, low = self.minimise(((1, of),), held)
            return found, None if low is None else Fraction(low, unit)
        if held is None:
            held, low = self.minimise(((1, of),), None)
            if held is None or self.stopped:
                return held, None if low is None else Fraction(low, self.program.bounds[per][1])
        return self._dinkelbach(held)

    def _dinkelbach(self, held: Held) -> tuple[Held, Fraction]:
        """Minimise a ratio, starting from a plan; the best plan and a bound that nothing beats."""
        of, per = self.program.goal.of, str(self.program.goal.per)
        low, high = self.program.bounds[per]
        while True:
            here = ratio(self.program, held)
            slope = self._slope(held)
            terms: Terms = ((slope.denominator, of), (-slope.numerator, per))
            found, least = self.minimise(terms, held)
            better = found is not None and ratio(self.program, found) < here
            held = found if better and found is not None else held
            # of / per >= slope + least / (denominator * per), whatever per is
            rest = Fraction(least or 0, slope.denominator * (high if (least or 0) > 0 else low))
            if self.stopped or not better:
                return held, min(ratio(self.program, held), slope + rest)

    def _slope(self, held: Held) -> Fraction:
        """Return a plan's ratio, or the whole number below where products would leave 64 bits."""
        of, per = self.program.goal.of, str(self.program.goal.per)
        exact = Fraction(held[of], held[per])
        size = exact.denominator * self.program.bounds[of][1]
        size += exact.numerator * self.program.bounds[per][1]
        return exact if size <= 2 * LARGEST else Fraction(exact.numerator // exact.denominator)

    def _settle_ties(self, held: Held) -> Held:
        """Among plans of the same goal return the first by the program's ties."""
        of, per = self.program.goal.of, self.program.goal.per
        top, bottom = held[of], held[per] if per else 1
        with self.aside():
            if per is None or self._slope(held) != Fraction(top, bottom):
                self.demand(((1, of),), top, top)
                self.demand(((1, per or of),), held[per or of], held[per or of])
            else:
                slope = self._slope(held)
                self.demand(((slope.denominator, of), (-slope.numerator, per)), None, 0)
            if self._alone(held):
                return held
            for tie in self.program.ties:
                found, _ = self.minimise(((1, tie),), held)
                if found is None or self.stopped:
                    return held
                held = found
                self.demand(((1, tie),), held[tie], held[tie])
            return held

    def _alone(self, held: Held) -> bool:
        """Tell whether no other plan of the present model exists."""
        with self.aside():
            self.forbid(held)
            return not self.exists()
