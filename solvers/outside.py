"""Engines from outside: called, and never taken at their word."""

from __future__ import annotations

import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib import metadata

from optplan.models.errors import Fault, InputError, OptplanError
from optplan.models.program import Program, Table
from optplan.solvers.base import DONE, Outcome, Solver, SolverConfig, ratio, time_left
from optplan.solvers.told import Untrue, bound_of, census_of, plan_of, tallies, words

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
            with _kept(program):
                outcome = self._solve(program, config)
        except (OptplanError, MemoryError):
            raise
        except (Exception, SystemExit, GeneratorExit) as error:
            frame = traceback.extract_tb(error.__traceback__)[-1]
            place, said = f"{frame.filename}:{frame.lineno}", f"{type(error).__name__}: {error}"
            remedy = "let the engine return an Outcome, termination failed where it cannot go on"
            raise InputError([Fault(place, f"engine {self.name}", said, remedy)]) from None
        if not isinstance(outcome, Outcome):
            problem = f"it returns {type(outcome).__name__}"
            raise self.wrong(problem, "return an optplan.solvers.base.Outcome")
        try:
            found = _asked(program, outcome)
        except Untrue as untrue:
            raise self.wrong(untrue.problem, untrue.remedy) from None
        if not found.best and found.termination in DONE:
            self._refute(program, time_left(config, start))
        name = f"{self.name}{MARK} ({self._version or 'no version'})"
        return replace(found, engine=name, seconds=time.monotonic() - start)

    def _refute(self, program: Program, config: SolverConfig) -> None:
        """Refuse that there should be no plan where there is one."""
        from optplan.solvers.proved import proved

        if proved(program, replace(config, progress=None)).best:
            raise self.wrong("it says that there is no plan, and there is one", BEATEN)

    def wrong(self, problem: str, remedy: str) -> InputError:
        """Word what is wrong with what the engine says."""
        return InputError([Fault("", f"engine {self.name}", problem, remedy)])


BEATEN = "let termination be proved or exhausted only where it is"
"""What an engine should do that claims more than it knows."""


def refuse_outside(engine: str, problem: str) -> None:
    """Refuse an answer that a later step refutes, where an engine from outside gave it."""
    name = outside_name(engine)
    if name:
        raise InputError([Fault("", f"engine {name}", problem, BEATEN)])


def outside_name(told: str) -> str:
    """Name the engine from outside that an answer was given by; empty where it is one of ours."""
    name = told.partition(" (")[0]
    return name.removesuffix(MARK) if name.endswith(MARK) else ""


def _asked(program: Program, outcome: Outcome) -> Outcome:
    """Ask of the program all that an engine says; its own types become ours."""
    termination, held = words(outcome)
    best = tuple(plan_of(program, plan) for plan in outcome.best)
    goal = ratio(program, program.evaluate(best[0])) if best else None
    counted, census = tallies(outcome), census_of(program, outcome)
    if census is None:
        # Whoever does not say where all points went says of none.
        counted |= {"removed_by_bound": 0, "prunings": {}}
    return Outcome(
        termination=termination,
        holding=held,
        best=best,
        goal=goal,
        bound=bound_of(outcome.bound, goal, held),
        census=census,
        **counted,
    )


@contextmanager
def _kept(program: Program) -> Iterator[None]:
    """Keep a program's tables as they are while somebody else reads them."""
    tables = [s.rows for s in program.statements if isinstance(s, Table)]
    open_ = [rows for rows in tables if rows.flags.writeable]
    for rows in open_:
        rows.setflags(write=False)
    try:
        yield
    finally:
        for rows in open_:
            rows.setflags(write=True)


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
