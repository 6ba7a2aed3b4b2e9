"""The way in from the shell: also while commands are still imported, an interrupt is one line."""

from __future__ import annotations

import sys


def main() -> int:
    """Run the command line and return its exit status, as ``optplan.cli.main`` does."""
    try:
        from optplan.cli import main as run

        return run()
    except KeyboardInterrupt:
        sys.stderr.write("interrupted before anything was found\n")
        return 3
