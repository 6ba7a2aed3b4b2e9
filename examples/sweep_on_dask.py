"""A sweep: how many nodes, which network? Here on all cores, with an address on a Dask cluster.

    dask scheduler                              # prints its address
    dask worker tcp://HOST:8786                 # on every machine, with optplan installed
    python examples/sweep_on_dask.py tcp://HOST:8786

Stop it at any moment and start it again: what is in the table is not solved twice.
"""

from __future__ import annotations

import sys
from pathlib import Path

import optplan

SPEC = {
    "workload": {"architecture": "llama-2-7b", "sequence_length": 4096},
    "cluster": {"accelerator": "h100-sxm-80gb", "nodes": 1, "network": "400 Gb/s"},
    "search": {"global_batch": 256, "micro_batch": 1, "recompute": "none", "zero": [0, 1]},
}


def main() -> None:
    """Sweep, and print where the layout changes."""
    dask = sys.argv[1] if len(sys.argv) > 1 else None
    sweep = optplan.sweep(
        SPEC,
        over={"nodes": [1, 2, 4], "network": ["100 Gb/s", "400 Gb/s"]},
        path=Path("what-if.sqlite"),
        dask=dask,
    )
    print(sweep.counts())
    for series in sweep.series():
        for point in series.points:
            mark = "  <- another layout" if point.changed else ""
            rate = point.tokens_per_second or 0.0
            print(f"{series.label}, {point.devices} devices: {rate:,.0f} tokens/s{mark}")


if __name__ == "__main__":
    main()
