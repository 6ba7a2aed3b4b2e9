"""Results for people: the terminal, one offline page, a card in a notebook, a trace."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from optplan.result import Reply


def report(answer: Reply) -> str:
    """
    Render an answer as one HTML page that needs nothing outside itself.

    Parameters
    ----------
    answer
        What ``solve``, ``explain``, ``evaluate``, ``size`` or ``compare`` returned. It is taken as
        it is; ``optplan report`` on a file checks it first.

    Returns
    -------
    str
        The whole page; equal answers give equal pages.

    Raises
    ------
    InputError
        There is no page for such an answer.
    """
    from optplan.report.html.page import page

    return page(answer)
