"""A launch script with some values changed, and nothing else touched."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from optplan.launches.launch import Launch, Value
from optplan.launches.megatron_job import Groups, Job, Option, numbered
from optplan.launches.megatron_options import Given, Options, named
from optplan.launches.megatron_writing import OWNED
from optplan.launches.script import joined, quoted
from optplan.launches.values import plan_from
from optplan.models.errors import Fault, InputError
from optplan.models.spec.plan import Plan

GROUP_OF = {
    "vpp": "stages",
    "schedule": "stages",
    "layers_per_stage": "stages",
    "recomputed_layers_per_stage": "recompute",
    "hsdp": "zero",
}
"""Group of options that a value of a plan belongs to, where it has not the same name."""

MACHINE = {
    "nodes": ("nnodes", "nodes"),
    "devices_per_node": ("nproc_per_node", "gpus_per_node", "ntasks_per_node"),
}
"""Options of launchers by what they say."""

NEEDS = {"zero": ("overlap_param_gather",), "sequence_parallel": ("tp_comm_overlap",)}
"""
Options that Megatron refuses without a value of a plan (megatron/training/arguments.py): gathering
parameters beside other work without a shared optimizer, and products that overlap the transfers of
tensor ranks without sequence parallelism.
"""

OVERLAP = "megatron.overlap"
"""Remark on an option that lacks what it needs."""

ENVIRONMENT = "environment."
"""What a change of a variable begins with: ``environment.CUDA_DEVICE_MAX_CONNECTIONS``."""

GONE = "\x00"
"""Stands where something was taken out, until its line is looked at."""

_VALUE = re.compile(
    r"(?:=|[ \t]+(?:\\\r?\n[ \t]*)?|[ \t]*\r?\n[ \t]*)"
    r"(\"(?:[^\"\\]|\\.)*\"|'[^']*'|[^\s\"';|&()\\-][^\s\"';|&()\\]*|-\d\S*)"
)

Write = Callable[[Plan, Job, list[Fault]], Groups]
Read = Callable[[str], Launch]


@dataclass(frozen=True)
class How:
    """
    How to change a value.

    Parameters
    ----------
    literal
        At the literal that decides it, wherever that is; else where the option stands.
    quote
        Whether to quote what the shell would not take for a word.
    """

    literal: bool
    quote: bool


WAYS = (How(True, True), How(True, False), How(False, True), How(False, False))


def amended(
    text: str,
    options: Options,
    read: Read,
    changes: Mapping[str, Value],
    write: Write,
    version: str = "",
) -> str:
    """
    Change values of a script.

    The script is read again after each way of writing a change; the first that gives the values
    asked for, and leaves every other as it was, is taken.

    Parameters
    ----------
    options, read
        The script's options, and what reads the script.
    changes
        Values by their names in a plan or a cluster.
    write
        Writes a plan as options.

    Raises
    ------
    InputError
        A change cannot be launched, or no way of writing it has the effect.
    """
    if options.kind == "log":
        remedy = "write a script with optplan export"
        raise InputError([Fault("", "", "a log cannot be changed", remedy)])
    launch = read(text)
    faults: list[Fault] = []
    plan, job = _wanted(launch, changes, version)
    groups = write(plan, job, faults)
    if faults:
        raise InputError(faults)
    every = _touched(launch, changes)
    # Where nobody is left to share with, what asks for sharing may stay: it means nothing there.
    alone = [[n for n in every if n != "zero"]] if "zero" in every and not plan.zero else []
    for touched, how in itertools.product((*alone, every), WAYS):
        edits = _Edits(text, options, how)
        for name in touched:
            edits.group(groups.get(name, []), OWNED.get(name, ()))
            if name in NEEDS and not getattr(plan, name):
                edits.group([], NEEDS[name])
        if "zero" in touched and "overlap_grad_reduce" not in options.given:
            edits.group([], NEEDS["zero"])
        for name, flags in MACHINE.items():
            if name in changes:
                edits.machine(flags, str(changes[name]))
        edits.environment({k: v for k, v in changes.items() if k.startswith(ENVIRONMENT)})
        new = edits.done()
        if not _as_asked(launch, new, read, changes, every):
            continue
        if touched is every or not any(one.rule == OVERLAP for one in read(new).remarks):
            return new
    names = ", ".join(changes)
    problem = f"the script cannot be changed in {names} without changing more"
    raise InputError([Fault("", "", problem, "write a new one with optplan export")])


def _wanted(launch: Launch, changes: Mapping[str, Value], version: str) -> tuple[Plan, Job]:
    """Return the plan that the changed script should launch."""
    plan = plan_from(launch, changes)
    nodes, node = (changes.get(n) or launch.value(n) or 1 for n in ("nodes", "devices_per_node"))
    mtp, layers = launch.value("mtp"), sum(plan.layers_per_stage)
    job = Job(
        layers=layers,
        predictions=mtp if isinstance(mtp, int) else 0,
        experts=launch.value("experts.count") is not None,
        nodes=nodes if isinstance(nodes, int) else 1,
        node=node if isinstance(node, int) else 1,
        version=numbered(version or launch.version or "99"),
    )
    return plan, job


def _touched(launch: Launch, changes: Mapping[str, Value]) -> list[str]:
    """Return the groups of options that changes are about."""
    found = {GROUP_OF.get(name, name) for name in changes}
    if "pp" in changes:
        found.add("stages")
    if found & {"stages"} and launch.value("recompute") == "full":
        found.add("recompute")
    if "cp" in changes:
        found.add("context")
    etp = launch.find("etp")
    if "tp" in changes and etp is not None and not etp.line:
        # The default follows tp; whoever changes tp alone does not mean to change it.
        found.add("etp")
    return [name for name in OWNED if name in found]


def _as_asked(
    before: Launch, text: str, read: Read, changes: Mapping[str, Value], touched: Iterable[str]
) -> bool:
    """Tell whether a changed script says what was asked, and nothing else differs."""
    try:
        after = read(text)
    except InputError:
        return False
    free = {"layers_per_stage", "recomputed_layers_per_stage", "etp", "global_batch", "zero"}
    free |= {"context", "vpp", "schedule"}
    for name in {s.name for s in (*before.stated, *before.assumed, *after.stated, *after.assumed)}:
        if name in changes or (name in free and GROUP_OF.get(name, name) in touched):
            continue
        same = before.value(name) == after.value(name)
        if not same and not (name in free and {"pp", "tp", "cp"} & set(changes)):
            return False
    old, new = plan_from(before, changes), plan_from(after, {})
    names = [n for n in changes if n in Plan.model_fields and n not in ("dp", "micro_batches")]
    return all(getattr(old, n) == getattr(new, n) for n in names)


class _Edits:
    """Changes of a text, gathered and then made from the back."""

    def __init__(self, text: str, options: Options, how: How) -> None:
        self.text, self.options, self.how = text, options, how
        self.edits: dict[tuple[int, int], str] = {}
        self.added: dict[int, list[str]] = {}
        self.head = ""

    def group(self, wanted: Sequence[Option], owned: Iterable[str]) -> None:
        """Give a group of options the values wanted, and take its others out."""
        names = {named(option[0]): option for option in wanted}
        present = None
        for name in owned:
            given = self.options.given.get(name)
            if given is None:
                continue
            option = names.get(name)
            if option is None:
                self._remove(given)
                continue
            present = given
            self._replace(given, option[1:])
        missing = [option for name, option in names.items() if name not in self.options.given]
        if missing:
            self._insert(missing, present)

    def machine(self, flags: Iterable[str], value: str) -> None:
        """Change an option of the launcher."""
        given = next((self.options.launcher[f] for f in flags if f in self.options.launcher), None)
        if given is not None:
            self._replace(given, (value,))

    def environment(self, changes: Mapping[str, Value]) -> None:
        """Set variables for the program."""
        for key, value in changes.items():
            name = key.removeprefix(ENVIRONMENT)
            word = self.options.environment.get(name)
            if word is not None and word.span is not None:
                self.edits[word.span] = str(value)
            else:
                self.head += f"export {name}={value}\n"

    def done(self) -> str:
        """Make every change."""
        text = self.text
        edits = [(first, last, new) for (first, last), new in self.edits.items()]
        edits += [(at, at, "".join(new)) for at, new in self.added.items()]
        for first, last, new in sorted(edits, key=lambda e: (e[0], e[1]), reverse=True):
            text = text[:first] + new + text[last:]
        text = _tidied(text)
        if self.head:
            comments = re.match(r"(?:#[^\n]*\n)*", text)
            at = comments.end() if comments else 0
            text = text[:at] + self.head + text[at:]
        return text

    def _replace(self, given: Given, values: Sequence[str]) -> None:
        """Give an option other values."""
        if [word.text for word in given.words][: len(values)] == list(values) or not values:
            return
        word = given.words[0] if given.words else None
        if self.how.literal and word is not None and (word.span or word.written):
            place = word.span or word.written
            assert place is not None
            plain = joined(values, False)
            self.edits[place] = plain if word.span or not self.how.quote else joined(values)
            return
        place = self._value_place(given)
        if place is not None:
            self.edits[place] = joined(values, self.how.quote)

    def _value_place(self, given: Given) -> tuple[int, int] | None:
        """Return where an option's value stands, quotes and all."""
        if given.place is None:
            return None
        found = _VALUE.match(self.text, given.place[0] + len(given.flag))
        return found.span(1) if found else None

    def _end(self, given: Given) -> int | None:
        """Return where an option with its values ends."""
        if given.place is None:
            return None
        at = given.place[1]
        if "=" in self.text[slice(*given.place)]:
            return at
        for _ in given.words:
            found = _VALUE.match(self.text, at)
            if found is None:
                break
            at = found.end()
        return at

    def _remove(self, given: Given) -> None:
        """Take an option out."""
        end = self._end(given)
        if given.place is not None and end is not None:
            self.edits[(given.place[0], end)] = GONE

    def _insert(self, wanted: Sequence[Option], anchor: Given | None) -> None:
        """Add options behind one that is there."""
        placed = [g for g in self.options.given.values() if g.place is not None]
        by_name = {g.name: g for g in placed}
        usual = (by_name.get(n) for n in ("pipeline_model_parallel_size", *_ANCHORS))
        chosen = anchor if anchor and anchor.place else next((g for g in usual if g), None)
        chosen = chosen or (placed[-1] if placed else None)
        if chosen is None or chosen.place is None:
            return
        end = self._end(chosen)
        assert end is not None
        start = self.text.rfind("\n", 0, chosen.place[0]) + 1
        stop = self.text.find("\n", end)
        line = self.text[start : stop if stop >= 0 else len(self.text)].rstrip("\r")
        before = self.text[:start].rstrip("\r\n")
        alone = line.strip().rstrip("\\").strip() == self.text[chosen.place[0] : end]
        chained = line.rstrip().endswith("\\") or before.endswith("\\")
        indent = line[: len(line) - len(line.lstrip())]
        gap = (" \\\n" if chained else "\n") + indent if alone else " "
        self.added.setdefault(end, []).extend(
            gap + joined(option, self.how.quote) for option in wanted
        )


_ANCHORS = (
    "tensor_model_parallel_size",
    "micro_batch_size",
    "global_batch_size",
    "num_layers",
    "seq_length",
)
"""Options that new ones are written behind, in order of preference."""


def _tidied(text: str) -> str:
    """Drop lines that lost all they held, and mend the chain of backslashes around them."""
    if GONE not in text:
        return text
    lines: list[str] = []
    for line in text.split("\n"):
        if GONE not in line:
            lines.append(line)
            continue
        rest = re.sub(rf" ?{GONE}", "", line)
        if rest.strip() in ("", "\\"):
            ended = not rest.rstrip().endswith("\\")
            if ended and lines and lines[-1].rstrip().endswith("\\"):
                lines[-1] = lines[-1].rstrip().removesuffix("\\").rstrip()
            continue
        lines.append(rest)
    return "\n".join(lines)


__all__ = ["ENVIRONMENT", "amended", "quoted"]
