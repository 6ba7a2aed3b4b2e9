"""Options of a Megatron launch, whether a script, a list of arguments or a log states them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from optplan.launches.logs import entries, looks_like_log
from optplan.launches.shell import Command, Word, read_script
from optplan.models.errors import Fault, InputError

SIGNS = (
    "tensor_model_parallel_size",
    "pipeline_model_parallel_size",
    "num_layers",
    "hidden_size",
    "num_attention_heads",
    "micro_batch_size",
    "global_batch_size",
    "seq_length",
    "use_distributed_optimizer",
    "sequence_parallel",
    "recompute_granularity",
    "max_position_embeddings",
    "use_mcore_models",
)
"""Options by which a launch is known for one of Megatron."""

LAUNCHERS = ("nproc_per_node", "nnodes", "nodes", "ntasks_per_node", "gpus_per_node", "ntasks")
"""What launchers call devices and nodes."""

_SHORT = {"-N": "nodes", "-n": "ntasks"}
_SBATCH = re.compile(r"^#SBATCH\s+(-{1,2}[\w-]+)(?:[ =]+)(\S+)", re.MULTILINE)
_PROGRAM = re.compile(r"(?:^|/)[\w.-]+\.py$")


@dataclass(frozen=True)
class Given:
    """
    One option.

    Parameters
    ----------
    name
        Its name with underscores: ``tensor_model_parallel_size``.
    flag
        As it is written.
    words
        Its values.
    line
        Line of the file, from 1.
    place
        Characters of the file that hold the flag; None where no one place does.
    """

    name: str
    flag: str
    words: tuple[Word, ...]
    line: int
    place: tuple[int, int] | None = None

    @property
    def written(self) -> str:
        """The option as a person would write it."""
        return " ".join([self.flag, *(word.text for word in self.words)])[:200]


@dataclass(frozen=True)
class Options:
    """
    Everything a launch says.

    Parameters
    ----------
    kind
        ``script``, ``arguments`` or ``log``.
    given
        Options of the program by name; the last one of a name counts.
    launcher
        Options of what starts it: torchrun, srun, sbatch.
    environment
        Variables that it sees.
    loose
        Words where an option should stand.
    lost
        First word and line of commands that begin with an option: the line before ended too soon.
    """

    kind: str
    given: Mapping[str, Given]
    launcher: Mapping[str, Given] = field(default_factory=dict)
    environment: Mapping[str, Word] = field(default_factory=dict)
    loose: tuple[Word, ...] = ()
    lost: tuple[tuple[str, int], ...] = ()

    def has(self, *names: str) -> bool:
        """Tell whether one of some options is given."""
        return any(name in self.given for name in names)


def named(flag: str) -> str:
    """Return an option's name with underscores."""
    return flag.lstrip("-").replace("-", "_")


def is_flag(word: Word) -> bool:
    """Tell whether a word is an option and no value."""
    return bool(re.match(r"--?[A-Za-z]", word.text))


def gather(words: Iterable[Word]) -> tuple[dict[str, Given], list[Word]]:
    """Cut words into options with their values; what stands before the first is loose."""
    given: dict[str, Given] = {}
    loose: list[Word] = []
    flag: Word | None = None
    values: list[Word] = []

    def close() -> None:
        if flag is not None:
            head, equals, rest = flag.text.partition("=")
            mine = list(values)
            if equals:
                span = None
                if flag.span is not None:
                    span = (flag.span[0] + len(head) + 1, flag.span[1])
                mine.insert(0, Word(rest, flag.line, span, flag.unknown))
            name = _SHORT.get(head, named(head))
            # Of two the last counts, and stands where it does.
            given.pop(name, None)
            given[name] = Given(name, head, tuple(mine), flag.line, flag.span)

    for word in words:
        if is_flag(word):
            close()
            flag, values = word, []
        elif flag is None:
            loose.append(word)
        else:
            values.append(word)
    close()
    return given, loose


def signs(given: Mapping[str, Given]) -> int:
    """Count the options by which Megatron is known."""
    return sum(name in given for name in SIGNS)


def read_options(text: str) -> Options:
    """
    Read a launch.

    Raises
    ------
    InputError
        The script cannot be read, or nothing in it launches Megatron.
    """
    if looks_like_log(text):
        return _from_log(text)
    script = read_script(text)
    best: tuple[int, int] = (0, -1)
    for i, command in enumerate(script.commands):
        given, _ = gather(command.words)
        best = max(best, (signs(given), i))
    count, at = best
    if count < 2:
        problem = "nothing in it launches Megatron: no command has options such as --num-layers"
        remedy = "name the script that calls torchrun, or a log that begins with its arguments"
        raise InputError([Fault("", "", problem, remedy)])
    command = script.commands[at]
    alone = is_flag(command.words[0])
    lost = [] if alone else _lost(script.commands, at)
    words = command.words
    if alone:
        # A bare list of arguments goes on from line to line.
        words = tuple(w for c in script.commands if is_flag(c.words[0]) for w in c.words)
    launcher, program = _parted(words)
    given, loose = gather(program)
    started, _ = gather(launcher)
    for one in _SBATCH.finditer(text):
        name = _SHORT.get(one[1], named(one[1]))
        line = text.count("\n", 0, one.start()) + 1
        word = Word(one[2], line, one.span(2))
        started.setdefault(name, Given(name, f"#SBATCH {one[1]}", (word,), line))
    environment = {**script.variables, **command.environment} if alone else command.environment
    for name, option in given.items():
        if name in LAUNCHERS and name not in started:
            started[name] = option
    unknown = tuple(w for w in (*loose, *_open(given)) if w.unknown)
    return Options(
        "arguments" if alone else "script", given, started, environment, unknown, tuple(lost)
    )


def _parted(words: tuple[Word, ...]) -> tuple[tuple[Word, ...], tuple[Word, ...]]:
    """Part what starts the program from the program's own options."""
    programs = [i for i, word in enumerate(words) if _PROGRAM.search(word.text)]
    modules = [i + 1 for i, word in enumerate(words[:-1]) if word.text == "-m"]
    hits = programs or [i for i in modules if not words[i].text.startswith("torch.")]
    if not hits:
        return (), words
    at = hits[0]
    return words[:at], words[at + 1 :]


def _open(given: Mapping[str, Given]) -> list[Word]:
    """Return words that nobody sets and that may hold more options."""
    return [w for one in given.values() for w in one.words[1:] if w.unknown and w.text[:2] == "${"]


def _lost(commands: tuple[Command, ...], at: int) -> list[tuple[str, int]]:
    """Find options that the launching command no longer reaches."""
    return [
        (c.words[0].text, c.line) for c in commands[at + 1 :] if c.words and is_flag(c.words[0])
    ]


def _from_log(text: str) -> Options:
    """Read what a log prints: every argument, those left at their defaults too."""
    given: dict[str, Given] = {}
    for entry in entries(text):
        if entry.name in given:
            continue
        if entry.value in ("None", ""):
            continue
        name = entry.name
        word = Word(entry.value, entry.line, entry.span)
        words: tuple[Word, ...] = (word,)
        if entry.value in ("True", "False"):
            if name in _NEGATED:
                if entry.value == "True":
                    continue
                name = _NEGATED[name]
            elif entry.value == "False":
                continue
            words = ()
        given[name] = Given(name, entry.name, words, entry.line)
    for name, option in list(given.items()):
        if option.words and option.words[0].text.startswith("["):
            given[name] = _listed(option)
    return Options("log", given)


_NEGATED = {
    "add_bias_linear": "disable_bias_linear",
    "overlap_p2p_comm": "no_overlap_p2p_communication",
    "add_position_embedding": "no_position_embedding",
}
"""Arguments that options switch off."""


def _listed(option: Given) -> Given:
    """Cut a list as a log prints it."""
    word = option.words[0]
    parts = [p.strip(" '\"") for p in word.text.strip("[]").split(",")]
    return Given(
        option.name, option.flag, tuple(Word(p, word.line) for p in parts if p), option.line
    )
