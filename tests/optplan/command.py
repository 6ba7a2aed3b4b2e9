"""The command line run inside the test, and in a process of its own."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from optplan.cli import main

ROOT = Path(__file__).resolve().parents[2]
PAPER = ROOT / "examples" / "paper"
JOBS = ("baichuan2-7b", "qwen-14b", "aquila2-7b")
ENGINES = ("cp-sat", "exhaustive", "paper")


def job(name: str) -> str:
    """Path of one of the paper's jobs."""
    return str(PAPER / f"{name}.yaml")


def run(*arguments: str) -> tuple[int, str, str]:
    """Exit status, stdout and stderr of one command."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        status = main(arguments)
    return status, out.getvalue(), err.getvalue()


@cache
def solved(name: str, engine: str) -> str:
    """What ``solve --json`` prints of a paper job; solved once per test run."""
    status, out, err = run("solve", job(name), "--json", "--engine", engine, "--top", "2")
    assert (status, err) == (0, ""), err
    return out


def facts(text: str) -> dict[str, Any]:
    """Read the JSON of an answer without the time it took."""
    data: dict[str, Any] = json.loads(text)
    data.pop("seconds")
    return data


def script(code: str) -> str:
    """Return code that imports the optplan under test, wherever it is run."""
    spec = find_spec("optplan")
    assert spec is not None
    assert spec.origin is not None
    home = str(Path(spec.origin).parents[1])
    return f"import sys\nif {home!r} not in sys.path: sys.path.insert(0, {home!r})\n{code}"
