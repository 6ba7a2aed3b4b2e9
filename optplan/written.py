"""A spec written down as an optimisation model for any solver: LP, MPS, NL, CP-SAT or text."""

from __future__ import annotations

import contextlib
import io
import json
import re
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from optplan.files import save
from optplan.live import WITHIN, Part, cp_of, part_of, pyomo_of
from optplan.models.errors import Fault, InputError
from optplan.models.record import Record
from optplan.models.rules.registry import Rule
from optplan.planner import Condition, Spec

if TYPE_CHECKING:
    import pyomo.environ as pyo

Format = Literal["lp", "mps", "nl", "cpsat-proto", "text"]

FORMATS: tuple[Format, ...] = ("lp", "mps", "nl", "cpsat-proto", "text")
"""Forms that a model can be written in."""


class Written(Record):
    """What was written."""

    path: str
    """The model's file."""
    names: str | None
    """The file that says which of our names each written name stands for."""
    form: str
    """Its form."""
    within: float | None
    """Every plan whose goal exceeds the best by no more than this share is in it; none: every
    plan."""
    best: float | None
    """Goal of the best plan, in the goal's unit; none under limits that ask for slowness."""
    unit: str
    """The goal's unit."""
    points: int
    """Points of the space."""
    kept: int
    """Points that the model holds."""
    variables: int
    """Variables."""
    constraints: int
    """Constraints."""


def write_model(
    spec: Spec,
    path: str | Path,
    form: str = "lp",
    *,
    within: float | str | None = WITHIN,
    exact: bool = False,
    sets: Sequence[str] = (),
    limits: Sequence[Condition] = (),
    rules: Iterable[Rule] = (),
) -> Written:
    """
    Write a spec as a model file.

    Parameters
    ----------
    path
        File to write. Beside it, ``PATH.names.json`` says which of our names each name in it stands
        for, and which rules were asked before the model was written.
    form
        ``lp``, ``mps``, ``nl``, ``cpsat-proto`` or ``text``.
    within, exact
        As for ``pyomo_model``; ``text`` is always the whole program.

    Raises
    ------
    InputError
        The spec is wrong, the form is unknown, or the file cannot be written.
    """
    if form not in FORMATS:
        remedy = f"one of {', '.join(FORMATS)}"
        raise InputError([Fault("", "--format", f"there is no form {form!r}", remedy)])
    _refuse(Path(path), spec)
    part = part_of(spec, within if form != "text" else 0.0, sets, limits, rules)
    program = part.form.program
    names: dict[str, Any] | None = None
    files: dict[str, bytes] = {}
    target = Path(path)
    if form == "text":
        text = str(program) + "".join(f"{n}: {s}\n" for n, s in program.sentences.items())
        files[""] = text.encode()
        size = (len(program.choices), len(program.statements))
        part = Part(part.form, part.left, None, part.points, part.best)
    elif form == "cpsat-proto":
        model = cp_of(part)
        with tempfile.TemporaryDirectory() as folder:
            # OR-Tools writes text where the name ends so, and else the binary form.
            made = Path(folder) / ("m.txt" if target.suffix in (".txt", ".pbtxt") else "m.pb")
            model.raw.export_to_file(str(made))
            files[""] = made.read_bytes()
        size = (len(model.raw.proto.variables), len(model.raw.proto.constraints))
    else:
        raw = pyomo_of(part, exact)
        files, names = _pyomo_files(raw, form)
        size = (len(names["variables"]), len(names["constraints"]))
    if names is not None:
        names["rules asked before"] = sorted(set(program.constraints))
        files[".names.json"] = (json.dumps(names, indent=1) + "\n").encode()
    save(target, files)
    return Written(
        path=str(target),
        names=f"{target}.names.json" if names is not None else None,
        form=form,
        within=part.within,
        best=part.best,
        unit=program.goal.unit,
        points=part.points,
        kept=part.points if form == "text" else len(part.left),
        variables=size[0],
        constraints=size[1],
    )


def _pyomo_files(raw: pyo.ConcreteModel, form: str) -> tuple[dict[str, bytes], dict[str, Any]]:
    """Render a Pyomo model, and say what each name stands for."""
    from pyomo.repn.plugins.lp_writer import LPWriter
    from pyomo.repn.plugins.nl_writer import NLWriter

    plain = Labels()
    if form == "nl":
        text, rows, columns = io.StringIO(), io.StringIO(), io.StringIO()
        NLWriter().write(raw, text, rows, columns, symbolic_solver_labels=True)
        files = {"": text.getvalue().encode()}
        files[".row"], files[".col"] = rows.getvalue().encode(), columns.getvalue().encode()
        seen = {c.name: c for c in _components(raw)}
        variables = {n: plain(seen[n]) for n in columns.getvalue().split("\n") if n in seen}
        constraints = {n: plain(seen[n]) for n in rows.getvalue().split("\n") if n in seen}
        return files, {"variables": variables, "constraints": constraints}
    if form == "lp":
        out = io.StringIO()
        info = LPWriter().write(raw, out, labeler=plain)
        symbols = info.symbol_map
        rendered = out.getvalue()
    else:
        with tempfile.TemporaryDirectory() as folder:
            made = Path(folder) / "model.mps"
            _, symbols = raw.write(str(made), format="mps", io_options={"labeler": plain})
            symbols = raw.solutions.symbol_map[symbols]
            rendered = made.read_text(encoding="utf-8")
    import pyomo.environ as pyo

    names: dict[str, Any] = {"variables": {}, "constraints": {}}
    for symbol, component in symbols.bySymbol.items():
        if component is None or not hasattr(component, "ctype"):
            continue
        if component.ctype is pyo.Var:
            names["variables"][symbol] = component.name
        elif component.ctype is pyo.Constraint:
            names["constraints"][symbol] = component.name
    return {"": rendered.encode()}, names


def _components(raw: pyo.ConcreteModel) -> Iterable[Any]:
    """Variables, constraints and goals of a model."""
    import pyomo.environ as pyo

    yield from raw.component_data_objects((pyo.Var, pyo.Constraint, pyo.Objective))


class Labels:
    """
    Names for the parts of a Pyomo model that every file format allows.

    ``option[17].'capacity.hbm'.row[3]`` becomes ``capacity.hbm(17,3)``, a choice ``choice.tp``.
    """

    def __init__(self) -> None:
        self._taken: dict[str, str] = {}

    def __call__(self, component: Any) -> str:
        """Name a part; no two parts share a name."""
        name = str(component.name).replace("'", "")
        found = re.fullmatch(r"(?:option\[(\d+)\]\.)?(.*?)\.(?:row|var)\[(\d+)\]", name)
        if found:
            option, rule, number = found.groups()
            name = f"{rule}({number if option is None else f'{option},{number}'})"
        elif component.parent_block() is component.model() and component.is_variable_type():
            name = f"choice.{name}"
        # A minus or a blank in a user's own name would end it there.
        plain = re.sub(r"[^A-Za-z0-9_.(),]", "_", name)
        while self._taken.setdefault(plain, name) != name:
            plain += "_"
        return plain


def _refuse(target: Path, spec: Spec) -> None:
    """Refuse to write over the spec, or to nowhere."""
    remedy = "give the file another name"
    if str(target) in ("", "."):
        raise InputError([Fault("--output", "", "no file is named", "name a file")])
    with contextlib.suppress(OSError, ValueError):
        if isinstance(spec, str | Path) and target.resolve() == Path(spec).resolve():
            raise InputError([Fault(str(target), "", "this is the spec itself", remedy)])
