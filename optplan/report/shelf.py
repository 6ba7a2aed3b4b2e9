"""The catalogue on the screen: what is shipped, and where each value comes from."""

from __future__ import annotations

import difflib
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from optplan import catalogue
from optplan.catalogue import Kind
from optplan.models.cost.parameters import total_parameters
from optplan.models.errors import Fault, InputError
from optplan.models.units import bytes_text
from optplan.places import Refusal

KINDS: tuple[Kind, ...] = ("workloads", "accelerators", "calibrations")


def listing() -> dict[str, list[dict[str, Any]]]:
    """List every name with its leading figures."""
    workloads = []
    for name in catalogue.names("workloads"):
        shape = catalogue.architecture(name)
        workloads.append(
            {
                "name": name,
                "parameters": total_parameters(shape),
                "layers": shape.layers,
                "hidden": shape.hidden,
                "heads": shape.heads,
                "kv_heads": shape.key_heads,
                "ffn": shape.ffn,
                "vocabulary": shape.vocabulary,
            }
        )
    accelerators = []
    for name in catalogue.names("accelerators"):
        device = catalogue.accelerator(name)
        accelerators.append(
            {
                "name": name,
                "peak": {precision: rate for precision, rate in device.peak.items()},
                "hbm": device.hbm,
                "hbm_bandwidth": device.hbm_bandwidth,
                "link": device.link.kind,
                "calibration": catalogue.calibration_for(name).name,
            }
        )
    calibrations = []
    for name in catalogue.names("calibrations"):
        constants = catalogue.calibration(name)
        calibrations.append(
            {
                "name": name,
                "measured": constants.measured,
                "error": constants.error,
                "range": constants.range,
            }
        )
    return {"workloads": workloads, "accelerators": accelerators, "calibrations": calibrations}


def describe(name: str) -> dict[str, Any]:
    """
    Return one entry with its sources.

    Raises
    ------
    InputError
        Nothing in the catalogue has that name; near matches are in the remedy.
    """
    for kind in KINDS:
        try:
            key = catalogue.canonical(kind, name)
        except Refusal:
            continue
        return {"kind": kind, "name": key, **catalogue.entry(kind, key)}
    known = [
        known for kind in KINDS for known in (*catalogue.names(kind), *catalogue.aliases(kind))
    ]
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.6)
    remedy = f"did you mean {' or '.join(near)}?" if near else "optplan catalogue lists all names"
    raise InputError([Fault("", "", f"nothing in the catalogue is called {name[:80]!r}", remedy)])


def show_listing(console: Console, found: dict[str, list[dict[str, Any]]]) -> None:
    """Print the list."""
    table = _table(
        "Workloads",
        "name",
        "parameters",
        "layers",
        "hidden",
        "heads",
        "kv heads",
        "ffn",
        "vocabulary",
    )
    for row in found["workloads"]:
        sizes = (row[k] for k in ("layers", "hidden", "heads", "kv_heads", "ffn", "vocabulary"))
        table.add_row(row["name"], f"{row['parameters'] / 1e9:.2f} B", *map(str, sizes))
    console.print(table)
    table = _table(
        "Accelerators", "name", "dense peak, TFLOP/s", "memory", "bandwidth", "links", "calibration"
    )
    for row in found["accelerators"]:
        peaks = "  ".join(
            f"{precision} {rate / 1e12:,.0f}" for precision, rate in row["peak"].items()
        )
        rate = f"{row['hbm_bandwidth'] / 1e12:.2f} TB/s"
        table.add_row(
            row["name"], peaks, bytes_text(row["hbm"]), rate, row["link"], row["calibration"]
        )
    console.print(table)
    table = _table("Calibrations", "name", "kind", "held-out error of the step time")
    for row in found["calibrations"]:
        table.add_row(row["name"], "measured" if row["measured"] else "prior", row["error"])
    console.print(table)


def show_entry(console: Console, entry: dict[str, Any]) -> None:
    """Print one entry, each value beside its source."""
    kind = str(entry["kind"])
    body = entry.get(
        {"workloads": "architecture", "accelerators": "accelerator"}.get(kind, "calibration"), {}
    )
    sources = entry.get("sources") or body.get("sources") or {}
    default = sources.get("architecture", "")
    table = _table(f"{entry['name']} ({kind})", "field", "value", "source")
    for field, value in body.items():
        if field != "sources":
            table.add_row(field, Text(_plain(value)), Text(sources.get(field, default)))
    if "published_parameters" in entry:
        count = f"{entry['published_parameters']:,}"
        table.add_row("published_parameters", count, Text(sources.get("published_parameters", "")))
    console.print(table)
    if entry.get("aliases"):
        console.print(Text(f"  also called: {', '.join(entry['aliases'])}", "dim"))
    if entry.get("notes"):
        console.print(Text(f"  {entry['notes']}", "dim"))


def _plain(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key}: {item}" for key, item in value.items())
    return str(value)


def _table(title: str, *columns: str) -> Table:
    table = Table(
        title=f"\n{title}", title_justify="left", title_style="bold", box=None, header_style="dim"
    )
    for i, column in enumerate(columns):
        table.add_column(column, overflow="fold", no_wrap=i == 0)
    return table
