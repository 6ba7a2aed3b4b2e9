"""Branches and loops of a script, of which the one that would run is followed."""

from __future__ import annotations

import fnmatch

from optplan.launches.shell_cursor import Cursor, Frame
from optplan.launches.shell_fields import Fields
from optplan.launches.shell_text import EMPTY, PRIVATE

_OPENING = ("if", "while", "until", "for", "select", "case")


class Branches(Cursor):
    """Takes reserved words."""

    def _keyword(self, word: str) -> bool:
        """Tell whether a reserved word comes next."""
        end = self.at + len(word)
        return self.text.startswith(word, self.at) and (
            end >= len(self.text) or self.text[end] in " \t\r\n;&|()"
        )

    def _reserved(self, word: str) -> bool:
        """Take a reserved word; false where it is none."""
        frame = self.frames[-1] if self.frames else None
        if word in _OPENING:
            self.at += len(word)
            self._open(word)
        elif word == "then" and frame and frame.kind == "if":
            self.at += len(word)
            frame.active = frame.outer and not frame.taken and self.status
            frame.taken = frame.taken or frame.active
            self.status, self.joint = True, ""
        elif word in ("elif", "else") and frame and frame.kind == "if":
            self.at += len(word)
            frame.active = frame.outer and not frame.taken
            self.joint = ""
        elif word in ("fi", "done", "esac") and frame:
            self.at += len(word)
            self.frames.pop()
            self.status, self.joint = True, ""
        elif word in ("do", "{", "}", "then", "else", "fi", "done", "esac", "time"):
            self.at += len(word)
        elif word == "!":
            self.at += 1
            self.negated = not self.negated
        else:
            return False
        return True

    def _open(self, word: str) -> None:
        """Open a branch or a loop."""
        outer = self.active and self._runs()
        frame = Frame(word if word in ("if", "case") else "loop", outer, active=outer)
        if len(self.frames) > 500:
            raise self.words.refuse(
                self.at, "branches are nested too deeply", "simplify the script"
            )
        if word in ("for", "select"):
            self._blanks()
            if self.text.startswith("((", self.at):
                self.at = self.words.closing_of(self.at, "(", ")")
            else:
                parts = self._simple()
                if frame.outer and len(parts) > 2 and parts[1].text == "in":
                    self.words.scalars[self.words.plain(parts[0])] = parts[2]
        elif word == "case":
            fields = Fields()
            self._blanks()
            self.at = self.words.read(self.at, fields, split=False)
            fields.cut()
            value = fields.done[0] if fields.done else EMPTY
            frame.value = value.text
            frame.kind, frame.active = "case-pattern", False
            while self._skip() and self._keyword("in"):
                self.at += 2
                break
        self.frames.append(frame)
        self.status, self.joint = True, ""

    def _pattern(self, frame: Frame) -> None:
        """Read what a branch of ``case`` is for, up to its bracket."""
        end = self.text.find(")", self.at)
        if end < 0:
            raise self.words.refuse(self.at, "a branch of case has no )", "close it")
        marked = self.words.inside(self.at, end).text
        patterns = [p.strip().strip("\"'") for p in marked.split("|")]
        value = "".join(x for x in frame.value or "" if ord(x) not in PRIVATE)
        hit = any(fnmatch.fnmatchcase(value, p) for p in patterns)
        frame.active = frame.outer and hit and not frame.taken
        frame.taken = frame.taken or frame.active
        frame.kind = "case"
        self.at = end + 1

    def _end_of_case(self) -> None:
        """Take ``;;``."""
        self.at += 2
        if self.frames and self.frames[-1].kind == "case":
            self.frames[-1].kind, self.frames[-1].active = "case-pattern", False
