"""Engines by name, imported when first used."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

from optplan.models.errors import Fault, InputError
from optplan.models.program import Program
from optplan.solvers.base import Outcome, Solver, SolverConfig
from optplan.solvers.outside import Outside, offered, outside

if TYPE_CHECKING:
    from optplan.solvers.left import Left
    from optplan.solvers.proved import ProveLeft

ENGINES = {
    "cp-sat": (
        "optplan.solvers.cpsat",
        "ortools",
        "OR-Tools CP-SAT, proves on the reduced program",
    ),
    "milp": (
        "optplan.solvers.milp",
        "pyomo",
        "Pyomo, HiGHS unless another solver is named: milp:scip",
    ),
    "exhaustive": ("optplan.solvers.exhaustive", "numpy", "prices every point in broadcast NumPy"),
    "paper": (
        "optplan.solvers.paper",
        "numpy",
        "the paper's Algorithm 1: enumerate and prune by declared facts",
    ),
}
"""Engine name: module, package it needs, one line for people. The first is the default."""


PROVERS = {
    "cp-sat": "optplan.solvers.cpsat_pipeline",
    "milp": "optplan.solvers.milp_pipeline",
}
"""Where each engine proves what a search has left; the others price points themselves."""


@dataclass(frozen=True)
class Proving:
    """
    How an engine proves.

    Parameters
    ----------
    prove_left
        Proves that no point left beats an incumbent.
    solve_whole
        Solves a program as one model, for comparison.
    """

    prove_left: ProveLeft
    solve_whole: Callable[[Program, Left, SolverConfig], Outcome]


def kind_of(name: str) -> str:
    """Name an engine without the solver that it is to run."""
    return name.partition(":")[0]


def available(name: str) -> str | None:
    """Return None where an engine can run, else what to install; imports nothing."""
    if name not in ENGINES:
        return None if name in offered() else f"{name} is not offered; install its package"
    package = ENGINES[name][1]
    return None if find_spec(package) else f"{name} is not installed; pip install {package}"


def require(name: str | Solver) -> None:
    """
    Refuse an engine that does not exist or cannot run here; imports no engine but a named solver's.

    A function is an engine from outside.

    Raises
    ------
    InputError
        With the known engines, or with what to install.
    """
    if not isinstance(name, str):
        if not callable(name):
            problem = f"{name!r:.60} is neither a name nor a function"
            remedy = "name one, or give a function of a program and a SolverConfig"
            raise InputError([Fault("", "engine", problem, remedy)])
        return
    kind, _, solver = name.partition(":")
    if kind not in ENGINES and name in offered():
        return
    if kind not in ENGINES or (":" in name and (kind != "milp" or not solver)):
        known = [*ENGINES, *offered()]
        near = difflib.get_close_matches(kind, known, 1)
        remedy = f"one of {', '.join(known)}, or milp:NAME with a solver that Pyomo has"
        remedy = f"did you mean {near[0]}? {remedy}" if near else remedy
        raise InputError([Fault("", "engine", f"there is no engine {name!r}", remedy)])
    missing = available(kind)
    if missing:
        problem, _, remedy = missing.partition("; ")
        raise InputError([Fault("", "engine", problem, remedy)])
    if solver:
        import_module("optplan.solvers.milp_solver").require(solver)


def engine(name: str | Solver) -> Solver:
    """Import an engine and return its ``solve``."""
    require(name)
    if not isinstance(name, str):
        return Outside(getattr(name, "__name__", type(name).__name__), name)
    kind, _, solver = name.partition(":")
    if kind not in ENGINES:
        own = outside(name)
        assert own is not None
        return own
    solve = import_module(ENGINES[kind][0]).solve
    found: Solver = partial(solve, solver=solver) if solver else solve
    return found


def proving(name: str | Solver) -> Proving | None:
    """Import how an engine proves what a search has left; None for one that does not."""
    require(name)
    if not isinstance(name, str):
        return None
    kind, _, solver = name.partition(":")
    if kind not in PROVERS:
        return None
    module = import_module(PROVERS[kind])
    if solver:
        prove_left = partial(module.prove_left, solver=solver)
        return Proving(prove_left, partial(module.solve_whole, solver=solver))
    return Proving(module.prove_left, module.solve_whole)
