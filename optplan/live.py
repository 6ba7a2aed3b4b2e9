"""The same problem as a live Pyomo or CP-SAT model, for whoever wants to add to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from optplan.models.errors import Fault, InputError, OwnFault
from optplan.models.formulate import Formulation, formulate
from optplan.models.rules.registry import Rule
from optplan.models.spec.plan import Plan
from optplan.planner import Condition, Spec, problem_of
from optplan.solvers import exhaustive
from optplan.solvers.base import Holding, SolverConfig, Termination
from optplan.solvers.late import Late
from optplan.solvers.left import Left
from optplan.solvers.search import Search
from optplan.solvers.settle import Settler

if TYPE_CHECKING:
    import pyomo.environ as pyo
    from ortools.sat.python import cp_model as sat

    from optplan.solvers.cpsat_model import Model

WITHIN = 0.2
"""Share by which the best may be exceeded by the plans that a live model holds, unless told."""

MOST_STAGES = 30_000
"""Stages that a live model may hold; where there are more, plans nearer to the best are kept."""

FEWER = (4.0, 2.0, 1.0, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001, 0.0)
"""Shares that are tried where there are too many stages."""


class NoPlan(InputError):
    """A spec has no plan that could be written down."""


@dataclass(frozen=True)
class Part:
    """
    The part of a space that a live model holds.

    Parameters
    ----------
    form
        The problem as a program.
    left
        Every point that may hold a plan within the share, and maybe some others.
    within
        Every plan whose goal exceeds the best by no more than this share is in it; None where all
        plans are.
    points
        Points of the whole space.
    best
        Goal of the best plan, in the printed unit; None under limits that ask for slowness.
    held
        The best plan's values with its layers; None where it is not known beforehand.
    """

    form: Formulation
    left: Left
    within: float | None
    points: int
    best: float | None
    held: dict[str, int] | None = None


def share_of(within: float | str | None) -> float | None:
    """
    Read a share such as ``0.2`` or ``20%``; None for ``all``.

    Raises
    ------
    InputError
        It is none.
    """
    if within is None or within == "all":
        return None
    text = str(within)
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = -1.0
    if not 0 <= share < 1000:
        remedy = "write a share of the best, such as 20%, or all"
        raise InputError([Fault("", "within", f"cannot read {text!r} as a share", remedy)])
    return share


def part_of(
    spec: Spec,
    within: float | str | None = WITHIN,
    sets: Sequence[str] = (),
    limits: Sequence[Condition] = (),
    rules: Iterable[Rule] = (),
) -> Part:
    """
    Find the points that may hold a plan within a share of the best.

    Raises
    ------
    InputError
        The spec is wrong, has no plan at all, or more plans within the share than a model can hold
        where ``all`` were asked for.
    """
    form = formulate(problem_of(spec, sets, limits), tuple(rules))
    share = share_of(within)
    hard = Late(form.program).hard
    if hard:
        share = None  # The best is not known before such limits are proved.
    search = Search(form.program, SolverConfig())
    search.spare = float("inf") if share is None else 1 + share
    found = search.run()
    if found.outcome.termination is Termination.INTERRUPTED:
        raise KeyboardInterrupt
    if found.outcome.holding is Holding.NOTHING and not len(found.left):
        remedy = "run optplan solve, which says which rules clash"
        raise NoPlan([Fault("", "spec", "there is no plan to be written down", remedy)])
    goal = 0.0 if found.outcome.goal is None else float(found.outcome.goal)
    left, share = _bearable(form, found.left, share, goal)
    points = exhaustive.count(form.program)
    held = found.outcome.best[0] if found.outcome.best and not hard else None
    best = None if held is None else goal * form.program.goal.scale
    return Part(form, left, share, points, best, held)


def _bearable(
    form: Formulation, left: Left, share: float | None, goal: float
) -> tuple[Left, float | None]:
    """Keep as many points as a model can hold; a stage whose layers are fixed is nothing to it."""
    pipeline = form.program.pipeline
    fixed = pipeline is not None and (pipeline.even or bool(pipeline.given))
    for smaller in (share, *(s for s in FEWER if share is not None and s < share)):
        near = float("inf") if smaller is None else goal * (1 + smaller)
        part = left if smaller is share else left.take(left.bound <= near)
        free = (part.columns["free"] == 1) & (not fixed)
        stages = int(part.columns["pp"][free].sum()) + int((~free).sum())
        if stages <= MOST_STAGES:
            return part, smaller
    raise InputError(
        [
            Fault(
                "",
                "within",
                f"{len(left):,} points within that share of the best are too many for one model",
                "give a smaller share, or narrow the search",
            )
        ]
    )


def pyomo_model(
    spec: Spec,
    *,
    within: float | str | None = WITHIN,
    exact: bool = False,
    sets: Sequence[str] = (),
    limits: Sequence[Condition] = (),
    rules: Iterable[Rule] = (),
) -> pyo.ConcreteModel:
    """
    Write a spec as a live Pyomo model.

    The model holds every plan within a share of the best: its optimum is that of the spec, and with
    constraints added it still is as long as it lies within that share (`Part.within`); beyond it,
    ask for more. Choices are variables of their names (``model.tp``), ``model.step_seconds``,
    ``model.peak_memory`` (bytes) and ``model.global_batch`` are there to be constrained,
    ``model.option[k]`` holds the layers of each pipeline, and ``plan_in`` reads a solution back.

    Parameters
    ----------
    within
        Share by which the best may be exceeded: 0.2, "20%", or "all".
    exact
        Whether time and memory must be exactly what the layers make of them, for constraints that
        ask for more of them; without it they are no less.

    Raises
    ------
    InputError
        The spec is wrong or has no plan; carries every fault.
    """
    part = part_of(spec, within, sets, limits, rules)
    return pyomo_of(part, exact)


def pyomo_of(part: Part, exact: bool = False) -> pyo.ConcreteModel:
    """Write a part of a space as a live Pyomo model."""
    from optplan.solvers.milp_hull import name_units
    from optplan.solvers.milp_pipeline import live

    name = str(part.form.problem.workload.architecture.name or "program")
    hull = live(part.form.program, part.left, part.held, exact, name)
    name_units(hull.raw, float(part.form.tick))
    hull.raw.optplan = (part, hull)
    return hull.raw


def cp_model(
    spec: Spec,
    *,
    within: float | str | None = WITHIN,
    sets: Sequence[str] = (),
    limits: Sequence[Condition] = (),
    rules: Iterable[Rule] = (),
) -> Model:
    """
    Write a spec as a live CP-SAT model.

    As ``pyomo_model``; ``model.raw`` is OR-Tools' own model, ``model.columns`` has every choice by
    its name, ``step_ticks`` (``model.tick_seconds`` each), ``peak_bytes``, ``layers[i]`` and
    ``again[i]``.

    Raises
    ------
    InputError
        The spec is wrong or has no plan; carries every fault.
    """
    return cp_of(part_of(spec, within, sets, limits, rules))


def cp_of(part: Part) -> Model:
    """Write a part of a space as a live CP-SAT model."""
    from optplan.solvers.cpsat_pipeline import live

    model, parts = live(part.form.program, part.left, part.held)
    model.tick_seconds = float(part.form.tick)
    model.origin = (part, parts)
    return model


def of_choices(model: Any, function: Callable[[Mapping[str, int]], int]) -> Any:
    """
    Write any function of the choices as a linear expression of a live model.

    Every point of the model has one value of it, so that products and quotients of choices cost
    nothing: ``of_choices(model, lambda at: at["tp"] * at["pp"]) <= 32``.

    Parameters
    ----------
    model
        What ``pyomo_model`` or ``cp_model`` returned.
    function
        Takes values of the choices by name (words by their place in the program's list) and
        returns a whole number.
    """
    if hasattr(model, "raw"):
        _, parts = model.origin
        pairs = zip(parts.options, parts.selectors, strict=True)
        return sum(function(parts.points[option.place]) * on for option, on in pairs)
    hull = model.optplan[1]
    return hull.sheet.expression(hull.of_choices(function))


def plan_in(model: Any, solver: sat.CpSolver | None = None) -> Plan:
    """
    Read the plan that a live model holds; before it is solved, a Pyomo model holds the spec's best.

    Parameters
    ----------
    model
        What ``pyomo_model`` or ``cp_model`` returned, solved.
    solver
        The CP-SAT solver that solved it.

    Raises
    ------
    InputError
        The model holds no solution.
    OwnFault
        The solution breaks a rule of the spec.
    """
    if not _solved(model, solver):
        problem, remedy = "the model holds no solution", "solve it first, and ask how that ended"
        raise InputError([Fault("", "model", problem, remedy)])
    if solver is not None:
        part, parts = model.origin
        option, shared = parts.read(solver)
        point = parts.points[option.place]
    else:
        part, hull = model.optplan
        option, shared = hull.found()
        point = hull.points[option.place]
    form: Formulation = part.form
    full = Settler(form.program).handed_out(point, shared)
    broken = list(form.program.broken(form.program.carried(full)))
    if broken:
        raise OwnFault(f"the model's solution breaks {', '.join(broken)}")
    return form.decode(full)


def _solved(model: Any, solver: sat.CpSolver | None) -> bool:
    """Tell whether a live model holds a solution."""
    if solver is not None:
        from ortools.sat.python.cp_model import FEASIBLE, OPTIMAL

        try:
            return solver.response_proto.status in (OPTIMAL, FEASIBLE)
        except RuntimeError:  # it has not been called
            return False
    on: list[float | None] = [point.value for point in model.component("point").var.values()]
    return None not in on and 0.99 < sum(value or 0.0 for value in on) < 1.01
