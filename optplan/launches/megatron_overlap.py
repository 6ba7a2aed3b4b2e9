"""Overlaps and CUDA connections in the options of Megatron."""

from __future__ import annotations

from optplan.launches.megatron_options import Options
from optplan.launches.megatron_state import ARGUMENTS
from optplan.launches.reading import Reading


def overlap_of(reading: Reading, vpp: int) -> tuple[str, ...]:
    """Return the overlaps that are switched on, and remark those that cannot work."""
    found: list[str] = []
    grads, params = reading.on("overlap_grad_reduce"), reading.on("overlap_param_gather")
    tensor = reading.on("tp_comm_overlap")
    experts = reading.on("overlap_moe_expert_parallel_comm")
    reading.on("overlap_p2p_comm", "overlap_p2p_communication")
    off = reading.on("no_overlap_p2p_communication")
    zero = next((s.value for s in reading.stated if s.name == "zero"), 0)
    split = any(s.name == "sequence_parallel" and s.value for s in reading.stated)
    if grads:
        found.append("grad-reduce-overlap")
    if params:
        found.append("param-gather-overlap")
        lacks = [
            flag
            for flag, there in (
                ("--use-distributed-optimizer", zero or _sharded(reading.options)),
                ("--overlap-grad-reduce", grads),
            )
            if not there
        ]
        if lacks:
            reading.remark(
                "megatron.overlap",
                "error",
                f"--overlap-param-gather without {' and '.join(lacks)}; Megatron refuses it "
                f"({ARGUMENTS})",
                f"add {' '.join(lacks)}",
                params,
            )
    if tensor:
        found.append("tp-overlap")
        if not split:
            reading.remark(
                "megatron.overlap",
                "error",
                f"--tp-comm-overlap without sequence parallelism; Megatron refuses it "
                f"({ARGUMENTS})",
                "add --sequence-parallel at a tensor degree of 2 or more",
                tensor,
            )
    if vpp > 1 and not off:
        found.append("p2p-overlap")
    if experts:
        found.append("expert-overlap")
    return tuple(found)


def _sharded(options: Options) -> bool:
    """Tell whether the distributed optimizer is asked for, whatever it comes to."""
    return options.has("use_distributed_optimizer", "use_megatron_fsdp", "use_custom_fsdp")


def connections(reading: Reading, tp: int, cp: int) -> None:
    """Remark the number of CUDA connections where the launch would stop, or wait, for it."""
    if reading.options.kind != "script":
        return
    given = reading.options.environment.get("CUDA_DEVICE_MAX_CONNECTIONS")
    fsdp = reading.options.has("use_megatron_fsdp", "use_custom_fsdp", "use_torch_fsdp2")
    line = given.line if given is not None else 0
    if given is not None and given.unknown:
        return
    if fsdp and given is not None and given.text == "1":
        reading.remark(
            "megatron.connections",
            "error",
            f"CUDA_DEVICE_MAX_CONNECTIONS=1 with FSDP; Megatron refuses it ({ARGUMENTS})",
            "export CUDA_DEVICE_MAX_CONNECTIONS=8",
            line,
        )
    elif not fsdp and (tp > 1 or cp > 1) and (given is None or given.text != "1"):
        experts = reading.options.has("overlap_moe_expert_parallel_comm")
        said = "is not set" if given is None else f"is {given.text}"
        reading.remark(
            "megatron.connections",
            "warning" if experts else "error",
            f"CUDA_DEVICE_MAX_CONNECTIONS {said} at tp {tp}, cp {cp}; before Blackwell Megatron "
            f"refuses anything but 1 there ({ARGUMENTS})",
            "export CUDA_DEVICE_MAX_CONNECTIONS=1",
            line,
        )
