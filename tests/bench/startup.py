"""Where the time of one small command goes, from the bare interpreter to the printed report."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

from tests.optplan.command import PAPER, script

RUNS = 5
"""Odd, so that the median is a run."""

STEPS = """
import json, time
last = time.perf_counter()
spent = {}
def lap(name):
    global last
    now = time.perf_counter()
    spent[name] = now - last
    last = time.perf_counter()

import optplan.cli
lap("import optplan.cli")
import optplan.planner
lap("import planner, records, numpy")
problem = optplan.load(sys.argv[1])
lap("load (first use reads YAML)")
from optplan.models.formulate import formulate
form = formulate(problem)
lap("formulate")
from optplan.solvers.base import SolverConfig
from optplan.solvers.search import Search
found = Search(form.program, SolverConfig()).run()
lap("search: bound and settle")
from optplan.solvers.cpsat_pipeline import prove_left
lap("import ortools cp_model")
best = form.program.evaluate(found.outcome.best[0])
proof = prove_left(form.program, found.left, best, SolverConfig())
lap("cp-sat")
from optplan.planner import checked
plan, price, verdict = checked(form, proof.best[0])
lap("decode, estimate, verify")
same = form.program.fixed({"global_batch": (plan.global_batch,)})
Search(same, SolverConfig(top=6)).run()
lap("alternatives")
result = optplan.planner.solve(problem, engine="exhaustive")
last = time.perf_counter()
import io
from rich.console import Console
from optplan.report.terminal import show_result
lap("import rich and the report")
show_result(Console(file=io.StringIO(), width=160), result, 5, False)
lap("report for people")
result.to_json()
lap("report as JSON")
print(json.dumps(spent))
"""

WHOLE = "from optplan.cli import main\nsys.exit(main(sys.argv[1:]))"


def process_seconds(code: str, *arguments: str) -> float:
    """Wall seconds of a fresh interpreter."""
    start = time.perf_counter()
    command = [sys.executable, "-c", code, *arguments]
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - start


def main() -> None:
    """Print medians of whole processes, then of the steps inside one."""
    spec = str(PAPER / "qwen-14b.yaml")
    whole = {
        "bare interpreter": ("pass",),
        "import optplan": (script("import optplan"),),
        "optplan --help": (script(WHOLE), "--help"),
        "optplan catalogue": (script(WHOLE), "catalogue"),
        "import ortools cp_model": ("from ortools.sat.python import cp_model",),
        "optplan solve, exhaustive": (script(WHOLE), "solve", spec, "--engine", "exhaustive"),
        "optplan solve, cp-sat": (script(WHOLE), "solve", spec),
        "optplan solve --json": (script(WHOLE), "solve", spec, "--json"),
    }
    for code, *arguments in whole.values():
        process_seconds(code, *arguments)  # compiled files and disk caches are warm from here on
    bare = 0.0
    print(f"whole processes, wall seconds, median of {RUNS}; {Path(spec).name}, 16 devices")
    for name, (code, *arguments) in whole.items():
        seconds = statistics.median(process_seconds(code, *arguments) for _ in range(RUNS))
        bare = bare or seconds
        print(f"  {name:34} {seconds:7.3f}   {seconds / bare:5.1f} x bare interpreter")
    steps: dict[str, list[float]] = defaultdict(list)
    parts: dict[str, list[float]] = defaultdict(list)
    for _ in range(RUNS):
        command = [sys.executable, "-c", script(STEPS), spec]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        for name, seconds in json.loads(done.stdout).items():
            steps[name].append(seconds)
        command = [sys.executable, "-c", script(WHOLE), "solve", spec, "--json"]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        for name, seconds in json.loads(done.stdout)["seconds"].items():
            parts[name].append(seconds)
    print("\nsteps inside one process, wall seconds, in order")
    for title, table in (
        ("", steps),
        ("`seconds` of the result (first solve of a process)", parts),
    ):
        if title:
            print(f"\n{title}")
        medians = {name: statistics.median(values) for name, values in table.items()}
        total = sum(medians.values())
        for name, seconds in medians.items():
            print(f"  {name:34} {seconds:7.3f}   {seconds / total:6.1%}")
        print(f"  {'together':34} {total:7.3f}")
