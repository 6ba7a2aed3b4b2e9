"""What a person types on the command line, read into values."""

from __future__ import annotations

from collections.abc import Sequence

from optplan.models.errors import Fault, InputError, QuantityError


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
