"""Every example runs: specs are solved and verified, scripts are executed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import optplan
from optplan.solvers.catalogue import ENGINES
from tests.optplan.command import ROOT, run

EXAMPLES = ROOT / "examples"
SPECS = sorted(EXAMPLES.rglob("*.yaml"))
SCRIPTS = sorted(path for path in EXAMPLES.rglob("*.py") if path.name != "__init__.py")

pytestmark = pytest.mark.skipif(not EXAMPLES.is_dir(), reason="the examples are not here")


def name(path: Path) -> str:
    """Path of an example below the folder."""
    return path.relative_to(EXAMPLES).as_posix()


def test_the_papers_jobs_are_among_the_examples() -> None:
    jobs = {f"paper/{job}.yaml" for job in ("baichuan2-7b", "qwen-14b", "aquila2-7b")}
    assert jobs <= {name(path) for path in SPECS}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("spec", SPECS, ids=name)
def test_every_spec_is_solved_and_verified(spec: Path, engine: str, tmp_path: Path) -> None:
    """Exit 0 from solve by each engine, and from verify of what it wrote."""
    status, out, err = run("solve", str(spec), "--json", "--engine", engine, "--top", "1")
    assert (status, err) == (0, "")
    assert json.loads(out)["status"]["holding"] == "optimal"
    written = tmp_path / "plan.json"
    written.write_text(out, encoding="utf-8")
    status, out, err = run("verify", str(written))
    assert (status, err) == (0, ""), out


@pytest.mark.parametrize("spec", SPECS, ids=name)
def test_every_spec_gets_the_same_goal_from_every_engine(spec: Path) -> None:
    goals = [optplan.solve(spec, engine=engine, top=0).certificate.goal for engine in ENGINES]
    assert None not in goals
    assert goals == pytest.approx([goals[0]] * len(goals), rel=1e-9)


@pytest.mark.parametrize("spec", SPECS, ids=name)
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
        f"runpy.run_path({str(script)!r}, run_name='__main__')"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
