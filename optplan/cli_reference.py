"""Commands to look things up: catalogue, rules, schema."""

from __future__ import annotations

import sys
from typing import Annotated, Any

from cyclopts import Parameter

from optplan.flags import Json
from optplan.output import console, dump, write


def catalogue(name: str | None = None, /, *, json: Json = False) -> int:
    """
    List the shipped workloads, accelerators, calibrations and frameworks, or show one with sources.

    Parameters
    ----------
    name
        A name from the list.
    """
    from optplan.report.shelf import describe, listing, show_entry, show_listing

    if name is None:
        found: Any = listing()
        write(dump(found)) if json else show_listing(console(), found)
    else:
        entry = describe(name)
        write(dump(entry)) if json else show_entry(console(), entry)
    return 0


def rules(*, json: Json = False, markdown: Annotated[bool, Parameter(negative="")] = False) -> int:
    """
    List the rules that every plan must obey, with their sources.

    Parameters
    ----------
    markdown
        Print the table as the README shows it.
    """
    from optplan.report.rulebook import markdown as as_markdown
    from optplan.report.rulebook import rulebook, show_rules

    if json:
        write(dump(rulebook()))
    elif markdown:
        sys.stdout.write(as_markdown())
    else:
        show_rules(console())
    return 0


def schema() -> int:
    """Print the JSON schema of a spec, for editors that complete and check it."""
    from optplan.schema import json_schema

    write(dump(json_schema()))
    return 0
