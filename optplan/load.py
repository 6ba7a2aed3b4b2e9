"""From what a person typed to a checked problem, or to every fault of it at once."""

from __future__ import annotations

import logging
import os
import pathlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import lru_cache

from pydantic import ValidationError

from optplan import catalogue
from optplan.compose import Composer
from optplan.faults import translate, unknown
from optplan.keys import SHORT, path_of
from optplan.models.cost.calibration import Calibration
from optplan.models.errors import Fault, InputError
from optplan.models.spec.cluster import Accelerator
from optplan.models.spec.problem import Problem
from optplan.places import REFUSED, Node, Refusal, dots, from_python, mapping, short
from optplan.resolve import OWN, accelerator_file, calibration_file, resolve
from optplan.source import read_text

Source = str | os.PathLike[str] | Mapping[str, object] | Problem
"""A spec: a file's name, its text, its content as plain data, or a problem made before."""

log = logging.getLogger(__name__)

TEXT = "<text>"
"""What a spec is called in a place when it came as text."""

_MARK = re.compile(r":([0-9]+):([0-9]+)$")


def load(source: Source, *, sets: Iterable[str] = (), limits: Iterable[str] = ()) -> Problem:
    """
    Read a spec.

    Parameters
    ----------
    source
        The name of a file; YAML text (anything with a line break, or that begins with ``{``); a
        mapping; or a problem made before.
    sets
        Values to put over the spec's own, such as ``tp=8``, ``cluster.nodes=4`` or
        ``micro_batch=[1, 2, 4]``. A bare name stands for the one place that has it: ``tp`` for
        ``search.tp``, ``nodes`` for ``cluster.nodes``.
    limits
        Conditions to add, such as ``pp * tp <= 32``.

    Returns
    -------
    Problem
        With every name resolved and every value checked.

    Raises
    ------
    InputError
        With everything that is wrong, in the order of the file.

    Examples
    --------
    >>> load("spec.yaml", sets=["cluster.nodes=4"], limits=["pp <= 4"])  # doctest: +SKIP
    """
    faults: list[Fault] = []
    root, folder = _root(source, faults)
    overlaid = _with_sets(root if root is not None else mapping(), sets, faults)
    overlaid = _with_limits(overlaid, limits)
    if root is None:
        raise InputError(_ordered(faults))
    resolved = resolve(overlaid, folder, faults)
    try:
        problem = Problem.model_validate(resolved.plain())
    except ValidationError as error:
        faults += translate(error, resolved)
        if not faults:
            # Cannot happen unless a refusal was forgotten; better a vague fault than none.
            faults.append(Fault(resolved.place, "", "the spec cannot be used", "simplify it"))
        raise InputError(_ordered(faults)) from None
    if faults:
        raise InputError(_ordered(faults))
    workload, cluster = problem.workload, problem.cluster
    log.info(
        "%s on %d x %s, %d limits, calibration %s",
        workload.architecture.name,
        problem.devices,
        cluster.accelerator.name,
        len(problem.limits),
        problem.calibration.name,
    )
    return problem


def load_calibration(path: str | os.PathLike[str]) -> Calibration:
    """
    Read a calibration file, as ``optplan calibrate`` writes it or as a spec would hold it.

    Raises
    ------
    InputError
        With everything that is wrong.
    """
    faults: list[Fault] = []
    held = mapping().put("calibration", Node(str(path), str(path), str(path)), "")
    node = calibration_file(held, pathlib.Path(), faults).child("calibration")
    if faults or node is None:
        raise InputError(_ordered(faults))
    try:
        return Calibration.model_validate(node.plain())
    except ValidationError as error:
        raise InputError(_ordered(translate(error, node))) from None


def machine_in(given: str | os.PathLike[str] | Calibration | None) -> Accelerator | None:
    """
    Return the accelerator that a calibration file describes, as a profile writes it; else none.

    Raises
    ------
    InputError
        What stands there is no accelerator.
    """
    if given is None or isinstance(given, Calibration):
        return None
    text = os.fspath(given)
    if not text.lower().endswith((".yaml", ".yml")):
        return None
    faults: list[Fault] = []
    node = accelerator_file(Node(text, text, text), pathlib.Path(), faults, optional=True)
    if faults:
        raise InputError(_ordered(faults))
    if node is None:
        return None
    try:
        return Accelerator.model_validate(node.plain())
    except ValidationError as error:
        raise InputError(_ordered(translate(error, node))) from None


def calibration_named(given: str | os.PathLike[str] | Calibration, option: str) -> Calibration:
    """
    Find a calibration by its name in the catalogue, or in a file that ends in ``.yaml``.

    Raises
    ------
    InputError
        There is none; names ``option``.
    """
    if isinstance(given, Calibration):
        return given
    text = os.fspath(given)
    if text.lower().endswith((".yaml", ".yml")):
        return load_calibration(text)
    try:
        return catalogue.calibration(text)
    except Refusal as refusal:
        remedy = refusal.remedy
        if pathlib.Path(text).is_file():
            remedy = "a file's name ends in .yaml"
        raise InputError([Fault("", option, refusal.problem, remedy)]) from None


def readable(problem: Problem, place: str = "") -> Problem:
    """
    Return a problem that no spec was read for, once its limits and surcharges can be read.

    Raises
    ------
    InputError
        With every text that cannot; ``place`` is where the problem stands.
    """
    if not (problem.limits or problem.surcharges):
        return problem
    from optplan.models.expression import ExpressionError

    faults = []
    for key, (text, _, _, read) in OWN.items():
        for one in getattr(problem, key):
            try:
                read(getattr(one, text))
            except ExpressionError as error:
                faults.append(Fault(place, f"{key}.{one.name}", error.problem, error.remedy))
    if faults:
        raise InputError(faults)
    return problem


def _root(source: Source, faults: list[Fault]) -> tuple[Node | None, pathlib.Path]:
    """Read the spec itself; None after a fault that leaves nothing to judge."""
    folder = pathlib.Path()
    if isinstance(source, Problem):
        return from_python(source.model_dump(mode="json"), faults), folder
    if isinstance(source, Mapping):
        return from_python(source, faults), folder
    if isinstance(source, str) and ("\n" in source or source.lstrip().startswith("{")):
        name, text = TEXT, source.removeprefix("\ufeff")
    elif isinstance(source, str | os.PathLike):
        path = pathlib.Path(source)
        name, folder = str(path), path.parent
        read = read_text(path, name, faults)
        if read is None:
            return None, folder
        text = read
    else:
        problem = f"a {type(source).__name__} is no spec"
        faults.append(Fault("", "", problem, "give a file name, YAML text or a mapping"))
        return None, folder
    root, found = _composed(text, name)
    faults += found
    if root is None and found:
        return None, folder
    remedy = "begin with 'workload:', 'cluster:' and 'search:'"
    if root is None or root.value is None:
        faults.append(Fault(name, "", "the spec is empty", remedy))
        return None, folder
    if not isinstance(root.value, dict):
        if root.value is not REFUSED:
            what = "a list" if isinstance(root.value, list) else f"'{root.text}'"
            faults.append(Fault(root.place, "", f"{what} is no spec", remedy))
        return None, folder
    return root, folder


@lru_cache(maxsize=4)
def _composed(text: str, name: str) -> tuple[Node | None, tuple[Fault, ...]]:
    """Read a text once: a sweep loads the same spec thousands of times."""
    faults: list[Fault] = []
    return Composer(text, name).compose(faults), tuple(faults)


def _with_sets(root: Node, sets: Iterable[str], faults: list[Fault]) -> Node:
    """Put the values of ``--set`` over the spec's own."""
    seen: set[str] = set()
    for text in sets:
        written, equals, value = text.partition("=")
        key = written.strip()
        place = f"--set {short(key)}".rstrip()
        if not key or not equals or not value.strip():
            problem = f"'{short(text)}' is no 'key=value'"
            faults.append(Fault(place, "", problem, "write --set tp=8"))
            continue
        path = list(path_of(key))
        dotted = ".".join(path)
        if dotted in seen:
            faults.append(Fault(place, dotted, f"'{short(key)}' is set twice", "keep one of them"))
            continue
        seen.add(dotted)
        if path[0] not in Problem.model_fields:
            faults.append(Fault(place, dotted, *unknown(path[0], list(SHORT))))
            continue
        before = len(faults)
        node = Composer(value.strip(), "", fixed=place, root=tuple(path)).compose(faults)
        if node is None:
            if len(faults) == before:
                problem = f"'{short(text)}' has no value"
                faults.append(Fault(place, dotted, problem, "write --set tp=8"))
            continue
        root = _overlaid(root, path, 0, node, faults)
    return root


def _overlaid(node: Node, path: list[str], at: int, value: Node, faults: list[Fault]) -> Node:
    """Return a mapping with one value below it replaced."""
    key = path[at]
    place = value.place
    if at == len(path) - 1:
        return node.put(key, value, place)
    below = node.child(key)
    if below is None or below.value is None:
        below = mapping(place)
    if not isinstance(below.value, dict):
        if below.value is not REFUSED:
            here = dots(tuple(path[: at + 1]))
            quoted = below.text if isinstance(below.value, list) else f"'{below.text}'"
            problem = f"{here} is {quoted} and has no '{short(path[at + 1])}'"
            faults.append(Fault(place, ".".join(path), problem, f"set {here} as a whole"))
        return node
    return node.put(key, _overlaid(below, path, at + 1, value, faults), node.keys.get(key, place))


def _with_limits(root: Node, limits: Iterable[str]) -> Node:
    """Append the conditions of ``--limit``."""
    added = [Node(text, f"--limit '{short(text)}'", short(text)) for text in limits]
    if not added:
        return root
    present = root.child("limits")
    if present is None or present.value is None:
        present = Node([], added[0].place, "a list")
    if not isinstance(present.value, list):
        return root
    place = root.keys.get("limits", present.place)
    return root.put("limits", replace(present, value=[*present.value, *added]), place)


def _ordered(faults: list[Fault]) -> list[Fault]:
    """Sort faults as they stand in the file, and drop a repetition at the same place."""

    def position(fault: Fault) -> tuple[str, int, int, int]:
        mark = _MARK.search(fault.place)
        if mark is None:
            return ("", 1, 0, 0) if fault.place else ("", 0, 0, 0)
        return fault.place[: mark.start()], 0, int(mark[1]), int(mark[2])

    unique: dict[tuple[str, str, str], Fault] = {}
    for fault in faults:
        path = "" if fault.place else fault.path
        unique.setdefault((fault.place, path, fault.problem), fault)
    return sorted(unique.values(), key=lambda f: (position(f)[1], *position(f)))
