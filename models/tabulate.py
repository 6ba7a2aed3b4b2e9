"""Prices and memory as whole-number tables of the program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optplan.models.builder import LARGEST_TABLE, Builder, too_large
from optplan.models.cost.block import Ranks
from optplan.models.cost.layout import Owned, Place, excess, kept, owned, pieces
from optplan.models.cost.memory import Slice
from optplan.models.cost.schedule import IDLE_IF_SHORT, enough
from optplan.models.cost.surcharges import asked_of, seconds_of
from optplan.models.cost.traffic import crossings, data_inside, hop_seconds, p2p_exposed
from optplan.models.errors import Fault, InputError
from optplan.models.layout import fixed_shape, flying, idle_forms
from optplan.models.pipeline import Pipeline
from optplan.models.program import LARGEST, Integers, Terms
from optplan.models.rules.degrees import SPACE
from optplan.models.spec.framework import SCHEDULES
from optplan.models.spec.problem import Problem
from optplan.models.spec.space import RECOMPUTES
from optplan.models.ticks import LONGEST_TICKS, longest_step, tick_of
from optplan.models.units import LARGEST as LARGEST_QUANTITY

Reals = NDArray[np.float64]

ROOM = 8.0
"""How much slower than a known plan others may be before their price is cut off."""

BEYOND = 16
"""Memory columns stop counting at about this many times a device's memory."""

SELECTIVE = RECOMPUTES.index("selective")

FETCHING = 2
"""ZeRO stages from this on exchange something for every micro-batch."""


@dataclass(frozen=True)
class Priced:
    """
    Prices in floats, as tables over the few choices that each depends on.

    Parameters
    ----------
    busy_keys, states_keys, hop_keys
        Values of those choices, flat arrays.
    busy, held, hops
        Seconds of a micro-batch, states and their exchange, transfers.
    """

    busy_keys: dict[str, Integers]
    busy: dict[str, Reals]
    states_keys: dict[str, Integers]
    held: Owned
    hop_keys: dict[str, Integers]
    hops: dict[str, Reals]


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
    if known is None:
        known = Priced(*_busy(say, problem), *_states(say, problem, places), *_hops(say, problem))
    busy_keys, busy, held, hops = known.busy_keys, known.busy, known.held, known.hops
    batch = float(say.domain["global_batch"].max(initial=1))
    added = _surcharges(say, problem)
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


def _busy(say: Builder, problem: Problem) -> tuple[dict[str, Integers], dict[str, Reals]]:
    """Seconds of one micro-batch on a block and on both ends."""
    names = ("tp", "cp", "context", "ep", "etp", "micro_batch", "recompute", "sequence_parallel")
    columns = grid(say, names)
    keys = dict(zip(names, columns, strict=True))
    # Of recomputation only the attention's core counts here: what is alike is priced once.
    kinds = say.domain["recompute"].tolist()
    stand = [next(k for k in kinds if (k == SELECTIVE) == (kind == SELECTIVE)) for kind in kinds]
    priced = sorted(set(stand))
    if len(priced) == len(kinds):
        return keys, _busy_of(say, problem, keys)
    own = np.isin(keys["recompute"], priced)
    found = _busy_of(say, problem, {name: column[own] for name, column in keys.items()})
    shape = (-1, len(priced), len(say.domain["sequence_parallel"]))
    places = [priced.index(kind) for kind in stand]
    return keys, {
        name: column.reshape(shape)[:, places].reshape(-1) for name, column in found.items()
    }


def _busy_of(say: Builder, problem: Problem, keys: Mapping[str, Integers]) -> dict[str, Reals]:
    """Seconds of a micro-batch under some choices, one after the other."""
    names = ("tp", "cp", "context", "ep", "etp", "micro_batch", "recompute", "sequence_parallel")
    tp, cp, context, ep, etp, b, again, split = (keys[name] for name in names)
    at = Ranks(tp, cp, ep, etp, context, b.astype(np.float64), again == SELECTIVE, split)
    price = pieces(problem, at)
    ahead = problem.calibration.overlap_fsdp * _reals(price.layer.total, tp)
    return ({"layer_ahead": ahead} if _fetches(say) else {}) | {
        "layer_busy": _reals(price.layer.total, tp),
        "forward": _reals(price.layer.forward, tp),
        "weight": _reals(price.layer.weight, tp),
        "again": _reals(price.again.total, tp),
        "front_busy": _reals(price.front.total, tp),
        "back_busy": _reals(price.back.total, tp),
        "beyond_front": _reals(excess(price.front), tp),
        "beyond_back": _reals(excess(price.back), tp),
        "light_over_front": _reals(price.over_front, tp),
        "light_over_back": _reals(price.over_back, tp),
    }


def _reals(seconds: Any, like: Integers) -> Reals:
    """Spread a price over the rows of a table."""
    return np.broadcast_to(np.asarray(seconds, dtype=np.float64), like.shape)


STATE_KEYS = ("tp", "cp", "dp", "neighbours", "ep", "etp", "zero", "hsdp", "offload", "single")


def _states(
    say: Builder, problem: Problem, known: Mapping[str, Integers]
) -> tuple[dict[str, Integers], Owned]:
    """States of a block and of both ends, on every place that data ranks can have."""
    ranks = [known[name] for name in ("tp", "cp", "dp", "neighbours")]
    places = np.stack([*ranks, known["pp"] == 1], axis=1)
    places = np.unique(places.astype(np.int64), axis=0)
    others = [say.domain[n] for n in ("ep", "etp", "zero", "hsdp", "offload")]
    size = len(places) * int(np.prod([len(values) for values in others]))
    if size > LARGEST_TABLE:
        raise too_large("the price table", size, "dp")
    mesh = np.meshgrid(np.arange(len(places)), *others, indexing="ij")
    tp, cp, dp, near, single = places[mesh[0].ravel()].T
    ep, etp, zero, hsdp, offload = (axis.ravel() for axis in mesh[1:])
    fits = tp * cp * dp % (ep * etp) == 0
    columns = [tp, cp, dp, near, ep, etp, zero, hsdp, offload, single]
    keys = {n: column[fits] for n, column in zip(STATE_KEYS, columns, strict=True)}
    return keys, owned(problem, Place(*(keys[n] for n in STATE_KEYS)))


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
        gives[f"once_{end}"] = ticks(_reals(getattr(held, f"once_{end}").total, like))
    gives["once_shared" if problem.surcharges else "once_fixed"] = ticks(
        _reals(held.latency.total, like)
    )
    gives["fetched"] = _bounded(held.fetched, most, like)
    if _fetches(say):
        for end in ("layer", "front", "back"):
            gives[f"fetch_{end}"] = ticks(_reals(getattr(held, f"fetch_{end}"), like))
        # A share of the lesser of two is the lesser of their shares, which tables know already.
        share = problem.calibration.overlap_fsdp
        gives["fetch_behind"] = ticks(share * _reals(held.fetch_layer, like))
    # Rows are missing only where experts do not divide a stage's devices: that rule's word.
    experts = problem.workload.architecture.experts
    say.price("experts.world" if experts else "price.states", keys, gives)


def _fetches(say: Builder) -> bool:
    """Tell whether some plan exchanges weights or gradients for every micro-batch."""
    return bool(say.domain["zero"].max(initial=0) >= FETCHING)


def _hops(say: Builder, problem: Problem) -> tuple[dict[str, Integers], dict[str, Reals]]:
    """Seconds of one transfer between stages and back, whole and as far as it is not hidden."""
    names = ("tp", "cp", "micro_batch", "sequence_parallel")
    columns = grid(say, names)
    tp, cp, b, sp = columns
    near, far = hop_seconds(problem, b.astype(np.float64), tp, cp, sp)
    share = p2p_exposed(problem)
    return dict(zip(names, columns, strict=True)), {
        "hop_near": _reals(near, tp),
        "hop_far": _reals(far, tp),
        "sent_near": share * _reals(near, tp),
        "sent_far": share * _reals(far, tp),
    }


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


def _surcharges(say: Builder, problem: Problem) -> list[tuple[str, dict[str, Integers], Reals]]:
    """Seconds that the user's own reckoning adds to a step: name, the choices' values, seconds."""
    found = []
    for one in problem.surcharges:
        # A time that depends on nothing is a table over whatever has fewest values.
        names = asked_of(one) or ("pp",)
        path = f"surcharges.{one.name}"
        keys = dict(zip(names, grid(say, names, path), strict=True))
        seconds = np.broadcast_to(seconds_of(one, keys), keys[names[0]].shape)
        most = float(seconds.max(initial=0.0))
        if most > LARGEST_QUANTITY:
            wrong = f"it may be {most:.3g} s; at most 2^62 seconds is supported"
            raise InputError([Fault("", path, wrong, "multiply by fewer choices")])
        found.append((path, keys, seconds))
    return found


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
    if _fetches(say):
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
        if _fetches(say):
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


def grid(say: Builder, names: tuple[str, ...], what: str = "the price table") -> list[Integers]:
    """Combine choices whose degrees fit together on the cluster; an array per choice."""
    world = say.spaces["degrees.world"]
    degrees = [n for n in names if n in SPACE]
    pairs = np.unique(world[:, [SPACE.index(n) for n in degrees]], axis=0)
    others = [n for n in names if n not in degrees]
    size = len(pairs) * int(np.prod([len(say.domain[n]) for n in others]))
    if size > LARGEST_TABLE:
        raise too_large(what, size, max(others or names, key=lambda n: len(say.domain[n])))
    index = np.meshgrid(np.arange(len(pairs)), *(say.domain[n] for n in others), indexing="ij")
    columns = {n: pairs[index[0].ravel(), i] for i, n in enumerate(degrees)}
    columns |= {n: axis.ravel() for n, axis in zip(others, index[1:], strict=True)}
    return [columns[n] for n in names]


def _most_bytes(problem: Problem) -> int:
    """Bytes at which memory columns stop counting."""
    return BEYOND << (problem.cluster.accelerator.hbm - 1).bit_length()


def _bounded(size: object, most: int, like: Integers) -> Integers:
    """Bytes as whole numbers, cut off far above what any plan may use."""
    known = np.broadcast_to(np.asarray(size), like.shape)
    kept_: Integers = np.clip(known, -most, most).astype(np.int64)
    return kept_
