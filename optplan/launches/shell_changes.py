"""What the brackets of a shell variable may do to its value: cut, replace, slice."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable


def _cut_front(text: str, pattern: str, longest: bool) -> str:
    """Cut off what a pattern matches at the front."""
    sizes = range(len(text), -1, -1) if longest else range(len(text) + 1)
    hit = next((n for n in sizes if fnmatch.fnmatchcase(text[:n], pattern)), 0)
    return text[hit:]


def _cut_back(text: str, pattern: str, longest: bool) -> str:
    """Cut off what a pattern matches at the back."""
    sizes = range(len(text) + 1) if longest else range(len(text), -1, -1)
    hit = next((n for n in sizes if fnmatch.fnmatchcase(text[n:], pattern)), len(text))
    return text[:hit]


def _slice(text: str, argument: str) -> str:
    """Take ``${X:offset:length}``."""
    numbers = argument.split(":")
    if not all(re.fullmatch(r"\s*-?\d{1,9}\s*", n) for n in numbers):
        return text
    first = int(numbers[0])
    return text[first : first + int(numbers[1])] if len(numbers) > 1 else text[first:]


def _replaced(text: str, argument: str, every: bool) -> str:
    """Take ``${X/a/b}``."""
    old, _, new = argument.partition("/")
    return text.replace(old, new, -1 if every else 1) if old else text


CHANGES: dict[str, Callable[[str, str], str]] = {
    "#": lambda text, pattern: _cut_front(text, pattern, False),
    "##": lambda text, pattern: _cut_front(text, pattern, True),
    "%": lambda text, pattern: _cut_back(text, pattern, False),
    "%%": lambda text, pattern: _cut_back(text, pattern, True),
    "/": lambda text, argument: _replaced(text, argument, False),
    "//": lambda text, argument: _replaced(text, argument, True),
    ",,": lambda text, _: text.lower(),
    "^^": lambda text, _: text.upper(),
    ",": lambda text, _: text[:1].lower() + text[1:],
    "^": lambda text, _: text[:1].upper() + text[1:],
    ":": _slice,
}
