"""What a dialect has understood so far, and every fault on the way."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping

from optplan.launches.documents import Entry, place
from optplan.launches.launch import Launch, Remark, Stated, Value
from optplan.models.errors import Fault, InputError
from optplan.models.record import LARGEST_COUNT
from optplan.models.spec.workload import Architecture
from optplan.places import short

_WHOLE = re.compile(r"[+-]?[0-9]{1,18}")
_YES, _NO = ("true", "yes", "on", "1"), ("false", "no", "off", "0", "none", "null")


class Notes:
    """Collects statements, defaults, remarks and faults while a launch is read."""

    def __init__(self) -> None:
        self.faults: list[Fault] = []
        self.stated: list[Stated] = []
        self.assumed: list[Stated] = []
        self.unread: list[str] = []
        self.remarks: list[Remark] = []

    def state(self, name: str, value: Value | None, entry: Entry, literal: bool = True) -> None:
        """
        Note that the launch states a value; None, for one that was refused, is passed over.

        Parameters
        ----------
        literal
            Whether the entry's literal is the value itself; False where it only decides it.
        """
        if value is not None:
            span = entry.span if literal else None
            found = Stated(
                name=name, value=value, written=entry.written[:200], line=entry.line, span=span
            )
            self.stated.append(found)

    def assume(self, name: str, value: Value, why: str) -> None:
        """Note a default of the framework."""
        self.assumed.append(Stated(name=name, value=value, written=why))

    def even_stages(self, pp: int) -> None:
        """Assume equal stages, all or none of them recomputed, where the layers are known."""
        known = {one.name: one.value for one in (*self.assumed, *self.stated)}
        layers = known.get("layers")
        if isinstance(layers, int) and layers % pp == 0:
            held = (layers // pp,) * pp
            again = held if known.get("recompute") == "full" else (0,) * pp
            self.assume("layers_per_stage", held, "equal stages")
            self.assume("recomputed_layers_per_stage", again, "every layer, or none")

    def remark(self, rule: str, severity: str, line: int, problem: str, remedy: str) -> None:
        """Note a fault that the framework would not report, or only late."""
        self.remarks.append(
            Remark(rule=rule, severity=severity, line=line, problem=problem, remedy=remedy)
        )

    def fault(self, entry: Entry, problem: str, remedy: str) -> None:
        """Note that an entry cannot be read."""
        self.faults.append(Fault(place(entry.line), entry.path, problem, remedy))

    def whole(self, entry: Entry | None, least: int = 1) -> int | None:
        """Return an entry as a whole number; None where there is none or it is refused."""
        if entry is None or entry.value is None:
            return None
        value = entry.value
        if isinstance(value, str) and _WHOLE.fullmatch(value.strip()):
            value = int(value)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            remedy = "write a whole number such as 8"
            if isinstance(value, str) and "$" in value:
                remedy = "give the variable a value"
            self.fault(entry, f"{_quoted(entry.value)} is no whole number", remedy)
            return None
        if not least <= value <= LARGEST_COUNT:
            remedy = f"write a number from {least} to {LARGEST_COUNT}"
            self.fault(entry, f"{_quoted(entry.value)} is out of range", remedy)
            return None
        return value

    def flag(self, entry: Entry | None) -> bool | None:
        """Return an entry as yes or no; None where there is none or it is refused."""
        if entry is None or entry.value is None:
            return None
        said = str(entry.value).strip().lower()
        if said in _YES or said in _NO:
            return said in _YES
        self.fault(
            entry, f"{_quoted(entry.value)} is neither true nor false", "write true or false"
        )
        return None

    def word(self, entry: Entry | None, known: Iterable[str]) -> str | None:
        """Return an entry as one of a few words; None where there is none or it is refused."""
        if entry is None or entry.value is None:
            return None
        words = {word.lower(): word for word in known}
        said = str(entry.value).strip().lower()
        if said in words:
            return words[said]
        near = difflib.get_close_matches(said, words, n=1, cutoff=0.6)
        listed = ", ".join(words.values())
        remedy = (
            f"did you mean '{words[near[0]]}'? (choices: {listed})" if near else f"write {listed}"
        )
        self.fault(entry, f"{_quoted(entry.value)} is no choice here", remedy)
        return None

    def done(
        self,
        framework: str,
        version: str = "",
        overlap: tuple[str, ...] | None = None,
        unread: Iterable[str] = (),
    ) -> Launch:
        """
        Return the launch.

        Raises
        ------
        InputError
            Something could not be read.
        """
        if self.faults:
            raise InputError(self.faults)
        return Launch(
            framework=framework,
            version=version,
            stated=tuple(self.stated),
            assumed=tuple(self.assumed),
            overlap=overlap,
            unread=tuple(dict.fromkeys([*self.unread, *unread])),
            remarks=tuple(self.remarks),
        )


def _quoted(value: object) -> str:
    """Quote a value on one line."""
    return f"'{short(str(value))}'"


def shape_values(shape: Architecture) -> dict[str, Value]:
    """Return what makes up a shape, by the names that launches state it under."""
    found: dict[str, Value] = {}
    plain = shape.model_dump(exclude_none=True, exclude={"name"})
    plain |= {"kv_heads": shape.key_heads, "head_dim": shape.head_width}
    for name, value in plain.items():
        if isinstance(value, Mapping):
            found |= {f"{name}.{inner}": below for inner, below in value.items()}
        else:
            found[name] = value
    return found


def refuse(field: str, problem: str, remedy: str) -> Fault:
    """Word why a version cannot launch a plan."""
    return Fault("", field, problem, remedy)


def spliced(text: str, edits: Iterable[tuple[int, int, str]]) -> str:
    """Return a text with some runs of characters replaced; runs must not overlap."""
    for first, last, new in sorted(edits, reverse=True):
        text = text[:first] + new + text[last:]
    return text


def plain_name(name: str) -> str:
    """Return a name fit for a comment of a script."""
    return "".join(letter if letter.isalnum() or letter in "-._ " else "_" for letter in name)
