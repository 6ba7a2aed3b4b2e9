"""What the user's own surcharges add to a step."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from optplan.models.expression import amount_of, names, parse_time, reals_of
from optplan.models.spec.plan import Plan
from optplan.models.spec.problem import Problem
from optplan.models.spec.surcharge import Surcharge

# Every plan that is priced asks for them, and their texts are few.
_read = lru_cache(maxsize=256)(parse_time)


@lru_cache(maxsize=256)
def asked_of(surcharge: Surcharge) -> tuple[str, ...]:
    """Choices that a surcharge depends on, sorted."""
    return tuple(sorted(names(_read(surcharge.seconds))))


def seconds_of(surcharge: Surcharge, at: Mapping[str, Any]) -> Any:
    """
    Seconds that one surcharge adds to a step.

    Parameters
    ----------
    at
        A whole number, or an array of them, for each of `asked_of`.

    Returns
    -------
    float or ndarray of float
        At least 0 (`parse_time` refuses what may be less); infinite beyond what floats reach.
    """
    return reals_of(amount_of(_read(surcharge.seconds), at))


def surcharge_seconds(problem: Problem, plan: Plan) -> float:
    """Seconds that all surcharges of a problem add to a step of a plan."""
    return sum(
        float(seconds_of(one, {name: getattr(plan, name) for name in asked_of(one)}))
        for one in problem.surcharges
    )
