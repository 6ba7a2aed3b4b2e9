"""The spec that made an answer, as YAML that optplan reads again."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

from ruamel.yaml import YAML

from optplan import catalogue
from optplan.load import load
from optplan.models.errors import OptplanError
from optplan.models.spec.problem import Problem
from optplan.places import Refusal

HEAD = "# Solve it again with: optplan solve spec.yaml\n"
"""First line of every spec on the page."""


def short_spec(problem: Problem) -> str | None:
    """
    Write a problem with the names of the catalogue, as a person would type it.

    Returns
    -------
    str or None
        None where it does not read back to the very same problem, whose calibration, say, was
        a file.
    """
    data = _typed(problem)
    for part, key, find in (
        ("workload", "architecture", catalogue.architecture),
        ("cluster", "accelerator", catalogue.accelerator),
        ("", "framework", catalogue.framework),
        ("", "calibration", catalogue.calibration),
    ):
        holder = data[part] if part else data
        held = getattr(getattr(problem, part) if part else problem, key)
        if held is not None and _known(find, held):
            holder[key] = held.name
    text = HEAD + _yaml(data)
    return text if _reads_back(text, problem) else None


def whole_spec(problem: Problem) -> str:
    """Write a problem with every value spelled out, whatever a catalogue says later."""
    return HEAD + _yaml(_typed(problem))


def _typed(problem: Problem) -> dict[str, Any]:
    """Return what a person would have to type: no defaults, no nothing."""
    data: dict[str, Any] = problem.model_dump(mode="json", exclude_defaults=True, exclude_none=True)
    return data


def _known(find: Any, held: Any) -> bool:
    """Tell whether the catalogue holds this very record under its name."""
    try:
        return bool(find(held.name) == held)
    except (Refusal, OptplanError, ValueError):
        return False


def _reads_back(text: str, problem: Problem) -> bool:
    """Tell whether a spec means this problem."""
    try:
        return load(text).fingerprint == problem.fingerprint
    except OptplanError:
        return False


def _yaml(data: Mapping[str, Any]) -> str:
    """Write plain data as YAML."""
    yaml = YAML()
    yaml.width = 100
    yaml.indent(mapping=2, sequence=4, offset=2)
    out = io.StringIO()
    yaml.dump(dict(data), out)
    return out.getvalue()
