"""
The paper's experiment on the machine at hand: profile, predict every layout, run every layout.

``python -m tests.experiment --out DIR`` profiles with two and with four processes, trains two small
networks under every feasible (d, t, p) with micro-batches of 1 to 8, draws the micro-batch curve of
two stages, and prints what came out as Markdown. It needs PyTorch. What lies in DIR already is not
done again. Nothing that is fitted has seen a step of training. ``--readme`` writes the summary into
the README.
"""

from __future__ import annotations

import argparse
import csv
import math
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

import optplan
from optplan.load import load_calibration, machine_in
from optplan.models.cost.calibration import Calibration
from optplan.models.cost.estimate import estimate
from optplan.models.spec.plan import Plan
from optplan.models.spec.problem import Problem
from optplan.runs.express import express
from optplan.runs.predict import Prediction, predict
from optplan.runs.score import errors, ranking
from optplan.runs.table import read_runs
from optplan.validate import Validation
from tests.readme import README, part

MODELS = {
    "narrow": "layers: 4, hidden: 256, heads: 4, ffn: 704, vocabulary: 4096",
    "wide": "layers: 4, hidden: 512, heads: 8, ffn: 1408, vocabulary: 2048",
}
"""Two networks: one of many small products, one whose weights are as dear as its arithmetic."""

LENGTHS = {"narrow": 128, "wide": 64}

SPEC = """\
workload:
  architecture: {{name: {name}, {shape}}}
  sequence_length: {length}
  precision: fp32
cluster: {{accelerator: machine-{processes}.yaml, nodes: 1}}
calibration: machine-{processes}.yaml
search:
  global_batch: {batch}
  micro_batch: {micro}
  schedule: 1f1b
  vpp: 1
  cp: 1
  recompute: none
  zero: 0
  sequence_parallel: false
  layers_per_stage: even
  idle_devices: false
{more}
"""

FLAT = {
    "tokens_half": 0.0,
    "shard_loss": 0.0,
    "attention_loss": 1.0,
    "pointwise": 0.0,
    "launch_seconds": 0.0,
    "launch_adds": False,
}
"""A calibration in which shapes and launching play no part."""


def spec_of(
    folder: Path, name: str, processes: int, batch: int, micro: str, more: str = ""
) -> Path:
    """Write a spec."""
    path = folder / f"{name}-{processes}{'-curve' if more else ''}.yaml"
    text = SPEC.format(
        name=name,
        shape=MODELS[name],
        length=LENGTHS[name],
        processes=processes,
        batch=batch,
        micro=micro,
        more=more,
    )
    path.write_text(text, encoding="utf-8")
    return path


def constant_rho(machine: Path) -> Calibration:
    """Return a profile's calibration with one utilization in place of shapes."""
    data = YAML(typ="safe", pure=True).load(machine.read_text(encoding="utf-8"))
    value = float(data["profile"]["constant_utilization"])
    changed: dict[str, Any] = {**FLAT, "utilization_peak": value}
    return load_calibration(machine).model_copy(update=changed)


def profiled(folder: Path, processes: int, budget: float) -> Path:
    """Profile, unless that was done."""
    machine = folder / f"machine-{processes}.yaml"
    if not machine.is_file():
        say(f"profiling {processes} processes, load {os.getloadavg()[0]:.1f}")
        optplan.profile(machine, processes=processes, budget=budget, progress=say)
    return machine


def say(line: str) -> None:
    """Show a line while it lasts."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{line[:110]}")


def table(spec: Path, runs: Path, machine: Path, steps: int) -> tuple[Problem, Validation]:
    """Measure every layout, and price them anew from the table."""
    optplan.measure(spec, runs, steps=steps, progress=say)
    return optplan.load(spec), optplan.validate([runs], calibration=machine)


def scored(rows: Sequence[Prediction]) -> str:
    """Say how rows do, in a line."""
    found, order = errors(row.error for row in rows), ranking(rows)
    return (
        f"mean error {found.mean_abs_pct:.1f} %, bias {found.bias:+.1f} %, Kendall tau "
        f"{order.kendall_tau:.2f}, top-1 regret {order.top1_regret_pct:.1f} %"
    )


def row_of(
    name: str, processes: int, rows: Sequence[Prediction], flat: Sequence[Prediction]
) -> str:
    """Sum up a comparison as a row of the README's table."""
    cells = [f"| {name}, {processes} processes | {sum(row.error is not None for row in rows)}"]
    for some in (rows, flat):
        found, order = errors(row.error for row in some), ranking(some)
        cells.append(
            f"{found.mean_abs_pct:.1f} % | {order.kendall_tau:.2f} | {order.top1_regret_pct:.1f} %"
        )
    return " | ".join(cells) + " |"


def lines_of(rows: Iterable[Prediction], flat: Iterable[Prediction]) -> Iterable[str]:
    """Write predictions beside measurements as a table, the fastest measured first."""
    yield "| layout | measured | predicted | error | constant rho |"
    yield "| --- | ---: | ---: | ---: | ---: |"
    pairs = sorted(
        zip(rows, flat, strict=True), key=lambda pair: pair[0].measured_step_seconds or math.inf
    )
    for row, other in pairs:
        layout = " ".join([*row.layout.split()[:3], row.layout.split()[6]])
        if row.measured_step_seconds is None or row.error is None or other.error is None:
            yield f"| {layout} | {row.measured_outcome} | {row.predicted_step_seconds:.3f} s | | |"
            continue
        yield (
            f"| {layout} | {row.measured_step_seconds:.3f} s | {row.predicted_step_seconds:.3f} s "
            f"| {row.error:+.1%} | {other.error:+.1%} |"
        )


def compared(folder: Path, name: str, processes: int, machine: Path, steps: int) -> str:
    """Measure one network on some processes, print the comparison, and sum it up."""
    batch = 16
    spec = spec_of(folder, name, processes, batch, "{max: 8}")
    runs = folder / f"{name}-{processes}.csv"
    _, found = table(spec, runs, machine, steps)
    rows = found.rows
    others = under_constant_rho(rows, runs, machine)
    oversubscribed = processes > (os.cpu_count() or 1)
    print(f"\n### {name}, {processes} processes{', oversubscribed' if oversubscribed else ''}\n")
    print(f"{MODELS[name]}, s {LENGTHS[name]}, G {batch}, fp32\n")
    print("\n".join(lines_of(rows, others)))
    print(f"\nThe model: {scored(rows)}. Constant rho: {scored(others)}.")
    spread = spreads(runs)
    print(f"Steps: {steps} a layout, spread (slowest less fastest over median) {spread}.")
    return row_of(name, processes, rows, others)


def under_constant_rho(rows: Sequence[Prediction], runs: Path, machine: Path) -> list[Prediction]:
    """Price the rows of a table anew."""
    calibration, device = constant_rho(machine), machine_in(machine)
    every = {run.place: run for run in read_runs([runs])}
    return [predict(express(every[row.place], calibration, device)) for row in rows]


def spreads(runs: Path) -> str:
    """Say how far steps of one layout lay apart."""
    rows = list(csv.DictReader(runs.read_text(encoding="utf-8").splitlines()))
    apart = sorted(
        (float(row["step_high_s"]) - float(row["step_low_s"])) / float(row["step_time_s"])
        for row in rows
        if row["step_time_s"]
    )
    losses = [float(row["loss_error"]) for row in rows if row["loss_error"]]
    if not apart:
        return "unknown"
    return (
        f"median {apart[len(apart) // 2]:.0%}, largest {apart[-1]:.0%}; losses differ from those "
        f"of one process by at most {max(losses):.0e} in {len(losses)} layouts"
    )


def best_micro_batch(problem: Problem, plan: Plan) -> float:
    """
    Place of the optimum by the lemma M3 of the paper's settlement, from the model's own numbers.

    With ``x(b) = alpha + beta b`` for a micro-batch on the slowest stage, hops included,
    ``T(b) = (G / (d b) + p - 1) x(b)`` is least at ``sqrt(G alpha / (d (p - 1) beta))``.
    """

    def slot(b: int) -> float:
        one = plan.model_copy(
            update={"micro_batch": b, "micro_batches": plan.global_batch // (b * plan.dp)}
        )
        price = estimate(problem, one)
        steady = price.terms["TCP"] / (one.micro_batches + plan.pp - 1)
        return max(use.micro_batch_seconds for use in price.memory.stages) + steady

    beta = (slot(4) - slot(1)) / 3.0
    alpha = slot(1) - beta
    return math.sqrt(plan.global_batch * alpha / (plan.dp * (plan.pp - 1) * beta))


def curve(folder: Path, name: str, machine: Path, steps: int) -> str:
    """Measure the micro-batch curve of two stages (Fig. 4 of the paper), print it, sum it up."""
    spec = spec_of(folder, name, 2, 32, "{max: 16}", "  pp: 2")
    runs = folder / f"{name}-curve.csv"
    problem, found = table(spec, runs, machine, steps)
    rows = sorted(found.rows, key=lambda row: int(row.layout.split()[6][1:]))
    print(f"\n### {name}, two stages, G 32: step time over the micro-batch\n")
    print("| b | measured | predicted |")
    print("| ---: | ---: | ---: |")
    for row in rows:
        b = row.layout.split()[6][1:]
        measured = row.measured_step_seconds
        shown = "" if measured is None else f"{measured:.3f} s"
        print(f"| {b} | {shown} | {row.predicted_step_seconds:.3f} s |")
    plan = Plan(
        tp=1,
        pp=2,
        dp=1,
        micro_batch=1,
        micro_batches=32,
        global_batch=32,
        layers_per_stage=(2, 2),
        recomputed_layers_per_stage=(0, 0),
    )
    known = [row for row in rows if row.measured_step_seconds is not None]
    if not known:
        return f"| {name} | | | | |"
    best = min(known, key=lambda row: row.measured_step_seconds or math.inf).layout.split()[6][1:]
    foretold = min(rows, key=lambda row: row.predicted_step_seconds).layout.split()[6][1:]
    lemma = best_micro_batch(problem, plan)
    print(
        f"\nFastest measured at b = {best}, in the model at b = {foretold}; the lemma puts it at "
        f"{lemma:.1f}."
    )
    times = ", ".join(
        f"{row.measured_step_seconds:.2f}" for row in known if row.measured_step_seconds
    )
    return f"| {name} | {times} | {best} | {foretold} | {lemma:.1f} |"


def written(rows: Sequence[str], curves: Sequence[str]) -> None:
    """Write the summary into the README."""
    head = "| | layouts | error | tau | regret | constant rho | tau | regret |"
    lines = [head, "| --- |" + " ---: |" * 7, *rows, ""]
    head = "| two stages, G 32 | seconds at b = 1, 2, 4, 8, 16 | fastest b | in the model | lemma |"
    lines += [head, "| --- | --- |" + " ---: |" * 3, *curves, ""]
    text = README.read_text(encoding="utf-8")
    old = part(text, "experiment")
    text = text.replace(f"<!-- experiment -->\n{old}", "<!-- experiment -->\n" + "\n".join(lines))
    README.write_text(text, encoding="utf-8")


def main() -> None:
    """Run all of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder for what is measured")
    parser.add_argument("--processes", default="2,4", help="numbers of processes")
    parser.add_argument("--budget", type=float, default=180.0, help="seconds of each profile")
    parser.add_argument("--steps", type=int, default=7, help="steps of each layout")
    parser.add_argument("--readme", action="store_true", help="write the summary into the README")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    print(f"load before {os.getloadavg()[0]:.1f}, {os.cpu_count()} processors")
    rows, curves = [], []
    for processes in map(int, given.processes.split(",")):
        machine = profiled(given.out, processes, given.budget)
        for name in MODELS:
            rows.append(compared(given.out, name, processes, machine, given.steps))
        if processes == 2:
            curves += [curve(given.out, name, machine, given.steps) for name in MODELS]
    if given.readme:
        written(rows, curves)
    print(f"\nload after {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
