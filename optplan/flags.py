"""Flags that several commands share."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

Sets = Annotated[
    tuple[str, ...],
    Parameter(name="--set", negative="", help="Put a value over the spec's: tp=8, nodes=4."),
]
Limits = Annotated[
    tuple[str, ...],
    Parameter(name="--limit", negative="", help="Add a condition: 'pp * tp <= 32'."),
]
Json = Annotated[bool, Parameter(name="--json", negative="", help="Print JSON and nothing else.")]
Verbose = Annotated[
    bool,
    Parameter(
        name=("--verbose", "-v"), negative="", help="Log each step of the road on standard error."
    ),
]
Rules = Annotated[
    tuple[str, ...],
    Parameter(
        name="--rules",
        negative="",
        help="Python file with rules of your own; none leaves out those of installed packages.",
    ),
]
