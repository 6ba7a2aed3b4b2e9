"""Axes of a sweep: what is varied, written as ``nodes=1..64`` or ``tp=[1, 2, 4]``."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from optplan.compose import Composer
from optplan.faults import unknown
from optplan.keys import SHORT, path_of
from optplan.models.errors import Fault, InputError
from optplan.models.record import Record
from optplan.models.spec.problem import Problem
from optplan.places import REFUSED, short
from optplan.tables import Cell

MOST_VALUES = 100_000
"""Values that one axis may have."""

MOST_POINTS = 200_000
"""Problems that one sweep may have."""

_RANGE = re.compile(r"([0-9]{1,18})\.\.([0-9]{1,18})(?:([*+])([0-9]{1,18}))?")

EXAMPLE = "write --over nodes=1..64, nodes=1..64*2 or sequence_length=[4096, 8192]"

Values: TypeAlias = "str | Iterable[object]"
"""An axis in Python: the text behind the ``=``, or the values one by one."""


class Axis(Record):
    """One thing that is varied."""

    column: str
    """What the table calls it."""
    key: str
    """Where it stands in the spec: ``cluster.nodes``."""
    values: tuple[Cell, ...]
    """What it becomes, as the table shows it; lists and mappings as JSON."""
    texts: tuple[str, ...]
    """The same as ``--set`` takes it."""

    def set(self, index: int) -> str:
        """Return what ``--set`` takes for one of the values."""
        return f"{self.key}={self.texts[index]}"


class Grid(Record):
    """The problems of a sweep, in order."""

    axes: tuple[Axis, ...]
    """What is varied; the last one runs fastest."""
    zipped: bool = False
    """Whether the axes run side by side instead of each against each."""

    def __len__(self) -> int:
        """Count the problems."""
        sizes = [len(axis.values) for axis in self.axes]
        return sizes[0] if self.zipped else math.prod(sizes)

    def indices(self, number: int) -> tuple[int, ...]:
        """Return which value of each axis a problem has."""
        if self.zipped:
            return (number,) * len(self.axes)
        found = []
        for axis in reversed(self.axes):
            number, index = divmod(number, len(axis.values))
            found.append(index)
        return tuple(reversed(found))

    def values(self, number: int) -> tuple[Cell, ...]:
        """Return the values that a problem has on the axes."""
        pairs = zip(self.axes, self.indices(number), strict=True)
        return tuple(axis.values[index] for axis, index in pairs)

    def sets(self, number: int) -> list[str]:
        """Return what ``--set`` takes for a problem."""
        pairs = zip(self.axes, self.indices(number), strict=True)
        return [axis.set(index) for axis, index in pairs]

    def cross(self, most: int = 256) -> list[int]:
        """Return problems that show every value of every axis, or ``most`` spread over it."""
        if self.zipped:
            return _spread(len(self), most)
        numbers = []
        stride = 1
        for axis in reversed(self.axes):
            numbers += [stride * index for index in _spread(len(axis.values), most)]
            stride *= len(axis.values)
        return sorted(set(numbers))


def _spread(size: int, most: int) -> list[int]:
    """Return up to ``most`` numbers below ``size``, the first and the last among them."""
    if size <= most:
        return list(range(size))
    return sorted({index * (size - 1) // (most - 1) for index in range(most)})


def grid_of(
    over: Sequence[str] | Mapping[str, Values],
    taken: Iterable[str],
    *,
    zipped: bool = False,
    sets: Iterable[str] = (),
) -> Grid:
    """
    Read the axes of a sweep.

    Parameters
    ----------
    over
        Texts such as ``nodes=1..64``, or values by key.
    taken
        Names of columns that an axis may not have.
    zipped
        True where the axes run side by side.
    sets
        What ``--set`` changes; an axis may not change it again.

    Raises
    ------
    InputError
        With everything that is wrong with them.
    """
    faults: list[Fault] = []
    if isinstance(over, Mapping):
        given = {str(key): value for key, value in over.items()}
    else:
        given = _split(over, faults)
    fixed = {path_of(text.partition("=")[0].strip()) for text in sets}
    read: dict[tuple[str, ...], list[object]] = {}
    for key, values in given.items():
        path, place = path_of(key), f"--over {short(key)}"
        if not all(path):
            remedy = "write names with one dot between them: cluster.nodes"
            faults.append(Fault(place, "", f"'{short(key)}' is no key", remedy))
        elif path[0] not in Problem.model_fields:
            faults.append(Fault(place, key, *unknown(path[0], list(SHORT))))
        elif path in fixed or path in read:
            how = "set and swept" if path in fixed else "swept twice"
            faults.append(Fault(place, ".".join(path), f"this is {how}", "keep one of them"))
        else:
            before = len(faults)
            read[path] = _values(values, path, place, faults)
            if not read[path] and len(faults) == before:
                faults.append(Fault(place, ".".join(path), "the axis has no value", EXAMPLE))
    if not read and not faults:
        faults.append(Fault("--over", "", "there is nothing to sweep over", EXAMPLE))
    if faults:
        raise InputError(faults)
    grid = Grid(axes=tuple(_axes(read, set(taken), zipped)), zipped=zipped)
    _refuse_sizes(grid)
    return grid


def _split(over: Sequence[str], faults: list[Fault]) -> dict[str, Values]:
    """Cut ``nodes=1..64`` into key and text."""
    found: dict[str, Values] = {}
    for text in over:
        key, equals, values = text.partition("=")
        key = key.strip()
        place = f"--over {short(key)}".rstrip()
        if not key or not equals or not values.strip():
            faults.append(Fault(place, "", f"'{short(text)}' is no 'key=values'", EXAMPLE))
        elif key in found:
            faults.append(Fault(place, key, "this is swept twice", "keep one of them"))
        else:
            found[key] = values
    return found


def _axes(read: dict[tuple[str, ...], list[object]], taken: set[str], zipped: bool) -> list[Axis]:
    """Name the axes' columns, and write their values down."""
    last = [path[-1] for path in read]
    axes = []
    for path, values in read.items():
        name = path[-1]
        if name in taken or last.count(name) > 1:
            name = "_".join(path)
        texts = [json.dumps(value, ensure_ascii=False) for value in values]
        if not zipped:  # the same value twice is the same problem twice
            texts = list(dict.fromkeys(texts))
        cells = tuple(_cell(text) for text in texts)
        axes.append(Axis(column=name, key=".".join(path), values=cells, texts=tuple(texts)))
    return axes


def _cell(text: str) -> Cell:
    """Return a value as the table shows it; flags as the words that a spec has for them."""
    value = json.loads(text)
    if isinstance(value, bool | list | dict):
        return text
    assert value is None or isinstance(value, str | int | float)
    return value


def _refuse_sizes(grid: Grid) -> None:
    """Refuse axes of unequal length side by side, and more problems than anyone waits for."""
    sizes = {axis.column: len(axis.values) for axis in grid.axes}
    told = ", ".join(f"{name} {size:,}" for name, size in sizes.items())
    if grid.zipped and len(set(sizes.values())) > 1:
        problem = f"axes side by side differ in length: {told}"
        raise InputError([Fault("--zip", "", problem, "give each as many values, or leave it out")])
    if math.prod(sizes.values()) > MOST_POINTS and not grid.zipped:
        problem = f"{math.prod(sizes.values()):,} problems are too many ({told})"
        raise InputError([Fault("--over", "", problem, f"at most {MOST_POINTS:,}")])


def _values(given: Values, path: tuple[str, ...], place: str, faults: list[Fault]) -> list[object]:
    """Read the values of one axis."""
    if isinstance(given, str):
        return _from_text(given.strip(), path, place, faults)
    if isinstance(given, Mapping) or not isinstance(given, Iterable):
        problem = f"a {type(given).__name__} is no list of values"
        faults.append(Fault(place, ".".join(path), problem, "give a list, or text such as 1..64"))
        return []
    found: list[object] = []
    for value in given:
        if len(found) > MOST_VALUES:
            break
        plain = value.item() if hasattr(value, "item") else value  # a NumPy number
        try:
            json.dumps(plain, allow_nan=False)
        except (TypeError, ValueError):
            problem = f"{short(repr(value))} is no value of a spec"
            faults.append(Fault(place, ".".join(path), problem, "a number, a text, a list"))
            continue
        found += _expanded(plain, place, path, faults)
    return _not_too_many(found, path, place, faults)


def _from_text(text: str, path: tuple[str, ...], place: str, faults: list[Fault]) -> list[object]:
    """Read ``1..64``, ``[4096, 8192]``, ``4096, 8192`` or one value."""
    listed = text.startswith("[")
    if not listed and not text.startswith("{") and "," in text:
        text, listed = f"[{text}]", True
    node = Composer(text, "", fixed=place, root=path).compose(faults)
    if node is None or node.value is REFUSED:
        return []
    plain = node.plain()
    values = plain if listed and isinstance(plain, list) else [plain]
    found = [one for value in values for one in _expanded(value, place, path, faults)]
    return _not_too_many(found, path, place, faults)


def _not_too_many(
    found: list[object], path: tuple[str, ...], place: str, faults: list[Fault]
) -> list[object]:
    """Refuse an axis of too many values."""
    if len(found) > MOST_VALUES:
        problem = f"an axis of more than {MOST_VALUES:,} values is too long"
        faults.append(Fault(place, ".".join(path), problem, "take larger steps: 1..1000000+1000"))
        return []
    return found


def _expanded(
    value: object, place: str, path: tuple[str, ...], faults: list[Fault]
) -> list[object]:
    """Write out a range: ``1..4``, ``8..64+8`` in steps of 8, ``1..64*2`` doubling."""
    match = _RANGE.fullmatch(value.replace(" ", "")) if isinstance(value, str) else None
    if match is None:
        return [value]
    low, high, step = int(match[1]), int(match[2]), int(match[4] or 1)

    def refuse(problem: str, remedy: str) -> list[object]:
        faults.append(Fault(place, ".".join(path), problem, remedy))
        return []

    if high < low:
        return refuse(f"'{match[0]}' runs downwards", f"write {high}..{low}")
    if match[3] == "*":
        if step < 2 or low < 1:
            return refuse(f"'{match[0]}' does not grow", "begin at 1 or more, and multiply by 2")
        found: list[object] = []
        while low <= high:
            found.append(low)
            low *= step
        return found
    if step < 1:
        return refuse(f"'{match[0]}' does not grow", "write a step of 1 or more")
    # One more than allowed is enough to be told that it is too many.
    return list(range(low, min(high, low + MOST_VALUES * step) + 1, step))
