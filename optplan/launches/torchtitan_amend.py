"""Keys of a torchtitan job that change with the values of a plan."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from optplan.launches.amend import Edit, Keys
from optplan.launches.chunks import chunks_from
from optplan.launches.documents import Entry
from optplan.launches.launch import Value
from optplan.launches.notes import refuse
from optplan.launches.torchtitan_steps import Job
from optplan.launches.torchtitan_text import SCHEDULES, SHARDING
from optplan.models.errors import InputError

SIMPLE = {
    "tp": "parallelism.tensor_parallel_degree",
    "cp": "parallelism.context_parallel_degree",
    "pp": "parallelism.pipeline_parallel_degree",
    "ep": "parallelism.expert_parallel_degree",
    "etp": "parallelism.expert_tensor_parallel_degree",
    "sequence_length": "training.seq_len",
    "offload": "training.enable_cpu_offload",
    "global_batch": "training.global_batch_size",
}


def keys_for(values: Mapping[str, Value]) -> Keys:
    """Return the keys of a job that asks for some values."""
    found: dict[str, object] = {SIMPLE[n]: values[n] for n in SIMPLE if n in values}
    pp, micro, count = (values.get(n) for n in ("pp", "micro_batch", "micro_batches"))
    if isinstance(micro, int):
        local = micro
        if isinstance(pp, int) and pp > 1:
            found["parallelism.pipeline_parallel_microbatch_size"] = micro
            local = micro * count if isinstance(count, int) else 0
        if local:
            found["training.local_batch_size"] = local
    zero, dp, hsdp = (values.get(n) for n in ("zero", "dp", "hsdp"))
    if isinstance(zero, int) and zero in SHARDING:
        found["parallelism.fsdp_reshard_after_forward"] = SHARDING[zero]
    if isinstance(dp, int) and not hsdp:
        plain = zero == 0
        found["parallelism.data_parallel_replicate_degree"] = dp if plain else 1
        found["parallelism.data_parallel_shard_degree"] = 1 if plain else dp
    if values.get("recompute") in ("none", "full"):
        found["activation_checkpoint.mode"] = values["recompute"]
    if isinstance(pp, int) and pp > 1:
        schedule = SCHEDULES.get(str(values.get("schedule")))
        if schedule:
            found["parallelism.pipeline_parallel_schedule"] = schedule
        layers = values.get("layers_per_stage")
        vpp = values.get("vpp", 1)
        if isinstance(layers, tuple) and isinstance(vpp, int):
            found["layers"] = chunks_from(layers, vpp, values.get("schedule") == "zb-v")
    return found


def resolved(job: Job, keys: Keys) -> Keys:
    """Return keys with the layers of stages in the words of the job's version."""
    found = dict(keys)
    shard = job.keys.get("parallelism.data_parallel_shard_degree")
    if found.get("parallelism.data_parallel_replicate_degree") == 1 and (
        shard is None or shard.value == -1
    ):
        # The devices that are left stay those.
        found.pop("parallelism.data_parallel_shard_degree", None)
    layers = found.pop("layers", None)
    if isinstance(layers, tuple):
        ends = [sum(layers[: i + 1]) for i in range(len(layers))]
        if "parallelism.pipeline_parallel_split_points" in job.keys or job.version.startswith(
            "0.1"
        ):
            points = [f"layers.{end}" for end in ends[:-1]]
            found["parallelism.pipeline_parallel_split_points"] = points
        else:
            parts = [
                [f"layers.{i}" for i in range(end - n, end)]
                for end, n in zip(ends, layers, strict=True)
            ]
            parts[0].insert(0, "tok_embeddings")
            parts[-1] += ["norm", "lm_head" if job.python else "output"]
            found["parallelism.module_fqns_per_model_part"] = parts
    return found


def literal(value: object, entry: Entry) -> str:
    """Write a value where another stood; texts keep their quotes."""
    if isinstance(value, str):
        return value
    python = (
        "=" in entry.written and " = " not in entry.written and not entry.written.startswith("-")
    )
    return repr(value) if python else json.dumps(value)


def insert(text: str, job: Job, missing: Mapping[str, object]) -> list[Edit]:
    """
    Add keys below the header of their section.

    Raises
    ------
    InputError
        The job is a module of configurations, where no line is known to take them.
    """
    edits: list[Edit] = []
    if job.python:
        for path, value in missing.items():
            section, _, key = path.partition(".")
            call = {"training": "TrainingConfig", "parallelism": "ParallelismConfig"}.get(section)
            found = re.search(rf"\b{call}\(", text) if call else None
            if found is None:
                raise InputError([refuse(path, "the module says nothing of it", "add it by hand")])
            edits.append((found.end(), found.end(), f"{key}={value!r}, "))
        return edits
    sections: dict[str, list[str]] = {}
    for path, value in missing.items():
        section, _, key = path.partition(".")
        sections.setdefault(section, []).append(f"{key} = {json.dumps(value)}\n")
    for section, lines in sections.items():
        header = re.search(rf"^[ \t]*\[{section}\][^\n]*\n?", text, re.MULTILINE)
        if header is not None:
            at = header.end()
            lead = "" if text[at - 1 : at] == "\n" else "\n"
            edits.append((at, at, lead + "".join(lines)))
            continue
        last = list(re.finditer(r"^[ \t]*\[[A-Za-z_.]+\][^\n]*\n", text, re.MULTILINE))
        if not last:
            raise InputError([refuse(section, "the job has no sections", "add it by hand")])
        at = last[0].start()
        edits.append((at, at, f"[{section}]\n{''.join(lines)}\n"))
    return edits
