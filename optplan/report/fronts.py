"""Money, energy and trade-offs on the screen."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from optplan.models.units import bytes_text, seconds_text
from optplan.report.layouts import plain_table, short
from optplan.result import Costs, FrontPoint, Result

NAMES = {
    "fastest": "time",
    "cheapest": "money",
    "least-energy": "energy",
    "most-headroom": "memory",
    "fewest-devices": "devices",
}
"""What each goal wants little of."""

KWH = 3.6e6
"""Joules of a kilowatt-hour."""


def costs_text(costs: Costs, energy: bool = False) -> str:
    """Tell money, and energy beside it or where it is asked, in a line; else nothing."""
    parts = []
    if costs.money_per_billion_tokens is not None:
        parts.append(f"{money_text(costs.money_per_billion_tokens)} {costs.currency}")
    if costs.joules_per_token is not None and (parts or energy):
        parts.append(f"at most {energy_text(costs.joules_per_token)}")
    if not parts:
        return ""
    held = f"{costs.held_devices:,} {'device' if costs.held_devices == 1 else 'devices'} held"
    return f"{' and '.join(parts)} per billion tokens ({held})"


def money_text(amount: float) -> str:
    """Render an amount of money."""
    return f"{amount:,.2f}" if amount < 1000 else f"{amount:,.0f}"


def energy_text(joules_per_token: float) -> str:
    """Render the energy of a billion tokens."""
    kwh = joules_per_token * 1e9 / KWH
    return f"{kwh:,.1f} kWh" if kwh < 1000 else f"{kwh / 1000:,.2f} MWh"


def front_table(result: Result) -> RenderableType:
    """Show every point of a front, and what each costs and saves beside the one before."""
    claim = result.front_claim
    assert claim is not None
    currency = next((p.costs.currency for p in result.front if p.costs.currency), "")
    number = len(result.front)
    title = f"No plan beats these {number} in {', '.join(NAMES[g] for g in claim.goals)}"
    if number == 1:
        title = f"One plan is best in {', '.join(NAMES[g] for g in claim.goals)} at once"
    columns = ["step", "tokens/s", "devices"]
    money = "cheapest" in claim.goals or bool(currency)
    energy = "least-energy" in claim.goals
    columns += [f"{currency}/1e9 tokens"] if money else []
    columns += ["kWh/1e9 tokens"] if energy else []
    columns += ["peak memory"]
    table = plain_table(title, *columns, "beside the one before", "layout", right=(*columns,))
    before: FrontPoint | None = None
    for point in result.front:
        costs = point.costs
        cells = [
            seconds_text(point.step_seconds),
            f"{costs.tokens_per_second:,.0f}",
            f"{costs.devices:,}",
        ]
        cells += [money_text(costs.money_per_billion_tokens or 0.0)] if money else []
        cells += [f"{(costs.joules_per_token or 0.0) * 1e9 / KWH:,.1f}"] if energy else []
        cells += [bytes_text(point.peak_bytes)]
        table.add_row(*cells, beside(point, before), Text(short(point.plan)))
        before = point
    return Group(table, _claim(result))


def beside(point: FrontPoint, before: FrontPoint | None) -> str:
    """Say what a point costs and saves beside another."""
    if before is None:
        return ""
    parts = []
    for goal, value in point.values.items():
        change = value / before.values[goal] - 1
        if abs(change) >= 5e-5:
            parts.append(f"{NAMES[goal]} {change:+.1%}" if abs(change) >= 5e-4 else NAMES[goal])
    return ", ".join(parts)


def _claim(result: Result) -> Text:
    """Say what is claimed of the front."""
    claim = result.front_claim
    assert claim is not None
    if claim.complete:
        text = Text("  complete: ", "bold green")
        text.append(f"{claim.solves} optima proved", "dim")
    else:
        text = Text("  not complete ", "bold yellow").append(f"({claim.why}): ", "yellow")
        text.append("each point is proved, others may be missing", "dim")
    if claim.resolution_bytes:
        step = bytes_text(claim.resolution_bytes)
        text.append(f"; memory told apart by {step} (--resolution)", "dim")
    if claim.alike:
        names = ", ".join(claim.alike)
        why = "all devices of the cluster are held, whatever is in use (cluster.held)"
        if result.problem.cluster.held != "all":
            why = "both are a time by the devices held"
        text.append(f"\n  {names} weighs nothing beside the other: {why}", "dim")
    return text
