"""Several engines on one spec, side by side."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence

from optplan.certificate import gap_of, goal_of
from optplan.models.cost.price import Estimate
from optplan.models.errors import Fault, InputError
from optplan.models.formulate import Formulation
from optplan.models.record import Record
from optplan.models.rules.registry import Rule
from optplan.models.spec.plan import Plan
from optplan.planner import Condition, Spec, checked, problem_of, run
from optplan.result import Reply
from optplan.solvers.base import DONE, Holding, Outcome, Progress, SolverConfig, Termination
from optplan.solvers.catalogue import ENGINES, engine, proving, require

SAME = 1e-6
"""Goals that differ by less than this share are the same: what an engine's own gap may be."""


class Row(Record):
    """What one engine came to."""

    engine: str
    """Its name."""
    version: str
    """Its name and versions, as it tells them."""
    termination: str
    """Why it stopped."""
    holding: str
    """What it holds."""
    goal: float | None
    """Price of its plan, in the goal's unit."""
    step_seconds: float | None
    """Step time of its plan."""
    bound: float | None
    """No plan is cheaper than this, as it knows."""
    gap: float | None
    """``(goal - bound) / goal``."""
    seconds: float
    """Wall-clock seconds from the problem to the answer, writing the program included."""
    cpu_seconds: float
    """CPU seconds of the same."""
    ratio: float | None = None
    """Wall-clock time over that of the fastest engine that proved its answer."""
    nodes: int
    """Branches of its tree search."""
    priced: int
    """Points that it priced."""
    detail: str
    """Why it has no answer, where it cannot have one."""
    plan: Plan | None
    """Its plan."""

    @property
    def proved(self) -> bool:
        """Whether nothing is left to know."""
        return self.termination in DONE


class Comparison(Reply):
    """The answer to ``compare``."""

    unit: str
    """The goal's unit."""
    agree: bool
    """Whether all engines that proved an answer came to the same goal, or to none."""
    engines: tuple[Row, ...]
    """One row an engine, in the order asked."""
    interrupted: bool = False
    """Whether a person stopped it before every engine had its turn."""

    @property
    def exit_code(self) -> int:
        """0 all that can prove do and agree, 1 there is no plan, 3 some did not, 4 they differ."""
        able = [row for row in self.engines if row.termination != "unsupported"]
        proved = [row for row in able if row.proved]
        if not self.agree:
            return 4
        if len(proved) < len(able) or not able or self.interrupted:
            return 3
        return 0 if any(row.goal is not None for row in proved) else 1


def compare(
    spec: Spec,
    engines: str | Sequence[str] = (),
    *,
    time_limit: float | None = None,
    sets: Sequence[str] = (),
    limits: Sequence[Condition] = (),
    rules: Iterable[Rule] = (),
    seed: int = 0,
    workers: int = 1,
    progress: Callable[[str, Progress], None] | None = None,
) -> Comparison:
    """
    Solve a spec with several engines, one after the other.

    Parameters
    ----------
    engines
        Names, such as ``cp-sat`` and ``milp:scip``; all that are shipped unless given.
    time_limit
        Seconds for each of them.
    progress
        Called now and then with the engine's name, incumbent and bound.

    Raises
    ------
    InputError
        The spec is wrong, or an engine cannot run here.
    """
    names = tuple(dict.fromkeys(engines_of(engines) if isinstance(engines, str) else engines))
    names = names or tuple(ENGINES)
    if time_limit is not None and not time_limit > 0:
        wrong = f"{time_limit} s leave no time"
        raise InputError([Fault("", "time_limit", wrong, "give more than 0 s")])
    for name in names:
        require(name)
    problem, own = problem_of(spec, sets, limits), tuple(rules)
    rows: list[Row] = []
    unit, interrupted = "", False
    for name in names:
        told = None if progress is None else _named(progress, name)
        engine(name)  # whose imports are nobody's time
        proving(name)
        config = SolverConfig(seconds=time_limit, seed=seed, workers=workers, progress=told)
        start, cpu = time.monotonic(), time.process_time()
        try:
            form, outcome = run(problem, own, name, config)
        except KeyboardInterrupt:
            interrupted = True
            break
        except InputError as error:
            if any(fault.path != f"engine {name}" for fault in error.faults):
                raise
            # One engine from outside that is refused keeps nobody from the others' answers.
            spent = time.monotonic() - start, time.process_time() - cpu
            rows.append(_refused(name, error, spent))
            continue
        spent = time.monotonic() - start, time.process_time() - cpu
        unit = form.program.goal.unit
        plan = price = None
        if outcome.best:
            plan, price, _ = checked(form, outcome.best[0])
        row = _row(name, outcome, form.goal_scale, spent)
        if plan and price:
            row = row.model_copy(update=_priced(form, plan, price, row.bound))
        rows.append(row)
        if outcome.termination is Termination.INTERRUPTED:
            interrupted = True
            break
    if interrupted and not rows:
        raise KeyboardInterrupt
    measured = _ratios(rows)
    return Comparison(unit=unit, agree=_agree(rows), engines=measured, interrupted=interrupted)


def engines_of(text: str) -> tuple[str, ...]:
    """
    Read a list of engines, as ``cp-sat,milp,milp:scip``.

    Raises
    ------
    InputError
        A name is empty.
    """
    names = tuple(part.strip() for part in text.split(","))
    if not all(names):
        remedy = f"such as {','.join(ENGINES)}"
        raise InputError([Fault("--engines", "", f"{text!r} has an empty name", remedy)])
    return names


def _named(told: Callable[[str, Progress], None], name: str) -> Callable[[Progress], None]:
    """Add an engine's name to what it reports."""
    return lambda progress: told(name, progress)


def _refused(name: str, error: InputError, spent: tuple[float, float]) -> Row:
    """Write down that what an engine from outside says is not so."""
    why = "; ".join(fault.problem for fault in error.faults)
    outcome = Outcome(Termination.FAILED, Holding.NOTHING, engine=name, detail=why)
    return _row(name, outcome, 1.0, spent)


def _row(name: str, outcome: Outcome, scale: float, spent: tuple[float, float]) -> Row:
    """Write down what one engine came to."""
    return Row(
        engine=name,
        version=outcome.engine,
        termination=outcome.termination.value,
        holding=outcome.holding.value,
        goal=None,
        step_seconds=None,
        bound=None if outcome.bound is None else float(outcome.bound) * scale,
        gap=None,
        seconds=spent[0],
        cpu_seconds=spent[1],
        nodes=outcome.nodes,
        priced=outcome.priced,
        detail=outcome.detail,
        plan=None,
    )


def _priced(
    form: Formulation, plan: Plan, price: Estimate, bound: float | None
) -> dict[str, object]:
    """Say what an engine's plan costs, and how far that is from its bound."""
    goal = goal_of(form, plan, price)
    gap = gap_of(goal, bound)
    return {"plan": plan, "goal": goal, "gap": gap, "step_seconds": price.step_seconds}


def _agree(rows: Sequence[Row]) -> bool:
    """Tell whether all proven answers are the same."""
    proved = [row.goal for row in rows if row.proved]
    goals = [goal for goal in proved if goal is not None]
    if goals and len(goals) < len(proved):
        return False
    return not goals or max(goals) - min(goals) <= SAME * max(goals)


def _ratios(rows: Sequence[Row]) -> tuple[Row, ...]:
    """Measure every engine in the time of the fastest that is done."""
    done = [row.seconds for row in rows if row.proved]
    if not done:
        return tuple(rows)
    return tuple(row.model_copy(update={"ratio": row.seconds / min(done)}) for row in rows)
