"""What is built: the right packages, nothing astray, and nothing heavy before it is needed."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import optplan

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = {"optplan": "optplan", "optplan.models": "models", "optplan.solvers": "solvers"}
ENGINES = {"ortools", "pyomo", "highspy"}
EXTRAS = {"torch", "transformers", "dask", "distributed", "scipy", "pandas", "matplotlib"}

in_checkout = pytest.mark.skipif(
    not (ROOT / "models" / "__init__.py").is_file(),
    reason="the checkout's models/ is not beside the tests",
)


def project() -> dict[str, Any]:
    """The project file."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def installed() -> metadata.Distribution:
    """The installed distribution; skips where there is none or where it is only a pointer."""
    for found in metadata.distributions(name="optplan"):
        if found.read_text("RECORD") is None:
            continue  # an egg-info that a build left in the checkout
        origin = json.loads(found.read_text("direct_url.json") or "{}")
        if origin.get("dir_info", {}).get("editable"):
            pytest.skip("optplan is installed editable: no files of its own to look at")
        return found
    pytest.skip("optplan is not installed")


def installed_files() -> set[str]:
    """Every file that the installed distribution owns, relative to site-packages, less caches."""
    return {path.as_posix() for path in installed().files or () if path.suffix != ".pyc"}


def loaded_by(code: str, folder: Path) -> set[str]:
    """Top-level modules that a fresh interpreter holds after running ``code``."""
    spec = find_spec("optplan")
    assert spec is not None
    assert spec.origin is not None
    home = str(Path(spec.origin).parents[1])
    script = (
        f"import sys\nif {home!r} not in sys.path: sys.path.insert(0, {home!r})\n{code}\n"
        "print('LOADED', *{name.partition('.')[0] for name in sys.modules})"
    )
    run = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=folder, check=False
    )
    assert run.returncode == 0, run.stderr
    return set(run.stdout.rpartition("LOADED")[2].split())


@in_checkout
def test_the_packages_listed_are_the_folders_that_are_packages() -> None:
    """A new folder cannot be forgotten, nor a removed one kept."""
    found = {
        ".".join((name, *init.parent.relative_to(ROOT / folder).parts))
        for name, folder in FOLDERS.items()
        for init in (ROOT / folder).rglob("__init__.py")
    }
    assert set(project()["tool"]["setuptools"]["packages"]) == found
    assert project()["tool"]["setuptools"]["package-dir"] == FOLDERS


@in_checkout
def test_every_module_lies_in_a_package() -> None:
    """A module in a folder without ``__init__.py`` would not be shipped."""
    lost = [
        str(path.relative_to(ROOT))
        for folder in FOLDERS.values()
        for path in (ROOT / folder).rglob("*.py")
        if not (path.parent / "__init__.py").is_file()
    ]
    assert not lost


@in_checkout
@pytest.mark.parametrize("name", ["models", "solvers"])
def test_the_links_lead_to_the_folders_at_the_root(name: str) -> None:
    link = ROOT / "optplan" / name
    if not link.is_symlink():
        pytest.skip("this checkout has no symbolic links")
    assert link.readlink() == Path("..", name)
    assert link.resolve() == ROOT / name


def test_nothing_is_installed_outside_optplan() -> None:
    """No ``models``, ``solvers`` or ``tests`` lands in anyone's site-packages."""
    ours = re.compile(r"optplan/|optplan-[^/]+\.dist-info/|(\.\./)+(bin|Scripts)/optplan(\.exe)?$")
    assert [path for path in sorted(installed_files()) if not ours.match(path)] == []


def test_the_installed_package_carries_its_data() -> None:
    """The catalogue and the mark of a typed package travel with the code."""
    files = installed_files()
    assert "optplan/py.typed" in files
    for kind in ("workloads", "accelerators", "calibrations", "frameworks"):
        assert any(re.fullmatch(rf"optplan/models/data/{kind}/[^/]+\.yaml", f) for f in files), kind


@in_checkout
def test_the_installed_package_carries_every_file_of_the_checkout() -> None:
    """Every module, data file and template, and none that the checkout no longer has."""
    wanted = {
        "/".join((name.replace(".", "/"), *path.relative_to(ROOT / folder).parts))
        for name, folder in FOLDERS.items()
        for pattern in ("*.py", "*.yaml", "*.j2", "py.typed")
        for path in (ROOT / folder).rglob(pattern)
    }
    assert {path for path in installed_files() if path.startswith("optplan/")} == wanted


def test_the_version_is_written_once() -> None:
    assert installed().version == project()["project"]["version"]
    assert optplan.__version__ == project()["project"]["version"]


def test_importing_optplan_loads_nothing_heavy(tmp_path: Path) -> None:
    heavy = ENGINES | EXTRAS | {"numpy", "pydantic", "ruamel", "jinja2", "rich", "cyclopts"}
    assert loaded_by("import optplan", tmp_path) & heavy == set()


def test_asking_for_help_loads_no_solver(tmp_path: Path) -> None:
    code = (
        "sys.argv = ['optplan', '--help']\n"
        "from optplan.cli import main\n"
        "try:\n    main()\nexcept SystemExit as stop:\n    assert not stop.code, stop.code"
    )
    assert loaded_by(code, tmp_path) & (ENGINES | EXTRAS) == set()


@pytest.mark.parametrize("name", optplan.__all__)
def test_every_public_name_can_be_had(name: str) -> None:
    assert getattr(optplan, name) is not None
    assert name in dir(optplan)


def test_a_name_that_is_not_public_is_refused() -> None:
    with pytest.raises(AttributeError, match="'optplan' has no attribute 'sovle'"):
        optplan.sovle  # type: ignore[attr-defined]  # noqa: B018


def test_the_public_names_stand_alike_in_all_three_lists() -> None:
    """What type checkers see, what is imported late and ``__all__`` name the same things."""
    tree = ast.parse(Path(optplan.__file__).read_text(encoding="utf-8"))
    checked = {
        alias.name: node.module
        for block in tree.body
        if isinstance(block, ast.If)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert checked == optplan._HOMES
    assert {*checked, "__version__"} == set(optplan.__all__)


@pytest.mark.parametrize("name", ["load", "verify"])
@pytest.mark.parametrize("first", ["import optplan.{0}", "from optplan.{0} import {0}", ""])
def test_a_function_is_never_hidden_by_the_module_of_its_name(
    name: str, first: str, tmp_path: Path
) -> None:
    """Whoever imported the module first, ``optplan.load`` is the function."""
    code = f"{first.format(name)}\nimport optplan\nassert not hasattr(optplan.{name}, '__path__')\n"
    loaded_by(f"{code}assert callable(optplan.{name})", tmp_path)
