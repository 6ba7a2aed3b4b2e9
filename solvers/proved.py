"""Bound, reduce, prove: the road of every engine that proves what a search has left."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Protocol

from optplan.models.errors import OwnFault
from optplan.models.program import Program
from optplan.solvers.base import (
    Holding,
    Outcome,
    SolverConfig,
    Termination,
    holding,
    time_left,
)
from optplan.solvers.late import Late
from optplan.solvers.left import Left
from optplan.solvers.prover import Constrain
from optplan.solvers.search import Search
from optplan.solvers.settle import Point

log = logging.getLogger(__name__)

HARD_SECONDS = 30.0
"""Time for a proof under limits that ask for slowness, or join time and memory, unless given."""

FACTORS = (1.2, 1.5, 2.0, 5.0, float("inf"))
"""How much worse than the best a plan may be that a user's own constraint leaves: tried in turn."""

Check = Callable[[Mapping[str, int]], object]


class ProveLeft(Protocol):
    """What proves that no point left beats an incumbent."""

    def __call__(
        self,
        program: Program,
        left: Left,
        incumbent: Point | None,
        config: SolverConfig,
        constrain: Constrain | None = None,
    ) -> Outcome:
        """Prove it, or find the one that does."""
        ...


def proved(
    program: Program,
    config: SolverConfig | None = None,
    prove_left: ProveLeft | None = None,
    check: Check = lambda best: None,
) -> Outcome:
    """
    Find the best points of a program, and prove that none left is better.

    Parameters
    ----------
    program
        A program that hands out layers.
    config
        Limits, workers and seed.
    prove_left
        Of the engine that proves; CP-SAT's unless given.
    check
        Asked of the best point before anything is proved with it.
    """
    config, start = config or SolverConfig(), time.monotonic()
    found = Search(program, config).run()
    known = found.outcome
    if known.termination is not Termination.EXHAUSTED:
        return known
    if known.holding is Holding.NOTHING and not (found.hard and len(found.left)):
        return known
    if known.best:
        check(known.best[0])
    best = program.evaluate(known.best[0]) if known.best else None
    if found.hard and config.seconds is None:
        # Each point may take a proof of its own; a person is told so rather than kept waiting.
        config = replace(config, seconds=time.monotonic() - start + HARD_SECONDS)
    log.info("%s points left to prove", f"{len(found.left):,}")
    proof = _or_cpsat(prove_left)(program, found.left, best, time_left(config, start))
    log.info(
        "%s: %s by %s, %s nodes, %.2f s",
        proof.termination.value,
        proof.holding.value,
        proof.engine,
        f"{proof.nodes:,}",
        proof.seconds,
    )
    better = proof.goal is not None and known.goal is not None and proof.goal < known.goal
    if better and not found.hard:
        raise OwnFault(f"{proof.engine} finds a plan that the per-stage method has missed")
    return replace(
        proof,
        best=proof.best[:1] + known.best[1:],
        census=known.census,
        removed_by_bound=known.removed_by_bound,
        priced=known.priced,
        seconds=known.seconds + proof.seconds,
    )


def constrained(
    program: Program,
    config: SolverConfig,
    constrain: Constrain,
    prove_left: ProveLeft | None = None,
) -> Outcome:
    """
    Find the best point under constraints that only an engine knows, and prove it.

    No plan that was found without them may cut anything off. So points are looked at whose bound
    lies within a factor of the best plan without them; if what is found lies within it too, no
    other point can be better, else the factor grows.

    Parameters
    ----------
    constrain
        Adds the constraints to an engine's live model; called once for every model that is made.
    """
    start = time.monotonic()
    hard = Late(program).hard
    held: Outcome | None = None
    done = -1.0
    for factor in FACTORS:
        search = Search(program, time_left(config, start))
        search.spare = factor
        found = search.run()
        free = found.outcome
        if free.termination is not Termination.EXHAUSTED:
            # Whatever it holds was found without the constraints.
            return replace(free, best=(), goal=None, holding=Holding.NOTHING)
        if not free.best and not hard:
            return free
        best_free = float(free.goal) if free.goal is not None else 0.0
        left = found.left.take(found.left.bound > best_free * done)
        best = program.evaluate(held.best[0]) if held and held.best else None
        held = _or_cpsat(prove_left)(program, left, best, time_left(config, start), constrain)
        held = replace(
            held,
            census=free.census,
            removed_by_bound=free.removed_by_bound,
            priced=free.priced,
            seconds=time.monotonic() - start,
        )
        if held.termination is not Termination.PROVED:
            low = None if hard else free.goal
            return replace(held, holding=holding(bool(held.best), False), bound=low)
        if held.goal is not None and float(held.goal) <= best_free * factor:
            break
        if not free.best:
            break  # Nothing bounded the search, so that every point was looked at.
        done = factor
    assert held is not None
    return held


def _or_cpsat(prove_left: ProveLeft | None) -> ProveLeft:
    """Return a prover, CP-SAT's where none is given."""
    if prove_left is not None:
        return prove_left
    from optplan.solvers import cpsat_pipeline

    return cpsat_pipeline.prove_left
