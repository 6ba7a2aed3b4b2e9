"""Which layouts of a spec are measured: what the engines can run, and a choice among it."""

from __future__ import annotations

import random
import re

from optplan.models.errors import Fault, InputError
from optplan.models.formulate import formulate
from optplan.models.spec.framework import Framework
from optplan.models.spec.plan import Plan
from optplan.models.spec.problem import Problem
from optplan.models.spec.workload import Workload
from optplan.planner import checked
from optplan.solvers.base import SolverConfig, Termination
from optplan.solvers.search import Search

ENGINES = Framework(
    name="pytorch",
    schedules=("1f1b", "gpipe", "interleaved"),
    zero=(0, 2, 3),
    zero_with_pipeline=0,
    hsdp=False,
    recompute=("none", "full"),
    context=(),
    tensor=True,
    pipeline=True,
    experts=False,
    expert_tensor=False,
    uneven_layers=True,
    ends_count_as_layers=False,
    key_heads_copied=False,
    interleaved_multiple="pp",
    interleaved_two_stages="yes",
    offload=False,
    features=("grad-reduce-overlap",),
    sources={
        "schedules": "torch.distributed.pipelining: Schedule1F1B, ScheduleGPipe, "
        "ScheduleInterleaved1F1B",
        "zero": "DistributedDataParallel is 0; fully_shard that keeps gathered weights until the "
        "backward pass is priced as 2, one that gathers them again as 3",
        "zero_with_pipeline": "a pipeline stage puts off the scattering of gradients to the last "
        "micro-batch, which is none of the stages that are priced",
    },
)
"""What the engines behind ``measure`` run, in the words of a framework."""

TELLING = (
    "tp",
    "pp",
    "dp",
    "micro_batch",
    "schedule",
    "vpp",
    "sequence_parallel",
    "zero",
    "recompute",
)
"""Choices in which two layouts must differ to be measured apart."""

MOST_PLANS = 10_000
"""Layouts that are listed at most."""

LISTING_SECONDS = 300.0
"""Time in which they must be found."""

_CHOICE = re.compile(r"(all)|(top|random):([1-9][0-9]{0,5})")


def narrowed(problem: Problem) -> Problem:
    """
    Return a problem whose layouts the engines can run.

    Raises
    ------
    InputError
        The workload is none that they can train; carries every reason.
    """
    reasons = _refusals(problem.workload)
    if reasons:
        remedy = "leave it out; the calibration holds for what remains"
        raise InputError([Fault("", path, problem_, remedy) for path, problem_ in reasons])
    return problem.model_copy(update={"framework": ENGINES})


def _refusals(workload: Workload) -> list[tuple[str, str]]:
    """List what of a workload the small network has not."""
    shape = workload.architecture
    found = [
        (f"workload.architecture.{name}", f"the network that is measured has no {name}")
        for name in ("experts", "latent", "mtp", "sliding_window", "qk_norm", "sinks", "dropout")
        if getattr(shape, name)
    ]
    if workload.lora is not None:
        found.append(("workload.lora", "the network that is measured has no adapters"))
    if workload.precision not in ("fp32", "bf16"):
        text = f"{workload.precision} is not measured; fp32 and bf16 are"
        found.append(("workload.precision", text))
    if not workload.flash_attention:
        found.append(("workload.flash_attention", "attention is fused wherever PyTorch can"))
    if not shape.learned_positions and shape.head_width % 2:
        found.append(("workload.architecture.heads", "rotary positions need heads of even width"))
    return found


def runnable(problem: Problem, plan: Plan) -> str:
    """Say why the engines cannot run a plan that the program allows; empty where they can."""
    shape = problem.workload.architecture
    if plan.cp > 1:
        return "context parallelism is not measured"
    if plan.tp > 1 and shape.vocabulary % plan.tp:
        return f"tp {plan.tp} does not divide the vocabulary of {shape.vocabulary}"
    if shape.tied_embeddings and (plan.pp > 1 or plan.tp > 1):
        return "tied embeddings are measured without pipeline and tensor parallelism only"
    if plan.vpp > 1 and shape.layers < plan.pp * plan.vpp:
        return "a chunk would hold no layer"
    if plan.pp > 1 and plan.schedule == "1f1b" and plan.micro_batches < plan.pp:
        # torch.distributed.pipelining, Schedule1F1B: refuses fewer micro-batches than stages.
        return "1F1B has fewer micro-batches than stages"
    if min(plan.layers_per_stage) == 0:
        return "a stage would hold no layer"
    return ""


def plans_of(problem: Problem, choice: str, seed: int = 0) -> tuple[list[Plan], dict[str, int]]:
    """
    List the layouts to measure, the fastest in the model first.

    Parameters
    ----------
    problem
        One whose layouts the engines can run.
    choice
        ``all`` feasible layouts, ``top:K`` of them, or ``random:K``.
    seed
        Of the random choice.

    Returns
    -------
    tuple
        Plans, each passed by the verifier; and why others were left out, with their number.

    Raises
    ------
    InputError
        The choice cannot be read, or no layout is feasible.
    """
    found = _CHOICE.fullmatch(choice)
    if not found:
        remedy = "write all, top:10 or random:10"
        raise InputError([Fault("--plans", "", f"cannot read '{choice}'", remedy)])
    form = formulate(problem)
    config = SolverConfig(seconds=LISTING_SECONDS, top=MOST_PLANS, distinct=TELLING)
    outcome = Search(form.program, config).outcome()
    if outcome.termination is not Termination.EXHAUSTED:
        text = f"the layouts could not be listed ({outcome.termination.value})"
        remedy = "fix more of the search space"
        raise InputError([Fault("", "search", text, remedy)])
    plans, left = [], dict[str, int]()
    for assignment in outcome.best:
        plan = checked(form, assignment)[0]
        reason = runnable(problem, plan)
        if reason:
            left[reason] = left.get(reason, 0) + 1
        else:
            plans.append(plan)
    if not plans:
        text = "no layout of this spec can be measured"
        remedy = next(iter(left), "ask optplan explain what stands in the way")
        raise InputError([Fault("", "search", text, remedy)])
    if found[2] == "top":
        plans = plans[: int(found[3])]
    elif found[2] == "random":
        count = min(int(found[3]), len(plans))
        chosen = set(random.Random(seed).sample(range(len(plans)), count))
        plans = [plan for i, plan in enumerate(plans) if i in chosen]
    return plans, left


def alone(problem: Problem) -> Plan:
    """Return the plan of one process, whose losses all layouts must reproduce."""
    batch = problem.search.global_batch
    assert isinstance(batch, int)
    layers = (problem.workload.architecture.layers,)
    return Plan(
        tp=1,
        pp=1,
        dp=1,
        micro_batch=1,
        micro_batches=batch,
        global_batch=batch,
        layers_per_stage=layers,
        recomputed_layers_per_stage=(0,),
    )
