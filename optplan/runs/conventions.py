"""Step times from whatever a table prints: throughput, TFLOP/s or MFU, by its own FLOP count."""

from __future__ import annotations

from optplan.models.cost.compute import block_operators, head_operator
from optplan.models.spec.workload import Workload
from optplan.runs.table import Run


def printed_flops(run: Run, workload: Workload, again: bool) -> float:
    """
    FLOP of one sequence as the source of a run counts them, forward and backward.

    Every matrix product of blocks and head counts three times its forward pass, or the blocks four
    times with what is recomputed. All sources but Megatron-Bridge count the whole square of the
    scores; Megatron-Bridge counts the half that causal attention computes.

    Parameters
    ----------
    again
        Whether recomputation counts (hardware TFLOP/s).
    """
    full = workload.model_copy(update={"flash_attention": False})
    counted = workload if "bridge" in run.framework.lower() else full
    shape = counted.architecture
    dense = shape.experts.leading_dense if shape.experts else 0
    kinds = ((False, dense), (True, shape.layers - dense))
    if shape.experts is None:
        kinds = ((False, shape.layers), (True, 0))
    blocks = sum(
        count * sum(o.flops for o in block_operators(counted, moe)) for moe, count in kinds
    )
    return (4.0 if again else 3.0) * blocks + 3.0 * head_operator(counted).flops


def measured_step_seconds(
    run: Run, workload: Workload, global_batch: int, peak: float
) -> tuple[float | None, str]:
    """
    Step time of a run and the column it is from; None where none tells.

    Parameters
    ----------
    peak
        FLOP/s of a device that the source's MFU refers to.
    """
    if run.step_time_s is not None:
        return run.step_time_s, "step_time_s"
    devices = run.num_devices or 1
    if run.tokens_per_s_per_device is not None:
        rate = run.tokens_per_s_per_device * devices
        return global_batch * workload.sequence_length / rate, "tokens_per_s_per_device"
    again = run.recompute == "full"
    for column, value, counts in (
        ("model_tflops_per_device", run.model_tflops_per_device, False),
        ("hw_tflops_per_device", run.hw_tflops_per_device, again),
    ):
        if value is not None:
            flops = printed_flops(run, workload, counts) * global_batch
            return flops / (value * 1e12 * devices), column
    if run.mfu is not None:
        flops = printed_flops(run, workload, False) * global_batch
        return flops / (run.mfu * peak * devices), "mfu"
    return None, ""
