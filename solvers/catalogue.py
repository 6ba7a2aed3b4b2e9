"""Engines by name, imported when first used."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

from optplan.solvers.base import Solver

ENGINES = {
    "cp-sat": (
        "optplan.solvers.cpsat",
        "ortools",
        "OR-Tools CP-SAT, proves on the reduced program",
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


def engine(name: str) -> Solver:
    """Import an engine and return its ``solve``."""
    solver: Solver = import_module(ENGINES[name][0]).solve
    return solver
