"""Where a step's time goes, by the terms of Eq. 1."""

from __future__ import annotations

from dataclasses import dataclass

from optplan.models.cost.price import NEW_TERMS, TERMS, Estimate
from optplan.models.units import seconds_text
from optplan.report.html import words


@dataclass(frozen=True)
class Term:
    """
    One line of the drawing.

    Parameters
    ----------
    name, what, tip
        Name in Eq. 1, what it is in a few words, and in plain words.
    seconds, share
        As printed; a minus where it is subtracted.
    start, width
        Place of its bar, in percent of the drawing.
    beyond
        Seconds beyond the best plan, as printed; empty without one.
    """

    name: str
    what: str
    tip: str
    seconds: str
    share: str
    start: float
    width: float
    subtracted: bool
    beyond: str = ""


def terms(estimate: Estimate, behind: dict[str, float] | None = None) -> list[Term]:
    """List every term, as a staircase from nothing to the whole step."""
    whole = sum(estimate.terms.values()) - estimate.terms["TO"] or 1.0
    found: list[Term] = []
    reached = 0.0
    for name, what in TERMS.items():
        seconds = estimate.terms[name]
        more = (behind or {}).get(name, 0.0)
        if name in NEW_TERMS and not seconds and not more:
            continue
        off = name == "TO"
        if off:
            reached -= seconds
        sign = "-" if off and seconds else ""
        share = seconds / estimate.step_seconds
        found.append(
            Term(
                name,
                what,
                words.TERMS[name],
                f"{sign}{seconds_text(seconds)}",
                f"{sign}{share:.1%}",
                round(100 * reached / whole, 3),
                round(100 * seconds / whole, 3),
                off,
                f"{'-' if more < 0 else '+'}{seconds_text(abs(more))}" if behind else "",
            )
        )
        if not off:
            reached += seconds
    return found


def lead(estimate: Estimate) -> str:
    """Say in a sentence what takes longest."""
    ranked = sorted(
        ((seconds, name) for name, seconds in estimate.terms.items() if name not in ("TO", "TF")),
        reverse=True,
    )
    share = estimate.terms["TF"] / estimate.step_seconds
    text = f"{share:.0%} of the {seconds_text(estimate.step_seconds)} are arithmetic (TF)"
    most, name = ranked[0]
    if most > 0:
        text += f"; next comes {name}, {TERMS[name]}, with {most / estimate.step_seconds:.1%}"
    return f"{text}."
