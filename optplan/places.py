"""Where every value of an input was written, whichever way it came in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from optplan.models.errors import Fault, OptplanError

Path: TypeAlias = tuple[str | int, ...]
"""The keys and positions that lead to a value, from the top."""

LARGEST = 10_000
"""Values that an input may hold once its aliases are written out."""

DEEPEST = 40
"""Levels that an input may nest; every walk over it may recurse because of this."""


class Refusal(OptplanError):
    """Something an input names cannot be used; whoever knows the place turns it into a fault."""

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(f"{problem}; {remedy}")
        self.problem = problem
        self.remedy = remedy


class Refused:
    """Stands where a faulty value stood, so that one mistake is reported once."""

    def __repr__(self) -> str:
        """Name it in a debugger."""
        return "REFUSED"


REFUSED: Final = Refused()


@dataclass(frozen=True)
class Node:
    """
    One value and where it was written.

    Parameters
    ----------
    value
        A scalar, or a mapping or list of further nodes.
    place
        Such as ``spec.yaml:7:31`` or ``--set tp``; empty for an input built in Python.
    text
        The value as it was written, for quotation; short and on one line.
    keys
        Of a mapping: the place of each key.
    inside
        Of a text that stands in a file as it is: file, line and column of its first character.
    size, depth
        Values in all, and levels below.
    """

    value: object
    place: str = ""
    text: str = ""
    keys: Mapping[str, str] = field(default_factory=dict)
    inside: tuple[str, int, int] | None = None
    size: int = 1
    depth: int = 0

    def at(self, offset: int) -> str:
        """Return the place of one character of the text, counted from 0."""
        if self.inside is None:
            return self.place
        name, line, column = self.inside
        return f"{name}:{line}:{column + offset}"

    def child(self, key: str | int) -> Node | None:
        """Return the value under a key or position, if there is one."""
        if isinstance(self.value, dict) and isinstance(key, str):
            found = self.value.get(key)
            return found if isinstance(found, Node) else None
        if isinstance(self.value, list) and isinstance(key, int) and 0 <= key < len(self.value):
            found = self.value[key]
            return found if isinstance(found, Node) else None
        return None

    def find(self, path: Path) -> Node | None:
        """Return the value under a path, if there is one."""
        node: Node | None = self
        for key in path:
            node = node.child(key) if node is not None else None
        return node

    def plain(self) -> object:
        """Return the value without its places."""
        if isinstance(self.value, dict):
            return {key: node.plain() for key, node in self.value.items()}
        if isinstance(self.value, list):
            return [node.plain() for node in self.value]
        return self.value

    def put(self, key: str, value: Node, place: str) -> Node:
        """Return this mapping with one key added or replaced; shared nodes stay as they are."""
        assert isinstance(self.value, dict)
        return replace(
            self, value=self.value | {key: value}, keys={**self.keys, key: place}, text="a mapping"
        )

    def without(self, key: str) -> Node:
        """Return this mapping without one key."""
        assert isinstance(self.value, dict)
        return replace(self, value={k: node for k, node in self.value.items() if k != key})


def mapping(place: str = "") -> Node:
    """Return an empty mapping."""
    return Node({}, place, "a mapping")


def short(text: str) -> str:
    """Bring a quotation to one line of at most 60 characters."""
    line = " ".join(text.split())
    return line if len(line) <= 60 else f"{line[:57]}..."


def dots(path: Path) -> str:
    """Write a path as ``search.tp.max``."""
    return ".".join(map(str, path))


def from_python(value: object, faults: list[Fault], path: Path = ()) -> Node:
    """
    Give an input that was built in Python the same shape as one from a file.

    Parameters
    ----------
    value
        Mappings, lists and scalars; any other object is passed on for the records to judge.
    faults
        Receives what is wrong.
    path
        Where the value stands.
    """

    def refuse(problem: str, remedy: str) -> Node:
        faults.append(Fault("", dots(path), problem, remedy))
        return Node(REFUSED)

    if len(path) > DEEPEST:
        return refuse(f"the input nests deeper than {DEEPEST} levels", "flatten it")
    if isinstance(value, Mapping):
        if len(value) > LARGEST:
            return refuse(f"a mapping of {len(value)} keys is too large", "shorten it")
        inner: dict[str, Node] = {}
        for key, item in value.items():
            if isinstance(key, str):
                inner[key] = from_python(item, faults, (*path, key))
            else:
                refuse(f"key {short(repr(key))} is no text", "write keys such as 'tp'")
        return Node(inner, text="a mapping", keys=dict.fromkeys(inner, ""))
    if isinstance(value, list | tuple):
        if len(value) > LARGEST:
            return refuse(f"a list of {len(value)} values is too long", "write a range {min, max}")
        items = [from_python(item, faults, (*path, index)) for index, item in enumerate(value)]
        return Node(items, text="a list")
    if isinstance(value, float) and (value != value or abs(value) == float("inf")):
        return refuse(f"{value} is no finite number", "write a finite number")
    if isinstance(value, int) and abs(value) >= 10**18:
        return refuse("a whole number of more than 18 digits is too large", "write a smaller one")
    return Node(value, text=_python_text(value))


def _python_text(value: object) -> str:
    """Quote a Python value as it would be written in YAML."""
    words = {None: "null", True: "true", False: "false"}
    if value is None or isinstance(value, bool):
        return words[value]
    if isinstance(value, str | int | float):
        return short(str(value))
    return f"a {type(value).__name__}"
