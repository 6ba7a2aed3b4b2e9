"""The command of a script that starts the training: its launcher, its machines, its arguments."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from optplan.launches.documents import Entry, Page
from optplan.launches.notes import Notes
from optplan.launches.shell import Command, Script, Word

LAUNCHERS = ("torchrun", "deepspeed", "accelerate")
"""Commands that start one process a device."""

_SBATCH = re.compile(r"^#SBATCH[ \t]+(?:--([a-z-]+)[= \t]+|-N[ \t]*())(\d+)[ \t]*$", re.MULTILINE)
_BARE = frozenset(
    [
        "standalone",
        "no_python",
        "run_path",
        "force_multi",
        "same_network",
        "fp8",
        "bf16",
        "fp16",
        "multi_gpu",
        "use_fsdp",
        "use_deepspeed",
        "use_megatron_lm",
        "no_local_rank",
        "no_ssh",
        "module",
    ]
)
"""Options of launchers that take no value."""


@dataclass(frozen=True)
class Start:
    """
    How a training is started.

    Parameters
    ----------
    launcher
        Such as ``torchrun``; empty where a script stands alone.
    options
        The launcher's own, by name with underscores.
    program
        Script or module that every process runs.
    arguments
        What the program is given.
    command
        The whole command.
    """

    launcher: str
    options: Mapping[str, Entry]
    program: str
    arguments: tuple[Word, ...]
    command: Command
    variables: Mapping[str, Word] = field(default_factory=dict)


def entry_of(path: str, word: Word, key: str = "", skip: int = 0) -> Entry:
    """Return a word of a command as an entry, less so many characters at its front."""
    span = (word.span[0] + skip, word.span[1]) if word.span else None
    text = word.text[skip:]
    return Entry(path, text, f"{key} {text}".strip() if not skip else word.text, word.line, span)


def variable_behind(text: str, script: Script, head: str, value: str) -> Word | None:
    """
    Return the variable that decides ``head=$NAME``, if it alone does.

    Parameters
    ----------
    head
        What stands in front of the sign.
    value
        What the word says there, expanded.
    """
    pattern = re.escape(head) + r"""=["']?\$\{?([A-Za-z_]\w*)\}?"""
    for said in re.finditer(pattern, text):
        word = script.variables.get(said[1])
        if word is not None and word.text == value and word.span is not None:
            return word
    return None


def page_of(script: Script, name: str) -> Page | None:
    """Return a file that a script writes, by its name or the last part of it."""
    for known, inline in script.files.items():
        if known == name or known.rsplit("/", 1)[-1] == name.rsplit("/", 1)[-1]:
            return Page(inline.text, inline.line, inline.at, known)
    return None


def starts(script: Script, runs: Callable[[str], bool], only: str = "") -> list[Start]:
    """
    Return the commands that run a program, with or without a launcher in front.

    Parameters
    ----------
    runs
        Tells a program of interest by its name.
    only
        The one launcher that counts; left out: any, or none in front.
    """
    found = []
    for command in script.commands:
        start = _start(command, runs, only)
        if start is not None:
            found.append(start)
    return found


def _start(command: Command, runs: Callable[[str], bool], only: str) -> Start | None:
    """Read one command; None where it runs nothing of interest."""
    words = command.words
    for index, word in enumerate(words):
        name = word.text.rsplit("/", 1)[-1]
        run = [w.text for w in words[index : index + 3]]
        if name in LAUNCHERS or (
            run[1:2] == ["-m"] and run[2:] and run[2].startswith("torch.distributed.")
        ):
            torch = name not in LAUNCHERS
            first = index + (3 if torch else 1)
            if name == "accelerate":
                if [w.text for w in words[first : first + 1]] != ["launch"]:
                    continue
                first += 1
            options, at, program = _options(words, first)
            launcher = "torchrun" if torch else name
            if program and runs(program) and only in ("", launcher):
                return Start(launcher, options, program, words[at:], command)
            return None
        if not only and runs(word.text) and not word.text.startswith("-"):
            return Start("", {}, word.text, words[index + 1 :], command)
    return None


def _options(words: Sequence[Word], at: int) -> tuple[dict[str, Entry], int, str]:
    """Read a launcher's options; return them, where the program's arguments begin, the program."""
    found: dict[str, Entry] = {}
    while at < len(words):
        text = words[at].text
        if text in ("-m", "--module") and at + 1 < len(words):
            return found, at + 2, words[at + 1].text
        if not text.startswith("-"):
            if re.search(r"python[\d.]*$", text) or text == "-u":
                at += 1
                continue
            return found, at + 1, text
        name, equals, _ = text.partition("=")
        key = name.lstrip("-").replace("-", "_")
        if equals:
            found[key] = entry_of(key, words[at], name, len(name) + 1)
            at += 1
        elif key in _BARE or key == "u" or at + 1 >= len(words):
            found[key] = Entry(key, True, name, words[at].line)
            at += 1
        else:
            found[key] = entry_of(key, words[at + 1], name)
            at += 2
    return found, at, ""


def flags(words: Sequence[Word], bare: frozenset[str] = frozenset()) -> list[Entry]:
    """
    Read ``--name value``, ``--name=value`` and ``--name`` alone; paths are names with underscores.

    Parameters
    ----------
    bare
        Names of flags that never take a value.
    """
    found: list[Entry] = []
    at = 0
    while at < len(words):
        word = words[at]
        if not word.text.startswith("--"):
            at += 1
            continue
        name, equals, _ = word.text.partition("=")
        key = name[2:].replace("-", "_")
        follows = words[at + 1] if at + 1 < len(words) else None
        alone = follows is None or re.match(r"--?[A-Za-z]", follows.text) is not None
        if equals:
            found.append(entry_of(key, word, name, len(name) + 1))
        elif alone or key in bare or follows is None:
            found.append(Entry(key, True, name, word.line, None))
        else:
            found.append(entry_of(key, follows, name))
            at += 1
        at += 1
    return found


def machines(notes: Notes, text: str, start: Start | None) -> tuple[int | None, int | None]:
    """
    State nodes and devices per node, from the launcher or a batch system's header.

    Returns
    -------
    tuple
        Nodes and devices per node; None for what the launch does not say.
    """
    found: dict[str, Entry] = {}
    for said in _SBATCH.finditer(text):
        name = said[1] or "nodes"
        line = text.count("\n", 0, said.start()) + 1
        literal = Entry(name, int(said[3]), said[0].strip(), line, (said.start(3), said.end(3)))
        if name == "nodes":
            found["nodes"] = literal
        elif name in ("gpus-per-node", "ntasks-per-node"):
            found.setdefault("devices_per_node", literal)
    options = start.options if start else {}
    for ours, theirs in (
        ("nodes", ("nnodes", "num_nodes", "num_machines")),
        ("devices_per_node", ("nproc_per_node", "num_gpus", "nproc")),
    ):
        for name in theirs:
            if name in options and _known(options[name]):
                found[ours] = options[name]
    if options and "nodes" not in found:
        notes.assume("nodes", 1, f"the default of {start.launcher if start else 'the launcher'}")
    sizes: list[int | None] = []
    for name in ("nodes", "devices_per_node"):
        value = notes.whole(found.get(name))
        if name in found:
            notes.state(name, value, found[name])
        sizes.append(value)
    if sizes[0] is None and options:
        sizes[0] = 1
    return sizes[0], sizes[1]


def _known(entry: Entry) -> bool:
    """Tell whether an option says a number."""
    return str(entry.value).strip().isdigit()
