"""The values of a launch as a plan, a network and a workload."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from optplan import catalogue
from optplan.launches.launch import Launch, Value
from optplan.models.record import Record
from optplan.models.spec.plan import Plan
from optplan.models.spec.workload import Architecture, Experts, Latent
from optplan.places import Refusal

WORKLOAD = ("sequence_length", "precision", "flash_attention", "capacity_factor", "imbalance")
"""Values of a workload beside its network."""

PARTS: dict[str, type[Record]] = {"experts": Experts, "latent": Latent}
"""Parts of a network that are records of their own."""

USUAL_VOCABULARY = 50257
"""Entries of a vocabulary where nobody says: those of GPT-2; whoever takes it says so."""


def whole(launch: Launch, name: str) -> int | None:
    """Return a whole number of a launch; None where it has none."""
    value = launch.value(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def plan_from(launch: Launch, changes: Mapping[str, Value]) -> Plan:
    """
    Read a plan out of a launch, whatever it leaves open as plain as can be.

    Products need not fit: ``dp`` is what the devices leave, at least 1, and micro-batches are
    what the batch leaves. Where stages do not tell how many layers they hold they are even.

    Parameters
    ----------
    changes
        Values that stand over those of the launch.
    """
    names = [*Plan.model_fields, "nodes", "devices_per_node", "devices", "layers"]
    known = {name: launch.value(name) for name in names} | dict(changes)
    told: dict[str, Any] = {name: value for name, value in known.items() if value is not None}
    tp, pp, cp = (int(told.get(n, 1)) for n in ("tp", "pp", "cp"))
    world = told.get("devices") or told.get("nodes", 0) * told.get("devices_per_node", 0)
    dp = int(told.get("dp") or max(1, world // (tp * pp * cp)))
    micro = int(told.get("micro_batch", 1))
    batch = int(told.get("global_batch", micro * dp))
    held = told.get("layers_per_stage")
    layers = tuple(held) if held and len(held) == pp else even(int(told.get("layers", pp)), pp)
    again = told.get("recomputed_layers_per_stage")
    recompute = told.get("recompute", "none")
    if recompute not in ("full", "partial"):
        again = (0,) * pp
    elif not again or len(again) != pp or any(a > b for a, b in zip(again, layers, strict=True)):
        again = layers
    values = {name: told[name] for name in _PLAIN if name in told}
    values |= {"tp": tp, "pp": pp, "dp": dp, "cp": cp, "micro_batch": micro, "global_batch": batch}
    values |= {
        "micro_batches": int(told.get("micro_batches") or max(1, batch // (micro * dp))),
        "schedule": told.get("schedule") or ("interleaved" if told.get("vpp", 1) > 1 else "1f1b"),
        "recompute": recompute,
        "layers_per_stage": layers,
        "recomputed_layers_per_stage": tuple(again),
    }
    return Plan.model_validate(values)


_PLAIN = ("ep", "etp", "vpp", "sequence_parallel", "zero", "hsdp", "context", "order", "offload")
"""Values of a plan that are as stated."""


def even(layers: int, pp: int) -> tuple[int, ...]:
    """Hand layers out as evenly as can be, the first stages one more."""
    each, over = divmod(layers, pp)
    return tuple(each + (stage < over) for stage in range(pp))


def shape_from(
    launch: Launch, base: Architecture | None = None
) -> tuple[Architecture | None, tuple[str, ...], str]:
    """
    Read the network out of a launch.

    Parameters
    ----------
    base
        What fills the gaps of the launch, such as a spec's own.

    Returns
    -------
    Architecture or None
        None where something is missing or does not fit.
    tuple[str, ...]
        What was taken from elsewhere, in words.
    str
        What is missing or does not fit; empty where nothing is.
    """
    taken: list[str] = []
    named = launch.value("architecture")
    if isinstance(named, str):
        try:
            base = catalogue.architecture(named)
        except Refusal as refusal:
            if base is None:
                return None, (), f"{refusal.problem}; {refusal.remedy}"
    values = _shape_values(launch)
    if base is None:
        base = known_shape(values)
        if base is not None and values.get("vocabulary") is None:
            taken.append(f"vocabulary {base.vocabulary:,}, that of {base.name}")
            values["vocabulary"] = base.vocabulary
        name = base.name if base is not None else "custom"
        if values.get("vocabulary") is None and "hidden" in values:
            values["vocabulary"] = USUAL_VOCABULARY
            taken.append(f"vocabulary {USUAL_VOCABULARY:,}, that of GPT-2; --set vocabulary=N")
    else:
        name = base.name
        plain = base.model_dump(exclude_none=True)
        stated = {s.name.partition(".")[0] for s in launch.stated}
        filled = [n for n in ("layers", "hidden", "vocabulary") if n not in stated]
        taken += [f"{n} {plain[n]:,}, that of the spec" for n in filled if not named]
        full = {n for n in ("layers", "hidden", "heads", "ffn") if n in stated}
        # A network that the launch tells in full is its own; one that it does not tell is the base.
        values = {**plain, **values} if len(full) >= 3 else {**values, **plain, **_only(launch)}
    missing = [n for n in ("layers", "hidden", "heads", "ffn") if values.get(n) is None]
    if missing:
        return None, tuple(taken), f"the launch does not tell {', '.join(missing)}"
    values["name"] = name
    try:
        return Architecture.model_validate(values), tuple(taken), ""
    except ValidationError as error:
        one = error.errors()[0]
        place = ".".join(map(str, one["loc"]))
        text = one["msg"].removeprefix("Value error, ")
        return None, tuple(taken), f"{place}: {text}".removeprefix(": ")


def _shape_values(launch: Launch) -> dict[str, Any]:
    """Return the values of a network, those of its parts in mappings of their own."""
    found: dict[str, Any] = {}
    for field in Architecture.model_fields:
        if field in PARTS:
            part = {
                inner: launch.value(f"{field}.{inner}")
                for inner in PARTS[field].model_fields
                if launch.value(f"{field}.{inner}") is not None
            }
            if part:
                found[field] = part
        elif field != "name" and launch.value(field) is not None:
            found[field] = launch.value(field)
    return found


def _only(launch: Launch) -> dict[str, Any]:
    """Return what a launch states of the network itself, without defaults."""
    return _shape_values(launch.model_copy(update={"assumed": ()}))


def known_shape(values: Mapping[str, Any]) -> Architecture | None:
    """Find the shipped architecture that has a shape; its vocabulary decides between several."""
    asked = tuple(values.get(n) for n in ("layers", "hidden", "heads", "ffn"))
    key_heads = values.get("kv_heads", values.get("heads"))
    hits = []
    for name in catalogue.names("workloads"):
        one = catalogue.architecture(name)
        if (one.layers, one.hidden, one.heads, one.ffn, one.key_heads) == (*asked, key_heads):
            hits.append(one)
    same = [one for one in hits if one.vocabulary == values.get("vocabulary")]
    return next(iter(same or hits), None)
