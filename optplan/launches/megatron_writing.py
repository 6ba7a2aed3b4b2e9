"""A plan and its workload as options of Megatron, group by group."""

from __future__ import annotations

from collections.abc import Sequence

from optplan.launches import megatron_layout
from optplan.launches.megatron_job import Groups, Job, Option, numbered
from optplan.launches.megatron_recompute import blocks_of
from optplan.launches.megatron_sharding import in_node
from optplan.models.errors import Fault
from optplan.models.spec.plan import Plan
from optplan.models.spec.problem import Problem

OWNED: dict[str, tuple[str, ...]] = {
    "tp": ("tensor_model_parallel_size",),
    "pp": ("pipeline_model_parallel_size",),
    "cp": ("context_parallel_size", "context_parallel_algo"),
    "context": ("cp_comm_type",),
    "ep": ("expert_model_parallel_size",),
    "etp": ("expert_tensor_parallel_size", "moe_tp_extend_ep"),
    "sequence_parallel": ("sequence_parallel",),
    "order": ("use_tp_pp_dp_mapping",),
    "zero": (
        "use_distributed_optimizer",
        "use_megatron_fsdp",
        "use_custom_fsdp",
        "use_torch_fsdp2",
        "data_parallel_sharding_strategy",
        "num_distributed_optimizer_instances",
    ),
    "offload": (
        "optimizer_cpu_offload",
        "optimizer_offload_fraction",
        "use_precision_aware_optimizer",
    ),
    "micro_batch": ("micro_batch_size",),
    "global_batch": ("global_batch_size",),
    "stages": (
        "num_layers_per_virtual_pipeline_stage",
        "num_virtual_stages_per_pipeline_rank",
        "pipeline_model_parallel_layout",
        "decoder_first_pipeline_num_layers",
        "decoder_last_pipeline_num_layers",
        "account_for_embedding_in_pipeline_split",
        "account_for_loss_in_pipeline_split",
        "num_layer_list",
    ),
    "recompute": (
        "recompute_activations",
        "recompute_granularity",
        "recompute_method",
        "recompute_num_layers",
        "recompute_modules",
    ),
}
"""Options that a group owns: those it does not write are taken out."""


USUAL_OVERLAP: tuple[str, ...] = ("grad-reduce-overlap", "param-gather-overlap", "p2p-overlap")
"""What is overlapped where a problem leaves it to the calibration."""


def used_cluster(problem: Problem, plan: Plan, faults: list[Fault]) -> tuple[int, int]:
    """Return the nodes that a plan uses and the devices of each."""
    cluster = problem.cluster
    node, used = cluster.devices_per_node, plan.devices
    if used % node == 0:
        return used // node, node
    if used < node:
        return 1, used
    text = f"{used} of {cluster.devices} devices are no whole nodes of {node}"
    remedy = f"take {used // node * node} or {(used // node + 1) * node} devices, or no idle ones"
    faults.append(Fault("", "dp", text, remedy))
    return cluster.nodes, node


def job_of(problem: Problem, plan: Plan, version: str, faults: list[Fault]) -> Job:
    """Gather what the options of a plan depend on."""
    shape = problem.workload.architecture
    nodes, node = used_cluster(problem, plan, faults)
    return Job(shape.layers, shape.mtp, shape.experts is not None, nodes, node, numbered(version))


# -- the plan --------------------------------------------------------------------------------------


def plan_options(plan: Plan, job: Job, faults: list[Fault]) -> Groups:
    """
    Write a plan as options.

    Parameters
    ----------
    faults
        Receives what this version cannot launch, with the nearest that it can.
    """
    if plan.schedule not in ("1f1b", "interleaved"):
        problem = f"Megatron Core launches no schedule {plan.schedule}"
        faults.append(Fault("", "schedule", problem, "take 1f1b or interleaved"))
    found: Groups = {
        "tp": [("--tensor-model-parallel-size", str(plan.tp))],
        "pp": [("--pipeline-model-parallel-size", str(plan.pp))],
        "cp": [("--context-parallel-size", str(plan.cp))] if plan.cp > 1 else [],
        "context": _context(plan, job),
        "ep": [("--expert-model-parallel-size", str(plan.ep))] if job.experts else [],
        "etp": _expert_tensor(plan, job, faults),
        "sequence_parallel": [("--sequence-parallel",)] if plan.sequence_parallel else [],
        "order": [("--use-tp-pp-dp-mapping",)] if plan.order == "pipeline_inside" else [],
        "zero": sharding_options(plan, job, faults),
        "offload": _offload(plan),
        "micro_batch": [("--micro-batch-size", str(plan.micro_batch))],
        "global_batch": [("--global-batch-size", str(plan.global_batch))],
        "stages": stage_options(plan, job, faults),
        "recompute": recompute_options(plan, faults),
    }
    return found


def _row(numbers: Sequence[int]) -> str:
    """Write what every stage has, the end left out of long rows."""
    return ", ".join(map(str, numbers[:64])) + (", ..." if len(numbers) > 64 else "")


def _context(plan: Plan, job: Job) -> list[Option]:
    """Write how context ranks exchange."""
    if plan.cp == 1 or job.version < (0, 10):
        return []
    return [("--cp-comm-type", "a2a" if plan.context == "ulysses" else "p2p")]


def _expert_tensor(plan: Plan, job: Job, faults: list[Fault]) -> list[Option]:
    """Write the tensor degree of the experts."""
    if not job.experts:
        return []
    if job.version >= (0, 10):
        return [("--expert-tensor-parallel-size", str(plan.etp))]
    if plan.etp != plan.tp:
        problem = f"etp {plan.etp} beside tp {plan.tp}; before core 0.10 they are one"
        faults.append(Fault("", "etp", problem, f"take etp {plan.tp}"))
    return []


def _offload(plan: Plan) -> list[Option]:
    """Write an optimizer on the host."""
    if not plan.offload:
        return []
    return [
        ("--optimizer-cpu-offload",),
        ("--optimizer-offload-fraction", "1.0"),
        ("--use-precision-aware-optimizer",),
    ]


def sharding_options(plan: Plan, job: Job, faults: list[Fault]) -> list[Option]:
    """Write what data ranks share."""
    if not plan.zero:
        return []
    found: list[Option] = [("--use-distributed-optimizer",)]
    if plan.zero > 1:
        strategy = {2: "optim_grads", 3: "optim_grads_params"}[plan.zero]
        fsdp = "--use-megatron-fsdp" if job.version >= (0, 14) else "--use-custom-fsdp"
        found += [(fsdp,), ("--data-parallel-sharding-strategy", strategy)]
    if plan.hsdp:
        ranks = plan.dp * plan.cp
        stride = plan.tp * (plan.pp if plan.order == "pipeline_inside" else 1)
        inside = in_node(job.node, job.nodes == 1, ranks, stride)
        experts = plan.tp * plan.cp * plan.dp // (plan.ep * plan.etp)
        if inside == ranks:
            problem = f"hsdp, though the {ranks} data ranks lie in one node: nothing is copied"
            faults.append(Fault("", "hsdp", problem, "take hsdp off"))
        elif job.experts and experts % (ranks // inside):
            problem = f"hsdp over {ranks // inside} nodes; {experts} expert ranks do not divide"
            faults.append(Fault("", "hsdp", problem, "take hsdp off"))
        else:
            found.append(("--num-distributed-optimizer-instances", str(ranks // inside)))
    return found


def stage_options(plan: Plan, job: Job, faults: list[Fault]) -> list[Option]:
    """Write virtual stages, and the layers of stages that are not equal."""
    if plan.pp == 1:
        return []
    layers = plan.layers_per_stage
    if plan.vpp > 1:
        return _chunk_options(plan, job, faults)
    if len(set(layers)) == 1:
        return []
    if job.version >= (0, 13):
        layout = megatron_layout.write(layers, job.predictions)
        return [("--pipeline-model-parallel-layout", layout)]
    if job.version >= (0, 9) and len(set(layers[1:-1])) <= 1:
        return [
            ("--decoder-first-pipeline-num-layers", str(layers[0])),
            ("--decoder-last-pipeline-num-layers", str(layers[-1])),
        ]
    problem = f"{_row(layers)} layers a stage; this version takes only equal stages"
    problem += " between the first and the last" if job.version >= (0, 9) else ""
    faults.append(Fault("", "layers_per_stage", problem, _even(job.layers, plan.pp)))
    return []


def _even(layers: int, pp: int) -> str:
    """Name the nearest pipeline with equal stages."""
    legal = [p for p in range(1, layers + 1) if layers % p == 0]
    near = min(legal, key=lambda p: abs(p - pp))
    return f"take layers_per_stage even; {layers} layers divide at pp {near}"


def _chunk_options(plan: Plan, job: Job, faults: list[Fault]) -> list[Option]:
    """Write interleaved stages: equal chunks, of which ends may take the place of a layer."""
    layers = plan.layers_per_stage
    most = max(layers)
    front, back = most - layers[0], most - layers[-1]
    middle = all(n == most for n in layers[1:-1])
    if most % plan.vpp or not middle or front > 1 or back > 1:
        problem = f"{_row(layers)} layers a stage in {plan.vpp} chunks each"
        faults.append(Fault("", "layers_per_stage", problem, "take equal chunks"))
        return []
    found: list[Option] = [("--num-layers-per-virtual-pipeline-stage", str(most // plan.vpp))]
    if front:
        found.append(("--account-for-embedding-in-pipeline-split",))
    if back:
        found.append(("--account-for-loss-in-pipeline-split",))
    if (front or back) and job.version < (0, 11):
        problem = "embedding or loss in the place of a layer, which begins with core 0.11"
        faults.append(Fault("", "layers_per_stage", problem, "take equal stages"))
    return found


def recompute_options(plan: Plan, faults: list[Fault]) -> list[Option]:
    """Write recomputation: one number of layers for every chunk, or all."""
    if plan.recompute == "none":
        return []
    if plan.recompute == "selective":
        return [("--recompute-granularity", "selective")]
    layers, again = plan.layers_per_stage, plan.recomputed_layers_per_stage
    full: list[Option] = [("--recompute-granularity", "full")]
    if again == layers:
        return [*full, ("--recompute-method", "uniform"), ("--recompute-num-layers", "1")]
    some = uniform_count(plan)
    if some is None:
        problem = f"{_row(again)} layers recomputed; one number serves all stages"
        near = near_count(plan)
        remedy = f"take {near} on every stage ({_row(uniform(plan, near))})"
        faults.append(Fault("", "recomputed_layers_per_stage", problem, remedy))
        return []
    return [*full, ("--recompute-method", "block"), ("--recompute-num-layers", str(some))]


def uniform(plan: Plan, some: int) -> tuple[int, ...]:
    """Return what each stage recomputes where every chunk recomputes some layers."""
    return tuple(blocks_of(n, some, plan.vpp) for n in plan.layers_per_stage)


def near_count(plan: Plan) -> int:
    """Return the fewest layers a chunk that recompute no less on any stage than a plan does."""
    most = max(plan.layers_per_stage)
    return next(
        (
            some
            for some in range(1, most + 1)
            if all(
                n >= r
                for n, r in zip(uniform(plan, some), plan.recomputed_layers_per_stage, strict=True)
            )
        ),
        most,
    )


def uniform_count(plan: Plan) -> int | None:
    """Return the one number of layers a chunk that a plan recomputes, if there is one."""
    some = near_count(plan)
    return some if uniform(plan, some) == plan.recomputed_layers_per_stage else None


# -- the workload ----------------------------------------------------------------------------------


def overlap_options(problem: Problem, plan: Plan, job: Job) -> tuple[list[Option], list[str]]:
    """Write what communication is hidden, and say what could not be switched on."""
    wanted = USUAL_OVERLAP if problem.overlap is None else problem.overlap
    found: list[Option] = []
    said: list[str] = []
    if "grad-reduce-overlap" in wanted:
        found.append(("--overlap-grad-reduce",))
    if "param-gather-overlap" in wanted:
        if plan.zero and "grad-reduce-overlap" in wanted and job.version >= (0, 6):
            found.append(("--overlap-param-gather",))
        elif problem.overlap is not None:
            said.append("param-gather-overlap needs zero >= 1 and grad-reduce-overlap")
    if "tp-overlap" in wanted:
        if plan.sequence_parallel:
            found.append(("--tp-comm-overlap",))
        else:
            said.append("tp-overlap needs sequence parallelism")
    if plan.vpp > 1 and "p2p-overlap" not in wanted and job.version >= (0, 8):
        found.append(("--no-overlap-p2p-communication",))
    if "expert-overlap" in wanted:
        if job.experts and plan.ep > 1 and plan.recompute != "full":
            found.append(("--overlap-moe-expert-parallel-comm",))
        else:
            said.append("expert-overlap needs ep >= 2 and no full recomputation")
    return found, said
