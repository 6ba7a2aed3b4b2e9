"""Random pipelines to share out, and their best ways by listing every way."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import product

from optplan.models.stages import Share

Way = tuple[tuple[int, ...], tuple[int, ...]]


def small(seed: int) -> Share:
    """One that `ways` can list: few stages, few layers, numbers small enough for ties."""
    rng = random.Random(seed)
    stages = rng.randint(1, 4)
    layers = rng.randint(stages - (rng.random() < 0.3), 6)
    return drawn(rng, stages, layers, rng.choice([3, 10, 1000]))


def large(seed: int) -> Share:
    """One of up to 12 stages and 40 layers, half of them with the numbers of a real machine."""
    rng = random.Random(seed)
    stages = rng.randint(1, 12)
    layers = rng.randint(stages, 40)
    if rng.random() < 0.5:
        return drawn(rng, stages, layers, rng.choice([5, 100, 10**6]))
    return real(rng, stages, layers)


def drawn(rng: random.Random, stages: int, layers: int, size: int) -> Share:
    """Any numbers up to a size, each zero now and then, the room often tight."""

    def some(zero: float = 0.2) -> int:
        return 0 if rng.random() < zero else rng.randint(0, size)

    kept, layer = some(0.1), some(0.1)
    least = rng.choice([0, 1, 1, 1, 2])
    most = rng.choice([layers, layers, rng.randint(1, max(layers, 1))])
    slope = rng.choice([0, 1, 1, 2])
    flight = rng.randint(1, 2 * stages) + slope * (stages - 1)
    share = Share(
        stages=stages,
        layers=layers,
        least=least,
        most=max(most, least),
        least_first=least + rng.choice([0, 0, 1]),
        mode=rng.choice([0, 1, 1, 1, 2, 3, 3]),
        turns=rng.choice([0, 1, rng.randint(0, 40)]),
        layer=layer,
        again=min(some(), rng.choice([layer, size])),
        front=rng.choice([some(), -rng.randint(0, layer)]),
        back=some(),
        once_layer=some(0.4),
        once_front=some(0.5),
        once_back=some(0.5),
        fixed=some(),
        room=0,
        state_layer=some(),
        state_front=rng.choice([some(), -some()]),
        state_back=some(),
        kept=kept,
        saved=rng.choice([0, kept, rng.randint(0, kept), rng.randint(0, kept)]),
        working=some(),
        working_last=some(),
        inside=some(),
        flight_first=flight,
        flight_slope=slope,
        flight_most=rng.choice([10**6, rng.randint(1, flight)]),
    )
    return roomed(rng, share)


def real(rng: random.Random, stages: int, layers: int) -> Share:
    """Ticks of a nanosecond and bytes, in the proportions of a transformer on a device."""
    layer = rng.randint(10**6, 10**8)
    kept = rng.randint(10**7, 2 * 10**9)
    state = rng.randint(10**8, 2 * 10**10)
    batches = stages * rng.choice([1, 1, 2, 4, 8])
    share = Share(
        stages=stages,
        layers=layers,
        least=1,
        most=layers,
        least_first=1,
        mode=rng.choice([0, 1, 1, 1, 2, 3, 3]),
        turns=batches - 1,
        layer=layer,
        again=layer // rng.choice([3, 4]),
        front=rng.choice([layer // 50, -layer // 3]),
        back=rng.randint(layer // 10, 2 * layer),
        once_layer=rng.choice([0, layer // 5, 3 * layer]),
        once_front=rng.randint(0, layer),
        once_back=rng.randint(0, layer),
        fixed=rng.randint(0, 10**7),
        room=0,
        state_layer=state,
        state_front=rng.choice([state // 2, -state // 4]),
        state_back=state // 2,
        kept=kept,
        saved=kept - kept // rng.choice([10, 20, 34]),
        working=kept // 4,
        working_last=kept,
        inside=kept,
        flight_first=min(stages, batches),
        flight_slope=1,
        flight_most=batches,
    )
    return roomed(rng, share)


def real_of(seed: int, stages: int, layers: int) -> Share:
    """One with the numbers of a real machine, of so many stages and layers."""
    return real(random.Random(seed), stages, layers)


def roomed(rng: random.Random, share: Share) -> Share:
    """Choose a room between what the even way needs with all and with nothing computed again."""
    parts, rest = divmod(share.layers, share.stages)
    even = tuple(parts + (i < rest) for i in range(share.stages))
    plain = share.peak(even, (0,) * share.stages)
    again = share.peak(even, even)
    low, high = sorted((plain, again))
    spare = (high - low) // 8
    room = rng.choice([2 * abs(high) + 10, rng.randint(low - spare, high), rng.randint(low, high)])
    return Share(**{**vars(share), "room": room})


def ways(share: Share) -> Iterator[Way]:
    """Every way within the room, one by one."""
    counts = [
        range(share.least_first if i == 0 else share.least, share.most + 1)
        for i in range(share.stages)
    ]
    for layers in product(*counts):
        if sum(layers) != share.layers:
            continue
        picks = {0: [(0,) * share.stages], 2: [layers]}.get(share.mode)
        if share.mode == 3:
            every = (tuple(min(n, held) for held in layers) for n in range(max(layers) + 1))
            picks = list(dict.fromkeys(every))
        for again in picks or product(*(range(held + 1) for held in layers)):
            if share.peak(layers, again) <= share.room:
                yield layers, again


def order(share: Share, way: Way) -> tuple[object, ...]:
    """What `share_out` is to minimise, ties in their order."""
    layers, again = way
    seconds = max(share.seconds(i, *pair) for i, pair in enumerate(zip(layers, again, strict=True)))
    once = max(share.once(i, held) for i, held in enumerate(layers))
    even = sum(held**2 for held in layers)
    return share.step(*way), share.peak(*way), seconds, once, sum(again), even, layers, again
