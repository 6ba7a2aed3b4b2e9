"""An answer of ``solve`` with the robust plan and the flip points added."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from optplan.box import box_given
from optplan.flips import flips
from optplan.models.rules.registry import Rule
from optplan.result import Result
from optplan.robust import robust


def surely(
    result: Result,
    *,
    box: Sequence[str] = (),
    rules: Iterable[Rule] = (),
    time_limit: float | None = None,
    say: Callable[[str], None] | None = None,
) -> Result:
    """
    Add the robust plan and the flip points to an answer that holds a plan.

    Parameters
    ----------
    box
        Intervals as ``network_efficiency=0.5..1.0``; none for those that are known.
    rules
        Those that the answer was found under.
    time_limit
        Seconds for each of the two; left out, five minutes and two.
    """
    given = box_given(box) if box else None
    if result.plan is None:
        return result
    own = tuple(rules)
    strong = robust(result.problem, box=given, rules=own, time_limit=time_limit, say=say)
    points = flips(result.problem, rules=own, time_limit=time_limit, say=say)
    return result.model_copy(update={"robust": strong, "flips": points}).sealed()
