"""Every example runs: specs are solved and verified, scripts are executed."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import optplan
from tests.optplan.command import ROOT, run

EXAMPLES = ROOT / "examples"
SPECS = sorted(EXAMPLES.rglob("*.yaml"))
SCRIPTS = sorted(path for path in EXAMPLES.rglob("*.py") if path.name != "__init__.py")

LONG = {
    "deepseek-v3-2048-h100.yaml": ("pp=16", "cp=[1, 2]", "zero=1", "recompute=none", "hsdp=false")
}
"""Examples whose proof takes minutes, and what narrows them to a part that takes seconds."""

LARGE = {"llama-3.1-405b-16384-h100.yaml", "qwen3-30b-a3b-16-h100.yaml"}
"""Examples with more than ten million points, which no test prices one by one."""

SHORT = {"own_machine.py": ["--brief"]}
"""Arguments with which an example that takes minutes takes fewer; without PyTorch it says so."""

SOON = [path for path in SPECS if path.name not in LONG]

pytestmark = pytest.mark.skipif(not EXAMPLES.is_dir(), reason="the examples are not here")


def name(path: Path) -> str:
    """Path of an example below the folder."""
    return path.relative_to(EXAMPLES).as_posix()


def engines(spec: Path) -> tuple[str, ...]:
    """Engines that answer an example in seconds; the paper's knows the paper's world only."""
    small = () if spec.name in LARGE else ("exhaustive",)
    return ("cp-sat", *small, *(("paper",) if spec.parent.name == "paper" else ()))


@cache
def solved(spec: Path, engine: str) -> str:
    """JSON of an example, solved once by each engine."""
    status, out, err = run("solve", str(spec), "--json", "--engine", engine, "--top", "1")
    assert (status, err) == (0, "")
    return out


def test_the_papers_jobs_are_among_the_examples() -> None:
    jobs = {f"paper/{job}.yaml" for job in ("baichuan2-7b", "qwen-14b", "aquila2-7b")}
    assert jobs <= {name(path) for path in SPECS}


@pytest.mark.parametrize(
    ("spec", "engine"),
    [(spec, engine) for spec in SOON for engine in engines(spec)],
    ids=lambda value: name(value) if isinstance(value, Path) else value,
)
def test_every_spec_is_solved_and_verified(spec: Path, engine: str, tmp_path: Path) -> None:
    """Exit 0 from solve by each engine, and from verify of what it wrote."""
    out = solved(spec, engine)
    assert json.loads(out)["status"]["holding"] == "optimal"
    written = tmp_path / "plan.json"
    written.write_text(out, encoding="utf-8")
    status, out, err = run("verify", str(written))
    assert (status, err) == (0, ""), out


@pytest.mark.parametrize("spec", SOON, ids=name)
def test_every_spec_gets_the_same_answer_from_every_engine(spec: Path) -> None:
    answers = [json.loads(solved(spec, engine)) for engine in engines(spec)]
    goals = [answer["certificate"]["goal"] for answer in answers]
    assert goals == pytest.approx([goals[0]] * len(goals), rel=1e-9)
    assert all(answer["plan"] == answers[0]["plan"] for answer in answers)


@pytest.mark.parametrize("spec", sorted(set(SPECS) - set(SOON)), ids=name)
def test_a_part_of_a_long_spec_is_solved(spec: Path) -> None:
    """And its own dump is the same problem."""
    problem = optplan.load(spec)
    assert optplan.load(problem.model_dump(mode="json")) == problem
    sets = [word for one in LONG[spec.name] for word in ("--set", one)]
    status, out, err = run("solve", str(spec), "--json", "--top", "0", *sets)
    assert (status, err) == (0, "")
    assert json.loads(out)["status"]["holding"] == "optimal"


@pytest.mark.parametrize("spec", [path for path in SOON if path.name not in LARGE], ids=name)
def test_every_spec_is_shown_to_people(spec: Path) -> None:
    """The terminal's answer ends well, and says how sure the calibration is."""
    status, out, err = run("solve", str(spec))
    assert (status, err) == (0, "")
    assert "proven optimal" in out
    assert "on hardware:" in out


@pytest.mark.parametrize("spec", SPECS, ids=name)
def test_every_spec_begins_with_a_sentence(spec: Path) -> None:
    """Whoever opens an example reads first what it shows."""
    assert spec.read_text(encoding="utf-8").startswith("# ")


@pytest.mark.parametrize("script", SCRIPTS, ids=name)
def test_every_script_runs(script: Path, tmp_path: Path) -> None:
    """In a process and folder of its own, without a word on stderr."""
    home = str(Path(optplan.__file__).resolve().parents[1])
    code = (
        f"import sys, runpy\nif {home!r} not in sys.path: sys.path.insert(0, {home!r})\n"
        f"sys.argv[1:] = {SHORT.get(script.name, [])!r}\n"
        f"runpy.run_path({str(script)!r}, run_name='__main__')"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
