"""What a person types on the command line, read into values."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from optplan.models.errors import Fault, InputError, QuantityError

if TYPE_CHECKING:
    from optplan.cheapest import Job


SCALES = {"": 1.0, "M": 1e6, "B": 1e9, "T": 1e12}
"""What a letter after a number of tokens is worth."""

TOKENS = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE]\+?([0-9]{1,2}))?[ ]*([MBT]?)")
"""A number of tokens."""


def job(
    tokens: str | None,
    by: str | None,
    within: str | None,
    start: str | None,
    most_nodes: int | None,
) -> Job | None:
    """Read ``--tokens`` and what goes with it; None where no tokens are given."""
    given = {"--by": by, "--within": within, "--start": start, "--most-nodes": most_nodes}
    if tokens is None:
        lost = [option for option, value in given.items() if value is not None]
        if lost:
            problem = "means nothing without --tokens"
            raise InputError([Fault(o, "", problem, "add --tokens 15e12") for o in lost])
        return None
    match = TOKENS.fullmatch(tokens.strip())
    if match is None:
        wrong = f"{tokens[:40]!r} is no number of tokens"
        raise InputError([Fault("--tokens", "", wrong, "write 15e12, 15T or 300B")])
    if most_nodes is not None:
        whole("--most-nodes", most_nodes, 1, 2**20)
    from datetime import UTC

    from optplan.cheapest import job_of, moment

    begin = None if start is None else moment(start, "--start")
    if begin is not None and begin.tzinfo is None:
        begin = begin.replace(tzinfo=UTC)
    number = float(match[1]) * 10.0 ** int(match[2] or 0) * SCALES[match[3]]
    return job_of(number, by, seconds(within, "--within"), begin, most_nodes)


def seconds(text: str | None, option: str = "--time-limit") -> float | None:
    """Read a time, such as that of ``--time-limit``."""
    if text is None:
        return None
    from optplan.models import units

    try:
        found = units.parse(text, "seconds")
    except QuantityError as error:
        problem, _, remedy = str(error).partition("; ")
        raise InputError([Fault(option, "", problem, remedy or "write 60 s")]) from None
    if found <= 0:
        raise InputError([Fault(option, "", f"{text!r} leaves no time", "give more than 0 s")])
    return found


def memory(option: str, text: str | None) -> int | None:
    """Read an amount of memory, or 0."""
    if text is None or text.strip() == "0":
        return None if text is None else 0
    return size(text, option)


def intervals(texts: Sequence[str]) -> dict[str, tuple[float, float]] | None:
    """Read every ``--box network_efficiency=0.5..1.0``; None where there is none."""
    if not texts:
        return None
    from optplan.box import box_given

    return box_given(texts)


def size(text: str | None, option: str) -> int | None:
    """Read a number of bytes."""
    if text is None:
        return None
    from optplan.models import units

    try:
        return units.parse(text, "bytes")
    except QuantityError as error:
        problem, _, remedy = str(error).partition("; ")
        raise InputError([Fault(option, "", problem, remedy or "write 2 GiB")]) from None


def whole(option: str, value: int, least: int, most: int) -> None:
    """Refuse a number out of range."""
    if not least <= value <= most:
        raise InputError([Fault(option, "", f"{value} is out of range", f"from {least} to {most}")])


def choices(plan: Sequence[str]) -> dict[str, object]:
    """Read ``tp=8 recompute=full`` into values."""
    from optplan.models.expression import ALIASES

    values: dict[str, object] = {}
    faults = []
    words: dict[str, object] = {"true": True, "false": False, "on": True, "off": False}
    for item in plan:
        name, equals, text = item.partition("=")
        long = ALIASES.get(name.strip(), name.strip())
        value: object = text.strip()
        if long in ("sequence_parallel", "hsdp", "offload"):
            value = words.get(text.strip(), value)
        if long.endswith("_per_stage"):
            value = _per_stage(text.strip())
        if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 18:
            value = int(value)
        if not equals or not long:
            faults.append(
                Fault(f"{item!r}", "", "this is no choice", "write name=value, such as tp=8")
            )
        elif long in values:
            faults.append(Fault(f"{item!r}", "", f"{long} is given twice", "give it once"))
        else:
            values[long] = value
    if faults:
        raise InputError(faults)
    return values


def _per_stage(text: str) -> object:
    """Read ``24,24,24,22``, or ``8*14,7`` for fourteen stages of 8 and one of 7."""
    found: list[int] = []
    for part in text.strip("[]()").split(","):
        number, _, times = part.strip().partition("*")
        if not number.isdigit() or (times and not times.isdigit()) or len(number + times) > 9:
            return text
        found += [int(number)] * min(int(times or 1), 5000)
    return tuple(found)
