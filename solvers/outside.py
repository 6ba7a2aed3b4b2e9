"""Engines from outside: called, and never taken at their word."""

from __future__ import annotations

import time
import traceback
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from importlib import metadata

from optplan.models.errors import Fault, InputError, OptplanError
from optplan.models.program import Program
from optplan.solvers.base import Outcome, Solver, SolverConfig, ratio

GROUP = "optplan.engines"
"""Entry points under which installed packages offer engines."""

MARK = ", outside"
"""What stands behind the name of such an engine in an answer."""


class Outside:
    """
    An engine from outside, whose every answer is asked of the program itself.

    Parameters
    ----------
    name
        As an entry point or a function calls it.
    solve
        Takes a program and how to run, returns an ``Outcome``.
    """

    def __init__(self, name: str, solve: Solver, version: str = "") -> None:
        self.name, self._solve, self._version = name, solve, version

    def __call__(self, program: Program, config: SolverConfig) -> Outcome:
        """
        Solve a program.

        Raises
        ------
        InputError
            The engine failed, or what it says contradicts the program.
        """
        start = time.monotonic()
        try:
            outcome = self._solve(program, config)
        except (OptplanError, MemoryError):
            raise
        except Exception as error:
            frame = traceback.extract_tb(error.__traceback__)[-1]
            place, said = f"{frame.filename}:{frame.lineno}", f"{type(error).__name__}: {error}"
            remedy = "let the engine return an Outcome, termination failed where it cannot go on"
            raise InputError([Fault(place, f"engine {self.name}", said, remedy)]) from None
        if not isinstance(outcome, Outcome):
            problem = f"it returns {type(outcome).__name__}"
            raise self._wrong(problem, "return an optplan.solvers.base.Outcome")
        outcome = replace(outcome, best=tuple(map(self._asked(program), outcome.best)))
        outcome = self._weighed(program, outcome)
        if outcome.census is None:
            # Whoever does not say where all points went says of none.
            outcome = replace(outcome, removed_by_bound=0, prunings={})
        name = f"{self.name}{MARK} ({self._version or 'no version'})"
        return replace(outcome, engine=name, seconds=time.monotonic() - start)

    def _asked(self, program: Program) -> _Asked:
        return _Asked(program, self)

    def _weighed(self, program: Program, outcome: Outcome) -> Outcome:
        """Check that goal, bound and plan fit each other."""
        if (outcome.holding.value == "nothing") != (not outcome.best):
            problem = f"it holds {outcome.holding.value} and returns {len(outcome.best)} plans"
            raise self._wrong(problem, "let holding say what best has")
        if not outcome.best:
            return replace(outcome, goal=None)
        goal = ratio(program, program.evaluate(outcome.best[0]))
        bound = outcome.bound
        if bound is not None and Fraction(bound) > goal:
            problem = f"its bound {float(bound):g} is above its own plan's goal {float(goal):g}"
            raise self._wrong(problem, "return a bound that no plan undercuts")
        return replace(outcome, goal=goal)

    def _wrong(self, problem: str, remedy: str) -> InputError:
        return InputError([Fault("", f"engine {self.name}", problem, remedy)])


class _Asked:
    """Asks a plan of an engine's of the program."""

    def __init__(self, program: Program, engine: Outside) -> None:
        self.program, self.engine = program, engine

    def __call__(self, values: Mapping[str, int]) -> dict[str, int]:
        missing = [choice.name for choice in self.program.choices if choice.name not in values]
        if self.program.pipeline is not None and "layers[0]" not in values:
            missing.append("layers[0]")
        if missing:
            problem = f"its plan gives no {', '.join(missing)}"
            remedy = "return every choice, and layers[i] and again[i] of every stage"
            raise self.engine._wrong(problem, remedy)
        broken = list(self.program.broken(values))
        if broken:
            problem = f"its plan breaks {', '.join(broken)}"
            raise self.engine._wrong(problem, "return plans that pass program.broken")
        return self.program.carried(values)


def outside(name: str) -> Outside | None:
    """
    Return the engine that an installed package offers under a name; None where there is none.

    Raises
    ------
    InputError
        It cannot be imported.
    """
    found = metadata.entry_points(group=GROUP, name=name)
    for entry in found:
        try:
            solve = entry.load()
        except Exception as error:
            problem = f"{entry.value} cannot be imported: {type(error).__name__}: {error}"
            remedy = "mend the package that offers it, or take another engine"
            raise InputError([Fault("", f"engine {name}", problem, remedy)]) from None
        if not callable(solve):
            problem = f"{entry.value} is no function"
            remedy = "let the entry point name a function of a program and a SolverConfig"
            raise InputError([Fault("", f"engine {name}", problem, remedy)])
        version = f"{entry.dist.name} {entry.dist.version}" if entry.dist else ""
        return Outside(name, solve, version)
    return None


def offered() -> tuple[str, ...]:
    """Names of the engines that installed packages offer."""
    return tuple(sorted({entry.name for entry in metadata.entry_points(group=GROUP)}))
