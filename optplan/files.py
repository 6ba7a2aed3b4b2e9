"""Files written whole or not at all."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from optplan.models.errors import Fault, InputError


def save(target: str | Path, files: Mapping[str, bytes]) -> None:
    """
    Write files whole or not at all; a link is followed, what is no file is left alone.

    Parameters
    ----------
    target
        Path that the name of every file begins with.
    files
        What to write, by the ending that its name has beyond ``target``.

    Raises
    ------
    InputError
        One of them cannot be written.
    """
    made: list[tuple[str, Path]] = []
    try:
        places = {ending: Path(f"{target}{ending}").resolve() for ending in files}
        for place in places.values():
            if place.exists() and not place.is_file():
                raise OSError(None, "there is something that is no file")
        for ending, place in places.items():
            handle, name = tempfile.mkstemp(dir=place.parent, prefix=f".{place.name[:80]}.")
            made.append((name, place))
            with os.fdopen(handle, "wb") as file:
                file.write(files[ending])
            Path(name).chmod(place.stat().st_mode & 0o777 if place.exists() else 0o644)
        for name, place in made:
            Path(name).replace(place)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        problem = f"cannot write the file: {why}"
        remedy = "name a file in a folder that can be written to"
        raise InputError([Fault(str(target), "", problem, remedy)]) from None
    finally:
        for name, _ in made:
            with contextlib.suppress(OSError):
                Path(name).unlink()


def refuse_input(target: str | Path, inputs: Iterable[str | Path]) -> None:
    """
    Refuse a target that is one of the files that were read.

    Raises
    ------
    InputError
        It is.
    """
    with contextlib.suppress(OSError, ValueError):
        for one in inputs:
            if Path(target).exists() and Path(one).exists() and Path(target).samefile(one):
                problem = "this is a file that is read"
                raise InputError([Fault(str(target), "", problem, "name another file to write")])
