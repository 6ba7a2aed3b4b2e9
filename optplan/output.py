"""Where answers go: a terminal for people, plain text for programs."""

from __future__ import annotations

import json
import sys
from typing import Any


def console() -> Any:
    """Terminal for people: colours only there, wide enough for tables when piped."""
    from optplan.report.terminal import Screen

    return Screen(width=None if sys.stdout.isatty() else 160, highlight=False, soft_wrap=False)


def write(text: str) -> None:
    """Print for programs."""
    sys.stdout.write(text + "\n")


def dump(data: object) -> str:
    """Render plain data as JSON."""
    return json.dumps(data, indent=1)
