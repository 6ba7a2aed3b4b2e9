"""Small problems and plans that launches are written for, and spoilt files that must be refused."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from optplan.launches.launch import Dialect, Launch
from optplan.launches.notes import shape_values
from optplan.launches.values import plan_from, shape_from
from optplan.models.errors import Fault, InputError
from optplan.models.spec.plan import Plan
from optplan.models.spec.problem import Problem
from optplan.planner import problem_of

SPOILT = 60
"""Spoilt copies of a file that are tried."""


def problem(framework: str, nodes: int = 2, **changed: Any) -> Problem:
    """A network like Llama on nodes of 8."""
    shape = {
        "layers": 8,
        "hidden": 1024,
        "heads": 16,
        "kv_heads": 8,
        "ffn": 2816,
        "vocabulary": 32000,
    }
    work = {"sequence_length": 4096, "precision": "bf16"}
    for name, value in changed.items():
        (work if name in ("sequence_length", "precision", "capacity_factor") else shape)[name] = (
            value
        )
    return problem_of(
        {
            "workload": {"architecture": shape, **work},
            "cluster": {"accelerator": "h100-sxm-80gb", "nodes": nodes},
            "search": {"global_batch": 64},
            "framework": framework,
        }
    )


def plan(**changed: Any) -> Plan:
    """A plan on 16 devices; layers and products follow from what is changed."""
    values: dict[str, Any] = {"tp": 2, "pp": 2, "cp": 1, "micro_batch": 1, "micro_batches": 8}
    values |= changed
    values.setdefault("dp", 16 // (values["tp"] * values["pp"] * values["cp"]))
    values["global_batch"] = values["micro_batch"] * values["micro_batches"] * values["dp"]
    pp = values["pp"]
    layers = values.setdefault("layers_per_stage", (8 // pp,) * pp)
    again = layers if values.get("recompute") == "full" else (0,) * pp
    values.setdefault("recomputed_layers_per_stage", again)
    return Plan.model_validate(values)


def differences(asked: Problem, wanted: Plan, launch: Launch) -> list[str]:
    """What of plan, network, workload and cluster a launch does not say as it was asked."""
    again = plan_from(launch, {})
    pairs: dict[str, tuple[object, object]] = {
        name: (getattr(wanted, name), getattr(again, name)) for name in Plan.model_fields
    }
    shape, _, fault = shape_from(launch)
    assert shape is not None, fault
    one, other = shape_values(asked.workload.architecture), shape_values(shape)
    pairs |= {name: (one.get(name), other.get(name)) for name in {*one, *other}}
    for name in ("sequence_length", "precision", "flash_attention", "capacity_factor"):
        pairs[name] = getattr(asked.workload, name), launch.value(name)
    for name in ("nodes", "devices_per_node"):
        pairs[name] = getattr(asked.cluster, name), launch.value(name)
    return [f"{name}: {a} came back as {b}" for name, (a, b) in pairs.items() if a != b]


def rules(launch: Launch) -> list[str]:
    """Names of what a dialect remarked."""
    return [remark.rule for remark in launch.remarks]


def refused(speaks: Dialect, asked: Problem, wanted: Plan, version: str) -> dict[str, str]:
    """Fields that a version refuses, each with what would be right."""
    try:
        speaks.write(asked, wanted, version)
    except InputError as error:
        return {fault.path: fault.remedy for fault in error.faults}
    return {}


def spoilt(text: str, seed: int) -> Iterator[str]:
    """A file cut off, with bytes that are no text, doubled lines, absurd numbers."""
    rng = random.Random(seed)
    lines = text.splitlines(keepends=True)
    for _ in range(SPOILT):
        kind = rng.randrange(6)
        at = rng.randrange(len(text))
        if kind == 0:
            yield text[:at]
        elif kind == 1:
            yield text[:at] + chr(rng.choice((0, 1, 7, 27, 0xFFFD, 0xE000, 0x202E))) + text[at:]
        elif kind == 2:
            row = rng.randrange(len(lines))
            yield "".join([*lines[:row], lines[row], *lines[row:]])
        elif kind == 3:
            digits = [i for i, letter in enumerate(text) if letter.isdigit()]
            place = rng.choice(digits)
            new = rng.choice(("9" * 5000, "-1", "0", "1e400", "[]", "null", "true", "'x'", "8.5"))
            yield text[:place] + new + text[place + 1 :]
        elif kind == 4:
            yield text[:at] + rng.choice("[]{}()\"'`$=:\\\t\n#&|<>") + text[at + 1 :]
        else:
            row = rng.randrange(len(lines))
            yield "".join([*lines[:row], *lines[row + 1 :]])


def survives(speaks: Dialect, text: str, seed: int = 0) -> int:
    """Read spoilt copies; anything but a launch or faults with a remedy fails. Count refusals."""
    count = 0
    for one in spoilt(text, seed):
        speaks.recognises(one)
        faults = _faults(speaks, one)
        count += bool(faults)
        assert all(fault.problem and fault.remedy for fault in faults), one
    return count


def _faults(speaks: Dialect, text: str) -> tuple[Fault, ...]:
    """Faults of a file; any other error passes."""
    try:
        speaks.read(text)
    except InputError as error:
        return error.faults
    return ()
