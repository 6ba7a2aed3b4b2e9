"""A calibration written down: constants with their origin, the fit behind them, and a hash."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from optplan.calibrate import CalibrationFit
from optplan.files import refuse_input, save
from optplan.models.cost.calibration import Calibration
from optplan.models.errors import Fault, InputError


def calibration_text(found: CalibrationFit, more: Mapping[str, Any] | None = None) -> str:
    """
    Write a fit as the YAML that a spec's ``calibration`` and the catalogue read.

    Parameters
    ----------
    more
        Keys to put at the top, such as ``aliases``.
    """
    data = {
        **(more or {}),
        "stack": found.stack,
        "accelerators": list(found.accelerators),
        "calibration": plain(found.calibration),
        "fit": {
            "prior": found.prior,
            "hash": found.hash,
            "constants": {
                c.name: {
                    "value": _short(c.value),
                    "interval": [_short(c.low), _short(c.high)],
                    "prior": _short(c.prior),
                    "learned": round(c.learned, 2),
                }
                for c in found.constants
            },
            "sources": {
                s.source: {
                    "runs": s.runs,
                    "error": round(s.error, 4),
                    "bias": round(s.bias, 4),
                    **({"held_out": round(s.held_out, 4)} if s.held_out is not None else {}),
                }
                for s in found.sources
            },
            "left_out": dict(found.left_out),
        },
    }
    return dumped(data)


def plain(calibration: Calibration) -> dict[str, Any]:
    """Return a calibration as a file writes it: quantities with units, nothing that is left out."""
    data = calibration.model_dump(mode="json", exclude_none=True, exclude={"name", "accelerators"})
    if not data["intervals"]:
        del data["intervals"]
    return {
        key: _short(value) if isinstance(value, float) else value for key, value in data.items()
    }


def _short(value: float) -> float:
    """Keep four digits."""
    return float(f"{value:.4g}")


def dumped(data: Mapping[str, Any]) -> str:
    """Write plain data as YAML."""
    yaml = YAML()
    yaml.width = 100
    yaml.indent(mapping=2, sequence=4, offset=2)
    stream = io.StringIO()
    yaml.dump(dict(data), stream)
    return stream.getvalue()


def write_calibration(found: CalibrationFit, output: str | Path) -> None:
    """
    Write a fit to a file, whole or not at all.

    Raises
    ------
    InputError
        The file cannot be written.
    """
    save(output, {"": calibration_text(found).encode()})


def refuse_output(output: str, runs: Iterable[str | Path]) -> None:
    """
    Refuse a file that no spec could name, or that is one of the tables.

    Raises
    ------
    InputError
        It is.
    """
    if not output.lower().endswith((".yaml", ".yml")):
        problem = f"'{output}' does not end in .yaml, and a spec would take it for a name"
        raise InputError([Fault("", "--output", problem, "name a file such as ours.yaml")])
    refuse_input(output, runs)
