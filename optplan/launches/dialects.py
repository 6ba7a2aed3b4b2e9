"""Every dialect of launch files, by the name of its framework or by what a file looks like."""

from __future__ import annotations

from importlib import import_module

from optplan import catalogue
from optplan.launches.launch import Dialect
from optplan.models.errors import Fault, InputError
from optplan.places import Refusal

MODULES = {
    "torchtitan": "optplan.launches.torchtitan",
    "accelerate": "optplan.launches.accelerate",
    "megatron-deepspeed": "optplan.launches.deepspeed",
    "nemo": "optplan.launches.nemo",
    "mindspeed": "optplan.launches.mindspeed",
    "megatron-core": "optplan.launches.megatron",
}
"""
Modules by the framework's name in the catalogue, each with its ``DIALECT``.

They are asked in this order whether a file is theirs, so that the more particular ones come first.
"""


def known() -> tuple[str, ...]:
    """Return the frameworks whose launches can be read and written."""
    return tuple(MODULES)


def dialect(name: str) -> Dialect:
    """
    Return the dialect of a framework.

    Parameters
    ----------
    name
        Its name or an alias, with or without ``@version``.

    Raises
    ------
    InputError
        No framework has that name, or none that is launched by a file.
    """
    listed = ", ".join(sorted(MODULES))
    try:
        key = catalogue.canonical("frameworks", name.partition("@")[0].strip())
    except Refusal as refusal:
        remedy = f"{refusal.remedy}; launches are known of {listed}"
        raise InputError([Fault("", "framework", refusal.problem, remedy)]) from None
    if key not in MODULES:
        problem = f"no launches of {key} are known"
        raise InputError([Fault("", "framework", problem, f"take one of {listed}")])
    found: Dialect = import_module(MODULES[key]).DIALECT
    return found


def recognise(text: str) -> Dialect | None:
    """Return the dialect that a file is written in; None where no one knows it."""
    for name in MODULES:
        found = dialect(name)
        if found.recognises(text):
            return found
    return None
