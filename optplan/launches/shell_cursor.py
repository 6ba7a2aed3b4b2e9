"""Where the reading of a script stands, and what it has seen."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field

from optplan.launches.shell_text import Inline, Marked, Word
from optplan.launches.shell_words import Words

DECLARE = ("export", "declare", "local", "readonly", "typeset")
"""Commands whose arguments assign."""


@dataclass(frozen=True)
class Command:
    """
    One command.

    Parameters
    ----------
    words
        Its words, expanded.
    line
        Line where it begins, from 1.
    environment
        Variables that it sees: exported ones, and those set in front of it.
    """

    words: tuple[Word, ...]
    line: int
    environment: Mapping[str, Word]


@dataclass
class Frame:
    """A branch or loop that is open."""

    kind: str
    outer: bool
    """Whether what stands around it would run."""
    taken: bool = False
    """Whether one of its branches was."""
    active: bool = True
    value: str | None = None
    """What a ``case`` looks at; None where it is not known."""


@dataclass
class Pending:
    """A text that follows the line: ``<<EOF``."""

    end: str
    plain: bool
    """Whether variables in it stay as they are."""
    tabs: bool
    """Whether leading tabs go."""
    at: int
    names: list[str] = field(default_factory=list)
    active: bool = True


class Cursor(ABC):
    """A script and the place in it."""

    def __init__(self, words: Words) -> None:
        self.words = words
        self.text = words.text
        self.at = 0
        self.commands: list[Command] = []
        self.files: dict[str, Inline] = {}
        self.exported: dict[str, None] = {}
        self.frames: list[Frame] = []
        self.pending: list[Pending] = []
        self.status = True
        self.joint = ""
        """``&&`` or ``||`` before the next command, or ``!``."""
        self.negated = False

    @property
    def active(self) -> bool:
        """Whether what comes next would run."""
        return not self.frames or self.frames[-1].active

    @abstractmethod
    def _skip(self) -> bool:
        """Go to the next statement; false at the end."""

    @abstractmethod
    def _simple(self, runs: bool = False) -> list[Marked]:
        """Read words to the end of a command."""

    def _blanks(self) -> None:
        """Skip blanks within a line."""
        text = self.text
        while self.at < len(text):
            if text[self.at] in " \t\r":
                self.at += 1
            elif text[self.at] == "\\" and re.match(r"\\\r?\n", text[self.at : self.at + 3]):
                self.at += 2 + (text[self.at + 1] == "\r")
            else:
                return

    def _runs(self) -> bool:
        """Tell whether ``&&`` or ``||`` before a command lets it run."""
        return self.joint != "&&" if not self.status else self.joint != "||"

    def _done(self, success: bool, runs: bool) -> None:
        """Keep the status of a command for what joins the next one to it."""
        if runs:
            self.status = success != self.negated
        self.negated = False
        self.joint = ""
