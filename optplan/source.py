"""The text of a file, or the one reason why it cannot be had."""

from __future__ import annotations

from pathlib import Path

from optplan.models.errors import Fault

LARGEST = 2**20
"""Bytes that a spec may have."""


def read_text(path: Path, name: str, faults: list[Fault], largest: int = LARGEST) -> str | None:
    """
    Read a file as UTF-8 text.

    Parameters
    ----------
    path
        The file.
    name
        What to call it in a place.
    faults
        Receives the reason when there is no text.
    largest
        Bytes that it may have.

    Returns
    -------
    str | None
        The text without a byte-order mark; None after a fault.
    """
    text, place, problem, remedy = _read(path, largest)
    if text is None:
        faults.append(Fault(f"{name}{place}", "", problem, remedy))
    return text


def _read(path: Path, largest: int) -> tuple[str | None, str, str, str]:
    """Return the text, or else None, where in the file, what is wrong and what would be right."""
    try:
        if path.is_dir():
            return None, "", "this is a directory", "name a file such as spec.yaml"
        with path.open("rb") as file:
            raw = file.read(largest + 1)
    except FileNotFoundError:
        return None, "", "there is no such file", "check its name and folder"
    except PermissionError:
        return None, "", "the file may not be read", "change its permissions"
    except (OSError, ValueError):
        # ValueError: a NUL byte in the name.
        return None, "", "the file cannot be read", "name a readable file"
    if len(raw) > largest:
        remedy = "write ranges instead of long lists" if largest == LARGEST else "split it"
        return None, "", f"the file is larger than {largest >> 20} MiB", remedy
    try:
        return raw.decode("utf-8-sig"), "", "", ""
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        column = error.start - raw.rfind(b"\n", 0, error.start)
        return None, f":{line}:{column}", "the file is no UTF-8 text", "save it as UTF-8"
