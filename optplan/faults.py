"""From what the records refuse to faults in our own words, each at its place."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from optplan.models.cost.calibration import Calibration
from optplan.models.errors import Fault
from optplan.models.record import ONE_LINE
from optplan.models.spec.cluster import Accelerator, Cluster, Host, Link
from optplan.models.spec.framework import Framework
from optplan.models.spec.problem import Problem
from optplan.models.spec.space import Limit, Search, Span
from optplan.models.spec.workload import (
    Adapters,
    Architecture,
    Experts,
    Latent,
    Precision,
    Workload,
)
from optplan.places import REFUSED, Node, Path, dots, short

EXAMPLES: Final[Mapping[str, str]] = {
    "workload": "{architecture: llama-3-70b, sequence_length: 8192}",
    "architecture": "llama-3-70b",
    "sequence_length": "8192",
    "layers": "80",
    "hidden": "8192",
    "heads": "64",
    "ffn": "28672",
    "vocabulary": "128256",
    "cluster": "{accelerator: h100-sxm-80gb, nodes: 8}",
    "accelerator": "h100-sxm-80gb",
    "nodes": "8",
    "devices_per_node": "8",
    "network": "400 Gb/s",
    "peak": "{bf16: 989 TFLOP/s}",
    "hbm": "80 GiB",
    "hbm_bandwidth": "3.35 TB/s",
    "link": "{kind: switch, bandwidth: 450 GB/s}",
    "kind": "switch",
    "bandwidth": "450 GB/s",
    "domain": "8",
    "search": "{global_batch: 512}",
    "global_batch": "512",
    "name": "keep-headroom",
    "rule": "pp * tp <= 32",
    "calibration": "generic",
    "utilization_peak": "0.6",
    "reserve": "4 GiB",
    "measured": "false",
    "fitted_on": "our runs of May",
    "range": "8 to 64 devices",
    "error": "unknown",
    "sources": "{utilization_peak: our runs of May}",
    "memory": "2 TB",
    "count": "128",
    "per_token": "8",
    "rank": "16",
    "kv_rank": "512",
    "nope": "128",
    "rope": "64",
    "value": "128",
    "schedules": "[1f1b, interleaved]",
    "zero": "[0, 1]",
    "zero_with_pipeline": "1",
    "recompute": "[none, selective, partial, full]",
    "context": "[ring]",
    "interleaved_multiple": "pp",
    "interleaved_two_stages": "p2p-overlap",
    "features": "[grad-reduce-overlap]",
    **dict.fromkeys(
        (
            "hsdp",
            "tensor",
            "pipeline",
            "experts",
            "expert_tensor",
            "uneven_layers",
            "ends_count_as_layers",
            "key_heads_copied",
            "offload",
        ),
        "true",
    ),
}
"""For every key that may be missing, what it looks like."""

_RECORDS: Final[Mapping[Path, type[BaseModel]]] = {
    (): Problem,
    ("workload",): Workload,
    ("workload", "architecture"): Architecture,
    ("cluster",): Cluster,
    ("cluster", "accelerator"): Accelerator,
    ("cluster", "accelerator", "link"): Link,
    ("search",): Search,
    ("calibration",): Calibration,
    ("framework",): Framework,
    ("cluster", "host"): Host,
    ("workload", "architecture", "experts"): Experts,
    ("workload", "architecture", "latent"): Latent,
    ("workload", "lora"): Adapters,
}
# Checks across fields, by how their text begins: which value they are about.
_ABOUT: Final[Mapping[str, tuple[Path, ...]]] = {
    "precision ": (("workload", "precision"), ("cluster", "accelerator")),
    "goal ": (("goal",),),
}
# Parts of a location that name an alternative of a union, not a key.
_ALTERNATIVES = frozenset(("value", "list", "range", "[key]"))


def record_at(path: Path) -> type[BaseModel] | None:
    """Return the record that a mapping at this path becomes."""
    if len(path) == 2 and path[0] == "search":
        return Span
    if len(path) == 2 and path[0] == "limits":
        return Limit
    return _RECORDS.get(path)


def keys_at(path: Path) -> tuple[str, ...]:
    """Return the keys that a mapping at this path may have."""
    if path == ("cluster", "accelerator", "peak"):
        return get_args(Precision)
    record = record_at(path)
    extra = ("hf",) if path == ("workload",) else ()
    return (*record.model_fields, *extra) if record else ()


def unknown(key: str, known: Iterable[str]) -> tuple[str, str]:
    """Word the fault of an unknown word: what is wrong, and the nearest known ones."""
    choices = list(known)
    near = difflib.get_close_matches(key.lower().replace("-", "_"), choices, n=1, cutoff=0.65)
    remedy = f"did you mean '{near[0]}'?" if near else f"known here: {', '.join(choices)}"
    return f"unknown key '{short(key)}'", remedy


def translate(error: ValidationError, root: Node) -> list[Fault]:
    """
    Turn what a record refused into faults.

    Parameters
    ----------
    error
        The records' own error.
    root
        The input with its places.

    Returns
    -------
    list[Fault]
        One for each thing that is wrong; none for what was refused before.
    """
    found = [details for details in error.errors() if not _known(details, root)]
    # A list whose items are wrong is reported as too short as well; the items say enough.
    inner = {details["loc"][:-1] for details in found}
    return [_fault(d, root) for d in found if d["type"] != "too_short" or d["loc"] not in inner]


def _known(details: ErrorDetails, root: Node) -> bool:
    """Tell whether the value was refused before it reached the records."""
    node = root.find(_path(details, root))
    return details["input"] is REFUSED or (node is not None and node.value is REFUSED)


def _path(details: ErrorDetails, root: Node) -> Path:
    """Return the longest written path that an error's location leads to."""
    path: Path = ()
    node: Node | None = root
    for key in details["loc"]:
        below = node.child(key) if node is not None else None
        if below is None:
            if key in _ALTERNATIVES:
                continue
            break
        path, node = (*path, key), below
    return path


def _fault(details: ErrorDetails, root: Node) -> Fault:
    """Turn one error into a fault at its place."""
    path = _path(details, root)
    node = root.find(path) or root
    kind = details["type"]
    if kind == "missing":
        key = str(details["loc"][-1])
        example = EXAMPLES.get(key, "...")
        problem, remedy = f"'{key}' is missing", f"add it, such as '{key}: {example}'"
        return Fault(node.place, dots((*path, key)), problem, remedy)
    parent = root.find(path[:-1])
    key_place = parent.keys.get(str(path[-1]), node.place) if parent and path else node.place
    if kind == "extra_forbidden" or "[key]" in details["loc"]:
        return Fault(key_place, dots(path), *unknown(str(path[-1]), keys_at(path[:-1])))
    context = details.get("ctx", {})
    if kind == "value_error":
        said = str(context.get("error", details["msg"]))
        for start, candidates in _ABOUT.items():
            if said.startswith(start):
                path = next((p for p in candidates if root.find(p)), path)
                node = root.find(path) or node
        problem, _, remedy = said.rpartition("; ")
        if not problem:
            problem, remedy = said, "change one of them"
        return Fault(node.place, dots(path), problem, remedy)
    written = node.text
    quoted = f"'{written}'" if written else "an empty value"
    if isinstance(node.value, dict | list):
        quoted = written
    worder = _WORDERS.get(kind)
    if worder is None:
        return Fault(node.place, dots(path), f"{quoted} does not fit here", _describe(path))
    return Fault(node.place, dots(path), *worder(quoted, written, context))


def _describe(path: Path) -> str:
    """Say what a key is for, from its record."""
    record = record_at(path[:-1]) if path else None
    field = record.model_fields.get(str(path[-1])) if record else None
    text = (field.description or "") if field else ""
    return short(text.split(". ")[0].rstrip(".")) or "see the README for what is expected"


def _choice(quoted: str, written: str, context: Mapping[str, object]) -> tuple[str, str]:
    """Word the fault of a word that is none of a few."""
    found = re.findall(r"'([^']*)'|(-?[0-9]+)", str(context.get("expected", "")))
    choices = [text or number for text, number in found]
    near = difflib.get_close_matches(written.lower(), choices, n=1, cutoff=0.6)
    listed = ", ".join(choices)
    remedy = f"did you mean '{near[0]}'? (choices: {listed})" if near else f"write {listed}"
    if not near and len(choices) > 1:
        remedy = f"write one of {listed}"
    return f"{quoted} is no choice here", remedy


def _bound(word: str, limit: str, remedy: str) -> _Worder:
    """Build the words for a number on the wrong side of a bound."""

    def words(quoted: str, _: str, context: Mapping[str, object]) -> tuple[str, str]:
        bound = context.get(limit)
        number = f"{bound:g}" if isinstance(bound, float) else f"{bound}"
        return f"{quoted} is {word} {number}", f"{remedy} {number}"

    return words


def _fixed(problem: str, remedy: str) -> _Worder:
    """Build words that need no numbers."""
    return lambda quoted, _written, _context: (f"{quoted} {problem}", remedy)


def _pattern(quoted: str, _: str, context: Mapping[str, object]) -> tuple[str, str]:
    """Word a text with something in it that may not be there."""
    if context.get("pattern") == ONE_LINE:
        return f"{quoted} has characters that do not print", "write one line of plain text"
    remedy = "begin with a letter, go on with letters, digits, '_', '.' and '-'"
    return f"{quoted} is no name", remedy


def _length(word: str, limit: str) -> _Worder:
    """Build the words for a list or text of a wrong length."""

    def words(quoted: str, _: str, context: Mapping[str, object]) -> tuple[str, str]:
        return f"{quoted} is too {word}", f"write at {word_of[limit]} {context.get(limit)}"

    word_of = {"min_length": "least", "max_length": "most"}
    return words


_Worder = Callable[[str, str, Mapping[str, object]], tuple[str, str]]
_WHOLE = _fixed("is no whole number", "write a whole number such as 8")
_NUMBER = _fixed("is no number", "write a number such as 0.5")
_FLAG = _fixed("is neither true nor false", "write true or false")
_TEXT = _fixed("is no text", "write a text, in quotes if it looks like a number")
_MAPPING = _fixed("stands where a mapping is expected", "write 'key: value' pairs")
_LIST = _fixed("stands where a list is expected", "write a list such as [1, 2]")
_WORDERS: Final[Mapping[str, _Worder]] = {
    "int_type": _WHOLE,
    "int_from_float": _WHOLE,
    "int_parsing": _WHOLE,
    "int_parsing_size": _WHOLE,
    "float_type": _NUMBER,
    "float_parsing": _NUMBER,
    "finite_number": _NUMBER,
    "bool_type": _FLAG,
    "bool_parsing": _FLAG,
    "string_type": _TEXT,
    "model_type": _MAPPING,
    "model_attributes_type": _MAPPING,
    "dict_type": _MAPPING,
    "mapping_type": _MAPPING,
    "tuple_type": _LIST,
    "list_type": _LIST,
    "literal_error": _choice,
    "union_tag_invalid": _fixed("does not fit here", "write one value or a list of values"),
    "greater_than_equal": _bound("below", "ge", "write at least"),
    "less_than_equal": _bound("above", "le", "write at most"),
    "greater_than": _bound("not above", "gt", "write more than"),
    "less_than": _bound("not below", "lt", "write less than"),
    "too_short": _length("short", "min_length"),
    "too_long": _length("long", "max_length"),
    "string_too_short": _length("short", "min_length"),
    "string_too_long": _length("long", "max_length"),
    "string_pattern_mismatch": _pattern,
}
