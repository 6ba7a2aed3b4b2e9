"""The launch that starts a plan, where the export can write one."""

from __future__ import annotations

from optplan.models.errors import InputError
from optplan.result import Result


def launch_text(result: Result) -> str | None:
    """
    Write the file that launches a result's plan, by the framework of its spec.

    Returns
    -------
    str or None
        None where the spec names no framework, or its version cannot launch the plan; then the
        page has no such section.
    """
    from optplan.export import exported, launched_by

    if result.plan is None or result.problem.framework is None:
        return None
    try:
        speaks, problem = launched_by(result.problem, result.problem.framework.name)
        return exported(problem, result.plan, speaks, nearest=False).text
    except InputError:
        return None
