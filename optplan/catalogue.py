"""The shipped workloads, accelerators, calibrations and frameworks, by name."""

from __future__ import annotations

import difflib
import re
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any, Literal

from ruamel.yaml import YAML

from optplan.models.cost.calibration import Calibration
from optplan.models.errors import OwnFault
from optplan.models.spec.cluster import Accelerator, Host
from optplan.models.spec.framework import Framework
from optplan.models.spec.workload import Architecture
from optplan.places import Refusal, short

Kind = Literal["workloads", "accelerators", "calibrations", "frameworks"]

GENERIC = "generic"
"""The calibration of an accelerator that has none of its own."""

_SINGULAR = {
    "workloads": "workload",
    "accelerators": "accelerator",
    "calibrations": "calibration",
    "frameworks": "framework",
}
_FILE_NAME = re.compile(r"[a-z0-9][a-z0-9.-]{,99}")
_VERSION = re.compile(r"v?(\d{1,6}(?:\.\d{1,6}){0,3})", re.ASCII)


@cache
def names(kind: Kind) -> tuple[str, ...]:
    """Return every name of one kind, sorted."""
    folder = files("optplan.models").joinpath("data", kind)
    found = (file.name for file in folder.iterdir()) if folder.is_dir() else ()
    return tuple(sorted(name.removesuffix(".yaml") for name in found if name.endswith(".yaml")))


@cache
def aliases(kind: Kind) -> tuple[str, ...]:
    """Return every other name of one kind, as the files write them, sorted."""
    found = {str(alias) for name in names(kind) for alias in _file(kind, name).get("aliases") or ()}
    return tuple(sorted(found - set(names(kind))))


def entry(kind: Kind, name: str) -> dict[str, Any]:
    """
    Return one file of the catalogue as plain data.

    Parameters
    ----------
    kind
        Which part of the catalogue.
    name
        Its name or an alias; case, blanks, ``-``, ``_`` and ``.`` make no difference.

    Raises
    ------
    Refusal
        Nothing has that name; the remedy holds the nearest ones.
    """
    return _file(kind, canonical(kind, name))


def canonical(kind: Kind, name: str) -> str:
    """
    Return the catalogue's own spelling of a name.

    Raises
    ------
    Refusal
        Nothing has that name; the remedy holds the nearest ones.
    """
    # An exact name costs one look for one file; only a miss reads the others.
    if _FILE_NAME.fullmatch(name) and _path(kind, name).is_file():
        return name
    spellings = _spellings(kind)
    plain = _plain(name)
    if plain in spellings:
        return spellings[plain]
    near = difflib.get_close_matches(plain, spellings, n=3, cutoff=0.7)
    if len(plain) > 2:
        near += [spelling for spelling in spellings if spelling.startswith(plain)]
    hits = list(dict.fromkeys(spellings[spelling] for spelling in near))[:3]
    ask = "list all with `optplan catalogue`"
    asked = " or ".join(f"'{hit}'" for hit in hits)
    raise Refusal(
        f"no {_SINGULAR[kind]} '{short(name)}' in the catalogue",
        f"did you mean {asked}? ({ask})" if hits else ask,
    )


def architecture(name: str) -> Architecture:
    """Return a shipped architecture; raises `Refusal` for an unknown name."""
    key = canonical("workloads", name)
    return Architecture.model_validate({"name": key, **_part("workloads", key, "architecture")})


def accelerator(name: str) -> Accelerator:
    """Return a shipped accelerator; raises `Refusal` for an unknown name."""
    key = canonical("accelerators", name)
    return Accelerator.model_validate({"name": key, **_part("accelerators", key, "accelerator")})


def usual_host(name: str) -> tuple[Host, str] | None:
    """Return the server that an accelerator usually sits in, and who says so; None if unknown."""
    try:
        held = _file("accelerators", canonical("accelerators", name)).get("usual_host")
    except Refusal:
        return None
    if held is None:
        return None
    return Host.model_validate({k: v for k, v in held.items() if k != "source"}), held["source"]


def calibration(name: str) -> Calibration:
    """Return a shipped calibration; raises `Refusal` for an unknown name."""
    key = canonical("calibrations", name)
    own = {"name": key, "accelerators": _file("calibrations", key).get("accelerators") or ()}
    return Calibration.model_validate({**own, **_constants(key)})


def intervals_of(fit: object) -> dict[str, Any]:
    """Return the intervals that the ``fit`` part of a calibration file holds, by constant."""
    constants = fit.get("constants") if isinstance(fit, dict) else None
    if not isinstance(constants, dict):
        return {}
    found = {name: one.get("interval") for name, one in constants.items() if isinstance(one, dict)}
    return {name: ends for name, ends in found.items() if ends is not None}


@cache
def _constants(key: str) -> dict[str, Any]:
    """Return the fields of a calibration, those of the one it is based on first."""
    own = dict(_part("calibrations", key, "calibration"))
    own["intervals"] = intervals_of(_file("calibrations", key).get("fit"))
    base = _file("calibrations", key).get("based_on")
    if base is None:
        return own
    found = _constants(base)
    # What is a value of its own no longer lies in the interval of the other fit.
    kept = {name: ends for name, ends in found["intervals"].items() if name not in own}
    own["intervals"] = {**kept, **own["intervals"]}
    return {**found, **own, "sources": {**found["sources"], **own.get("sources", {})}}


STACKS = {
    "megatron": (),
    "deepspeed": ("megatron",),
    "internevo": ("megatron",),
    "fsdp": ("megatron",),
    "torchtitan": ("fsdp", "megatron"),
    "xla": ("fsdp", "megatron"),
}
"""Kinds of software that calibrations differ by, and whose constants come next."""


def calibration_for(accelerator_name: str, stack: str = "megatron") -> Calibration:
    """
    Return the calibration of an accelerator under a software stack.

    The accelerator's own for that stack, else for the next one like it, else a generic prior.

    Raises
    ------
    Refusal
        There is not even a generic one.
    """
    wanted = (stack, *STACKS.get(stack, ()))
    known = _own_calibrations(accelerator_name)
    for word in wanted:
        if word in known:
            return calibration(known[word])
    for word in wanted:
        if f"{GENERIC}-{word}" in names("calibrations"):
            return calibration(f"{GENERIC}-{word}")
    return calibration(GENERIC)


def _own_calibrations(accelerator_name: str) -> dict[str, str]:
    """Return the calibrations of an accelerator of the catalogue by stack; none for another."""
    try:
        key = canonical("accelerators", accelerator_name)
    except Refusal:
        return {}
    return dict(_file("accelerators", key).get("calibrations") or {})


def framework(name: str) -> Framework:
    """
    Return what a version of a framework can launch.

    Parameters
    ----------
    name
        Name or alias, alone for the newest version known, or with a version as in
        ``megatron-core@0.15``: what changed last in or before it.

    Raises
    ------
    Refusal
        Nothing has that name, or nothing is known of that version; the remedy says what is.
    """
    base, at, wanted = (part.strip() for part in name.partition("@"))
    key = canonical("frameworks", base)
    found = _VERSION.fullmatch(wanted)
    if at and not found:
        raise Refusal(
            f"'{short(wanted)}' is no version of {key}",
            f"write one such as {key}@{versions(key)[-1]}",
        )
    version = found[1] if found else versions(key)[-1]
    return Framework.model_validate({"name": f"{key}@{version}", **_known_of(key, version)})


def versions(key: str) -> tuple[str, ...]:
    """Return the versions of a framework in which something changed, oldest first."""
    return tuple(entry["since"] for entry in _entries(key) if "gone" not in entry)


def _entries(key: str) -> list[dict[str, Any]]:
    """Return what is written about the versions of one framework, oldest first."""
    entries = _file("frameworks", key).get("versions")
    if not isinstance(entries, list) or not entries:
        raise OwnFault(f"frameworks/{key}.yaml of the catalogue holds no versions")
    return entries


def _known_of(key: str, version: str) -> dict[str, Any]:
    """Return every field of one version: each entry up to it adds to those before."""
    found: dict[str, Any] = {}
    for entry in _entries(key):
        if _order(entry["since"]) > _order(version):
            break
        if "gone" in entry:
            last = versions(key)[-1]
            raise Refusal(
                f"nothing is known of {key}@{version}: {entry['gone']}",
                f"the last version known is {key}@{last}",
            )
        if "as" in entry:
            found = framework(entry["as"]).model_dump(exclude={"name"})
        changed = {field: entry[field] for field in entry if field not in ("since", "as")}
        found |= changed | {"sources": found.get("sources", {}) | entry["sources"]}
    if not found:
        known = versions(key)
        raise Refusal(
            f"nothing is known of {key}@{version}",
            f"known: from {key}@{known[0]} on, with changes in {', '.join(known)}",
        )
    return found


def _order(version: str) -> tuple[int, ...]:
    """Return what versions are compared by; 0.12 and 0.12.0 are one."""
    return tuple(map(int, re.sub(r"(\.0+)+$", "", version).split(".")))


def _path(kind: Kind, name: str) -> Traversable:
    """Return where the file of an exact name lies."""
    return files("optplan.models").joinpath("data", kind, f"{name}.yaml")


@cache
def _file(kind: Kind, name: str) -> dict[str, Any]:
    """Read one file."""
    data = YAML(typ="safe", pure=True).load(_path(kind, name).read_text(encoding="utf-8"))
    if not isinstance(data, dict):
        raise OwnFault(f"{kind}/{name}.yaml of the catalogue holds no mapping")
    return data


def _part(kind: Kind, name: str, key: str) -> dict[str, Any]:
    """Return the record inside one file."""
    part = _file(kind, name).get(key)
    if not isinstance(part, dict):
        raise OwnFault(f"{kind}/{name}.yaml of the catalogue holds no {key}")
    return part


@cache
def _spellings(kind: Kind) -> dict[str, str]:
    """Return every name and alias in plain letters, with the name it stands for."""
    known = {_plain(name): name for name in names(kind)}
    for name in names(kind):
        for alias in _file(kind, name).get("aliases") or ():
            known.setdefault(_plain(str(alias)), name)
    return known


def _plain(name: str) -> str:
    """Drop what people write differently."""
    return re.sub(r"[-_. ]", "", name).lower()
