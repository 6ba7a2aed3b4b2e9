"""Why no plan exists: the clash in numbers, and ways out, each one solved."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from optplan.amounts import more_devices, other_batches, shorter_sequence
from optplan.models.errors import InputError
from optplan.models.formulate import Formulation, formulate
from optplan.models.rules.registry import Rule
from optplan.models.spec.problem import Problem
from optplan.reasons import reason_of
from optplan.result import Explanation, Reason, WayOut
from optplan.solvers.core import Clash, clashes
from optplan.ways import (
    Change,
    Clock,
    Way,
    accelerator_ways,
    best_of,
    drop_way,
    dropped,
    host_way,
    launcher_way,
    moments_ways,
    narrowed,
    open_way,
    opened,
    solved,
    sorted_ways,
    together,
    unbound,
    until_cut,
)

__all__ = [
    "Change",
    "best_of",
    "dropped",
    "explain_infeasible",
    "more_ways_out",
    "narrowed",
    "opened",
    "unbound",
]

QUICK_SECONDS = 40.0
"""Time for the ways out that ``solve`` tells."""

ALL_SECONDS = 150.0
"""Time for those that ``explain`` tells besides."""


def explain_infeasible(
    problem: Problem, rules: tuple[Rule, ...] = (), say: Callable[[str], None] | None = None
) -> Explanation:
    """
    Name the smallest set of rules that clash, and price ways out.

    Parameters
    ----------
    problem
        A problem without a plan.
    rules
        The user's own rules.
    say
        Called with each way out that is tried.

    Returns
    -------
    Explanation
        ``core`` is minimal: the others of its rules can hold together without any one of them.
        Clashes that would remain without the core are ``further``. Every way out has been solved;
        these are the quick ones: what the clashes name, moments in fewer bits, more devices. After
        Ctrl-C those that were found by then.
    """
    if say:
        say("why there is no plan")
    form, found = find_clashes(problem, rules)
    words = [tuple(reason_of(form, one, name) for name in one.rules) for one in found]
    clock = Clock(QUICK_SECONDS, say)
    ways = sorted_ways(until_cut(_quick(problem, rules, found, clock), clock))
    return Explanation(
        core=words[0], further=tuple(words[1:]), ways_out=ways, complete=not clock.cut
    )


def find_clashes(problem: Problem, rules: tuple[Rule, ...] = ()) -> tuple[Formulation, list[Clash]]:
    """
    Return the program in which clashes are named, and the clashes.

    Every choice is open in it, and what the search and the framework fix are rules that can be
    named. Where that makes the space too large, what they fix stays fixed.
    """
    try:
        form = formulate(problem, rules, widened=True)
        return form, list(clashes(form.program, _rank, _subject))
    except (InputError, ValueError):
        form = formulate(problem, rules)
        return form, list(clashes(form.program, _rank, _subject))


def core_of(form: Formulation) -> tuple[Reason, ...]:
    """
    Name the smallest set of rules that clash in a program, and what they demand.

    Nothing is solved for it but the clash: no nearest plans, no ways out.
    """
    found = next(iter(clashes(form.program, _rank, _subject)))
    sentences = form.program.sentences
    families = ((name, name.split("[")[0]) for name in found.rules)
    return tuple(Reason(rule=n, sentence=sentences.get(f, f), text="") for n, f in families)


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


def _quick(
    problem: Problem, rules: tuple[Rule, ...], found: list[Clash], clock: Clock
) -> Iterator[WayOut]:
    """Solve the problem after each change that the clashes suggest, or after all of them."""
    names = list(dict.fromkeys(rule.split("[")[0] for one in found for rule in one.rules))
    ways = {way.text: way for name in names for way in _named(problem, name)}
    if problem.framework is not None and any(
        n.startswith(("pipeline.", "experts.")) for n in names
    ):
        launcher = launcher_way(problem.framework)
        ways[launcher.text] = launcher
    changes = list(ways.values())
    memory = any(name.startswith("capacity.") for name in names)
    physical = memory or any(name.startswith("limits.") for name in names)
    helped = False
    for way in [*changes, *(moments_ways() if memory else ())]:
        out = solved(way, problem, rules, clock)
        if out is not None:
            helped = True
            yield out
    grown = more_devices(problem, rules, clock) if physical else None
    if grown is not None:
        helped = True
        yield grown
    if not helped and changes:
        every = together(changes)
        out = solved(every, problem, rules, clock)
        if out is None and physical:
            out = more_devices(problem, rules, clock, every)
        if out is not None:
            yield out


def more_ways_out(
    problem: Problem,
    rules: tuple[Rule, ...],
    known: Explanation,
    say: Callable[[str], None] | None = None,
) -> Iterator[WayOut]:
    """
    Solve the problem after changes that take longer, or that the clash does not name.

    A clash is minimal, so it need not name all that could give way: where activations do not fit,
    fixed recomputation may stand in it, while a smaller micro-batch would help as well. Besides:
    the optimizer on the host, another global batch, a shorter sequence, other accelerators.
    """
    clock = Clock(ALL_SECONDS, say)
    yield from until_cut(_more(problem, rules, known, clock), clock)


def _more(
    problem: Problem, rules: tuple[Rule, ...], known: Explanation, clock: Clock
) -> Iterator[WayOut]:
    """Solve the problem after each of those changes."""
    told = {way.change for way in known.ways_out}
    names = {reason.rule.split("[")[0] for core in (known.core, *known.further) for reason in core}
    changes = [open_way(name) for name in narrowed(problem)]
    if problem.framework is not None:
        changes.append(launcher_way(problem.framework))
    changes += [drop_way(limit) for limit in problem.limits if f"limits.{limit.name}" in names]
    helped = bool(told)
    memory = any(name.startswith("capacity.") for name in names)
    held = [*changes, *_held(problem, memory)]
    for way in held:
        out = None if way.text in told else solved(way, problem, rules, clock)
        if out is not None:
            helped = True
            yield out
    for out in _less(problem, rules, known, names, clock):
        helped = True
        yield out
    if not helped and len(changes) > 1:
        out = solved(together(changes), problem, rules, clock)
        if out is not None:
            yield out


def _held(problem: Problem, memory: bool) -> Iterator[Way]:
    """Name what holds more: the host, and other accelerators."""
    if not memory:
        return
    host = host_way(problem)
    timed = any("step_seconds" in limit.rule for limit in problem.limits)
    if host is not None and not (timed and host.note == "" and problem.cluster.host is None):
        yield host
    yield from accelerator_ways(problem)


def _less(
    problem: Problem,
    rules: tuple[Rule, ...],
    known: Explanation,
    names: set[str],
    clock: Clock,
) -> Iterator[WayOut]:
    """Train on fewer tokens at a time: another batch, a shorter sequence."""
    timed = {f"limits.{limit.name}" for limit in problem.limits if "step_seconds" in limit.rule}
    details = [
        text for core in (known.core, *known.further) for one in core for text in one.details
    ]
    states = any(text.startswith("model states alone") for text in details)
    split = names & {"batch.split", "search.dp", "search.micro_batch", "search.micro_batches"}
    memory = any(name.startswith("capacity.") for name in names)
    long = names & {"degrees.sequence_parallel", "degrees.context"}
    if split or names & timed or (memory and not states):
        yield from other_batches(problem, rules, clock)
    if names & timed or (memory and not states) or long:
        shorter = shorter_sequence(problem, rules, clock)
        if shorter is not None:
            yield shorter


def _named(problem: Problem, name: str) -> Iterator[Way]:
    """Name what a person could give up about one rule."""
    family, _, rest = name.partition(".")
    if family == "limits":
        yield from (drop_way(limit) for limit in problem.limits if limit.name == rest)
    elif family == "search":
        yield open_way(rest)
    elif family == "framework" and problem.framework is not None:
        yield launcher_way(problem.framework)
