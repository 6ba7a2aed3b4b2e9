"""From YAML text to values with their places; every way a text can be broken ends as a fault."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from math import isinf
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError
from ruamel.yaml.events import (
    AliasEvent,
    DocumentEndEvent,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)

from optplan.models.errors import Fault
from optplan.places import DEEPEST, LARGEST, REFUSED, Node, Path, dots, short

# The core rules of YAML 1.2, with `true` and `false` in one spelling only.
_NULLS = frozenset(("", "~", "null", "Null", "NULL"))
_INTEGER = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_UNENDING = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_CONTROL = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_DIGITS = 18

# What the parser says, and what we say instead; the first that fits.
_SYNTAX = (
    (r"character '\\t'", "a tab cannot indent", "indent with spaces"),
    (
        r"cannot start any token",
        "a value cannot start with this character",
        "put the value in quotes",
    ),
    (
        r"mapping values are not allowed",
        "a ':' does not fit here",
        "indent the key like its neighbours, or put the value in quotes",
    ),
    (r"expected the node content", "a value is missing before this", "write it, or quote it"),
    (r"sequence entries", "a '- ' does not fit here", "put each '- item' on a line of its own"),
    (
        r"comment or a line break|chomping",
        "text follows a '|' or '>' that begins a block",
        "begin the text on the next line, or put the value in quotes",
    ),
    (
        r"<document start>|document end",
        "more follows behind the end of the spec",
        "remove it, or indent it like its neighbours",
    ),
    (r"expected ',' or ']'", "a '[' is not closed before this", "close the list with ']'"),
    (r"expected ',' or '}'", "a '{' is not closed before this", "close the mapping with '}'"),
    (r"expected ':'", "a key has no ':'", "write 'key: value'"),
    (
        r"expected <block end>, but found '[\]}]'",
        "a bracket is closed that was never opened",
        "remove it",
    ),
    (
        r"expected <block end>",
        "this line does not fit the lines above",
        "indent it like its neighbours, and do not mix '- item' with 'key: value'",
    ),
    (r"end of stream", "a quote is not closed", "close it with the same quote"),
    (r"document separator", "a quote is not closed before '---'", "close it with the same quote"),
    (r"escape", "an unknown escape stands in double quotes", "use single quotes"),
    (r"YAML", "this version of YAML is unknown", "remove the line or write %YAML 1.2"),
    (r"anchor|alias", "an anchor has no valid name", "name it with letters and digits"),
    (r"URI|tag", "tags are not supported", "remove the '!'"),
)


class _StopError(Exception):
    """No more can be read; the fault is already noted."""


@dataclass
class _Open:
    """A mapping or list whose end has not been read yet."""

    start: Any
    anchor: str | None
    is_mapping: bool
    is_tagged: bool
    entries: dict[str, Node] = field(default_factory=dict)
    items: list[Node] = field(default_factory=list)
    keys: dict[str, str] = field(default_factory=dict)
    key: str | None = None
    awaits_key: bool = True

    @property
    def children(self) -> list[Node]:
        """What it holds so far."""
        return list(self.entries.values()) if self.is_mapping else self.items


class Composer:
    """
    Reads one YAML document.

    Parameters
    ----------
    text
        The document.
    name
        What to call it in a place, such as ``spec.yaml``.
    fixed
        The one place of everything, for a text from the command line; without it ``name:line:col``.
    root
        The path under which the document will stand.
    """

    def __init__(self, text: str, name: str, *, fixed: str = "", root: Path = ()) -> None:
        self._text = text
        self._name = name
        self._fixed = fixed
        self._root = root
        self._faults: list[Fault] = []
        self._anchors: dict[str, Node | None] = {}
        self._stack: list[_Open] = []
        self._top: Node | None = None
        self._count = 0

    def compose(self, faults: list[Fault]) -> Node | None:
        """
        Return the document's value; None where it cannot be read or is empty.

        Parameters
        ----------
        faults
            Receives everything that is wrong.
        """
        self._faults = faults
        try:
            self._refuse_control_characters()
            self._read()
        except _StopError:
            return None
        return self._top

    # -- events ------------------------------------------------------------------------------------

    def _read(self) -> None:
        """Consume the parser's events; our own stack, so that no depth can exhaust Python's."""
        documents = 0
        for event in self._events():
            match event:
                case DocumentStartEvent():
                    documents += 1
                    if documents > 1:
                        self._stop(event, "a second document starts here", "keep one per file")
                case MappingStartEvent() | SequenceStartEvent():
                    self._open(event)
                case MappingEndEvent() | SequenceEndEvent():
                    self._close(event)
                case ScalarEvent():
                    self._scalar(event)
                case AliasEvent():
                    self._alias(event)
                case DocumentEndEvent() | _:
                    pass

    def _events(self) -> Any:
        """Yield the parser's events; whatever it raises becomes one fault in our words."""
        where = self._fixed or self._name
        try:
            yield from YAML(typ="safe", pure=True).parse(self._text)
        except MarkedYAMLError as error:
            said = error.problem or ""
            words = next((w for pattern, *w in _SYNTAX if re.search(pattern, said)), None)
            problem, remedy = words or ("this is no YAML", "check indentation, quotes, brackets")
            mark = error.problem_mark or error.context_mark
            self._fault(self._place(mark) if mark else where, self._root, problem, remedy)
            raise _StopError from error
        except (_StopError, GeneratorExit):
            raise
        except Exception as error:  # the parser's own defects are faults of the text, too
            remedy = "check indentation, quotes, brackets"
            self._fault(where, self._root, "the text is no YAML", remedy)
            raise _StopError from error

    def _open(self, event: Any) -> None:
        """Begin a mapping or list."""
        is_mapping = isinstance(event, MappingStartEvent)
        what = "a mapping" if is_mapping else "a list"
        if self._is_key():
            self._stop(event, f"{what} stands where a key is expected", "write keys such as 'tp'")
        if len(self._stack) >= DEEPEST:
            self._too_deep(event)
        if event.anchor is not None:
            self._anchors[event.anchor] = None
        self._stack.append(_Open(event, event.anchor, is_mapping, is_tagged=self._has_tag(event)))

    def _close(self, event: Any) -> None:
        """End the innermost mapping or list."""
        done = self._stack.pop()
        children = done.children
        node = Node(
            REFUSED if done.is_tagged else done.entries if done.is_mapping else done.items,
            self._place(done.start.start_mark),
            "a mapping" if done.is_mapping else "a list",
            done.keys,
            size=1 + sum(child.size for child in children),
            depth=1 + max((child.depth for child in children), default=0),
        )
        self._add(node, done.anchor, event)

    def _scalar(self, event: Any) -> None:
        """Take a scalar, as a key or as a value."""
        if self._is_key():
            self._key(event)
            return
        path = self._path()
        place = self._place(event.start_mark)
        if event.style is None and not event.value and self._stack:
            # The parser marks a value that is not there behind the line's end; the key is nearer.
            top = self._stack[-1]
            place = top.keys.get(top.key or "", place)
        value: object = event.value
        if self._has_tag(event):
            value = REFUSED
        elif event.style is None:
            value = _resolve(event.value, place, path, self._faults)
        node = Node(value, place, short(event.value), inside=self._inside(event))
        self._add(node, event.anchor, event)

    def _key(self, event: Any) -> None:
        """Take the key of the next value."""
        top = self._stack[-1]
        top.awaits_key = False
        top.key = None
        place = self._place(event.start_mark)
        key: str = event.value
        quoted = f"'{short(key)}'"
        path = self._path()
        self._has_tag(event)
        if event.anchor is not None:
            self._anchors[event.anchor] = Node(key, place, short(key))
        probe: list[Fault] = []
        if event.style is None and not isinstance(_resolve(key, place, path, probe), str):
            remedy = "keys are words such as 'tp'"
            self._fault(place, path, f"key {quoted} is no word", remedy)
        elif event.style is None and key == "<<":
            self._fault(place, path, "YAML 1.2 has no merge key '<<'", "write the keys out")
        elif key in top.keys:
            first = f"; the first stands at {top.keys[key]}" if not self._fixed else ""
            remedy = f"keep one of them{first.replace(';', ',')}"
            self._fault(place, (*path, key), f"key {quoted} is given twice", remedy)
        else:
            top.key = key
            top.keys[key] = place

    def _alias(self, event: Any) -> None:
        """Repeat what an anchor named."""
        if self._is_key():
            self._stop(event, "an alias stands where a key is expected", "write the key out")
        name = event.anchor
        if name not in self._anchors:
            self._stop(event, f"no anchor '{short(name)}' stands above", "write the value out")
        node = self._anchors[name]
        if node is None:
            self._stop(event, f"anchor '{short(name)}' contains itself", "write the value out")
        elif len(self._stack) + node.depth > DEEPEST:
            self._too_deep(event)
        else:
            self._add(node, None, event)

    def _add(self, node: Node, anchor: str | None, event: Any) -> None:
        """Hand a finished value to what encloses it."""
        if anchor is not None:
            self._anchors[anchor] = node
        # A mapping's children were counted when they were added; only aliases add many at once.
        self._count += node.size if isinstance(event, AliasEvent) else 1
        if self._count > LARGEST:
            problem = f"the input expands to more than {LARGEST:,} values".replace(",", " ")
            self._stop(event, problem, "write ranges {min, max} instead of lists")
        if not self._stack:
            self._top = node
            return
        top = self._stack[-1]
        if not top.is_mapping:
            top.items.append(node)
            return
        if top.key is not None:
            top.entries[top.key] = node
        top.awaits_key = True

    # -- small helpers -----------------------------------------------------------------------------

    def _is_key(self) -> bool:
        """Tell whether the next value is a key."""
        return bool(self._stack) and self._stack[-1].is_mapping and self._stack[-1].awaits_key

    def _path(self) -> Path:
        """Return the path of the value that is read next."""
        parts: list[str | int] = list(self._root)
        for opened in self._stack:
            if not opened.is_mapping:
                parts.append(len(opened.items))
            elif opened.key is not None and not opened.awaits_key:
                parts.append(opened.key)
        return tuple(parts)

    def _place(self, mark: Any) -> str:
        """Return the place of a mark of the parser, which counts from 0."""
        return self._fixed or f"{self._name}:{mark.line + 1}:{mark.column + 1}"

    def _inside(self, event: Any) -> tuple[str, int, int] | None:
        """Return where a text begins that stands in the file letter for letter."""
        raw = self._text[event.start_mark.index : event.end_mark.index].rstrip()
        if self._fixed or raw not in (event.value, f"'{event.value}'", f'"{event.value}"'):
            return None
        quote = 0 if raw == event.value else 1
        return self._name, event.start_mark.line + 1, event.start_mark.column + 1 + quote

    def _refuse_control_characters(self) -> None:
        """Refuse what YAML cannot carry, before the parser sees it."""
        bad = _CONTROL.search(self._text)
        if bad is None:
            return
        line = self._text.count("\n", 0, bad.start()) + 1
        column = bad.start() - self._text.rfind("\n", 0, bad.start())
        place = self._fixed or f"{self._name}:{line}:{column}"
        problem = f"character U+{ord(bad[0]):04X} is no part of a text"
        self._fault(place, self._root, problem, "write the spec as plain UTF-8 text")
        raise _StopError

    def _has_tag(self, event: Any) -> bool:
        """Refuse ``!!python/object`` and its kin, and every other tag with them."""
        if not event.tag:
            return False
        place = self._place(event.start_mark)
        problem = f"tag '{short(str(event.tag))}' is not supported"
        self._fault(place, self._path(), problem, "remove it")
        return True

    def _fault(self, place: str, path: Path, problem: str, remedy: str) -> None:
        """Note one fault."""
        self._faults.append(Fault(place, dots(path), problem, remedy))

    def _too_deep(self, event: Any) -> None:
        """Stop at a level that no spec needs; its path would fill the screen."""
        problem = f"the input nests deeper than {DEEPEST} levels"
        self._fault(self._place(event.start_mark), self._root, problem, "flatten it")
        raise _StopError

    def _stop(self, event: Any, problem: str, remedy: str) -> None:
        """Note one fault at an event and read no further."""
        self._fault(self._place(event.start_mark), self._path(), problem, remedy)
        raise _StopError


def _resolve(text: str, place: str, path: Path, faults: list[Fault]) -> object:
    """
    Give a plain scalar its type by the core rules of YAML 1.2.

    Returns
    -------
    object
        None, bool, int, float or str; `REFUSED` for a number that no spec needs.
    """

    def refuse(problem: str, remedy: str) -> object:
        faults.append(Fault(place, dots(path), f"'{short(text)}' {problem}", remedy))
        return REFUSED

    if text in _NULLS:
        return None
    if text in ("true", "false"):
        return text == "true"
    if _UNENDING.fullmatch(text):
        return refuse("is no finite number", "write a finite number")
    if _INTEGER.fullmatch(text):
        if len(text.lstrip("+-0ox")) > _DIGITS:
            return refuse(f"has more than {_DIGITS} digits", "write a smaller number")
        return int(text, {"0o": 8, "0x": 16}.get(text[:2], 10))
    if _FLOAT.fullmatch(text):
        value = float(text)
        if isinf(value) or len(text) > 2 * _DIGITS:
            return refuse("is too large or too long", "write a number such as 0.5 or 1e12")
        return value
    return text
