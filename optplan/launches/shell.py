r"""
A shell script read without being run: its commands, variables and the files it writes.

    script = read_script(Source(text, given={"NNODES": "4"}))
    for command in script.commands:
        command.words            # Word(text, line, span, unknown, written), quotes and blanks gone
        command.environment      # what is exported, or stands before the command: name -> Word
    script.variables["TP"]       # the last value of a variable, a Word
    script.files["ds.json"]      # cat > ds.json <<EOF: an Inline(name, text, at, line)

A word knows the characters that decide it (``span``): with ``TP=8`` and
``--tensor-model-parallel-size $TP`` that is the ``8`` of the first line, with ``${TP:-8}`` the one
in the brackets, and in ``ARGS="--x 1"`` the one in the quotes. Where it was worked out
(``$((A * B))``) or comes from outside (``$NNODES``), there is no span and ``written`` is the
expression. A variable that nobody sets stays in the word as ``${NAME}`` and is named in
``unknown``; tests of conditions take it for empty, as it is when nobody exports it. Of ``if`` and
``case`` the branch is followed that the values known lead to; a command in a condition that is no
test is taken to succeed, and a loop is gone through once. Nothing is ever executed.
What ``bash -c '...'`` is told to run is read too, behind the words that stand before it.
``read_arguments`` reads a bare list of options, over as many lines as it likes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from optplan.launches.shell_branches import Branches
from optplan.launches.shell_cursor import DECLARE, Command, Pending
from optplan.launches.shell_fields import Fields
from optplan.launches.shell_files import Files
from optplan.launches.shell_sums import work_out
from optplan.launches.shell_tests import holds
from optplan.launches.shell_text import EMPTY, PRIVATE, Inline, Marked, Source, Word
from optplan.launches.shell_words import DEEPEST, Words

__all__ = ["Command", "Inline", "Script", "Source", "Word", "read_arguments", "read_script"]

MOST_COMMANDS = 100_000
"""Commands of a script; a file with more is none."""

_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(?:\[([^\]\n]*)\])?(\+?)=", re.ASCII)
_FUNCTION = re.compile(r"(?:function[ \t]+[\w.-]+[ \t]*(?:\(\))?|[\w.-]+[ \t]*\([ \t]*\))[ \t]*")


@dataclass(frozen=True)
class Script:
    """
    A script, read.

    Parameters
    ----------
    commands
        Commands that would run, in order, without assignments.
    variables
        Last value of every variable that is no array.
    files
        Files that it writes from text of its own, by name.
    """

    commands: tuple[Command, ...]
    variables: Mapping[str, Word]
    files: Mapping[str, Inline]


def read_script(text: str) -> Script:
    """
    Read a script.

    Parameters
    ----------
    text
        The script; a `Source` also says what variables its caller sets.

    Raises
    ------
    InputError
        A quote or bracket is never closed, or variables grow without end.
    """
    return _Reader(Words(text, getattr(text, "given", {}))).script()


def read_arguments(text: str) -> tuple[Word, ...]:
    """
    Read options that stand alone, over as many lines as they like.

    Raises
    ------
    InputError
        As `read_script`.
    """
    return tuple(word for command in read_script(text).commands for word in command.words)


class _Reader(Branches, Files):
    """Goes through a script once, line by line."""

    def script(self) -> Script:
        """Read everything."""
        while self._skip():
            self._statement()
            if len(self.commands) > MOST_COMMANDS:
                raise self.words.refuse(self.at, "too many commands", "name a launch script")
        scalars = self.words.scalars
        variables = {name: self.words.word(value, 0) for name, value in scalars.items()}
        return Script(tuple(self.commands), variables, self.files)

    def _skip(self) -> bool:
        """Go to the next statement; false at the end."""
        text = self.text
        while self.at < len(text):
            letter = text[self.at]
            if letter == "\n":
                self.at += 1
                self._texts()
            elif letter in " \t\r;":
                if text.startswith(";;", self.at):
                    self._end_of_case()
                    continue
                self.at += 1
            elif letter == "\\" and text[self.at + 1 : self.at + 2] in ("\n", "\r"):
                self.at += 2 + text.startswith("\r\n", self.at + 1)
            elif letter == "#":
                end = text.find("\n", self.at)
                self.at = len(text) if end < 0 else end
            elif text.startswith(("&&", "||"), self.at):
                self.joint = text[self.at : self.at + 2]
                self.at += 2
            elif letter in "&|()<>" and not text.startswith("((", self.at):
                self.at += 1
            else:
                return True
        return False

    def _statement(self) -> None:
        """Read a reserved word, a function's head, or a command."""
        text = self.text
        head = _FUNCTION.match(text, self.at)
        if head and not text.startswith("((", self.at):
            self.at = head.end()
            return
        frame = self.frames[-1] if self.frames else None
        if frame and frame.kind == "case-pattern" and not self._keyword("esac"):
            self._pattern(frame)
            return
        found = re.compile(r"[a-z]+|[{}!]|\[\[?|\(\(").match(text, self.at)
        word = found[0] if found else ""
        end = self.at + len(word)
        alone = end >= len(text) or text[end] in " \t\r\n;&|()" or word == "(("
        if alone and word and self._reserved(word):
            return
        self._command()

    # -- commands ---------------------------------------------------------------------------------

    def _command(self) -> None:
        """Read one command with its assignments and redirections."""
        start, line = self.at, self.words.line(self.at)
        runs = self.active and self._runs()
        before: dict[str, Marked] = {}
        if self.text.startswith("((", start):
            end = self.words.closing_of(start, "(", ")")
            inner = self.words.plain(self.words.inside(start + 2, end - 2))
            self.at = end
            self._done(bool(work_out(inner, self.words.known)), runs)
            return
        while True:
            self._blanks()
            found = _ASSIGNMENT.match(self.text, self.at)
            if found is None:
                break
            self._assign(found, runs, before)
        parts = self._simple(runs)
        if parts and runs:
            self._perform(parts, before, line)
        else:
            self._done(True, runs)

    def _perform(self, parts: list[Marked], before: dict[str, Marked], line: int) -> None:
        """Note a command, or what it does to variables."""
        name = parts[0].text
        words = self.words
        if name in ("[", "[[", "test"):
            self._done(
                holds([words.plain(p) if _open(p) else p.text for p in parts], words.known), True
            )
            return
        if name in ("true", "false", ":"):
            self._done(name != "false", True)
            return
        if name in DECLARE:
            for part in parts[1:]:
                key = part.text.partition("=")[0]
                if re.fullmatch(r"[A-Za-z_]\w*", key):
                    self.exported[key] = None
            self._done(True, True)
            return
        if name == "unset":
            for part in parts[1:]:
                words.scalars.pop(part.text, None)
                words.arrays.pop(part.text, None)
        environment = {
            key: words.word(value, self.at)
            for key in self.exported
            if (value := words.value_of(key)) is not None
        }
        environment |= {key: words.word(value, self.at) for key, value in before.items()}
        # What a command has in front of it is no variable of the script.
        told = tuple(words.word(part, self.at) for part in parts)
        inside = self._inside(parts)
        self.commands += [
            Command((*told[: len(told) - 1], *c.words), line, environment | dict(c.environment))
            for c in inside
        ]
        if not inside:
            self.commands.append(Command(told, line, environment))
        self._done(True, True)

    def _inside(self, parts: list[Marked]) -> tuple[Command, ...]:
        """Read what a shell is told to run: the words before it stand in front of each command."""
        if len(parts) < 3 or parts[-2].text not in ("-c", "-lc", "-ec", "-xc", "-exc"):
            return ()
        if parts[-3].text.rpartition("/")[2] not in ("bash", "sh") or len(parts[-1].text) > 10**6:
            return ()
        around = (self.words, parts[-1].at)
        inner = _Reader(Words(parts[-1].text, self.words.given, around))
        inner.exported, inner.files = self.exported, self.files
        if inner.words.depth > DEEPEST:
            return ()
        return inner.script().commands

    def _assign(self, found: re.Match[str], runs: bool, before: dict[str, Marked]) -> None:
        """Take ``NAME=value``, ``NAME+=value``, ``NAME=( ... )``."""
        name, index, more = found.groups()
        words = self.words
        self.at = found.end()
        if self.text.startswith("(", self.at):
            self.at += 1
            fields = Fields()
            while True:
                self._between()
                if self.at >= len(self.text):
                    place = found.end()
                    raise words.refuse(place, "a list ( is never closed", "close it")
                if self.text[self.at] == ")":
                    self.at += 1
                    break
                was = self.at
                self.at = words.read(self.at, fields)
                self.at += self.at == was
                fields.cut()
            if runs:
                old = words.arrays.get(name, []) if more else []
                if more and not old and name in words.scalars:
                    old = [words.scalars[name]]
                words.arrays[name] = [*old, *fields.done]
                words.scalars.pop(name, None)
            return
        fields = Fields()
        self.at = words.read(self.at, fields, split=False)
        fields.cut()
        value = fields.done[0] if fields.done else EMPTY
        if not runs:
            return
        if index is not None:
            which = work_out(index, words.known)
            some = words.arrays.setdefault(name, [])
            if which is not None and 0 <= which < len(some):
                some[which] = value
            elif which is None or which == len(some):
                some.append(value)
            return
        if more and name in words.arrays:
            words.arrays[name] = [*words.arrays[name], value]
            return
        if more and name in words.scalars:
            value = words.scalars[name].plus(value)
            if len(value.text) > 1_000_000:
                raise words.refuse(self.at, "variables grow without end", "name a launch script")
        words.arrays.pop(name, None)
        words.scalars[name] = value
        before[name] = value

    def _between(self) -> None:
        """Skip blanks, lines and comments between the elements of a list."""
        text = self.text
        while self.at < len(text):
            self._blanks()
            if self.at < len(text) and text[self.at] == "\n":
                self.at += 1
            elif self.at < len(text) and text[self.at] == "#":
                end = text.find("\n", self.at)
                self.at = len(text) if end < 0 else end
            else:
                return

    def _simple(self, runs: bool = False) -> list[Marked]:
        """Read words to the end of a command."""
        fields, text = Fields(), self.text
        targets: list[str] = []
        mine: list[Pending] = []
        double = text.startswith("[[ ", self.at)
        while True:
            self._blanks()
            if self.at >= len(text):
                break
            letter = text[self.at]
            if letter == "\n" or (letter in ";&|()" and not double):
                if text.startswith("&>", self.at):
                    self.at += 1
                    continue
                break
            if double and letter == ";":
                break
            if letter == "#":
                end = text.find("\n", self.at)
                self.at = len(text) if end < 0 else end
                break
            if letter in "<>" and not double:
                self._redirection(targets, mine, runs)
                continue
            if double and letter in "<>&|()":
                stop = self.at + 1 + text.startswith(("&&", "||"), self.at)
                fields.add(Marked(text[self.at : stop], self.words.places(self.at, stop)))
                fields.cut()
                self.at = stop
                continue
            declared = fields.done and fields.done[0].text in DECLARE
            found = _ASSIGNMENT.match(text, self.at) if declared else None
            if found is not None:
                start = self.at
                self._assign(found, runs, {})
                key = found[1]
                fields.add(Marked(key + "=", self.words.places(start, start + len(key) + 1)))
                fields.cut()
                continue
            was = self.at
            self.at = self.words.read(self.at, fields, split=not double)
            self.at += self.at == was
            fields.cut()
            if double and fields.done and fields.done[-1].text == "]]":
                break
            if text[was : self.at].isdigit() and text[self.at : self.at + 1] in ("<", ">"):
                fields.done.pop()
        if mine and fields.done and fields.done[0].text == "tee":
            targets += [part.text for part in fields.done[1:] if not part.text.startswith("-")]
        for one in mine:
            one.names += [self.words.plain(Marked(t, (0,) * len(t))) for t in targets]
        return fields.done


def _open(part: Marked) -> bool:
    """Tell whether a text depends on what nobody sets."""
    return any(ord(letter) in PRIVATE for letter in part.text)
