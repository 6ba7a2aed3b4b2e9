"""How sure an answer is, on the screen: plans within the error, robust plan, flip points."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from optplan.models.numbers import counted
from optplan.models.units import bytes_text, seconds_text
from optplan.report.layouts import plain_table, short
from optplan.sureness import Along, Axis, Corner, Flip, Flips, Robust, WithinError

SAID = 5
"""Values of a choice that are listed before the middle is left out."""

QUIET = ("hsdp", "context", "order", "micro_batches")
"""Choices that follow from others, or mean nothing in many plans."""


def within_lines(within: WithinError) -> Iterable[str]:
    """Put the plans within the error into words."""
    if within.shapes <= 1:
        yield f"no other shape of plan lies within the model's error of {within.error:.1%}"
        return
    more = "" if within.complete else "at least "
    yield (
        f"on hardware any of {more}{counted(within.shapes, 'shape')} of plan may win: they lie "
        f"within the model's error of {within.error:.1%}"
    )
    agreed = [f"{words(n)} {v}" for n, v in within.common.items() if n not in QUIET]
    if agreed:
        yield f"all of them have {', '.join(agreed)}"
    differ = [
        f"{words(n)} {_values(some)}"
        for n, some in within.values.items()
        if len(some) > 1 and n not in QUIET
    ]
    if differ:
        yield f"they differ in {', '.join(differ)}"


def within_text(within: WithinError) -> RenderableType:
    """Say which plans the proof cannot tell from the best on hardware."""
    lines = [_indented(line) for line in within_lines(within)]
    if within.shapes <= 1:
        return lines[0]
    table = plain_table(
        "The most different of them", "behind", "step", "instead of the best plan's"
    )
    for one in within.apart:
        table.add_row(
            f"{one.behind:+.2%}", seconds_text(one.step_seconds), Text(changes_text(one.differs))
        )
    return Group(Text(""), *lines, table) if within.apart else Group(Text(""), *lines)


def robust_text(robust: Robust) -> RenderableType:
    """Show the robust plan, the box it answers for, and what is proved of it."""
    parts: list[RenderableType] = [Text("\nThe plan of smallest worst-case regret", "bold")]
    if robust.plan is None or robust.worst_regret is None:
        parts.append(_indented(f"not found: {robust.why or 'no plan'}", "yellow"))
    else:
        parts += [_indented(line) for line in robust_lines(robust)]
    if robust.box:
        parts.append(_box(robust.box))
    else:
        parts.append(_indented("no constant with a known interval changes any price"))
    return Group(*parts)


def robust_lines(robust: Robust) -> Iterable[str]:
    """Put the robust plan into words."""
    assert robust.plan is not None
    assert robust.worst_regret is not None
    same = robust.behind is not None and abs(robust.behind) < 1e-9
    yield (
        f"{short(robust.plan)}: "
        + ("the fastest plan itself" if same else f"{robust.behind:+.2%} under today's constants")
    )
    yield f"at most {share_text(robust.worst_regret)} behind the best plan of any corner of the box"
    if robust.worst is not None and robust.worst_regret > 1e-6:
        yield f"furthest behind {where_text(robust.worst, robust.box)}"
    if not same:
        far = "impossible at some corner"
        if robust.nominal_regret is not None:
            far = f"up to {share_text(robust.nominal_regret)} behind"
        yield f"the fastest plan is {far}"
    counts = (
        f"{robust.scenarios:,} scenarios solved (every corner and today's constants), "
        f"{robust.candidates:,} candidates compared"
    )
    if robust.proved and robust.bound is not None:
        gap = robust.worst_regret - robust.bound
        least = "no plan does better" if gap < 1e-6 else f"no plan stays within {robust.bound:.3%}"
        yield f"proved over the corners: {least}; {counts}"
    else:
        yield f"not proved ({robust.why}); {counts}"
    if robust.inside_regret is not None:
        yield (
            f"inside of the box nothing is proved: at {robust.inside} points drawn at random it "
            f"is at most {share_text(robust.inside_regret)} behind"
        )


def share_text(value: float) -> str:
    """Print a regret, rounded up so that it is never exceeded."""
    return "0.00%" if value < 1e-8 else f"{value + 0.5e-4:.2%}"


def where_text(corner: Corner, box: tuple[Axis, ...]) -> str:
    """Say at which corner, and what would be best there."""
    known = {axis.constant: axis for axis in box}
    ends = [f"{words(n)} {constant_text(n, v)}" for n, v in corner.constants.items() if n in known]
    return f"at {', '.join(ends)}, where {short(corner.best)} is best"


def _box(box: tuple[Axis, ...]) -> RenderableType:
    """Show the box."""
    table = plain_table(
        "The box", "constant", "from", "now", "to", "where from", right=("from", "now", "to")
    )
    for axis in box:
        ends = (constant_text(axis.constant, v) for v in (axis.low, axis.value, axis.high))
        table.add_row(words(axis.constant), *ends, Text(axis.origin, "dim"))
    return table


def flips_text(flips: Flips) -> RenderableType:
    """Show where the recommendation changes, one quantity moved at a time."""
    table = plain_table(
        "Where the recommendation changes, one quantity moved at a time",
        *("quantity", "now", "changes", "to"),
        right=("now",),
    )
    for one in flips.along:
        for i, (when, what) in enumerate(sides(one)):
            table.add_row(_first(one.parameter, i), _first(one.now, i), Text(when), Text(what))
    parts: list[RenderableType] = [table]
    if flips.untouched:
        parts.append(_indented(f"of no weight near this plan: {', '.join(flips.untouched)}", "dim"))
    if flips.left:
        parts.append(_indented(f"not looked at in time: {', '.join(flips.left)}", "yellow"))
    return Group(*parts)


def _first(text: str, row: int) -> str:
    """Print a text in the first of several rows."""
    return text if row == 0 else ""


def sides(one: Along) -> Iterable[tuple[str, str]]:
    """Say what happens on either side."""
    if one.falls is not None:
        yield f"below {one.falls.at}", _beyond(one.falls)
    if one.rises is not None:
        yield f"above {one.rises.at}", _beyond(one.rises)
    if not one.complete:
        yield "not settled", one.why
        return
    if one.falls is None and one.rises is None:
        yield "nowhere", f"holds from {one.low} to {one.high}, the range looked at"
    elif one.falls is None and one.low != one.now:
        yield f"not down to {one.low}", ""
    elif one.rises is None and one.high != one.now:
        yield f"not up to {one.high}", ""


def _beyond(flip: Flip) -> str:
    """Say what the plan becomes."""
    return changes_text(flip.changes) if flip.plan is not None else "no plan exists"


def changes_text(changes: dict[str, str]) -> str:
    """Print differing choices."""
    said = [f"{words(name)} {text}" for name, text in changes.items()]
    return ", ".join(said) or "other layers per stage"


def words(name: str) -> str:
    """Print a name without underscores."""
    return name.replace("micro_batch", "micro-batch").replace("_", " ")


def _values(some: tuple[str, ...]) -> str:
    """List the values of a choice."""
    if len(some) <= SAID:
        return f"({', '.join(some)})"
    return f"({', '.join(some[: SAID - 2])} ... {some[-1]})"


def constant_text(name: str, value: float) -> str:
    """Print a constant with its unit."""
    if name in ("launch_seconds", "step_latency"):
        return seconds_text(value)
    return bytes_text(value) if name == "reserve" else f"{value:.3g}"


def _indented(text: str, style: str = "") -> Padding:
    """Indent a line, however often it wraps."""
    return Padding(Text(text, style), (0, 0, 0, 2))
