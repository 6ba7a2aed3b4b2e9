"""Whatever engine Pyomo knows, run on a model: what it found, its bound, and why it stopped."""

from __future__ import annotations

import logging
import math
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import highspy
import pyomo.environ as pyo
from pyomo.common.errors import ApplicationError
from pyomo.common.tee import capture_output
from pyomo.common.tempfiles import TempfileManager
from pyomo.contrib.solver.common.base import Availability
from pyomo.contrib.solver.common.factory import SolverFactory as NewFactory
from pyomo.contrib.solver.common.results import SolutionStatus, TerminationCondition
from pyomo.contrib.solver.solvers.highs import Highs
from pyomo.opt import SolverFactory as OldFactory
from pyomo.opt import TerminationCondition as Old

from optplan.models.errors import Fault, InputError
from optplan.solvers.base import Termination

DEFAULT = "highs"

TIGHT = 1e-9
"""Absolute tolerance that solvers are asked for; rows are measured in their largest coefficient."""

NEW = {"highs": "highs", "scip": "scip_direct", "gurobi": "gurobi_direct"}
"""Solvers that Pyomo runs through its present interface, by the name people use."""

INSTALL = {
    "highs": "pip install highspy",
    "scip": "pip install pyscipopt",
    "gurobi": "pip install gurobipy, and a licence",
    "cplex": "pip install cplex, and a licence",
    "xpress": "pip install xpress, and a licence",
    "cbc": "install the program cbc (package coinor-cbc, conda coin-or-cbc)",
    "glpk": "install the program glpsol (package glpk-utils, conda glpk)",
}
"""How each solver that people ask for is had."""

OPTIONS: dict[str, dict[str, float]] = {
    "highs": {
        "mip_feasibility_tolerance": TIGHT,
        "primal_feasibility_tolerance": TIGHT,
        "mip_rel_gap": 0.0,
        "mip_abs_gap": TIGHT,
    },
    "scip": {"limits/gap": 0.0, "numerics/feastol": TIGHT},
    "gurobi": {"MIPGap": 0.0, "MIPGapAbs": TIGHT, "FeasibilityTol": TIGHT, "IntFeasTol": TIGHT},
    "cbc": {
        "ratioGap": 0.0,
        "allowableGap": TIGHT,
        "increment": TIGHT,
        "integerTolerance": TIGHT,
        "primalTolerance": TIGHT,
    },
    "glpk": {"mipgap": 0.0},
    "cplex": {"mip_tolerances_mipgap": 0.0, "mip_tolerances_integrality": TIGHT},
    "xpress": {"miprelstop": 0.0, "mipabsstop": TIGHT},
}
"""Tolerances in each solver's own words."""

PACKAGES = {
    "highs": "highspy",
    "scip": "pyscipopt",
    "gurobi": "gurobipy",
    "cplex": "cplex",
    "xpress": "xpress",
}
"""Python packages that bring a solver."""

SEEDS = {"highs": "random_seed", "scip": "randomization/randomseedshift", "gurobi": "Seed"}


@dataclass(frozen=True)
class Answer:
    """
    What a solver says.

    Parameters
    ----------
    found
        Whether the variables of the model hold a solution.
    done
        Whether it proved its best, or that there is none.
    bound
        No solution has a smaller objective; None where nothing is known.
    interrupted
        Whether a person stopped it.
    failed
        Whether it gave up, neither done nor out of time.
    nodes
        Branches of its search, where it counts them.
    said
        Why it stopped, in its own words.
    """

    found: bool
    done: bool
    bound: float | None
    interrupted: bool = False
    failed: bool = False
    nodes: int = 0
    said: str = ""


class _Highs(Highs):  # type: ignore[misc]
    """HiGHS that can start from the values of the model's whole variables, and stops in order."""

    warm = False
    cancelled = False

    def _solve(self) -> Any:
        """Solve, unless a person has stopped it before it began."""
        if self.cancelled:
            raise KeyboardInterrupt
        known = {
            place: self._vars[var][0].value
            for var, place in self._pyomo_var_to_solver_var_map.items()
            if self._vars[var][0].value is not None and self._vars[var][0].is_integer()
        }
        if known and self.warm:
            self._solver_model.setSolution(len(known), [*known], [*known.values()])
        return super()._solve()

    @contextmanager
    def heeding(self) -> Iterator[None]:
        """Take Ctrl-C for a wish to stop: thrown into Pyomo's own code it leaves a mess."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def stop(*signal_: object) -> None:
            self.cancelled = True
            if self._solver_model is not None:
                self._solver_model.cancelSolve()

        before = signal.signal(signal.SIGINT, stop)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)


def known_version(solver: str) -> str:
    """Name a solver with the version of the package that brings it, where one does."""
    try:
        return f"{solver} {version(PACKAGES[solver])}"
    except (KeyError, PackageNotFoundError):
        return solver


def require(solver: str) -> None:
    """
    Refuse a solver that Pyomo does not know or cannot run here.

    Raises
    ------
    InputError
        With what to install.
    """
    remedy = INSTALL.get(solver)
    known = solver in NEW or (solver in OldFactory and not solver.startswith("_"))
    if not known and remedy is None:
        remedy = f"one of {', '.join(sorted(INSTALL))}, or another name that Pyomo has"
        problem = f"Pyomo knows no solver {solver!r}"
        raise InputError([Fault("", "engine", problem, remedy)])
    if not _available(solver):
        remedy = remedy or "install what Pyomo asks for it"
        raise InputError([Fault("", "engine", f"{solver} is not installed", remedy)])


def _available(solver: str) -> bool:
    """Ask Pyomo whether a solver can run here."""
    with _quiet():
        if solver in NEW:
            found = NewFactory(NEW[solver]).available()
            return found in (Availability.FullLicense, Availability.LimitedLicense)
        try:
            return bool(OldFactory(solver).available(exception_flag=False))
        except ApplicationError:
            return False


def run(
    model: pyo.ConcreteModel,
    solver: str = DEFAULT,
    seconds: float | None = None,
    workers: int = 1,
    seed: int = 0,
    warm: bool = False,
) -> Answer:
    """
    Solve a model; its variables then hold the solution.

    Parameters
    ----------
    seconds
        Wall-clock limit.
    warm
        Start from the values that the model's whole variables hold.
    """
    for variable in model.component_data_objects(pyo.Var):
        if not warm and not variable.fixed:
            variable.set_value(None, skip_validation=True)
    options = dict(OPTIONS.get(solver, {}))
    if solver in SEEDS:
        options[SEEDS[solver]] = seed
    started = time.monotonic()
    try:
        if solver in NEW:
            answer = _new(model, solver, options, seconds, workers, warm)
        else:
            answer = _old(model, solver, options, seconds, warm)
    except KeyboardInterrupt:  # some solvers pass it on instead of stopping in order
        return _interrupted()
    except Exception as error:
        if "KeyboardInterrupt" in f"{type(error).__name__}{error}":  # it came in disguise
            return _interrupted()
        if solver == DEFAULT:
            raise
        why = " ".join(str(error).split())[:160]
        problem = f"{solver} cannot solve this model: {type(error).__name__}: {why}"
        remedy = "take milp, milp:scip, milp:cbc or another solver of mixed-integer programs"
        raise InputError([Fault("", "engine", problem, remedy)]) from None
    if not answer.done and not answer.interrupted:
        # Solvers stop a little early when they see that the time will not do.
        timed = seconds is not None and time.monotonic() - started >= seconds / 2
        return replace(answer, failed=not timed)
    return answer


def why_stopped(answer: Answer) -> Termination:
    """Say why a solver is not done."""
    if answer.interrupted:
        return Termination.INTERRUPTED
    return Termination.FAILED if answer.failed else Termination.TIME_LIMIT


def _interrupted() -> Answer:
    """Say that a person stopped a solver that told nothing, and drop its files."""
    TempfileManager.clear_tempfiles()
    return Answer(False, False, None, interrupted=True, said="interrupted")


def _new(
    model: pyo.ConcreteModel,
    solver: str,
    options: dict[str, float],
    seconds: float | None,
    workers: int,
    warm: bool,
) -> Answer:
    """Solve through Pyomo's present interface."""
    engine = _Highs() if solver == DEFAULT else NewFactory(NEW[solver])
    config: dict[str, Any] = {
        "load_solutions": False,
        "raise_exception_on_nonoptimal_result": False,
        "time_limit": seconds,
        "solver_options": options,
    }
    if solver == "highs":
        engine.warm = warm
        # HiGHS keeps the threads of its first run, and refuses to be asked for others.
        highspy.Highs.resetGlobalScheduler(True)
    if solver != "scip":
        config["threads"] = workers
    elif warm:
        config["warmstart_discrete_vars"] = True
    with _quiet(), engine.heeding() if solver == DEFAULT else nullcontext():
        result = engine.solve(model, **config)
    found = result.solution_status in (SolutionStatus.optimal, SolutionStatus.feasible)
    if found:
        result.solution_loader.load_vars()
    condition = result.termination_condition
    none = condition in (
        TerminationCondition.provenInfeasible,
        TerminationCondition.infeasibleOrUnbounded,  # every column has ends, so: infeasible
    )
    done = none or condition is TerminationCondition.convergenceCriteriaSatisfied
    bound = result.objective_bound
    known = bound is not None and math.isfinite(bound)
    # Pyomo calls it unknown when HiGHS was cancelled.
    stopped = condition is TerminationCondition.interrupted or (
        solver == DEFAULT and engine.cancelled
    )
    info = result.extra_info
    counts = [int(info[key]) for key in ("mip_node_count", "NNodes") if key in info]
    nodes = max([0, *counts])
    low = bound if known else None
    return Answer(found, done, low, stopped, nodes=nodes, said=condition.name)


def _old(
    model: pyo.ConcreteModel,
    solver: str,
    options: dict[str, float],
    seconds: float | None,
    warm: bool,
) -> Answer:
    """Solve through Pyomo's older interface, as for programs that are run on a file."""
    engine = OldFactory(solver)
    more: dict[str, Any] = {"options": options, "load_solutions": False}
    if seconds is not None:
        # Some programs take whole seconds only.
        more["timelimit"] = math.ceil(seconds) if solver == "glpk" else seconds
    if warm and engine.warm_start_capable():
        more["warmstart"] = True
    with _quiet():
        result = engine.solve(model, **more)
    condition = result.solver.termination_condition
    found = len(result.solution) > 0 and condition not in (Old.infeasible, Old.unbounded)
    if found:
        model.solutions.load_from(result)
    done = condition in (Old.optimal, Old.infeasible, Old.infeasibleOrUnbounded)
    bound = result.problem.lower_bound
    known = isinstance(bound, int | float) and math.isfinite(bound) and (done or bound > -1e30)
    stopped = condition is Old.userInterrupt
    return Answer(found, done, bound if known else None, stopped, said=str(condition))


@contextmanager
def hushed() -> Iterator[None]:
    """Keep Pyomo's own warnings to itself for a while."""
    logger = logging.getLogger("pyomo")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep what solvers and Pyomo say from a person's screen."""
    with hushed(), capture_output(capture_fd=False):
        yield
