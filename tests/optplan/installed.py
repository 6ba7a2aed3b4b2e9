"""Packages with entry points, as an installer would leave them."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import pytest


def installed(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    version: str,
    points: tuple[str, Mapping[str, str]],
    text: str,
) -> Path:
    """
    Install a package of one module, for as long as a test runs.

    ``points`` are a group of entry points, and what each of them names.
    """
    module, (group, named) = name.replace("-", "_"), points
    site = folder / "site"
    told = site / f"{module}-{version}.dist-info"
    told.mkdir(parents=True)
    (told / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    lines = "".join(f"{key} = {value}\n" for key, value in named.items())
    (told / "entry_points.txt").write_text(f"[{group}]\n{lines}")
    (site / f"{module}.py").write_text(text)
    monkeypatch.syspath_prepend(site)
    monkeypatch.delitem(sys.modules, module, raising=False)
    return site
