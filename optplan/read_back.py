"""Answers read back: the JSON of a command, from its file or as text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from optplan.load import readable
from optplan.models.errors import Fault, InputError
from optplan.models.record import Record
from optplan.models.spec.problem import Problem
from optplan.result import FORMAT, Result

Kind = TypeVar("Kind", bound=Record)


LARGEST_FILE = 2**26
"""Bytes that a plan's file may have."""


def read_result(path: str | Path) -> Result:
    """
    Read the JSON that ``optplan solve --json`` wrote: a file of it, or its text.

    Raises
    ------
    InputError
        The file is missing, no JSON, or not of this form.
    """
    data = read_json(path, "write it with optplan solve SPEC --json > plan.json")
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        remedy = f"take a file with format {FORMAT}, written with optplan solve SPEC --json"
        raise InputError([Fault(named(path), "format", "this is no plan of this version", remedy)])
    return as_record(path, data, Result)


def read_json(path: str | Path, remedy: str) -> Any:
    """
    Read a JSON file of an answer, or its text, which begins with a brace.

    Raises
    ------
    InputError
        The file is missing, too large, or no JSON, for which ``remedy`` says how to make one.
    """
    try:
        if _is_text(path):
            raw = str(path).encode()[: LARGEST_FILE + 1]
        else:
            with Path(path).open("rb") as file:
                raw = file.read(LARGEST_FILE + 1)
        if len(raw) > LARGEST_FILE:
            large = "name a file that optplan wrote"
            raise InputError([Fault(named(path), "", "the file is larger than 64 MiB", large)])
        text = raw.decode("utf-8-sig")
        data = json.loads(text)
        if "\\ud" in text.lower():  # half a character, written by its number, fits no file
            json.dumps(data, ensure_ascii=False).encode()
        return data
    except OSError as error:
        why = f"cannot read the file: {error.strerror}"
        raise InputError([Fault(named(path), "", why, "name a readable file")]) from None
    except (ValueError, RecursionError):
        raise InputError([Fault(named(path), "", "this is no JSON", remedy)]) from None


def _is_text(path: str | Path) -> bool:
    """Tell the text of an answer from the name of its file."""
    return isinstance(path, str) and path.lstrip("\ufeff \t\r\n").startswith("{")


def named(path: str | Path) -> str:
    """Name a file, or say that it was a text."""
    return "<text>" if _is_text(path) else str(path)


def as_record(path: str | Path, data: Any, kind: type[Kind]) -> Kind:
    """
    Take JSON for a record.

    Raises
    ------
    InputError
        It is not of this form; names every value that does not fit.
    """
    try:
        record = kind.model_validate(data)
    except ValidationError as error:
        wrong, remedy = "the value does not fit the form", "take the file as it was written"
        raise InputError(
            [
                Fault(named(path), ".".join(map(str, item["loc"])), wrong, remedy)
                for item in error.errors()
            ]
        ) from None
    problem = getattr(record, "problem", None)
    if isinstance(problem, Problem):
        readable(problem, named(path))
    return record
