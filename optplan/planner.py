"""One straight road: formulate, solve, decode, estimate, verify."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

from optplan.certificate import certificate_of
from optplan.costs import costs_of
from optplan.judge import judge, warnings
from optplan.load import load, readable
from optplan.models.cost.estimate import estimate
from optplan.models.cost.price import Estimate
from optplan.models.errors import Fault, InputError, OwnFault
from optplan.models.expression import Formula
from optplan.models.formulate import Formulation, formulate
from optplan.models.rules.registry import Rule
from optplan.models.spec.plan import Plan
from optplan.models.spec.problem import TIMED, Problem
from optplan.models.spec.space import Limit
from optplan.models.tabulate import ROOM
from optplan.result import Alternative, Explanation, Result, Status, Verdict
from optplan.solvers.base import (
    DONE,
    Holding,
    Outcome,
    Progress,
    Solver,
    SolverConfig,
    Termination,
    time_left,
)
from optplan.solvers.catalogue import engine as engine_named
from optplan.solvers.catalogue import kind_of, proving, require
from optplan.solvers.outside import refuse_outside
from optplan.solvers.proved import constrained, proved
from optplan.solvers.prover import Constrain
from optplan.solvers.search import Search

log = logging.getLogger(__name__)

EQUAL = 1e-12
"""Relative difference between two floats that are the same sum in another order."""

FINE = 1e-8
"""Rounding of the best plan's price, as a share, above which it is priced on finer ticks."""

Spec = str | Path | Mapping[str, Any] | Problem


Condition = str | Formula | Limit
"""A limit as text, as ``choice("tp") <= 8``, or with a name of its own."""


def problem_of(spec: Spec, sets: Sequence[str] = (), limits: Sequence[Condition] = ()) -> Problem:
    """Load a spec unless it is a problem already, and add limits to it."""
    if isinstance(spec, Problem) and not sets and not limits:
        return readable(spec)
    texts = [str(limit) for limit in limits if not isinstance(limit, Limit)]
    problem = load(spec, sets=sets, limits=texts)
    named = [limit for limit in limits if isinstance(limit, Limit)]
    if not named:
        return problem
    whole = problem.model_dump(mode="json")
    whole["limits"] += [limit.model_dump(mode="json") for limit in named]
    return load(whole)


def solve(
    spec: Spec,
    *,
    engine: str | Solver = "cp-sat",
    top: int = 5,
    time_limit: float | None = None,
    sets: Sequence[str] = (),
    limits: Sequence[Condition] = (),
    rules: Iterable[Rule] = (),
    seed: int = 0,
    workers: int = 1,
    reduce: bool = True,
    constrain: Constrain | None = None,
    resolution: int | None = None,
    progress: Callable[[Progress], None] | None = None,
    say: Callable[[str], None] | None = None,
) -> Result:
    """
    Find the provably best plan of a spec.

    Parameters
    ----------
    spec
        Path of a YAML file, a mapping of the same shape, or a problem.
    engine
        ``cp-sat``, ``milp`` (``milp:scip`` and others by name), ``exhaustive``, ``paper``, one that
        an installed package offers, or a function of a program and a ``SolverConfig``.
    top
        Next-best plans to return; 0: neither these nor what lies within the model's error, which
        takes a search of its own.
    time_limit
        Seconds for the search; what is found by then is returned with its gap.
    sets, limits
        As ``--set`` and ``--limit`` on the command line; a limit may also be a ``Limit`` or be
        built from ``optplan.choice``.
    rules
        Rules of the user's own, beyond those of the spec.
    seed, workers
        Of the engine. The plan does not depend on them.
    reduce
        False to hand the engine the whole program, for comparison; only what proves is reduced.
    constrain
        Adds constraints of the caller's own to the engine's live model: a CP-SAT ``Model`` or a
        Pyomo model, as ``cp_model`` and ``pyomo_model`` return them. It is called for every model
        that is made, one for each point that is looked at. Only cp-sat and milp have such models.
    resolution
        Bytes of memory that a front of several goals tells apart; left out: a twentieth of a
        device's memory; 0: every single point.
    progress
        Called now and then with incumbent and bound.
    say
        Called with each way out that is tried where there is no plan, and with what a front of
        several goals has come to.

    Returns
    -------
    Result
        Every plan in it has passed the verifier.

    Raises
    ------
    InputError
        The spec is wrong; carries every fault.
    OwnFault
        An answer did not pass the verifier.
    """
    start = time.monotonic()
    problem = problem_of(spec, sets, limits)
    loaded = time.monotonic()
    news = progress if problem.main_goal == "fastest" else _without_price(progress)
    config = SolverConfig(seconds=time_limit, workers=workers, seed=seed, progress=news)
    own = tuple(rules)
    weighed = len(problem.goals) > 1
    if weighed and constrain is not None:
        remedy = "name one goal where constraints are added to an engine's model"
        raise InputError([Fault("", "goal", "a list of goals has no live model", remedy)])
    form, outcome = run(problem, own, engine, config, reduce, constrain)
    front = None
    if weighed and outcome.holding is Holding.OPTIMAL:
        from optplan.front import best_first, front_of

        left = time_left(config, start)
        front = front_of(problem, own, engine, left, resolution, outcome.best[0], say)
        outcome = best_first(form, outcome, front)
    solved = time.monotonic()
    result = _result(form, outcome, 0 if constrain else top, config)
    if front is not None:
        result = result.model_copy(update={"front": front.points, "front_claim": front.claim})
    names = [rule.name for rule in own]
    if constrain is not None:
        names.append(f"constrain.{getattr(constrain, '__name__', 'constrain')}")
    result = result.model_copy(update={"rules": tuple(names)})
    if result.plan is None and result.exit_code == 1 and constrain is None:
        from optplan.infeasible import explain_infeasible

        result = result.model_copy(update={"explanation": explain_infeasible(problem, own, say)})
    spent = {
        "load": loaded - start,
        "formulate": solved - loaded - outcome.seconds,
        "solve": outcome.seconds,
        "verify": time.monotonic() - solved,
    }
    return result.model_copy(update={"seconds": spent}).sealed()


def _without_price(
    progress: Callable[[Progress], None] | None,
) -> Callable[[Progress], None] | None:
    """Tell of a search whose goal is no time only how far it has come."""
    if progress is None:
        return None
    return lambda news: progress(replace(news, incumbent=None, bound=None))


def run(
    problem: Problem,
    rules: tuple[Rule, ...] = (),
    engine: str | Solver = "cp-sat",
    config: SolverConfig | None = None,
    reduce: bool = True,
    constrain: Constrain | None = None,
) -> tuple[Formulation, Outcome]:
    """
    Formulate and solve; once more on finer ticks where the first ones blur the best plan.

    Ticks must span from the fastest plan to the slowest. Where that makes them coarse, the plan
    found tells how fine they have to be.
    """
    require(engine)
    config, start = config or SolverConfig(), time.monotonic()
    form = formulate(problem, rules)
    outcome = _engine(form, engine, time_left(config, start), reduce, constrain)
    if not outcome.best:
        return form, outcome
    plan, price, _ = checked(form, outcome.best[0])
    if form.rounding_seconds(plan) <= FINE * price.step_seconds:
        return form, outcome
    if engine == "paper":
        # Slow plans are cut off on finer ticks, which its facts would take for a rise.
        return form, _unsettled(outcome) if _timed(problem) else outcome
    near = price.step_seconds / plan.global_batch
    # A plan that takes longer is cheaper where it holds as much fewer devices.
    near *= _spread(form, outcome.best[0])
    finer = _finer(form, outcome.best[0], near) if problem.main_goal in TIMED else None
    if finer is not None:
        again = _engine(finer, engine, time_left(config, start), reduce, constrain)
        if again.holding is outcome.holding:
            return finer, replace(again, seconds=outcome.seconds + again.seconds)
    return form, outcome


def _spread(form: Formulation, held: Mapping[str, int]) -> float:
    """How many times the devices that a plan holds are the fewest that any plan could hold."""
    times = form.program.goal.times
    if times is None:
        return 1.0
    return form.program.evaluate(held)[times] / max(1, form.program.bounds[times][0])


def _timed(problem: Problem) -> bool:
    """Tell whether a limit asks for the step time."""
    return any("step_seconds" in limit.rule for limit in problem.limits)


def _unsettled(outcome: Outcome) -> Outcome:
    """Take back an answer that rounding may have decided."""
    detail = "ticks are too coarse to settle limits on step_seconds without refining them"
    nothing = Outcome(Termination.UNSUPPORTED, Holding.NOTHING, detail=detail)
    return replace(nothing, engine=outcome.engine, seconds=outcome.seconds)


def _finer(form: Formulation, held: Mapping[str, int], near: float) -> Formulation | None:
    """
    Formulate again on ticks as fine as a plan deserves; None where that cannot be done.

    Finer ticks cut off what is more than ``ROOM`` times slower than the plan held, which takes
    ``near`` seconds per sequence. Where they make a limit refuse that plan, the best plan may be
    one of those; then a wider span is tried, until the ticks are as coarse as before.
    """
    log.info("ticks of %g s blur the best plan; once more on finer ones", float(form.tick))
    while True:
        try:
            finer = formulate(form.problem, form.more, near=near, prices=form.priced)
        except InputError:
            return None
        if finer.tick >= form.tick:
            return None
        if not any(finer.program.broken(held)):
            return finer
        found = proved(finer.program)
        if found.best:
            plan = finer.decode(found.best[0])
            if estimate(form.problem, plan).step_seconds <= ROOM * near * plan.global_batch:
                return finer
        near *= ROOM


def _engine(
    form: Formulation,
    engine: str | Solver,
    config: SolverConfig,
    reduce: bool,
    constrain: Constrain | None,
) -> Outcome:
    """Bound, reduce, prove; engines that price points themselves take the whole program."""
    how = proving(engine)
    if constrain is not None:
        if how is None:
            remedy = "take cp-sat or milp"
            problem = f"{engine} has no live model that constraints could be added to"
            raise InputError([Fault("", "engine", problem, remedy)])
        tick = float(form.tick)
        return constrained(form.program, config, with_units(constrain, tick), how.prove_left)
    if how is None:
        return engine_named(engine)(form.program, config)
    if not reduce:
        start = time.monotonic()
        everything = Search(form.program, config, bounded=False).everything()
        return how.solve_whole(form.program, everything, time_left(config, start))
    found = proved(form.program, config, how.prove_left, lambda best: checked(form, best))
    # Where nothing was left to prove the search speaks, on behalf of whoever was asked.
    return replace(
        found, engine=found.engine.replace("cp-sat, search", f"{kind_of(str(engine))}, search")
    )


def answered(form: Formulation, engine: str | Solver, config: SolverConfig) -> Outcome:
    """Ask an engine for the best point of a formulation, as it stands."""
    return _engine(form, engine, config, True, None)


def with_units(constrain: Constrain, tick: float) -> Constrain:
    """Let a user's constraints be written in seconds and bytes on any engine's live model."""

    def units(model: Any) -> object:
        if hasattr(model, "tick_seconds"):
            model.tick_seconds = tick
        else:
            import_module("optplan.solvers.milp_hull").name_units(model, tick)
        return constrain(model)

    return units


def checked(form: Formulation, assignment: Mapping[str, int]) -> tuple[Plan, Estimate, Verdict]:
    """
    Turn an assignment into a plan that has passed the verifier.

    Raises
    ------
    OwnFault
        A rule refuses the plan, or program and estimate disagree on its price.
    """
    plan = form.decode(assignment)
    price = estimate(form.problem, plan)
    verdict = judge(form.problem, form.rules, plan, price)
    if not verdict.holds:
        name, text = next(iter(verdict.broken.items()))
        _blame(form.more, name, text)
        raise OwnFault(f"the verifier refuses an engine's plan by {name}: {text}")
    known = form.program.evaluate(assignment)
    ticks = known["step_ticks"] * float(form.tick)
    blur = form.rounding_seconds(plan) + EQUAL * price.step_seconds
    late = price.late_seconds
    if not price.step_seconds - late - blur <= ticks <= price.step_seconds + blur:
        raise OwnFault(
            f"the program prices a plan at {ticks} s, the estimate at {price.step_seconds} s"
        )
    if known["peak_bytes"] != price.memory.peak_bytes:
        raise OwnFault(
            f"the program counts {known['peak_bytes']} bytes, "
            f"the estimate {price.memory.peak_bytes}"
        )
    log.info(
        "verified: %d findings hold, %.9g s in floats, %.9g s in ticks, %s bytes in both",
        len(verdict.kept),
        price.step_seconds,
        ticks,
        f"{price.memory.peak_bytes:,}",
    )
    return plan, price, verdict


def _blame(own: Iterable[Rule], name: str, text: str) -> None:
    """Refuse a rule out of a user's file whose two faces do not ask the same."""
    for rule in own:
        place = getattr(rule, "place", "")
        if place and name.split("[")[0] == rule.name:
            problem = f"post lets a plan through that holds refuses: {text}"
            raise InputError([Fault(place, name, problem, "let both faces ask the same")])


def _result(form: Formulation, outcome: Outcome, top: int, config: SolverConfig) -> Result:
    """Verify what an engine found and write it down, its neighbours only where some are wanted."""
    problem = form.problem
    plan = price = verdict = None
    said: tuple[str, ...] = (outcome.detail,) if outcome.detail else ()
    if outcome.best:
        plan, price, verdict = checked(form, outcome.best[0])
        said = warnings(problem, plan, price)
    done = outcome.termination in DONE
    status = Status(termination=outcome.termination.value, holding=outcome.holding.value)
    others: tuple[Alternative, ...] = ()
    within = None
    if plan and price and done and top:
        from optplan.within import neighbourhood

        others, within = neighbourhood(form, plan, price, top)
    if others and plan and price and others[0].behind < 0 and problem.main_goal in TIMED:
        blur = form.rounding_seconds(plan) / price.step_seconds + FINE
        if others[0].behind < -blur:
            refuse_outside(outcome.engine, f"{others[0].plan} is faster than its best plan")
            raise OwnFault(f"{others[0].plan} is faster than the plan that an engine calls best")
    return Result(
        status=status,
        plan=plan,
        estimate=price,
        certificate=certificate_of(form, outcome, plan, price, config),
        alternatives=others,
        within_error=within,
        explanation=Explanation(),
        verdict=verdict,
        costs=costs_of(problem, plan, price) if plan and price else None,
        warnings=said,
        problem=problem,
    )
