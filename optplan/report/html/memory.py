"""What every stage holds against the device, by part and by phase."""

from __future__ import annotations

from dataclasses import dataclass

from optplan.models.cost.price import PARTS, PHASES, Estimate, StageUse
from optplan.models.units import bytes_text
from optplan.report.html import words
from optplan.report.html.facts import share_text
from optplan.report.html.tables import Cell, Column, Table

MOST_STAGES = 40
"""Stages drawn and listed; of more, the ends and the fullest."""


@dataclass(frozen=True)
class Segment:
    """One part of a bar, in percent of the drawing."""

    part: str
    start: float
    width: float
    tip: str


@dataclass(frozen=True)
class Bar:
    """One stage, or a gap where stages are left out (no segments)."""

    label: str
    note: str
    full: bool
    over: bool
    segments: tuple[Segment, ...] = ()


@dataclass(frozen=True)
class Picture:
    """
    Bars by stage with the mark of the device's memory.

    Parameters
    ----------
    capacity
        Place of the mark, in percent.
    mark
        Its label.
    """

    bars: tuple[Bar, ...]
    legend: tuple[tuple[str, str], ...]
    capacity: float
    mark: str


def shown(estimate: Estimate, most: int = MOST_STAGES) -> list[StageUse | None]:
    """Choose the stages to show; none stands for those left out in between."""
    stages = estimate.memory.stages
    if len(stages) <= most:
        return list(stages)
    half = most // 2 - 1
    kept = {*range(half), *range(len(stages) - half, len(stages)), estimate.memory.binding_stage}
    found: list[StageUse | None] = []
    for use in stages:
        if use.stage in kept:
            found.append(use)
        elif found and found[-1] is not None:
            found.append(None)
    return found


def picture(estimate: Estimate) -> Picture:
    """Draw every stage, part by part."""
    memory = estimate.memory
    scale = 100.0 / max(memory.capacity_bytes, memory.peak_bytes)
    bars = tuple(
        Bar("...", "", False, False) if use is None else _bar(estimate, use, scale)
        for use in shown(estimate)
    )
    used = [part for part in PARTS if any(use.parts[part] for use in memory.stages)]
    legend = tuple((part, words.PARTS[part]) for part in used)
    mark = f"device {bytes_text(memory.capacity_bytes)}"
    return Picture(bars, legend, round(memory.capacity_bytes * scale, 3), mark)


def _bar(estimate: Estimate, use: StageUse, scale: float) -> Bar:
    """Stack the parts of one stage."""
    memory, reached = estimate.memory, 0
    segments = []
    for part in PARTS:
        size = use.parts[part]
        if size:
            share = size / memory.capacity_bytes
            tip = f"stage {use.stage}, {part}: {bytes_text(size)}, {share:.1%} of the device"
            segments.append(Segment(part, round(reached * scale, 3), round(size * scale, 3), tip))
        reached += size
    filled = use.peak_bytes / memory.capacity_bytes
    return Bar(
        f"stage {use.stage}",
        f"{bytes_text(use.peak_bytes)} \u00b7 {share_text(filled)}",
        use.stage == memory.binding_stage,
        filled > 1,
        tuple(segments),
    )


def moments(estimate: Estimate) -> Picture:
    """Draw the fullest stage, phase by phase, against what the reserve leaves of a device."""
    memory = estimate.memory
    use = memory.stages[memory.binding_stage]
    room = memory.capacity_bytes - use.parts["reserve"]
    scale = 100.0 / max(room, 1, *use.phases.values())
    bars = tuple(
        Bar(
            phase,
            f"{bytes_text(use.phases[phase])} \u00b7 "
            f"{share_text(use.phases[phase] / max(room, 1))}",
            phase == fullest(use),
            use.phases[phase] > room,
            (
                Segment(
                    "phase",
                    0.0,
                    round(use.phases[phase] * scale, 3),
                    f"{words.PHASES[phase]}: {bytes_text(use.phases[phase])} allocated",
                ),
            ),
        )
        for phase in PHASES
    )
    legend = tuple((phase, words.PHASES[phase]) for phase in PHASES)
    mark = f"room {bytes_text(room)}"
    return Picture(bars, legend, round(room * scale, 3), mark)


def by_part(estimate: Estimate) -> Table:
    """List every stage, part by part."""
    memory = estimate.memory
    heads = (
        Column("stage", True),
        Column("layers", True),
        Column("again", True, "layers computed again in the backward pass"),
        Column("in flight", True, "micro-batches whose activations it holds at once"),
        *(Column(part, True, words.PARTS[part]) for part in PARTS),
        Column("peak", True, "the worst moment, reserve included"),
        Column("filled", True, "peak over the memory of the device"),
    )
    rows = []
    for use in shown(estimate):
        if use is None:
            continue
        filled = use.peak_bytes / memory.capacity_bytes
        tone = "bad" if filled > 1 else ""
        rows.append(
            (
                _stage(estimate, use),
                _whole(use.layers),
                _whole(use.recomputed),
                _whole(use.in_flight),
                *(_bytes(use.parts[part]) for part in PARTS),
                _bytes(use.peak_bytes, tone),
                Cell(f"{filled:.1%}", filled, tone),
            )
        )
    return Table("Memory of a device by stage and part", heads, tuple(rows))


def by_phase(estimate: Estimate) -> Table:
    """List what every stage allocates, phase by phase."""
    memory = estimate.memory
    heads = (
        Column("stage", True),
        *(Column(phase, True, words.PHASES[phase]) for phase in PHASES),
        Column("fullest at"),
    )
    rows = []
    for use in shown(estimate):
        if use is None:
            continue
        room = memory.capacity_bytes - use.parts["reserve"]
        when = fullest(use)
        rows.append(
            (
                _stage(estimate, use),
                *(_bytes(use.phases[p], bar=use.phases[p] / max(room, 1)) for p in PHASES),
                Cell(when, tip=words.PHASES[when]),
            )
        )
    return Table("Bytes allocated by stage and phase, reserve left out", heads, tuple(rows))


def fullest(use: StageUse) -> str:
    """Name the phase in which a stage allocates most, the first of equals."""
    return max(PHASES, key=lambda phase: use.phases[phase])


def lead(estimate: Estimate) -> str:
    """Say which stage is fullest, when, and what is left."""
    memory = estimate.memory
    use = memory.stages[memory.binding_stage]
    left = memory.capacity_bytes - memory.peak_bytes
    room = f"{bytes_text(left)} are left" if left >= 0 else f"{bytes_text(-left)} too much"
    text = (
        f"Stage {use.stage} is fullest: {bytes_text(memory.peak_bytes)} of "
        f"{bytes_text(memory.capacity_bytes)}, {room}. Most is allocated "
        f"{words.PHASES[fullest(use)]}"
    )
    if memory.risk is not None:
        risk = "under 0.1 %" if memory.risk < 0.001 else f"{memory.risk:.1%}"
        text += f". By the memory error of the calibration the chance to run out is {risk}"
    return f"{text}."


def note(estimate: Estimate) -> str:
    """Say what the drawing leaves out."""
    stages = estimate.memory.stages
    left = len(stages) - sum(use is not None for use in shown(estimate))
    return f"{left} of {len(stages)} stages in the middle are left out." if left else ""


def _stage(estimate: Estimate, use: StageUse) -> Cell:
    """Name a stage, the fullest with a mark."""
    mark = "*" if use.stage == estimate.memory.binding_stage else ""
    return Cell(f"{use.stage}{mark}", use.stage, tip="the fullest stage" if mark else "")


def _whole(number: int) -> Cell:
    """Print a count."""
    return Cell(f"{number:,}", number)


def _bytes(size: int, tone: str = "", bar: float | None = None) -> Cell:
    """Print bytes."""
    return Cell(bytes_text(size), size, tone, None if bar is None else min(1.0, bar))
