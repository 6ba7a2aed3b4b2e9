"""CP-SAT on programs that hand out layers: the proof that no point left holds a better plan."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor

from ortools.sat.python import cp_model

from optplan.models.errors import Fault, InputError
from optplan.models.pipeline import handed_of
from optplan.models.program import LARGEST, Fits, Pipeline, Program, Row, Table
from optplan.models.stages import Share
from optplan.solvers.base import Outcome, SolverConfig, Termination
from optplan.solvers.cpsat import ENGINE
from optplan.solvers.cpsat_model import Model, post
from optplan.solvers.cpsat_solver import new_solver, solved
from optplan.solvers.cpsat_stages import add_rows, prove
from optplan.solvers.left import Left
from optplan.solvers.options import SAFE, Option
from optplan.solvers.prover import Constrain, Proof, Prover
from optplan.solvers.settle import Point
from optplan.solvers.stages import Shared


def prove_left(
    program: Program,
    left: Left,
    incumbent: Point | None,
    config: SolverConfig,
    constrain: Constrain | None = None,
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
        Adds a user's own constraints to the `Model` of each point.

    Returns
    -------
    Outcome
        ``proved``, the incumbent being returned unless something better was found.
    """
    return _CpSat(program, left, incumbent, config, constrain).run()


def solve_whole(program: Program, left: Left, config: SolverConfig) -> Outcome:
    """
    Solve a program as one model: all its tables and rows, and layers handed out under selectors.

    Parameters
    ----------
    left
        Every point that no table refuses; the model asks all rules anew.
    """
    return _CpSat(program, left, None, config, whole=True).run()


@dataclass(frozen=True)
class Parts:
    """
    What a model is made of besides its columns.

    Parameters
    ----------
    points, options
        Points, and the pipelines that they may have.
    selectors
        A literal for each option; exactly one is true.
    layers, again
        Layers, and layers computed again, of every stage.
    """

    points: Sequence[Point]
    options: Sequence[Option]
    selectors: Sequence[cp_model.IntVar]
    layers: Sequence[cp_model.IntVar]
    again: Sequence[cp_model.IntVar]

    def read(self, solver: cp_model.CpSolver) -> tuple[Option, Shared]:
        """Read the option and the layers that a solution holds."""
        pairs = zip(self.options, self.selectors, strict=True)
        option = next(option for option, selector in pairs if solver.value(selector))
        if option.handed is not None:
            return option, option.handed
        p = self.points[option.place]["pp"]
        layers, again = (
            tuple(int(solver.value(column)) for column in columns[:p])
            for columns in (self.layers, self.again)
        )
        return option, Shared(0, 0, layers, again)

    def hint(self, model: Model, held: Point) -> None:
        """Tell the model a plan."""
        values = {name: held[name] for name in model.program.domain}
        layers, again = handed_of(held)
        for option, selector in zip(self.options, self.selectors, strict=True):
            at = self.points[option.place]
            same = all(at[name] == value for name, value in values.items())
            known = option.handed
            same = same and (known is None or (known.layers, known.again) == (layers, again))
            model.raw.add_hint(selector, same)
        for name, value in held.items():
            if name in model.columns:
                model.raw.add_hint(model.columns[name], value)


def live(program: Program, left: Left, held: Point | None = None) -> tuple[Model, Parts]:
    """
    Write points and their pipelines as one live CP-SAT model.

    The goal is that of the program. Where points have several batches it is counted in whole ticks
    per sequence, rounded up. What is known of every point from below stands in rows of its own.

    Parameters
    ----------
    held
        A plan's values with its layers, for a hint.
    """
    prover = _CpSat(program, left, None, SolverConfig())
    points = [left.at(i) for i in range(len(left))]
    options = list(prover.options(points, every=True))
    model, parts = prover.build(points, options)
    raw, goal = model.raw, program.goal
    of = model.columns[goal.of]
    for option, selector in zip(options, parts.selectors, strict=True):
        per = goal.divisor(points[option.place])
        low = floor(float(left.bound[option.place]) * float(per) * SAFE)
        raw.add(of >= low).only_enforce_if(selector).with_name("bound")
    if held is not None:
        parts.hint(model, held)
    if len({goal.divisor(at) for at in points}) <= 1:
        raw.minimize(of)
        return model, parts
    high = _largest(program, points)
    score = model.columns["goal"] = raw.new_int_var(0, high, "goal")
    for option, selector in zip(options, parts.selectors, strict=True):
        per = goal.divisor(points[option.place])
        raw.add(score * per.numerator >= of * per.denominator).only_enforce_if(selector)
    raw.minimize(score)
    return model, parts


def _largest(program: Program, points: Sequence[Point]) -> int:
    """Return the largest goal of any point, as far as 64 bits hold its products."""
    goal = program.goal
    divisors = {goal.divisor(at) for at in points}
    most = program.bounds[goal.of][1]
    high = ceil(most / min(divisors))
    if most * max(d.denominator for d in divisors) > LARGEST or high > LARGEST:
        remedy = "take milp, or narrow the degrees"
        problem = "a time by so many devices is beyond 64 bits"
        raise InputError([Fault("", "engine", problem, remedy)])
    return min(high, LARGEST // max(d.numerator for d in divisors))


class _CpSat(Prover):
    """A proof by CP-SAT."""

    engine = ENGINE

    def prove(self, shares: Sequence[Share], below: int | None) -> Proof:
        """Find the fastest way to share out any of several pipelines, and prove it."""
        return prove(shares, below, self.rest(), self.config.workers, self.config.seed)

    def better(
        self, points: Sequence[Point], options: Sequence[Option], per: Fraction
    ) -> tuple[Option, Shared] | None:
        """Look for something better in one model."""
        model, parts = self.build(points, options)
        raw = model.raw
        if self.constrain is not None:
            self.constrain(model)
        of = model.columns[self.program.goal.of]
        if self.known is not None:
            raw.add(of >= self.known[self.program.goal.of])
            parts.hint(model, self.known)
        if self.goal is not None:
            raw.add(of <= ceil(self.goal * per) - 1)
        raw.minimize(of)
        rest = self.rest()
        solver = new_solver(self.config.seed, self.config.workers, rest)
        status = solved(solver, raw)
        self.nodes += solver.num_branches
        if status in (cp_model.FEASIBLE, cp_model.UNKNOWN):
            self.stopped = Termination.TIME_LIMIT if rest else Termination.INTERRUPTED
        if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return None
        return parts.read(solver)

    def build(self, points: Sequence[Point], options: Sequence[Option]) -> tuple[Model, Parts]:
        """Write a model of points and their pipelines, with everything that is asked of them."""
        raw = cp_model.CpModel()
        model = Model(self.program, raw)
        pipeline = self.settler.pipeline
        selectors = [raw.new_bool_var(f"option {i}") for i in range(len(options))]
        raw.add_exactly_one(selectors)
        high = 2**58
        step, peak = raw.new_int_var(0, high, "step"), raw.new_int_var(0, high, "peak")
        shares = [o.share for o in options]
        layers, again = add_rows(raw, shares, selectors, step, peak)
        for option, selector in zip(options, selectors, strict=True):
            for column, number in zip(layers, option.layers or (), strict=False):
                raw.add(column == number).only_enforce_if(selector)
        self._columns(model, points, options, selectors)
        whole = model.columns["step_ticks"] = raw.new_int_var(0, pipeline.most, "step_ticks")
        raw.add_min_equality(whole, [step, pipeline.most])
        size = model.columns["peak_bytes"] = raw.new_int_var(0, pipeline.most_bytes, "peak_bytes")
        # The fetched weights of ZeRO-3 are taken off the room, and count towards the peak.
        more = raw.new_int_var(0, pipeline.most_bytes, "peak with the reserve")
        raw.add(more == peak + model.columns["fetched"] + pipeline.reserve)
        raw.add_min_equality(size, [more, pipeline.most_bytes])
        for statement in self._asked():
            for name in statement.defines:
                low, top = self.program.bounds[name]
                model.columns[name] = raw.new_int_var(low, top, name)
            post(model, statement)
        parts = Parts(points, options, selectors, layers, again)
        for name, columns in (("layers", layers), ("again", again)):
            model.columns |= {f"{name}[{i}]": column for i, column in enumerate(columns)}
        model.origin = (None, parts)
        return model, parts

    def _columns(
        self,
        model: Model,
        points: Sequence[Point],
        options: Sequence[Option],
        selectors: Sequence[cp_model.IntVar],
    ) -> None:
        """Tie the columns that statements read to the selectors."""
        for name in self._names():
            values = sorted({points[o.place][name] for o in options})
            domain = cp_model.Domain.from_values(values)
            column = model.columns[name] = model.raw.new_int_var_from_domain(domain, name)
            if len(values) == 1:
                continue
            for option, selector in zip(options, selectors, strict=True):
                value = points[option.place][name]
                model.raw.add(column == value).only_enforce_if(selector)

    def _asked(self) -> Iterator[Table | Row]:
        """Statements that a model has to hold: those after the layers, or all of them."""
        late = self.settler.late
        for statement in self.program.statements:
            if isinstance(statement, Pipeline | Fits):
                continue
            if statement in late or (
                self.whole and not (isinstance(statement, Table) and statement.spans)
            ):
                yield statement  # type: ignore[misc]

    def _names(self) -> list[str]:
        """Columns that a model ties to its points."""
        if self.whole:
            return list(dict.fromkeys([*self.program.domain, "fetched"]))
        return list(self.settler.columns)
