"""Where a value of a spec lives that a person names in short: ``nodes`` is ``cluster.nodes``."""

from __future__ import annotations

from collections.abc import Mapping

from optplan.models.record import Record
from optplan.models.spec.cluster import Cluster
from optplan.models.spec.problem import Problem
from optplan.models.spec.space import Search
from optplan.models.spec.workload import Workload

SECTIONS: Mapping[str, type[Record]] = {"search": Search, "workload": Workload, "cluster": Cluster}
"""Sections whose values may go by their own name."""


def _short() -> dict[str, tuple[str, ...]]:
    """Collect the names that lead to one place only; a section's own name goes first."""
    found: dict[str, tuple[str, ...]] = {}
    several: set[str] = set()
    for section, record in SECTIONS.items():
        for name in record.model_fields:
            if name in found:
                several.add(name)
            found[name] = (section, name)
    found = {name: path for name, path in found.items() if name not in several}
    return found | {name: (name,) for name in Problem.model_fields}


SHORT = _short()
"""Path of every value that a bare name stands for."""


def path_of(key: str) -> tuple[str, ...]:
    """
    Return the path that a key stands for, known or not.

    Examples
    --------
    >>> path_of("nodes"), path_of("accelerator.hbm"), path_of("search.tp")
    (('cluster', 'nodes'), ('cluster', 'accelerator', 'hbm'), ('search', 'tp'))
    """
    first, *rest = key.split(".")
    return (*SHORT.get(first, (first,)), *rest)
