"""The header of a training log, where Megatron prints every argument, and what the log measured."""

from __future__ import annotations

import re
from dataclasses import dataclass
from statistics import median

_ARGUMENT = re.compile(r"^(?:.*?[\s:\]>|])?([a-z][a-z0-9_]+) \.{2,} (.*?)[ \t\r]*$")
_TITLE = re.compile(r"-{3,} (?:end of )?arguments -{3,}", re.IGNORECASE)
_ELAPSED = re.compile(r"elapsed time per iteration \((ms|s)\):\s*([0-9.]+(?:[eE][+-]?\d+)?)")
_RATE = re.compile(r"(?:throughput per GPU \(TFLOP/s/GPU\)|TFLOPs?(?:/s)?(?:/GPU)?):\s*([0-9.]+)")
FIRST = 3
"""Iterations that are left out where a log has more: they warm up."""


@dataclass(frozen=True)
class Entry:
    """
    One argument as a log prints it.

    Parameters
    ----------
    name
        The argument, in the words of the program: ``tensor_model_parallel_size``.
    value
        Its value.
    line
        Line of the log, from 1.
    span
        Characters that hold the value.
    """

    name: str
    value: str
    line: int
    span: tuple[int, int]


@dataclass(frozen=True)
class Measured:
    """
    What the lines of a log say of speed, the median over iterations.

    Parameters
    ----------
    step_seconds, tflops
        Seconds of a step, and TFLOP/s of one device as the log counts them; none where it does
        not say.
    line
        Line of the log that is quoted, from 1.
    written
        That line, shortened.
    """

    step_seconds: float | None
    tflops: float | None
    line: int
    written: str


def looks_like_log(text: str) -> bool:
    """Tell whether a text holds a log's header."""
    return bool(_TITLE.search(text)) or len(entries(text[:200_000])) >= 10


def entries(text: str) -> list[Entry]:
    """Return every argument that a log prints, in order."""
    found = []
    start = 0
    for number, line in enumerate(text.split("\n"), 1):
        hit = _ARGUMENT.match(line) if " .." in line and len(line) < 2000 else None
        if hit:
            first = start + hit.start(2)
            found.append(Entry(hit[1], hit[2], number, (first, first + len(hit[2]))))
        start += len(line) + 1
    return found


def measured(text: str) -> Measured | None:
    """Return the speed that a log tells; None where it tells none."""
    seconds: list[tuple[float, int, str]] = []
    rates: list[tuple[float, int, str]] = []
    for number, line in enumerate(text.split("\n"), 1):
        if len(line) > 5000 or not ("iteration" in line or "FLOP" in line):
            continue
        elapsed, rate = _ELAPSED.search(line), _RATE.search(line)
        said = " ".join(line.split())[:160]
        if elapsed and _number(elapsed[2]):
            seconds.append((float(elapsed[2]) / (1000 if elapsed[1] == "ms" else 1), number, said))
        if rate and _number(rate[1]):
            rates.append((float(rate[1]), number, said))
    if not seconds and not rates:
        return None
    _, line_, said = (seconds or rates)[-1]
    return Measured(_middle(seconds), _middle(rates), line_, said)


def _number(text: str) -> bool:
    """Tell whether a text is a number above nothing."""
    try:
        return 0 < float(text) < 1e12
    except ValueError:
        return False


def _middle(some: list[tuple[float, int, str]]) -> float | None:
    """Return the median of the iterations that are warm."""
    values = [value for value, _, _ in some]
    if len(values) > 2 * FIRST:
        values = values[FIRST:]
    return median(values) if values else None
