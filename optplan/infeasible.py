"""Why no plan exists: the clash in words, and ways out, each one solved."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from optplan.models.cost.price import Estimate
from optplan.models.errors import InputError
from optplan.models.formulate import Formulation, formulate
from optplan.models.program import Fits, Row
from optplan.models.rules.registry import Rule
from optplan.models.spec.framework import Framework
from optplan.models.spec.plan import Plan
from optplan.models.spec.problem import Problem
from optplan.models.spec.space import Limit, Search
from optplan.models.units import bytes_text, seconds_text
from optplan.result import Explanation, Reason, WayOut
from optplan.solvers.base import SolverConfig
from optplan.solvers.core import Clash, clashes

Change = Callable[[Problem], Problem]

WAY_SECONDS = 20.0
"""Time for each way out; one that takes longer is not told."""

MOST_NODES = 64
"""Ways out look at clusters up to this many times larger."""


def explain_infeasible(problem: Problem, rules: tuple[Rule, ...] = ()) -> Explanation:
    """
    Name the smallest set of rules that clash, and price ways out.

    Parameters
    ----------
    problem
        A problem without a plan.
    rules
        The user's own rules.

    Returns
    -------
    Explanation
        ``core`` is minimal: the others of its rules can hold together without any one of them.
        Clashes that would remain without the core are ``further``. Every way out has been solved.
    """
    try:
        form = formulate(problem, rules, widened=True)
    except InputError:
        # With everything open the space is too large; what the search fixes stays fixed.
        form = formulate(problem, rules)
    found = list(clashes(form.program, _rank, _subject))
    words = [tuple(_reason(form, one, name) for name in one.rules) for one in found]
    return Explanation(
        core=words[0], further=tuple(words[1:]), ways_out=tuple(_ways_out(problem, rules, found))
    )


def core_of(form: Formulation) -> tuple[Reason, ...]:
    """Name the smallest set of rules that clash in a program, without looking for ways out."""
    found = next(iter(clashes(form.program, _rank, _subject)))
    return tuple(_reason(form, found, name) for name in found.rules)


def _rank(name: str) -> int:
    """Blame physics before the user: memory, the framework, the spec, and last its limits."""
    family = name.split(".")[0]
    if name in ("pipeline.layers", "experts.world"):
        return -1  # Without them nothing has a price.
    if name.startswith("capacity.hbm"):
        return 0
    return {"capacity": 1, "framework": 2, "search": 3, "limits": 4}.get(family, 2)


def _subject(name: str) -> str:
    """Put all rules about memory into one group; every other rule is its own."""
    return "capacity" if name.startswith("capacity.") else name


def _reason(form: Formulation, found: Clash, name: str) -> Reason:
    """Put one rule of a clash into words."""
    family = name.split("[")[0]
    sentence = form.program.sentences.get(family, family)
    text = ""
    if name in found.nearest:
        high, least = found.nearest[name]
        text = _measure(form, name, high, least)
    elif not name.startswith("limits."):
        text = _legal(form, name)
    return Reason(rule=name, sentence=sentence, text=text)


def _measure(form: Formulation, name: str, high: int, least: int) -> str:
    """Say how far the nearest plan misses a bound."""
    statement = next(s for s in form.program.statements if s.name == name)
    if isinstance(statement, Fits):
        hbm, reserve = form.problem.cluster.accelerator.hbm, form.problem.calibration.reserve
        room = f"{bytes_text(high)} ({bytes_text(hbm)} less a reserve of {bytes_text(reserve)})"
        return f"at least {bytes_text(least)} against {room}"
    assert isinstance(statement, Row)
    columns = {column for _, column in statement.terms}
    if columns == {"step_ticks"} and statement.terms[0][0] == 1:
        unit = float(form.tick)
        return f"at least {seconds_text(least * unit)} against {seconds_text(high * unit)}"
    if columns == {"peak_bytes"} and statement.terms[0][0] == 1:
        return f"at least {bytes_text(least)} against {bytes_text(high)}"
    return f"at least {least} against {high}"


def _legal(form: Formulation, name: str) -> str:
    """List what a rule over one choice would accept."""
    from optplan.models.numbers import listed
    from optplan.models.program import Table

    for statement in form.program.statements:
        if isinstance(statement, Table) and statement.name == name and len(statement.keys) == 1:
            key = statement.keys[0]
            legal = [v for v in form.program.domain[key] if (v,) in statement.index]
            every = listed(form.program.domain[key])
            if not legal:
                return f"none of that is possible here; {key} can be in {every}"
            return f"legal: {key} in {listed(legal)} of {every}"
    return ""


def _ways_out(problem: Problem, rules: tuple[Rule, ...], found: list[Clash]) -> Iterator[WayOut]:
    """Solve the problem after each change that the clashes suggest, or after all of them."""
    names = list(dict.fromkeys(rule.split("[")[0] for one in found for rule in one.rules))
    changes = [change for name in names for change in _changes(problem, name)]
    physical = any(name.startswith(("capacity.", "limits.")) for name in names)
    helped = False
    for text, change in changes:
        for way in _solved(text, change(problem), rules):
            helped = True
            yield way
    if physical:
        for way in _larger(problem, rules, ""):
            helped = True
            yield way
    if not helped and changes:
        text, changed = _together(problem, changes)
        ways = list(_solved(text, changed, rules))
        yield from ways or (_larger(changed, rules, text + ", ") if physical else ())


def more_ways_out(
    problem: Problem, rules: tuple[Rule, ...], known: Explanation
) -> Iterator[WayOut]:
    """
    Solve the problem with each choice left open that the clash does not name, or with all of them.

    A clash is minimal, so it need not name all that could give way: where activations do not fit,
    fixed recomputation may stand in it, while a smaller micro-batch would help as well.
    """
    told = {way.change for way in known.ways_out}
    changes = [opened(name) for name in narrowed(problem)]
    if problem.framework is not None:
        changes.append(unbound(problem.framework))
    helped = bool(told)
    for text, change in changes:
        if text not in told:
            for way in _solved(text, change(problem), rules):
                helped = True
                yield way
    if not helped and len(changes) > 1:
        yield from _solved(*_together(problem, changes), rules)


def _together(problem: Problem, changes: list[tuple[str, Change]]) -> tuple[str, Problem]:
    """Make all changes at once, and name them."""
    for _, change in changes:
        problem = change(problem)
    return ", ".join(text for text, _ in changes), problem


def narrowed(problem: Problem) -> list[str]:
    """Name the choices that the spec fixes or narrows."""
    fields = Search.model_fields
    return [
        name
        for name in fields
        if name != "global_batch" and getattr(problem.search, name) != fields[name].default
    ]


def unbound(framework: Framework) -> tuple[str, Change]:
    """Do without the framework's bounds on what can be launched."""
    return (
        f"any launcher, not only {framework.name}",
        lambda before: before.model_copy(update={"framework": None}),
    )


def _changes(problem: Problem, name: str) -> Iterator[tuple[str, Change]]:
    """Name what a person could give up about one rule."""
    family, _, rest = name.partition(".")
    if family == "limits":
        yield dropped(next(limit for limit in problem.limits if limit.name == rest))
    elif family == "search":
        yield opened(rest)


def dropped(limit: Limit) -> tuple[str, Change]:
    """Do without one of the user's limits."""

    def drop(before: Problem) -> Problem:
        kept = tuple(other for other in before.limits if other.name != limit.name)
        return before.model_copy(update={"limits": kept})

    return f"drop the limit {limit.name}: {limit.rule}", drop


def opened(name: str) -> tuple[str, Change]:
    """Leave a choice open that the spec fixes or narrows."""
    free = Search.model_fields[name].default

    def leave_open(before: Problem) -> Problem:
        search = before.search.model_copy(update={name: free})
        return before.model_copy(update={"search": search})

    return f"leave {name} open", leave_open


def _larger(problem: Problem, rules: tuple[Rule, ...], besides: str) -> Iterator[WayOut]:
    """Double the cluster until a plan exists."""
    times = 2
    while times <= MOST_NODES and problem.devices * times <= 2**20:
        nodes = problem.cluster.nodes * times
        devices = nodes * problem.cluster.devices_per_node
        change = f"{besides}{nodes} nodes ({devices} devices) instead of {problem.cluster.nodes}"
        ways = list(_solved(change, problem.with_cluster(nodes=nodes), rules))
        if ways:
            yield ways[0]
            return
        times *= 2


def _solved(change: str, problem: Problem, rules: tuple[Rule, ...]) -> Iterator[WayOut]:
    """Yield a way out if the changed problem has a plan."""
    best = best_of(problem, rules, WAY_SECONDS)
    if best is not None:
        plan, price = best
        yield WayOut(
            change=change,
            step_seconds=price.step_seconds,
            tokens_per_second_per_device=price.tokens_per_second_per_device,
            plan=plan,
        )


def best_of(
    problem: Problem, rules: tuple[Rule, ...], seconds: float
) -> tuple[Plan, Estimate] | None:
    """Solve a changed problem; None where it is too large, has no plan, or takes too long."""
    from optplan.planner import checked, run

    try:
        form, outcome = run(problem, rules, config=SolverConfig(seconds=seconds))
    except InputError:
        return None
    if not outcome.best:
        return None
    plan, price, _ = checked(form, outcome.best[0])
    return plan, price
