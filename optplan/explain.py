"""Why this plan: what binds it, what one more of something would buy, and why not another one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from optplan.evaluate import completed, judged
from optplan.flips import flips as flip_points
from optplan.infeasible import more_ways_out
from optplan.models.formulate import formulate
from optplan.models.record import Record
from optplan.models.rules.registry import Rule
from optplan.models.spec.plan import Plan
from optplan.models.spec.problem import Problem
from optplan.models.units import bytes_text
from optplan.planner import Condition, Spec, problem_of, solve
from optplan.result import Evaluation, Reply, Result, WayOut
from optplan.solvers.base import Progress
from optplan.sureness import Flips
from optplan.ways import Change, best_of, dropped, narrowed, opened, sorted_ways, unbound

CHANGE_SECONDS = 30.0
"""Time for each changed problem; one that takes longer is reported without a word on its plan."""

NOTICED = 1e-6
"""Share of the time per sequence that a change must save to count."""


class Worth(Record):
    """What one change of the question would buy."""

    change: str
    """What to change."""
    rule: str
    """The rule that it eases, where it is one."""
    plan: Plan | None = None
    """Best plan after the change; none where it was not found in time."""
    step_seconds: float | None = None
    """Its step time."""
    tokens_per_second_per_device: float | None = None
    """Its throughput."""
    saved: float | None = None
    """Share of the time per sequence that it saves, all devices together."""

    @property
    def binds(self) -> bool:
        """Whether what the change eases stands in the way of a faster plan."""
        return self.saved is not None and self.saved > NOTICED


class Answer(Reply):
    """The answer to ``explain``."""

    result: Result
    """What ``solve`` says: the plan, or why there is none and the ways out."""
    worth: tuple[Worth, ...] = ()
    """What every limit, choice and scarce thing costs, dearest first."""
    more_ways_out: tuple[WayOut, ...] = ()
    """Where there is no plan: what else could give way, beyond what the clash names."""
    why_not: Evaluation | None = None
    """The plan that was asked about: the rules it breaks, or its distance term by term."""
    flips: Flips | None = None
    """Where the recommendation changes, where it was asked for."""

    @property
    def exit_code(self) -> int:
        """As that of ``solve``."""
        return self.result.exit_code


def explain(
    spec: Spec,
    *,
    why_not: Mapping[str, Any] | Plan | None = None,
    flips: bool = False,
    sets: Sequence[str] = (),
    limits: Sequence[Condition] = (),
    rules: Iterable[Rule] = (),
    time_limit: float | None = None,
    progress: Callable[[Progress], None] | None = None,
    say: Callable[[str], None] | None = None,
) -> Answer:
    """
    Say why a plan is the answer, or why there is none.

    Every figure is the optimum of a changed problem, solved like any other: each limit dropped,
    each restricted choice left open, any launcher instead of the framework, more memory, one more
    node, faster links and network.

    Parameters
    ----------
    spec, sets, limits, rules, time_limit, progress
        As for ``solve``; the time limit is for the problem itself.
    why_not
        A full or partial plan to compare with.
    flips
        True to find where the recommendation changes, one quantity moved at a time.
    say
        Called with each change that is looked at.

    Raises
    ------
    InputError
        The spec is wrong, or no layout of this cluster has all the values asked about.
    """
    problem, own = problem_of(spec, sets, limits), tuple(rules)
    # A plan that cannot be is refused before anything is solved.
    asked = None if why_not is None else completed(problem, why_not, own)
    result = solve(problem, rules=own, time_limit=time_limit, progress=progress, say=say)
    held = None
    if result.exit_code == 0 and result.plan is not None and result.estimate is not None:
        held = result.plan, result.estimate
    worth: list[Worth] = []
    if result.plan is not None and result.estimate is not None:
        here = result.estimate.step_seconds / result.plan.global_batch
        for text, rule, change in _changes(problem):
            if say:
                say(f"what if: {text}")
            worth.append(_worth(text, rule, change(problem), own, here))
    more: tuple[WayOut, ...] = ()
    if result.plan is None and result.exit_code == 1:
        more = sorted_ways(more_ways_out(problem, own, result.explanation, say))
    worth.sort(key=lambda one: -(one.saved or 0.0))
    answered = None if asked is None else judged(formulate(problem, own), *asked, held)
    found = flip_points(problem, rules=own, say=say) if flips and result.plan else None
    return Answer(
        result=result,
        worth=tuple(worth),
        more_ways_out=more,
        why_not=answered,
        flips=found,
    )


def _worth(text: str, rule: str, changed: Problem, rules: tuple[Rule, ...], here: float) -> Worth:
    """Solve a changed problem, and compare its time per sequence."""
    best = best_of(changed, rules, CHANGE_SECONDS)
    if best is None:
        return Worth(change=text, rule=rule)
    plan, price = best
    return Worth(
        change=text,
        rule=rule,
        plan=plan,
        step_seconds=price.step_seconds,
        tokens_per_second_per_device=price.tokens_per_second_per_device,
        saved=1 - price.step_seconds / plan.global_batch / here,
    )


def _changes(problem: Problem) -> Iterator[tuple[str, str, Change]]:
    """Name every change that is looked at: the text, the rule it eases, and how to make it."""
    for limit in problem.limits:
        text, change = dropped(limit)
        yield text, f"limits.{limit.name}", change
    for name in narrowed(problem):
        text, change = opened(name)
        yield text, f"search.{name}", change
    if problem.framework is not None:
        text, change = unbound(problem.framework)
        yield text, "framework", change
    hbm = problem.cluster.accelerator.hbm
    yield f"1 GiB more on every device ({bytes_text(hbm + 2**30)})", "capacity.hbm", _hbm(2**30)
    yield f"twice the memory ({bytes_text(2 * hbm)})", "capacity.hbm", _hbm(hbm)
    nodes = problem.cluster.nodes + 1
    yield (
        f"one node more ({nodes * problem.cluster.devices_per_node} devices)",
        "",
        lambda before: before.with_cluster(nodes=nodes),
    )
    link = problem.cluster.accelerator.link
    faster = link.model_copy(update={"bandwidth": 2 * link.bandwidth})
    yield (
        "links inside a node twice as fast",
        "",
        lambda before: before.with_accelerator(link=faster),
    )
    if problem.cluster.nodes > 1:
        yield (
            "a network twice as fast",
            "",
            lambda before: before.with_cluster(network=2 * before.cluster.network),
        )


def _hbm(more: int) -> Change:
    """Enlarge the memory of every device."""
    return lambda before: before.with_accelerator(hbm=before.cluster.accelerator.hbm + more)
