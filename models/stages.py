"""A pipeline's layers handed out to its stages: the one global statement of the language."""

from __future__ import annotations

from dataclasses import dataclass

ALIKE = 3
"""Mode in which every stage computes as many layers again."""


@dataclass(frozen=True)
class Share:
    """
    One pipeline whose layers are to be shared out, in whole numbers.

    Stage ``i`` takes ``l_i`` layers, of which ``r_i <= l_i`` are computed again in the backward
    pass. With ``x_i = layer l_i + again r_i`` (+ ``front`` on the first, ``back`` on the last
    stage) a step takes

        ``turns max_i x_i + sum_i x_i + max_i (once_layer l_i + once_front/back) + fixed``

    and a device of stage ``i``, holding ``n_i = min(flight_most, flight_first - flight_slope i)``
    micro-batches, needs

        ``state_layer l_i + state_front/back + n_i (kept l_i - saved r_i) + w_i``

    bytes, ``w_i`` being the largest of ``working``, on the last stage ``working_last``, and where
    ``r_i > 0`` ``inside``. No stage may need more than ``room``.

    Parameters
    ----------
    stages
        Stages p, at least 1. With one stage front and back both fall on it.
    layers
        Layers to hand out, all of them.
    least, most
        Fewest and most layers of a stage.
    least_first
        Fewest layers of the first stage, at least ``least``.
    mode
        0: no layer is computed again; 1: any number per stage; 2: all of them; 3: as many on every
        stage, or all of a stage that holds no more (`ALIKE`).
    each
        Under mode 3, how many; any number where it is None.
    """

    stages: int
    layers: int
    least: int
    most: int
    least_first: int
    mode: int
    turns: int
    layer: int
    again: int
    front: int
    back: int
    once_layer: int
    once_front: int
    once_back: int
    fixed: int
    room: int
    state_layer: int
    state_front: int
    state_back: int
    kept: int
    saved: int
    working: int
    working_last: int
    inside: int
    flight_first: int
    flight_slope: int
    flight_most: int
    each: int | None = None

    def in_flight(self, stage: int) -> int:
        """Micro-batches that a stage holds at once."""
        return min(self.flight_most, self.flight_first - self.flight_slope * stage)

    def seconds(self, stage: int, layers: int, again: int) -> int:
        """Ticks of one micro-batch on a stage."""
        ends = self.front * (stage == 0) + self.back * (stage == self.stages - 1)
        return self.layer * layers + self.again * again + ends

    def once(self, stage: int, layers: int) -> int:
        """Ticks that a stage spends once a step."""
        ends = self.once_front * (stage == 0) + self.once_back * (stage == self.stages - 1)
        return self.once_layer * layers + ends

    def held(self, stage: int, layers: int, again: int) -> int:
        """Bytes that a device of a stage needs."""
        first, last = stage == 0, stage == self.stages - 1
        states = self.state_layer * layers + self.state_front * first + self.state_back * last
        flying = self.in_flight(stage) * (self.kept * layers - self.saved * again)
        moment = max(self.working, self.working_last * last, self.inside * (again > 0))
        return states + flying + moment

    def step(self, layers: tuple[int, ...], again: tuple[int, ...]) -> int:
        """Ticks of a step for one way of sharing out."""
        busy = [self.seconds(i, *pair) for i, pair in enumerate(zip(layers, again, strict=True))]
        once = max(self.once(i, held) for i, held in enumerate(layers))
        return self.turns * max(busy) + sum(busy) + once + self.fixed

    def peak(self, layers: tuple[int, ...], again: tuple[int, ...]) -> int:
        """Bytes of the fullest device for one way of sharing out."""
        return max(self.held(i, *pair) for i, pair in enumerate(zip(layers, again, strict=True)))
