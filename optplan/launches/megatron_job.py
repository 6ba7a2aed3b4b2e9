"""What every option of Megatron is written from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

Option = tuple[str, ...]
"""A flag and its values."""


Groups = dict[str, list[Option]]
"""Options by what they are about; the options of a group stand or fall together."""


@dataclass(frozen=True)
class Job:
    """
    What the options of a plan depend on besides it.

    Parameters
    ----------
    layers, predictions
        Transformer layers and blocks of multi-token prediction.
    experts
        Whether there are experts.
    nodes, node
        Nodes used, and devices of each.
    version
        Of the framework, as numbers.
    """

    layers: int
    predictions: int
    experts: bool
    nodes: int
    node: int
    version: tuple[int, ...]


def numbered(version: str) -> tuple[int, ...]:
    """Return a version as numbers: ``0.15`` before ``0.16.1``."""
    return tuple(int(part) for part in version.split(".") if part.isdigit())


def flat(groups: Groups, names: Sequence[str] = ()) -> list[Option]:
    """Return the options of some groups, or of all."""
    return [one for name in names or groups for one in groups.get(name, [])]
