"""Kinds of software behind measured runs, and what each does where its table does not say."""

from __future__ import annotations

from pydantic import ValidationError

from optplan.runs.table import Run

FLASH = (
    "nemo",
    "bridge",
    "core",
    "torchtitan",
    "fsdp",
    "llm-foundry",
    "maxtext",
    "pax",
    "neuron",
    "nanotron",
    "internevo",
    "modellink",
    "mindspeed",
    "paddle",
)
"""Stacks whose attention is fused where the table does not say."""

OVERLAPPED = ("nemo", "bridge", "core", "fsdp", "torchtitan", "maxtext", "pax", "pytorch")
"""Stacks that run data-parallel collectives behind computation by default."""

STACKS = (
    ("torchtitan", "torchtitan"),
    ("fsdp", "fsdp"),
    ("llm-foundry", "fsdp"),
    ("maxtext", "xla"),
    ("pax", "xla"),
    ("jax", "xla"),
    ("internevo", "internevo"),
)
"""Words of a framework's name, and the stack they mean."""

STACK_NAMES = ("megatron", "deepspeed", *dict.fromkeys(stack for _, stack in STACKS))
"""Stacks that are told apart."""

SHARDED_SEQUENCE = ("nemo", "bridge", "megatron-core", "modellink", "mindspeed")
"""Stacks that split sequences inside the tensor group where the table does not say."""


class Inexpressible(Exception):
    """A run that no problem can express; the text says why."""


def first_fault(error: ValidationError) -> str:
    """Say in a line what a record refuses."""
    one = error.errors()[0]
    place = ".".join(map(str, one["loc"]))
    return f"{place}: {one['msg'].removeprefix('Value error, ')}".removeprefix(": ")


def stack_of(run: Run) -> str:
    """
    Tell which kind of software a run used, by which calibrations differ.

    ``Megatron-DeepSpeed`` runs on DeepSpeed's own engine where a ZeRO stage is stated; a table
    that states none leaves it open, and Megatron-LM's engine is taken.
    """
    name = run.framework.lower()
    for word, stack in STACKS:
        if word in name:
            return stack
    if "deepspeed" in name and run.zero_stage is not None:
        return "deepspeed"
    return "megatron"


def is_legacy(run: Run) -> bool:
    """Tell whether a run used a Megatron of before its Core."""
    name = run.framework.lower()
    return "megatron" in name and not any(word in name for word in ("core", "bridge", "nemo"))
