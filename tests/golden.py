"""Compare a text with the one under ``tests/golden``; ``--update-golden`` writes it anew."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).with_suffix("")


@dataclass(frozen=True)
class Golden:
    """Call it with a name and a text; it fails with pytest's own difference of the two."""

    update: bool

    def __call__(self, name: str, text: str) -> None:
        path = FOLDER / f"{name}.txt"
        if self.update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8", newline="\n")
        assert path.is_file(), f"{path} is missing; write it with pytest --update-golden"
        assert text == path.read_text(encoding="utf-8")
