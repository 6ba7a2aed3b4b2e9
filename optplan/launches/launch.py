"""What a launch file asks for, in the words of a plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from optplan.models.record import Record
from optplan.models.spec.plan import Plan
from optplan.models.spec.problem import Problem

Value = bool | int | float | str | tuple[int, ...]
"""A value in a plan's or a spec's own form: ``4``, ``"full"``, ``True``, ``(24, 24, 24, 22)``."""


class Stated(Record):
    """One value that a launch states, or that its framework takes where nothing is stated."""

    name: str
    """
    Name in a plan (``tp``, ``recompute``), in a workload or its architecture (``layers``,
    ``sequence_length``, ``precision``, ``experts.count``, ``latent.kv_rank``, ``lora.rank``) or in
    a cluster (``nodes``, ``devices_per_node``). A launch that names a shape of the catalogue states
    it as ``architecture``; what else it states of the shape changes that one. What a log measured
    is ``measured_step_seconds`` or ``measured_tflops`` (of one device).
    """
    value: Value
    """The value, in the plan's or the spec's own form."""
    written: str
    """How the file says it: ``--tensor-model-parallel-size 8``; for a default, where it is from."""
    line: int = 0
    """Line of the file, counted from 1; 0 for a default."""
    span: tuple[int, int] | None = None
    """
    Characters of the file that hold the literal value and nothing else, first and one past last.

    A script may hold it far from its flag, as ``TP=8`` and ``--tensor-model-parallel-size $TP``.
    None for a default, or where no single place decides the value.
    """


class Remark(Record):
    """A fault that only the dialect can see: a flag that is ignored, refused or misread."""

    rule: str
    """A short name, such as ``megatron.last-stage-alone``."""
    severity: str
    """``error``: the launch stops or trains something else; ``warning``: it wastes or risks."""
    line: int
    """Line of the file, counted from 1; 0 where there is none."""
    problem: str
    """What is wrong, with its numbers."""
    remedy: str
    """What would be right."""


class Launch(Record):
    """A launch file, read."""

    framework: str
    """Name in the catalogue, without the version: ``megatron-core``."""
    version: str = ""
    """Version, where the file tells; empty otherwise."""
    stated: tuple[Stated, ...] = ()
    """Values that the file states, in the order of the file; a later one overrides."""
    assumed: tuple[Stated, ...] = ()
    """Defaults of the framework for what matters and is not stated."""
    overlap: tuple[str, ...] | None = None
    """Features of overlap that are switched on (``spec.framework.Feature``); none: unknown."""
    unread: tuple[str, ...] = ()
    """Flags or keys that mean nothing to a plan."""
    remarks: tuple[Remark, ...] = ()
    """Faults seen while reading."""

    def value(self, name: str) -> Value | None:
        """Return a value as stated, or as assumed, or none."""
        found = self.find(name)
        return None if found is None else found.value

    def find(self, name: str) -> Stated | None:
        """Return the last statement of a value, or its default."""
        for one in (*reversed(self.stated), *self.assumed):
            if one.name == name:
                return one
        return None


class Dialect(Protocol):
    """How one framework, in all its versions, writes down a job."""

    name: str
    """Name of the framework in the catalogue."""

    def recognises(self, text: str) -> bool:
        """Tell whether a file looks like a launch of this framework."""
        ...

    def read(self, text: str) -> Launch:
        """
        Read a launch.

        Raises
        ------
        InputError
            The file cannot be read as one; every fault with line and remedy.
        """
        ...

    def write(self, problem: Problem, plan: Plan, version: str) -> str:
        """
        Write one complete file that launches a plan.

        Reading it back gives the same plan, workload shape and cluster.

        Raises
        ------
        InputError
            This version cannot launch the plan; names the field and the nearest that it can.
        """
        ...

    def amend(self, text: str, changes: Mapping[str, Value]) -> str:
        """Return the file with some values changed, and nothing else touched."""
        ...
