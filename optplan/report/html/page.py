"""An answer to a page: which kind of answer has which sections."""

from __future__ import annotations

from optplan.compare import Comparison
from optplan.explain import Answer
from optplan.models.errors import Fault, InputError
from optplan.report.html.asked import (
    comparison_head,
    evaluation_head,
    of_answer,
    of_comparison,
    of_evaluation,
    of_sizing,
    sizing_head,
)
from optplan.report.html.render import render
from optplan.report.html.solved import head, sections_of
from optplan.result import Evaluation, Reply, Result
from optplan.size import Sizing


def page(answer: Reply) -> str:
    """
    Render an answer.

    Raises
    ------
    InputError
        There is no page for such an answer.
    """
    if isinstance(answer, Result):
        made = "solve", head(answer), list(sections_of(answer))
    elif isinstance(answer, Answer):
        made = "explain", head(answer.result), list(of_answer(answer))
    elif isinstance(answer, Evaluation):
        made = "evaluate", evaluation_head(answer), list(of_evaluation(answer))
    elif isinstance(answer, Sizing):
        made = "size", sizing_head(answer), list(of_sizing(answer))
    elif isinstance(answer, Comparison):
        made = "compare", comparison_head(answer), list(of_comparison(answer))
    else:
        problem = f"a {type(answer).__name__} has no page"
        remedy = "give what solve, explain, evaluate, size or compare returns"
        raise InputError([Fault("", "", problem, remedy)])
    command, top, sections = made
    return render("page.html.j2", command=command, head=top, sections=sections)
