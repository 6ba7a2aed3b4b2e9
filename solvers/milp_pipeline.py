"""MILP engines on programs that hand out layers: points and their pipelines as one Pyomo model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil, floor

import numpy as np
import pyomo.environ as pyo
from pyomo.core.expr import LinearExpression

from optplan.models.columns import PARTS
from optplan.models.pipeline import handed_of
from optplan.models.program import Fits, Program
from optplan.models.stages import Share
from optplan.solvers.base import Outcome, SolverConfig, Termination
from optplan.solvers.milp import TRUST, name_of
from optplan.solvers.milp_forms import Form, Sheet, added, goal_unit
from optplan.solvers.milp_model import Written, blend, gathered
from optplan.solvers.milp_solver import DEFAULT, Answer, run, why_stopped
from optplan.solvers.prover import Constrain, Option, Proof, Prover, least_step, passing
from optplan.solvers.search import Left
from optplan.solvers.settle import Point
from optplan.solvers.stages import Shared

NEVER = 2**62
"""Bound where nothing can be shared out."""

SAFE = 1 - 1e-9
"""Share of a bound found in floats that a model may rest on."""


@dataclass
class Stages:
    """
    One pipeline in a model: what its stages hold, and what comes of it; nothing where it is off.

    Parameters
    ----------
    share
        What is handed out.
    layers, again
        Per stage, layers held and layers of them computed again.
    step, peak
        Ticks of a step and bytes of the fullest stage. They are no less than what the layers make
        of them, and equal where that was asked for or where they are made small.
    """

    share: Share
    layers: list[Form] = field(default_factory=list)
    again: list[Form] = field(default_factory=list)
    step: Form = field(default_factory=Form)
    peak: Form = field(default_factory=Form)

    def read(self, sheet: Sheet) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Read what a solution hands out."""
        layers = tuple(round(sheet.value(form)) for form in self.layers)
        return layers, tuple(round(sheet.value(form)) for form in self.again)


def write_stages(
    sheet: Sheet, share: Share, on: Form, room: str, peaks: bool = False, exact: bool = False
) -> Stages:
    """
    Write how the layers of one pipeline may be handed out, all of it nothing where it is off.

    Rows that hold for one pipeline only are written over variables of its own, so that a model of
    many pipelines is as tight as each by itself (the convex hull of their relaxations).

    Parameters
    ----------
    on
        1 where the pipeline is chosen.
    room
        Name of the rule that keeps stages within their room.
    peaks
        Whether the peak is of interest.
    exact
        Whether time and peak must be exactly what the layers make of them.
    """
    made = Stages(share)
    p, layers = range(share.stages), "pipeline.layers"
    most = min(share.most, share.layers)
    some = []
    for i in p:
        least = share.least_first if i == 0 else share.least
        held = sheet.variable("layers", 0, most)
        sheet.demand(layers, held.plus(on, -least), 0, None)
        sheet.demand(layers, held.plus(on, -most), None, 0)
        made.layers.append(held)
        again = held if share.mode == 2 else Form()
        if share.mode == 1:
            again, any_ = sheet.variable("again", 0, most), sheet.flag("recomputes")
            sheet.demand("pipeline.recomputed", again.plus(held, -1), None, 0)
            sheet.demand("pipeline.recomputed", again.plus(any_, -most), None, 0)
            if exact:
                sheet.demand("pipeline.recomputed", again.plus(any_, -1), 0, None)
            some.append(any_)
        made.again.append(again)
    sheet.equal(layers, added(((1, held) for held in made.layers), 0).plus(on, -share.layers))
    total = added((1, again) for again in made.again)
    busy = [_busy(share, i, made, on) for i in p]
    slowest = _cap(sheet, "bottleneck", "price.step_time", busy, exact)
    mean = added([(share.stages, slowest), *((-1, form) for form in busy)])
    sheet.demand("price.step_time", mean, 0, None)
    once = [added([(share.once_layer, made.layers[i]), (share.once(i, 0), on)]) for i in p]
    longest = _cap(sheet, "once", "price.step_time", once, exact)
    fixed = share.layer * share.layers + share.front + share.back + share.fixed
    parts = [(share.turns, slowest), (share.again, total), (1, longest), (fixed, on)]
    made.step = added(parts)
    held_bytes = [_held(share, i, made, on, some[i] if some else None) for i in p]
    for form in held_bytes:
        sheet.demand(room, form.plus(on, -share.room), None, 0)
    if peaks:
        made.peak = _cap(sheet, "peak", "memory.peak", held_bytes, exact)
    return made


def _busy(share: Share, stage: int, made: Stages, on: Form) -> Form:
    """Ticks of one micro-batch on a stage."""
    parts = [(share.layer, made.layers[stage]), (share.again, made.again[stage])]
    return added([*parts, (share.seconds(stage, 0, 0), on)])


def _held(share: Share, stage: int, made: Stages, on: Form, some: Form | None) -> Form:
    """Bytes that a stage needs; the largest moment grows where any layer is computed again."""
    flying = share.in_flight(stage)
    usual = share.held(stage, 0, 0)
    with_again = share.held(stage, 0, 1) + flying * share.saved
    parts = [
        (share.state_layer + flying * share.kept, made.layers[stage]),
        (-flying * share.saved, made.again[stage]),
        (usual, on),
    ]
    if some is not None:
        parts.append((with_again - usual, some))
    elif share.mode == 2:
        parts.append((with_again - usual, on))
    return added(parts)


def _cap(sheet: Sheet, name: str, rule: str, forms: list[Form], exact: bool) -> Form:
    """Make a column that no form exceeds, or that is the largest of them; nothing where off."""
    ends = [sheet.reach(form) for form in forms]
    low, high = min(0, *(e[0] for e in ends)), max(0, *(e[1] for e in ends))
    unit = 2 ** max(0, (high // max(1, len(forms))).bit_length() - 1)
    column = sheet.variable(name, floor(low / unit), ceil(high / unit), whole=False).times(unit)
    for form in forms:
        sheet.demand(rule, column.plus(form, -1), 0, None)
    if exact:
        picks = [sheet.flag(f"{name}.at") for _ in forms]
        sheet.demand(rule, added((1, pick) for pick in picks), 1, None)
        for form, pick, (least, _) in zip(forms, picks, ends, strict=True):
            spare = high - least
            sheet.demand(rule, column.plus(form, -1).plus(pick, spare), None, spare)
    return column


class Hull(Written):
    """
    Points of a program, each with its pipeline, as a live Pyomo model.

    Parameters
    ----------
    program
        What is written.
    points, options
        Points, and the pipelines that they may have.
    room
        Name of the rule that keeps stages within their room.
    bounds
        Goal below which no plan of each point falls, or None; each becomes a row that helps.
    exact
        Whether time and peak must be exactly what the layers make of them.
    """

    def __init__(
        self,
        program: Program,
        points: Sequence[Point],
        options: Sequence[Option],
        bounds: Sequence[float] | None = None,
        exact: bool = True,
        name: str = "program",
    ) -> None:
        super().__init__(program, name)
        self.points, self.options = points, options
        sheet, goal = self.sheet, program.goal
        self.on = [sheet.flag("point") for _ in options]
        sheet.demand("point.one", added((1, on) for on in self.on), 1, 1)
        room = room_rule(program)
        self.stages: list[Stages] = []
        for number, (option, on) in enumerate(zip(options, self.on, strict=True)):
            with sheet.inside("option", number):
                known = option.handed
                if known is not None:
                    made = Stages(option.share, step=on.times(known.step))
                    made.peak = on.times(option.share.state_front)
                else:
                    made = write_stages(sheet, option.share, on, room, True, exact)
                    for held, number in zip(made.layers, option.layers or (), strict=False):
                        sheet.equal("pipeline.layers", held.plus(on, -number))
                if bounds is not None and known is None:
                    per = points[option.place][goal.per] if goal.per else 1
                    low = floor(bounds[option.place] * per * SAFE)
                    of = made.step if goal.of == "step_ticks" else Form()
                    if of.terms:
                        sheet.demand("bound", of.plus(on, -low), 0, None)
            self.stages.append(made)
        self._columns()
        self.raw.optplan = (None, self)

    def _columns(self) -> None:
        """Tie the columns of the program to the point chosen."""
        pipeline = self.program.pipeline
        assert pipeline is not None
        chosen = [self.points[option.place] for option in self.options]
        for name in {n: None for at in chosen for n in at}:
            values = [at[name] for at in chosen]
            column = self.columns[name] = blend(values, self.on)
            self.known[name] = gathered(values, self.on)
            if name in self.program.domain:
                self._named(name, column, min(values), max(values))
        step = added((1, made.step) for made in self.stages)
        held = [
            added([(1, made.peak), (at["fetched"] + pipeline.reserve, on)])
            for made, at, on in zip(self.stages, chosen, self.on, strict=True)
        ]
        self.columns |= {"step_ticks": step, "peak_bytes": added((1, form) for form in held)}
        self.raw.step_ticks = pyo.Expression(expr=self.sheet.expression(step))
        peak = self.sheet.expression(self.columns["peak_bytes"])
        self.raw.peak_memory = pyo.Expression(expr=peak)

    def _named(self, name: str, column: Form, low: int, high: int) -> None:
        """Give a choice a variable of its name."""
        variable = pyo.Var(domain=pyo.Integers, bounds=(low, high))
        self.raw.add_component(name, variable)
        made = self.sheet.take(self.raw.component(name), low, high)
        self.sheet.equal(f"choice.{name}", made.plus(column, -1))
        if low == high:
            # A product with it is then linear, to whoever adds one.
            self.raw.component(name).fix(low)

    def moved(self) -> bool:
        """Tell whether somebody fixed or bounded a choice away from the one value it has here."""
        for name in self.program.domain:
            variable, (value, *others) = self.raw.component(name), sorted(self.known[name])
            if others or variable is None or variable.ctype is not pyo.Var:
                continue
            low, high = variable.lb, variable.ub
            if (low is not None and low > value) or (high is not None and high < value):
                return True
            if variable.fixed and variable.value != value:
                return True
        return False

    def of_choices(self, function: Callable[[Point], int]) -> Form:
        """Write any function of the choices: every point has one value of it."""
        return blend([function(self.points[o.place]) for o in self.options], self.on)

    def goal(self, unit: float = 1.0) -> LinearExpression:
        """Write the goal in a unit: a sum over points, each divided by its own batch."""
        goal = self.program.goal
        terms: dict[int, float] = {}
        for option, made in zip(self.options, self.stages, strict=True):
            at = self.points[option.place]
            per = at[goal.per] if goal.per else 1
            form = made.step if goal.of == "step_ticks" else self._peak(made, at)
            for number, k in form.terms.items():
                terms[number] = terms.get(number, 0.0) + k / per / unit
        return LinearExpression(
            constant=0.0,
            linear_coefs=list(terms.values()),
            linear_vars=[self.sheet.vars[number] for number in terms],
        )

    def _peak(self, made: Stages, at: Point) -> Form:
        """Bytes of one point, reserve and fetched weights included."""
        pipeline = self.program.pipeline
        assert pipeline is not None
        on = self.on[self.stages.index(made)]
        return added([(1, made.peak), (at["fetched"] + pipeline.reserve, on)])

    def start(self, held: Point) -> None:
        """Let the model's whole variables start from a plan."""
        handed = handed_of(held)
        for option, on, made in zip(self.options, self.on, self.stages, strict=True):
            at, known = self.points[option.place], option.handed
            same = all(at[name] == held[name] for name in self.program.domain)
            same = same and (known is None or (known.layers, known.again) == handed)
            self._set(on, int(same))
            for forms, numbers in zip((made.layers, made.again), handed, strict=True):
                for form, number in zip(forms, numbers, strict=False):
                    self._set(form, number if same else 0)
        for name in self.program.domain:
            variable = self.raw.component(name)
            if not variable.fixed:
                variable.set_value(held[name], skip_validation=True)

    def _set(self, form: Form, number: int) -> None:
        """Give the variable behind a form a value."""
        for place in form.terms:
            self.sheet.vars[place].set_value(number, skip_validation=True)

    def found(self) -> tuple[Option, Shared]:
        """Read the option and the layers that a solution holds."""
        number = max(range(len(self.on)), key=lambda k: self.sheet.value(self.on[k]))
        option = self.options[number]
        if option.handed is not None:
            return option, option.handed
        layers, again = self.stages[number].read(self.sheet)
        return option, Shared(0, 0, layers, again)


def name_units(raw: pyo.ConcreteModel, tick: float) -> None:
    """Give a model its step time in seconds."""
    raw.step_seconds = pyo.Expression(expr=tick * raw.step_ticks)


def room_rule(program: Program) -> str:
    """Name the rule that keeps what stages hold within a device."""
    whole = [s.name for s in program.statements if isinstance(s, Fits) and s.parts == PARTS]
    return whole[0] if whole else "pipeline.room"


def prove_left(
    program: Program,
    left: Left,
    incumbent: Point | None,
    config: SolverConfig,
    constrain: Constrain | None = None,
    solver: str = DEFAULT,
) -> Outcome:
    """
    Prove that none of the points left beats an incumbent, or find the one that does.

    Parameters
    ----------
    left
        Points whose bound does not exceed the incumbent.
    incumbent
        A plan's values with its layers; None for none.
    constrain
        Adds a user's own constraints to the Pyomo model of each point.
    solver
        A name that Pyomo has.

    Returns
    -------
    Outcome
        ``proved``, the incumbent being returned unless something better was found.
    """
    return _Milp(program, left, incumbent, config, constrain, solver=solver).run()


def solve_whole(
    program: Program, left: Left, config: SolverConfig, solver: str = DEFAULT
) -> Outcome:
    """
    Solve a program as one model of all its points.

    Parameters
    ----------
    left
        Every point that no table refuses.
    """
    points = [left.at(i) for i in range(len(left))]
    left = left.take(np.array(passing(program, points), dtype=np.int64))
    return _Milp(program, left, None, config, whole=True, solver=solver).run()


def live(
    program: Program,
    left: Left,
    held: Point | None = None,
    exact: bool = False,
    name: str = "program",
) -> Hull:
    """
    Write points and their pipelines as one live Pyomo model, with the program's goal.

    Parameters
    ----------
    held
        A plan's values with its layers, for the model's variables to start from.
    exact
        Whether time and peak must be exactly what the layers make of them; without it they are no
        less, which is all that matters to whoever wants them small.
    """
    prover = _Milp(program, left, None, SolverConfig())
    points = [left.at(i) for i in range(len(left))]
    options = list(prover.options(points, every=True))
    exact = exact or prover.settler.late.hard
    hull = Hull(program, points, options, left.bound.tolist(), exact, name)
    for statement in prover.settler.late.statements:
        hull.post(statement)
    hull.raw.goal = pyo.Objective(expr=hull.goal(1 / program.goal.scale))
    if held is not None:
        hull.start(held)
    return hull


class _Milp(Prover):
    """A proof by a MILP solver."""

    trust = Fraction(TRUST).limit_denominator(10**12)

    def __init__(
        self,
        program: Program,
        left: Left,
        incumbent: Point | None,
        config: SolverConfig,
        constrain: Constrain | None = None,
        whole: bool = False,
        solver: str = DEFAULT,
    ) -> None:
        super().__init__(program, left, incumbent, config, constrain, whole)
        self.solver = solver
        self.engine = name_of(solver)

    def _solve(self, raw: pyo.ConcreteModel, warm: bool = False) -> Answer:
        """Run the solver on a model with what is left of the time."""
        answer = run(raw, self.solver, self.rest(), self.config.workers, self.config.seed, warm)
        self.nodes += answer.nodes
        if not answer.done:
            self.stopped = why_stopped(answer)
        return answer

    def prove(self, shares: Sequence[Share], below: int | None) -> Proof:
        """Find the fastest way to share out any of several pipelines, and prove it."""
        best: tuple[int, Shared] | None = None
        start = self.nodes
        for place in sorted(range(len(shares)), key=lambda k: least_step(shares[k])):
            share = shares[place]
            while self.stopped is None:
                low = least_step(share)
                if below is not None and low >= below * (1 - TRUST):
                    break
                shared = self._share(share, below)
                if shared is None:
                    break
                best, below = (place, shared), shared.step
            if self.stopped is not None:
                break
        nodes, self.nodes = self.nodes - start, start
        done = self.stopped is None
        bound = min(map(least_step, shares)) if not done else NEVER if below is None else below
        interrupted = self.stopped is Termination.INTERRUPTED
        return Proof(best, bound, done, interrupted, nodes)

    def _share(self, share: Share, below: int | None) -> Shared | None:
        """Share out one pipeline in fewer ticks than given, as far as floats can see."""
        sheet = Sheet("pipeline")
        made = write_stages(sheet, share, Form(constant=1), "capacity.hbm")
        if below is not None:
            # Floats cannot tell what is closer; the bound is lowered by as much.
            most = min(below - 1, floor(below * (1 - TRUST)))
            sheet.demand("better", made.step, None, most)
        bare = made.step.less(made.step.constant)
        sheet.raw.goal = pyo.Objective(expr=sheet.expression(bare, goal_unit(bare)))
        answer = self._solve(sheet.raw)
        if not answer.found:
            return None
        layers, again = made.read(sheet)
        shared = Shared(share.step(layers, again), share.peak(layers, again), layers, again)
        fits = sum(layers) == share.layers and shared.peak <= share.room
        if not fits or (below is not None and shared.step >= below):
            # What the solver calls better is not so, by more than floats should be off.
            self.stopped = self.stopped or Termination.FAILED
            return None
        return shared

    def better(
        self, points: Sequence[Point], options: Sequence[Option], batch: int
    ) -> tuple[Option, Shared] | None:
        """Look for something better in one model."""
        exact = not self.whole or self.settler.late.hard
        hull = Hull(self.program, points, options, None, exact)
        for statement in self.settler.late.statements:
            hull.post(statement)
        if self.constrain is not None:
            self.constrain(hull.raw)
            if hull.moved():
                return None
        of = hull.columns[self.program.goal.of]
        if self.known is not None:
            low = floor(self.known[self.program.goal.of] * SAFE)
            hull.sheet.demand("bound", of, low, None)
            hull.start(self.known)
        if self.goal is not None:
            most = ceil(self.goal * batch) - 1
            hull.sheet.demand("better", of, None, min(most, floor(most * (1 - TRUST))))
        bare = of.less(of.constant)
        hull.raw.goal = pyo.Objective(expr=hull.sheet.expression(bare, goal_unit(bare)))
        answer = self._solve(hull.raw, self.known is not None)
        if not answer.found:
            return None
        option, shared = hull.found()
        full = self.settler.handed_out(points[option.place], shared)
        held = self.settler.goal(full)
        if not self.settler.passes(full) or (self.goal is not None and held >= self.goal):
            self.stopped = self.stopped or Termination.FAILED
            return None
        return option, shared
