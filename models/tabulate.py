"""Prices and memory as whole-number tables of the program."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from optplan.models.builder import Builder
from optplan.models.cost.layout import Owned, kept
from optplan.models.cost.memory import Slice
from optplan.models.cost.schedule import IDLE_IF_SHORT, enough
from optplan.models.cost.traffic import crossings, data_inside
from optplan.models.layout import fixed_shape, flying, idle_forms
from optplan.models.pipeline import Pipeline
from optplan.models.priced import SELECTIVE, Priced, fetches, grid, price, reals
from optplan.models.program import LARGEST, Integers, Terms
from optplan.models.rules.degrees import SPACE
from optplan.models.spec.framework import SCHEDULES
from optplan.models.spec.problem import Problem
from optplan.models.ticks import LONGEST_TICKS, longest_step, tick_of

ROOM = 8.0
"""How much slower than a known plan others may be before their price is cut off."""

BEYOND = 16
"""Memory columns stop counting at about this many times a device's memory."""


def post_prices(
    say: Builder, problem: Problem, near: float | None = None, known: Priced | None = None
) -> Priced:
    """
    Tabulate what time and memory of a step are made of, and say how they add up.

    Seconds are rounded down to whole ticks; the program's optimum is a bound from below but for a
    few ticks, where what is hidden or split off is subtracted (`blurred`). Bytes are exact.
    Every table is over the few choices that it depends on.

    Parameters
    ----------
    near
        Seconds per sequence of a plan that is known to be possible. The tick is then as fine as
        that plan deserves; without it the tick is as fine as the slowest legal plan allows.
    known
        What came of the same problem before, on other ticks.

    Returns
    -------
    Priced
        The same in floats.
    """
    places = _places(say, problem)
    known = known or price(say, problem, places)
    busy_keys, busy, held, hops = known.busy_keys, known.busy, known.held, known.hops
    batch = float(say.domain["global_batch"].max(initial=1))
    added = known.added
    longest = longest_step(problem, busy_keys, busy, held, hops, batch)
    longest += sum(float(seconds.max(initial=0.0)) for _, _, seconds in added)
    if near is not None:
        longest = min(longest, ROOM * batch * near)
    say.tick = tick_of(longest)
    unit = float(say.tick)

    def ticks(seconds: Any) -> Integers:
        # What is slower than any plan worth telling apart need not be exact.
        return np.minimum(np.floor(np.asarray(seconds) / unit), 2.0**52).astype(np.int64)

    say.price("price.micro_batch", busy_keys, {name: ticks(s) for name, s in busy.items()})
    _price_states(say, problem, known.states_keys, held, ticks)
    if added:
        terms: list[tuple[int, str]] = [(1, "once_shared")]
        for index, (name, keys, seconds) in enumerate(added):
            column = f"surcharge_{index}"
            say.price(name, keys, {column: ticks(seconds)})
            terms.append((1, column))
        say.sum("price.surcharges", "once_fixed", tuple(terms))
    _price_hops(say, problem, known.hop_keys, {name: ticks(s) for name, s in hops.items()})
    _activations(say, problem)
    _shapes(say, problem)
    _ends(say, problem)
    say.pipeline(_pipeline(problem))
    return known


def _places(say: Builder, problem: Problem) -> dict[str, Integers]:
    """Tabulate how many data ranks share a node, and which stages meet over the network."""
    rows = say.spaces["degrees.world"]
    columns = dict(zip(SPACE, rows.T, strict=True))
    tp, pp, dp, cp, order = (columns[n] for n in ("tp", "pp", "dp", "cp", "order"))
    keys = np.stack([tp, pp, dp, cp, order], axis=1)
    keys = np.unique(keys, axis=0)
    tp, pp, dp, cp, order = keys.T
    place = dict(zip(("tp", "pp", "dp", "cp", "order"), keys.T, strict=True))
    neighbours = np.asarray(data_inside(problem, tp, pp, dp, cp, order))
    crossing = np.asarray(crossings(problem, tp, pp, dp, cp, order))
    say.price("place.nodes", place, {"neighbours": neighbours, "crossing": crossing})
    if len(problem.goals) > 1 or (
        problem.main_goal in ("cheapest", "least-energy") and problem.cluster.held != "all"
    ):
        _devices(say, problem, place)
    pps = say.domain["pp"]
    say.price("place.single", {"pp": pps}, {"single": (pps == 1).astype(np.int64)})
    return place | {"neighbours": neighbours}


def _devices(say: Builder, problem: Problem, place: Mapping[str, Integers]) -> None:
    """Tabulate the devices in use, and those that are held meanwhile."""
    keys = np.unique(np.stack([place[n] for n in ("tp", "pp", "dp", "cp")], axis=1), axis=0)
    used: Integers = keys.prod(axis=1)
    held = problem.cluster.held_devices(used)
    columns = dict(zip(("tp", "pp", "dp", "cp"), keys.T, strict=True))
    say.price("price.devices", columns, {"used": used, "held": held})


def _price_states(
    say: Builder, problem: Problem, keys: Mapping[str, Integers], held: Owned, ticks: Any
) -> None:
    """Post bytes and seconds of states."""
    most = _most_bytes(problem)
    like = keys["tp"]
    gives: dict[str, Integers] = {}
    for end in ("layer", "front", "back"):
        part = getattr(held, end)
        gives[f"weights_{end}"] = _bounded(part.parameters + part.gradients, most, like)
        gives[f"optimizer_{end}"] = _bounded(part.optimizer, most, like)
        if problem.cluster.host is not None:
            gives[f"host_{end}"] = _bounded(part.host, most, like)
        gives[f"once_{end}"] = ticks(reals(getattr(held, f"once_{end}").total, like))
    gives["once_shared" if problem.surcharges else "once_fixed"] = ticks(
        reals(held.latency.total, like)
    )
    gives["fetched"] = _bounded(held.fetched, most, like)
    if fetches(say):
        for end in ("layer", "front", "back"):
            gives[f"fetch_{end}"] = ticks(reals(getattr(held, f"fetch_{end}"), like))
        # A share of the lesser of two is the lesser of their shares, which tables know already.
        share = problem.calibration.overlap_fsdp
        gives["fetch_behind"] = ticks(share * reals(held.fetch_layer, like))
    # Rows are missing only where experts do not divide a stage's devices: that rule's word.
    experts = problem.workload.architecture.experts
    say.price("experts.world" if experts else "price.states", keys, gives)


def _price_hops(
    say: Builder, problem: Problem, keys: Mapping[str, Integers], gives: Mapping[str, Integers]
) -> None:
    """
    Add up transfers: all boundaries once to fill and drain, the slowest one for every micro-batch.

    Interleaved stages send ``vpp`` times as often.
    """
    say.price("price.hop", keys, gives)
    say.sum("price.hop", "inner", ((1, "pp"), (-1, "crossing")), -1)
    say.multiply("price.hop", "fill_near", "inner", "hop_near", most=LARGEST // 2)
    say.multiply("price.hop", "fill_far", "crossing", "hop_far", most=LARGEST // 2)
    say.sum("price.hop", "hop_fill", ((1, "fill_near"), (1, "fill_far")))
    say.truth("price.hop", "crosses", ((1, "crossing"),), low=1)
    say.truth("price.hop", "several", ((1, "pp"),), low=2)
    say.sum("price.hop", "hop_more", ((1, "sent_far"), (-1, "sent_near")))
    say.multiply("price.hop", "more", "crosses", "hop_more")
    say.sum("price.hop", "hop", ((1, "sent_near"), (1, "more")))
    say.multiply("price.hop", "hop_once", "several", "hop")
    say.multiply("price.hop", "hop_steady", "vpp", "hop_once")


def _activations(say: Builder, problem: Problem) -> None:
    """Tabulate the activations of one micro-batch."""
    most = _most_bytes(problem)
    names = ("tp", "cp", "micro_batch", "sequence_parallel", "recompute")
    columns = grid(say, names)
    tp, cp, b, sp, again = columns
    at = Slice(tp, cp, b, sp, again == SELECTIVE)
    price = kept(problem, at)
    gives = {
        "kept": price.kept,
        "saved": price.saved,
        "kept_front": price.front,
        "kept_back": price.back,
        "inside": price.inside,
        "logits": price.logits,
    }
    say.price(
        "memory.activations",
        dict(zip(names, columns, strict=True)),
        {name: _bounded(size, most, tp) for name, size in gives.items()},
    )


def _shapes(say: Builder, problem: Problem) -> None:
    """Tabulate chunks, and what stages keep."""
    rows = say.spaces["pipeline.schedule"]
    pp, vpp, schedule = rows.T if len(rows) else np.empty((3, 0), dtype=np.int64)
    shape = fixed_shape(problem, pp, vpp, schedule)
    first, slope = flying(pp, vpp, schedule)
    keys = {"pp": pp, "vpp": vpp, "schedule": schedule}
    keys = {name: column[shape.legal] for name, column in keys.items()}
    gives = {
        "free": shape.free,
        "chunk": shape.chunk,
        "light_first": shape.light_first,
        "light_last": shape.light_last,
        "folded": shape.folded,
        "flight_first": first,
        "flight_slope": slope,
    }
    # Layers that cannot be laid out have no price: that rule's word.
    gives = {name: column[shape.legal] for name, column in gives.items()}
    say.price("pipeline.layers", keys, gives)


def blurred(problem: Problem, micro_batches: int) -> int:
    """
    Ticks by which whole ticks may misprice a step.

    Every price is rounded down by less than one tick, and added up at most this often: by
    micro-batches and by stages, for each layer, what it recomputes, and a few parts of the ends.
    """
    layers = problem.workload.architecture.layers
    return (micro_batches + 3 * layers) * (3 * layers + 12)


def _ends(say: Builder, problem: Problem) -> None:
    """Add to blocks and ends what their weights exchange, and what ends take beyond a chunk."""
    if fetches(say):
        say.smallest("price.fetch", "fetch_hidden", ("fetch_behind", "layer_ahead"))
        parts: Terms = ((1, "layer_busy"), (1, "fetch_layer"), (-1, "fetch_hidden"))
        say.sum("price.fetch", "layer", parts)
        for end in ("front", "back"):
            say.sum("price.fetch", end, ((1, f"{end}_busy"), (1, f"fetch_{end}")))
    else:
        for name in ("layer", "front", "back"):
            say.sum("price.fetch", name, ((1, f"{name}_busy"),))
    for end, light in (("front", "light_first"), ("back", "light_last")):
        name = f"price.over_{end}"
        say.sum(name, f"{light}_less", ((1, f"light_over_{end}"), (-1, f"beyond_{end}")))
        say.multiply(name, f"{light}_change", light, f"{light}_less")
        terms = [(1, f"beyond_{end}"), (1, f"{light}_change")]
        if fetches(say):
            terms.append((1, f"fetch_{end}"))
        say.sum(name, f"over_{end}", tuple(terms))


def _pipeline(problem: Problem) -> Pipeline:
    """Say how layers are handed out and what comes of it."""
    shape, search = problem.workload.architecture, problem.search
    wanted = search.layers_per_stage
    framework = problem.framework
    even = wanted == "even" or problem.prices == "paper"
    even = even or (framework is not None and not framework.uneven_layers)
    few = []
    for word in SCHEDULES:
        slope = int(enough(word, 3)) - int(enough(word, 2))
        few.append((slope, int(enough(word, 1)), IDLE_IF_SHORT.get(word, 0)))
    return Pipeline(
        name="price.step_time",
        layers=shape.layers,
        least_first=shape.experts.leading_dense if shape.experts else 0,
        even=even and not isinstance(wanted, tuple),
        alike=framework is not None and framework.recompute_alike,
        given=wanted if isinstance(wanted, tuple) else (),
        room=problem.cluster.accelerator.hbm - problem.calibration.reserve,
        reserve=problem.calibration.reserve,
        paper=problem.prices == "paper",
        most=2 * LONGEST_TICKS,
        most_bytes=_most_bytes(problem),
        idle=idle_forms(),
        few=tuple(few),
    )


def _most_bytes(problem: Problem) -> int:
    """Bytes at which memory columns stop counting."""
    return BEYOND << (problem.cluster.accelerator.hbm - 1).bit_length()


def _bounded(size: object, most: int, like: Integers) -> Integers:
    """Bytes as whole numbers, cut off far above what any plan may use."""
    known = np.broadcast_to(np.asarray(size), like.shape)
    kept_: Integers = np.clip(known, -most, most).astype(np.int64)
    return kept_
