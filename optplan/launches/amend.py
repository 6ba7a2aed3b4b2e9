"""A launch with some values changed: the literals that decide them, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from optplan.launches.documents import Entry
from optplan.launches.launch import Launch, Value
from optplan.launches.notes import refuse, spliced
from optplan.models.errors import Fault, InputError
from optplan.models.spec.plan import Plan

Keys = Mapping[str, object]
Edit = tuple[int, int, str]

PLAN = frozenset(Plan.model_fields)
"""Names that can be changed, besides what a dialect adds."""


def amended(
    text: str,
    launch: Launch,
    changes: Mapping[str, Value],
    entries: Mapping[str, Entry],
    keys_for: Callable[[Mapping[str, Value]], Keys],
    literal: Callable[[object, Entry], str],
    insert: Callable[[dict[str, object]], list[Edit]],
    more: frozenset[str] = frozenset(),
) -> str:
    """
    Change a launch.

    What its keys would be with the changes is compared with what they would be without; keys that
    differ are set, all others stay as they are written.

    Parameters
    ----------
    launch
        The launch as it is.
    changes
        Values to change, by the names of `Stated`.
    entries
        What the launch says now, by key.
    keys_for
        Keys of a launch that asks for some values.
    literal
        Writes a value in the place of an entry's literal.
    insert
        Adds keys that the launch does not have.
    more
        Names beyond those of a plan that may be changed.

    Raises
    ------
    InputError
        A value is not one that the launch can say, or is decided in no single place.
    """
    now: dict[str, Value] = {}
    for one in (*launch.assumed, *launch.stated):
        now[one.name] = one.value
    wanted = {name: value for name, value in changes.items() if now.get(name) != value}
    faults = [
        refuse(name, f"'{name[:60]}' is nothing that a launch says", "name a value of a plan")
        for name in wanted
        if name not in PLAN | more and name not in now
    ]
    if faults:
        raise InputError(faults)
    before, after = keys_for(now), keys_for({**now, **wanted})
    edits: list[Edit] = []
    missing: dict[str, object] = {}
    for path, value in after.items():
        if path in before and before[path] == value:
            continue
        entry = entries.get(path)
        if entry is None:
            missing[path] = value
        elif entry.span is None:
            what = f"'{entry.written[:60]}' decides it together with others"
            faults.append(Fault(f"line {entry.line}", path, what, "change it by hand"))
        else:
            edits.append((*entry.span, literal(value, entry)))
    same = [n for n, v in wanted.items() if keys_for({**now, n: v}) == before]
    for name in same if before == after else ():
        what = f"{name} has no key of its own here"
        faults.append(refuse(name, what, "change it by hand"))
    if faults:
        raise InputError(faults)
    return spliced(text, [*dict.fromkeys(edits), *(insert(missing) if missing else [])])
