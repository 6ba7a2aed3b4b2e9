"""An answer of ``solve`` with the robust plan and the flip points added."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress

from optplan.box import Box
from optplan.flips import flips
from optplan.models.rules.registry import Rule
from optplan.result import Result
from optplan.robust import robust


def surely(
    result: Result,
    *,
    box: Box | None = None,
    rules: Iterable[Rule] = (),
    time_limit: float | None = None,
    say: Callable[[str], None] | None = None,
) -> Result:
    """
    Add the robust plan and the flip points to an answer that holds a plan.

    Parameters
    ----------
    box
        Interval by constant; none for those that are known.
    rules
        Those that the answer was found under.
    time_limit
        Seconds for each of the two; left out, five minutes and two.
    """
    if result.plan is None:
        return result
    own = tuple(rules)
    added: dict[str, object] = {}
    # Whoever has seen enough keeps the plan, and whatever was added by then.
    with suppress(KeyboardInterrupt):
        problem = result.problem
        added["robust"] = robust(problem, box=box, rules=own, time_limit=time_limit, say=say)
        added["flips"] = flips(problem, rules=own, time_limit=time_limit, say=say)
    return result.model_copy(update=added).sealed()
