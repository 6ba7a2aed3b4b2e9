"""Every engine against every other on random problems: ``python -m tests.cross --count 2000``."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

from optplan import planner
from optplan.certificate import goal_of
from optplan.models.errors import InputError
from optplan.models.formulate import Formulation, formulate
from optplan.models.program import Program, Table
from optplan.models.spec.problem import Problem
from optplan.solvers import exhaustive
from optplan.solvers.base import Holding, Outcome, SolverConfig, Termination, ratio
from optplan.solvers.catalogue import engine, proving
from optplan.solvers.core import clash
from optplan.solvers.late import Late
from optplan.solvers.milp import TRUST
from optplan.solvers.proved import proved
from optplan.solvers.reduction import reduce_by_bound
from optplan.solvers.search import Search
from tests.brute import best_price
from tests.random_problems import MOST_POINTS, random_spec
from tests.random_programs import every_plan, every_point

ROUTES = ("reduced", "milp", "exhaustive", "paper", "whole", "milp whole", "brute")
"""
cp-sat and HiGHS behind the planner, the other two engines, cp-sat and HiGHS on the whole program as
one model, and every plan of a small problem judged by the verifier alone.
"""

PROVING = {"reduced": "cp-sat", "milp": "milp"}
"""Routes that bound, reduce and prove, by their engine."""

WHOLE = {"whole": "cp-sat", "milp whole": "milp"}
"""Routes that solve one model of the whole program, by their engine."""

MOST_WHOLE = 300
"""Points up to which cp-sat is given the whole program."""

MOST_PAPER = 5_000
"""Points up to which the paper's engine is asked where it can prune nothing."""

MOST_PLANS = 400
"""Plans up to which all of them are judged."""

UNDROPPABLE = frozenset({"experts.world", "pipeline.layers"})
"""Rules that prices rest on: without them a layout has no quantities."""

PATIENCE = 0.7
"""Seconds for a problem whose proof may take one proof a point."""

SAME_PRICE = 1e-9
"""Prices in floats of plans of one goal differ by less than this, relatively."""


@dataclass
class Seen:
    """What came of one seed: one line of the file that a run can be resumed from."""

    seed: int
    points: int = 0
    outcome: str = "feasible"
    seconds: dict[str, float] = field(default_factory=dict)
    stopped: list[str] = field(default_factory=list)
    pruned: float = 0.0
    judged: bool = False
    routes: list[str] = field(default_factory=list)
    mismatches: list[str] = field(default_factory=list)

    def demand(self, holds: bool, text: str) -> None:
        """Keep a text as a mismatch unless something holds."""
        if not holds:
            self.mismatches.append(text)


@dataclass(frozen=True)
class Answer:
    """One route's answer: exact goal, price in floats, values of the choices."""

    goal: Fraction
    price: float
    best: dict[str, int]


def examine(
    seed: int, routes: tuple[str, ...] = ROUTES, limit: float = 20.0, clashes: bool = True
) -> Seen:
    """
    Solve one random problem by every route and note each disagreement.

    ``limit`` are the seconds that a whole program may take; the reduced one has no limit. Where
    there is no plan, ``clashes`` says whether the explanation is to be taken apart.
    """
    seen = Seen(seed)
    try:
        problem = planner.problem_of(random_spec(seed))
        form, first = planner.run(problem, config=SolverConfig(seconds=_patience(problem)))
    except InputError as error:
        seen.outcome = "refused"
        seen.demand("beyond 64 bits" in str(error), f"refused: {error}")
        return seen
    except Exception as error:  # whatever it is, it is a finding about this seed
        seen.mismatches.append(f"planner: {type(error).__name__}: {error}")
        return seen
    seen.points = exhaustive.count(form.program)
    if Late(form.program).hard:
        seen.outcome = "hard"
        _hard(form, first, routes, seen)
        return seen
    answers: dict[str, Answer | None] = {}
    for route in routes:
        start = time.monotonic()
        try:
            _answer(form, first, route, limit, seen, answers)
        except Exception as error:  # whatever it is, it is a finding about this seed
            seen.mismatches.append(f"{route}: {type(error).__name__}: {error}")
        seen.seconds[route] = time.monotonic() - start
    if len({answer is None for answer in answers.values()}) > 1:
        seen.mismatches.append(f"some find a plan, some do not: {answers}")
    elif answers and None in answers.values():
        seen.outcome = "infeasible"
        if clashes:
            _clashes(form, seen)
    else:
        _compare({route: a for route, a in answers.items() if a is not None}, seen)
    return seen


def _answer(
    form: Formulation,
    first: Outcome,
    route: str,
    limit: float,
    seen: Seen,
    answers: dict[str, Answer | None],
) -> None:
    """Solve by one route; nothing is answered where it was stopped or cannot say."""
    if route in PROVING:
        known = route == "reduced"
        outcome = first if known else planner.run(form.problem, engine=PROVING[route])[1]
        proven = outcome.termination in (Termination.PROVED, Termination.EXHAUSTED)
        seen.demand(proven, f"{route}: {outcome.termination}")
        seen.demand(outcome.gap < 1e-6 or not outcome.best, f"{route}: gap {outcome.gap}")
        best = outcome.best[0] if outcome.best else None
    elif route == "brute":
        _brute(form, seen)
        return
    else:
        if route == "paper" and (form.near is not None or seen.points > MOST_PAPER):
            return  # It knows no finer ticks, and visits points one by one.
        config = SolverConfig(seconds=limit if route in WHOLE else None)
        if route in WHOLE:
            everything = Search(form.program, SolverConfig(), bounded=False).everything()
            how = proving(WHOLE[route])
            if len(everything) > MOST_WHOLE or how is None:
                return
            outcome = how.solve_whole(form.program, everything, config)
        else:
            outcome = engine(route)(form.program, config)
        if outcome.termination in (Termination.TIME_LIMIT, Termination.INTERRUPTED):
            seen.stopped.append(route)
            return
        if outcome.termination is Termination.UNSUPPORTED:
            return
        best = outcome.best[0] if outcome.best else None
        seen.routes.append(route)
        _sane(form.program, route, outcome, seen)
    if best is None:
        answers[route] = None
        return
    plan, price, _ = planner.checked(form, best)
    goal = ratio(form.program, form.program.evaluate(best))
    answers[route] = Answer(goal, goal_of(form, plan, price), best)


def _hard(form: Formulation, first: Outcome, routes: tuple[str, ...], seen: Seen) -> None:
    """Compare provers where limits ask for slowness, as far as both are done in time."""
    answers: dict[str, float] = {}
    for route in PROVING:
        if route not in routes:
            continue
        its, outcome = form, first
        if route != "reduced":
            config = SolverConfig(seconds=_patience(form.problem))
            its, outcome = planner.run(form.problem, engine=PROVING[route], config=config)
        if outcome.termination is not Termination.PROVED:
            seen.stopped.append(route)
            continue
        answers[route] = 0.0
        if outcome.best:
            plan, price, _ = planner.checked(its, outcome.best[0])
            answers[route] = goal_of(its, plan, price)
    # One of them may have been stopped on finer ticks, so that prices are compared, not goals.
    told = list(answers.values())
    near = not told or max(told) - min(told) <= 2 * TRUST * max(told)
    seen.demand(near, f"prices differ under hard limits: {answers}")


def _patience(problem: Problem) -> float | None:
    """Seconds for a problem whose proof may take one proof a point; None where it cannot."""
    return PATIENCE if Late(formulate(problem).program).hard else None


def _brute(form: Formulation, seen: Seen) -> None:
    """Compare with what the verifier says of every single plan."""
    if seen.points > 20 * MOST_PLANS:
        return
    price = best_price(form, MOST_PLANS)
    if price == "too many":
        return
    seen.judged = True
    found = planner.run(form.problem)[1]
    if price is None or not found.best:
        seen.demand(price is None and not found.best, f"brute finds {price}, search {found.best}")
        return
    assert isinstance(price, float)
    plan, its, _ = planner.checked(form, found.best[0])
    mine = goal_of(form, plan, its)
    late = its.late_seconds / plan.global_batch
    near = abs(price - mine) <= SAME_PRICE * price + late
    seen.demand(near, f"brute finds {price}, search {mine}: {plan}")


def _sane(program: Program, route: str, outcome: Outcome, seen: Seen) -> None:
    """Ask an outcome whether it says of itself what it should."""
    expected = Holding.OPTIMAL if outcome.best else Holding.NOTHING
    seen.demand(outcome.holding is expected, f"{route} holds {outcome.holding}")
    if outcome.best:
        goal = ratio(program, program.evaluate(outcome.best[0]))
        seen.demand(outcome.goal == goal, f"{route} says {outcome.goal}, its plan costs {goal}")
        # Where products would leave 64 bits a ratio is bounded a hair below itself.
        low = None if outcome.bound is None else goal - outcome.bound
        near = low is not None and 0 <= low <= abs(goal) * Fraction(2 * TRUST)
        seen.demand(near, f"{route} proves {outcome.bound} of {goal}")
    pruned = sum(outcome.prunings.values())
    if outcome.census and route not in WHOLE:
        seen.demand(outcome.census.points == seen.points, f"{route}: {outcome.census}")
        seen.demand(outcome.census.left >= pruned, f"{route}: {outcome.census}, {pruned} pruned")
    if route == "paper" and seen.points:
        seen.pruned = pruned / seen.points


def _compare(answers: dict[str, Answer], seen: Seen) -> None:
    """Compare goals exactly, prices in floats, and plans where ties are settled."""
    goals = {route: answer.goal for route, answer in answers.items()}
    seen.demand(len(set(goals.values())) <= 1, f"goals differ: {goals}")
    prices = [answer.price for answer in answers.values()]
    apart = max(prices, default=0.0) - min(prices, default=0.0)
    seen.demand(apart <= SAME_PRICE * max(prices, default=0.0), f"prices differ: {prices}")
    settled = [a.best for route, a in answers.items() if route not in ("paper", *WHOLE)]
    seen.demand(all(best == settled[0] for best in settled), f"plans differ: {settled}")


def _clashes(form: Formulation, seen: Seen) -> None:
    """Check the clash of the program and of the one in which what the spec fixes are rules."""
    try:
        for program in (form.program, formulate(form.problem, widened=True).program):
            # What asks for slowness is named as it is, not made minimal.
            if 0 < exhaustive.count(program) <= MOST_POINTS and not Late(program).hard:
                seen.mismatches += clash_faults(program)
    except (InputError, ValueError) as error:  # too large to widen, or feasible once widened
        seen.mismatches.append(f"what has no plan cannot be explained: {error}")


def clash_faults(program: Program) -> list[str]:
    """Say whether an infeasible program's clash is none, or has a member too many."""
    rules = clash(program, lambda name: name not in UNDROPPABLE).rules
    others = frozenset(program.constraints) - set(rules) - UNDROPPABLE
    faults = []
    if not set(rules) <= set(program.constraints):
        faults.append(f"the clash {rules} has members that are no rules")
    if proved(program.without(others)).best:
        faults.append(f"{rules} do not clash")
    for rule in rules:
        if rule in UNDROPPABLE:
            continue
        if not proved(program.without(others | {rule})).best:
            faults.append(f"{rules} clash without {rule}")
    return faults


def program_faults(program: Program) -> list[str]:
    """Compare every engine's answer to a small program with what every point says."""
    ranked = every_plan(program)
    faults = []

    def whole(name: str) -> Callable[[], Outcome]:
        return lambda: engine(name)(program, SolverConfig())

    def reduced() -> Outcome:
        smaller = reduce_by_bound(program)
        return engine("cp-sat")(smaller.program, SolverConfig())

    routes = {name: whole(name) for name in ("cp-sat", "milp", "exhaustive", "paper")}
    for route, solve in {**routes, "reduced": reduced}.items():
        outcome = solve()
        if outcome.termination is Termination.UNSUPPORTED:
            continue
        seen = Seen(0)
        if not ranked or not outcome.best:
            seen.demand(not ranked and not outcome.best, f"{outcome.best} of {ranked[:1]}")
        else:
            found = [program.evaluate(best) for best in outcome.best[:1]]
            best = (ratio(program, found[0]), *(Fraction(found[0][t]) for t in program.ties))
            seen.demand(best == ranked[0][0], f"{outcome.best} ranks {best} after {ranked[0]}")
            _sane_goal(outcome, ranked[0][0][0], seen)
        if outcome.census and route == "exhaustive":
            seen.demand(outcome.census.left == len(ranked), f"{outcome.census} of {len(ranked)}")
        faults += [f"{route}: {text}" for text in seen.mismatches]
    if not ranked and exhaustive.count(program):
        faults += _pattern_faults(program)
    return faults


def _pattern_faults(program: Program) -> list[str]:
    """
    Ask the same of a clash point by point, as no table that defines something can be dropped.

    Where such a table is incomplete, later rules ask of quantities that a point does not have, and
    there is no saying which of them it breaks.
    """
    defining = {s.name for s in program.statements if isinstance(s, Table) and s.gives}
    if any(defining & set(program.broken(point)) for point in every_point(program)):
        return []
    rules = set(clash(program).rules)
    spaces = {s.name for s in program.statements if isinstance(s, Table) and s.spans}
    patterns = [set(program.broken(point)) for point in every_point(program)]
    met = [pattern & rules for pattern in patterns if not pattern & spaces]
    faults = [] if all(met) else [f"{rules} do not clash"]
    return faults + [f"{rules} clash without {rule}" for rule in rules if {rule} not in met]


def _sane_goal(outcome: Outcome, goal: Fraction, seen: Seen) -> None:
    """Ask that a finished engine names the optimum as goal and as bound."""
    seen.demand(outcome.holding is Holding.OPTIMAL, f"holds {outcome.holding}")
    seen.demand(outcome.goal == goal == outcome.bound, f"{outcome.goal} >= {outcome.bound}")


def _known(path: Path | None) -> Iterator[Seen]:
    """Read what an earlier run has left."""
    if path and path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            yield Seen(**json.loads(line))


def summary(all_seen: list[Seen]) -> str:
    """Count outcomes, time by route, what the paper's engine skips, and every mismatch."""
    outcomes = Counter(seen.outcome for seen in all_seen)
    spent: dict[str, list[float]] = defaultdict(list)
    for seen in all_seen:
        for route, seconds in seen.seconds.items():
            spent[route].append(seconds)
    lines = [f"{len(all_seen)} problems: " + ", ".join(f"{n} {k}" for k, n in outcomes.items())]
    for route, times in spent.items():
        lines.append(f"{route}: {sum(times):.1f} s in all, slowest {max(times):.2f} s")
    pruned = [seen.pruned for seen in all_seen if seen.outcome == "feasible"]
    share = sum(pruned) / max(1, len(pruned))
    lines.append(f"points the paper's engine skips, mean over feasible problems: {share:.1%}")
    stopped = Counter(route for seen in all_seen for route in seen.stopped)
    lines.append(f"judged plan by plan: {sum(seen.judged for seen in all_seen)}")
    lines.append(f"hit a limit: {dict(stopped) or 'none'}")
    wrong = [seen for seen in all_seen if seen.mismatches]
    lines += [f"seed {seen.seed}: {text}" for seen in wrong for text in seen.mismatches]
    return "\n".join([*lines, f"mismatches: {len(wrong)}"])


def main(arguments: list[str] | None = None) -> int:
    """Run; 1 where routes disagree."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0, help="first seed")
    parser.add_argument("--resume", type=Path, help="one JSON line a seed; seeds in it are skipped")
    parser.add_argument("--engines", nargs="+", choices=ROUTES, default=list(ROUTES))
    parser.add_argument("--limit", type=float, default=20.0, help="seconds for a whole program")
    parser.add_argument(
        "--clashes", type=int, default=1, help="take apart why there is no plan at every n-th seed"
    )
    chosen: Any = parser.parse_args(arguments)
    wanted = range(chosen.seed, chosen.seed + chosen.count)
    done = [seen for seen in _known(chosen.resume) if seen.seed in wanted]
    left = sorted(set(wanted) - {seen.seed for seen in done})
    for seed in left:
        apart = seed % chosen.clashes == 0
        seen = examine(seed, tuple(chosen.engines), chosen.limit, apart)
        done.append(seen)
        if chosen.resume:
            with chosen.resume.open("a", encoding="utf-8") as file:
                file.write(json.dumps(vars(seen)) + "\n")
        if seen.mismatches or len(done) % 25 == 0 or len(done) == chosen.count:
            wrong = sum(bool(s.mismatches) for s in done)
            print(f"{len(done)}/{chosen.count} seed {seed}, {wrong} mismatches", flush=True)
    print(summary(done))
    return int(any(seen.mismatches for seen in done))


if __name__ == "__main__":
    sys.exit(main())
