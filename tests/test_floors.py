"""The floors ``optplan -> solvers -> models``: an import never climbs, and only the face prints."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

MAY_IMPORT = {
    "optplan.models": ("optplan.models",),
    "optplan.solvers": (
        "optplan.models.columns",
        "optplan.models.errors",
        "optplan.models.pipeline",
        "optplan.models.program",
        "optplan.models.record",
        "optplan.models.stages",
        "optplan.solvers",
    ),
}
"""What a floor may import of ours; the top floor may import everything."""

MAY_PRINT = ("optplan.cli", "optplan.report")


def within(name: str, homes: tuple[str, ...]) -> bool:
    """Whether a dotted name is one of these or lies inside one of them."""
    return any(name == home or name.startswith(f"{home}.") for home in homes)


def imported(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and full dotted name of everything imported, at any depth, by statement or by call."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from ((node.lineno, alias.name) for alias in names)
            case ast.ImportFrom(module=home, names=names, level=level):
                start = "." * level + (home or "")
                yield from ((node.lineno, f"{start}.{alias.name}") for alias in names)
            case ast.Call(
                func=ast.Name(id=called) | ast.Attribute(attr=called),
                args=[ast.Constant(value=str(name)), *_],
            ) if called in ("import_module", "__import__"):
                yield node.lineno, name


def violations(module: str, source: str) -> list[str]:
    """
    What in one source file breaks the rules of the house.

    Parameters
    ----------
    module
        Dotted name the file is imported by, such as ``optplan.models.program``.
    source
        Its text.

    Returns
    -------
    list of str
        One line per fault, ``module:line: what``; empty when there is none.
    """
    tree = ast.parse(source)
    found = []
    if not (ast.get_docstring(tree) or "").strip():
        found.append(f"{module}:1: has no docstring line at its top")
    floor = next((name for name in MAY_IMPORT if within(module, (name,))), None)
    for line, name in imported(tree):
        if name.startswith("."):
            found.append(f"{module}:{line}: imports {name} relatively")
        elif within(name, ("models", "solvers")):
            found.append(f"{module}:{line}: imports {name}, which is optplan.{name}")
        elif floor and within(name, ("optplan",)) and not within(name, MAY_IMPORT[floor]):
            found.append(f"{module}:{line}: imports {name}, which {floor} may not know")
    if not within(module, MAY_PRINT):
        found.extend(
            f"{module}:{node.lineno}: prints"
            for node in ast.walk(tree)
            if isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id == "print"
        )
    return found


def sources() -> dict[str, Path]:
    """Every module of ours by dotted name: of the checkout around us, else of what is installed."""
    if (ROOT / "models" / "__init__.py").is_file():
        folders = {
            "optplan": ROOT / "optplan",
            "optplan.models": ROOT / "models",
            "optplan.solvers": ROOT / "solvers",
        }
    else:
        spec = find_spec("optplan")
        assert spec is not None
        assert spec.origin is not None
        folders = {"optplan": Path(spec.origin).parent}
    found = {}
    for package, folder in folders.items():
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(folder).with_suffix("").parts
            if folder == ROOT / "optplan" and parts[0] in ("models", "solvers"):
                continue  # the links; their targets are read in their own right
            dotted = [package, *parts[:-1], *(part for part in parts[-1:] if part != "__init__")]
            found[".".join(dotted)] = path
    return found


def test_every_module_keeps_to_its_floor() -> None:
    """No import climbs, nothing below the face prints, every module says what it is."""
    found = [
        fault
        for module, path in sources().items()
        for fault in violations(module, path.read_text(encoding="utf-8"))
    ]
    assert not found, "\n".join(found)


def test_the_sweep_reads_all_three_floors() -> None:
    """The check above is worth nothing if it reads no file."""
    modules = sources()
    for name in ("optplan", "optplan.models", "optplan.models.spec.plan", "optplan.solvers.base"):
        assert name in modules


@pytest.mark.parametrize(
    ("module", "line", "fault"),
    [
        ("optplan.models.program", "import optplan", "imports optplan, which"),
        ("optplan.models.program", "import optplan.load", "imports optplan.load, which"),
        ("optplan.models.program", "from optplan import load", "imports optplan.load, which"),
        ("optplan.models", "from optplan import solvers", "imports optplan.solvers, which"),
        (
            "optplan.models.cost.memory",
            "from optplan.solvers.base import Outcome",
            "optplan.models may",
        ),
        (
            "optplan.solvers.cpsat",
            "from optplan.models.spec.plan import Plan",
            "optplan.solvers may",
        ),
        ("optplan.solvers.cpsat", "from optplan.models import formulate", "optplan.solvers may"),
        ("optplan.solvers.cpsat", "from optplan.models import *", "optplan.solvers may"),
        (
            "optplan.solvers.settle",
            "from optplan.models.layout import fixed_shape",
            "optplan.solvers may",
        ),
        ("optplan.solvers.cpsat", "import_module('optplan.planner')", "imports optplan.planner"),
        (
            "optplan.solvers.cpsat",
            "importlib.import_module('optplan.load')",
            "imports optplan.load",
        ),
        ("optplan.models.units", "def f():\n    import optplan.cli", "imports optplan.cli"),
        ("optplan.planner", "import models", "which is optplan.models"),
        ("optplan.planner", "from solvers.base import Outcome", "which is optplan.solvers.base"),
        ("optplan.planner", "from . import load", "relatively"),
        ("optplan.planner", "print('hello')", "prints"),
        ("optplan.clinic", "print('hello')", "prints"),
    ],
)
def test_a_planted_violation_is_found(module: str, line: str, fault: str) -> None:
    """Exactly the planted line is reported, by module and by what is wrong with it."""
    (found,) = violations(module, f'"""A sign on a door."""\n\n{line}\n')
    assert found.startswith(f"{module}:")
    assert fault in found


@pytest.mark.parametrize("source", ["", "x = 1\n", '"""   """\n', "# only a comment\n"])
def test_a_module_without_a_first_line_is_found(source: str) -> None:
    assert violations("optplan.load", source) == [
        "optplan.load:1: has no docstring line at its top"
    ]


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("optplan.models.formulate", "from optplan.models.spec.plan import Plan"),
        ("optplan.models.formulate", "from optplan.models import units"),
        ("optplan.solvers.milp", "from optplan.models.program import Program"),
        ("optplan.solvers.milp", "from optplan.models import errors, program, record"),
        ("optplan.solvers.milp", "from optplan.models.pipeline import Pipeline"),
        ("optplan.solvers.milp", "from optplan.models.stages import Share"),
        ("optplan.solvers.milp", "from optplan.solvers import exhaustive"),
        ("optplan.solvers.milp", "import pyomo.environ"),
        ("optplan.planner", "from optplan.solvers.base import Outcome"),
        ("optplan.cli", "print('hello')"),
        ("optplan.report.terminal", "print('hello')"),
        ("optplan.models.program", "log.print('hello')"),
    ],
)
def test_a_lawful_line_is_left_alone(module: str, line: str) -> None:
    assert violations(module, f'"""A sign on a door."""\n\n{line}\n') == []
