"""The launch that starts a plan, where the export can write one."""

from __future__ import annotations

from optplan.result import Result


def launch_text(result: Result) -> str | None:
    """
    Write the file that launches a result's plan.

    Returns
    -------
    str or None
        None where nothing can write it: then the page has no such section.
    """
    return None
