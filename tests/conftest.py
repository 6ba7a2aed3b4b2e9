"""Options and fixtures that every test may ask for."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import settings

from tests.golden import Golden

settings.register_profile("optplan", deadline=None, print_blob=True)  # no test judges a wall time
settings.load_profile("optplan")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--measured",
        type=Path,
        metavar="DIR",
        help="folder of measured runs, with calibration/ and validation/ (write --measured=DIR)",
    )
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="rewrite the texts under tests/golden instead of comparing with them",
    )


def pytest_report_header() -> str:
    spec = find_spec("optplan")
    return f"optplan under test: {spec.origin if spec else 'not found'}"


@pytest.fixture(scope="session")
def measured(pytestconfig: pytest.Config) -> Path:
    """Folder of the measured runs; the test is skipped where none was given."""
    folder: Path | None = pytestconfig.getoption("--measured")
    if folder is None:
        pytest.skip("needs the measured runs: give --measured=DIR")
    missing = [name for name in ("calibration", "validation") if not (folder / name).is_dir()]
    assert not missing, f"--measured={folder} has no {' and no '.join(missing)} folder"
    return folder.resolve()


@pytest.fixture(scope="session")
def golden(pytestconfig: pytest.Config) -> Golden:
    """Compare a text with ``tests/golden/<name>.txt``: ``golden(name, text)``."""
    return Golden(update=bool(pytestconfig.getoption("--update-golden")))
