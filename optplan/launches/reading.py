"""What has been understood of a list of options so far, and every fault on the way."""

from __future__ import annotations

import re

from optplan.launches.launch import Launch, Remark, Stated, Value
from optplan.launches.megatron_options import Given, Options
from optplan.models.errors import Fault, InputError
from optplan.models.record import LARGEST_COUNT
from optplan.places import short

MOST = {
    "layers": 10_000,
    "pp": 10_000,
    **dict.fromkeys(("tp", "cp", "nodes", "devices_per_node", "devices", "dp", "ep", "etp"), 2**20),
}
"""Largest values that are taken: no more layers than a workload may have, nor more devices."""


class Reading:
    """
    Collects statements, defaults, remarks and faults.

    Parameters
    ----------
    options
        What the launch gives.
    """

    def __init__(self, options: Options) -> None:
        self.options = options
        self.used: set[str] = set()
        self.stated: list[Stated] = []
        self.assumed: list[Stated] = []
        self.remarks: list[Remark] = []
        self.faults: list[Fault] = []

    # -- values -----------------------------------------------------------------------------------

    def find(self, *names: str) -> Given | None:
        """Return the first of some options that is given, and note that it means something."""
        self.used.update(names)
        return next((self.options.given[n] for n in names if n in self.options.given), None)

    def on(self, *names: str) -> Given | None:
        """Return an option without a value where it is given, and not given as false."""
        found = self.find(*names)
        off = found is not None and found.words[:1] and found.words[0].text.lower() in _NO
        return None if off else found

    def whole(self, given: Given | None, least: int = 1) -> int | None:
        """Return an option's value as a whole number; None where there is none or a fault."""
        if given is None:
            return None
        if not given.words:
            self.refuse(given, "has no value", f"write {given.flag} 8")
            return None
        word = given.words[0]
        if word.unknown:
            names = " and ".join(f"${n}" for n in word.unknown)
            name = word.unknown[0]
            remedy = f"give it, as in --set {name}=8" if re.fullmatch(r"\w+", name) else "write it"
            self.refuse(given, f"depends on {names}, which nobody sets", remedy)
            return None
        text = word.text.replace("_", "").strip(", ")
        if not re.fullmatch(r"[+-]?\d{1,18}", text):
            self.refuse(given, f"'{short(word.text)}' is no whole number", "write one such as 8")
            return None
        value = int(text)
        if not least <= value <= LARGEST_COUNT:
            self.refuse(given, f"{value} is out of range", f"write a number from {least} on")
            return None
        return value

    def number(self, given: Given | None) -> float | None:
        """Return an option's value as a number; None where there is none or it is no number."""
        if given is None or not given.words:
            return None
        try:
            return float(given.words[0].text)
        except ValueError:
            return None

    def text(self, given: Given | None) -> str | None:
        """Return an option's value as a word; None where there is none."""
        return given.words[0].text if given is not None and given.words else None

    def refuse(self, given: Given, problem: str, remedy: str) -> None:
        """Note that an option cannot be read."""
        self.faults.append(Fault(f"line {given.line}", given.flag, problem, remedy))

    # -- statements -------------------------------------------------------------------------------

    def state(self, name: str, value: Value | None, given: Given, literal: bool = True) -> None:
        """
        Note that the launch states a value; None, for one that was refused, is passed over.

        Parameters
        ----------
        literal
            Whether the option's own value is the value stated.
        """
        if value is None:
            return
        word = given.words[0] if given.words and literal else None
        self.stated.append(
            Stated(
                name=name,
                value=value,
                written=given.written or given.flag,
                line=word.line if word is not None else given.line,
                span=word.span if word is not None else None,
            )
        )

    def assume(self, name: str, value: Value, why: str) -> None:
        """Note a default."""
        self.assumed.append(Stated(name=name, value=value, written=why))

    def count(self, name: str, *options: str, default: int | None = None, why: str = "") -> int:
        """State a whole number that an option gives, or assume a default; 0 without either."""
        given = self.find(*options)
        value = self.whole(given)
        most = MOST.get(name, LARGEST_COUNT)
        if given is not None and value is not None and value > most:
            self.refuse(given, f"{value} is out of range", f"write a number from 1 to {most}")
            value = None
        if given is not None:
            self.state(name, value, given)
            return value or default or 0
        if default is not None:
            self.assume(name, default, why or f"no {_flag(options[0])}: {default}")
        return default or 0

    def stated_count(self, name: str) -> int:
        """Return a whole number that was stated before; 0 where it was not."""
        values = (one.value for one in reversed(self.stated) if one.name == name)
        return next((value for value in values if isinstance(value, int)), 0)

    def remark(
        self, rule: str, severity: str, problem: str, remedy: str, given: Given | int | None = None
    ) -> None:
        """Note a fault that only this dialect can see."""
        line = given.line if isinstance(given, Given) else given or 0
        self.remarks.append(
            Remark(rule=rule, severity=severity, line=line, problem=problem, remedy=remedy)
        )

    def done(self, framework: str, version: str, overlap: tuple[str, ...] | None) -> Launch:
        """
        Return the launch.

        Raises
        ------
        InputError
            Something could not be read.
        """
        if self.faults:
            raise InputError(self.faults)
        unread = [one.flag for name, one in self.options.given.items() if name not in self.used] + [
            word.text for word in self.options.loose
        ]
        return Launch(
            framework=framework,
            version=version,
            stated=tuple(self.stated),
            assumed=tuple(self.assumed),
            overlap=overlap,
            unread=tuple(dict.fromkeys(unread)),
            remarks=tuple(self.remarks),
        )


_NO = ("false", "0", "no", "none")


def _flag(name: str) -> str:
    """Write an option's name as a flag."""
    return "--" + name.replace("_", "-")
