"""Problem to program, and assignment to plan and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, log10

import numpy as np

from optplan.models.builder import LARGEST_TABLE, Builder, too_large
from optplan.models.cost.memory import kept_activations, states, working_bytes
from optplan.models.cost.parameters import stage_parameters
from optplan.models.cost.stage import stage_time
from optplan.models.cost.step import step_time
from optplan.models.cost.traffic import hop_seconds
from optplan.models.errors import Fault, InputError
from optplan.models.numbers import divisors
from optplan.models.program import LARGEST, Fact, Goal, Integers, Program
from optplan.models.rules.limits import UserLimit
from optplan.models.rules.registry import Rule, rules
from optplan.models.rules.search import Asked
from optplan.models.spec.plan import Plan
from optplan.models.spec.problem import Problem
from optplan.models.spec.space import RECOMPUTES, ZEROS, Recompute, Span

CHOICES = (
    "tp",
    "pp",
    "dp",
    "micro_batch",
    "micro_batches",
    "global_batch",
    "sequence_parallel",
    "recompute",
    "zero",
)
"""Every choice, in the order in which ties are settled (smaller first)."""

MOST_BATCHES = 100_000
"""Global batches that one problem may leave open."""

SATURATED = 2**56
"""Bytes at which memory columns stop counting: far beyond any device, far below 64 bits."""


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

    def decode(self, assignment: Mapping[str, int]) -> Plan:
        """Turn values of the choices into a plan."""
        return plan_of(self.problem, assignment)

    def encode(self, plan: Plan) -> dict[str, int]:
        """Turn a plan into values of the choices."""
        values = {name: int(getattr(plan, name)) for name in CHOICES if name != "recompute"}
        return values | {"recompute": RECOMPUTES.index(plan.recompute)}


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


def formulate(problem: Problem, more: Sequence[Rule] = (), widened: bool = False) -> Formulation:
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
    least = _post_time(say, problem)
    _post_memory(say, problem)
    limits = [UserLimit(limit) for limit in problem.limits]
    for known in (*priced, *more, *limits):
        known.post(say, problem)
    everything = (*posted, *wanted_rules, *more, *limits)
    for known in everything:
        say.sentences[known.name] = known.sentence
    for fact in _facts(problem):
        say.fact(fact)
    program = say.program(_goal(problem, say.tick, least), _ties(problem))
    return Formulation(problem, program, say.tick, everything)


def asked_values(problem: Problem) -> dict[str, Integers | None]:
    """Values that the spec allows, by choice; None where it leaves the choice open."""
    search = problem.search
    asked: dict[str, Integers | None] = {}
    for name in CHOICES:
        wanted = getattr(search, name)
        if wanted is None:
            asked[name] = None
        elif isinstance(wanted, Span):
            asked[name] = _span(name, wanted, problem)
        else:
            items = wanted if isinstance(wanted, tuple) else (wanted,)
            codes = [RECOMPUTES.index(i) if isinstance(i, str) else int(i) for i in items]
            asked[name] = np.unique(np.array(codes, dtype=np.int64))
    return asked


def _span(name: str, span: Span, problem: Problem) -> Integers:
    """List the values of a range."""
    step = span.multiple_of
    start = -(-span.min // step) * step
    if span.max is None and name == "global_batch":
        remedy = "add max, such as {min: 256, max: 1024, multiple_of: 64}"
        raise InputError(
            [Fault("", "search.global_batch", "a range without max has no end", remedy)]
        )
    stop = span.max if span.max is not None else max(problem.devices, _largest_batch(problem))
    if (stop - start) // step >= MOST_BATCHES and name == "global_batch":
        raise too_large("search.global_batch", (stop - start) // step + 1, "global_batch")
    if name != "global_batch":
        # Only divisors of something can be chosen; natural domains do the rest.
        stop = min(stop, max(problem.devices, _largest_batch(problem)))
    return np.arange(start, stop + 1, step, dtype=np.int64)


def _largest_batch(problem: Problem) -> int:
    """Largest global batch that the spec allows."""
    wanted = problem.search.global_batch
    if isinstance(wanted, Span):
        return wanted.max or 0
    return max(wanted) if isinstance(wanted, tuple) else wanted


def natural_values(problem: Problem, asked: Mapping[str, Integers | None]) -> dict[str, Integers]:
    """Values each choice could have if the spec were silent; global batches are always its own."""
    batches = asked["global_batch"]
    assert batches is not None
    degrees = np.array(divisors(problem.devices), dtype=np.int64)
    parts = np.unique(np.concatenate([np.array(divisors(int(b)), dtype=np.int64) for b in batches]))
    return {
        "tp": degrees,
        "pp": degrees,
        "dp": degrees,
        "micro_batch": parts,
        "micro_batches": parts,
        "global_batch": batches,
        "sequence_parallel": np.array([0, 1], dtype=np.int64),
        "recompute": np.arange(len(RECOMPUTES), dtype=np.int64),
        "zero": np.array(ZEROS, dtype=np.int64),
    }


def _post_time(say: Builder, problem: Problem) -> Fraction:
    """
    Tabulate the step time.

    ``step = micro_batches * steady + fill + once``: what every micro-batch costs on the slowest
    stage, what filling and draining the pipeline adds, and what a step pays once. Each is rounded
    down to whole ticks, so that the program's optimum is a bound from below.

    Returns
    -------
    Fraction
        Ticks per sequence that no plan can beat: the busiest stage alone, without bubble, without
        the end of the step, memory no object.
    """
    tp, pp, b, sp, again = _grid(say, ("tp", "pp", "micro_batch", "sequence_parallel", "recompute"))
    dp = problem.devices // (tp * pp)
    layers = np.maximum(1, -(-problem.workload.architecture.layers // pp))
    recomputed = layers * again
    one = pp == 1
    paper = problem.prices == "paper"

    def busy(first: object, last: object) -> np.ndarray:
        everywhere = np.ones_like(one) if paper else last
        return np.asarray(stage_time(problem, layers, recomputed, first, everywhere, tp, b).total)  # type: ignore[arg-type]

    no, yes = np.zeros_like(one), np.ones_like(one)
    front, middle, back = busy(yes, one), busy(no, no), busy(one, yes)
    slowest = np.maximum(np.maximum(front, middle), back)
    bubble = np.where(one, 0.0, front + (pp - 2) * middle + back - slowest)
    hops = hop_seconds(problem, b, tp, pp, dp, sp)
    steady = slowest + problem.calibration.p2p_exposed * hops.steady
    fill = bubble + hops.fill

    tp_, pp_, dp_, zero = _grid(say, ("tp", "pp", "dp", "zero"))
    shape = problem.workload.architecture
    layers_ = np.maximum(1, -(-shape.layers // pp_))
    fullest = np.maximum(
        stage_parameters(shape, layers_, np.ones_like(pp_ == 1), pp_ == 1, tp_),
        stage_parameters(shape, layers_, pp_ == 1, np.ones_like(pp_ == 1), tp_),
    )
    once = np.asarray(step_time(problem, fullest, tp_, dp_, zero).total)

    batches = say.domain["global_batch"]
    per_sequence = float(np.max(steady / (b * dp), initial=0.0))
    working = per_sequence * float(batches.max())
    longest = working + float(np.max(fill, initial=0.0)) + float(np.max(once, initial=0.0))
    most = float(np.max(steady, initial=0.0)) * float(say.domain["micro_batches"].max(initial=1))
    say.tick = _tick(longest * (float(batches.max()) if len(batches) > 1 else 1.0), most)
    unit = float(say.tick)

    def ticks(seconds: np.ndarray) -> Integers:
        return np.floor(seconds / unit).astype(np.int64)

    keys = {"tp": tp, "pp": pp, "micro_batch": b, "sequence_parallel": sp, "recompute": again}
    say.price("price.micro_batch", keys, {"steady": ticks(steady), "fill": ticks(fill)})
    say.price("price.step", {"tp": tp_, "pp": pp_, "dp": dp_, "zero": zero}, {"once": ticks(once)})
    say.multiply(
        "price.all_micro_batches",
        "all_steady",
        "micro_batches",
        "steady",
        most=int(working / unit) + 1,
    )
    say.sum("price.step_time", "step_ticks", ((1, "all_steady"), (1, "fill"), (1, "once")))
    fastest = int(np.floor(np.min(steady / (b * dp), initial=np.inf) / unit)) if len(b) else 0
    return Fraction(fastest)


def _tick(longest: float, most: float) -> Fraction:
    """
    Choose what one unit of time is worth: a power of ten, as fine as 64 bits allow.

    ``longest`` seconds may occur in a sum, ``most`` in a product of bounds.
    """
    need = max(longest / 2**58, most / (LARGEST // 4), 1e-15)
    return Fraction(10) ** ceil(log10(need))


def _post_memory(say: Builder, problem: Problem) -> None:
    """
    Tabulate memory at both ends of the pipeline, in bytes, exactly as the verifier counts them.

    The first stage keeps the activations of ``min(pp, micro_batches)`` micro-batches, the last
    stage those of one.
    """
    tp, pp, dp, zero = _grid(say, ("tp", "pp", "dp", "zero"))
    layers = np.maximum(1, -(-problem.workload.architecture.layers // pp))
    one, yes = pp == 1, np.ones_like(pp == 1)
    given: dict[str, Integers] = {}
    for end, first, last in (("first", yes, one), ("last", one, yes)):
        weights, gradients, optimizer = states(problem, layers, first, last, tp, dp, zero)
        given[f"weights_{end}"] = _bounded(weights + gradients)
        given[f"optimizer_{end}"] = _bounded(optimizer)
    say.price("memory.states", {"tp": tp, "pp": pp, "dp": dp, "zero": zero}, given)

    tp, pp, b, sp, again = _grid(say, ("tp", "pp", "micro_batch", "sequence_parallel", "recompute"))
    layers = np.maximum(1, -(-problem.workload.architecture.layers // pp))
    recomputed = layers * again
    one, yes = pp == 1, np.ones_like(pp == 1)
    kept = kept_activations(problem, layers, recomputed, b, tp, sp)
    flight = int(min(say.domain["pp"].max(initial=1), say.domain["micro_batches"].max(initial=1)))
    keys = {"tp": tp, "pp": pp, "micro_batch": b, "sequence_parallel": sp, "recompute": again}
    given = {"activations_last": _bounded(kept, flight)}
    for end, last in (("first", one), ("last", yes)):
        given[f"working_{end}"] = _bounded(working_bytes(problem, recomputed, last, b, tp, sp))
    say.price("memory.activations", keys, given)
    say.smallest("memory.in_flight", "in_flight", ("pp", "micro_batches"))
    say.multiply("memory.activations_first", "activations_first", "in_flight", "activations_last")
    reserve = problem.calibration.reserve
    for end in ("first", "last"):
        parts = tuple(
            (1, f"{part}_{end}") for part in ("weights", "optimizer", "activations", "working")
        )
        say.sum(f"memory.peak[stage={end}]", f"peak_{end}", parts, reserve)
    say.largest("memory.peak", "peak_bytes", ("peak_first", "peak_last"))


def _grid(say: Builder, names: tuple[str, ...]) -> list[Integers]:
    """Combine choices whose degrees fit together on the cluster; an array per choice."""
    world = next(rows for name, rows in say.spaces.items() if name == "degrees.world")
    degrees = [n for n in names if n in ("tp", "pp", "dp")]
    pairs = np.unique(world[:, [("tp", "pp", "dp").index(n) for n in degrees]], axis=0)
    others = [n for n in names if n not in degrees]
    size = len(pairs) * int(np.prod([len(say.domain[n]) for n in others]))
    if size > LARGEST_TABLE:
        raise too_large("the price table", size, max(others, key=lambda n: len(say.domain[n])))
    index = np.meshgrid(np.arange(len(pairs)), *(say.domain[n] for n in others), indexing="ij")
    columns = {n: pairs[index[0].ravel(), i] for i, n in enumerate(degrees)}
    columns |= {n: axis.ravel() for n, axis in zip(others, index[1:], strict=True)}
    return [columns[n] for n in names]


def _bounded(size: object, times: int = 1) -> Integers:
    """Bytes as whole numbers that stay in range even when multiplied by ``times``."""
    return np.minimum(np.asarray(size, dtype=np.int64), SATURATED // max(1, times))


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
