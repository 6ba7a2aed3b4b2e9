"""Time and memory of many pipelines at once: exact where chunks are equal, bounds where not."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from optplan.models.columns import (
    FAR,
    FULL,
    PARTIAL,
    PARTS,
    Columns,
    Integers,
    Reals,
)


class Many:
    """
    What a pipeline makes of whole arrays of points; columns broadcast against each other.

    The fields are those of `optplan.models.pipeline.Pipeline`.
    """

    layers: int
    least_first: int
    paper: bool
    even: bool
    given: tuple[int, ...]
    idle: tuple[tuple[tuple[int, ...], ...], ...]
    few: tuple[tuple[int, int, int], ...]

    # -- many points -----------------------------------------------------------------------------

    def uniform_many(self, c: Columns, each: Integers) -> Reals:
        """Ticks of points that are not free, exact while below 2^53."""
        f = c.floats
        p, m = f["pp"], f["micro_batches"]
        busy = m * f["vpp"] * (f["chunk"] * f["layer"] + each * f["again"])
        ends = m * (f["over_front"] + f["over_back"] + f["hop_steady"]) + f["hop_fill"]
        first, middle, last = self._held_layers(f)
        alone = (f["folded"] > 0) | (p == 1)
        on_first = f["once_layer"] * first + f["once_front"]
        on_last = f["once_layer"] * last + f["once_back"]
        once = np.maximum(
            np.where(alone, on_first + f["once_back"], np.maximum(on_first, on_last)),
            f["once_layer"] * middle * ((p > 2) | (alone & (p > 1))),
        )
        step: Reals = busy + self._idle(c, each) + (ends + once + f["once_fixed"])
        return step

    def _idle(self, c: Columns, each: Integers) -> Reals:
        """Ticks that a step of equal chunks has beyond its work."""
        f = c.floats
        q = f["pp"] - 1
        forward, weight = f["chunk"] * f["forward"], f["chunk"] * f["weight"]
        inputs = f["chunk"] * f["layer"] - forward - weight + each * f["again"]
        total: Reals = np.zeros((1,) * np.ndim(q))
        for code in c.schedules:
            spent: Reals = np.zeros((1,) * np.ndim(q))
            for f1, f0, b1, b0, w1, w0 in self.idle[code]:
                form: Reals = np.zeros((1,) * np.ndim(q))
                for a, b, passes in ((f1, f0, forward), (b1, b0, inputs), (w1, w0, weight)):
                    if a or b:
                        form = form + (a * q + b) * passes
                spent = np.maximum(spent, form)
            n1, n0, k = self.few[code]
            if k:
                enough = f["micro_batches"] >= n1 * q + n0
                if not enough.all():
                    few = np.maximum(spent, k * q * (forward + inputs))
                    spent = np.where(enough, spent, few)
            total = (
                spent if len(c.schedules) == 1 else np.where(c["schedule"] == code, spent, total)
            )
        return total

    def _held_layers(self, f: Mapping[str, Reals]) -> tuple[Reals, Reals, Reals]:
        """Layers of the first, a middle and the last stage where they are fixed."""
        held = f["vpp"] * f["chunk"]
        folded = f["folded"] > 0
        first = held - f["light_first"] - np.where(folded, f["light_last"], 0.0)
        last = held - np.where(folded, 0.0, f["light_last"])
        return np.where(f["pp"] == 1, 0.0 * held + self.layers, first), held, last

    def peak_many(self, c: Columns, each: Integers | Reals) -> Reals:
        """Bytes, reserve and fetched weights aside, of the fullest stage of points not free."""
        f = c.floats
        p, m = f["pp"], f["micro_batches"]
        first, middle, last = self._held_layers(f)
        alone = (f["folded"] > 0) | (p == 1)
        layer, front, back = self._states(f, PARTS)
        per_chunk = f["chunk"] * f["kept"] - each * f["saved"]
        most = m * f["vpp"]
        start, slope = f["flight_first"], f["flight_slope"]
        on_0 = np.minimum(most, start)
        on_1, on_end = np.minimum(most, start - slope), np.minimum(most, start - slope * (p - 1))
        again = np.where(each > 0, f["inside"], 0.0)
        tail = np.maximum(f["logits"], again)
        back = back + f["kept_back"] * np.minimum(m, np.where(alone, on_0, on_end))
        states = layer * first + front + f["kept_front"] * np.minimum(m, start)
        states = states + np.where(alone, back, 0.0)
        peak = states + on_0 * per_chunk + np.where(alone, tail, again)
        if not alone.all():
            ends = layer * last + back + on_end * per_chunk + tail
            peak = np.maximum(peak, np.where(alone, 0.0, ends))
        middles = layer * middle + on_1 * per_chunk + again
        return np.maximum(peak, np.where((p > 2) | (alone & (p > 1)), middles, 0.0))

    def _states(self, f: Mapping[str, Reals], parts: tuple[str, ...]) -> tuple[Reals, Reals, Reals]:
        """Bytes of states of a layer, of the front and of the back, as far as they count."""
        none = np.zeros((1,) * np.ndim(f["pp"]))
        known = [part for part in parts if part != "activations"]
        layer, front, back = (
            sum((f[f"{part}_{end}"] for part in known), start=none)
            for end in ("layer", "front", "back")
        )
        return layer, front, back

    def least_again(self, c: Columns, room: Reals | float) -> Reals:
        """
        Fewest layers per chunk to recompute so that points that are not free fit; ``FAR`` if none.

        Memory falls with each layer recomputed, but the first one needs room to do it in.
        """
        chunk, code = c.floats["chunk"], c["recompute"]
        limit = room - c.floats["fetched"]
        none, all_ = self.peak_many(c, 0.0 * chunk), self.peak_many(c, chunk)
        low, high = np.ones_like(chunk), chunk.copy()
        for _ in range(int(np.ceil(np.log2(chunk.max(initial=1) + 1))) + 1):
            middle = np.floor((low + high) / 2)
            ok = self.peak_many(c, middle) <= limit
            high = np.where(ok & (low < high), middle, high)
            low = np.where(~ok & (low < high), np.minimum(middle + 1, high), low)
        some = np.where(none <= limit, 0.0, np.where(all_ <= limit, high, FAR))
        full = np.where(all_ <= limit, chunk, FAR)
        plain = np.where(none <= limit, 0.0, FAR)
        return np.where(code == PARTIAL, some, np.where(code == FULL, full, plain))

    # -- bounds ----------------------------------------------------------------------------------

    def quick_step(self, c: Columns) -> Reals:
        """
        Ticks below which no way of handing out can bring a step, memory no object.

        Stages are at best perfectly even, and at best nothing is recomputed but where all is.
        Exact for points that are not free and do not have to recompute.
        """
        if c.no_free:
            return self.uniform_many(c, np.where(c["recompute"] == FULL, c["chunk"], 0))
        free = self._free_step(c)
        if c.all_free:
            return free
        fixed = self.uniform_many(c, np.where(c["recompute"] == FULL, c["chunk"], 0))
        return np.where(c["free"] == 1, free, fixed)

    def _free_step(self, c: Columns) -> Reals:
        """Bound the ticks of points that are free."""
        f = c.floats
        p, m = f["pp"], f["micro_batches"]
        whole = (c["recompute"] == FULL).astype(np.float64)
        layer = f["layer"] + whole * f["again"]
        total = self.layers * layer + f["front"] + f["back"]
        most = np.ceil(self.layers / p)
        ends = np.minimum(0.0, f["front"]) + np.where(p == 1, f["back"], 0.0)
        slowest = np.maximum(total / p, layer * most + ends)
        once = f["once_layer"] * most + np.minimum(0.0, f["once_front"]) + f["once_fixed"]
        step: Reals = (m - 1) * slowest + total + (once + (f["hop_fill"] + m * f["hop_steady"]))
        return step + (p - 1) * f["back"] if self.paper else step

    def quick_peak(self, c: Columns, parts: tuple[str, ...] = PARTS) -> Reals:
        """
        Bytes, reserve aside, below which no way of handing out can bring the fullest stage.

        All that is held, spread evenly over the stages, each with one micro-batch in flight. Exact
        for points that are not free where all parts count.
        """
        if parts != PARTS:
            return self.even_peak(c, parts)
        if c.no_free:
            return self._fixed_peak(c)
        free = self.even_peak(c, parts)
        return free if c.all_free else np.where(c["free"] == 1, free, self._fixed_peak(c))

    def even_peak(self, c: Columns, parts: tuple[str, ...] = PARTS) -> Reals:
        """Bytes of an even share of all that is held, one micro-batch in flight on each stage."""
        f, code = c.floats, c["recompute"]
        state, front, back = self._states(f, parts)
        if "activations" in parts:
            state = state + f["kept"] - np.where(code >= PARTIAL, f["saved"], 0.0)
        return (self.layers * state + front + back) / f["pp"]

    def _fixed_peak(self, c: Columns) -> Reals:
        """Bytes of points that are not free, recomputing whatever helps."""
        code = c["recompute"]
        peak = self.peak_many(c, np.where(code >= PARTIAL, c["chunk"], 0))
        if not (code == PARTIAL).any():
            return peak
        keeping = self.peak_many(c, 0 * c["chunk"])
        return np.where(code == PARTIAL, np.minimum(peak, keeping), peak)

    def sure_peak(self, c: Columns, parts: tuple[str, ...] = PARTS) -> Reals:
        """Bytes within which even stages certainly stay, reserve aside; ``FAR`` if not free."""
        f, code = c.floats, c["recompute"]
        most = np.maximum(np.ceil(self.layers / f["pp"]), self.least_first)
        state, front, back = self._states(f, parts)
        free = most * state + np.maximum(front, 0.0) + np.maximum(back, 0.0)
        if "activations" in parts:
            flying = np.minimum(f["micro_batches"], f["flight_first"])
            saved = np.where(code >= PARTIAL, f["saved"], 0.0)
            free = free + most * flying * (f["kept"] - saved)
            free = free + np.maximum(f["logits"], np.where(code >= PARTIAL, f["inside"], 0.0))
            free = free + flying * f["kept_front"] + f["kept_back"]
        return np.where((c["free"] == 1) & (not self.even) & (not self.given), free, FAR)
