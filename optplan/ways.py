"""Ways out of a clash: changes of the question, each one solved and priced."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from optplan import catalogue
from optplan.models.cost.estimate import host_bytes
from optplan.models.cost.price import Estimate
from optplan.models.errors import InputError
from optplan.models.rules.registry import Rule
from optplan.models.spec.cluster import Host
from optplan.models.spec.framework import Framework
from optplan.models.spec.plan import Plan
from optplan.models.spec.problem import Problem
from optplan.models.spec.space import Limit, Search
from optplan.models.units import bytes_text, show
from optplan.result import Kind, WayOut
from optplan.solvers.base import DONE, SolverConfig, Termination

Change = Callable[[Problem], Problem]

WAY_SECONDS = 20.0
"""Time for each changed problem; one that takes longer is not told."""

MOST_WAYS = 12
"""Ways out that are told at most."""

DEVICES = 5
"""Other accelerators that are tried at most, those with least memory first."""

MORE_MEMORY = 1.05
"""Memory of another accelerator over the own one's from which it is tried."""

KINDS: tuple[Kind, ...] = (
    "choice",
    "framework",
    "limit",
    "memory",
    "workload",
    "devices",
    "accelerator",
    "several",
)
"""What a way out changes, cheapest first."""

ENDLESS = Host.model_validate({"memory": "1 PiB", "link": "1 EB/s", "bandwidth": "1 EB/s"})
"""A host that is never the bottleneck, where nothing is known of the real one."""


@dataclass(frozen=True)
class Way:
    """
    A change that may help.

    Parameters
    ----------
    text, kind, edit, note
        As of a `WayOut`.
    change
        Makes the change.
    """

    text: str
    kind: Kind
    change: Change
    edit: dict[str, Any] = field(default_factory=dict)
    note: str = ""


class Clock:
    """How long ways out may still be looked for, and whom to tell what is being tried."""

    def __init__(self, seconds: float, say: Callable[[str], None] | None = None) -> None:
        self._end, self._say = time.monotonic() + seconds, say
        self.cut = False
        """Whether something was left out for want of time."""

    @property
    def left(self) -> float:
        """Seconds left for one problem."""
        left = min(WAY_SECONDS, self._end - time.monotonic())
        self.cut = self.cut or left <= 0
        return left

    def attempt(self, problem: Problem, rules: tuple[Rule, ...]) -> Tried:
        """Solve a changed problem in what is left, and note where that did not settle it."""
        tried = attempt(problem, rules, self.left)
        self.cut = self.cut or not tried.settled
        return tried

    def say(self, text: str) -> None:
        """Tell what is being tried."""
        if self._say:
            self._say(f"way out: {text}")


# -- changes that name themselves ------------------------------------------------------------------


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


def dropped(limit: Limit) -> tuple[str, Change]:
    """Do without one of the user's limits."""

    def drop(before: Problem) -> Problem:
        kept = tuple(other for other in before.limits if other.name != limit.name)
        return before.model_copy(update={"limits": kept})

    return f"drop the limit {limit.name}: {limit.rule}", drop


def opened(name: str) -> tuple[str, Change]:
    """Leave a choice open that the spec fixes or narrows."""
    free = Search.model_fields[name].default
    return f"leave {name} open", lambda before: searched(before, **{name: free})


def searched(problem: Problem, **changed: object) -> Problem:
    """Return the problem with another search."""
    return problem.model_copy(update={"search": problem.search.model_copy(update=changed)})


def worked(problem: Problem, **changed: object) -> Problem:
    """Return the problem with another workload."""
    return problem.model_copy(update={"workload": problem.workload.model_copy(update=changed)})


def drop_way(limit: Limit) -> Way:
    """Do without a limit."""
    text, change = dropped(limit)
    return Way(text, "limit", change, {"limits": [limit.name]})


def open_way(name: str) -> Way:
    """Leave a choice open."""
    text, change = opened(name)
    return Way(text, "choice", change, {f"search.{name}": None})


def launcher_way(framework: Framework) -> Way:
    """Take any launcher."""
    text, change = unbound(framework)
    return Way(text, "framework", change, {"framework": None})


def moments_ways() -> Iterator[Way]:
    """Keep the optimizer's moments in fewer bits."""
    for name, what in (("adam-bf16-moments", "bf16"), ("adam-8bit", "8 bits")):

        def change(before: Problem, name: str = name) -> Problem:
            return worked(before, optimizer=name)

        yield Way(
            f"optimizer moments in {what} ({name})",
            "memory",
            change,
            {"workload.optimizer": name},
            "training changes: lower-precision moments" if name == "adam-8bit" else "",
        )


def host_way(problem: Problem) -> Way | None:
    """Put the optimizer on the host: the spec's with more memory, the usual one, or any."""
    known = problem.framework
    if problem.prices == "paper" or (known is not None and not known.offload):
        return None
    free = {} if problem.search.offload is None else {"search.offload": None}

    def on(host: Host) -> Change:
        return lambda before: searched(before.with_cluster(host=host), offload=None)

    if problem.cluster.host is not None:
        host = problem.cluster.host.model_copy(update={"memory": ENDLESS.memory})
        return Way("optimizer on the host, which needs more memory", "memory", on(host), free)
    usual = catalogue.usual_host(problem.cluster.accelerator.name)
    if usual is not None:
        host, source = usual
        edit = {"cluster.host": host.model_dump(mode="json")}
        return Way("optimizer on the host", "memory", on(host), {**edit, **free}, source)
    return Way("optimizer on the host", "memory", on(ENDLESS), free)


def accelerator_ways(problem: Problem) -> Iterator[Way]:
    """Take as many of another accelerator of the catalogue, with more memory."""
    own = problem.cluster.accelerator
    larger = []
    for name in catalogue.names("accelerators"):
        device = catalogue.accelerator(name)
        if device.hbm > MORE_MEMORY * own.hbm and problem.workload.precision in device.peak:
            larger.append(device)
    for device in sorted(larger, key=lambda one: (one.hbm, one.name))[:DEVICES]:
        calibration = catalogue.calibration_for(device.name)

        def change(
            before: Problem, device: Any = device, calibration: Any = calibration
        ) -> Problem:
            other = before.with_cluster(accelerator=device)
            return other.model_copy(update={"calibration": calibration})

        edit = {"cluster.accelerator": device.name, "calibration": calibration.name}
        text = f"{problem.devices} x {device.name} ({bytes_text(device.hbm)} each)"
        yield Way(text, "accelerator", change, edit)


# -- solving a change ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tried:
    """A changed problem's best plan, or whether it is settled that there is none."""

    best: tuple[Plan, Estimate] | None
    settled: bool


def attempt(problem: Problem, rules: tuple[Rule, ...], seconds: float) -> Tried:
    """Solve a changed problem; unsettled where it is too large or takes too long."""
    from optplan.planner import checked, run

    if seconds <= 0:
        return Tried(None, False)
    try:
        form, outcome = run(problem, rules, config=SolverConfig(seconds=seconds))
    except InputError:
        return Tried(None, False)
    if outcome.termination is Termination.INTERRUPTED:
        raise KeyboardInterrupt
    if outcome.best:
        plan, price, _ = checked(form, outcome.best[0])
        return Tried((plan, price), True)
    return Tried(None, outcome.termination in DONE)


def best_of(
    problem: Problem, rules: tuple[Rule, ...], seconds: float
) -> tuple[Plan, Estimate] | None:
    """Solve a changed problem; None where it is too large, has no plan, or takes too long."""
    return attempt(problem, rules, seconds).best


def solved(way: Way, problem: Problem, rules: tuple[Rule, ...], clock: Clock) -> WayOut | None:
    """Make a change and solve; None where that does not help, or not in time."""
    clock.say(way.text)
    tried = clock.attempt(way.change(problem), rules)
    return None if tried.best is None else _told(way, problem, *tried.best)


def until_cut(ways: Iterator[WayOut], clock: Clock) -> Iterator[WayOut]:
    """Keep what was found when a person has waited long enough."""
    try:
        yield from ways
    except KeyboardInterrupt:
        clock.cut = True


def _told(way: Way, problem: Problem, plan: Plan, price: Estimate) -> WayOut:
    """Write a way out down; of a host, the memory it needs."""
    text, edit, note = way.text, way.edit, way.note
    changed = way.change(problem)
    host = changed.cluster.host
    if way.kind == "memory" and host is not None and host.memory == ENDLESS.memory:
        if not plan.offload:
            return written(way, text, edit, note, plan, price)
        need = _round_up(host_bytes(changed, plan))
        text = f"{text}: {bytes_text(need)} a node"
        if problem.cluster.host is not None:
            edit = {**edit, "cluster.host.memory": show(need, "bytes")}
        else:
            host = host.model_copy(update={"memory": need})
            edit = {**edit, "cluster.host": host.model_dump(mode="json")}
            note = "a lower bound: what its link and memory take is not in it; give cluster.host"
    return written(way, text, edit, note, plan, price)


def written(
    way: Way, text: str, edit: dict[str, Any], note: str, plan: Plan, price: Estimate
) -> WayOut:
    """Fill in the record."""
    return WayOut(
        change=text,
        kind=way.kind,
        edit=edit,
        note=note,
        step_seconds=price.step_seconds,
        tokens_per_second_per_device=price.tokens_per_second_per_device,
        plan=plan,
    )


def _round_up(size: int) -> int:
    """Round bytes up to a whole GiB."""
    return -(-size // 2**30) * 2**30


def together(ways: Iterable[Way]) -> Way:
    """Make all changes at once."""
    every = list(ways)
    edit: dict[str, Any] = {}
    for way in every:
        limits = [*edit.get("limits", ()), *way.edit.get("limits", ())]
        edit |= way.edit | ({"limits": limits} if limits else {})

    def change(before: Problem) -> Problem:
        for way in every:
            before = way.change(before)
        return before

    return Way(", ".join(way.text for way in every), "several", change, edit)


def sorted_ways(ways: Iterable[WayOut]) -> tuple[WayOut, ...]:
    """Put the cheapest change first, and of one kind the fastest; a dozen at most."""
    order = {kind: place for place, kind in enumerate(KINDS)}
    found = sorted(
        ways, key=lambda way: (order[way.kind], way.step_seconds / way.plan.global_batch)
    )
    return tuple(found[:MOST_WAYS])
