"""Engines by name, imported when first used."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

from optplan.models.errors import Fault, InputError
from optplan.solvers.base import Solver

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


def available(name: str) -> str | None:
    """Return None where an engine can run, else what to install; imports nothing."""
    package = ENGINES[name][1]
    return None if find_spec(package) else f"{name} is not installed; pip install {package}"


def require(name: str) -> None:
    """
    Refuse an engine that does not exist or cannot run here; imports nothing.

    Raises
    ------
    InputError
        With the known engines, or with what to install.
    """
    if name not in ENGINES:
        remedy = f"one of {', '.join(ENGINES)}"
        raise InputError([Fault("", "engine", f"there is no engine {name!r}", remedy)])
    missing = available(name)
    if missing:
        problem, _, remedy = missing.partition("; ")
        raise InputError([Fault("", "engine", problem, remedy)])


def engine(name: str) -> Solver:
    """Import an engine and return its ``solve``."""
    require(name)
    solver: Solver = import_module(ENGINES[name][0]).solve
    return solver
