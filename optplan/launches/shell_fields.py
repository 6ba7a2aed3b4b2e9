"""Words of a command in the making."""

from __future__ import annotations

from optplan.launches.shell_text import Marked

BLANK = " \t\r\n"


class Fields:
    """Words on the way, as quotes and blanks cut them."""

    def __init__(self) -> None:
        self.done: list[Marked] = []
        self._text: list[str] = []
        self._at: list[int] = []
        self._begun = False

    def begin(self) -> None:
        """Make a word even where nothing follows, as a pair of quotes does."""
        self._begun = True

    def add(self, some: Marked) -> None:
        """Go on with the word."""
        self._begun = True
        self._text.append(some.text)
        self._at.extend(some.at)

    def cut(self) -> None:
        """End the word, if there is one."""
        if self._begun:
            self.done.append(Marked("".join(self._text), tuple(self._at)))
        self._text, self._at, self._begun = [], [], False

    def spread(self, some: Marked) -> None:
        """Go on with a text that blanks cut into words."""
        first = 0
        for i, letter in enumerate(some.text):
            if letter in BLANK:
                if i > first:
                    self.add(Marked(some.text[first:i], some.at[first:i]))
                self.cut()
                first = i + 1
        if first < len(some.text):
            self.add(Marked(some.text[first:], some.at[first:]))
