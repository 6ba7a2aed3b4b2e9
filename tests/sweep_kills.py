"""
A sweep killed at random moments and begun again, against one that nobody disturbed.

``python -m tests.sweep_kills --count 2000`` kills it ten times with SIGKILL, and compares the
tables row for row. No row may be lost, done twice, or come out otherwise.
"""

from __future__ import annotations

import argparse
import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import optplan
from optplan.models.errors import InputError
from optplan.sweeps.axes import grid_of
from optplan.sweeps.points import UNLIKE
from optplan.tables import Cell, Table
from tests.optplan.command import script

SPEC = """\
workload: {architecture: llama-2-7b, sequence_length: 2048, precision: bf16}
cluster: {accelerator: h100-sxm-80gb, nodes: 1, devices_per_node: 8, network: 400 Gb/s}
search:
  {global_batch: 64, micro_batch: 1, recompute: none, zero: 1, schedule: 1f1b, idle_devices: false}
"""
"""Solved in some tens of milliseconds."""

MAIN = "from optplan.cli import main\nsys.exit(main(sys.argv[1:]))"

PATIENCE = 3600.0
"""Seconds after which a run that does not end has failed."""


def axes(count: int) -> list[str]:
    """
    Return axes of at least so many problems, some of each kind.

    Some have no plan (tp 3), some are wrong input (no bf16 on a V100), and some are the same
    problem in other words (50 GB/s is 400 Gb/s).
    """
    devices = "h100-sxm-80gb, v100-sxm-32gb" + (", a100-sxm-80gb, h200-sxm-141gb" * (count > 60))
    each = 30 * len(devices.split(","))
    batches = max(1, -(-count // each))
    return [
        f"global_batch=64..{64 * batches}+64",
        f"accelerator=[{devices}]",
        "network=[400 Gb/s, 50 GB/s, 100 Gb/s, 25 GB/s, 10 GB/s]",
        "nodes=1, 2",
        "tp=1..3",
    ]


def command(spec: Path, table: Path, count: int, *more: str) -> list[str]:
    """Return the command line of a sweep."""
    over = [f"--over={axis}" for axis in axes(count)]
    return [sys.executable, "-c", script(MAIN), "sweep", str(spec), *over, "-o", str(table), *more]


def rows_in(table: Path) -> int:
    """Count the rows that a table has by now."""
    try:
        return len(optplan.read_sweep(table).rows)
    except InputError:
        return 0  # not there yet


def alike(table: Table) -> list[tuple[Cell, ...]]:
    """Return what two runs must share: every column but the time spent."""
    kept = [at for at, name in enumerate(table.columns) if name not in UNLIKE]
    return [tuple(row[at] for at in kept) for row in table.rows]


def differences(one: Table, other: Table) -> list[str]:
    """Name every row in which two tables differ."""
    left, right = alike(one), alike(other)
    pairs = enumerate(zip(left, right, strict=False))
    found = [f"row {at} differs: {a} {b}" for at, (a, b) in pairs if a != b]
    if len(left) != len(right) or one.columns != other.columns:
        found.append(f"{len(left)} rows against {len(right)}")
    return found


@dataclass(frozen=True)
class Found:
    """
    What came of a comparison.

    Parameters
    ----------
    problems, kills
        Rows of the table, and times that the run was killed.
    faults
        Everything that is not as it should be.
    counts
        Rows by status.
    """

    problems: int
    kills: int
    faults: list[str]
    counts: dict[str, int]


def undisturbed(folder: Path, count: int, workers: int = 3) -> Table:
    """Run a sweep that nobody disturbs."""
    spec, table = folder / "spec.yaml", folder / "whole.sqlite"
    spec.write_text(SPEC, encoding="utf-8")
    done = subprocess.run(
        command(spec, table, count, "--workers", str(workers)),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return optplan.read_sweep(table).table()


def killed(folder: Path, count: int, kills: int, seed: int) -> tuple[Table, list[str]]:
    """Run a sweep that is killed at random moments; its table, and what went wrong meanwhile."""
    rng = random.Random(seed)
    spec, table = folder / "spec.yaml", folder / "killed.sqlite"
    spec.write_text(SPEC, encoding="utf-8")
    call = command(spec, table, count, "--workers", "2")
    total = len(grid_of(axes(count), ()))
    faults: list[str] = []
    seen: dict[int, tuple[Cell, ...]] = {}
    moments = sorted(rng.random() for _ in range(kills))
    for moment in moments:
        process = subprocess.Popen(call, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        goal, start = int(moment * total), time.monotonic()
        while process.poll() is None and rows_in(table) < goal:
            assert time.monotonic() - start < PATIENCE
            time.sleep(0.02)
        time.sleep(rng.random() * 0.5)
        process.send_signal(signal.SIGKILL)
        process.wait()
        faults += _kept(table, seen)
    done = subprocess.run(call, capture_output=True, text=True, timeout=PATIENCE, check=False)
    if done.returncode != 0:
        faults.append(f"the last run ends with {done.returncode}: {done.stderr}")
    faults += _kept(table, seen)
    left = [path.name for path in folder.iterdir() if path.name.startswith((".", "killed.sqlite."))]
    if left:
        faults.append(f"left over: {left}")
    return optplan.read_sweep(table).table(), faults


def _kept(table: Path, seen: dict[int, tuple[Cell, ...]]) -> list[str]:
    """Check that every row seen before is still there, to the time it took, and note new ones."""
    if not table.exists():
        return []
    rows = {int(str(row[0])): row for row in optplan.read_sweep(table).rows}
    faults = [f"row {n} was lost or done twice" for n in seen if rows.get(n) != seen[n]]
    seen.update(rows)
    return faults


def compare(folder: Path, count: int, kills: int, seed: int, whole: Table | None = None) -> Found:
    """Run both, and compare; the undisturbed run may be known."""
    whole = whole or undisturbed(folder, count)
    broken, faults = killed(folder, count, kills, seed)
    faults += differences(whole, broken)
    sweep = optplan.read_sweep(folder / "killed.sqlite")
    return Found(len(broken), kills, faults, sweep.counts())


def main(arguments: list[str] | None = None) -> int:
    """Print what came of it; 1 where a row differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=2000, help="problems, at least")
    parser.add_argument("--kills", type=int, default=10, help="times to kill the run")
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    asked = parser.parse_args(arguments)
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        found = compare(Path(folder), asked.count, asked.kills, asked.seed)
    told = ", ".join(f"{n:,} {status}" for status, n in found.counts.items())
    print(f"{found.problems:,} problems ({told}), killed {found.kills} times, seed {asked.seed}")
    for fault in found.faults[:20]:
        print(f"  {fault}")
    print(f"{len(found.faults)} differences, {time.monotonic() - start:.0f} s")
    return 1 if found.faults else 0


if __name__ == "__main__":
    sys.exit(main())
