"""Keys of an Accelerate launch that change with the values of a plan."""

from __future__ import annotations

import re
from collections.abc import Mapping

from optplan.launches.accelerate_steps import GLOBAL, LENGTH, MICRO, Job
from optplan.launches.accelerate_text import STRATEGIES
from optplan.launches.amend import Edit, Keys
from optplan.launches.documents import Entry
from optplan.launches.launch import Value
from optplan.launches.notes import refuse
from optplan.models.errors import InputError

MESH = "parallelism_config_"


def keys_for(values: Mapping[str, Value], job: Job) -> Keys:
    """Return the keys of a launch that asks for some values; the script's own begin with ``--``."""
    found: dict[str, object] = {}
    nodes, each = values.get("nodes", 1), values.get("devices_per_node")
    if isinstance(nodes, int) and isinstance(each, int):
        found["num_machines"] = nodes
        found["num_processes"] = nodes * each
    for ours, names in (
        ("micro_batch", MICRO),
        ("micro_batches", ("gradient_accumulation_steps",)),
        ("sequence_length", LENGTH),
        ("global_batch", GLOBAL),
    ):
        path = next((name for name in names if name in job.arguments), "")
        if not path and ours != "global_batch":
            path = names[0]
        if path and ours in values:
            found[f"--{path}"] = values[ours]
    zero, hsdp = values.get("zero"), bool(values.get("hsdp"))
    second = "fsdp_version" in job.keys and str(job.keys["fsdp_version"].value) == "2"
    if zero in (2, 3) and isinstance(zero, int):
        if second:
            found["fsdp_reshard_after_forward"] = zero == 3
        else:
            found["fsdp_sharding_strategy"] = STRATEGIES[(zero, hsdp)]
    for ours, path in (("tp", f"{MESH}tp_size"), ("cp", f"{MESH}cp_size")):
        if ours in values:
            found[path] = values[ours]
    if any(path.startswith(MESH) for path in job.keys) and not hsdp and "dp" in values:
        plain = zero == 0
        found[f"{MESH}dp_shard_size"] = 1 if plain else values["dp"]
        found[f"{MESH}dp_replicate_size"] = values["dp"] if plain else 1
    if "offload" in values:
        found["fsdp_offload_params"] = values["offload"]
    if values.get("recompute") in ("none", "full"):
        found["fsdp_activation_checkpointing"] = values["recompute"] == "full"
    return found


def literal(value: object, entry: Entry) -> str:
    """Write a value where another stood."""
    if isinstance(value, bool):
        said = str(value)
        return said if str(entry.written).rstrip().endswith(("True", "False")) else said.lower()
    return str(value)


def insert(text: str, job: Job, missing: Mapping[str, object]) -> list[Edit]:
    """
    Add keys to the configuration, arguments to the end of the command.

    Raises
    ------
    InputError
        There is neither.
    """
    edits: list[Edit] = []
    groups: dict[str, list[str]] = {}
    for path, value in missing.items():
        if path.startswith("--"):
            edits.append(_argument(text, job, f" {path} {value}"))
            continue
        group = "fsdp_config" if path.startswith("fsdp_") else ""
        group = "parallelism_config" if path.startswith(MESH) else group
        said = str(value).lower() if isinstance(value, bool) else value
        groups.setdefault(group, []).append(f"{path}: {said}\n")
    for group, lines in groups.items():
        if job.page is None:
            options = "".join(f" --{line.replace(': ', ' ').strip()}" for line in lines)
            found = re.search(r"accelerate\s+launch\b", text)
            if found is None:
                raise InputError([refuse(group, "no command takes it", "add it by hand")])
            edits.append((found.end(), found.end(), options))
            continue
        first = next(iter(job.groups), None)
        entry = job.keys[first] if first else None
        header = re.search(rf"^{group}:[ \t]*\n([ \t]+)", text, re.MULTILINE) if group else None
        if header is not None:
            at = header.start(1)
            edits.append((at, at, "".join(header[1] + line for line in lines)))
        elif entry is not None and entry.span is not None:
            # In front of the first key, which always begins a line.
            at = text.rfind("\n", 0, entry.span[0]) + 1
            inner = "".join(f"  {line}" for line in lines)
            edits.append((at, at, f"{group}:\n{inner}" if group else "".join(lines)))
        else:
            raise InputError([refuse(group, "the configuration has no room", "add it by hand")])
    return edits


def _argument(text: str, job: Job, said: str) -> Edit:
    """Add an argument behind the last one of the command."""
    spans = [e.span for e in job.arguments.values() if e.span is not None]
    if job.start is None or not spans:
        raise InputError([refuse(said.split()[0], "no command takes it", "add it by hand")])
    at = max(last for _, last in spans)
    at += text[at : at + 1] in ('"', "'")
    return at, at, said
