"""Layers into stages, and the order in which stages work."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from optplan.models.builder import Builder
from optplan.models.cost.price import Estimate
from optplan.models.layout import fixed_shape
from optplan.models.numbers import listed
from optplan.models.pipeline import alike
from optplan.models.program import Integers
from optplan.models.rules.registry import Finding, Legal, Rule, rule
from optplan.models.spec.framework import SCHEDULES
from optplan.models.spec.plan import Plan
from optplan.models.spec.problem import Problem

ONE_BY_ONE, INTERLEAVED, IN_A_V = (SCHEDULES.index(s) for s in ("1f1b", "interleaved", "zb-v"))


@rule
class Turns(Rule):
    """A schedule says how many chunks a device may have."""

    name = "pipeline.schedule"
    sentence = "interleaved needs vpp >= 2, zb-v needs vpp 2, others vpp 1; one stage needs none"
    source = "Megatron-LM, training/arguments.py; arXiv 2401.10241 and 2405.15362 for zb-*"

    def post(self, say: Builder, problem: Problem) -> None:
        """Span the space of schedules."""
        rows = []
        layers = problem.workload.architecture.layers
        for pp in say.domain["pp"].tolist():
            for vpp in say.domain["vpp"].tolist():
                for schedule in say.domain["schedule"].tolist():
                    if pp * vpp <= layers + 2 and _chunked(pp, vpp, schedule):
                        rows.append((pp, vpp, schedule))
        keys = ("pp", "vpp", "schedule")
        say.space(self.name, keys, np.array(rows, dtype=np.int64).reshape(-1, 3))

    def holds(self, problem: Problem, plan: Plan, estimate: Estimate) -> Iterator[Finding]:
        """Look the combination up."""
        ok = _chunked(plan.pp, plan.vpp, SCHEDULES.index(plan.schedule))
        text = f"{plan.schedule} with vpp {plan.vpp} at pp {plan.pp}"
        yield Finding(self.name, ok, text if ok else f"{text}; {_chunks(plan.pp, plan.schedule)}")


def _chunks(pp: int, schedule: str) -> str:
    """Name the chunks that a schedule knows, and another schedule."""
    if pp == 1:
        return "one stage has no order to choose; legal: 1f1b with vpp 1; or pp >= 2"
    if schedule in ("interleaved", "zb-v"):
        legal = "vpp 2" if schedule == "zb-v" else "vpp >= 2"
        return f"every device holds several chunks; legal: {legal}; or 1f1b with vpp 1"
    return "every device holds one chunk; legal: vpp 1; or interleaved"


def _chunked(pp: int, vpp: int, schedule: int) -> bool:
    """Tell whether a schedule knows this many chunks."""
    if pp == 1:
        return schedule == ONE_BY_ONE and vpp == 1
    if schedule == INTERLEAVED:
        return vpp >= 2
    return vpp == (2 if schedule == IN_A_V else 1)


@rule
class Layers(Legal):
    """No layer is lost and no stage is empty."""

    name = "pipeline.layers"
    sentence = "the stages hold all layers, in equal chunks wherever the schedule needs them equal"
    source = (
        "arXiv 2501.00254, Eq. 13: p | L; Megatron-LM, training/arguments.py: layers divisible by "
        "pp vpp, embedding and head counted as layers where asked"
    )
    keys = ("pp", "vpp", "schedule")

    def legal(self, problem: Problem, *values: Integers) -> NDArray[np.bool_]:
        """Divide."""
        return np.asarray(fixed_shape(problem, *values).legal, dtype=bool)

    def why(self, problem: Problem, *values: int) -> str:
        """Name count, degree and legal degrees."""
        pp, vpp, schedule = values
        layers = problem.workload.architecture.layers
        if bool(self.legal(problem, *(np.array([v]) for v in values))[0]):
            return f"pp {pp}" + (f" x vpp {vpp}" if vpp > 1 else "") + f" holds {layers} layers"
        every = np.arange(1, min(layers, problem.devices) + 1)
        some = self.legal(problem, every, np.full_like(every, vpp), np.full_like(every, schedule))
        legal = [p for p in every[some].tolist() if _chunked(p, vpp, schedule)]
        word = SCHEDULES[schedule]
        text = f"pp {pp} x vpp {vpp} does not divide {layers} layers"
        wanted = problem.search.layers_per_stage
        if isinstance(wanted, tuple):
            text = (
                f"pp {pp}, but layers are asked for on {len(wanted)} stages, {sum(wanted)} in all"
            )
        text += f" under {word}; legal at vpp {vpp}: "
        return text + (f"pp in {listed(legal)}" if legal else "no pp") + f"; {_else(problem)}"

    def holds(self, problem: Problem, plan: Plan, estimate: Estimate) -> Iterator[Finding]:
        """Divide, and count the layers that the stages really hold."""
        yield from super().holds(problem, plan, estimate)
        layers, held = problem.workload.architecture.layers, sum(plan.layers_per_stage)
        text = f"stages hold {held} of {layers} layers"
        filled = min(plan.layers_per_stage) > 0 or plan.vpp > 1 or plan.schedule != "1f1b"
        each, over = divmod(layers, plan.pp)
        even = listed([each + (stage < over) for stage in range(plan.pp)], most=64)
        remedy = f"legal: {layers} in all, such as {even}" if each else f"legal: pp <= {layers}"
        if held != layers:
            text += f"; a launch would train another network; {remedy}; or another pp"
        elif not filled:
            text += f", a stage holds none; {remedy}; or a smaller pp"
        yield Finding(f"{self.name}[all]", held == layers and filled, text)
        wrong = plan_shape_fault(problem, plan)
        yield Finding(f"{self.name}[stages]", not wrong, wrong or listed(plan.layers_per_stage))


def _else(problem: Problem) -> str:
    """Say what else to change where layers do not divide."""
    if isinstance(problem.search.layers_per_stage, tuple):
        return "or other numbers in layers_per_stage"
    if not uneven(problem):
        return "or raise tp or dp instead"
    if problem.search.layers_per_stage == "even":
        return "or 'layers_per_stage: any' and 1f1b, whose stages may differ"
    return "or 1f1b, whose stages may differ"


def plan_shape_fault(problem: Problem, plan: Plan) -> str:
    """Say why the layers of a plan's stages are not those its schedule or the spec asks for."""
    wanted = problem.search.layers_per_stage
    if isinstance(wanted, tuple) and plan.layers_per_stage != wanted:
        return f"{listed(plan.layers_per_stage)}, the spec asks for {listed(wanted)}"
    if plan.recompute in ("none", "selective") and any(plan.recomputed_layers_per_stage):
        return f"recompute is {plan.recompute}, yet layers are recomputed; legal: recompute full"
    framework, again = problem.framework, plan.recomputed_layers_per_stage
    one = framework is not None and framework.recompute_alike and plan.schedule == "1f1b"
    if framework is not None and one and not alike(plan.layers_per_stage, again):
        legal = listed([min(max(again), n) for n in plan.layers_per_stage])
        return (
            f"{listed(again)} recomputed; {framework.name} takes one number for all stages; "
            f"legal: {legal}"
        )
    experts = problem.workload.architecture.experts
    dense = experts.leading_dense if experts else 0
    if plan.layers_per_stage[0] < dense:
        return f"the first stage must hold the {dense} leading dense layers"
    fixed = wanted == "even" or plan.schedule != "1f1b" or not uneven(problem)
    if isinstance(wanted, tuple) or not fixed:
        return ""
    values = (plan.pp, plan.vpp, SCHEDULES.index(plan.schedule))
    shape = fixed_shape(problem, *(np.array([v]) for v in values))
    if not bool(shape.legal[0]):
        return ""
    even = shape.layers(plan.pp, plan.vpp)
    if plan.layers_per_stage != even:
        return f"{listed(plan.layers_per_stage)} are not {listed(even)}, the only equal chunks"
    return ""


def uneven(problem: Problem) -> bool:
    """Tell whether stages may differ."""
    return problem.prices != "paper" and (
        problem.framework is None or problem.framework.uneven_layers
    )


@rule
class Turn(Rule):
    """Interleaved stages take micro-batches in rounds of as many as there are stages."""

    name = "pipeline.interleaved"
    sentence = (
        "interleaved schedules need micro-batches in multiples of pp (of pp * vpp where asked)"
    )
    source = (
        "Megatron-LM, core/pipeline_parallel/schedules.py; which multiple depends on the "
        "framework's version (NVIDIA-BioNeMo/bionemo-recipes issue 286)"
    )

    def applies(self, problem: Problem) -> bool:
        """Leave out the paper, which has one schedule."""
        return problem.prices != "paper"

    def _rounds(self, problem: Problem) -> bool:
        """Tell whether virtual stages count too."""
        known = problem.framework
        return known is not None and known.interleaved_multiple == "pp*vpp"

    def post(self, say: Builder, problem: Problem) -> None:
        """Demand no remainder under that schedule."""
        if INTERLEAVED not in say.domain["schedule"].tolist():
            return
        of = "pp"
        if self._rounds(problem):
            of = "round"
            say.multiply(self.name, of, "pp", "vpp")
        say.divide(self.name, "rounds", "left_over", "micro_batches", of)
        say.row(self.name, ((1, "left_over"),), high=0, when=("schedule", INTERLEAVED))

    def holds(self, problem: Problem, plan: Plan, estimate: Estimate) -> Iterator[Finding]:
        """Divide."""
        if plan.schedule != "interleaved":
            yield Finding(self.name, True, f"{plan.schedule} takes any number")
            return
        of = plan.pp * (plan.vpp if self._rounds(problem) else 1)
        ok = plan.micro_batches % of == 0
        low = plan.micro_batches // of * of
        near = f"{low} or {low + of}" if low else f"{of}"
        text = f"{plan.micro_batches} micro-batches in rounds of {of}"
        fix = f"; legal: multiples of {of} such as {near}; or a smaller pp, or schedule 1f1b"
        yield Finding(self.name, ok, text if ok else text + fix)


@rule
class TwoStages(Legal):
    """Some versions cannot interleave two stages."""

    name = "pipeline.two_stages"
    sentence = "interleaving two stages needs a framework that can, or transfers overlapped"
    source = "NVIDIA/Megatron-LM issue 750: assertion at pp 2 until transfers could overlap"
    keys = ("pp", "schedule")

    def applies(self, problem: Problem) -> bool:
        """Ask the framework."""
        known = problem.framework
        return known is not None and known.interleaved_two_stages != "yes"

    def legal(self, problem: Problem, *values: Integers) -> NDArray[np.bool_]:
        """Ask for a third stage unless two will do."""
        known = problem.framework
        assert known is not None
        overlapped = problem.overlap is not None and "p2p-overlap" in problem.overlap
        can = known.interleaved_two_stages == "p2p-overlap" and overlapped
        return np.asarray((values[0] != 2) | (values[1] != INTERLEAVED) | can, dtype=bool)

    def why(self, problem: Problem, *values: int) -> str:
        """Name both and the way out."""
        known = problem.framework
        assert known is not None
        text = f"pp {values[0]}, {SCHEDULES[values[1]]}"
        if known.interleaved_two_stages == "p2p-overlap":
            wish = "two stages interleave with 'overlap: [p2p-overlap]'"
            return f"{text}; {wish}; legal without: pp >= 3; or schedule 1f1b"
        return f"{text}, which {known.name} cannot do; legal: pp >= 3; or schedule 1f1b"
