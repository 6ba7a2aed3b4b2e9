"""Rules of the user's own: from a file, from installed packages, and as sent to a worker."""

from __future__ import annotations

import ast
import base64
import hashlib
import inspect
import linecache
import pickle
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import TypeVar

from optplan.models.builder import Builder
from optplan.models.cost.price import Estimate
from optplan.models.errors import Fault, InputError, OptplanError
from optplan.models.record import Record
from optplan.models.rules.registry import Finding, Rule, rules
from optplan.models.spec.plan import Plan
from optplan.models.spec.problem import Problem
from optplan.source import read_text

GROUP = "optplan.rules"
"""Entry points under which installed packages offer rules."""

NONE = "none"
"""What ``--rules`` says to leave the rules of installed packages out."""

RESERVED = ("limits", "search", "framework", "constrain")
"""Families that optplan itself gives names in."""

_NAME = re.compile(r"[a-z][a-z0-9_-]*\.[a-z][a-z0-9_.-]*")

T = TypeVar("T")


class Guarded(Rule):
    """A rule from outside, whose every failure is a fault at its place."""

    def __init__(self, rule: Rule, file: str, line: int) -> None:
        self._rule, self._file, self._line = rule, file, line
        self.name, self.sentence, self.source = rule.name, rule.sentence, rule.source

    @property
    def place(self) -> str:
        """Where the rule is written."""
        return f"{self._file}:{self._line}"

    def applies(self, problem: Problem) -> bool:
        """Ask the rule."""
        return self._asked(lambda: bool(self._rule.applies(problem)))

    def post(self, say: Builder, problem: Problem) -> None:
        """Let the rule write itself into the program."""
        self._asked(lambda: self._rule.post(say, problem))

    def holds(self, problem: Problem, plan: Plan, estimate: Estimate) -> Iterator[Finding]:
        """Let the rule judge a finished plan."""
        findings = self._asked(lambda: list(self._rule.holds(problem, plan, estimate)))
        for finding in findings:
            if not isinstance(finding, Finding) or finding.name.split("[")[0] != self.name:
                wrong = f"holds gives {finding!r}, which is no finding of {self.name}"
                raise InputError(
                    [Fault(self.place, self.name, wrong, "yield optplan.Finding(...)")]
                )
        yield from findings

    def _asked(self, ask: Callable[[], T]) -> T:
        """Call into the rule; what it raises is reported where it arose."""
        try:
            return ask()
        except (OptplanError, MemoryError):
            raise
        except Exception as error:
            raise InputError([_raised(error, self._file, self._line, self.name)]) from None


def read_rules(*files: str | Path) -> tuple[Rule, ...]:
    """
    Read the rules that files define: every class of theirs that is an ``optplan.Rule``.

    Raises
    ------
    InputError
        With everything that is wrong, as ``file:line``.
    """
    return tuple(RuleSet(files=_texts(files)).load())


def installed_rules() -> tuple[Rule, ...]:
    """
    Return the rules that installed packages offer under the entry points ``optplan.rules``.

    An entry point names a class that is an ``optplan.Rule``, or a module that holds some.

    Raises
    ------
    InputError
        One of them cannot be used; names the entry point.
    """
    return tuple(RuleSet(entries=tuple(_entries())).load())


def asked_rules(asked: Sequence[str]) -> RuleSet:
    """
    Return what ``--rules`` asks for: those of installed packages, unless ``none``, and files.

    Raises
    ------
    InputError
        A file cannot be read.
    """
    files = [one for one in asked if one != NONE]
    entries = () if NONE in asked else tuple(_entries())
    return RuleSet(files=_texts(files), entries=entries)


class RuleSet(Record):
    """Where rules come from, complete enough to load them in another process."""

    files: tuple[tuple[str, str], ...] = ()
    """Names of files and their text."""
    entries: tuple[str, ...] = ()
    """Entry points, each with its package and version."""
    pickled: str = ""
    """Rules that were handed over as objects, pickled, in base 64."""

    @property
    def digest(self) -> str:
        """Hash of what was asked for; equal sets have equal digests."""
        texts = [text for _, text in self.files]
        return hashlib.sha256(repr((texts, self.entries, self.pickled)).encode()).hexdigest()

    def load(self) -> tuple[Rule, ...]:
        """
        Load the rules.

        Raises
        ------
        InputError
            With everything that is wrong with them.
        """
        faults: list[Fault] = []
        found: list[Rule] = []
        for name, text in self.files:
            found += _from_text(name, text, faults)
        for entry in self.entries:
            found += _from_entry(entry, faults)
        if self.pickled:
            found += pickle.loads(base64.b64decode(self.pickled))
        names = [rule.name for rule in found]
        for name in sorted({name for name in names if names.count(name) > 1}):
            places = [rule.place for rule in found if isinstance(rule, Guarded)]
            where = places[-1] if places else ""
            faults.append(Fault(where, name, "two rules have this name", "give each its own"))
        if faults:
            raise InputError(faults)
        return tuple(found)

    def also(self, more: Iterable[Rule]) -> RuleSet:
        """
        Return the set with rules that are objects.

        Raises
        ------
        InputError
            A rule cannot be sent to another process.
        """
        given = list(more)
        if not given:
            return self
        for rule in given:
            if type(rule).__module__ == "__main__":
                problem = f"{type(rule).__name__} is defined where no other process can find it"
                remedy = "put it into a module, or into a file and name that"
                raise InputError([Fault("", "rules", problem, remedy)])
        try:
            packed = pickle.dumps(given)
        except Exception as error:
            problem = f"a rule cannot be sent to another process: {error}"
            raise InputError([Fault("", "rules", problem, "put it into a file")]) from None
        return self.model_copy(update={"pickled": base64.b64encode(packed).decode()})


def _texts(files: Iterable[str | Path]) -> tuple[tuple[str, str], ...]:
    """Read files of rules."""
    faults: list[Fault] = []
    found = []
    for file in dict.fromkeys(map(str, files)):
        text = read_text(Path(file), file, faults)
        if text is not None:
            found.append((file, text))
    if faults:
        raise InputError(faults)
    return tuple(found)


def _entries() -> Iterator[str]:
    """Name every entry point, with the package that has it."""
    for point in sorted(metadata.entry_points(group=GROUP), key=lambda one: one.name):
        package = point.dist
        yield f"{point.name} ({package.name} {package.version})" if package else point.name


def _from_entry(entry: str, faults: list[Fault]) -> list[Rule]:
    """Load what one entry point names."""
    place = f"entry point {entry}"
    remedy = f"mend or remove that package, or leave installed rules out with --rules {NONE}"
    points = metadata.entry_points(group=GROUP, name=entry.partition(" (")[0])
    held = [p for p in points if p.dist is None or f"({p.dist.name} {p.dist.version})" in entry]
    if not held:
        faults.append(Fault(place, "", "no such entry point is installed here", remedy))
        return []
    try:
        loaded = held[0].load()
    except Exception as error:
        faults.append(Fault(place, "", f"it cannot be loaded: {_words(error)}", remedy))
        return []
    if isinstance(loaded, type) and issubclass(loaded, Rule):
        return _made([loaded], place, faults)
    if isinstance(loaded, ModuleType):
        return _made(_classes(loaded), place, faults)
    problem = f"{loaded!r} is no rule and no module of rules"
    faults.append(Fault(place, "", problem, "let it name a class that is an optplan.Rule"))
    return []


def _from_text(name: str, text: str, faults: list[Fault]) -> list[Rule]:
    """Run a file of rules, and make one of each class."""
    try:
        tree = ast.parse(text, name)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None) or 1
        what = error.msg if isinstance(error, SyntaxError) else _words(error)
        faults.append(Fault(f"{name}:{line}", "", f"this is no Python: {what}", "mend the line"))
        return []
    stem = re.sub(r"\W", "_", Path(name).stem)
    module = ModuleType(f"optplan_rules_{stem}_{hashlib.sha256(text.encode()).hexdigest()[:8]}")
    module.__file__ = name
    sys.modules[module.__name__] = module
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    try:
        exec(compile(tree, name, "exec"), module.__dict__)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a file may also call sys.exit
        faults.append(_raised(error, name, 1, ""))
        return []
    lines = {node.name: node.lineno for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    found = _made(_classes(module), name, faults, lines)
    if not found and not any(fault.place.startswith(f"{name}:") for fault in faults):
        problem = "the file defines no rule"
        faults.append(Fault(name, "", problem, "write a class that is an optplan.Rule"))
    return found


def _classes(module: ModuleType) -> list[type[Rule]]:
    """Return the rules that a module itself defines; an abstract one without a name is a helper."""
    return [
        kind
        for kind in vars(module).values()
        if isinstance(kind, type)
        and issubclass(kind, Rule)
        and kind.__module__ == module.__name__
        and not (inspect.isabstract(kind) and not hasattr(kind, "name"))
    ]


def _made(
    kinds: Iterable[type[Rule]],
    place: str,
    faults: list[Fault],
    lines: dict[str, int] | None = None,
) -> list[Rule]:
    """Make one rule of each class, or say what it lacks."""
    found: list[Rule] = []
    for kind in kinds:
        line = (lines or {}).get(kind.__name__) or _line(kind)
        file = place if lines is not None else f"{place}: {inspect.getfile(kind)}"
        wrong = _lacks(kind)
        if wrong:
            faults.append(Fault(f"{file}:{line}", kind.__name__, *wrong))
            continue
        try:
            found.append(Guarded(kind(), file, line))
        except Exception as error:
            faults.append(_raised(error, file, line, kind.__name__))
    return found


def _line(kind: type) -> int:
    """Return the line where a class begins, as far as that can be had."""
    try:
        return inspect.getsourcelines(kind)[1]
    except (OSError, TypeError):
        return 1


def _lacks(kind: type[Rule]) -> tuple[str, str] | None:
    """Say what a class lacks to be a rule."""
    missing = sorted(getattr(kind, "__abstractmethods__", ()))
    if missing:
        return f"the rule has no {' and no '.join(missing)}", "write both faces, post and holds"
    for name in ("name", "sentence", "source"):
        told = getattr(kind, name, None)
        if not isinstance(told, str) or not told.strip():
            return f"the rule has no {name}", f"write {name} = '...' in the class"
    if not _NAME.fullmatch(kind.name):
        return f"{kind.name!r} is no name of a rule", "name it as house.enough_layers"
    if kind.name.split(".")[0] in RESERVED or kind.name in {rule.name for rule in rules()}:
        return f"{kind.name} is a name of optplan's own", "name it as house.enough_layers"
    return None


def _raised(error: BaseException, file: str, line: int, path: str) -> Fault:
    """Report what a rule raised, at the innermost line of its file."""
    frames = traceback.extract_tb(error.__traceback__)
    told = file.rpartition(": ")[2]
    inside = [frame.lineno for frame in frames if frame.filename in (file, told)]
    at = next((number for number in reversed(inside) if number), line)
    return Fault(f"{file}:{at}", path, f"the rule fails: {_words(error)}", "mend this line")


def _words(error: BaseException) -> str:
    """Name an error on one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]
