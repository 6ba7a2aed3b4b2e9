"""The JSON schema of a spec as a person types it, for editors to complete and check."""

from __future__ import annotations

from typing import Any

from optplan import catalogue
from optplan.models.spec.problem import Problem
from optplan.places import DEEPEST

Schema = dict[str, Any]


def json_schema() -> Schema:
    """
    Return the schema of a spec.

    Wherever a record may be given by name, the catalogue's names are an alternative; what the
    loader fills in is not required.

    Examples
    --------
    >>> json_schema()["title"]
    'optplan spec'
    """
    schema = Problem.model_json_schema(mode="validation")
    records: Schema = schema["$defs"]
    workload, cluster = records["Workload"], records["Cluster"]

    shape = workload["properties"]["architecture"]
    workload["properties"]["architecture"] = _or_name("workloads", shape)
    workload["properties"]["hf"] = {
        "type": "string",
        "title": "Hf",
        "description": "A Hugging Face config.json to read the architecture from, instead.",
        "examples": ["config.json"],
    }
    workload["required"].remove("architecture")
    workload["oneOf"] = [{"required": ["architecture"]}, {"required": ["hf"]}]

    device = cluster["properties"]["accelerator"]
    cluster["properties"]["accelerator"] = _or_name("accelerators", device)
    # The usual numbers of the accelerator stand in for these.
    for key in ("devices_per_node", "network"):
        cluster["required"].remove(key)

    calibration = _or_name("calibrations", schema["properties"]["calibration"])
    calibration["anyOf"].append(
        {
            "type": "string",
            "pattern": r"\.[Yy][Aa]?[Mm][Ll]$",
            "description": "A file that `optplan calibrate` wrote.",
        }
    )
    schema["properties"]["calibration"] = calibration
    schema["required"].remove("calibration")
    records["Calibration"]["required"].remove("name")

    schema["properties"]["framework"] = _framework(schema["properties"]["framework"])

    for key, record, examples in (
        ("limits", "Limit", ["pp * tp <= 32", "peak_memory <= 72 GB"]),
        ("surcharges", "Surcharge", ["40 ms", "2 us * dp * tp"]),
    ):
        listed = schema["properties"][key]
        listed["items"] = {"anyOf": [{"type": "string", "examples": examples}, listed["items"]]}
        records[record]["required"].remove("name")
    _write_defaults_with_units(schema)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "title": "optplan spec",
    }


def _framework(record: Schema) -> Schema:
    """Allow a framework's name, with a version or without, beside the record itself."""
    name: Schema = {
        "type": "string",
        "description": "A shipped framework, its version after an @.",
        "examples": ["megatron-core@0.15", "torchtitan"],
    }
    return {**record, "anyOf": [name, *record["anyOf"]]}


def _or_name(kind: catalogue.Kind, record: Schema) -> Schema:
    """Allow a name of the catalogue beside the record itself."""
    known = list(catalogue.names(kind))
    description = record.pop("description", "")
    choices: list[Schema] = [
        {"enum": known, "description": f"One of the shipped {kind}."},
        {"enum": list(catalogue.aliases(kind)), "description": "Another name for one of them."},
        record,
    ]
    return {
        "description": description,
        "anyOf": [choice for choice in choices if choice.get("enum") != []],
        "examples": known[:2],
    }


def _write_defaults_with_units(part: object, depth: int = 0) -> None:
    """Write the default of a quantity the way a person would: text, not a bare number."""
    if depth > DEEPEST:
        return
    if isinstance(part, dict):
        if part.get("type") == "string" and part.get("default") == 0.0:
            part["default"] = "0 s"
        for inner in part.values():
            _write_defaults_with_units(inner, depth + 1)
    elif isinstance(part, list):
        for inner in part:
            _write_defaults_with_units(inner, depth + 1)
