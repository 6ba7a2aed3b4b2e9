"""Money, energy and trade-offs on the page."""

from __future__ import annotations

from collections.abc import Iterator

from optplan.models.units import bytes_text, seconds_text
from optplan.report.fronts import KWH, NAMES, beside, money_text
from optplan.report.html.sections import Section, of_tables
from optplan.report.html.tables import Cell, Table, cells, columns
from optplan.report.layouts import short
from optplan.result import Costs, FrontClaim, Result


def front_section(result: Result, claim: FrontClaim) -> Section:
    """Show every point of a front, and what each costs and saves beside the one before."""
    currency = next((p.costs.currency for p in result.front if p.costs.currency), "")
    energy = "least-energy" in claim.goals
    numbers = ["step", "tokens/s", "devices"]
    numbers += [f"{currency} a billion tokens"] if currency else []
    numbers += ["kWh a billion tokens"] if energy else []
    numbers += ["peak memory"]
    heads = columns(*numbers, "beside the one before", "layout", right=numbers)
    before, rows = None, []
    for point in result.front:
        made = [Cell(seconds_text(point.step_seconds), point.step_seconds)]
        made += _costs(point.costs, bool(currency), energy)
        made.append(Cell(bytes_text(point.peak_bytes), point.peak_bytes))
        layout = Cell(short(point.plan), tone="dim")
        rows.append((*made, *cells(beside(point, before), layout)))
        before = point
    goals = ", ".join(NAMES[goal] for goal in claim.goals)
    count = len(rows)
    lead = f"No plan beats these {count} in {goals}." if count > 1 else f"One is best in {goals}."
    table = Table("The front", heads, tuple(rows))
    return of_tables("front", "Trade-offs", lead, table, note=" ".join(_claims(claim)))


def _costs(costs: Costs, money: bool, energy: bool) -> Iterator[Cell]:
    """Write what a point costs."""
    yield Cell(f"{costs.tokens_per_second:,.0f}", costs.tokens_per_second)
    yield Cell(f"{costs.devices:,}", costs.devices)
    if money:
        amount = costs.money_per_billion_tokens or 0.0
        yield Cell(money_text(amount), amount)
    if energy:
        used = (costs.joules_per_token or 0.0) * 1e9 / KWH
        yield Cell(f"{used:,.1f}", used)


def _claims(claim: FrontClaim) -> Iterator[str]:
    """Say what is claimed of a front as a whole."""
    if claim.complete:
        yield f"The front is complete: {claim.solves:,} optima were proved for it."
    else:
        yield f"Not complete ({claim.why}): each point is proved, others may be missing."
    if claim.resolution_bytes:
        yield f"Memory is told apart by {bytes_text(claim.resolution_bytes)}."
    if claim.alike:
        yield f"{', '.join(claim.alike)} weighs nothing beside the other goals on this cluster."
