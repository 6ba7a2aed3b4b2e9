"""Columns that a pipeline reads, of one point or of many at once."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]
Reals = NDArray[np.float64]

READS = (
    "pp",
    "vpp",
    "micro_batches",
    "recompute",
    "free",
    "chunk",
    "light_first",
    "light_last",
    "folded",
    "schedule",
    "flight_first",
    "flight_slope",
    "layer",
    "forward",
    "weight",
    "again",
    "front",
    "back",
    "over_front",
    "over_back",
    "hop_steady",
    "hop_fill",
    "once_layer",
    "once_front",
    "once_back",
    "once_fixed",
    "weights_layer",
    "weights_front",
    "weights_back",
    "optimizer_layer",
    "optimizer_front",
    "optimizer_back",
    "kept",
    "saved",
    "kept_front",
    "kept_back",
    "fetched",
    "logits",
    "inside",
)
"""Columns that a pipeline reads, see `optplan.models.pipeline.Pipeline`."""

PARTIAL, FULL = 2, 3
"""Codes of recomputation that matter here; 1 keeps every layer as 0 does."""

PARTS = ("weights", "optimizer", "activations")
"""What a stage holds; activations with the working memory of a moment."""

FAR = 2.0**61
"""Stands for a price or a size that no point may have."""


class Floats(dict[str, Reals]):
    """Columns as floats, each turned into one when it is first asked for."""

    def __init__(self, columns: Mapping[str, Integers]) -> None:
        super().__init__()
        self._columns = columns

    def __missing__(self, name: str) -> Reals:
        """Turn one column into floats."""
        self[name] = self._columns[name].astype(np.float64)
        return self[name]


class Columns(dict[str, Integers]):
    """Columns of many points that a pipeline reads, and what is worked out from them once."""

    @cached_property
    def floats(self) -> Floats:
        """Columns as floats: products of bounds far beyond any plan must not wrap around."""
        return Floats(self)

    @cached_property
    def all_free(self) -> bool:
        """Whether every point may hand out layers freely."""
        return bool((self["free"] == 1).all())

    @cached_property
    def no_free(self) -> bool:
        """Whether none may."""
        return bool((self["free"] == 0).all())

    @cached_property
    def schedules(self) -> list[int]:
        """Codes of the schedules of points that are not free."""
        codes, free = np.broadcast_arrays(self["schedule"], self["free"])
        return [int(n) for n in np.unique(codes[free == 0]).tolist()]
