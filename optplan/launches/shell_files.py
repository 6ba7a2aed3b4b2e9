"""Texts that a script writes to files: ``cat > name <<EOF``."""

from __future__ import annotations

import re

from optplan.launches.shell_cursor import Cursor, Pending
from optplan.launches.shell_fields import Fields
from optplan.launches.shell_text import Inline, Marked
from optplan.launches.shell_words import Words


class Files(Cursor):
    """Takes redirections, and the texts that follow a line."""

    def _redirection(self, targets: list[str], mine: list[Pending], runs: bool) -> None:
        """Take ``> file``, ``2>&1``, ``<<EOF``."""
        text, start = self.text, self.at
        found = re.compile(r"<<<|<<-?|>>|>&|<&|>\||<>|[<>]").match(text, start)
        assert found is not None
        sign = found[0]
        self.at = found.end()
        self._blanks()
        first, fields = self.at, Fields()
        if self.at < len(text) and text[self.at] == "(":
            self.at = self.words.closing_of(self.at, "(", ")")
            return
        self.at = self.words.read(self.at, fields, split=False)
        fields.cut()
        if not fields.done:
            return
        word = fields.done[0].text
        if sign in ("<<", "<<-"):
            plain = any(letter in text[first : self.at] for letter in "'\"\\")
            one = Pending(word, plain, sign == "<<-", start, active=runs)
            mine.append(one)
            self.pending.append(one)
        elif sign in (">", ">>", ">|"):
            targets.append(word)

    def _texts(self) -> None:
        """Read the texts that follow a line."""
        pending, self.pending = self.pending, []
        for one in pending:
            start, text = self.at, self.text
            while True:
                end = text.find("\n", self.at)
                stop = len(text) if end < 0 else end
                line = text[self.at : stop].rstrip("\r")
                if (line.lstrip("\t") if one.tabs else line) == one.end:
                    last, self.at = self.at, min(stop + 1, len(text))
                    break
                if end < 0:
                    problem = f"the text that ends with {one.end[:40]} has no end"
                    raise self.words.refuse(
                        one.at, problem, f"write {one.end[:40]} on its own line"
                    )
                self.at = stop + 1
            if not one.active:
                continue
            if one.plain:
                content = Marked(text[start:last], self.words.places(start, last))
            else:
                content = self.words.inside(start, last)
            whole = self.words.word(content, start)
            at = content.at if not whole.unknown else _spread(self.words, content)
            for name in one.names:
                line_ = self.words.line(start)
                self.files[name] = Inline(name, whole.text, at, line_, whole.unknown)


def _spread(words: Words, content: Marked) -> tuple[int, ...]:
    """Return origins of a text whose unknown variables are written out by name."""
    at: list[int] = []
    for letter, origin in zip(content.text, content.at, strict=True):
        at += [origin] * len(words.plain(Marked(letter, (origin,))))
    return tuple(at)
