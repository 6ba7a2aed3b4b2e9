"""Plan to step time, memory table and breakdown: the one judge of a plan."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from optplan.models.cost.block import Busy, Ranks, fetch_hidden
from optplan.models.cost.compute import model_flops
from optplan.models.cost.layout import Kept, Owned, Pieces, Place, excess, kept, owned, pieces
from optplan.models.cost.memory import Slice
from optplan.models.cost.optimizers import state_bytes
from optplan.models.cost.price import PHASES, Estimate, Memory, StageUse
from optplan.models.cost.schedule import (
    IDLE_IF_SHORT,
    bubble_seconds,
    chunk_layers,
    enough,
    even_bubble_seconds,
    flight,
    late_seconds,
)
from optplan.models.cost.surcharges import surcharge_seconds
from optplan.models.cost.traffic import crossings, data_inside, hop_seconds, p2p_exposed
from optplan.models.spec.framework import CONTEXTS
from optplan.models.spec.plan import Plan
from optplan.models.spec.problem import Problem
from optplan.models.spec.space import ORDERS

NORMAL_OVER_MEAN = 1.2533
"""Standard deviation of a normal error over its mean absolute value, the root of pi / 2."""


def estimate(problem: Problem, plan: Plan) -> Estimate:
    """
    Price a plan, stage by stage.

    Parameters
    ----------
    problem
        Workload, cluster, prices and calibration.
    plan
        Any plan whose numbers are consistent (``len(layers_per_stage) == pp``); it may break rules.

    Returns
    -------
    Estimate
        ``step_seconds`` is the sum of the terms, TO subtracted. Under 1F1B it bounds the event
        simulation of the stages from above, whatever they hold; under the other schedules, whose
        chunks are priced as equal, likewise (``cost.schedule``).
    """
    at = _Layout(problem, plan)
    terms = at.terms()
    step = sum(terms.values()) - 2 * terms["TO"]
    rate = plan.global_batch / step
    workload, devices = problem.workload, problem.devices
    peak = problem.cluster.accelerator.peak[workload.precision]
    return Estimate(
        step_seconds=step,
        tokens_per_second_per_device=rate * workload.sequence_length / devices,
        mfu=rate * model_flops(workload) / (devices * peak),
        terms=terms,
        late_seconds=at.late(),
        memory=at.memory(),
    )


def step_seconds(problem: Problem, plan: Plan) -> float:
    """Price a plan's step alone, as ``estimate`` does, without counting its memory."""
    terms = _Layout(problem, plan).terms()
    return sum(terms.values()) - 2 * terms["TO"]


@dataclass(frozen=True)
class _Layout:
    """One plan with the pieces of its price."""

    problem: Problem
    plan: Plan

    @cached_property
    def pieces(self) -> Pieces:
        """Seconds of a micro-batch."""
        plan = self.plan
        context = CONTEXTS.index(plan.context)
        selective = plan.recompute == "selective"
        flags = selective, int(plan.sequence_parallel)
        at = Ranks(plan.tp, plan.cp, plan.ep, plan.etp, context, float(plan.micro_batch), *flags)
        return pieces(self.problem, at)

    @cached_property
    def owned(self) -> Owned:
        """States and their exchange."""
        plan = self.plan
        order = ORDERS.index(plan.order)
        inside = data_inside(self.problem, plan.tp, plan.pp, plan.dp, plan.cp, order)
        flags = (plan.zero, int(plan.hsdp), int(plan.offload), int(plan.pp == 1))
        at = Place(plan.tp, plan.cp, plan.dp, int(inside), plan.ep, plan.etp, *flags)
        return owned(self.problem, at)

    @cached_property
    def kept(self) -> Kept:
        """Bytes of a micro-batch."""
        plan = self.plan
        flags = int(plan.sequence_parallel), plan.recompute == "selective"
        return kept(self.problem, Slice(plan.tp, plan.cp, plan.micro_batch, *flags))

    @cached_property
    def fetch(self) -> tuple[float, float, float, float]:
        """Exposed exchange of weights: of a block, hidden part of it, of both ends."""
        whole = float(self.owned.fetch_layer)
        if self.plan.zero < 2:
            return 0.0, 0.0, 0.0, 0.0
        hidden = float(fetch_hidden(self.problem, whole, float(self.pieces.layer.total)))
        return whole, hidden, float(self.owned.fetch_front), float(self.owned.fetch_back)

    @property
    def folded(self) -> bool:
        """Whether first and last chunk lie on the first stage."""
        return self.plan.schedule == "zb-v" and self.plan.pp > 1

    def _is_last(self, stage: int) -> bool:
        return stage == (0 if self.folded else self.plan.pp - 1)

    # -- time ------------------------------------------------------------------------------------

    @cached_property
    def _known(self) -> dict[tuple[int, int, bool, bool], Busy]:
        """Stages that are alike are priced once."""
        return {}

    def busy(self, stage: int) -> Busy:
        """Seconds of one micro-batch on a stage, without the exchange of weights."""
        plan = self.plan
        layers, again = plan.layers_per_stage[stage], plan.recomputed_layers_per_stage[stage]
        key = (layers, again, stage == 0, self._is_last(stage))
        if key not in self._known:
            self._known[key] = self._busy(stage)
        return self._known[key]

    def _busy(self, stage: int) -> Busy:
        """Add up what a stage does."""
        plan, paper = self.plan, self.problem.prices == "paper"
        total = self.pieces.layer.times(float(plan.layers_per_stage[stage]))
        total = total + self.pieces.again.times(float(plan.recomputed_layers_per_stage[stage]))
        if stage == 0:
            total = total + self.pieces.front
        return total + self.pieces.back if paper or self._is_last(stage) else total

    def fetched(self, stage: int) -> tuple[float, float]:
        """Seconds of one micro-batch that a stage exchanges weights, and what of it is hidden."""
        whole, hidden, front, back = self.fetch
        layers = self.plan.layers_per_stage[stage]
        ends = front * (stage == 0) + back * self._is_last(stage)
        return layers * whole + ends, layers * hidden

    def stage_seconds(self, stage: int) -> float:
        """Forward and backward of one micro-batch on a stage."""
        whole, hidden = self.fetched(stage)
        return float(self.busy(stage).total) + whole - hidden

    def terms(self) -> dict[str, float]:
        """Seconds by term of Eq. 1."""
        plan = self.plan
        stages = [self.stage_seconds(i) for i in range(plan.pp)]
        slowest = max(range(plan.pp), key=stages.__getitem__)
        time, (fetch, hidden) = self.busy(slowest), self.fetched(slowest)
        m, owned_ = plan.micro_batches, self.owned
        once = max(range(plan.pp), key=self._once)
        near = plan.layers_per_stage[once]
        reduce, arithmetic, update = (
            float(getattr(owned_.latency, term))
            + near * float(getattr(owned_.once_layer, term))
            + (once == 0) * float(getattr(owned_.once_front, term))
            + self._is_last(once) * float(getattr(owned_.once_back, term))
            for term in ("reduce", "arithmetic", "update")
        )
        fill, steady = self._hops()
        return {
            "TF": m * float(time.compute),
            "TCT": m * float(time.reduce),
            "TAT": m * float(time.arithmetic),
            "TCC": m * float(time.context),
            "TCE": m * float(time.expert),
            "TL": m * float(time.launch),
            "TO": m * (float(time.hidden) + hidden),
            "TCD": reduce + m * fetch,
            "TAD": arithmetic,
            "TB": self._bubble(stages),
            "TCP": fill + m * steady,
            "T_opt": update,
            "T_own": surcharge_seconds(self.problem, plan),
        }

    def _once(self, stage: int) -> float:
        """Seconds that a stage spends once a step."""
        owned_ = self.owned
        return (
            self.plan.layers_per_stage[stage] * float(owned_.once_layer.total)
            + (stage == 0) * float(owned_.once_front.total)
            + self._is_last(stage) * float(owned_.once_back.total)
        )

    def _hops(self) -> tuple[float, float]:
        """Transfers between stages: once to fill and drain, and what each micro-batch adds."""
        problem, plan = self.problem, self.plan
        if plan.pp == 1:
            return 0.0, 0.0
        sp = int(plan.sequence_parallel)
        near, far = map(float, hop_seconds(problem, plan.micro_batch, plan.tp, plan.cp, sp))
        order = ORDERS.index(plan.order)
        crossing = int(crossings(problem, plan.tp, plan.pp, plan.dp, plan.cp, order))
        steady = p2p_exposed(problem) * plan.vpp * (far if crossing else near)
        return crossing * far + (plan.pp - 1 - crossing) * near, steady

    def _bubble(self, stages: list[float]) -> float:
        """Seconds that a step takes beyond the work of its slowest stage."""
        plan, m = self.plan, self.plan.micro_batches
        if plan.pp == 1:
            return 0.0
        if self.problem.prices == "paper":
            return (plan.pp - 1) * max(stages)
        if plan.schedule == "1f1b":
            return float(bubble_seconds(stages)) + self.late()
        chunk, again = self._chunk()
        layer = self.pieces.layer
        whole, hidden, front, back = self.fetch
        f, w = chunk * float(layer.forward), chunk * float(layer.weight)
        busy = chunk * (float(layer.total) + whole - hidden) + again * float(
            self.pieces.again.total
        )
        b = busy - f - w
        q = plan.pp - 1
        bubble = float(even_bubble_seconds(plan.schedule, plan.pp, f, b, w, barrier=True))
        if m < enough(plan.schedule, plan.pp):
            bubble = max(bubble, IDLE_IF_SHORT[plan.schedule] * q * (f + b))
        ends = self._over(True) + front + self._over(False) + back
        step = m * plan.vpp * busy + bubble + m * ends
        return step - m * max(stages)

    def late(self) -> float:
        """Seconds that 1F1B of uneven stages may take beyond its usual bubble."""
        plan = self.plan
        if plan.schedule != "1f1b" or plan.pp == 1 or self.problem.prices == "paper":
            return 0.0
        stages = [self.stage_seconds(i) for i in range(plan.pp)]
        forward = [self._forward(i) for i in range(plan.pp)]
        backward = [x - f for x, f in zip(stages, forward, strict=True)]
        return float(late_seconds(forward, backward, plan.micro_batches))

    def _over(self, first: bool) -> float:
        """Seconds of an end beyond the chunk, whose place it may take in part."""
        plan = self.plan
        end = self.pieces.front if first else self.pieces.back
        total = self.problem.workload.architecture.layers
        chunk, _ = self._chunk()
        short = plan.pp * plan.vpp * chunk - total
        light = short >= 2 if first else short >= 1
        beyond = self.pieces.over_front if first else self.pieces.over_back
        return float(beyond if light else excess(end))

    def _chunk(self) -> tuple[int, int]:
        """Layers of the fullest chunk, and how many of them are recomputed."""
        plan = self.plan
        layers, again = max(plan.layers_per_stage), max(plan.recomputed_layers_per_stage)
        return -(-layers // plan.vpp), -(-again // plan.vpp)

    def _forward(self, stage: int) -> float:
        """Seconds of the forward pass of one micro-batch on a stage, at most its share."""
        total = self.pieces.layer.times(float(self.plan.layers_per_stage[stage]))
        if stage == 0:
            total = total + self.pieces.front
        if self._is_last(stage):
            total = total + self.pieces.back
        return max(0.0, float(total.forward))

    def passes(self, stage: int, chunk: int) -> tuple[float, float, float]:
        """Seconds of forward pass, input gradient and weight gradient of one chunk of a stage."""
        plan, end = self.plan, self.plan.vpp - 1
        light = 0 if stage == 0 and not self.folded else end
        layers = chunk_layers(plan.layers_per_stage[stage], plan.vpp, chunk, light)
        again = chunk_layers(plan.recomputed_layers_per_stage[stage], plan.vpp, chunk, light)
        first, last = stage == chunk == 0, self._is_last(stage) and chunk == end
        busy = self.pieces.layer.times(float(layers)) + self.pieces.again.times(float(again))
        busy = busy + self.pieces.front if first else busy
        busy = busy + self.pieces.back if last or self.problem.prices == "paper" else busy
        whole, hidden, front, back = self.fetch
        exchanged = layers * (whole - hidden) + first * front + last * back
        forward, weight = max(0.0, float(busy.forward)), max(0.0, float(busy.weight))
        return forward, max(0.0, float(busy.total) - forward - weight) + exchanged, weight

    # -- memory ----------------------------------------------------------------------------------

    def memory(self) -> Memory:
        """Fill in the memory table of a plan."""
        stages = [self._stage(i) for i in range(self.plan.pp)]
        fullest = max(stages, key=lambda use: use.peak_bytes)
        allocated = max(max(use.phases.values()) for use in stages)
        return Memory(
            peak_bytes=fullest.peak_bytes,
            allocated_bytes=allocated,
            risk=self._risk(allocated),
            capacity_bytes=self.problem.cluster.accelerator.hbm,
            binding_stage=fullest.stage,
            stages=tuple(stages),
        )

    def _risk(self, allocated: int) -> float | None:
        """Chance that allocations reach what the reserve leaves of a device."""
        calibration = self.problem.calibration
        if calibration.memory_error is None:
            return None
        room = (
            self.problem.cluster.accelerator.hbm
            - calibration.reserve
            + (calibration.workspace or 0)
        )
        spread = calibration.memory_error * NORMAL_OVER_MEAN * allocated
        if spread == 0.0:
            return float(allocated > room)
        return 0.5 * math.erfc((room - allocated) / (spread * math.sqrt(2.0)))

    def _phases(self, parts: dict[str, int], moment: int) -> dict[str, int]:
        """Bytes by phase, from those by part."""
        lasting = parts["parameters"] + parts["gradients"]
        unit = state_bytes(self.problem.workload)
        whole = unit.optimizer + self.problem.calibration.step_bytes
        # What only the step needs is no longer there when micro-batches run.
        lasts = parts["optimizer"] * (unit.optimizer - unit.stepped) // whole if whole else 0
        own = self.problem.calibration.workspace or 0
        running = own + lasting + lasts + parts["activations"]
        held = (
            own + lasting + lasts,
            running + parts["working"] - moment,
            running + parts["working"],
            own + lasting + parts["optimizer"],
        )
        return dict(zip(PHASES, held, strict=True))

    def in_flight(self, stage: int) -> int:
        """Chunks of micro-batches that a stage holds at once."""
        plan = self.plan
        first, slope, most = flight(plan.schedule, plan.pp, plan.vpp, plan.micro_batches)
        return max(1, min(int(most), int(first) - int(slope) * stage))

    def _stage(self, stage: int) -> StageUse:
        """Count what one stage holds."""
        plan, kept_, held = self.plan, self.kept, self.owned
        layers = plan.layers_per_stage[stage]
        again = plan.recomputed_layers_per_stage[stage]
        flying, last = self.in_flight(stage), self._is_last(stage)
        each, few = (layers, again) if plan.schedule == "1f1b" else self._chunk()
        flown = flying * (each * int(kept_.kept) - few * int(kept_.saved))
        if stage == 0:
            flown += min(plan.micro_batches, self.in_flight(0)) * int(kept_.front)
        if last:
            flown += min(plan.micro_batches, flying) * int(kept_.back)
        moment = max(int(kept_.logits) * last, int(kept_.inside) * (few > 0))
        parts = {
            part: layers * int(getattr(held.layer, part))
            + (stage == 0) * int(getattr(held.front, part))
            + last * int(getattr(held.back, part))
            for part in ("parameters", "gradients", "optimizer")
        }
        parts |= {
            "activations": flown,
            "working": moment + int(held.fetched),
            "reserve": self.problem.calibration.reserve,
        }
        return StageUse(
            stage=stage,
            layers=layers,
            recomputed=again,
            peak_bytes=sum(parts.values()),
            parts=parts,
            phases=self._phases(parts, moment),
            in_flight=flying,
            micro_batch_seconds=self.stage_seconds(stage),
        )


def host_bytes(problem: Problem, plan: Plan) -> int:
    """Bytes of optimizer state in one server: an even share of the layers and both ends each."""
    held = _Layout(problem, plan).owned
    layers = -(-problem.workload.architecture.layers // plan.pp)
    each = layers * int(held.layer.host) + int(held.front.host) + int(held.back.host)
    return each * problem.cluster.devices_per_node


def chunk_passes(problem: Problem, plan: Plan) -> list[list[tuple[float, float, float]]]:
    """
    Price what an event simulation runs, ``[stage][chunk]``, for one micro-batch.

    In seconds: forward, input gradient (with all that is computed or fetched again), weights.
    """
    at = _Layout(problem, plan)
    return [[at.passes(stage, chunk) for chunk in range(plan.vpp)] for stage in range(plan.pp)]
