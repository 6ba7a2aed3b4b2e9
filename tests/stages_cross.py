"""
Share out random pipelines by two routes that have nothing in common, and compare the steps.

Run ``python -m tests.stages_cross --count 1000 --seed 0``; it exits with 1 if any two differ.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from optplan.solvers.cpsat_stages import prove
from optplan.solvers.stages import share_out
from tests.solvers.shares import large


@dataclass
class Compared:
    """What a comparison saw: how many fit, how many memory slowed down, what differed."""

    count: int = 0
    fitting: int = 0
    bound_by_memory: int = 0
    mismatches: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=lambda: {"tables": 0.0, "cp-sat": 0.0})


def compared(seeds: Iterable[int]) -> Compared:
    """Share out the pipelines of some seeds by tables and by CP-SAT."""
    told = Compared()
    for seed in seeds:
        share = large(seed)
        told.count += 1
        start = time.process_time()
        best = share_out(share)
        between = time.process_time()
        proof = prove([share])
        told.seconds["tables"] += between - start
        told.seconds["cp-sat"] += time.process_time() - between
        if best is not None:
            told.fitting += 1
            free = share_out(replace(share, room=2**60))
            told.bound_by_memory += free is not None and free.step < best.step
        ours = best.step if best is not None else None
        theirs = proof.best[1].step if proof.best is not None else None
        if not proof.done or ours != theirs:
            told.mismatches.append(f"seed {seed}: tables {ours}, cp-sat {theirs}: {share}")
    return told


def main() -> int:
    """Compare as asked on the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.stages_cross")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    told = compared(range(asked.seed, asked.seed + asked.count))
    print("\n".join(told.mismatches), end="\n" if told.mismatches else "")
    print(f"{told.count} pipelines, {len(told.mismatches)} mismatches")
    print(f"{told.fitting} can be shared out, memory slows {told.bound_by_memory} of them down")
    print(", ".join(f"{name} {seconds:.1f} CPU s" for name, seconds in told.seconds.items()))
    return 1 if told.mismatches else 0


if __name__ == "__main__":
    sys.exit(main())
