"""Words of a shell script: quotes, variables, defaults, arrays and sums, never executed."""

from __future__ import annotations

import bisect
import re
from collections.abc import Mapping

from optplan.launches.shell_changes import CHANGES
from optplan.launches.shell_fields import Fields
from optplan.launches.shell_sums import work_out
from optplan.launches.shell_text import EMPTY, PRIVATE, WORKED, Marked, Word, span_of, worked_out
from optplan.models.errors import Fault, InputError

MOST = 4_000_000
"""Characters that all expansions of a script may have together."""

DEEPEST = 40
"""Expansions inside expansions."""

BREAKS = " \t\r\n;&|<>()"
"""Characters that end a word outside quotes."""

_NAME = re.compile(r"[A-Za-z_]\w*|[0-9]+|[@*#?$!-]", re.ASCII)
_PLAIN = re.compile(r"[A-Za-z_]\w*|[0-9@*#?$!-]", re.ASCII)
_OPERATORS = (":-", ":=", ":+", ":?", "%%", "##", "//", "^^", ",,", *"-=+?%#/:^,")
_BC = re.compile(r"""\s*echo\s+["']?([^"'|]*)["']?\s*\|\s*bc(?:\s+-l)?\s*""")


class Words:
    """
    Reads words of a script and keeps its variables.

    Parameters
    ----------
    text
        The script.
    given
        Values of variables that its caller sets; they win over the script's own.
    around
        Where the text is a word of another script (``bash -c '...'``): that script's words, whose
        variables it shares, and the origin of every character.
    """

    def __init__(
        self,
        text: str,
        given: Mapping[str, str],
        around: tuple[Words, tuple[int, ...]] | None = None,
    ) -> None:
        low, high = chr(PRIVATE.start), chr(PRIVATE.stop)
        self.text = re.sub(f"[{low}-{high}]", "\ufffd", text)
        self.given = dict(given)
        self.scalars: dict[str, Marked] = {}
        self.arrays: dict[str, list[Marked]] = {}
        self._names: list[str] = []
        self._ends: dict[int, int] = {}
        self._spent = 0
        self.depth = 0
        self._breaks = [i for i, letter in enumerate(self.text) if letter == "\n"]
        self._origin: tuple[int, ...] | None = None
        if around is not None:
            outer, self._origin = around
            self.text = text
            self.scalars, self.arrays = outer.scalars, outer.arrays
            self._names, self._ends, self._breaks = outer._names, outer._ends, outer._breaks
            self._spent, self.depth = outer._spent, outer.depth + 1

    # -- places -----------------------------------------------------------------------------------

    def place(self, at: int) -> int:
        """Place in the file of a character of the text."""
        if self._origin is None:
            return at
        here = self._origin[min(at, len(self._origin) - 1)] if self._origin else 0
        return here if here >= 0 else max(0, WORKED - here)

    def places(self, first: int, last: int) -> tuple[int, ...]:
        """Origins of a stretch of the text."""
        return tuple(range(first, last)) if self._origin is None else self._origin[first:last]

    def line(self, at: int) -> int:
        """Line of a character of the text, from 1."""
        return self._line(self.place(at))

    def _line(self, place: int) -> int:
        """Line of a place in the file."""
        return bisect.bisect_left(self._breaks, place) + 1

    def refuse(self, at: int, problem: str, remedy: str) -> InputError:
        """Make the error of a script that cannot be read."""
        return InputError([Fault(f"line {self.line(at)}", "", problem, remedy)])

    def word(self, some: Marked, used: int) -> Word:
        """Finish a word that is used at a character."""
        hidden = [letter for letter in some.text if ord(letter) in PRIVATE]
        names = tuple(dict.fromkeys(self._names[ord(h) - PRIVATE.start] for h in hidden))
        span = None if names else span_of(some.at)
        first = some.at[0] if some.at else 0
        written = None
        if span is None and first <= WORKED and len(set(some.at)) == 1:
            written = (WORKED - first, self._ends.get(first, WORKED - first))
        place = first if first >= 0 else WORKED - first
        line = self._line(place) if some.at else self.line(used)
        return Word(self.plain(some), line, span, names, written)

    def plain(self, some: Marked) -> str:
        """Return a text with unknown variables by name."""
        text = some.text
        for letter in {x for x in text if ord(x) in PRIVATE}:
            text = text.replace(letter, f"${{{self._names[ord(letter) - PRIVATE.start]}}}")
        return text

    # -- variables --------------------------------------------------------------------------------

    def value_of(self, name: str) -> Marked | None:
        """Return the value of a variable as far as it is known."""
        if name in self.given:
            return worked_out(self.given[name], 0)
        if name in self.arrays:
            return self.arrays[name][0] if self.arrays[name] else EMPTY
        return self.scalars.get(name)

    def known(self, name: str) -> str | None:
        """Return the value of a variable where all of it is known."""
        value = self.value_of(name)
        if value is None or any(ord(letter) in PRIVATE for letter in value.text):
            return None
        return value.text

    def _mark(self, start: int, end: int) -> int:
        """Remember where an expression stands; return the origin of what it makes."""
        first = self.place(start)
        self._ends[WORKED - first] = max(first, self.place(end - 1)) + 1
        return WORKED - first

    def _nobody(self, name: str, start: int, end: int) -> Marked:
        """Stand for a variable that nobody sets."""
        if name not in self._names:
            if len(self._names) >= len(PRIVATE):
                raise self.refuse(start, "too many variables", "name a launch script")
            self._names.append(name)
        letter = chr(PRIVATE.start + self._names.index(name))
        return Marked(letter, (self._mark(start, end),))

    # -- reading ----------------------------------------------------------------------------------

    def read(
        self, at: int, fields: Fields, split: bool = True, closing: str = "", quoted: bool = False
    ) -> int:
        """
        Read one word, or what it expands to, and return where it ends.

        Parameters
        ----------
        split
            Whether blanks in unquoted variables cut words.
        closing
            Bracket that ends the word instead of blanks.
        quoted
            Whether it all stands in double quotes, in which a single one is a letter.
        """
        text = self.text
        while at < len(text):
            letter = text[at]
            if letter == closing or (not closing and letter in BREAKS):
                break
            if letter == "\\":
                if text[at + 1 : at + 2] == "\n" or text[at + 1 : at + 3] == "\r\n":
                    at += 2 + (text[at + 1] == "\r")
                    continue
                fields.add(
                    Marked(text[at + 1 : at + 2], self.places(at + 1, at + 2)[: len(text) - at - 1])
                )
                at += 2
            elif letter == "'" and not quoted:
                end = text.find("'", at + 1)
                if end < 0:
                    raise self.refuse(at, "a quote ' is never closed", "close it")
                fields.begin()
                fields.add(Marked(text[at + 1 : end], self.places(at + 1, end)))
                at = end + 1
            elif letter == '"':
                fields.begin()
                at = self._quoted(at + 1, fields, '"')
            elif letter in "$`":
                parts, at = self._dollar(at, fields, quoted=False)
                for i, part in enumerate(parts):
                    if i:
                        fields.cut()
                    fields.spread(part) if split else fields.add(part)
            else:
                end = at + 1
                while end < len(text) and text[end] not in "\\'\"$`" + (closing or BREAKS):
                    end += 1
                fields.add(Marked(text[at:end], self.places(at, end)))
                at = end
        if closing and at >= len(text):
            raise self.refuse(at - 1, f"a bracket is never closed with {closing}", "close it")
        return at

    def _quoted(self, at: int, fields: Fields, end: str, limit: int | None = None) -> int:
        """Read to the closing quote, or to a limit where there is none to close."""
        text, start = self.text, at - 1
        last = len(text) if limit is None else limit
        while at < last:
            letter = text[at]
            if letter == end:
                return at + 1
            if letter == "\\" and text[at + 1 : at + 2] in ("$", "`", '"', "\\", "\n", "\r"):
                if text[at + 1] == "\r":
                    at += 3 if text[at + 2 : at + 3] == "\n" else 2
                    continue
                if text[at + 1] != "\n":
                    fields.add(Marked(text[at + 1], self.places(at + 1, at + 2)))
                at += 2
            elif letter in "$`":
                parts, at = self._dollar(at, fields, quoted=True)
                for i, part in enumerate(parts):
                    if i:
                        fields.cut()
                    fields.add(part)
            else:
                stop = at + 1
                while stop < last and text[stop] not in "\\$`" + end:
                    stop += 1
                fields.add(Marked(text[at:stop], self.places(at, stop)))
                at = stop
        if limit is not None:
            return at
        raise self.refuse(start, 'a quote " is never closed', "close it")

    def inside(self, start: int, end: int) -> Marked:
        """Expand a stretch of the script as if it stood in quotes."""
        fields = Fields()
        self._quoted(start, fields, "\x00", end)
        fields.cut()
        return fields.done[0] if fields.done else EMPTY

    def _dollar(self, at: int, fields: Fields, quoted: bool) -> tuple[list[Marked], int]:
        """Expand what begins with ``$`` or a back quote; several parts where an array stands."""
        self.depth += 1
        if self.depth > DEEPEST:
            raise self.refuse(at, "brackets are nested too deeply", "name a launch script")
        try:
            parts, end = self._expanded(at, quoted)
        finally:
            self.depth -= 1
        self._spent += sum(len(part.text) for part in parts) + len(parts)
        if self._spent > MOST:
            raise self.refuse(at, "variables grow without end", "name a launch script")
        return parts, end

    def _expanded(self, at: int, quoted: bool) -> tuple[list[Marked], int]:
        text = self.text
        if text[at] == "`":
            end = text.find("`", at + 1)
            if end < 0:
                raise self.refuse(at, "a back quote is never closed", "close it")
            return [self._command(text[at + 1 : end], at, end + 1)], end + 1
        if text.startswith("$((", at):
            end = self.closing_of(at + 1, "(", ")")
            return [self._sum(at, end)], end
        if text.startswith("$(", at):
            end = self.closing_of(at + 1, "(", ")")
            return [self._command(text[at + 2 : end - 1], at, end)], end
        if text.startswith("${", at):
            return self._braced(at, quoted)
        if text.startswith("$'", at) and not quoted:
            end = text.find("'", at + 2)
            if end < 0:
                raise self.refuse(at, "a quote ' is never closed", "close it")
            return [Marked(text[at + 2 : end], self.places(at + 2, end))], end + 1
        found = _PLAIN.match(text, at + 1)
        if found is None:
            return [Marked("$", self.places(at, at + 1))], at + 1
        return self._variable(found[0], at, found.end()), found.end()

    def closing_of(self, at: int, opening: str, closing: str) -> int:
        """Return one past the bracket that closes the one at a character."""
        depth, i, text = 0, at, self.text
        while i < len(text):
            letter = text[i]
            if letter == "\\":
                i += 1
            elif letter in "'\"":
                end = text.find(letter, i + 1)
                i = end if end > 0 else len(text)
            elif letter == opening:
                depth += 1
            elif letter == closing:
                depth -= 1
                if not depth:
                    return i + 1
            i += 1
        raise self.refuse(at, f"a bracket {opening} is never closed", "close it")

    def _sum(self, at: int, end: int) -> Marked:
        """Work out ``$(( ))``."""
        inner = self.inside(at + 3, end - 2)
        value = work_out(inner.text, self.known)
        if value is None:
            names = [n for n in re.findall(r"[A-Za-z_]\w*", self.plain(inner))]
            missing = next((n for n in names if self.known(n) is None), self.text[at:end][:80])
            return self._nobody(missing, at, end)
        return Marked(str(value), (self._mark(at, end),) * len(str(value)))

    def _command(self, command: str, at: int, end: int) -> Marked:
        """Take a command's output for unknown, unless it is a sum."""
        found = _BC.fullmatch(command)
        words = command.split()
        if found or words[:1] == ["expr"]:
            text = found[1] if found else " ".join(words[1:])
            first = self.text.find(text, at) if found else at
            if found and first >= 0:
                text = self.inside(first, first + len(text)).text
            value = work_out(
                text.replace("\\", " ").replace("'", " ").replace('"', " "), self.known
            )
            if value is not None:
                return Marked(str(value), (self._mark(at, end),) * len(str(value)))
        return self._nobody(f"({' '.join(words)[:60]})", at, end)

    def _variable(self, name: str, at: int, end: int) -> list[Marked]:
        """Return a plain variable."""
        if name in "@*" and name not in self.given:
            return [self._nobody(name, at, end)]
        value = self.value_of(name)
        if value is None:
            return [self._nobody(name, at, end)]
        if name in self.given:
            return [Marked(value.text, (self._mark(at, end),) * len(value.text))]
        return [value]

    def _braced(self, at: int, quoted: bool) -> tuple[list[Marked], int]:
        """Expand ``${...}``."""
        text, i = self.text, at + 2
        count = text.startswith("#", i) and text[i + 1 : i + 2] not in ("}", ":", "")
        indirect = text.startswith("!", i) and text[i + 1 : i + 2] not in ("}", ":", "")
        i += count or indirect
        found = _NAME.match(text, i)
        if found is None:
            end = self.closing_of(at + 1, "{", "}")
            return [self._nobody(text[at + 2 : end - 1][:60], at, end)], end
        name, i = found[0], found.end()
        index = ""
        if text.startswith("[", i):
            close = text.find("]", i)
            if close < 0:
                raise self.refuse(i, "a bracket [ is never closed", "close it")
            index, i = text[i + 1 : close], close + 1
        operator = next((o for o in _OPERATORS if text.startswith(o, i)), "")
        fields, start = Fields(), i + len(operator)
        end = self.read(start, fields, split=False, closing="}", quoted=quoted) + 1
        fields.cut()
        argument = fields.done[0] if fields.done else EMPTY
        if indirect:
            return [self._nobody(f"!{name}", at, end)], end
        if index in ("@", "*"):
            parts = self.arrays.get(name)
            if parts is None:
                value = self.value_of(name)
                parts = [] if value is None else [value]
            if count:
                return [worked_out(str(len(parts)), self.place(at))], end
            return list(parts), end
        value = self._element(name, index)
        if count and value is not None:
            return [worked_out(str(len(value.text)), self.place(at))], end
        return self._operated(name, operator, argument, value, (at, end)), end

    def _element(self, name: str, index: str) -> Marked | None:
        """Return a variable, or one element of an array."""
        if not index or name in self.given:
            return self.value_of(name)
        place = work_out(index, self.known)
        some = self.arrays.get(name, [])
        if place is None or not -len(some) <= place < len(some):
            return None
        return some[place]

    def _operated(
        self, name: str, operator: str, argument: Marked, value: Marked | None, at: tuple[int, int]
    ) -> list[Marked]:
        """Apply what stands behind a name in brackets."""
        whole = value is not None and not any(ord(x) in PRIVATE for x in value.text)
        there = value is not None and (whole or len(value.text) > 1)
        if operator.startswith(":") and operator != ":":
            there = there and bool(value and value.text)
        kind = operator.removeprefix(":") if operator != ":" else operator
        if kind in ("-", "="):
            if there and value is not None:
                return self._seen(name, value, at)
            if kind == "=":
                self.scalars[name] = argument
            return [argument]
        if kind == "+":
            return [argument if there else EMPTY]
        if value is None or not (kind in ("", "?") or whole):
            return [self._nobody(name, *at)]
        changed = CHANGES.get(kind)
        if changed is None:
            return self._seen(name, value, at)
        text = changed(value.text, argument.text)
        if text and value.text.endswith(text):
            return [Marked(text, value.at[len(value.text) - len(text) :])]
        if text and value.text.startswith(text):
            return [Marked(text, value.at[: len(text)])]
        return [Marked(text, (self._mark(*at),) * len(text))]

    def _seen(self, name: str, value: Marked, at: tuple[int, int]) -> list[Marked]:
        """Return a value; one that was given from outside has its place here."""
        if name in self.given:
            return [Marked(value.text, (self._mark(*at),) * len(value.text))]
        return [value]
