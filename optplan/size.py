"""How many devices a job needs at least: the fewest that hold it, proved."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from optplan import catalogue
from optplan.models.cost.price import Estimate
from optplan.models.errors import Fault, InputError, OwnFault
from optplan.models.record import Record
from optplan.models.rules.registry import Rule
from optplan.models.spec.plan import Plan
from optplan.models.spec.problem import Problem
from optplan.models.spec.space import Limit
from optplan.places import Refusal
from optplan.planner import Condition, Spec, checked, problem_of, run
from optplan.result import Reply
from optplan.solvers.base import Holding, SolverConfig, Termination

MOST_DEVICES = 2**17
"""Devices up to which a cluster is looked for."""

FEWER = "fewest-devices"
"""Name of the limit that bounds the devices in use."""


class Fewest(Record):
    """The fewest devices of one kind that hold a job, and the fastest plan on them."""

    accelerator: str
    """Which kind."""
    devices: int | None
    """How many are in use; none where no cluster that was looked at holds the job."""
    proved: bool
    """Whether one device less is proved to be too few."""
    nodes: int | None = None
    """Nodes that they fill, the last one perhaps in part."""
    plan: Plan | None = None
    """The fastest plan on so many."""
    estimate: Estimate | None = None
    """What it costs."""
    why: str = ""
    """Why there is none, or why it is not proved."""


class Sizing(Reply):
    """The answer to ``size``."""

    fewest: Fewest
    """For the accelerator of the spec."""
    others: tuple[Fewest, ...] = ()
    """For each accelerator that was asked about besides."""
    problem: Problem
    """The question."""

    @property
    def exit_code(self) -> int:
        """0 found and proved, 1 no cluster holds the job, 3 not proved in time."""
        every = (self.fewest, *self.others)
        if not all(one.proved for one in every):
            return 3
        return 0 if any(one.devices is not None for one in every) else 1


def size(
    spec: Spec,
    *,
    accelerators: Sequence[str] = (),
    sets: Sequence[str] = (),
    limits: Sequence[Condition] = (),
    rules: Iterable[Rule] = (),
    time_limit: float | None = None,
    say: Callable[[str], None] | None = None,
) -> Sizing:
    """
    Find the fewest devices that hold a job.

    The nodes of the spec are doubled or halved until the job fits, then the number of devices in
    use is narrowed down by bisection. What fits on some devices fits beside idle ones too, so the
    last number that was refused proves the next one.

    Parameters
    ----------
    spec, sets, limits, rules
        As for ``solve``; the number of nodes in the spec is where the search begins.
    accelerators
        Others of the catalogue to ask about, each with its own calibration.
    time_limit
        Seconds for each cluster that is looked at.
    say
        Called with each number that is tried.

    Raises
    ------
    InputError
        The spec is wrong, or an accelerator is unknown.
    """
    problem, own = problem_of(spec, sets, limits), tuple(rules)
    tried = [problem, *(_on(problem, name) for name in accelerators)]
    found = [_fewest(one, own, time_limit, say) for one in tried]
    return Sizing(fewest=found[0], others=tuple(found[1:]), problem=problem)


def _on(problem: Problem, name: str) -> Problem:
    """Return the problem on another accelerator, with that one's calibration."""
    try:
        accelerator = catalogue.accelerator(name)
        calibration = catalogue.calibration_for(accelerator.name)
    except Refusal as refusal:
        raise InputError([Fault("", "--on", refusal.problem, refusal.remedy)]) from None
    if problem.workload.precision not in accelerator.peak:
        wrong = f"{accelerator.name} has no peak for {problem.workload.precision}"
        raise InputError([Fault("", "--on", wrong, "ask about another accelerator")])
    other = problem.with_cluster(accelerator=accelerator)
    return other.model_copy(update={"calibration": calibration})


class _Unsettled(Exception):
    """A cluster could be neither filled nor refused in time."""


def _fewest(
    problem: Problem,
    rules: tuple[Rule, ...],
    seconds: float | None,
    say: Callable[[str], None] | None,
) -> Fewest:
    """Look for the smallest cluster, then bisect the devices in use."""
    search = problem.search.model_copy(update={"idle_devices": True})
    problem = problem.model_copy(update={"search": search})
    name, per = problem.cluster.accelerator.name, problem.cluster.devices_per_node
    best: tuple[Plan, Estimate] | None = None
    held: Problem | None = None

    def fits(devices: int) -> bool:
        nonlocal best, held
        if say:
            say(f"{name}: {devices:,} devices")
        bounded = _bounded(problem, devices)
        found = _plan(bounded, rules, seconds)
        if found is not None:
            best, held = found, bounded
        return found is not None

    low, high = 0, per
    try:
        while not fits(high):
            low, high = high, 2 * high
            if high > MOST_DEVICES:
                why = f"no cluster of up to {low:,} devices holds it"
                return Fewest(accelerator=name, devices=None, proved=True, why=why)
        assert best is not None
        high = min(high, _used(best[0]))
        while high - low > 1:
            middle = (low + high) // 2
            if fits(middle):
                high = min(middle, _used(best[0]))
            else:
                low = middle
    except _Unsettled as reason:
        return _answer(name, best, held, False, str(reason))
    return _answer(name, best, held, True, "")


def _answer(
    name: str,
    best: tuple[Plan, Estimate] | None,
    held: Problem | None,
    proved: bool,
    why: str,
) -> Fewest:
    """Write down the plan on the fewest devices that were found."""
    if best is None or held is None:
        return Fewest(accelerator=name, devices=None, proved=proved, why=why)
    return Fewest(
        accelerator=name,
        devices=_used(best[0]),
        proved=proved,
        nodes=held.cluster.nodes,
        plan=best[0],
        estimate=best[1],
        why=why,
    )


def _used(plan: Plan) -> int:
    """Devices that a plan puts to use."""
    return plan.tp * plan.pp * plan.dp * plan.cp


def _bounded(problem: Problem, devices: int) -> Problem:
    """Return the problem on nodes enough for so many devices, with no more of them in use."""
    cluster = problem.cluster
    nodes = -(-devices // cluster.devices_per_node)
    limits = problem.limits
    if devices % cluster.devices_per_node:
        limits = (*limits, Limit(name=FEWER, rule=f"tp * pp * dp * cp <= {devices}"))
    return problem.with_cluster(nodes=nodes).model_copy(update={"limits": limits})


def _plan(
    problem: Problem, rules: tuple[Rule, ...], seconds: float | None
) -> tuple[Plan, Estimate] | None:
    """Return the fastest plan of a problem; None where it is proved that there is none."""
    form, outcome = run(problem, rules, config=SolverConfig(seconds=seconds))
    if outcome.best:
        plan, price, _ = checked(form, outcome.best[0])
        return plan, price
    if outcome.termination in (Termination.PROVED, Termination.EXHAUSTED):
        return None
    if outcome.holding is not Holding.NOTHING:
        raise OwnFault("a search holds a plan and does not give it")
    raise _Unsettled(
        f"{problem.devices:,} devices were not settled ({outcome.termination.value}); "
        "give more time"
    )
