"""Hugging Face Accelerate: YAML configurations with FSDP, and scripts that launch with them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from optplan import catalogue
from optplan.hf import shape_of
from optplan.launches import accelerate_text
from optplan.launches.accelerate_amend import insert, keys_for, literal
from optplan.launches.accelerate_steps import Job, batches, sharding
from optplan.launches.amend import amended
from optplan.launches.commands import flags, page_of, starts
from optplan.launches.documents import Entry, Page, yaml
from optplan.launches.launch import Launch, Value
from optplan.launches.notes import Notes, shape_values
from optplan.launches.shell import Script, read_script
from optplan.models.spec.plan import Plan
from optplan.models.spec.problem import Problem
from optplan.places import Refusal

NAME = "accelerate"

KINDS = (
    "FSDP",
    "MULTI_GPU",
    "NO",
    "DEEPSPEED",
    "MEGATRON_LM",
    "MULTI_NPU",
    "TP",
    "XLA",
    "MULTI_CPU",
)
"""Values of ``distributed_type``, accelerate/utils/dataclasses.py, DistributedType."""

_HINTS = re.compile(
    r"^\s*(?:distributed_type|fsdp_config|compute_environment|parallelism_config)\s*:"
    r"|\baccelerate\s+launch\b|accelerate\.commands\.launch",
    re.MULTILINE,
)
_VERSION = re.compile(r"^# Written for accelerate@([\d.]+):", re.MULTILINE)
_PRECISION = {"bf16": "bf16", "fp16": "fp16", "fp8": "fp8", "no": "fp32"}


class Accelerate:
    """Hugging Face Accelerate, from 1.0 on."""

    name = NAME

    def recognises(self, text: str) -> bool:
        """Look for its command or keys that only its configurations have."""
        return bool(_HINTS.search(text))

    def read(self, text: str) -> Launch:
        """
        Read a configuration, or a script that launches with one.

        Raises
        ------
        InputError
            It cannot be read as one.
        """
        notes = Notes()
        job = _job(text, notes)
        _machines(notes, job)
        _network(notes, job)
        _kind(notes, job)
        sharding(notes, job)
        notes.even_stages(1)
        batches(notes, job)
        _rest(notes, job)
        overlap = ("grad-reduce-overlap", "param-gather-overlap")
        return notes.done(NAME, job.version, overlap, job.left())

    def write(self, problem: Problem, plan: Plan, version: str) -> str:
        """
        Write a script with everything in it.

        Raises
        ------
        InputError
            This version cannot launch the plan.
        """
        return accelerate_text.write(problem, plan, version)

    def amend(self, text: str, changes: Mapping[str, Value]) -> str:
        """
        Return the launch with some values changed.

        Raises
        ------
        InputError
            The launch cannot be read, or a value has no key of its own in it.
        """
        job = _job(text, Notes())
        given = {f"--{name}": entry for name, entry in job.arguments.items()}
        return amended(
            text,
            self.read,
            changes,
            job.keys | given,
            lambda values: keys_for(values, job),
            literal,
            lambda missing: insert(text, job, missing),
            frozenset({"sequence_length", "nodes", "devices_per_node"}),
        )


def _job(text: str, notes: Notes) -> Job:
    """Find the keys of a launch, wherever it has them."""
    version = _VERSION.search(text)
    job = Job(version[1] if version else "")
    if not re.search(r"\baccelerate\s+launch\b|accelerate\.commands\.launch", text):
        job.page = Page(text)
        _configuration(job, job.page, notes)
        return job
    script = read_script(text)
    found = starts(script, lambda program: True, "accelerate")
    if not found:
        notes.fault(
            Entry("", None, "", 1),
            "no accelerate launch is in this file",
            "name a configuration, or a script that runs accelerate launch",
        )
        return job
    job.start = found[-1]
    options = job.start.options
    named = options.get("config_file")
    if named is not None:
        page = page_of(script, str(named.value))
        if page is not None:
            job.page = page
            _configuration(job, page, notes)
        else:
            notes.remark(
                "accelerate.file-apart",
                "warning",
                named.line,
                f"most of the job is in {named.value}, which is not in this script",
                "name that file instead, or as well",
            )
    for path, entry in options.items():
        if path != "config_file":
            job.keys[path] = entry
    _switches(job, options)
    for entry in flags(job.start.arguments):
        job.arguments[entry.path] = entry
    job.config = _config(script, job)
    return job


def _switches(job: Job, options: Mapping[str, Entry]) -> None:
    """Take ``--use_fsdp`` and its kin for the kind that they mean."""
    for switch, kind in (
        ("use_fsdp", "FSDP"),
        ("use_deepspeed", "DEEPSPEED"),
        ("use_megatron_lm", "MEGATRON_LM"),
        ("multi_gpu", "MULTI_GPU"),
    ):
        if switch in options:
            entry = options[switch]
            job.keys["distributed_type"] = Entry(
                "distributed_type", kind, entry.written, entry.line
            )
            job.taken.add(switch)


def _configuration(job: Job, page: Page, notes: Notes) -> None:
    """Take the keys of a configuration in; groups lose their name, keys their prefix stays."""
    found = yaml(page, notes.faults)
    if not found and not notes.faults:
        notes.fault(Entry("", None, "", page.line), "the configuration is empty", "write its keys")
    for entry in found:
        group, _, key = entry.path.partition(".")
        path = key if key and group.endswith("_config") else entry.path
        job.keys[path] = entry
        job.groups[path] = group if key else ""


def _config(script: Script, job: Job) -> Page | None:
    """Return the network's configuration, where the script writes it."""
    for name in ("config_name", "model_name_or_path", "model_name", "model"):
        entry = job.arguments.get(name)
        if entry is None:
            continue
        page = page_of(script, f"{entry.value}/config.json") if entry.value else None
        if page is None and str(entry.value).endswith(".json"):
            page = page_of(script, str(entry.value))
        if page is not None:
            job.arguments_taken.add(name)
            return page
    return None


def _machines(notes: Notes, job: Job) -> None:
    """State nodes and devices per node; ``num_processes`` counts those of all machines."""
    nodes, total = job.take("num_machines"), job.take("num_processes")
    count = notes.whole(nodes) or 1
    whole = notes.whole(total)
    job.world = whole
    if nodes is not None:
        notes.state("nodes", count, nodes)
    elif total is not None:
        notes.assume("nodes", 1, "num_machines is 1 unless set")
    if total is None or whole is None:
        return
    if whole % count:
        notes.remark(
            "accelerate.processes",
            "error",
            total.line,
            f"num_processes {whole} is no multiple of num_machines {count}; it counts all machines",
            f"write {max(1, whole // count) * count}",
        )
        return
    notes.state("devices_per_node", whole // count, total, literal=count == 1)
    if count > 1 and whole <= 8:
        notes.remark(
            "accelerate.processes-in-all",
            "warning",
            total.line,
            f"num_processes counts all machines: {whole} are {whole // count} on each of {count}",
            f"write {8 * count} where each has 8 devices",
        )


def _network(notes: Notes, job: Job) -> None:
    """State the network, from its configuration or its name."""
    if job.config is not None:
        page = job.config
        anchor = Entry("", None, page.name, page.line)
        try:
            config = json.loads(page.text)
            shape = shape_of(config) if isinstance(config, dict) else None
        except (ValueError, RecursionError):
            notes.fault(anchor, "this is no JSON", "check commas, quotes and brackets")
            return
        except Refusal as refusal:
            notes.fault(anchor, f"{page.name} {refusal.problem}", refusal.remedy)
            return
        if shape is not None:
            for name, value in shape_values(shape).items():
                notes.state(name, value, anchor, literal=False)
        return
    for name in ("model_name_or_path", "config_name", "model_name", "model"):
        entry = job.argument(name)
        if entry is None or "$" in str(entry.value):
            continue
        try:
            shape = catalogue.architecture(str(entry.value))
        except Refusal:
            notes.remark(
                "accelerate.network-unknown",
                "warning",
                entry.line,
                f"the sizes of '{str(entry.value)[:60]}' are not known here",
                "say which workload it is",
            )
            return
        for ours, value in shape_values(shape).items():
            notes.state(ours, value, entry, literal=False)
        return


def _kind(notes: Notes, job: Job) -> None:
    """Take the kind of distribution, and say where another dialect is in charge."""
    entry = job.take("distributed_type")
    word = notes.word(entry, KINDS)
    job.kind = word or ("MULTI_GPU" if (job.world or 1) > 1 else "NO")
    if job.kind in ("MEGATRON_LM", "XLA", "TP", "MULTI_CPU"):
        notes.remark(
            "accelerate.kind",
            "warning",
            entry.line if entry else 0,
            f"distributed_type {job.kind} is not read further",
            "take FSDP, or a launch of the framework itself",
        )


def _rest(notes: Notes, job: Job) -> None:
    """State the number format and what Accelerate leaves no choice of."""
    entry = job.take("mixed_precision")
    switch = next((e for n in ("bf16", "fp16") if (e := job.argument(n)) and notes.flag(e)), None)
    word = notes.word(entry, tuple(_PRECISION)) if entry else None
    if entry is not None and word:
        notes.state("precision", _PRECISION[word], entry, literal=word != "no")
        if switch is not None and switch.path != word:
            notes.remark(
                "accelerate.precision",
                "error",
                switch.line,
                f"{switch.written} in the script, mixed_precision {word} in the configuration",
                "write one of them",
            )
    elif switch is not None:
        notes.state("precision", switch.path, switch, literal=False)
    else:
        notes.assume("precision", "fp32", "mixed_precision is no unless set")
    attention = job.argument("attn_implementation")
    if attention is not None:
        notes.state("flash_attention", str(attention.value) != "eager", attention, literal=False)
    else:
        notes.assume("flash_attention", True, "the default of transformers, sdpa")
    notes.assume("sequence_parallel", False, "tensor-parallel plans of transformers")
    notes.assume("pp", 1, "Accelerate trains without a pipeline")
    notes.assume("context", "ring", "PyTorch's context parallelism")
    notes.assume("order", "data_inside", "there is no pipeline")


DIALECT = Accelerate()
