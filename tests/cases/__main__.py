"""The table of every question: ``python -m tests.cases`` computes our answers anew."""

from __future__ import annotations

import argparse
import time

from tests.cases.table import TABLE, cases, row, written


def main() -> None:
    """Print every row, or the rows named, and write the table where all are asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="rows such as D1 M9; none: all")
    asked = parser.parse_args().names
    rows = []
    for one in cases():
        if asked and one.name not in asked:
            continue
        start = time.monotonic()
        rows.append((one, one.answer()))
        print(row(*rows[-1]), f"{time.monotonic() - start:.1f} s", flush=True)
    if not asked:
        TABLE.write_text(written(rows), encoding="utf-8")


if __name__ == "__main__":
    main()
