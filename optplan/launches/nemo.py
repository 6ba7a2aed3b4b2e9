"""NeMo 2 and 1 and Megatron-Bridge: overrides behind a command, and YAML configurations."""

from __future__ import annotations

import re
from collections.abc import Mapping

from optplan import catalogue
from optplan.launches import nemo_text
from optplan.launches.amend import Edit, amended
from optplan.launches.commands import variable_behind
from optplan.launches.documents import Entry, Page, yaml
from optplan.launches.launch import Launch, Stated, Value
from optplan.launches.megatron_options import Given
from optplan.launches.megatron_overlap import overlap_of
from optplan.launches.megatron_reading import Layout
from optplan.launches.megatron_shape import read_shape
from optplan.launches.nemo_keys import SAME, SWITCHES, option_of, options_of, short_name
from optplan.launches.notes import Notes, refuse, shape_values
from optplan.launches.reading import Reading
from optplan.launches.shell import Script, Word, read_script
from optplan.models.errors import Fault, InputError
from optplan.models.spec.plan import Plan
from optplan.models.spec.problem import Problem

NAME = "nemo"

FACTORIES = {
    "llama2_7b": "llama-2-7b",
    "llama3_8b": "llama-3-8b",
    "llama31_8b": "llama-3-8b",
    "llama3_70b": "llama-3-70b",
    "llama31_70b": "llama-3-70b",
    "llama31_405b": "llama-3.1-405b",
    "baichuan2_7b": "baichuan2-7b",
    "gpt3_175b": "gpt3-175b",
    "mistral_7b": "mistral-7b",
    "mixtral_8x7b": "mixtral-8x7b",
    "mixtral_8x22b": "mixtral-8x22b",
    "qwen25_7b": "qwen2.5-7b",
    "qwen25_72b": "qwen2.5-72b",
    "qwen3_600m": "qwen3-0.6b",
    "qwen3_1p7b": "qwen3-1.7b",
    "qwen3_4b": "qwen3-4b",
    "qwen3_8b": "qwen3-8b",
    "qwen3_14b": "qwen3-14b",
    "qwen3_32b": "qwen3-32b",
    "qwen3_30b_a3b": "qwen3-30b-a3b",
    "qwen3_235b_a22b": "qwen3-235b-a22b",
    "deepseek_v2": "deepseek-v2",
    "deepseek_v3": "deepseek-v3",
}
"""Recipes, nemo/collections/llm/recipes of package nemo_toolkit 2.4.0, and what they train."""

_OVERRIDE = re.compile(r"^[+~]{0,2}([A-Za-z_]\w*(?:\.\w+)+)=(.*)$", re.DOTALL)
_VERSION = re.compile(r"^# Written for nemo@([\d.]+):", re.MULTILINE)
_COMMAND = re.compile(
    r"\bllm\s+(?:pretrain|finetune)\b|megatron_gpt_(?:pretraining|config|finetuning)"
    r"|\bmegatron[./]bridge\b"
)
_YAML = re.compile(
    r"^\s+(?:tensor_model_parallel_size|pipeline_model_parallel_size|micro_batch_size)\s*:",
    re.MULTILINE,
)
_TOP = re.compile(r"^(?:trainer|model|train|exp_manager)\s*:", re.MULTILINE)


class NeMo:
    """NeMo on Megatron Core."""

    name = NAME

    def recognises(self, text: str) -> bool:
        """Look for its commands, overrides of its keys, or a configuration with its sections."""
        overrides = len(re.findall(r"\b(?:model|trainer|train|data|ddp)\.[\w.]*\w=", text)) >= 2
        if overrides and ("parallel_size=" in text or bool(_COMMAND.search(text))):
            return True
        return bool(_TOP.search(text)) and bool(_YAML.search(text))

    def read(self, text: str) -> Launch:
        """
        Read a command with overrides, or a configuration.

        Raises
        ------
        InputError
            It cannot be read as one.
        """
        notes = Notes()
        entries, script = _entries(text, notes)
        if notes.faults:
            raise InputError(notes.faults)
        environment = _environment(script)
        options = options_of(entries, environment)
        reading = Reading(options)
        named = _factory(reading, entries)
        read_shape(reading)
        if not options.has("vocab_size") and script and "VOCABULARY" in script.variables:
            word = script.variables["VOCABULARY"]
            entry = Entry("VOCABULARY", word.text, f"VOCABULARY={word.text}", word.line, word.span)
            notes.state("vocabulary", notes.whole(entry), entry)
            reading.faults += notes.faults
        layout = Layout(reading)
        layout.read()
        overlap = overlap_of(reading, layout.vpp)
        _single(reading, entries)
        _remarks(reading, layout, named)
        version = _VERSION.search(text)
        launch = reading.done(NAME, version[1] if version else "", overlap)
        meant = {entry.path for entry in entries if option_of(entry) or _switch(entry)}
        unread = [entry.path for entry in entries if entry.path not in meant]
        more = {"stated": (*launch.stated, *notes.stated), "unread": tuple(unread)}
        return launch.model_copy(update=more)

    def write(self, problem: Problem, plan: Plan, version: str) -> str:
        """
        Write a script with everything in it.

        Raises
        ------
        InputError
            This version cannot launch the plan.
        """
        return nemo_text.write(problem, plan, version)

    def amend(self, text: str, changes: Mapping[str, Value]) -> str:
        """
        Return the launch with some values changed.

        Raises
        ------
        InputError
            The launch cannot be read, or a value has no key of its own in it.
        """
        found, _ = _entries(text, Notes())
        entries = {short_name(entry.path): entry for entry in found}
        return amended(
            text,
            self.read,
            changes,
            entries,
            nemo_text.keys_for,
            lambda value, entry: str(value).lower() if isinstance(value, bool) else str(value),
            lambda missing: _insert(text, found, missing),
            frozenset({"sequence_length", "nodes", "devices_per_node"}),
        )


def _switch(entry: Entry) -> bool:
    """Tell whether an entry is known, though its value gives no option."""
    name = short_name(entry.path)
    return name in SWITCHES or name in SAME or name in ("factory", "precision")


def _entries(text: str, notes: Notes) -> tuple[list[Entry], Script | None]:
    """Return the keys of a launch, in order, and the script that holds them."""
    overrides = _COMMAND.search(text) or re.search(r"\b(?:model|trainer|train)\.[\w.]+=", text)
    if not overrides and _TOP.search(text):
        return _resolved(yaml(Page(text), notes.faults)), None
    script = read_script(text)
    best: list[Entry] = []
    for command in script.commands:
        found = _command(command.words, text, script)
        if len(found) >= len(best):
            best = found
    for inline in script.files.values():
        if inline.name.endswith((".yaml", ".yml")):
            page = Page(inline.text, inline.line, inline.at, inline.name)
            best = [*_resolved(yaml(page, notes.faults)), *best]
    if not best:
        notes.fault(
            Entry("", None, "", 1),
            "no launch of NeMo is in this file",
            "name a script with overrides such as trainer.num_nodes=2, or a configuration",
        )
    return best, script


def _command(words: tuple[Word, ...], text: str, script: Script) -> list[Entry]:
    """Return the overrides of a command, and what its launcher says."""
    found: list[Entry] = []
    for index, word in enumerate(words):
        said = _OVERRIDE.match(word.text)
        name, equals, value = word.text.partition("=")
        key = name.lstrip("-").replace("-", "_")
        follows = words[index + 1] if index + 1 < len(words) else None
        if said is not None and not word.text.startswith("-"):
            skip = len(word.text) - len(said[2])
            quote = 1 if said[2][:1] in ("'", '"') and said[2][-1:] == said[2][:1] else 0
            span = (word.span[0] + skip + quote, word.span[1] - quote) if word.span else None
            plain = said[2][quote : len(said[2]) - quote]
            line = word.line
            if span is None and (one := variable_behind(text, script, said[1], plain)):
                span, line = one.span, one.line
            found.append(Entry(said[1], plain, word.text, line, span))
        elif key in ("factory", "nnodes", "nproc_per_node", "nodes", "num_nodes", "devices"):
            path = {"nnodes": "num_nodes", "nodes": "num_nodes", "nproc_per_node": "devices"}
            if equals:
                place = (word.span[0] + len(name) + 1, word.span[1]) if word.span else None
                found.insert(0, Entry(path.get(key, key), value, word.text, word.line, place))
            elif follows is not None and name.startswith("-"):
                written = f"{name} {follows.text}"
                found += _arguments(follows) if key == "factory" else []
                entry = Entry(path.get(key, key), follows.text, written, follows.line, follows.span)
                found.insert(0, entry)
    # A launcher that leaves its numbers to the environment says nothing.
    return [e for e in found if not (e.path in ("num_nodes", "devices") and "$" in str(e.value))]


def _arguments(word: Word) -> list[Entry]:
    """Return what a recipe is called with: ``llama3_8b(num_nodes=2)``."""
    found = []
    for said in re.finditer(r"\b(num_nodes|num_gpus_per_node)\s*=\s*(\d{1,6})\b", word.text):
        span = (word.span[0] + said.start(2), word.span[0] + said.end(2)) if word.span else None
        found.append(Entry(said[1], said[2], said[0], word.line, span))
    return found


def _resolved(entries: list[Entry]) -> list[Entry]:
    """Put values in the place of ``${model.encoder_seq_length}`` and its like."""
    known = {entry.path: entry for entry in entries}
    found = []
    for entry in entries:
        said = re.fullmatch(r"\$\{([\w.]+)\}", str(entry.value))
        if said is not None:
            near = entry.path.rpartition(".")[0]
            other = known.get(f"{near}{said[1]}" if said[1].startswith(".") else said[1])
            if other is None or "${" in str(other.value):
                continue
            entry = Entry(entry.path, other.value, entry.written, other.line, other.span)
        elif "${" in str(entry.value) and isinstance(entry.value, str):
            continue
        found.append(entry)
    # A list of devices is as many; -1 and auto are those of a node.
    return [
        e for e in found if not (e.path == "trainer.devices" and str(e.value) in ("-1", "auto"))
    ]


def _environment(script: Script | None) -> Mapping[str, Word]:
    """Return the variables that a launch sees."""
    if script is None:
        return {}
    found: dict[str, Word] = dict(script.variables)
    for command in script.commands:
        found |= command.environment
    return found


def _factory(reading: Reading, entries: list[Entry]) -> bool:
    """State the network of a recipe."""
    entry = next((e for e in entries if e.path == "factory"), None)
    if entry is None:
        return False
    recipe, _, _ = str(entry.value).partition("(")
    recipe = recipe.strip("\"' ")
    known = next((r for r in FACTORIES if recipe == r or recipe.startswith(f"{r}_")), None)
    sizes = ("num_layers", "hidden_size", "num_attention_heads", "ffn_hidden_size")
    own = sum(name in reading.options.given for name in sizes)
    if known is not None and own < 3:
        # Most sizes are the recipe's; a launch that gives them all has a network of its own.
        shape = catalogue.architecture(FACTORIES[known])
        found = {"architecture": FACTORIES[known], **shape_values(shape)}
        reading.stated += [
            Stated(name=name, value=value, written=entry.written[:200], line=entry.line)
            for name, value in found.items()
        ]
    return True


def _single(reading: Reading, entries: list[Entry]) -> None:
    """State single precision, which no option of Megatron says; unset it is the recipe's bf16."""
    entry = next((e for e in reversed(entries) if short_name(e.path) == "precision"), None)
    said = str(entry.value).lower() if entry is not None else ""
    if any(one in reading.options.given for one in ("bf16", "fp16", "fp8_format")):
        return
    reading.remarks = [one for one in reading.remarks if one.rule != "megatron.precision"]
    reading.assumed = [one for one in reading.assumed if one.name != "precision"]
    if entry is not None and said.startswith(("32", "fp32")):
        reading.stated.append(
            Stated(name="precision", value="fp32", written=entry.written, line=entry.line)
        )
    else:
        reading.assume("precision", "bf16", "recipes train in bf16-mixed")


def _remarks(reading: Reading, layout: Layout, named: bool) -> None:
    """Say where NeMo surprises."""
    options = reading.options
    experts = any(one.name == "experts.count" for one in reading.stated)
    ep = options.given.get("expert_model_parallel_size")
    if experts and ep is not None and not options.has("expert_tensor_parallel_size"):
        _expert_default(reading, layout, reading.whole(ep) or 1, ep)
    unset = [
        name
        for name in ("tensor_model_parallel_size", "pipeline_model_parallel_size")
        if name not in options.given
    ]
    if named and unset:
        reading.remark(
            "nemo.recipe-defaults",
            "warning",
            f"{' and '.join(unset)} are the recipe's, which is not read here; 1 is taken",
            "write them as overrides",
            0,
        )


def _expert_default(reading: Reading, layout: Layout, degree: int, given: Given) -> None:
    """
    Say which tensor degree experts get in silence, and what the groups multiply to.

    NVIDIA-NeMo/Speech issue 14838: a job died of a product that no setting of it showed.
    """
    tp, cp, pp = layout.tp, layout.cp, layout.pp
    dense, sparse = tp * cp, degree * tp
    stage = (layout.world or 0) // pp
    said = f"dense tp {tp} x cp {cp} = {dense}, experts ep {degree} x etp {tp} = {sparse}"
    bad = bool(stage) and (stage % sparse != 0 or stage % dense != 0)
    if bad:
        said += f"; neither may leave a rest of the {stage} devices of each of {pp} stages"
    elif stage:
        said += (
            f"; of {stage} devices a stage that leaves dp {stage // dense} and expert dp "
            f"{stage // sparse}, times pp {pp}"
        )
    reading.remark(
        "nemo.expert-tensor-default",
        "error" if bad else "warning" if tp > 1 else "note",
        f"expert_tensor_parallel_size is not set and becomes tp {tp}: {said}",
        "write expert_tensor_parallel_size=1, or the degree that is meant",
        given,
    )


def _insert(text: str, entries: list[Entry], missing: Mapping[str, object]) -> list[Edit]:
    """Add overrides behind the last one; a configuration is changed by hand."""
    behind = [
        e for e in entries if e.span and "=" in e.written and ":" not in e.written.split("=")[0]
    ]
    faults: list[Fault] = []
    if not behind:
        faults = [refuse(name, "the configuration lacks it", "add it by hand") for name in missing]
        raise InputError(faults)
    at = max(e.span[1] for e in behind if e.span)
    at += text[at : at + 1] in ("'", '"')
    said = "".join(
        f" {nemo_text.home(name, behind[-1].path)}{name}="
        f"{str(value).lower() if isinstance(value, bool) else value}"
        for name, value in missing.items()
    )
    return [(at, at, said)]


DIALECT = NeMo()
