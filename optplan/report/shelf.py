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

KINDS: tuple[Kind, ...] = ("workloads", "accelerators", "calibrations", "frameworks")


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
    frameworks = []
    for name in catalogue.names("frameworks"):
        versions = catalogue.versions(name)
        newest = catalogue.framework(f"{name}@{versions[-1]}")
        frameworks.append(
            {
                "name": name,
                "versions": versions,
                "schedules": newest.schedules,
                "zero": newest.zero,
                "context": newest.context,
                "experts": newest.experts,
            }
        )
    return {
        "workloads": workloads,
        "accelerators": accelerators,
        "calibrations": calibrations,
        "frameworks": frameworks,
    }


def describe(name: str) -> dict[str, Any]:
    """
    Return one entry with its sources.

    Parameters
    ----------
    name
        Its name or an alias; of a framework also one version, as in ``megatron-core@0.15``.

    Raises
    ------
    InputError
        Nothing in the catalogue has that name; near matches are in the remedy.
    """
    if "@" in name:
        try:
            return _framework(name)
        except Refusal as refusal:
            raise InputError([Fault("", "", refusal.problem, refusal.remedy)]) from None
    for kind in KINDS:
        try:
            key = catalogue.canonical(kind, name)
        except Refusal:
            continue
        if kind == "frameworks":
            return _framework(f"{key}@{catalogue.versions(key)[-1]}")
        return {"kind": kind, "name": key, **catalogue.entry(kind, key)}
    known = [
        known for kind in KINDS for known in (*catalogue.names(kind), *catalogue.aliases(kind))
    ]
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.6)
    remedy = f"did you mean {' or '.join(near)}?" if near else "optplan catalogue lists all names"
    raise InputError([Fault("", "", f"nothing in the catalogue is called {name[:80]!r}", remedy)])


def _framework(name: str) -> dict[str, Any]:
    """Return one version of a framework, with those that differ from it."""
    found = catalogue.framework(name)
    key = found.name.partition("@")[0]
    file = catalogue.entry("frameworks", key)
    return {
        "kind": "frameworks",
        "name": found.name,
        "aliases": file.get("aliases", []),
        "versions": catalogue.versions(key),
        "checked": file.get("checked", ""),
        "framework": found.model_dump(exclude={"name", "sources"}),
        "notes": file.get("notes", ""),
        "sources": found.sources,
    }


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
    table = _table("Frameworks", "name", "changes in", "schedules", "ZeRO", "context", "experts")
    for row in found["frameworks"]:
        lists = (_plain(row[k]) for k in ("versions", "schedules", "zero", "context"))
        table.add_row(row["name"], *lists, _plain(row["experts"]))
    console.print(table)


def show_entry(console: Console, entry: dict[str, Any]) -> None:
    """Print one entry, each value beside its source."""
    kind = str(entry["kind"])
    inner = {
        "workloads": "architecture",
        "accelerators": "accelerator",
        "calibrations": "calibration",
        "frameworks": "framework",
    }
    body = entry.get(inner[kind], {})
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
    if "as" in sources and kind == "frameworks":
        console.print(Text(f"  stands on another framework: {sources['as']}", "dim"))
    if entry.get("versions"):
        changes = f"  changes in: {_plain(entry['versions'])}; looked at up to {entry['checked']}"
        console.print(Text(changes, "dim"))
    if entry.get("aliases"):
        console.print(Text(f"  also called: {', '.join(entry['aliases'])}", "dim"))
    if entry.get("notes"):
        console.print(Text(f"  {entry['notes']}", "dim"))


def _plain(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key}: {item}" for key, item in value.items())
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or "none"
    return str(value)


def _table(title: str, *columns: str) -> Table:
    table = Table(
        title=f"\n{title}", title_justify="left", title_style="bold", box=None, header_style="dim"
    )
    for i, column in enumerate(columns):
        table.add_column(column, overflow="fold", no_wrap=i == 0)
    return table
