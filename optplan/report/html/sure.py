"""How sure an answer is, on the page: plans within the error, robust plan, flip points."""

from __future__ import annotations

from optplan.models.units import seconds_text
from optplan.report.html.sections import Section, of_tables
from optplan.report.html.tables import Cell, Table, cells, columns
from optplan.report.sure import (
    changes_text,
    constant_text,
    robust_lines,
    sides,
    within_lines,
    words,
)
from optplan.sureness import Flips, Robust, WithinError


def within_section(within: WithinError) -> Section:
    """Say which plans the proof cannot tell from the best on hardware."""
    first, *more = (sentence(line) for line in within_lines(within))
    heads = columns("behind", "step", "instead of the best plan's", right=("behind", "step"))
    rows = tuple(
        cells(
            Cell(f"{one.behind:+.2%}", one.behind),
            Cell(seconds_text(one.step_seconds), one.step_seconds),
            changes_text(one.differs),
        )
        for one in within.apart
    )
    tables = [Table("The most different of them", heads, rows)] if rows else []
    return of_tables("within-error", "Within the error", first, *tables, note=" ".join(more))


def robust_section(robust: Robust) -> Section:
    """Show the plan of smallest worst-case regret, and the box it answers for."""
    if robust.plan is None or robust.worst_regret is None:
        lead, note = f"No plan was found: {robust.why or 'there is none'}.", ""
    else:
        lead, *more = (sentence(line) for line in robust_lines(robust))
        note = " ".join(more)
    ends = ("from", "now", "to")
    heads = columns("constant", *ends, "where from", right=ends)
    rows = tuple(
        cells(
            words(axis.constant),
            *(
                Cell(constant_text(axis.constant, value), value)
                for value in (axis.low, axis.value, axis.high)
            ),
            Cell(axis.origin, tone="dim"),
        )
        for axis in robust.box
    )
    tables = [Table("The box of constants", heads, rows)] if rows else []
    return of_tables("robust", "The robust plan", lead, *tables, note=note)


def flips_section(flips: Flips) -> Section:
    """Show where the recommendation changes, one quantity moved at a time."""
    rows = tuple(
        cells(one.parameter, one.now, when, what)
        for one in flips.along
        for when, what in sides(one)
    )
    heads = columns("quantity", "now", "changes", "to", right=("now",))
    table = Table("Where the recommendation changes", heads, rows, sortable=False)
    notes = []
    if flips.untouched:
        notes.append(f"Of no weight near this plan: {', '.join(flips.untouched)}.")
    if flips.left:
        notes.append(f"Not looked at in time: {', '.join(flips.left)}.")
    lead = "One quantity is moved at a time; both sides of each point were solved."
    title = "What would change the answer"
    return of_tables("flips", title, lead, *([table] if rows else []), note=" ".join(notes))


def sentence(line: str) -> str:
    """Make a sentence of a line."""
    return f"{line[:1].upper()}{line[1:]}."
