"""The names and words a limit may use, and what each of them measures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from optplan.models.spec.framework import CONTEXTS, SCHEDULES
from optplan.models.spec.space import ORDERS, RECOMPUTES


class Dimension(Enum):
    """What a value measures; only values of one dimension can be added or compared."""

    NUMBER = "a number"
    BYTES = "a size in bytes"
    SECONDS = "a time in seconds"
    WORD = "one of a few words"
    TRUTH = "true or false"


@dataclass(frozen=True, slots=True)
class Known:
    """What the language knows of one name."""

    dimension: Dimension = Dimension.NUMBER
    alias: str = ""
    words: tuple[str, ...] = ()
    """Words for the codes 0, 1, ...; a name that has words is compared with nothing else."""


NAMES: Final[Mapping[str, Known]] = {
    "tp": Known(alias="t"),
    "pp": Known(alias="p"),
    "dp": Known(alias="d"),
    "cp": Known(),
    "ep": Known(),
    "etp": Known(),
    "vpp": Known(),
    "micro_batch": Known(alias="b"),
    "micro_batches": Known(alias="m"),
    "global_batch": Known(alias="G"),
    "sequence_parallel": Known(Dimension.TRUTH, words=("false", "true")),
    "schedule": Known(Dimension.WORD, words=SCHEDULES),
    "recompute": Known(Dimension.WORD, words=RECOMPUTES),
    "zero": Known(),
    "hsdp": Known(Dimension.TRUTH, words=("false", "true")),
    "context": Known(Dimension.WORD, words=CONTEXTS),
    "order": Known(Dimension.WORD, words=ORDERS),
    "offload": Known(Dimension.TRUTH, words=("false", "true")),
    "devices": Known(),
    "peak_memory": Known(Dimension.BYTES),
    "step_seconds": Known(Dimension.SECONDS),
}
"""Every name a limit may use; a new one needs a line here and nothing else in the language."""

ALIASES: Final = {known.alias: name for name, known in NAMES.items() if known.alias}
WORDS: Final = {word: name for name, known in NAMES.items() for word in known.words}
"""Every word, and a name it belongs to; only truths share their words."""
