"""A search that is stopped, by a person or by the clock: what it found is printed, with its gap."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import optplan
from tests.optplan.command import ENGINES, facts, job, run, script

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="SIGINT as on POSIX")

PATIENCE = 240
"""Seconds after which a process that does not stop is killed and the test fails."""

WIDE = """
workload: {{architecture: {architecture}, sequence_length: 2048, precision: bf16}}
cluster: {{accelerator: ascend-910b, nodes: {nodes}, devices_per_node: 8, network: 200 Gb/s}}
search:
  global_batch: {{min: {least}, max: {most}}}
prices: {prices}
"""

SPACES = {
    "cp-sat": (64, 1, 256, "llama-2-7b", "canonical"),
    "milp": (64, 1, 256, "llama-2-7b", "canonical"),
    "exhaustive": (64, 1, 16, "llama-2-7b", "canonical"),
    "paper": (512, 1, 2048, "llama-2-7b", "paper"),
}
"""Devices, global batches, architecture and prices that keep an engine busy for a few seconds."""

HOOKED = script(
    """
from optplan import planner
from optplan.report import progress

def say(word):
    print(word, file=sys.stderr, flush=True)

formulate = planner.formulate
def told(*given, **named):
    say("FORMULATES")
    form = formulate(*given, **named)
    say("SEARCHES")
    return form
planner.formulate = told

def tell(self, news):
    if news.incumbent is not None:
        say("HOLDS")
progress.Watch.tell = tell

from optplan.cli import main
status = main(sys.argv[1:])
import signal
signal.signal(signal.SIGINT, signal.SIG_IGN)
sys.exit(status)
"""
)
"""The command line, telling on stderr how far it is, so that a signal comes at a known moment."""


def wide(
    folder: Path,
    devices: int,
    least: int,
    most: int,
    architecture: str,
    prices: str = "canonical",
) -> str:
    """Write a spec whose space takes seconds to search."""
    path = folder / "wide.yaml"
    text = WIDE.format(
        architecture=architecture, nodes=devices // 8, least=least, most=most, prices=prices
    )
    path.write_text(text, encoding="utf-8")
    return str(path)


@pytest.fixture(scope="module")
def best_goals(tmp_path_factory: pytest.TempPathFactory) -> dict[str, float]:
    """Goal of the optimum of each problem that the clock stops."""
    goals = {}
    for engine, space in SPACES.items():
        spec = wide(tmp_path_factory.mktemp("whole"), *space)
        goal = optplan.solve(spec, top=0).certificate.goal
        assert goal is not None
        goals[engine] = goal
    return goals


def interrupted(word: str, delay: float, *arguments: str) -> tuple[int, str, str]:
    """Run the command line, send SIGINT some time after it said a word; status, stdout, stderr."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOOKED, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    said: list[str] = []
    try:
        while word not in said:
            line = process.stderr.readline()
            if not line:
                break
            said.append(line.strip())
        time.sleep(delay)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
        process.wait()
    rest = [line for line in (*said, *err.splitlines()) if line.strip()]
    words = {"FORMULATES", "SEARCHES", "HOLDS"}
    return process.returncode, out, "\n".join(line for line in rest if line not in words)


def assert_honest(answer: dict[str, Any]) -> None:
    """A plan that was stopped short obeys every rule, and its bound and gap are consistent."""
    certificate = answer["certificate"]
    assert answer["status"]["holding"] == "feasible"
    assert answer["verdict"]["holds"] is True
    assert 0 < certificate["gap"] <= 1
    if certificate["bound"] is None:
        assert certificate["gap"] == 1
        return
    assert 0 <= certificate["bound"] < certificate["goal"]
    gap = 1 - certificate["bound"] / certificate["goal"]
    assert certificate["gap"] == pytest.approx(gap, rel=1e-9)


@pytest.mark.parametrize("engine", ENGINES)
def test_ctrl_c_prints_the_incumbent_and_its_gap(engine: str, tmp_path: Path) -> None:
    """Exit 3 with the best plan so far; or 0 where the machine was faster than the signal."""
    spec = wide(tmp_path, *SPACES[engine])
    status, out, err = interrupted("HOLDS", 0.1, "solve", spec, "--engine", engine)
    assert err == ""
    assert status in (0, 3)
    assert "gap " in out
    assert "global batch" in out
    assert "\x1b" not in out
    assert ("best so far (interrupted)" if status == 3 else "proven optimal") in out


def test_ctrl_c_prints_json_that_verify_accepts(tmp_path: Path) -> None:
    """The same facts for programs: interrupted, feasible, an honest bound, and re-checkable."""
    spec = wide(tmp_path, *SPACES["paper"])
    status, out, err = interrupted("SEARCHES", 0.4, "solve", spec, "--json", "--engine", "paper")
    assert err == ""
    assert status in (0, 3)
    answer = json.loads(out)
    if status == 3 and answer["plan"] is not None:
        assert answer["status"]["termination"] == "interrupted"
        assert_honest(answer)
    written = tmp_path / "plan.json"
    written.write_text(out, encoding="utf-8")
    assert optplan.verify(written).verdict == "verified"


@pytest.mark.parametrize("delay", [0.0, 0.5, 2.0])
def test_ctrl_c_stops_at_any_moment_of_a_proof(delay: float, tmp_path: Path) -> None:
    """In the census, in the engine, between its calls: always one answer and never a traceback."""
    spec = wide(tmp_path, 128, 512, 2048, "gpt3-175b")
    status, out, err = interrupted("SEARCHES", delay, "solve", spec)
    assert "Traceback" not in err
    assert status in (0, 3), f"status {status}: {err}"
    if status == 3 and not out:
        assert err == "interrupted before anything was found"
    else:
        assert "gap " in out or "nothing found yet (interrupted)" in out


def test_ctrl_c_before_the_search_says_so_on_one_line(tmp_path: Path) -> None:
    """While the program is still being written there is nothing to print; still exit 3."""
    spec = wide(tmp_path, 512, 1, 8192, "llama-2-7b")
    status, out, err = interrupted("FORMULATES", 0.2, "solve", spec)
    assert (status, out, err) == (3, "", "interrupted before anything was found")


def test_a_solve_leaves_ctrl_c_as_it_found_it() -> None:
    """An engine that handles SIGINT itself must hand it back: Python raises KeyboardInterrupt."""
    code = script(
        "import os, signal, time, optplan\n"
        "optplan.solve(sys.argv[1], top=0)\n"
        "try:\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    time.sleep(1)\n"
        "except KeyboardInterrupt:\n"
        "    print('still ours')\n"
    )
    command = [sys.executable, "-c", code, job("qwen-14b")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert (done.returncode, done.stdout.strip()) == (0, "still ours")


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("limit", ["1 us", "0.1s", "0.5s"])
def test_the_clock_stops_a_search_with_an_honest_gap(
    engine: str, limit: str, tmp_path: Path, best_goals: dict[str, float]
) -> None:
    """Exit 3 with a verified incumbent, if any, and a bound below it; 0 if it was done in time."""
    spec = wide(tmp_path, *SPACES[engine])
    options = ("--json", "--top", "1", "--engine", engine, "--time-limit", limit)
    status, out, err = run("solve", spec, *options)
    assert err == ""
    answer = facts(out)
    if status == 0:
        assert answer["status"]["holding"] == "optimal"
        return
    assert status == 3
    assert answer["status"]["termination"] == "time-limit"
    if answer["plan"] is None:
        assert answer["status"]["holding"] == "nothing"
        assert answer["certificate"]["gap"] is None
    else:
        assert_honest(answer)
    bound = answer["certificate"]["bound"]
    assert bound is None or bound <= best_goals[engine]


def test_a_clock_that_stops_everything_at_once_still_prints_for_people(tmp_path: Path) -> None:
    spec = wide(tmp_path, *SPACES["paper"])
    status, out, err = run("solve", spec, "--engine", "paper", "--time-limit", "1 us")
    assert (status, err) == (3, "")
    assert "(time-limit)" in out


def test_a_time_limit_inside_the_proof_keeps_the_incumbent_of_the_census() -> None:
    """The search found the optimum; a prover without time may not lose it."""
    from optplan.models.formulate import formulate
    from optplan.solvers.base import SolverConfig
    from optplan.solvers.cpsat_pipeline import prove_left
    from optplan.solvers.search import Search

    for name in ("baichuan2-7b", "experts"):
        program = formulate(optplan.load(job(name))).program
        found = Search(program, SolverConfig()).run()
        known = found.outcome
        best = program.evaluate(known.best[0])
        proof = prove_left(program, found.left, best, SolverConfig(seconds=1e-6))
        assert known.goal is not None
        assert proof.goal == known.goal
        assert proof.best[0].items() >= known.best[0].items()
        assert proof.bound is None or 0 <= proof.bound <= known.goal


@pytest.mark.skipif(sys.platform == "win32", reason="SIGINT as on POSIX")
def test_an_interrupt_while_commands_are_imported_is_one_line() -> None:
    """Ctrl-C right after the start, before a command could be ready for it."""
    code = """
import sys

class Interrupts:
    def find_spec(self, name, *more):
        if name == "optplan.cli":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupts())
from optplan.entry import main
sys.exit(main())
"""
    done = subprocess.run(
        [sys.executable, "-c", script(code)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == "interrupted before anything was found\n"


def test_an_interrupted_second_opinion_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search that was stopped has counted nothing that a file could be compared with."""
    from optplan.solvers.base import Holding, Outcome, Termination

    told = optplan.solve(job("baichuan2-7b"), top=0)
    module = import_module("optplan.verify")
    true = module.run

    def stopped(*given: Any) -> Any:
        return true(*given)[0], Outcome(Termination.INTERRUPTED, Holding.NOTHING)

    monkeypatch.setattr(module, "run", stopped)
    with pytest.raises(KeyboardInterrupt):
        optplan.verify(told.to_json())
