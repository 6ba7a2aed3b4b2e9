"""The drawing of a sweep: throughput and cost along one axis, with the changing layout marked."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

from optplan.sweeps.summary import MACHINE, Point, Series
from optplan.tables import Cell

if TYPE_CHECKING:
    from optplan.sweep import Sweep

WIDTH, HEIGHT = 720, 300
LEFT, RIGHT, TOP, BOTTOM = 74, 16, 34, 44

COLOURS = ("#2f6fab", "#c8561f", "#3a8f4d", "#8552a1", "#b8860b", "#1f9a9a", "#c23b63", "#6b6b6b")
"""One a series, told apart on white and on black; further series share the last one."""

PANELS: tuple[tuple[str, str, Callable[[Point], float | None]], ...] = (
    ("tokens a second, all devices", "throughput", lambda p: p.tokens_per_second),
    (
        "device hours for a billion tokens",
        "cost",
        lambda p: p.device_hours_per_billion_tokens,
    ),
)

MARK = ' data-changed="1"'
"""What a dot carries where the layout changes."""

STYLE = """
.sweep{font:12px system-ui,sans-serif;fill:#222}
.sweep .axis{stroke:#999;stroke-width:1}
.sweep .grid{stroke:#999;stroke-width:.4;stroke-dasharray:2 3}
.sweep path{fill:none;stroke-width:1.8}
.sweep .title{font-weight:600}
@media (prefers-color-scheme:dark){.sweep{fill:#ddd}}
"""


def drawing(found: Sequence[Series]) -> str:
    """
    Draw series as one SVG: throughput above, cost below, against devices or the axis.

    A filled dot marks a problem whose best layout is another than the one before; what each dot
    stands for is told when a pointer rests on it. Texts from outside are escaped.

    Parameters
    ----------
    found
        From ``optplan.sweep.series``.
    """
    across = _Across(found)
    height = HEIGHT * len(PANELS) + 18 * len(found[: len(COLOURS)]) + 24
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="sweep" role="img" '
        f'viewBox="0 0 {WIDTH} {height}" width="100%">',
        f"<style>{STYLE}</style>",
        "<title>Throughput and cost of a sweep</title>",
    ]
    for at, (title, name, value) in enumerate(PANELS):
        parts.append(f'<g transform="translate(0,{at * HEIGHT})" data-panel="{name}">')
        parts += _panel(title, found, value, across)
        parts.append("</g>")
    parts += _legend(found, HEIGHT * len(PANELS) + 12)
    parts.append("</svg>")
    return "\n".join(parts)


def page(sweep: Sweep) -> str:
    """Return one offline HTML file: the drawing and the table under it."""
    names = " x ".join(axis.column for axis in sweep.axes)
    title = f"{sweep.total:,} problems over {names}"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>:root{{color-scheme:light dark}}"
        "body{font:14px system-ui,sans-serif;max-width:76rem;margin:1rem auto;padding:0 1rem}"
        "div{overflow-x:auto}table{border-collapse:collapse;font-size:12px}"
        "td,th{padding:2px 8px;border-bottom:1px solid #8884;text-align:left}</style></head>\n"
        f"<body><h1>{escape(title)}</h1>\n{drawing(sweep.series())}\n"
        f"<div>{sweep.table()._repr_html_()}</div></body></html>\n"
    )


class _Across:
    """Where the problems stand from left to right: by number on a log scale, or in order."""

    def __init__(self, found: Sequence[Series]) -> None:
        points = [point for one in found for point in one.points]
        self.name = found[0].along if found else ""
        # A machine grows in nodes, and is paid in devices.
        self.devices = self.name in MACHINE and any(point.devices for point in points)
        if self.devices:
            self.name = "devices"
            points = [point for point in points if point.devices]  # wrong input has none
        cells: list[Cell] = [self._cell(point) for point in points]
        self.numeric = bool(cells) and all(
            isinstance(cell, int | float) and not isinstance(cell, bool) for cell in cells
        )
        self.order = list(dict.fromkeys(cells))
        if self.numeric:
            numbers = [float(cell) for cell in cells if isinstance(cell, int | float)]
            self.low, self.high = min(numbers), max(numbers)
            self.log = self.low > 0 and self.high / self.low >= 8

    def place(self, point: Point) -> float:
        """Return where a point stands, in pixels."""
        span, cell = WIDTH - LEFT - RIGHT, self._cell(point)
        if cell is None:
            return LEFT
        if not self.numeric:
            return LEFT + span * (self.order.index(cell) + 0.5) / len(self.order)
        assert isinstance(cell, int | float)
        return self._number(float(cell))

    def _cell(self, point: Point) -> Cell:
        """Return what a point is placed by."""
        return point.devices if self.devices else point.x

    def _number(self, value: float) -> float:
        """Return where a number stands."""
        low, high = self.low, self.high
        if self.log:
            low, high, value = math.log(low), math.log(high), math.log(value)
        share = (value - low) / (high - low) if high > low else 0.5
        return LEFT + (WIDTH - LEFT - RIGHT) * share

    def ticks(self) -> list[tuple[float, str]]:
        """Return places and words of a few ticks."""
        if not self.numeric:
            span = (WIDTH - LEFT - RIGHT) / max(1, len(self.order))
            step = max(1, len(self.order) // 8)
            return [
                (LEFT + span * (at + 0.5), str(value)[:24])
                for at, value in enumerate(self.order)
                if at % step == 0
            ]
        if self.log:
            first, last = math.ceil(math.log2(self.low)), math.floor(math.log2(self.high))
            step = max(1, (last - first) // 7)
            values = [2.0**n for n in range(first, last + 1, step)]
        else:
            values = _round(self.low, self.high)
        return [(self._number(value), f"{value:,.10g}") for value in values]


def _round(low: float, high: float) -> list[float]:
    """Return some round numbers from ``low`` to ``high``."""
    if high <= low:
        return [low]
    step = 10 ** math.floor(math.log10((high - low) / 4))
    step *= next(m for m in (1, 2, 5, 10) if (high - low) / (step * m) <= 7)
    return [n * step for n in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _shown(value: float) -> str:
    """Render a round number: 400 k, 2 M."""
    for unit, word in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= unit:
            return f"{value / unit:g} {word}"
    return f"{value:g}"


def _panel(
    title: str,
    found: Sequence[Series],
    value: Callable[[Point], float | None],
    across: _Across,
) -> Iterable[str]:
    """Draw one figure of all series."""
    heights = [y for one in found for p in one.points if (y := value(p)) is not None]
    top = max(heights, default=1.0) * 1.05 or 1.0
    bottom = HEIGHT - BOTTOM

    def up(y: float) -> float:
        return bottom - (bottom - TOP) * y / top

    yield f'<text class="title" x="{LEFT}" y="20">{escape(title)}</text>'
    for y in _round(0.0, top):
        level = f'y1="{up(y):.1f}" y2="{up(y):.1f}"'
        yield f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" {level}/>'
        yield f'<text x="{LEFT - 6}" y="{up(y) + 4:.1f}" text-anchor="end">{_shown(y)}</text>'
    yield f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{bottom}" y2="{bottom}"/>'
    for x, word in across.ticks():
        yield f'<text x="{x:.1f}" y="{bottom + 16}" text-anchor="middle">{escape(word)}</text>'
    middle = (LEFT + WIDTH - RIGHT) / 2
    yield f'<text x="{middle}" y="{bottom + 34}" text-anchor="middle">{escape(across.name)}</text>'
    if not heights:
        yield f'<text x="{middle}" y="{HEIGHT / 2}" text-anchor="middle">no plan anywhere</text>'
    for at, one in enumerate(found):
        yield from _line(one, value, across, up, COLOURS[min(at, len(COLOURS) - 1)])


def _line(
    one: Series,
    value: Callable[[Point], float | None],
    across: _Across,
    up: Callable[[float], float],
    colour: str,
) -> Iterable[str]:
    """Draw one series: a line broken where there is no plan, and a dot for every problem."""
    steps, pen = [], "M"
    dots = []
    for point in one.points:
        y = value(point)
        if y is None:
            pen = "M"
            continue
        x, high = across.place(point), up(y)
        steps.append(f"{pen}{x:.1f} {high:.1f}")
        pen = "L"
        told = f"{one.label}{', ' if one.label else ''}{one.along} {point.x}: {y:,.4g}"
        told += f", {point.layout}{' (changed)' if point.changed else ''}"
        fill, radius, mark = ("none", 2, "") if not point.changed else (colour, 4, MARK)
        dots.append(
            f'<circle cx="{x:.1f}" cy="{high:.1f}" r="{radius}" stroke="{colour}" '
            f'fill="{fill}"{mark}>'
            f"<title>{escape(told)}</title></circle>"
        )
    if steps:
        yield f'<path stroke="{colour}" d="{"".join(steps)}"/>'
    yield from dots


def _legend(found: Sequence[Series], top: int) -> Iterable[str]:
    """Name the series; those beyond the colours share one line."""
    shown = found[: len(COLOURS)]
    for at, one in enumerate(shown):
        y = top + 18 * at
        rest = len(found) - len(shown)
        more = f" and {rest:,} more" if rest and at == len(shown) - 1 else ""
        label = (one.label or "the sweep") + more
        yield f'<circle cx="{LEFT}" cy="{y}" r="4" fill="{COLOURS[at]}"/>'
        yield f'<text x="{LEFT + 10}" y="{y + 4}">{escape(label)}</text>'
    y = top + 18 * len(shown)
    yield f'<text x="{LEFT}" y="{y + 4}">filled dot: the best layout changes here</text>'
