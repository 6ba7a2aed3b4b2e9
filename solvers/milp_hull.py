"""Points of a program, each with its pipeline, as one live Pyomo model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import floor

import pyomo.environ as pyo
from pyomo.core.expr import LinearExpression

from optplan.models.columns import PARTS
from optplan.models.pipeline import handed_of
from optplan.models.program import Fits, Program
from optplan.solvers.milp_forms import Form, added
from optplan.solvers.milp_model import Written, blend, gathered
from optplan.solvers.milp_stages import Stages, write_stages
from optplan.solvers.options import SAFE, Option
from optplan.solvers.settle import Point
from optplan.solvers.stages import Shared


class Hull(Written):
    """
    Points of a program, each with its pipeline, as a live Pyomo model.

    Parameters
    ----------
    program
        What is written.
    points, options
        Points, and the pipelines that they may have.
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
                    for held, layers in zip(made.layers, option.layers or (), strict=False):
                        sheet.equal("pipeline.layers", held.plus(on, -layers))
                if bounds is not None and known is None and goal.of == "step_ticks":
                    per = goal.divisor(points[option.place])
                    low = floor(bounds[option.place] * float(per) * SAFE)
                    sheet.demand("bound", made.step.plus(on, -low), 0, None)
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
        self.peaks = [
            added([(1, made.peak), (at["fetched"] + pipeline.reserve, on)])
            for made, at, on in zip(self.stages, chosen, self.on, strict=True)
        ]
        self.columns |= {"step_ticks": step, "peak_bytes": added((1, peak) for peak in self.peaks)}
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
        steps = [made.step for made in self.stages]
        forms = steps if goal.of == "step_ticks" else self.peaks
        for option, form in zip(self.options, forms, strict=True):
            per = float(goal.divisor(self.points[option.place]))
            for number, k in form.terms.items():
                terms[number] = terms.get(number, 0.0) + k / per / unit
        return LinearExpression(
            constant=0.0,
            linear_coefs=list(terms.values()),
            linear_vars=[self.sheet.vars[number] for number in terms],
        )

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
