"""How many devices a job needs: the fewest that hold it, the cheapest in time, proved."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from optplan import catalogue
from optplan.cheapest import Cheapest, Job, cheapest_of, priced
from optplan.models.cost.price import Estimate
from optplan.models.errors import Fault, InputError, OwnFault, QuantityError
from optplan.models.money import price_of
from optplan.models.record import Record
from optplan.models.rules.registry import Rule
from optplan.models.spec.plan import Plan
from optplan.models.spec.problem import Problem
from optplan.models.spec.space import Limit
from optplan.places import Refusal
from optplan.planner import Condition, Spec, checked, problem_of, run
from optplan.result import Reply
from optplan.solvers.base import DONE, Holding, SolverConfig

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


class AtHand(Record):
    """The best use of the cluster of the spec, idle devices allowed."""

    devices: int
    """Devices of the cluster."""
    idle_devices: int
    """How many of them the fastest plan leaves idle."""
    plan: Plan
    """That plan."""
    estimate: Estimate
    """What it costs."""
    all_in_use_seconds: float | None = None
    """Step of the fastest plan that leaves none idle; none where there is no such plan, or where
    the best plan is one."""
    all_in_use_batch: int | None = None
    """Global batch of that plan."""
    why: str = ""
    """Why devices are left idle."""


class Sizing(Reply):
    """The answer to ``size``."""

    fewest: Fewest
    """For the accelerator of the spec."""
    others: tuple[Fewest, ...] = ()
    """For each accelerator that was asked about besides."""
    cheapest: Cheapest | None = None
    """Cheapest cluster of the spec's accelerator that trains the tokens asked in time."""
    cheapest_others: tuple[Cheapest, ...] = ()
    """For each accelerator that was asked about besides."""
    at_hand: AtHand | None = None
    """Best use of the spec's own cluster, where that was asked; none where it holds no plan."""
    problem: Problem
    """The question."""

    @property
    def exit_code(self) -> int:
        """0 found and proved, 1 no cluster holds the job or finishes it, 3 not proved in time."""
        every = (self.fewest, *self.others)
        weighed = (self.cheapest, *self.cheapest_others) if self.cheapest else ()
        if not (all(one.proved for one in every) and all(one.proved for one in weighed)):
            return 3
        if weighed and not any(one.nodes is not None for one in weighed):
            return 1
        return 0 if any(one.devices is not None for one in every) else 1


def size(
    spec: Spec,
    *,
    accelerators: Sequence[str] = (),
    sets: Sequence[str] = (),
    limits: Sequence[Condition] = (),
    rules: Iterable[Rule] = (),
    time_limit: float | None = None,
    job: Job | None = None,
    at_hand: bool = False,
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
        Others of the catalogue to ask about, each with its own calibration; with a price, as in
        ``h200-sxm-141gb=3.10 USD/h``, where a job is asked about too.
    time_limit
        Seconds for each cluster that is looked at.
    job
        How many tokens are to be trained by when, as ``job_of`` checks it: then the cheapest
        cluster that does so is found too.
    at_hand
        Whether to tell the best use of the spec's own cluster too.
    say
        Called with each number that is tried.

    Raises
    ------
    InputError
        The spec is wrong, an accelerator is unknown, or a price is missing.
    """
    problem, own = problem_of(spec, sets, limits), tuple(rules)
    # Sizes are found for the fastest plan; what else was a goal is asked of the plan itself.
    plain = problem.model_copy(update={"goal": "fastest"})
    tried = [plain, *(_on(plain, name, job is not None) for name in accelerators)]
    if job is not None:
        _check_job(plain)
        tried[0] = priced(plain, None, "cluster.price")
    found = [_fewest(one, own, time_limit, say) for one in tried]
    weighed = [cheapest_of(one, job, own, time_limit, say) for one in tried] if job else []
    return Sizing(
        fewest=found[0],
        others=tuple(found[1:]),
        cheapest=weighed[0] if weighed else None,
        cheapest_others=tuple(weighed[1:]),
        at_hand=_at_hand(plain, own, time_limit, say) if at_hand else None,
        problem=problem,
    )


def _check_job(problem: Problem) -> None:
    """Refuse what clusters of many sizes cannot be weighed under."""
    if problem.prices == "paper":
        wrong = "paper prices know no idle devices, on which the proof over all sizes rests"
        raise InputError([Fault("", "prices", wrong, "leave 'prices' out")])


def _at_hand(
    problem: Problem,
    rules: tuple[Rule, ...],
    seconds: float | None,
    say: Callable[[str], None] | None,
) -> AtHand | None:
    """Find the best use of the devices at hand, and what it would cost to use them all."""

    def fastest(idle: bool) -> tuple[Plan, Estimate] | None:
        search = problem.search.model_copy(update={"idle_devices": idle})
        return _plan(problem.model_copy(update={"search": search}), rules, seconds)

    if say:
        say(f"best use of {problem.devices:,} devices")
    try:
        best = fastest(True)
        if best is None:
            return None
        plan, price = best
        idle = problem.devices - plan.devices
        every = fastest(False) if idle else None
    except _Unsettled:
        return None
    why = ""
    if idle and every is None:
        why = "no plan puts every device to use"
    elif idle and every is not None:
        slower = every[1].step_seconds / every[0].global_batch
        slower = slower / (price.step_seconds / plan.global_batch) - 1
        why = f"the fastest plan that uses every device takes {slower:.2%} longer a sequence"
    return AtHand(
        devices=problem.devices,
        idle_devices=idle,
        plan=plan,
        estimate=price,
        all_in_use_seconds=every[1].step_seconds if every else None,
        all_in_use_batch=every[0].global_batch if every else None,
        why=why,
    )


def _on(problem: Problem, name: str, costs: bool = False) -> Problem:
    """Return the problem on another accelerator, with that one's calibration and price."""
    name, given, money = (part.strip() for part in name.partition("="))
    try:
        price = price_of(money) if given else None
    except QuantityError as error:
        wrong, _, remedy = str(error).rpartition("; ")
        raise InputError([Fault("", "--on", wrong, remedy)]) from None
    try:
        accelerator = catalogue.accelerator(name)
        calibration = catalogue.calibration_for(accelerator.name)
    except Refusal as refusal:
        raise InputError([Fault("", "--on", refusal.problem, refusal.remedy)]) from None
    if problem.workload.precision not in accelerator.peak:
        wrong = f"{accelerator.name} has no peak for {problem.workload.precision}"
        raise InputError([Fault("", "--on", wrong, "ask about another accelerator")])
    other = problem.with_cluster(accelerator=accelerator, price=price)
    other = other.model_copy(update={"calibration": calibration})
    return priced(other, price, "--on") if costs else other


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
    if outcome.termination in DONE:
        return None
    if outcome.holding is not Holding.NOTHING:
        raise OwnFault("a search holds a plan and does not give it")
    raise _Unsettled(
        f"{problem.devices:,} devices were not settled ({outcome.termination.value}); "
        "give more time"
    )
