"""Names, left-out values and files of an input replaced by what they stand for."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from dataclasses import replace

from optplan import catalogue, hf
from optplan.compose import Composer
from optplan.models.errors import Fault
from optplan.models.spec.cluster import Accelerator, Cluster
from optplan.models.spec.framework import Framework
from optplan.models.units import show
from optplan.places import REFUSED, Node, Refusal, dots, mapping
from optplan.source import read_text


def resolve(root: Node, folder: pathlib.Path, faults: list[Fault]) -> Node:
    """
    Return the input as the records take it.

    Parameters
    ----------
    root
        The input, a mapping.
    folder
        Where relative file names start.
    faults
        Receives every name and file that leads nowhere, and every limit that cannot be read.
    """
    root = calibration_file(root, folder, faults)
    for key, step in (("workload", _workload), ("cluster", _cluster)):
        node = root.child(key)
        if node is not None:
            root = root.put(key, step(node, folder, faults), root.keys[key])
    for key, (text, stem, example, check) in OWN.items():
        node = root.child(key)
        if node is not None:
            root = root.put(
                key, _own(node, key, text, stem, example, check, faults), root.keys[key]
            )
    return _calibration(_framework(root, faults), faults)


def _framework(root: Node, faults: list[Fault]) -> Node:
    """Replace the name and version of a framework by what it can launch."""
    node = root.child("framework")
    if node is None or not isinstance(node.value, str):
        return root
    found = _named(node, "framework", catalogue.framework, faults)
    return root.put("framework", found, root.keys["framework"])


def _named(node: Node, path: str, find: Callable[[str], object], faults: list[Fault]) -> Node:
    """Replace a name by what it stands for."""
    if not isinstance(node.value, str):
        return node
    try:
        return replace(node, value=find(node.value))
    except Refusal as refusal:
        faults.append(Fault(node.place, path, refusal.problem, refusal.remedy))
        return replace(node, value=REFUSED)


def _workload(node: Node, folder: pathlib.Path, faults: list[Fault]) -> Node:
    """Resolve the architecture, from the catalogue or from a config.json."""
    if not isinstance(node.value, dict):
        return node
    shape, config = node.child("architecture"), node.child("hf")
    if shape is not None and isinstance(shape.value, dict) and list(shape.keys) == ["hf"]:
        # `architecture: {hf: config.json}` means the same as `hf: config.json` beside it.
        inner = shape.child("hf")
        if config is None and inner is not None:
            node = node.without("architecture").put("hf", inner, shape.keys["hf"])
            shape, config = None, inner
    if config is not None:
        place = node.keys["hf"]
        node = node.without("hf")
        if shape is not None:
            problem = "'hf' and 'architecture' are both given"
            faults.append(Fault(place, "workload.hf", problem, "keep one of them"))
        elif isinstance(config.value, str):
            read = _named(
                config, "workload.hf", lambda name: hf.architecture(folder / name), faults
            )
            return node.put("architecture", read, place)
        else:
            if config.value is not REFUSED:
                problem, remedy = f"'{config.text}' is no file name", "write 'hf: config.json'"
                faults.append(Fault(config.place, "workload.hf", problem, remedy))
            return node.put("architecture", replace(config, value=REFUSED), place)
    if shape is None:
        return node
    found = _named(shape, "workload.architecture", catalogue.architecture, faults)
    return node.put("architecture", found, node.keys["architecture"])


def _cluster(node: Node, folder: pathlib.Path, faults: list[Fault]) -> Node:
    """Resolve the accelerator, and take from it what the cluster leaves out."""
    if not isinstance(node.value, dict):
        return node
    written = node.child("accelerator")
    if written is None:
        # One fault is enough: whoever adds the accelerator may need neither of these.
        usual: dict[str, Node | None] = dict.fromkeys(
            ("devices_per_node", "network"), Node(REFUSED)
        )
    else:
        device = _named(
            _profiled(written, folder, faults), "cluster.accelerator", catalogue.accelerator, faults
        )
        node = node.put("accelerator", device, node.keys["accelerator"])
        usual = _usual(device)
    for key, value in usual.items():
        if node.child(key) is None and value is not None:
            node = node.put(key, value, value.place)
    if node.child("network") is None:
        problem = "'network' is missing and the accelerator has no usual one"
        remedy = "add it, such as 'network: 400 Gb/s'"
        faults.append(Fault(node.place, "cluster.network", problem, remedy))
        node = node.put("network", Node(REFUSED), "")
    return node


def _usual(device: Node) -> dict[str, Node | None]:
    """Return devices per node and network as an accelerator usually comes."""
    found = device.value
    if isinstance(found, Accelerator):
        network = None
        if found.network is not None:
            network = replace(device, value=show(found.network, "bytes/s"))
        return {"devices_per_node": replace(device, value=found.domain), "network": network}
    if not isinstance(found, dict):
        return dict.fromkeys(("devices_per_node", "network"), Node(REFUSED))
    network = device.child("network")
    if network is not None and network.value is None:
        network = None
    return {"devices_per_node": device.child("domain") or Node(REFUSED), "network": network}


def _limit_of(text: str) -> object:
    """Read a limit; late, because the language is needed only where there are some."""
    from optplan.models.expression import parse

    return parse(text)


def _surcharge_of(text: str) -> object:
    """Read a surcharge."""
    from optplan.models.expression import parse_time

    return parse_time(text)


Check = Callable[[str], object]

OWN: dict[str, tuple[str, str, str, Check]] = {
    "limits": ("rule", "limit", "['pp <= 4']", _limit_of),
    "surcharges": ("seconds", "surcharge", "['40 ms']", _surcharge_of),
}
"""Lists of the user's own texts: key of the text, what an item is called, an example, how it is
read."""


def _own(
    node: Node, key: str, text: str, stem: str, example: str, check: Check, faults: list[Fault]
) -> Node:
    """Give every item of a list a name, and read every text."""
    if node.value is None:
        problem, remedy = f"'{key}' is empty", f"write a list such as {example}, or no '{key}'"
        faults.append(Fault(node.place, key, problem, remedy))
        return replace(node, value=[])
    if not isinstance(node.value, list):
        return node
    first: dict[str, str] = {}
    items: list[Node] = []
    for index, written in enumerate(node.value):
        item = _item(written, text, f"{stem}-{index + 1}")
        name, said = item.child("name"), item.child(text)
        path = (key, index)
        if said is not None and isinstance(said.value, str) and said.value:
            _check(said, dots(path if said is written else (*path, text)), check, faults)
        if name is not None and isinstance(name.value, str):
            if name.value in first:
                problem = f"{stem} name '{name.text}' is given twice"
                remedy = f"give each {stem} its own name"
                faults.append(Fault(name.place, dots((*path, "name")), problem, remedy))
                item = item.put("name", Node(REFUSED), "")
            else:
                first[name.value] = name.place
        items.append(item)
    return replace(node, value=items)


def _item(written: Node, text: str, usual: str) -> Node:
    """Write one item as a mapping with a name."""
    name = replace(written, value=usual, text=usual)
    if isinstance(written.value, str):
        keys = {"name": written.place, text: written.place}
        return replace(written, value={"name": name, text: written}, keys=keys)
    if isinstance(written.value, dict) and written.child("name") is None:
        return written.put("name", name, written.place)
    return written


def _check(said: Node, path: str, check: Check, faults: list[Fault]) -> None:
    """Read a text, and note what is wrong where in it."""
    from optplan.models.expression import ExpressionError

    try:
        check(str(said.value))
    except ExpressionError as error:
        faults.append(Fault(said.at(error.column), path, error.problem, error.remedy))


def calibration_file(root: Node, folder: pathlib.Path, faults: list[Fault]) -> Node:
    """Replace the name of a calibration file by what it holds."""
    node = root.child("calibration")
    if node is None or not isinstance(node.value, str):
        return root
    if not node.value.lower().endswith((".yaml", ".yml")):
        return root
    path = folder / node.value
    found: list[Fault] = []
    text = read_text(path, node.value, found)
    content = None
    if text is not None:
        content = Composer(text, node.value, root=("calibration",)).compose(found)
        if content is None and not found:
            remedy = "write a calibration, as `optplan calibrate` does"
            found.append(Fault(node.value, "calibration", "the file is empty", remedy))
    else:
        # The file could not be had at all, so the place to mend is the one that names it.
        found = [replace(f, place=node.place, path="calibration") for f in found]
        found = [replace(f, problem=f"'{node.text}': {f.problem}") for f in found]
    faults.extend(found)
    if content is None:
        return root.put("calibration", replace(node, value=REFUSED), root.keys["calibration"])
    # A file of the catalogue's form holds the record under a key of its own.
    whole, content = content, content.child("calibration") or content
    devices = whole.child("accelerators")
    if devices is not None and whole is not content and isinstance(content.value, dict):
        content = content.put("accelerators", devices, devices.place)
    if isinstance(content.value, dict) and content.child("name") is None:
        content = content.put("name", Node(path.stem), content.place)
    if whole is not content and isinstance(content.value, dict):
        content = _with_intervals(content, whole)
    return root.put("calibration", content, root.keys["calibration"])


def _with_intervals(content: Node, whole: Node) -> Node:
    """Take the intervals of a file's fit, beside those that the record itself holds."""
    constants = whole.find(("fit", "constants"))
    if constants is None or not isinstance(constants.value, dict):
        return content
    held = content.child("intervals") or mapping(constants.place)
    if not isinstance(held.value, dict):
        return content
    for name in constants.value:
        ends = constants.find((name, "interval"))
        if ends is not None and ends.value is not None and held.child(name) is None:
            held = held.put(name, ends, ends.place)
    return content.put("intervals", held, held.place)


def accelerator_file(
    node: Node, folder: pathlib.Path, faults: list[Fault], optional: bool = False
) -> Node | None:
    """
    Return the accelerator that a file describes, as ``optplan profile`` writes it.

    Parameters
    ----------
    node
        The name of the file.
    optional
        Whether a file without one is no fault.
    """
    name = str(node.value)
    path, found = folder / name, list[Fault]()
    text = read_text(path, name, found)
    content = None if text is None else Composer(text, name).compose(found)
    if text is None:
        # The file could not be had at all, so the place to mend is the one that names it.
        found = [replace(f, place=node.place, path="cluster.accelerator") for f in found]
        found = [replace(f, problem=f"'{node.text}': {f.problem}") for f in found]
    faults.extend(found)
    held = None if content is None else content.child("accelerator")
    if held is not None and isinstance(held.value, dict):
        return held
    if not found and not optional:
        problem = f"'{node.text}' describes no accelerator"
        remedy = "name a file that optplan profile wrote"
        faults.append(Fault(node.place, "cluster.accelerator", problem, remedy))
    return None


def _profiled(node: Node, folder: pathlib.Path, faults: list[Fault]) -> Node:
    """Replace the name of a file by the accelerator it describes."""
    if not isinstance(node.value, str) or not node.value.lower().endswith((".yaml", ".yml")):
        return node
    found = accelerator_file(node, folder, faults)
    return replace(node, value=REFUSED) if found is None else found


FRAMEWORK_STACKS = {
    "accelerate": "fsdp",
    "torchtitan": "torchtitan",
    "deepspeed": "deepspeed",
    "megatron-deepspeed": "deepspeed",
}
"""Frameworks whose runs are calibrated apart from Megatron-LM's and its like."""


def _stack(root: Node) -> str:
    """Tell which kind of software a spec's framework is."""
    framework = root.child("framework")
    found = framework.value if framework is not None else None
    name = found.name.partition("@")[0] if isinstance(found, Framework) else ""
    return FRAMEWORK_STACKS.get(name, "megatron")


def _calibration(root: Node, faults: list[Fault]) -> Node:
    """Resolve the calibration: by its name, or the accelerator's own where none is given."""
    node = root.child("calibration")
    if node is not None and node.value is not None:
        if isinstance(node.value, dict) and node.child("name") is None:
            node = node.put("name", Node("custom"), node.place)
        found = _named(node, "calibration", catalogue.calibration, faults)
        return root.put("calibration", found, root.keys["calibration"])
    device = root.find(("cluster", "accelerator"))
    cluster = root.child("cluster")
    if cluster is not None and isinstance(cluster.value, Cluster):
        device = replace(cluster, value=cluster.value.accelerator)
    if device is None or not isinstance(device.value, Accelerator | dict):
        return root.put("calibration", Node(REFUSED), "")
    name = device.child("name")
    label = device.value.name if isinstance(device.value, Accelerator) else "custom"
    if name is not None and isinstance(name.value, str):
        label = name.value
    try:
        return root.put("calibration", Node(catalogue.calibration_for(label, _stack(root))), "")
    except Refusal as refusal:
        problem = f"no calibration is known for '{label}'"
        faults.append(Fault(device.place, "calibration", problem, refusal.remedy))
        return root.put("calibration", Node(REFUSED), "")
