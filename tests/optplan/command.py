"""The command line run inside the test, and in a process of its own."""

from __future__ import annotations

import atexit
import io
import json
import shutil
import tempfile
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from optplan.cli import main

ROOT = Path(__file__).resolve().parents[2]
PAPER = ROOT / "examples" / "paper"
JOBS = ("baichuan2-7b", "qwen-14b", "aquila2-7b")
ENGINES = ("cp-sat", "milp", "exhaustive", "paper")

WHOLE = "global_batch: {max: 512}"
FEW = "global_batch: {min: 384, max: 512, multiple_of: 64}"

DENSE = """\
workload: {architecture: llama-3-8b, sequence_length: 4096, precision: bf16}
cluster: {accelerator: h100-sxm-80gb, nodes: 1, devices_per_node: 8, network: 400 Gb/s}
search: {global_batch: 16}
"""
"""Every choice left open: schedules, stages of any length, ZeRO 0 to 3, idle devices."""

EXPERTS = """\
workload: {architecture: mixtral-8x7b, sequence_length: 4096, precision: bf16}
cluster: {accelerator: h100-sxm-80gb, nodes: 4, devices_per_node: 8, network: 400 Gb/s}
search: {global_batch: 32, micro_batch: 1}
framework: megatron-core@0.15
"""
"""A mixture of experts, as one framework launches it."""

OPEN = {"dense": DENSE, "experts": EXPERTS}
"""Specs of the whole space by name."""


@cache
def _folder() -> Path:
    """Folder for specs written by the tests, gone with the process."""
    folder = Path(tempfile.mkdtemp(prefix="optplan-tests-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@cache
def job(name: str) -> str:
    """Path of a paper job with few of its global batches, or of a spec of the whole space."""
    if name in OPEN:
        text = OPEN[name]
    else:
        text = (PAPER / f"{name}.yaml").read_text(encoding="utf-8")
        assert text.count(WHOLE) == 1
        text = text.replace(WHOLE, FEW)
    path = _folder() / f"{name}.yaml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def run(*arguments: str) -> tuple[int, str, str]:
    """Exit status, stdout and stderr of one command."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        status = main(arguments)
    return status, out.getvalue(), err.getvalue()


@cache
def solved(name: str, engine: str) -> str:
    """What ``solve --json`` prints of a job; solved once per test run."""
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
