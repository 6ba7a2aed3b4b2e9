"""Problem to program, and assignment to plan and back."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

from optplan.models.builder import Builder
from optplan.models.domains import (
    CHOICES,
    WORDS,
    asked_values,
    framed_values,
    natural_values,
)
from optplan.models.layout import fixed_shape
from optplan.models.pipeline import handed, handed_of
from optplan.models.priced import Priced
from optplan.models.program import Fact, Goal, Program
from optplan.models.rules.framework import Framed
from optplan.models.rules.limits import UserLimit
from optplan.models.rules.registry import Rule, code_of, rules
from optplan.models.rules.search import Asked
from optplan.models.spec.framework import CONTEXTS, SCHEDULES
from optplan.models.spec.plan import Plan
from optplan.models.spec.problem import TIMED, GoalName, Problem
from optplan.models.spec.space import ORDERS, RECOMPUTES, Recompute
from optplan.models.tabulate import blurred, post_prices

log = logging.getLogger(__name__)

__all__ = ["CHOICES", "Formulation", "even_layers", "formulate", "plan_of"]


@dataclass(frozen=True)
class Formulation:
    """
    A problem as a program, and the way back.

    Parameters
    ----------
    problem, program
        What was asked, and its translation.
    tick
        Seconds that one unit of a time column is worth.
    rules
        Every rule that a plan must obey: the shipped ones, what the search asks, and the user's
        own.
    """

    problem: Problem
    program: Program
    tick: Fraction
    rules: tuple[Rule, ...]
    more: tuple[Rule, ...] = ()
    near: float | None = None
    priced: Priced | None = field(default=None, compare=False, repr=False)

    def decode(self, assignment: Mapping[str, int]) -> Plan:
        """Turn values of the choices into a plan."""
        return plan_of(self.problem, assignment)

    @property
    def goal_scale(self) -> float:
        """Worth of one unit of the program's goal in the printed unit."""
        return self.program.goal.scale

    def rounding_seconds(self, plan: Plan) -> float:
        """Seconds by which whole ticks may price a step below its price in floats."""
        return float(self.tick) * blurred(self.problem, plan.micro_batches)

    def encode(self, plan: Plan) -> dict[str, int]:
        """Turn a plan into values of the choices and of what is handed out."""
        given = handed(plan.layers_per_stage, plan.recomputed_layers_per_stage)
        return {name: code_of(plan, name) for name in CHOICES} | given


def plan_of(problem: Problem, assignment: Mapping[str, int]) -> Plan:
    """
    Turn values of all choices into a plan, whether or not it obeys any rule.

    Layers per stage are what the assignment carries as ``layers[i]`` and ``again[i]``; without
    them they are as even as the schedule makes them, all or none of them recomputed.
    """
    pp = assignment["pp"]
    recompute: Recompute = RECOMPUTES[assignment["recompute"]]
    if f"layers[{pp - 1}]" in assignment:
        layers, again = handed_of(assignment)
    else:
        layers = usual_layers(problem, pp, assignment["vpp"], assignment["schedule"])
        again = layers if recompute in ("full", "partial") else (0,) * pp
    return Plan(
        tp=assignment["tp"],
        pp=pp,
        dp=assignment["dp"],
        cp=assignment["cp"],
        ep=assignment["ep"],
        etp=assignment["etp"],
        micro_batch=assignment["micro_batch"],
        micro_batches=assignment["micro_batches"],
        global_batch=assignment["global_batch"],
        vpp=assignment["vpp"],
        schedule=SCHEDULES[assignment["schedule"]],
        zero=assignment["zero"],
        hsdp=bool(assignment["hsdp"]),
        context=CONTEXTS[assignment["context"]],
        order=ORDERS[assignment["order"]],
        offload=bool(assignment["offload"]),
        sequence_parallel=bool(assignment["sequence_parallel"]),
        recompute=_granularity(recompute),
        layers_per_stage=layers,
        recomputed_layers_per_stage=again,
    )


def _granularity(recompute: Recompute) -> Recompute:
    """Name recomputation as launchers do: some layers or all of them are "full"."""
    return "full" if recompute == "partial" else recompute


def usual_layers(problem: Problem, pp: int, vpp: int, schedule: int) -> tuple[int, ...]:
    """Layers per stage in equal chunks where that is possible, else as even as can be."""
    one = (np.array([n], dtype=np.int64) for n in (pp, vpp, schedule))
    shape = fixed_shape(problem, *one)
    layers = problem.workload.architecture.layers
    even = shape.layers(pp, vpp)
    return even if sum(even) == layers and min(even) >= 0 else even_layers(layers, pp)


def even_layers(layers: int, pp: int) -> tuple[int, ...]:
    """Hand out layers as evenly as possible, the earlier stages taking what is left over."""
    each, over = divmod(layers, pp)
    return tuple(each + (stage < over) for stage in range(pp))


def formulate(
    problem: Problem,
    more: Sequence[Rule] = (),
    widened: bool = False,
    near: float | None = None,
    prices: Priced | None = None,
) -> Formulation:
    """
    Write a problem as a program.

    Parameters
    ----------
    problem
        What is asked.
    more
        Rules of the user's own, posted after the shipped ones.
    widened
        True to leave every choice its natural domain and to post what the user fixed as rules
        ``search.<choice>``, so that an explanation can name them.
    near
        Seconds per sequence of a plan that is known to be possible; ticks are then as fine as it
        deserves, and far slower plans are no longer told apart.
    prices
        Prices of the same problem, ``priced`` of a formulation on other ticks.

    Raises
    ------
    InputError
        The space is too large to write down; names the choice to narrow.
    """
    say = Builder()
    asked = asked_values(problem)
    natural = natural_values(problem, asked)
    framed = framed_values(problem)
    for name in CHOICES:
        wanted = asked.get(name)
        narrow = wanted is not None and not widened and name != "global_batch"
        values = (
            np.intersect1d(natural[name], wanted)
            if narrow and wanted is not None
            else natural[name]
        )
        if name in framed and not widened:
            values = np.intersect1d(values, np.array(framed[name], dtype=np.int64))
        say.choice(name, values, WORDS.get(name, ()))
    posted = [known for known in rules() if known.applies(problem)]
    more = [known for known in more if known.applies(problem)]
    priced = [known for known in posted if known.name.startswith("capacity.")]
    wanted_rules = [
        Asked(name, values)
        for name, values in asked.items()
        if values is not None and name != "global_batch"
    ]
    framing = [Framed(problem, name, values) for name, values in framed.items()]
    narrow_rules = [*wanted_rules, *framing] if widened else []
    for known in (*(r for r in posted if r not in priced), *narrow_rules):
        known.post(say, problem)
    priced_floats = post_prices(say, problem, near, prices)
    limits = [UserLimit(limit) for limit in problem.limits]
    for known in (*priced, *more, *limits):
        known.post(say, problem)
    everything = (*posted, *framing, *wanted_rules, *more, *limits)
    for known in everything:
        say.sentences[known.name] = known.sentence
    for fact in _facts(problem):
        say.fact(fact)
    # Experts decide most of what a layer costs, sharding most of what it holds.
    say.branching = (("ep", "etp"), ("zero", "hsdp", "offload"))
    program = say.program(goal_in(problem, problem.main_goal, say.tick), ties_of(problem.main_goal))
    log.info(
        "%d choices, %d statements, %d rules, a tick is %g s",
        len(program.choices),
        len(program.statements),
        len(everything),
        float(say.tick),
    )
    return Formulation(problem, program, say.tick, everything, tuple(more), near, priced_floats)


def goal_in(problem: Problem, goal: GoalName, tick: Fraction) -> Goal:
    """Return what the best plan is best at."""
    if goal == "most-headroom":
        return Goal("peak_bytes", None, 1.0, "bytes")
    each, unit = worth(problem, goal)
    # Where all devices are held whatever is in use, their number is but a factor.
    times = "held" if goal != "fastest" and problem.cluster.held != "all" else None
    if goal != "fastest" and times is None:
        each *= problem.devices
    return Goal("step_ticks", "global_batch", float(tick) * each, unit, times=times)


def worth(problem: Problem, goal: GoalName) -> tuple[float, str]:
    """
    Return what a second is worth to a goal that is timed, and the unit of the goal.

    A second of one held device costs its price, or draws its power; of the plan as a whole it is
    a second.
    """
    cluster = problem.cluster
    if goal == "cheapest":
        price = cluster.device_price
        assert price is not None
        return price.amount / 3600.0, f"{price.currency}/sequence"
    if goal == "least-energy":
        assert cluster.accelerator.power is not None
        return float(cluster.accelerator.power) * (cluster.pue or 1.0), "J/sequence"
    return 1.0, "s/sequence"


def ties_of(goal: GoalName) -> tuple[str, ...]:
    """Return what settles ties: memory (or time), then the plainest plan."""
    first = "step_ticks" if goal == "most-headroom" else "peak_bytes"
    return (first, *CHOICES)


def _facts(problem: Problem) -> tuple[Fact, ...]:
    """
    Declare what is monotone, for engines that prune.

    With rho's published form a stage's time is a maximum of affine functions of the micro-batch
    with intercepts >= 0, which makes the step time at a fixed global batch convex in it
    (tests/models/test_facts.py).
    """
    fits = [r.name for r in rules() if r.name.startswith("capacity.") and r.applies(problem)]
    memory = tuple(
        Fact("Eqs. 17-20", name, "micro_batch", "rises", ("micro_batches",)) for name in fits
    )
    # Along batches nothing moves the devices held, so that what holds of time holds of money.
    if problem.main_goal not in TIMED or problem.prices != "paper":
        return memory if problem.prices == "paper" else ()
    return (
        Fact("Eq. 15", "goal", "global_batch", "falls", ("micro_batches",)),
        Fact("Eq. 16", "goal", "micro_batch", "dips", ("micro_batches",)),
        *memory,
    )
