"""Run one benchmark: ``python -m tests.bench exhaustive``, ``engines``, ``models`` or another."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

NAMES = sorted(
    path.stem for path in Path(__file__).parent.glob("*.py") if not path.stem.startswith("_")
)


def run(arguments: list[str]) -> int:
    """Run the named benchmarks, in the order given."""
    unknown = [name for name in arguments if name not in NAMES]
    if unknown or not arguments:
        problem = f"unknown: {', '.join(unknown)}" if unknown else "which benchmark?"
        print(f"{problem}; write python -m tests.bench {' | '.join(NAMES)}", file=sys.stderr)
        return 2
    for name in arguments:
        import_module(f"tests.bench.{name}").main()
    return 0


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
