"""Commands that answer questions about a plan: explain."""

from __future__ import annotations

import re
from typing import Annotated

from cyclopts import Parameter

from optplan.arguments import choices, seconds
from optplan.flags import Json, Limits, Sets
from optplan.output import console, write


def explain(
    spec: str,
    /,
    *,
    why_not: Annotated[str | None, Parameter(name="--why-not")] = None,
    json: Json = False,
    set: Sets = (),
    limit: Limits = (),
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
    from optplan.answers import explain as run
    from optplan.report.answers import show_answer
    from optplan.report.progress import Watch

    with Watch(quiet=json) as watch:
        answer = run(
            Path(spec),
            why_not=asked,
            sets=set,
            limits=limit,
            time_limit=limited,
            progress=watch.tell,
            say=watch.say,
        )
    if json:
        write(answer.to_json())
    else:
        show_answer(console(), answer)
    return answer.exit_code


def _split(text: str) -> list[str]:
    """Cut ``tp=4,layers_per_stage=20,20`` where a new choice begins."""
    return [part.strip() for part in re.split(r"[,\s]+(?=[A-Za-z_]+\s*=)", text.strip())]
