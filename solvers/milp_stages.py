"""One pipeline in a Pyomo model: what its stages hold, and the time and memory that follow."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil, floor

from optplan.models.stages import ALIKE, Share
from optplan.solvers.milp_forms import Form, Sheet, added


@dataclass
class Stages:
    """
    One pipeline in a model: what its stages hold, and what comes of it; nothing where it is off.

    Parameters
    ----------
    share
        What is handed out.
    layers, again
        Per stage, layers held and layers of them computed again.
    step, peak
        Ticks of a step and bytes of the fullest stage. They are no less than what the layers make
        of them, and equal where that was asked for or where they are made small.
    """

    share: Share
    layers: list[Form] = field(default_factory=list)
    again: list[Form] = field(default_factory=list)
    step: Form = field(default_factory=Form)
    peak: Form = field(default_factory=Form)

    def read(self, sheet: Sheet) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Read what a solution hands out."""
        layers = tuple(round(sheet.value(form)) for form in self.layers)
        return layers, tuple(round(sheet.value(form)) for form in self.again)


def write_stages(
    sheet: Sheet, share: Share, on: Form, room: str, peaks: bool = False, exact: bool = False
) -> Stages:
    """
    Write how the layers of one pipeline may be handed out, all of it nothing where it is off.

    Rows that hold for one pipeline only are written over variables of its own, so that a model of
    many pipelines is as tight as each by itself (the convex hull of their relaxations).

    Parameters
    ----------
    on
        1 where the pipeline is chosen.
    room
        Name of the rule that keeps stages within their room.
    peaks
        Whether the peak is of interest.
    exact
        Whether time and peak must be exactly what the layers make of them.
    """
    made = Stages(share)
    p, layers = range(share.stages), "pipeline.layers"
    most = min(share.most, share.layers)
    some = []
    each = sheet.variable("again.each", 0, most) if share.mode == ALIKE else None
    for i in p:
        least = share.least_first if i == 0 else share.least
        held = sheet.variable("layers", 0, most)
        sheet.demand(layers, held.plus(on, -least), 0, None)
        sheet.demand(layers, held.plus(on, -most), None, 0)
        made.layers.append(held)
        again = held if share.mode == 2 else Form()
        if share.mode in (1, ALIKE):
            again, any_ = sheet.variable("again", 0, most), sheet.flag("recomputes")
            sheet.demand("pipeline.recomputed", again.plus(held, -1), None, 0)
            sheet.demand("pipeline.recomputed", again.plus(any_, -most), None, 0)
            if exact:
                sheet.demand("pipeline.recomputed", again.plus(any_, -1), 0, None)
            some.append(any_)
        if each is not None:
            # As many as on every stage, or all of fewer.
            whole = sheet.flag("recomputes.all")
            sheet.demand("pipeline.recomputed", again.plus(each, -1), None, 0)
            short = again.plus(held, -1).plus(whole, -most)
            sheet.demand("pipeline.recomputed", short, -most, None)
            sheet.demand("pipeline.recomputed", again.plus(each, -1).plus(whole, most), 0, None)
        made.again.append(again)
    sheet.equal(layers, added(((1, held) for held in made.layers), 0).plus(on, -share.layers))
    total = added((1, again) for again in made.again)
    busy = [_busy(share, i, made, on) for i in p]
    slowest = _cap(sheet, "bottleneck", "price.step_time", busy, exact)
    mean = added([(share.stages, slowest), *((-1, form) for form in busy)])
    sheet.demand("price.step_time", mean, 0, None)
    once = [added([(share.once_layer, made.layers[i]), (share.once(i, 0), on)]) for i in p]
    longest = _cap(sheet, "once", "price.step_time", once, exact)
    fixed = share.layer * share.layers + share.front + share.back + share.fixed
    parts = [(share.turns, slowest), (share.again, total), (1, longest), (fixed, on)]
    made.step = added(parts)
    held_bytes = [_held(share, i, made, on, some[i] if some else None) for i in p]
    for form in held_bytes:
        sheet.demand(room, form.plus(on, -share.room), None, 0)
    if peaks:
        made.peak = _cap(sheet, "peak", "memory.peak", held_bytes, exact)
    return made


def _busy(share: Share, stage: int, made: Stages, on: Form) -> Form:
    """Ticks of one micro-batch on a stage."""
    parts = [(share.layer, made.layers[stage]), (share.again, made.again[stage])]
    return added([*parts, (share.seconds(stage, 0, 0), on)])


def _held(share: Share, stage: int, made: Stages, on: Form, some: Form | None) -> Form:
    """Bytes that a stage needs; the largest moment grows where any layer is computed again."""
    flying = share.in_flight(stage)
    usual = share.held(stage, 0, 0)
    with_again = share.held(stage, 0, 1) + flying * share.saved
    parts = [
        (share.state_layer + flying * share.kept, made.layers[stage]),
        (-flying * share.saved, made.again[stage]),
        (usual, on),
    ]
    if some is not None:
        parts.append((with_again - usual, some))
    elif share.mode == 2:
        parts.append((with_again - usual, on))
    return added(parts)


def _cap(sheet: Sheet, name: str, rule: str, forms: list[Form], exact: bool) -> Form:
    """Make a column that no form exceeds, or that is the largest of them; nothing where off."""
    ends = [sheet.reach(form) for form in forms]
    low, high = min(0, *(e[0] for e in ends)), max(0, *(e[1] for e in ends))
    unit = 2 ** max(0, (high // max(1, len(forms))).bit_length() - 1)
    column = sheet.variable(name, floor(low / unit), ceil(high / unit), whole=False).times(unit)
    for form in forms:
        sheet.demand(rule, column.plus(form, -1), 0, None)
    if exact:
        picks = [sheet.flag(f"{name}.at") for _ in forms]
        sheet.demand(rule, added((1, pick) for pick in picks), 1, None)
        for form, pick, (least, _) in zip(forms, picks, ends, strict=True):
            spare = high - least
            sheet.demand(rule, column.plus(form, -1).plus(pick, spare), None, spare)
    return column
