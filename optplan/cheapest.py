"""The cheapest cluster that trains so many tokens in time, proved over every number of nodes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from optplan.models.cost.price import Estimate
from optplan.models.errors import Fault, InputError, OwnFault
from optplan.models.formulate import Formulation, formulate
from optplan.models.money import Price, price_of
from optplan.models.record import Record
from optplan.models.rules.deadline import Deadline
from optplan.models.rules.registry import Rule
from optplan.models.spec.plan import Plan
from optplan.models.spec.problem import Problem
from optplan.planner import checked, run
from optplan.solvers.base import DONE, Outcome, SolverConfig

MOST_NODES_DEVICES = 2**14
"""Devices up to which clusters are weighed, unless asked otherwise."""

SAME = 1e-9
"""Finishing times that differ by less than this share are one."""

CENTURY = 100 * 365.25 * 86_400.0
"""No training is planned for longer."""


class Cheapest(Record):
    """The cheapest cluster of one kind that trains so many tokens in time."""

    accelerator: str
    """Which kind."""
    price: str
    """Of one device, by the hour."""
    tokens: float
    """What is to be trained."""
    seconds_allowed: float | None
    """Time that there is; none where any will do."""
    by: str | None
    """When it has to be finished, where a date was given."""
    most_nodes: int
    """Every number of nodes up to this one was weighed."""
    proved: bool
    """Whether the answer holds for all of them."""
    nodes: int | None = None
    """Nodes to rent; none where no number finishes in time."""
    devices: int | None = None
    """Devices to rent."""
    plan: Plan | None = None
    """The fastest plan on them."""
    estimate: Estimate | None = None
    """What it costs on them."""
    seconds: float | None = None
    """Time to the last token, counted in fractions of a step."""
    finishes: str | None = None
    """When that is."""
    money: float | None = None
    """What it costs in all."""
    currency: str = ""
    """Units of the money."""
    gap: float | None = None
    """Share by which it could at most be cheaper."""
    nearest_seconds: float | None = None
    """Where none finishes in time: the least time to the last token."""
    nearest: str | None = None
    """When that is."""
    nearest_nodes: int | None = None
    """Nodes that it takes."""
    why: str = ""
    """Why there is none, or why it is not proved."""


@dataclass(frozen=True)
class Job:
    """
    What is to be trained, and by when.

    Parameters
    ----------
    tokens
        How many.
    seconds
        Time that there is; None where any will do.
    start
        When it begins.
    by
        The date that was asked for, as it was written; None where none was.
    most_nodes
        Nodes up to which clusters are weighed; None for as many as have 16,384 devices.
    """

    tokens: float
    seconds: float | None
    start: datetime
    by: str | None = None
    most_nodes: int | None = None

    def date(self, seconds: float) -> str | None:
        """Return when something is done that takes so long; None for what takes ages."""
        if seconds > CENTURY:
            return None
        return (self.start + timedelta(seconds=seconds)).isoformat(timespec="minutes")


def job_of(
    tokens: float,
    by: str | datetime | None = None,
    within: float | None = None,
    start: datetime | None = None,
    most_nodes: int | None = None,
) -> Job:
    """
    Check what is asked of a training as a whole.

    Parameters
    ----------
    tokens
        How many, at least 1.
    by
        When it has to be finished: ``2027-03-01``, the beginning of that day in UTC, or a time
        such as ``2027-03-01T12:00+01:00``.
    within
        Seconds that it may take, instead.
    start
        When it begins; now, unless given.
    most_nodes
        Nodes up to which clusters are weighed.

    Raises
    ------
    InputError
        Both or neither end makes sense, or the date is none or has passed.
    """
    start = start or datetime.now(UTC)
    if not 1 <= tokens <= 1e20:
        raise _refused("--tokens", f"{tokens:g} tokens are out of range", "from 1 to 1e20")
    if by is not None and within is not None:
        raise _refused("--by", "--by and --within are both given", "keep one of them")
    if by is None:
        return Job(tokens, within, start, None, most_nodes)
    end = by if isinstance(by, datetime) else moment(by, "--by")
    if end.tzinfo is None:
        end = end.replace(tzinfo=UTC)
    if end <= start:
        wrong = f"{end.isoformat(timespec='minutes')} has passed"
        remedy = f"name a date after {start.isoformat(timespec='minutes')}"
        raise _refused("--by", wrong, remedy)
    text = by if isinstance(by, str) else end.isoformat(timespec="minutes")
    return Job(tokens, (end - start).total_seconds(), start, text, most_nodes)


def moment(text: str, option: str) -> datetime:
    """
    Read a date or a time.

    Raises
    ------
    InputError
        It is none; names the option.
    """
    try:
        return datetime.fromisoformat(text.strip())
    except ValueError:
        remedy = "write 2027-03-01 or 2027-03-01T12:00+01:00"
        raise _refused(option, f"'{text[:40]}' is no date", remedy) from None


def _refused(option: str, problem: str, remedy: str) -> InputError:
    """Word a single fault of an option."""
    place, path = (option, "") if option.startswith("--") else ("", option)
    return InputError([Fault(place, path, problem, remedy)])


def priced(problem: Problem, price: Price | str | None, option: str) -> Problem:
    """
    Return the problem with a price of its own devices.

    Raises
    ------
    InputError
        There is none, neither given nor known.
    """
    if isinstance(price, str):
        price = price_of(price)
    price = price or problem.cluster.device_price
    if price is None:
        name = problem.cluster.accelerator.name
        remedy = "add 'price: 2.50 USD/h' under cluster"
        if option == "--on":
            remedy = f"write --on {name}='2.50 USD/h'"
        raise _refused(option, f"no price of {name} is known", remedy)
    return problem.with_cluster(price=price)


def cheapest_of(
    problem: Problem,
    job: Job,
    rules: tuple[Rule, ...] = (),
    time_limit: float | None = None,
    say: Callable[[str], None] | None = None,
) -> Cheapest:
    """
    Find the cheapest cluster of a problem's accelerator that does a job in time.

    Whole nodes are rented until the last token. So the cheapest plan on the largest cluster, of
    which only the nodes in use are paid for and which keeps the deadline, tells the number of
    nodes: one proof covers every number up to that largest one.

    Parameters
    ----------
    problem
        What is to be trained, with a price; its number of nodes does not matter.
    job
        How many tokens, by when.
    time_limit
        Seconds for a proof.
    say
        Called with what is looked at.
    """
    price = problem.cluster.device_price
    assert price is not None
    per = problem.cluster.devices_per_node
    most = job.most_nodes or max(1, MOST_NODES_DEVICES // per)
    largest = _on_nodes(problem, most)
    known = {
        "accelerator": problem.cluster.accelerator.name,
        "price": str(price),
        "tokens": job.tokens,
        "seconds_allowed": job.seconds,
        "by": job.by,
        "most_nodes": most,
        "currency": price.currency,
    }
    if say:
        say(f"{known['accelerator']}: 1 to {most:,} nodes")
    config = SolverConfig(seconds=time_limit)
    form, outcome = run(largest, (*rules, *_in_time(largest, job)), config=config)
    done = outcome.termination in DONE
    if outcome.best:
        return Cheapest.model_validate(known | _rented(form, outcome, problem, rules, job, done))
    if not done:
        why = f"not settled ({outcome.termination.value}); give more time"
        return Cheapest.model_validate(known | {"proved": False, "why": why})
    if job.seconds is None:
        why = f"no cluster of up to {most:,} nodes holds the job"
        return Cheapest.model_validate(known | {"proved": True, "why": why})
    if say:
        say(f"{known['accelerator']}: the nearest date")
    return Cheapest.model_validate(known | _nearest(largest, rules, job, config))


def _on_nodes(problem: Problem, nodes: int) -> Problem:
    """Return the problem on so many nodes, those in use being paid for."""
    search = problem.search.model_copy(update={"idle_devices": True})
    changed = problem.with_cluster(nodes=nodes, held="nodes")
    if changed.devices > 2**20:
        text = f"{nodes:,} nodes are {changed.devices:,} devices"
        raise _refused("--most-nodes", text, f"at most {2**20:,} devices are supported")
    return changed.model_copy(update={"search": search, "goal": "cheapest"})


def _in_time(problem: Problem, job: Job) -> tuple[Rule, ...]:
    """Write the deadline as a rule."""
    if job.seconds is None:
        return ()
    return (Deadline(job.seconds * problem.workload.sequence_length / job.tokens),)


def _seconds(problem: Problem, plan: Plan, price: Estimate, job: Job) -> float:
    """Time to the last token."""
    tokens = plan.global_batch * problem.workload.sequence_length
    return job.tokens / tokens * price.step_seconds


def _rented(
    form: Formulation,
    outcome: Outcome,
    problem: Problem,
    rules: tuple[Rule, ...],
    job: Job,
    done: bool,
) -> dict[str, object]:
    """Write down the nodes that the best plan needs, and price it on those alone."""
    plan, price, _ = checked(form, outcome.best[0])
    nodes = -(-plan.devices // problem.cluster.devices_per_node)
    alone = _on_nodes(problem, nodes)
    _, again, _ = checked(formulate(alone, rules), outcome.best[0])
    if abs(again.step_seconds - price.step_seconds) > SAME * price.step_seconds:
        raise OwnFault(f"{plan} takes another time on its own {nodes} nodes than beside idle ones")
    rate = alone.cluster.device_price
    assert rate is not None
    seconds = _seconds(alone, plan, again, job)
    goal = price.step_seconds * alone.devices * rate.amount / 3600.0 / plan.global_batch
    bound = None if outcome.bound is None else float(outcome.bound) * form.goal_scale
    return {
        "proved": done,
        "nodes": nodes,
        "devices": alone.devices,
        "plan": plan,
        "estimate": again,
        "seconds": seconds,
        "finishes": job.date(seconds),
        "money": seconds / 3600.0 * alone.devices * rate.amount,
        "gap": None if bound is None else max(0.0, 1 - bound / goal),
        "why": "" if done else f"not settled ({outcome.termination.value}); give more time",
    }


def _nearest(
    largest: Problem, rules: tuple[Rule, ...], job: Job, config: SolverConfig
) -> dict[str, object]:
    """Say when it could be done at the earliest."""
    fastest = largest.model_copy(update={"goal": "fastest"})
    form, outcome = run(fastest, rules, config=config)
    most = largest.cluster.nodes
    if not outcome.best:
        return {"proved": True, "why": f"no cluster of up to {most:,} nodes holds the job"}
    plan, price, _ = checked(form, outcome.best[0])
    seconds = _seconds(largest, plan, price, job)
    sure = outcome.termination in DONE
    return {
        "proved": True,
        "why": f"no cluster of up to {most:,} nodes finishes in time",
        "nearest_seconds": seconds if sure else None,
        "nearest": job.date(seconds) if sure else None,
        "nearest_nodes": -(-plan.devices // largest.cluster.devices_per_node),
    }
