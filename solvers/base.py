"""What every engine takes and what every engine returns."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from fractions import Fraction
from typing import Protocol

from optplan.models.program import Program


class Termination(StrEnum):
    """Why an engine stopped."""

    PROVED = "proved"
    """The best plan is proven best, or it is proven that there is none."""
    EXHAUSTED = "exhausted"
    """Nothing was left to look at: every point was priced or ruled out."""
    TIME_LIMIT = "time-limit"
    """The time was up."""
    INTERRUPTED = "interrupted"
    """A person stopped it."""
    UNSUPPORTED = "unsupported"
    """The engine cannot express the program."""
    FAILED = "failed"
    """The engine broke down."""


DONE = (Termination.PROVED, Termination.EXHAUSTED)
"""Why an engine stops that has nothing left to look at."""

PROVEN = 1e-6
"""Largest gap at which a plan may be called optimal."""


class Holding(StrEnum):
    """What an engine holds when it stops."""

    NOTHING = "nothing"
    FEASIBLE = "feasible"
    OPTIMAL = "optimal"


@dataclass(frozen=True)
class Progress:
    """
    Where a search stands.

    Parameters
    ----------
    seconds
        Since the engine started.
    incumbent
        Price of the best plan so far, in the goal's unit; None before the first.
    bound
        No plan is cheaper than this, in the goal's unit; None before the first.
    done
        Share of the points that are settled, where the engine knows; None elsewhere.
    """

    seconds: float
    incumbent: float | None
    bound: float | None
    done: float | None = None


@dataclass(frozen=True)
class SolverConfig:
    """
    How an engine is to run.

    Parameters
    ----------
    seconds
        Wall-clock limit; None for none.
    workers
        Threads of an engine that can use several.
    seed
        Random seed of an engine that has one.
    top
        Plans to return at most, best first.
    distinct
        Choices in one of which at least any two of them differ; none for any two plans.
    progress
        Called now and then from the engine.
    """

    seconds: float | None = None
    workers: int = 1
    seed: int = 0
    top: int = 1
    distinct: tuple[str, ...] = ()
    progress: Callable[[Progress], None] | None = None


@dataclass(frozen=True)
class Census:
    """
    Where every point of a space went.

    Parameters
    ----------
    points
        Points of the space.
    removed_by_rule
        Points by the first rule, in the program's order, that refused them.
    """

    points: int
    removed_by_rule: dict[str, int]

    @property
    def left(self) -> int:
        """Points that every rule lets through."""
        return self.points - sum(self.removed_by_rule.values())


@dataclass(frozen=True)
class Outcome:
    """
    What an engine found, and how far it got.

    Parameters
    ----------
    termination, holding
        Why it stopped and what it holds.
    best
        Values of all choices, best plan first.
    goal
        Goal of the best plan as an exact ratio in program units; None without one.
    bound
        No plan has a smaller goal than this, exact, program units; None where nothing is known.
    census
        Where the points went, from engines that count them.
    prunings
        Points skipped by each declared fact, from engines that prune.
    priced
        Points whose goal was computed.
    removed_by_bound
        Points that passed the rules and fell to a lower bound above the incumbent.
    engine
        Name and version.
    seconds
        Wall-clock time.
    nodes
        Branches of a tree search.
    detail
        Anything worth a line in the log.
    """

    termination: Termination
    holding: Holding
    best: tuple[dict[str, int], ...] = ()
    goal: Fraction | None = None
    bound: Fraction | None = None
    census: Census | None = None
    prunings: dict[str, int] = field(default_factory=dict)
    priced: int = 0
    removed_by_bound: int = 0
    engine: str = ""
    seconds: float = 0.0
    nodes: int = 0
    detail: str = ""

    @property
    def gap(self) -> float:
        """Share of the goal that could at most be saved: 0 when proven, 1 when nothing is known."""
        if self.goal is None or self.bound is None:
            return 1.0
        return float((self.goal - self.bound) / self.goal) if self.goal > 0 else 0.0


class Solver(Protocol):
    """An engine: a program in, an outcome out."""

    def __call__(self, program: Program, config: SolverConfig) -> Outcome:
        """Solve a program."""
        ...


def ratio(program: Program, values: dict[str, int]) -> Fraction:
    """Goal of fully evaluated values as an exact fraction in program units."""
    return values[program.goal.of] / program.goal.divisor(values)


def time_left(config: SolverConfig, start: float) -> SolverConfig:
    """Take the time already spent off a limit; an engine always gets a moment to find something."""
    if config.seconds is None:
        return config
    return replace(config, seconds=max(0.01, config.seconds - (time.monotonic() - start)))


def rank(program: Program, values: dict[str, int]) -> tuple[Fraction, ...]:
    """Order of a plan among plans: its goal, then the program's ties."""
    return (ratio(program, values), *(Fraction(values[column]) for column in program.ties))


def chosen(program: Program, values: Mapping[str, int]) -> dict[str, int]:
    """Keep the choices among fully evaluated values."""
    return {choice.name: values[choice.name] for choice in program.choices}


def holding(found: bool, done: bool) -> Holding:
    """Say what an engine holds: a plan or none, and whether nothing was left to look at."""
    if not found:
        return Holding.NOTHING
    return Holding.OPTIMAL if done else Holding.FEASIBLE
