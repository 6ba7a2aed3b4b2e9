"""TOML, JSON and YAML in a launch: values by dotted path, each with the place of its literal."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable
from dataclasses import dataclass

from optplan.compose import Composer
from optplan.models.errors import Fault
from optplan.places import DEEPEST, Node, short

Span = tuple[int, int]
Reader = Callable[["Page", list[Fault]], "list[Entry]"]


@dataclass(frozen=True)
class Page:
    """
    A document: a whole launch, or a file that a script writes itself.

    Parameters
    ----------
    text
        What it says.
    line
        Line of the launch where it begins, from 1.
    at
        Place in the launch of every character, below 0 where there is none; None where the document
        is the launch.
    name
        The file's name where a script writes it.
    """

    text: str
    line: int = 1
    at: tuple[int, ...] | None = None
    name: str = ""

    def span(self, first: int, last: int) -> Span | None:
        """Return the characters of the launch that hold a part of the text, if they are one run."""
        if self.at is None:
            return first, last
        places = self.at[first:last]
        whole = tuple(range(places[0], places[0] + len(places))) if places else ()
        return (
            (places[0], places[-1] + 1) if places and places == whole and places[0] >= 0 else None
        )

    def line_of(self, offset: int) -> int:
        """Return the line of the launch that a character of the text stands in."""
        return self.line + self.text.count("\n", 0, offset)


@dataclass(frozen=True)
class Entry:
    """
    One value of a document or a command.

    Parameters
    ----------
    path
        Keys that lead to it, in dots; positions of a list count as keys.
    value
        True or False, a number, a text, None, or a list of such.
    written
        The value beside its key, on one line.
    line
        Line of the launch, from 1.
    span
        Characters of the launch that hold the literal; of a text without its quotes.
    """

    path: str
    value: object
    written: str
    line: int
    span: Span | None = None


def place(line: int) -> str:
    """Write a line of a launch as a fault has it."""
    return f"line {line}" if line else ""


# -- TOML ------------------------------------------------------------------------------------------

_KEY = re.compile(r"""[ \t]*("(?:[^"\\\n]|\\.)*"|'[^'\n]*'|[A-Za-z0-9_-]+)[ \t]*""")
_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)+")
_STRING = re.compile(
    r'"""(?:[^\\]|\\.)*?"{3,5}|' r"'''.*?'{3,5}|" r'"(?:[^"\\\n]|\\.)*"|' r"'[^'\n]*'", re.DOTALL
)


def toml(page: Page, faults: list[Fault]) -> list[Entry]:
    """Read TOML; what is wrong becomes a fault with its line."""
    try:
        found = tomllib.loads(page.text)
    except (ValueError, RecursionError, OverflowError) as error:
        said = str(error)
        where = re.search(r"\(at line (\d+), column \d+\)", said)
        last = page.line_of(len(page.text.rstrip()))
        line = page.line + int(where[1]) - 1 if where else last
        what = re.sub(r" \(at .*\)$", "", said)
        twice = "overwrite" in what or "already" in what or "twice" in what
        remedy = "keep one of them" if twice else "write 'key = value' in [sections]"
        what = "a key or section is given twice" if twice else f"this is no TOML: {short(what)}"
        faults.append(Fault(place(line), "", what, remedy))
        return []
    entries: list[Entry] = []
    for keys, first, last in _toml_values(page.text):
        value: object = found
        for key in keys:
            value = value.get(key) if isinstance(value, dict) else None
        entries += _toml_entries(page, keys, value, first, last)
    return entries


def _toml_entries(
    page: Page, keys: tuple[str, ...], value: object, first: int, last: int
) -> list[Entry]:
    """Return one value, or those of an inline table."""
    literal, line = page.text[first:last], page.line_of(first)
    written = f"{keys[-1]} = {short(literal)}"
    if isinstance(value, dict):
        found = []
        for key, inner in value.items():
            found += _toml_entries(page, (*keys, key), inner, first, last)
        return [Entry(e.path, e.value, written, e.line) for e in found]
    quoted = isinstance(value, str) and literal[:1] in "\"'" and literal[:3] not in ('"""', "'''")
    span = page.span(first + 1, last - 1) if quoted else page.span(first, last)
    return [Entry(".".join(keys), value, written, line, span)]


def _toml_values(text: str) -> list[tuple[tuple[str, ...], int, int]]:
    """Find the literal of every key of a text that is known to be TOML."""
    found: list[tuple[tuple[str, ...], int, int]] = []
    table: tuple[str, ...] = ()
    at = 0
    while True:
        blank = _BLANK.match(text, at)
        at = blank.end() if blank else at
        if at >= len(text):
            return found
        if text[at] == "[":
            several = text.startswith("[[", at)
            keys, at = _toml_keys(text, at + (2 if several else 1))
            table = (*keys, "[]") if several else keys
            at = text.find("]", at) + (2 if several else 1)
            continue
        keys, at = _toml_keys(text, at)
        first = at + 1
        while text[first : first + 1] in (" ", "\t"):
            first += 1
        at = _toml_end(text, first)
        found.append((table + keys, first, first + len(text[first:at].rstrip())))


def _toml_keys(text: str, at: int) -> tuple[tuple[str, ...], int]:
    """Read a dotted key; return its parts and where it ends."""
    keys = []
    while found := _KEY.match(text, at):
        keys.append(found[1].strip("\"'"))
        at = found.end()
        if text[at : at + 1] != ".":
            break
        at += 1
    return tuple(keys), at


def _toml_end(text: str, at: int) -> int:
    """Return where a value ends."""
    depth = 0
    while at < len(text):
        letter = text[at]
        if letter in "\"'":
            string = _STRING.match(text, at)
            at = string.end() if string else at + 1
            continue
        if letter == "#":
            if depth == 0:
                return at
            at = text.find("\n", at)
            if at < 0:
                return len(text)
        if letter == "\n" and depth == 0:
            return at
        depth += letter in "[{"
        depth -= letter in "]}"
        at += 1
    return at


# -- JSON ------------------------------------------------------------------------------------------

_TOKEN = re.compile(r'\s*(?:("(?:[^"\\]|\\.)*")|([{}\[\]:,])|([^\s{}\[\]:,"]+))')


def json_page(page: Page, faults: list[Fault]) -> list[Entry]:
    """Read JSON; what is wrong becomes a fault with its line."""

    def pairs(items: list[tuple[str, object]]) -> dict[str, object]:
        for key in sorted({key for key, _ in items}):
            if sum(k == key for k, _ in items) > 1:
                line = page.line_of(max(0, page.text.rfind(f'"{key}"')))
                what = f"key '{short(key)}' is given twice"
                faults.append(Fault(place(line), key, what, "keep one of them"))
        return dict(items)

    try:
        found = json.loads(page.text, object_pairs_hook=pairs)
    except json.JSONDecodeError as error:
        line = page.line + error.lineno - 1
        what = f"this is no JSON: {short(error.msg)}"
        faults.append(Fault(place(line), "", what, "check commas, quotes and brackets"))
        return []
    except (ValueError, RecursionError):
        what = "this JSON has a number too long or nests too deep"
        faults.append(Fault(place(page.line), "", what, "write a configuration as it is run"))
        return []
    if not isinstance(found, dict):
        what = "the JSON holds no object"
        faults.append(Fault(place(page.line), "", what, "write {...} around its keys"))
        return []
    return _json_entries(page)


def _json_entries(page: Page) -> list[Entry]:
    """Find every scalar of a text that is known to be JSON."""
    entries: list[Entry] = []
    path: list[str | int] = []
    key, at = "", 0
    while token := _TOKEN.match(page.text, at):
        at = token.end()
        string, sign, plain = token.groups()
        if sign in ("{", "["):
            path.append(0 if sign == "[" else "")
        elif sign in ("}", "]"):
            path.pop()
        elif sign == "," and path and isinstance(path[-1], int):
            path[-1] += 1
        elif string is not None and path and path[-1] == "" and key == "":
            key = json.loads(string)
            path[-1] = key
        elif sign == ",":
            path[-1], key = "", ""
        if sign in ("{", ","):
            key = ""
        if (string is None or page.text[at:].lstrip()[:1] == ":") and plain is None:
            continue
        literal = string if string is not None else plain
        first = at - len(literal)
        value = json.loads(literal)
        span = page.span(first + 1, at - 1) if string else page.span(first, at)
        where = ".".join(map(str, path))
        written = f'"{path[-1]}": {short(literal)}' if path else short(literal)
        entries.append(Entry(where, value, written, page.line_of(first), span))
    return entries


# -- YAML ------------------------------------------------------------------------------------------

_MARK = re.compile(r":(\d+):(\d+)$")


def yaml(page: Page, faults: list[Fault]) -> list[Entry]:
    """Read YAML; what is wrong becomes a fault with its line."""
    own: list[Fault] = []
    root = Composer(page.text, "line").compose(own)
    for fault in own:
        mark = _MARK.search(fault.place)
        line = page.line + int(mark[1]) - 1 if mark else page.line
        faults.append(Fault(place(line), fault.path, fault.problem, fault.remedy))
    if root is None:
        return []
    starts = [0]
    for line_text in page.text.split("\n"):
        starts.append(starts[-1] + len(line_text) + 1)
    entries: list[Entry] = []
    _yaml_entries(page, starts, root, (), entries)
    return entries


def _yaml_entries(
    page: Page, starts: list[int], node: Node, path: tuple[str, ...], found: list[Entry]
) -> None:
    """Collect the scalars under a node, and short lists of scalars as one."""
    if len(path) > DEEPEST:
        return
    if isinstance(node.value, dict):
        for key, inner in node.value.items():
            _yaml_entries(page, starts, inner, (*path, key), found)
        return
    where, mark = ".".join(path), _MARK.search(node.place)
    line = page.line + int(mark[1]) - 1 if mark else page.line
    if isinstance(node.value, list):
        plain = node.plain()
        written = f"{path[-1] if path else ''}: {short(json.dumps(plain, default=str))}"
        found.append(Entry(where, plain, written, line))
        return
    first = starts[int(mark[1]) - 1] + int(mark[2]) - 1 if mark else 0
    quote = 1 if page.text[first : first + 1] in ("'", '"') else 0
    inside = page.text[first + quote : first + quote + len(node.text)] == node.text
    span = page.span(first + quote, first + quote + len(node.text)) if inside and mark else None
    written = f"{path[-1] if path else ''}: {node.text}"
    found.append(Entry(where, node.value, written, line, span if node.text else None))
