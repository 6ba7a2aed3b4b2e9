"""One block and one micro-batch: the seconds that stages are made of."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np

from optplan.models.cost.arrays import Float, Int, largest, where
from optplan.models.cost.compute import (
    ELEMENT_BYTES,
    Operator,
    Passes,
    block_operators,
    embedding_seconds,
    head_seconds,
    joint_flops,
    matmul_seconds,
    operator_seconds,
    stream_seconds,
)
from optplan.models.cost.pointwise import pointwise_bytes, softmax_bytes
from optplan.models.cost.traffic import (
    all_gather_seconds,
    all_to_all_seconds,
    block_all_reduce_seconds,
    group,
    ring_seconds,
)
from optplan.models.spec.problem import Problem


@dataclass(frozen=True)
class Ranks:
    """
    Degrees and flags that a block's price depends on, each a number or an array.

    Parameters
    ----------
    tp, cp, ep, etp
        Degrees.
    context
        0 ring, 1 Ulysses.
    micro_batch
        Sequences, at least 1.
    selective
        True where the attention's core is computed again in the backward pass.
    sequence_parallel
        1 where norms and residuals are split over the tensor group.
    """

    tp: Int
    cp: Int
    ep: Int
    etp: Int
    context: Int
    micro_batch: Float
    selective: bool | np.ndarray[tuple[int, ...], np.dtype[np.bool_]] = False
    sequence_parallel: Int = 0

    @property
    def degrees(self) -> tuple[Int, Int, Int, Int]:
        """Degrees that matrix products depend on."""
        return self.tp, self.cp, self.ep, self.etp


@dataclass(frozen=True)
class Busy:
    """
    Seconds of something on one device for one micro-batch, by the term of Eq. 1 it belongs to.

    Parameters
    ----------
    compute
        Arithmetic (TF).
    reduce, arithmetic
        Tensor-parallel all-reduces and the additions inside them (TCT, TAT).
    context
        Exchange of context parallelism (TCC).
    expert
        All-to-all and gathering of experts (TCE).
    hidden
        What of the communication runs behind arithmetic (TO).
    launch
        Time in which the device waits for the host to launch the next operator (TL).
    forward, weight
        Parts of the total: the forward pass, and the weight gradients.
    """

    compute: Float = 0.0
    reduce: Float = 0.0
    arithmetic: Float = 0.0
    context: Float = 0.0
    expert: Float = 0.0
    hidden: Float = 0.0
    launch: Float = 0.0
    forward: Float = 0.0
    weight: Float = 0.0

    @property
    def total(self) -> Float:
        """Seconds that the device is busy."""
        spent = self.compute + self.reduce + self.arithmetic + self.context + self.expert
        return spent + self.launch - self.hidden

    @property
    def passes(self) -> tuple[Float, Float, Float]:
        """Seconds of forward pass, input gradient and weight gradient."""
        return self.forward, self.total - self.forward - self.weight, self.weight

    def __add__(self, other: Busy) -> Busy:
        """Add term by term."""
        return Busy(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    def times(self, factor: Float) -> Busy:
        """Multiply term by term."""
        return Busy(*(getattr(self, f.name) * factor for f in fields(self)))


def block_busy(problem: Problem, at: Ranks, moe: bool) -> Busy:
    """
    Forward and backward of one block, nothing recomputed but where ``selective`` the scores.

    Four all-reduces of the tensor group (two with experts that share nothing), the weight
    gradients hiding two of them as far as the calibration saw; the exchange of context ranks; two
    all-to-alls forward and two backward for the experts.
    """
    passes = _arithmetic(problem, at, moe)
    forward, weight = passes.forward, passes.weight
    scores = _scores(problem, at)
    # The scores have no weights, but two factors whose gradients the backward pass computes.
    compute = passes.total + scores + where(at.selective, scores + _softmax(problem, at))
    tau, count = (
        block_all_reduce_seconds(problem, at.micro_batch, at.tp, at.cp),
        _reductions(problem, moe),
    )
    kappa = problem.calibration.kappa
    cover = [
        _seconds(problem, operator, at).weight
        for operator in block_operators(problem.workload, moe)
        if operator.reduced and not problem.workload.lora
    ]
    tau = tau * (1.0 - _fused(problem, at))
    behind: Float = sum((np.minimum(tau * (1.0 + kappa), c) for c in cover), start=0.0 * tau)
    hidden = _overlap(problem, "tp-overlap", problem.calibration.overlap_tp) * behind
    context, under = _context(problem, at, scores)
    expert, below = _expert(problem, at, moe, forward)
    ahead = forward + count / 2 * tau * (1.0 + kappa) + context - under + 2.0 * (expert - below)
    whole = Busy(
        compute,
        count * tau,
        count * tau * kappa,
        3.0 * context,
        4.0 * expert,
        hidden + 3.0 * under + 4.0 * below,
    )
    wait = _wait(problem, at, ahead)
    return replace(
        whole,
        launch=wait + _wait(problem, at, whole.total - ahead),
        forward=ahead + wait,
        weight=weight,
    )


def _fused(problem: Problem, at: Ranks) -> Float:
    """Share of a tensor-parallel transfer that is fused with products and thereby hidden."""
    share = problem.calibration.fused_tp
    if not share or problem.prices == "paper" or "tp-overlap" not in (problem.overlap or ()):
        return 0.0
    return where(at.sequence_parallel == 1, share)


def _wait(problem: Problem, at: Ranks, busy: Float) -> Float:
    """
    Time by which launching one pass makes it longer than what the device is busy with.

    The host launches ahead of the device; a pass takes the longer of both, and a little more where
    they are about as long, since neither runs evenly: the ``UNEVEN`` norm of the two. Where host
    and device are one, the pass takes both.
    """
    alone, divided = problem.calibration.launch_seconds, problem.calibration.launch_tensor
    if not (alone or divided) or problem.prices == "paper":
        return 0.0 * busy
    floor: Float = alone + where(at.tp > 1, divided) if divided else alone
    if problem.calibration.launch_adds:
        return floor + 0.0 * busy
    # Scaled by the longer one, so that nothing overflows.
    longer, shorter = np.maximum(busy, floor), np.minimum(busy, floor)
    return longer * (1.0 + (shorter / longer) ** UNEVEN) ** (1.0 / UNEVEN) - busy


UNEVEN = 4
"""
Order of the norm. Of 3, 4, 5, 8 and a plain maximum, 4 and 5 fit the 720 launch-bound runs of
VIA-Research/vTrain's calibration half best, and 4 orders their layouts best (mean regret 4.1 %
against 5.0 % with a maximum).
"""


def again_busy(problem: Problem, at: Ranks, moe: bool) -> Busy:
    """One block's forward pass once more; the paper repeats its arithmetic alone."""
    forward = _arithmetic(problem, at, moe).forward
    if problem.prices == "paper":
        return Busy(forward)
    tau = block_all_reduce_seconds(problem, at.micro_batch, at.tp, at.cp)
    tau = tau * (1.0 - _fused(problem, at))
    count = _reductions(problem, moe) / 2
    context, under = _context(problem, at, _scores(problem, at))
    expert, below = _expert(problem, at, moe, forward)
    kappa = problem.calibration.kappa
    once = Busy(
        forward,
        count * tau,
        count * tau * kappa,
        context,
        2.0 * expert,
        under + 2.0 * below,
    )
    return replace(once, launch=_wait(problem, at, once.total))


def front_busy(problem: Problem, at: Ranks) -> Busy:
    """
    Price what the first stage does besides its blocks: the embedding, reduced over its group.

    Leading dense blocks count here as what they take beyond a block with experts, which may be
    less than nothing.
    """
    seconds = embedding_seconds(problem, at.micro_batch, at.cp)
    ends = Busy(seconds, forward=seconds * (2 / 5)) + _end_reduction(problem, at)
    experts = problem.workload.architecture.experts
    if experts and experts.leading_dense:
        dense, sparse = block_busy(problem, at, moe=False), block_busy(problem, at, moe=True)
        ends = ends + (dense + sparse.times(-1.0)).times(float(experts.leading_dense))
    return ends


def back_busy(problem: Problem, at: Ranks) -> Busy:
    """Price what the last stage does besides its blocks: head and loss, more predictions."""
    workload = problem.workload
    shape = workload.architecture
    seconds = head_seconds(problem, at.micro_batch, at.tp, at.cp)
    part = 1 / 2 if workload.lora else 1 / 3
    weight = 0.0 if workload.lora else part
    head = Busy(seconds, forward=seconds * part, weight=seconds * weight)
    one = head + _end_reduction(problem, at)
    if not shape.mtp:
        return one
    joint = matmul_seconds(problem, joint_flops(workload), at.micro_batch, at.tp, at.cp)
    passes = 2.0 if workload.lora else 3.0
    whole = Busy(passes * joint, forward=joint, weight=0.0 if workload.lora else joint)
    module = block_busy(problem, at, shape.experts is not None) + whole + one
    return one + module.times(float(shape.mtp))


def _end_reduction(problem: Problem, at: Ranks) -> Busy:
    """One all-reduce of the hidden states at either end; the paper has none."""
    if problem.prices == "paper":
        return Busy(forward=0.0)
    tau = block_all_reduce_seconds(problem, at.micro_batch, at.tp, at.cp)
    kappa = problem.calibration.kappa
    return Busy(reduce=tau, arithmetic=tau * kappa, forward=tau * (1.0 + kappa) / 2)


def _arithmetic(problem: Problem, at: Ranks, moe: bool) -> Passes:
    """
    Seconds of what a block computes or streams through memory.

    The scores count a single time backward here; their second factor is added where they are known.
    """
    total = Passes()
    for operator in block_operators(problem.workload, moe):
        total = total + _seconds(problem, operator, at)
    share = problem.calibration.pointwise
    if not share or problem.prices == "paper":
        return total
    split = at.sequence_parallel == 1
    moved = pointwise_bytes(problem, at.micro_batch, at.tp, at.cp, split, moe)
    streamed = stream_seconds(problem, share * moved)
    return total + Passes(streamed, 2.0 * streamed)


def _seconds(problem: Problem, operator: Operator, at: Ranks) -> Passes:
    """Seconds of one operator."""
    return operator_seconds(problem, operator, at.micro_batch, at.degrees)


def _scores(problem: Problem, at: Ranks) -> Float:
    """Seconds of the attention's core, forward."""
    core = next(o for o in block_operators(problem.workload, moe=False) if o.name == "scores")
    return _seconds(problem, core, at).forward


def _softmax(problem: Problem, at: Ranks) -> Float:
    """Seconds that unfused attention's scores take through memory, forward."""
    share = problem.calibration.pointwise
    if not share or problem.prices == "paper":
        return 0.0 * at.micro_batch
    return stream_seconds(problem, share * softmax_bytes(problem, at.micro_batch, at.tp, at.cp))


def _reductions(problem: Problem, moe: bool) -> float:
    """
    All-reduces of the tensor group in forward and backward.

    Routed experts exchange tokens instead, which sequence parallelism has split already.
    """
    experts = problem.workload.architecture.experts
    return 2.0 if moe and experts and not experts.shared_ffn else 4.0


def _context(problem: Problem, at: Ranks, scores: Float) -> tuple[Float, Float]:
    """
    One forward pass's exchange between context ranks, and what of it is hidden.

    A ring sends keys and values past every rank while the scores of the part before are computed
    (arXiv 2310.01889); its backward pass sends them and their gradients. Ulysses exchanges
    queries, keys, values and outputs by all-to-all (arXiv 2309.14509), which nothing hides;
    its backward pass sends as much again, counted as twice to bear the same factor as the ring.
    """
    workload = problem.workload
    shape, width = workload.architecture, ELEMENT_BYTES[workload.precision]
    tokens = at.micro_batch * workload.sequence_length / at.cp
    if shape.latent:
        heads = shape.heads * (shape.latent.nope + shape.latent.rope + shape.latent.value)
        pair, all_four = float(heads), float(2 * heads)
    else:
        pair = 2.0 * shape.key_width
        all_four = 2.0 * shape.query_width + 2.0 * shape.key_width
    place = group(problem, at.cp, at.tp)
    ring = ring_seconds(problem, tokens * pair * width / at.tp, place)
    heads_out = all_to_all_seconds(problem, tokens * all_four * width / at.tp, place) * (2.0 / 3.0)
    many = at.cp > 1
    spent = where(many, where(at.context == 0, ring, heads_out))
    hidden = problem.calibration.overlap_cp * np.minimum(ring, scores)
    return spent, where(many, where(at.context == 0, hidden))


def _expert(problem: Problem, at: Ranks, moe: bool, forward: Float) -> tuple[Float, Float]:
    """
    One of the four exchanges of a block with experts, and what of it is hidden.

    Every rank sends each of its tokens to ``per_token`` experts; where experts are split over
    ``etp`` ranks the tokens are gathered there besides.
    """
    workload = problem.workload
    experts = workload.architecture.experts
    if not (moe and experts):
        return 0.0, 0.0
    width = ELEMENT_BYTES[workload.precision]
    tokens = at.micro_batch * workload.sequence_length / (at.tp * at.cp)
    sent = tokens * experts.per_token * workload.expert_load * workload.architecture.hidden * width
    spent = where(at.ep > 1, all_to_all_seconds(problem, sent, group(problem, at.ep, at.etp)))
    gathered = all_gather_seconds(problem, sent * at.etp, group(problem, at.etp, 1))
    spent = spent + where(at.etp > 1, gathered)
    overlap = problem.overlap or ()
    share = problem.calibration.overlap_ep if "expert-overlap" in overlap else 0.0
    return spent, share * np.minimum(spent, forward / 2.0)


def _overlap(problem: Problem, feature: str, share: float) -> float:
    """Share that is hidden: none where the user has switched the feature off."""
    return share if problem.overlap is None or feature in problem.overlap else 0.0


def fetch_hidden(problem: Problem, fetch: Float, busy: Float) -> Float:
    """Seconds of fetching a layer's weights and spreading its gradients that arithmetic hides."""
    return problem.calibration.overlap_fsdp * -largest(-fetch, -busy)
