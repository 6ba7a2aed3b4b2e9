"""A launch with some values changed: the literals that decide them, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet

from optplan.launches.documents import Entry
from optplan.launches.launch import Launch, Value
from optplan.launches.notes import refuse, spliced
from optplan.launches.values import plan_from
from optplan.models.errors import Fault, InputError
from optplan.models.spec.plan import Plan

Keys = Mapping[str, object]
Edit = tuple[int, int, str]

PLAN = frozenset(Plan.model_fields)
"""Names that can be changed, besides what a dialect adds."""


def amended(
    text: str,
    read: Callable[[str], Launch],
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
    read
        Reads a launch; what was made is read again and held to what was asked.
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
    launch = read(text)
    now: dict[str, Value] = {}
    for one in (*launch.assumed, *launch.stated):
        now[one.name] = one.value
    wanted = {name: value for name, value in changes.items() if now.get(name) != value}
    old = plan_from(launch, {})
    new = _wanted(launch, old, changes)
    faults = [
        refuse(name, f"'{name[:60]}' is nothing that a launch says", "name a value of a plan")
        for name in wanted
        if name not in PLAN | more and name not in now
    ]
    sized = {"tp", "pp", "cp", "dp", "micro_batch"} & wanted.keys()
    said = {"global_batch", "micro_batches"} & wanted.keys() or "global_batch" in now
    if sized and "micro_batch" in now and not said:
        what = f"{', '.join(sorted(sized))} change what a step is, and no batch is stated"
        faults.append(refuse("global_batch", what, "change global_batch too"))
    if faults:
        raise InputError(faults)
    told = now.keys() | wanted.keys() | {"micro_batches"}
    before = keys_for({**now, **_plain(old, told)})
    after = keys_for({**now, **wanted, **_plain(new, told)})
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
    if faults:
        raise InputError(faults)
    made = spliced(text, [*dict.fromkeys(edits), *(insert(missing) if missing else [])])
    _hold(read(made), new, changes)
    return made


FOLLOWS = frozenset({"layers_per_stage", "recomputed_layers_per_stage", "context", "zero"})
"""Values that may follow from a change: stages from their number, sharding from its ranks."""


def _wanted(launch: Launch, old: Plan, changes: Mapping[str, Value]) -> Plan:
    """
    Return the plan after some changes: data ranks are what is left, batches fit them.

    The global batch stays, and micro-batches follow, unless their number is what changes.
    """
    found = dict(changes)
    size = {n: changes.get(n, getattr(old, n)) for n in ("tp", "pp", "cp", "micro_batch")}
    tp, pp, cp, micro = (int(v) if isinstance(v, int) else 1 for v in size.values())
    nodes, node = (changes.get(n, launch.value(n)) for n in ("nodes", "devices_per_node"))
    world = nodes * node if isinstance(nodes, int) and isinstance(node, int) else 0
    if "dp" not in found and world:
        found["dp"] = max(1, world // max(1, tp * pp * cp))
    ranks = found.get("dp", old.dp)
    dp = ranks if isinstance(ranks, int) else 1
    count, batch = found.get("micro_batches"), found.get("global_batch", old.global_batch)
    if isinstance(count, int) and "global_batch" not in found:
        found["global_batch"] = micro * count * dp
    elif isinstance(batch, int) and count is None:
        found["micro_batches"] = max(1, batch // max(1, micro * dp))
    return plan_from(launch, found)


def _plain(plan: Plan, names: AbstractSet[str]) -> dict[str, Value]:
    """Return those values of a plan that a launch tells or is asked for."""
    return {name: getattr(plan, name) for name in Plan.model_fields if name in names}


def _hold(launch: Launch, wanted: Plan, changes: Mapping[str, Value]) -> None:
    """Refuse a changed launch that says anything else than was asked, or than it said before."""
    found = plan_from(launch, {})
    wrong = [
        name
        for name in Plan.model_fields
        if launch.value(name) is not None
        and name not in FOLLOWS
        and getattr(found, name) != getattr(wanted, name)
    ]
    wrong += [
        name
        for name, value in changes.items()
        if name not in Plan.model_fields and launch.value(name) != value
    ]
    wrong += [
        name
        for name in changes
        if name in Plan.model_fields and getattr(found, name) != getattr(wanted, name)
    ]
    if wrong:
        names = ", ".join(dict.fromkeys(wrong))
        what = f"{names} cannot be changed here without changing more"
        raise InputError([refuse(names, what, "write a new launch with optplan export")])
