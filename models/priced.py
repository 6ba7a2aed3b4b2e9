"""Prices in floats, as tables over the few choices that each depends on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optplan.models.builder import LARGEST_TABLE, Builder, too_large
from optplan.models.cost.block import Ranks
from optplan.models.cost.layout import Owned, Place, excess, owned, pieces
from optplan.models.cost.surcharges import asked_of, seconds_of
from optplan.models.cost.traffic import hop_seconds, p2p_exposed
from optplan.models.errors import Fault, InputError
from optplan.models.program import Integers
from optplan.models.rules.degrees import SPACE
from optplan.models.spec.problem import Problem
from optplan.models.spec.space import RECOMPUTES
from optplan.models.units import LARGEST as LARGEST_QUANTITY

Reals = NDArray[np.float64]

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
    added
        Surcharges of the user's own: name, values of the choices, seconds.
    """

    busy_keys: dict[str, Integers]
    busy: dict[str, Reals]
    states_keys: dict[str, Integers]
    held: Owned
    hop_keys: dict[str, Integers]
    hops: dict[str, Reals]
    added: list[tuple[str, dict[str, Integers], Reals]]


def price(say: Builder, problem: Problem, places: Mapping[str, Integers]) -> Priced:
    """
    Price all that time is made of, whatever a tick is worth.

    Parameters
    ----------
    places
        Ranks and what of them shares a node, flat arrays.
    """
    busy, states, hops = _busy(say, problem), _states(say, problem, places), _hops(say, problem)
    return Priced(*busy, *states, *hops, _surcharges(say, problem))


BUSY_KEYS = ("tp", "cp", "context", "ep", "etp", "micro_batch", "recompute", "sequence_parallel")
"""Choices that the time of a micro-batch depends on."""


def _busy(say: Builder, problem: Problem) -> tuple[dict[str, Integers], dict[str, Reals]]:
    """Seconds of one micro-batch on a block and on both ends."""
    keys = dict(zip(BUSY_KEYS, grid(say, BUSY_KEYS), strict=True))
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
    tp, cp, context, ep, etp, b, again, split = (keys[name] for name in BUSY_KEYS)
    at = Ranks(tp, cp, ep, etp, context, b.astype(np.float64), again == SELECTIVE, split)
    price = pieces(problem, at)
    ahead = problem.calibration.overlap_fsdp * reals(price.layer.total, tp)
    return ({"layer_ahead": ahead} if fetches(say) else {}) | {
        "layer_busy": reals(price.layer.total, tp),
        "forward": reals(price.layer.forward, tp),
        "weight": reals(price.layer.weight, tp),
        "again": reals(price.again.total, tp),
        "front_busy": reals(price.front.total, tp),
        "back_busy": reals(price.back.total, tp),
        "beyond_front": reals(excess(price.front), tp),
        "beyond_back": reals(excess(price.back), tp),
        "light_over_front": reals(price.over_front, tp),
        "light_over_back": reals(price.over_back, tp),
    }


def reals(seconds: Any, like: Integers) -> Reals:
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


def fetches(say: Builder) -> bool:
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
        "hop_near": reals(near, tp),
        "hop_far": reals(far, tp),
        "sent_near": share * reals(near, tp),
        "sent_far": share * reals(far, tp),
    }


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
