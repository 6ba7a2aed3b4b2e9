"""Commands that answer questions: explain, size."""

from __future__ import annotations

import re
from typing import Annotated

from cyclopts import Parameter

from optplan.arguments import choices, seconds
from optplan.flags import Json, Limits, Rules, Sets
from optplan.output import console, write


def explain(
    spec: str,
    /,
    *,
    why_not: Annotated[str | None, Parameter(name="--why-not")] = None,
    json: Json = False,
    set: Sets = (),
    limit: Limits = (),
    rules: Rules = (),
    time_limit: str | None = None,
) -> int:
    """
    Say what stands in the way of a faster plan, or of any, and what each way out would buy.

    Parameters
    ----------
    spec
        Path of the YAML file.
    why_not
        A plan to compare with, full or partial: tp=4,pp=8.
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
    with Watch(quiet=json) as watch:
        answer = run(
            Path(spec),
            why_not=asked,
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
    json: Json = False,
    set: Sets = (),
    limit: Limits = (),
    rules: Rules = (),
    time_limit: str | None = None,
) -> int:
    """
    Find the fewest devices that hold the job, and prove that one less does not.

    Parameters
    ----------
    spec
        Path of the YAML file; its number of nodes does not matter.
    on
        Accelerators of the catalogue to ask about besides, with commas between them.
    time_limit
        Stop looking at a cluster after this time: 60s, 5min.
    """
    from pathlib import Path

    limited = seconds(time_limit)
    from optplan.own_rules import asked_rules
    from optplan.report.answers import show_sizing
    from optplan.report.progress import Watch
    from optplan.size import size as run

    own = asked_rules(rules).load()
    with Watch(quiet=json) as watch:
        sizing = run(
            Path(spec),
            accelerators=[name.strip() for name in on.split(",") if name.strip()],
            sets=set,
            limits=limit,
            rules=own,
            time_limit=limited,
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
