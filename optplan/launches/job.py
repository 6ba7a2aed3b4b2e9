"""From a launch, and a spec that fills its gaps, to a problem and the plan that it launches."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import gcd
from typing import Any

from pydantic import ValidationError

from optplan import catalogue
from optplan.launches.launch import Launch, Stated, Value
from optplan.launches.reading import MOST
from optplan.launches.values import WORKLOAD, plan_from, shape_from, whole
from optplan.load import load
from optplan.models.errors import Fault, InputError
from optplan.models.spec.plan import Plan
from optplan.models.spec.problem import Problem
from optplan.models.spec.workload import Architecture
from optplan.places import Refusal

PLACEHOLDER = "h100-sxm-80gb"
"""Device whose node and links stand in where none is named; nothing is priced on it."""

BOUNDLESS = 2**45
"""Memory of that device."""

MACHINE = ("nodes", "devices_per_node", "devices")
"""Values of a machine that a launch states."""

SETTABLE = (
    *Plan.model_fields,
    *MACHINE,
    *WORKLOAD,
    *(name for name in Architecture.model_fields if name != "name"),
    "architecture",
)
"""Values of a launch that ``--set`` puts something else for."""


WHOLES = (
    *("tp", "pp", "dp", "cp", "ep", "etp", "vpp", "zero"),
    *("micro_batch", "micro_batches", "global_batch", "layers", "sequence_length"),
    *MACHINE,
)
"""Those of them that are whole numbers and are multiplied before any record checks them."""


@dataclass(frozen=True)
class Prepared:
    """
    A launch as a problem and a plan.

    Parameters
    ----------
    launch
        As read, with what its caller set.
    problem
        Workload, machine and framework.
    plan
        The plan that it launches; products need not fit.
    priced
        Whether the machine is known, so that memory and time mean something.
    taken
        What was taken from elsewhere, in words.
    lacks
        What to add to learn more.
    """

    launch: Launch
    problem: Problem
    plan: Plan
    priced: bool
    taken: tuple[str, ...]
    lacks: tuple[str, ...]


def parted(sets: Iterable[str]) -> tuple[dict[str, str], dict[str, Value], list[str]]:
    """
    Part ``--set`` into variables of a script, values of a launch, and values of a spec.

    ``tp=8`` and ``nodes=4`` are the launch's, ``cluster.network=400 Gb/s`` the spec's, and every
    other name a variable that the script leaves to its environment: ``NNODES=4``, ``1=4``.
    """
    variables: dict[str, str] = {}
    values: dict[str, Value] = {}
    specs: list[str] = []
    for text in sets:
        name, equals, value = text.partition("=")
        name, value = name.strip().lstrip("$"), value.strip()
        if not equals or not name:
            remedy = "write --set NNODES=4, --set tp=8 or --set cluster.nodes=4"
            raise InputError([Fault(f"--set {text[:60]}", "", "this sets nothing", remedy)])
        if "." in name and name.split(".")[0] in ("cluster", "workload", "search", "calibration"):
            specs.append(text)
        elif name in SETTABLE or name.split(".")[0] in ("experts", "latent"):
            values[name] = _checked(text, name, _value(value))
        else:
            variables[name] = value
    return variables, values, specs


def _checked(text: str, name: str, value: Value) -> Value:
    """Refuse a value that is none for its name."""
    least, most = 1, MOST.get(name, 2**31 - 1)
    if name in WHOLES:
        least, most = (0, 3) if name == "zero" else (least, most)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            remedy = f"write a whole number from {least} to {most}"
            raise InputError([Fault(f"--set {text[:60]}", "", "this is no value for it", remedy)])
    return value


def _value(text: str) -> Value:
    """Read a value as a person writes it."""
    if re.fullmatch(r"[+-]?\d{1,9}", text):
        return int(text)
    if re.fullmatch(r"\d{1,6}(,\d{1,6})+", text):
        return tuple(int(n) for n in text.split(","))
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        return float(text)
    except ValueError:
        return text


def with_values(launch: Launch, values: Mapping[str, Value]) -> Launch:
    """Return a launch with values of its caller behind its own, where they win."""
    more = [Stated(name=n, value=v, written=f"--set {n}={v}") for n, v in values.items()]
    return launch.model_copy(update={"stated": (*launch.stated, *more)})


def prepare(
    launch: Launch,
    spec: Problem | None = None,
    on: str = "",
    framework: str = "",
    specs: Iterable[str] = (),
) -> Prepared:
    """
    Turn a launch into a problem and a plan.

    Parameters
    ----------
    spec
        Whose cluster, limits and workload fill what the launch leaves out.
    on
        Accelerator of the catalogue.
    framework
        Framework and version, instead of what the launch tells.
    specs
        Values of the spec to put over the others, as ``cluster.network=400 Gb/s``.

    Raises
    ------
    InputError
        The network, the sequence or the batch is told nowhere, or a name is unknown.
    """
    faults: list[Fault] = []
    base = None if spec is None else spec.workload.architecture
    shape, taken, missing = shape_from(launch, base)
    if shape is None:
        remedy = "add a spec with the workload, or --set layers=80 and the like"
        faults.append(Fault("", "workload", missing, remedy))
    words = list(taken)
    work: dict[str, Any] = {}
    for name in WORKLOAD:
        value = launch.value(name)
        if value is None and spec is not None:
            value = getattr(spec.workload, name)
            if name == "sequence_length":
                words.append(f"sequence length {value}, that of the spec")
        if value is not None:
            work[name] = value
    batch = whole(launch, "global_batch")
    if batch is None and spec is not None and isinstance(spec.search.global_batch, int):
        batch = spec.search.global_batch
        words.append(f"global batch {batch}, that of the spec")
    for name, value in (
        ("sequence_length", work.get("sequence_length")),
        ("micro_batch", launch.value("micro_batch")),
    ):
        if value is None:
            remedy = f"add --set {name}=N"
            faults.append(Fault("", name, f"the launch does not tell {name}", remedy))
    nodes, node, lacks = _machine(launch, spec, on, words)
    if faults or shape is None:
        raise InputError(faults)
    if batch is None:
        ranks = nodes * node // _taken(launch)
        batch = (whole(launch, "micro_batch") or 1) * max(1, ranks)
        words.append(f"global batch {batch}, one micro-batch for each of {max(1, ranks)} ranks")
    named = _framework(launch, framework)
    priced = bool(on) or spec is not None
    data = _data(spec, shape, work, (nodes, node), on, named, batch, launch)
    kind = str(work.get("precision", "bf16"))
    device = _device(data["cluster"]["accelerator"])
    if kind not in device.get("peak", {kind: ""}):
        if priced:
            name = device.get("name", "the accelerator")
            lacks.insert(0, f"memory and time: {name} has no matrix units for {kind}")
        priced = False
        device["peak"] = {**device["peak"], kind: next(iter(device["peak"].values()))}
        data["cluster"]["accelerator"] = device
    problem = load(data, sets=list(specs))
    if not priced:
        problem = problem.with_accelerator(hbm=BOUNDLESS)
        if not on and spec is None:
            wish = "memory and time: name the accelerator, such as --on h100-sxm-80gb, or a spec"
            lacks.insert(0, wish)
    values = dict[str, Value]()
    values |= {"nodes": nodes, "devices_per_node": node, "global_batch": batch}
    values |= {"layers": shape.layers}
    try:
        plan = plan_from(launch, values)
    except ValidationError as error:
        one = error.errors()[0]
        place = ".".join(map(str, one["loc"]))
        text = one["msg"].removeprefix("Value error, ")
        raise InputError([Fault("", place, text, "mend the launch or --set it")]) from None
    return Prepared(launch, problem, plan, priced, tuple(words), tuple(lacks))


def _taken(launch: Launch) -> int:
    """Multiply the degrees that are not data."""
    found = 1
    for name in ("tp", "pp", "cp"):
        found *= whole(launch, name) or 1
    return found


def _machine(
    launch: Launch, spec: Problem | None, on: str, words: list[str]
) -> tuple[int, int, list[str]]:
    """Return nodes, devices of each, and what is not known of them."""
    lacks: list[str] = []
    node, nodes = whole(launch, "devices_per_node"), whole(launch, "nodes")
    world = whole(launch, "devices")
    if node is None:
        usual = spec.cluster.devices_per_node if spec is not None else _domain(on)
        node = min(usual, world) if world else usual
        words.append(f"{node} devices per node")
    if nodes is None and world:
        nodes = max(1, world // node)
    elif nodes is None and spec is not None:
        nodes = spec.cluster.nodes
        words.append(f"{nodes} nodes, those of the spec")
    elif nodes is None:
        nodes = _fewest(launch, node)
        words.append(f"{nodes} nodes, the fewest that the degrees and the batch allow")
        lacks.append("the number of nodes: --set nodes=8, or the variable it depends on")
    return nodes, node, lacks


def _fewest(launch: Launch, node: int) -> int:
    """Return the fewest nodes whose devices the degrees divide, and whose ranks the batch."""
    taken, cp = _taken(launch), whole(launch, "cp") or 1
    batch, micro = whole(launch, "global_batch"), whole(launch, "micro_batch") or 1
    shared = bool(launch.value("zero"))
    step = taken // gcd(taken, node)
    legal = [step * n for n in range(1, 65)]
    for nodes in legal:
        ranks = nodes * node // taken
        split = batch is None or batch % (ranks * micro) == 0
        stage = (whole(launch, "tp") or 1) * cp * ranks
        split = split and stage % ((whole(launch, "ep") or 1) * (whole(launch, "etp") or 1)) == 0
        if split and (ranks * cp > 1 or not shared):
            return nodes
    return step


def _domain(on: str) -> int:
    """Return the usual devices of a node."""
    try:
        return catalogue.accelerator(on or PLACEHOLDER).domain
    except Refusal:
        return 8


def _framework(launch: Launch, asked: str) -> str:
    """Return name and version of the framework as the catalogue spells it."""
    text = asked or launch.framework + (f"@{launch.version}" if launch.version else "")
    try:
        return catalogue.framework(text).name
    except Refusal as refusal:
        place = "--framework" if asked else ""
        raise InputError([Fault(place, "framework", refusal.problem, refusal.remedy)]) from None


def _data(
    spec: Problem | None,
    shape: Architecture,
    work: Mapping[str, Any],
    machine: tuple[int, int],
    on: str,
    framework: str,
    batch: int,
    launch: Launch,
) -> dict[str, Any]:
    """Write the problem as a spec has it."""
    data: dict[str, Any] = {} if spec is None else spec.model_dump(mode="json")
    known = data.get("workload", {})
    data["workload"] = {**known, "architecture": shape.model_dump(mode="json"), **work}
    cluster = dict(data.get("cluster", {}))
    if on or spec is None:
        cluster = {"accelerator": on or PLACEHOLDER}
        data.pop("calibration", None)
    cluster |= {"nodes": machine[0], "devices_per_node": machine[1]}
    data["cluster"] = cluster
    data["search"] = {**data.get("search", {}), "global_batch": batch, "idle_devices": False}
    data["framework"] = framework
    features = catalogue.framework(framework).features
    if launch.overlap is not None:
        data["overlap"] = [f for f in launch.overlap if f in features]
    elif data.get("overlap"):
        data["overlap"] = [f for f in data["overlap"] if f in features]
    return data


def _device(given: str | Mapping[str, Any]) -> dict[str, Any]:
    """Write a device of the catalogue out; what is unknown there is left to the loader."""
    if not isinstance(given, str):
        return dict(given)
    try:
        return catalogue.accelerator(given).model_dump(mode="json")
    except Refusal:
        return {}
