"""Prices and memory as whole-number tables of the program."""

from __future__ import annotations

from fractions import Fraction
from math import ceil, log10
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optplan.models.builder import LARGEST_TABLE, Builder, too_large
from optplan.models.cost.memory import kept_activations, states, working_bytes
from optplan.models.cost.parameters import stage_parameters
from optplan.models.cost.stage import stage_time
from optplan.models.cost.step import step_time
from optplan.models.cost.traffic import hop_seconds
from optplan.models.program import LARGEST, Integers
from optplan.models.spec.problem import Problem

Reals = NDArray[np.float64]

LONGEST_TICKS = 2**48
"""Ticks of the longest legal step; that times a batch of 4096, or a limit's product, fits."""

ROOM = 8.0
"""How much slower than a known plan others may be before their price is cut off."""

BEYOND = 16
"""Memory columns stop counting at about this many times a device's memory."""


def post_time(say: Builder, problem: Problem, near: float | None = None) -> Fraction:
    """
    Tabulate the step time.

    ``step = global_batch * per_sequence + fill + once``: what each sequence costs the slowest stage
    of its data rank, divided over the data ranks; what filling and draining the pipeline adds; what
    a step pays once. Each is rounded down to whole ticks, so that the program's optimum is a bound
    from below.

    Parameters
    ----------
    near
        Seconds per sequence of a plan that is known to be possible. The tick is then as fine as
        that plan deserves, and slower plans may be cut off far above it; without it the tick is as
        fine as the slowest legal plan allows.

    Returns
    -------
    Fraction
        Ticks per sequence that no plan can beat: the slowest stage alone, without bubble, without
        the end of the step, memory no object.
    """
    tp, pp, b, sp, again = grid(say, ("tp", "pp", "micro_batch", "sequence_parallel", "recompute"))
    dp = problem.devices // (tp * pp)
    layers = _layers(problem, pp)
    (size,) = _wide(b)
    one = pp == 1
    paper = problem.prices == "paper"

    def busy(first: NDArray[np.bool_], last: NDArray[np.bool_]) -> Reals:
        everywhere = np.ones_like(one) if paper else last
        return np.asarray(
            stage_time(problem, layers, layers * again, first, everywhere, tp, size).total
        )

    no, yes = np.zeros_like(one), np.ones_like(one)
    front, middle, back = busy(yes, one), busy(no, no), busy(one, yes)
    slowest = np.maximum(np.maximum(front, middle), back)
    bubble = np.where(one, 0.0, front + (pp - 2) * middle + back - slowest)
    hops = hop_seconds(problem, size, tp, pp, dp, sp)
    sequence = (slowest + problem.calibration.p2p_exposed * hops.steady) / (size * dp)
    fill = bubble + hops.fill

    degrees = grid(say, ("tp", "pp", "dp", "zero"))
    once = _once(problem, *degrees)
    legal = _possible(problem, tp, pp)
    batch = float(say.domain["global_batch"].max(initial=1))
    longest = batch * _most(sequence, legal) + _most(fill, legal) + _most(once)
    if near is not None:
        longest = min(longest, ROOM * batch * near)
    say.tick = _tick(longest)
    unit, most = float(say.tick), int(longest / float(say.tick)) + 1

    def ticks(seconds: Reals, factor: float = 1.0) -> Integers:
        # Rows that other rules refuse may be slower than any legal plan; they need not be exact.
        return np.minimum(np.floor(seconds / unit), most // factor).astype(np.int64)

    keys = {"tp": tp, "pp": pp, "micro_batch": b, "sequence_parallel": sp, "recompute": again}
    prices = {"per_sequence": ticks(sequence, batch), "fill": ticks(fill)}
    say.price("price.micro_batch", keys, prices)
    names = ("tp", "pp", "dp", "zero")
    say.price("price.step", dict(zip(names, degrees, strict=True)), {"once": ticks(once)})
    say.multiply("price.sequences", "all_sequences", "global_batch", "per_sequence", most=most)
    terms = ((1, "all_sequences"), (1, "fill"), (1, "once"))
    say.sum("price.step_time", "step_ticks", terms)
    return Fraction(int(prices["per_sequence"].min(initial=most)))


def _once(problem: Problem, tp: Integers, pp: Integers, dp: Integers, zero: Integers) -> Reals:
    """Seconds that a step pays once, by the stage with the most parameters."""
    shape, layers = problem.workload.architecture, _layers(problem, pp)
    one, yes = pp == 1, np.ones_like(pp == 1)
    first = stage_parameters(shape, layers, yes, one, tp)
    last = stage_parameters(shape, layers, one, yes, tp)
    return np.asarray(step_time(problem, np.maximum(first, last), tp, dp, zero).total)


def _layers(problem: Problem, pp: Integers) -> Integers:
    """Blocks of a stage, rounded up where they do not divide (a rule refuses that)."""
    return np.maximum(1, -(-problem.workload.architecture.layers // pp))


def _possible(problem: Problem, tp: Integers, pp: Integers) -> NDArray[np.bool_]:
    """Rows that a legal plan may use, as far as heads and layers tell."""
    shape = problem.workload.architecture
    return np.asarray((shape.heads % tp == 0) & (shape.layers % pp == 0), dtype=bool)


def _most(seconds: Reals, legal: NDArray[np.bool_] | None = None) -> float:
    """Largest of some seconds; all of them where no row is legal."""
    chosen = seconds if legal is None or not legal.any() else seconds[legal]
    return float(chosen.max(initial=0.0))


def _tick(longest: float) -> Fraction:
    """
    Choose what one unit of time is worth: a power of ten, as fine as 64 bits allow.

    ``longest`` are the seconds of the longest step that must be told apart from others.
    """
    return Fraction(10) ** ceil(log10(max(longest / LONGEST_TICKS, 1e-21)))


def post_memory(say: Builder, problem: Problem) -> None:
    """
    Tabulate memory at both ends of the pipeline, in bytes, exactly as the verifier counts them.

    The first stage keeps the activations of ``min(pp, micro_batches)`` micro-batches, the last
    stage those of one.
    """
    most = BEYOND << (problem.cluster.accelerator.hbm - 1).bit_length()
    tp, pp, dp, zero = grid(say, ("tp", "pp", "dp", "zero"))
    layers = _layers(problem, pp)
    one, yes = pp == 1, np.ones_like(pp == 1)
    given: dict[str, Integers] = {}
    for end, first, last in (("first", yes, one), ("last", one, yes)):
        stages, t, d = _wide(layers, tp, dp)
        weights, gradients, optimizer = states(problem, stages, first, last, t, d, zero)
        given[f"weights_{end}"] = _bounded(weights + gradients, most)
        given[f"optimizer_{end}"] = _bounded(optimizer, most)
    say.price("memory.states", {"tp": tp, "pp": pp, "dp": dp, "zero": zero}, given)

    tp, pp, b, sp, again = grid(say, ("tp", "pp", "micro_batch", "sequence_parallel", "recompute"))
    layers = _layers(problem, pp)
    recomputed = layers * again
    one, yes = pp == 1, np.ones_like(pp == 1)
    stages, again_, b_, t = _wide(layers, recomputed, b, tp)
    kept = kept_activations(problem, stages, again_, b_, t, sp)
    keys = {"tp": tp, "pp": pp, "micro_batch": b, "sequence_parallel": sp, "recompute": again}
    given = {"activations_last": _bounded(kept, most)}
    for end, last in (("first", one), ("last", yes)):
        working = working_bytes(problem, again_, last, b_, t, sp)
        given[f"working_{end}"] = _bounded(working, most)
    say.price("memory.activations", keys, given)
    # No legal pipeline is longer than its layers; saying so keeps the product within 64 bits.
    say.sum("memory.layers", "most_stages", (), problem.workload.architecture.layers)
    say.smallest("memory.in_flight", "in_flight", ("pp", "micro_batches", "most_stages"))
    say.sum("memory.most", "most_bytes", (), most)
    name = "memory.activations_first"
    say.multiply(name, "flying", "in_flight", "activations_last", most=LARGEST)
    say.smallest(name, "activations_first", ("flying", "most_bytes"))
    reserve = problem.calibration.reserve
    for end in ("first", "last"):
        parts = tuple(
            (1, f"{part}_{end}") for part in ("weights", "optimizer", "activations", "working")
        )
        say.sum(f"memory.peak[stage={end}]", f"peak_{end}", parts, reserve)
    say.largest("memory.peak", "peak_bytes", ("peak_first", "peak_last"))


def grid(say: Builder, names: tuple[str, ...]) -> list[Integers]:
    """Combine choices whose degrees fit together on the cluster; an array per choice."""
    world = next(rows for name, rows in say.spaces.items() if name == "degrees.world")
    degrees = [n for n in names if n in ("tp", "pp", "dp")]
    pairs = np.unique(world[:, [("tp", "pp", "dp").index(n) for n in degrees]], axis=0)
    others = [n for n in names if n not in degrees]
    size = len(pairs) * int(np.prod([len(say.domain[n]) for n in others]))
    if size > LARGEST_TABLE:
        raise too_large("the price table", size, max(others, key=lambda n: len(say.domain[n])))
    index = np.meshgrid(np.arange(len(pairs)), *(say.domain[n] for n in others), indexing="ij")
    columns = {n: pairs[index[0].ravel(), i] for i, n in enumerate(degrees)}
    columns |= {n: axis.ravel() for n, axis in zip(others, index[1:], strict=True)}
    return [columns[n] for n in names]


def _bounded(size: object, most: int) -> Integers:
    """Bytes as whole numbers, cut off far above what any plan may use."""
    kept: Integers = np.minimum(np.asarray(size), most).astype(np.int64)
    return kept


def _wide(*columns: Integers) -> list[Any]:
    """
    Turn whole numbers into floats, which cannot wrap around.

    Bytes stay exact up to 2^53; what is larger is cut off far below anyway.
    """
    return [column.astype(np.float64) for column in columns]
