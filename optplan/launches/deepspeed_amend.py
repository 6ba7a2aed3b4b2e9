"""Options and keys of a Megatron-DeepSpeed job that change with the values of a plan."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from optplan.launches.amend import Edit, Keys
from optplan.launches.documents import Entry
from optplan.launches.launch import Value
from optplan.launches.notes import refuse
from optplan.models.errors import InputError

FLAGS = {
    "tp": "tensor_model_parallel_size",
    "pp": "pipeline_model_parallel_size",
    "cp": "ds_sequence_parallel_size",
    "ep": "moe_expert_parallel_size",
    "micro_batch": "micro_batch_size",
    "global_batch": "global_batch_size",
    "sequence_length": "seq_length",
    "zero": "zero_stage",
}
JSON = {
    "micro_batch": "train_micro_batch_size_per_gpu",
    "global_batch": "train_batch_size",
    "micro_batches": "gradient_accumulation_steps",
    "zero": "zero_optimization.stage",
}


def keys_for(values: Mapping[str, Value], present: set[str]) -> Keys:
    """
    Return the options and keys of a job that asks for some values.

    Parameters
    ----------
    present
        What the job has; a value is told wherever it was told, or by an option.
    """
    found: dict[str, object] = {}
    alone = not any(path.startswith("--") for path in present)
    for ours, path in JSON.items():
        if ours in values and (path in present or alone):
            found[path] = values[ours]
    for ours, name in FLAGS.items():
        told = JSON.get(ours) in found and f"--{name}" not in present
        if ours in values and not alone and not told:
            found[f"--{name}"] = values[ours]
    return found


def literal(value: object, entry: Entry) -> str:
    """Write a value where another stood."""
    return value if isinstance(value, str) else json.dumps(value)


def insert(text: str, entries: Mapping[str, Entry], missing: Mapping[str, object]) -> list[Edit]:
    """
    Add options behind the last one, keys in front of the first.

    Raises
    ------
    InputError
        There is no place for them.
    """
    edits: list[Edit] = []
    for path, value in missing.items():
        if path.startswith("--"):
            spans = [e.span for p, e in entries.items() if p.startswith("--") and e.span]
            if not spans:
                raise InputError([refuse(path, "no command takes it", "add it by hand")])
            at = max(last for _, last in spans)
            at += text[at : at + 1] in ("'", '"')
            edits.append((at, at, f" {path.replace('_', '-')} {value}"))
            continue
        group, _, key = path.rpartition(".")
        pattern = rf'"{group}"\s*:\s*\{{' if group else r"\{"
        header = re.search(pattern, text)
        if header is None:
            raise InputError([refuse(path, "the configuration lacks it", "add it by hand")])
        edits.append((header.end(), header.end(), f'\n  "{key}": {json.dumps(value)},'))
    return edits
