"""What a launch of Accelerate says of how data ranks share and of its batches."""

from __future__ import annotations

from dataclasses import dataclass, field

from optplan.launches.commands import Start
from optplan.launches.documents import Entry, Page
from optplan.launches.notes import Notes

STRATEGIES = {
    "FULL_SHARD": (3, False),
    "SHARD_GRAD_OP": (2, False),
    "NO_SHARD": (0, False),
    "HYBRID_SHARD": (3, True),
    "HYBRID_SHARD_ZERO2": (2, True),
}
"""ZeRO stage and whether sharding stays inside of nodes, by ``fsdp_sharding_strategy``."""

NUMBERED = {str(n): word for n, word in enumerate(STRATEGIES, 1)}
"""The same by number, as configurations of old write it (accelerate/utils/constants.py)."""

MICRO = ("per_device_train_batch_size", "train_batch_size", "micro_batch_size", "batch_size")
LENGTH = (
    "block_size",
    "max_seq_length",
    "max_length",
    "model_max_length",
    "cutoff_len",
    "seq_length",
    "max_seq_len",
)
GLOBAL = ("global_batch_size", "total_batch_size")


@dataclass
class Job:
    """
    A launch while it is read.

    Parameters
    ----------
    keys
        Entries of the configuration and options of the launcher.
    groups
        The group of the configuration that a key stands in.
    arguments
        What the training script is given.
    """

    version: str = ""
    keys: dict[str, Entry] = field(default_factory=dict)
    groups: dict[str, str] = field(default_factory=dict)
    arguments: dict[str, Entry] = field(default_factory=dict)
    page: Page | None = None
    config: Page | None = None
    start: Start | None = None
    taken: set[str] = field(default_factory=set)
    arguments_taken: set[str] = field(default_factory=set)
    kind: str = "NO"
    world: int | None = None
    dp: int | None = None

    def take(self, path: str) -> Entry | None:
        """Return a key, which is then read; one without a value is none."""
        self.taken.add(path)
        entry = self.keys.get(path)
        return entry if entry is not None and entry.value is not None else None

    def argument(self, path: str) -> Entry | None:
        """Return an argument of the training script, which is then read."""
        self.arguments_taken.add(path)
        return self.arguments.get(path)

    def left(self) -> list[str]:
        """Return what nobody asked for."""
        some = [path for path in self.keys if path not in self.taken]
        return some + [f"--{path}" for path in self.arguments if path not in self.arguments_taken]


def sharding(notes: Notes, job: Job) -> None:
    """State degrees, ZeRO stage, offload and recomputation."""
    degrees = _degrees(notes, job)
    again = job.argument("gradient_checkpointing")
    by_script = bool(again and notes.flag(again))
    if job.kind == "FSDP":
        _fsdp(notes, job, degrees, again if by_script else None)
        return
    if job.kind == "DEEPSPEED":
        _deepspeed(notes, job)
    elif job.kind in ("MULTI_GPU", "NO", "MULTI_NPU"):
        notes.assume("zero", 0, f"distributed_type {job.kind} shards nothing")
    notes.assume("hsdp", False, f"distributed_type {job.kind}")
    if by_script and again is not None:
        notes.state("recompute", "full", again, literal=False)
    else:
        notes.assume("recompute", "none", "unless gradient_checkpointing is set")


def _degrees(notes: Notes, job: Job) -> dict[str, int | None]:
    """State the degrees of a mesh, and data ranks."""
    found: dict[str, int | None] = {}
    for ours, name in (
        ("tp", "tp_size"),
        ("cp", "cp_size"),
        ("copies", "dp_replicate_size"),
        ("shards", "dp_shard_size"),
        ("sp", "sp_size"),
    ):
        entry = job.take(f"parallelism_config_{name}")
        value = notes.whole(entry) if entry else None
        found[ours] = value
        if ours in ("tp", "cp"):
            if entry is not None:
                notes.state(ours, value, entry)
            else:
                notes.assume(ours, 1, f"{name} is 1 unless set")
    for switch in ("use_parallelism_config", "parallelism_config_cp_comm_strategy"):
        job.taken.add(switch)
    tp, cp = found["tp"] or 1, found["cp"] or 1
    anchor = next(
        (
            e
            for n in ("dp_shard_size", "dp_replicate_size")
            if (e := job.keys.get(f"parallelism_config_{n}"))
        ),
        job.keys.get("num_processes"),
    )
    mesh = tp * cp * (found["copies"] or 1) * (found["shards"] or 1) * (found["sp"] or 1)
    if job.world and mesh > 1 and mesh != job.world:
        notes.remark(
            "accelerate.mesh",
            "error",
            anchor.line if anchor else 0,
            f"sizes of parallelism_config multiply to {mesh}, num_processes is {job.world}",
            "make them equal",
        )
    if job.world and job.world % (tp * cp) == 0:
        job.dp = job.world // (tp * cp)
    elif found["shards"] or found["copies"]:
        job.dp = (found["shards"] or 1) * (found["copies"] or 1)
    if job.dp and anchor is not None:
        notes.state("dp", job.dp, anchor, literal=tp * cp == 1 and anchor.value == job.dp)
    if (found["copies"] or 1) > 1 and (found["shards"] or 1) == 1 and tp * cp > 1:
        notes.remark(
            "accelerate.replicate-alone",
            "error",
            anchor.line if anchor else 0,
            f"dp_replicate_size {found['copies']} without shards beside tp {tp} and cp {cp}",
            "write dp_shard_size above 1",
        )
    return found


def _fsdp(notes: Notes, job: Job, degrees: dict[str, int | None], again: Entry | None) -> None:
    """State what FSDP does."""
    version = job.take("fsdp_version")
    second = notes.whole(version) == 2
    strategy, reshard = job.take("fsdp_sharding_strategy"), job.take("fsdp_reshard_after_forward")
    copies = (degrees["copies"] or 1) > 1
    if second:
        _second(notes, strategy, reshard, copies, version)
    else:
        _first(notes, job, strategy or reshard)
    offload = job.take("fsdp_offload_params")
    on = notes.flag(offload)
    if offload is not None:
        notes.state("offload", on, offload)
    wrapped = job.take("fsdp_activation_checkpointing")
    full = bool(wrapped and notes.flag(wrapped))
    source = wrapped if full or again is None else again
    if source is not None:
        notes.state("recompute", "full" if full or again else "none", source, literal=False)
    else:
        notes.assume("recompute", "none", "fsdp_activation_checkpointing is false unless set")
    if full and again is not None:
        notes.remark(
            "accelerate.checkpointing-twice",
            "error",
            again.line,
            "fsdp_activation_checkpointing and gradient_checkpointing both recompute: the Trainer "
            "of transformers refuses it, other scripts recompute twice",
            "leave gradient_checkpointing out",
        )
    if (degrees["cp"] or 1) > 1 and not second:
        notes.remark(
            "accelerate.context-needs-fsdp2",
            "error",
            version.line if version else 0,
            f"cp_size {degrees['cp']} needs FSDP2",
            "write fsdp_version: 2",
        )
    ram, sync = job.take("fsdp_cpu_ram_efficient_loading"), job.take("fsdp_sync_module_states")
    if ram and sync and notes.flag(ram) and notes.flag(sync) is False:
        notes.remark(
            "accelerate.loading",
            "error",
            sync.line,
            "fsdp_cpu_ram_efficient_loading without fsdp_sync_module_states is refused",
            "write fsdp_sync_module_states: true",
        )


def _second(
    notes: Notes, strategy: Entry | None, reshard: Entry | None, copies: bool, version: Entry | None
) -> None:
    """State ZeRO stage and copies under FSDP2."""
    anchor = reshard or version
    keeps = notes.flag(reshard) is False if reshard else False
    if strategy is not None:
        notes.remark(
            "accelerate.strategy-ignored",
            "warning",
            strategy.line,
            "fsdp_sharding_strategy means nothing to fsdp_version 2",
            "write fsdp_reshard_after_forward: true for FULL_SHARD, false for SHARD_GRAD_OP",
        )
    if reshard is not None:
        notes.state("zero", 2 if keeps else 3, reshard, literal=False)
    else:
        notes.assume("zero", 3, "fsdp_reshard_after_forward is true unless set")
    if anchor is not None:
        notes.state("hsdp", copies, anchor, literal=False)


def _first(notes: Notes, job: Job, strategy: Entry | None) -> None:
    """State ZeRO stage and copies under FSDP 1."""
    if strategy is None:
        notes.assume("zero", 3, "fsdp_sharding_strategy is FULL_SHARD unless set")
        notes.assume("hsdp", False, "fsdp_sharding_strategy is FULL_SHARD unless set")
        return
    said = NUMBERED.get(str(strategy.value), strategy.value)
    plain = Entry(strategy.path, said, strategy.written, strategy.line, strategy.span)
    word = notes.word(plain, STRATEGIES)
    if word is None:
        return
    zero, copies = STRATEGIES[word]
    notes.state("zero", zero, strategy, literal=False)
    notes.state("hsdp", copies, strategy, literal=False)
    nodes = job.keys.get("num_machines")
    if copies and (nodes is None or str(nodes.value) == "1"):
        notes.remark(
            "accelerate.hybrid-on-one-node",
            "warning",
            strategy.line,
            f"{word} on one machine copies nothing",
            f"write {'FULL_SHARD' if zero == 3 else 'SHARD_GRAD_OP'}",
        )


def _deepspeed(notes: Notes, job: Job) -> None:
    """State what DeepSpeed does under Accelerate."""
    entry = job.take("zero_stage")
    stage = notes.whole(entry, least=0)
    if entry is not None:
        notes.state("zero", stage, entry)
    else:
        notes.assume("zero", 2, "zero_stage is 2 unless set")
    offload = job.take("offload_optimizer_device")
    word = notes.word(offload, ("none", "cpu", "nvme"))
    if offload is not None and word:
        notes.state("offload", word != "none", offload, literal=False)


def batches(notes: Notes, job: Job) -> None:
    """State micro-batch, accumulation, global batch and sequence."""
    micro = next((e for n in MICRO if (e := job.argument(n))), None)
    size = notes.whole(micro) if micro else None
    if micro is not None:
        notes.state("micro_batch", size, micro)
    elif job.start is not None:
        size = 8
        notes.assume("micro_batch", 8, "per_device_train_batch_size of transformers is 8")
    given = job.argument("gradient_accumulation_steps")
    inside = job.take("gradient_accumulation_steps")
    if inside is not None and str(inside.value) == "auto":
        inside = None
    entry = given or inside
    steps = notes.whole(entry) if entry else None
    if given and inside and notes.whole(inside) != steps:
        notes.remark(
            "accelerate.accumulation",
            "error",
            given.line,
            f"{given.written} for the script, {inside.written} in the configuration",
            "make them equal, or write auto in the configuration",
        )
    if entry is not None:
        notes.state("micro_batches", steps, entry)
    elif job.start is not None:
        steps = 1
        notes.assume("micro_batches", 1, "gradient_accumulation_steps is 1 unless set")
    total = next((e for n in GLOBAL if (e := job.argument(n))), None)
    asked = notes.whole(total) if total else None
    if size and steps and job.dp:
        whole = size * steps * job.dp
        anchor = total or micro or entry or Entry("", None, "micro-batch x steps x data ranks", 0)
        if asked is not None and asked != whole:
            _wrong_batch(notes, total or anchor, asked, size, steps, job.dp)
        notes.state("global_batch", whole, anchor, literal=anchor is total and asked == whole)
    elif total is not None:
        notes.state("global_batch", asked, total)
    length = next((e for n in LENGTH if (e := job.argument(n))), None)
    if length is not None:
        notes.state("sequence_length", notes.whole(length), length)


def _wrong_batch(notes: Notes, entry: Entry, asked: int, size: int, steps: int, dp: int) -> None:
    """Say that a global batch does not come out, and which near ones do (OpenRLHF issue 346)."""
    unit = size * dp
    near = asked // unit * unit
    legal = f"{near} or {near + unit}" if near else f"{unit}"
    notes.remark(
        "accelerate.global-batch",
        "error",
        entry.line,
        f"{entry.written}, but {size} a device x {steps} accumulation steps x {dp} data ranks = "
        f"{size * steps * dp}",
        f"write {legal} with gradient_accumulation_steps {max(1, near // unit)} or "
        f"{near // unit + 1}",
    )
