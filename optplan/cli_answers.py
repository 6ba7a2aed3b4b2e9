"""Commands that answer questions: explain, size."""

from __future__ import annotations

import re
from typing import Annotated

from cyclopts import Parameter

from optplan.arguments import choices, job, seconds
from optplan.flags import Json, Limits, Rules, Sets, Verbose
from optplan.output import console, write


def explain(
    spec: str,
    /,
    *,
    why_not: Annotated[str | None, Parameter(name="--why-not")] = None,
    flips: Annotated[bool, Parameter(negative="")] = False,
    json: Json = False,
    set: Sets = (),
    limit: Limits = (),
    rules: Rules = (),
    time_limit: str | None = None,
    verbose: Verbose = False,
) -> int:
    """
    Say what stands in the way of a faster plan, or of any, and what each way out would buy.

    Parameters
    ----------
    spec
        Path of the YAML file.
    why_not
        A plan to compare with, full or partial: tp=4,pp=8.
    flips
        Find where the recommendation changes when links, network, memory or a constant of the
        calibration do.
    time_limit
        Stop looking for the best plan after this time: 60s, 5min.
    """
    from pathlib import Path

    limited = seconds(time_limit)
    asked = None if why_not is None else choices(_split(why_not))
    from optplan.explain import explain as run
    from optplan.own_rules import asked_rules
    from optplan.report.answers import show_answer
    from optplan.report.progress import Watch

    own = asked_rules(rules).load()
    with Watch(quiet=json, verbose=verbose) as watch:
        answer = run(
            Path(spec),
            why_not=asked,
            flips=flips,
            sets=set,
            limits=limit,
            rules=own,
            time_limit=limited,
            progress=watch.tell,
            say=watch.say,
        )
    if json:
        write(answer.to_json())
    else:
        show_answer(console(), answer)
    return answer.exit_code


def size(
    spec: str,
    /,
    *,
    on: str = "",
    tokens: str | None = None,
    by: str | None = None,
    within: str | None = None,
    start: str | None = None,
    most_nodes: int | None = None,
    at_hand: Annotated[bool, Parameter(negative="")] = False,
    json: Json = False,
    set: Sets = (),
    limit: Limits = (),
    rules: Rules = (),
    time_limit: str | None = None,
    verbose: Verbose = False,
) -> int:
    """
    Find the fewest devices that hold the job, or the cheapest cluster that does it in time.

    Parameters
    ----------
    spec
        Path of the YAML file; its number of nodes does not matter.
    on
        Accelerators of the catalogue to ask about besides, with commas between them; each with a
        price where tokens are given: h200-sxm-141gb='3.10 USD/h'.
    tokens
        How many are to be trained: 15e12 or 15T. Asks for the cheapest cluster too.
    by
        When they have to be: 2027-03-01, or 2027-03-01T12:00+01:00.
    within
        The time they may take, instead of a date: 30d.
    start
        When training begins; now, unless given.
    most_nodes
        Nodes up to which clusters are weighed; 16,384 devices, unless given.
    at_hand
        Tell the best use of the spec's own cluster too, and how many devices it leaves idle.
    time_limit
        Stop looking at a cluster after this time: 60s, 5min.
    """
    from pathlib import Path

    limited = seconds(time_limit)
    asked = job(tokens, by, within, start, most_nodes)
    from optplan.own_rules import asked_rules
    from optplan.report.answers import show_sizing
    from optplan.report.progress import Watch
    from optplan.size import size as run

    own = asked_rules(rules).load()
    with Watch(quiet=json, verbose=verbose) as watch:
        sizing = run(
            Path(spec),
            accelerators=[name.strip() for name in on.split(",") if name.strip()],
            sets=set,
            limits=limit,
            rules=own,
            time_limit=limited,
            job=asked,
            at_hand=at_hand,
            say=watch.say,
        )
    if json:
        write(sizing.to_json())
    else:
        show_sizing(console(), sizing)
    return sizing.exit_code


def _split(text: str) -> list[str]:
    """Cut ``tp=4,layers_per_stage=20,20`` where a new choice begins."""
    return [part.strip() for part in re.split(r"[,\s]+(?=[A-Za-z_]+\s*=)", text.strip())]
