"""Text that remembers, character by character, where in a file it was written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

PRIVATE = range(0xE000, 0xF8FF)
"""Characters that stand for variables nobody sets; a script that has them loses them."""

WORKED = -2
"""
A character that was worked out, or given from outside, has ``WORKED - n`` for its origin, where the
expression that stands for it begins at character n.
"""


class Marked(NamedTuple):
    """A text and the origin of each of its characters."""

    text: str
    at: tuple[int, ...]

    def plus(self, other: Marked) -> Marked:
        """Join two texts."""
        return Marked(self.text + other.text, self.at + other.at)


EMPTY = Marked("", ())


def worked_out(text: str, start: int) -> Marked:
    """Mark a text that no place of the file holds, but an expression there stands for."""
    return Marked(text, (WORKED - start,) * len(text))


@dataclass(frozen=True)
class Word:
    """
    One word of a command, as the shell would hand it over.

    Parameters
    ----------
    text
        The word, expanded. A variable that nobody sets stands as ``${NAME}``.
    line
        Line of the literal that decides it, from 1.
    span
        Characters of the file that hold the word and nothing else, first and one past last; None
        where no single place does.
    unknown
        Variables it depends on that nobody sets.
    written
        Where there is no span: characters of the one expression that the whole word comes from,
        such as ``$((A * B))`` or ``$NNODES``; None where the word is made of several parts.
    """

    text: str
    line: int
    span: tuple[int, int] | None = None
    unknown: tuple[str, ...] = ()
    written: tuple[int, int] | None = None

    @property
    def known(self) -> bool:
        """Nothing of it depends on what nobody sets."""
        return not self.unknown


def span_of(at: Iterable[int]) -> tuple[int, int] | None:
    """Return the place that holds characters of these origins, if it is one."""
    places = list(at)
    if not places or places[0] < 0:
        return None
    first = places[0]
    if places != list(range(first, first + len(places))):
        return None
    return first, first + len(places)


@dataclass(frozen=True)
class Inline:
    """
    A file that a script writes itself: ``cat > ds.json <<EOF``.

    Parameters
    ----------
    name
        The file's name.
    text
        Its content, variables expanded.
    at
        Origin of every character.
    line
        Line where the content begins.
    unknown
        Variables in it that nobody sets.
    """

    name: str
    text: str
    at: tuple[int, ...]
    line: int
    unknown: tuple[str, ...] = ()

    def span(self, first: int, last: int) -> tuple[int, int] | None:
        """Return the characters of the script that hold a part of the content."""
        return span_of(self.at[first:last])


class Source(str):
    """
    The text of a launch with what its caller adds: values of variables, and its folder.

    A dialect's ``read`` takes it for the plain text it is.
    """

    given: Mapping[str, str]
    folder: str

    def __new__(
        cls, text: str, given: Mapping[str, str] | None = None, folder: str = "."
    ) -> Source:
        """Make one from a text."""
        self = super().__new__(cls, text)
        self.given, self.folder = dict(given or {}), folder
        return self
