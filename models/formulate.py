"""Problem to program, and assignment to plan and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from optplan.models.builder import Builder
from optplan.models.domains import CHOICES, asked_values, natural_values
from optplan.models.program import Fact, Goal, Program
from optplan.models.rules.limits import UserLimit
from optplan.models.rules.registry import Rule, code_of, rules
from optplan.models.rules.search import Asked
from optplan.models.spec.plan import Plan
from optplan.models.spec.problem import Problem
from optplan.models.spec.space import RECOMPUTES, Recompute
from optplan.models.tabulate import post_memory, post_time

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

    def decode(self, assignment: Mapping[str, int]) -> Plan:
        """Turn values of the choices into a plan."""
        return plan_of(self.problem, assignment)

    @property
    def goal_scale(self) -> float:
        """Worth of one unit of the program's goal in the printed unit."""
        return float(self.tick) if self.program.goal.unit == "s/sequence" else 1.0

    def rounding_seconds(self, plan: Plan) -> float:
        """Seconds by which whole ticks may price a step below its price in floats."""
        return float(self.tick) * (plan.global_batch + 2)

    def encode(self, plan: Plan) -> dict[str, int]:
        """Turn a plan into values of the choices."""
        return {name: code_of(plan, name) for name in CHOICES}


def plan_of(problem: Problem, assignment: Mapping[str, int]) -> Plan:
    """Turn values of all choices into a plan, whether or not it obeys any rule."""
    per_stage = even_layers(problem.workload.architecture.layers, assignment["pp"])
    recompute: Recompute = RECOMPUTES[assignment["recompute"]]
    return Plan(
        tp=assignment["tp"],
        pp=assignment["pp"],
        dp=assignment["dp"],
        micro_batch=assignment["micro_batch"],
        micro_batches=assignment["micro_batches"],
        global_batch=assignment["global_batch"],
        zero=assignment["zero"],
        sequence_parallel=bool(assignment["sequence_parallel"]),
        recompute=recompute,
        layers_per_stage=per_stage,
        recomputed_layers_per_stage=per_stage if recompute == "full" else (0,) * len(per_stage),
    )


def even_layers(layers: int, pp: int) -> tuple[int, ...]:
    """Hand out layers as evenly as possible, the earlier stages taking what is left over."""
    each, over = divmod(layers, pp)
    return tuple(each + (stage < over) for stage in range(pp))


def formulate(
    problem: Problem,
    more: Sequence[Rule] = (),
    widened: bool = False,
    near: float | None = None,
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

    Raises
    ------
    InputError
        The space is too large to write down; names the choice to narrow.
    """
    say = Builder()
    asked = asked_values(problem)
    natural = natural_values(problem, asked)
    for name in CHOICES:
        wanted = asked.get(name)
        narrow = wanted is not None and not widened and name != "global_batch"
        values = (
            np.intersect1d(natural[name], wanted)
            if narrow and wanted is not None
            else natural[name]
        )
        say.choice(name, values, {"recompute": RECOMPUTES}.get(name, ()))
    posted = [known for known in rules() if known.applies(problem)]
    priced = [known for known in posted if known.name.startswith("capacity.")]
    wanted_rules = [
        Asked(name, values)
        for name, values in asked.items()
        if values is not None and name != "global_batch"
    ]
    for known in (*(r for r in posted if r not in priced), *(wanted_rules if widened else ())):
        known.post(say, problem)
    least = post_time(say, problem, near)
    post_memory(say, problem)
    limits = [UserLimit(limit) for limit in problem.limits]
    for known in (*priced, *more, *limits):
        known.post(say, problem)
    everything = (*posted, *wanted_rules, *more, *limits)
    for known in everything:
        say.sentences[known.name] = known.sentence
    for fact in _facts(problem):
        say.fact(fact)
    program = say.program(_goal(problem, say.tick, least), _ties(problem))
    return Formulation(problem, program, say.tick, everything, tuple(more), near)


def _goal(problem: Problem, tick: Fraction, least: Fraction) -> Goal:
    """Return what the best plan is best at."""
    if problem.goal == "most-headroom":
        return Goal("peak_bytes", None, 1.0, "bytes")
    return Goal("step_ticks", "global_batch", float(tick), "s/sequence", least)


def _ties(problem: Problem) -> tuple[str, ...]:
    """Return what settles ties: memory (or time), then the plainest plan."""
    first = "step_ticks" if problem.goal == "most-headroom" else "peak_bytes"
    return (first, *CHOICES)


def _facts(problem: Problem) -> tuple[Fact, ...]:
    """
    Declare what is monotone, for engines that prune.

    With rho's published form a stage's time is a maximum of affine functions of the micro-batch
    with intercepts >= 0, which makes the step time at a fixed global batch convex in it
    (tests/models/test_facts.py).
    """
    held = (
        "peak_first",
        "peak_last",
        "activations_first",
        "activations_last",
        "working_first",
        "working_last",
    )
    memory = tuple(
        Fact("Eqs. 17-20", column, "micro_batch", "rises", ("micro_batches",)) for column in held
    )
    if problem.goal != "fastest":
        return memory
    return (
        Fact("Eq. 15", "goal", "global_batch", "falls", ("micro_batches",)),
        Fact("Eq. 16", "goal", "micro_batch", "dips", ("micro_batches",)),
        *memory,
    )
