"""What a torchtitan job says of its batches, its pipeline and what it recomputes."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from optplan.launches.chunks import stages_of
from optplan.launches.commands import Start
from optplan.launches.documents import Entry
from optplan.launches.launch import Value
from optplan.launches.notes import Notes

SCHEDULES = {
    "1F1B": "1f1b",
    "GPipe": "gpipe",
    "Interleaved1F1B": "interleaved",
    "ZBVZeroBubble": "zb-v",
}
OTHERS = ("LoopedBFS", "InterleavedZeroBubble", "DualPipeV")
"""Schedules of torch/distributed/pipelining/schedules.py that are not modelled."""


@dataclass
class Job:
    """
    A job while it is read.

    Parameters
    ----------
    keys
        Entries by section and key, under their newest names.
    moved
        The name under which each was written.
    calls
        Arguments of a flavor of the job's own.
    """

    version: str = ""
    keys: dict[str, Entry] = field(default_factory=dict)
    moved: dict[str, str] = field(default_factory=dict)
    calls: list[Entry] = field(default_factory=list)
    start: Start | None = None
    python: bool = False
    taken: set[str] = field(default_factory=set)
    layers: Value | None = None
    tp: int = 1
    cp: int = 1
    pp: int = 1
    dp: int | None = None
    stages: tuple[int, ...] | None = None

    def take(self, path: str) -> Entry | None:
        """Return a key, which is then read."""
        self.taken.add(path)
        return self.keys.get(path)

    def left(self) -> list[str]:
        """Return the keys that nobody asked for."""
        return [self.moved.get(path, path) for path in self.keys if path not in self.taken]

    def moe(self, notes: Notes) -> bool:
        """Tell whether the network has experts."""
        return any(one.name == "experts.count" for one in notes.stated)


def batches(notes: Notes, job: Job) -> None:
    """State micro-batch, their number and the global batch."""
    local = job.take("training.local_batch_size")
    own = notes.whole(local) or 8
    if local is None:
        notes.assume("local_batch_size", 8, "local_batch_size is 8 unless set")
    total = job.take("training.global_batch_size")
    whole = notes.whole(total, least=-1) if total is not None else None
    if whole is not None and whole < 1:
        whole = None
    micro, count, anchor = own, 1, local
    if job.pp > 1:
        micro, count, anchor = _pipelined(notes, job, own, local)
    source = anchor or local or Entry("", None, "local_batch_size is 8 unless set", 0)
    notes.state("micro_batch", micro, source, literal=source.value == micro)
    step = own * job.dp if job.dp else None
    if whole is None and step is not None:
        whole = step
    if whole is None:
        return
    notes.state(
        "global_batch", whole, total or source, literal=bool(total and total.value == whole)
    )
    if step is None:
        return
    if whole % step:
        near = whole // step * step or step
        notes.remark(
            "torchtitan.global-batch",
            "error",
            total.line if total else source.line,
            f"global_batch_size {whole} is no multiple of local_batch_size {own} x {job.dp} data "
            f"ranks = {step}",
            f"write {near} or {near + step}, or another local_batch_size",
        )
        return
    again = whole // step
    notes.state("micro_batches", count * again, source, literal=False)
    if again > 1 and job.pp > 1:
        notes.remark(
            "torchtitan.pipeline-drained",
            "warning",
            total.line if total else source.line,
            f"the pipeline fills and drains {again} times a step, once for each local batch of "
            f"{own}: the bubble is paid {again} times",
            f"write local_batch_size = {own * again}",
        )


def _pipelined(
    notes: Notes, job: Job, own: int, local: Entry | None
) -> tuple[int, int, Entry | None]:
    """Return micro-batch and their number inside a local batch."""
    size = job.take("parallelism.pipeline_parallel_microbatch_size")
    number = job.take("parallelism.pipeline_parallel_microbatches")
    if number is not None and size is None:
        # Before 0.1 the number of micro-batches was given; unless set it was the stages'.
        count = notes.whole(number, least=-1) or job.pp
        count = job.pp if count < 1 else count
        return max(1, own // count), count, number
    micro = notes.whole(size) or 1
    if size is None:
        notes.assume("micro_batch", 1, "pipeline_parallel_microbatch_size is 1 unless set")
    if own % micro:
        notes.remark(
            "torchtitan.microbatch",
            "error",
            size.line if size else 0,
            f"local_batch_size {own} is no multiple of pipeline_parallel_microbatch_size {micro}",
            f"write local_batch_size = {max(1, own // micro) * micro}",
        )
    count = max(1, own // micro)
    if count < job.pp:
        notes.remark(
            "torchtitan.few-microbatches",
            "warning",
            local.line if local else 0,
            f"{count} micro-batches for {job.pp} stages leave most of them idle",
            f"write local_batch_size = {job.pp * micro} or more",
        )
    return micro, count, size or local


def pipeline(notes: Notes, job: Job) -> None:
    """State schedule, virtual stages and the layers of each stage."""
    entry = job.take("parallelism.pipeline_parallel_schedule")
    word = notes.word(entry, (*SCHEDULES, *OTHERS)) or "1F1B"
    points = job.take("parallelism.pipeline_parallel_split_points")
    parts = job.take("parallelism.module_fqns_per_model_part")
    fit = job.take("parallelism.pipeline_parallel_layers_per_stage")
    ends = [
        job.take(f"parallelism.pipeline_parallel_{end}_stage_less_layers")
        for end in ("first", "last")
    ]
    if job.pp == 1:
        if isinstance(job.layers, int):
            job.stages = (job.layers,)
            notes.assume("layers_per_stage", job.stages, "one stage")
        return
    if word in OTHERS:
        notes.remark(
            "torchtitan.schedule",
            "warning",
            entry.line if entry else 0,
            f"schedule {word} is not modelled",
            f"compare with {', '.join(SCHEDULES)}",
        )
    elif entry is not None:
        notes.state("schedule", SCHEDULES[word], entry, literal=False)
    else:
        notes.assume("schedule", "1f1b", "pipeline_parallel_schedule is 1F1B unless set")
    looped = word not in ("1F1B", "GPipe")
    folded = word in ("ZBVZeroBubble", "DualPipeV")
    weights = [notes.whole(end, least=0) if end else 1 for end in ends]
    chunks: tuple[int, ...] | None = None
    anchor: Entry | None = parts or points or fit or entry
    if parts is not None:
        chunks = _parts(notes, parts)
    elif points is not None and points.value:
        chunks = _points(notes, points, job.layers)
    elif isinstance(job.layers, int):
        each = notes.whole(fit)
        front, back = (1 if w is None else w for w in weights)
        chunks = _even(job.layers, job.pp, each, looped, front, back)
    if not chunks:
        return
    anchor = anchor or Entry("", None, "split evenly, embedding and output counted as layers", 0)
    if len(chunks) % job.pp or (not looped and len(chunks) != job.pp):
        notes.remark(
            "torchtitan.chunks",
            "error",
            anchor.line,
            f"{len(chunks)} parts for {job.pp} stages under {word}",
            f"make {job.pp * (2 if looped else 1)} parts",
        )
        return
    notes.state("vpp", len(chunks) // job.pp, anchor, literal=False)
    job.stages = stages_of(chunks, job.pp, folded)
    notes.state("layers_per_stage", job.stages, anchor, literal=False)
    if isinstance(job.layers, int) and sum(chunks) != job.layers:
        notes.remark(
            "torchtitan.layers-lost",
            "error",
            anchor.line,
            f"the parts hold {sum(chunks)} of {job.layers} layers",
            "name every layer once",
        )


def _parts(notes: Notes, entry: Entry) -> tuple[int, ...] | None:
    """Count the layers of each part that is written out."""
    value = entry.value
    if not isinstance(value, list) or not all(isinstance(part, list) for part in value):
        notes.fault(entry, "the parts are no list of lists", 'write [["tok_embeddings"], ...]')
        return None
    return tuple(sum(str(name).startswith("layers.") for name in part) for part in value)


def _points(notes: Notes, entry: Entry, layers: Value | None) -> tuple[int, ...] | None:
    """Count the layers between the points where parts begin."""
    words = entry.value if isinstance(entry.value, list) else str(entry.value).split(",")
    found = [re.fullmatch(r"layers\.(\d{1,6})", str(word).strip()) for word in words]
    if not all(found):
        notes.fault(entry, "a split point is no layer", 'write ["layers.8", "layers.16"]')
        return None
    starts = [int(m[1]) for m in found if m]
    if sorted(starts) != starts:
        notes.fault(entry, "split points do not rise", "write them in the order of the layers")
        return None
    if not isinstance(layers, int) or starts[-1] > layers:
        return None
    return tuple(b - a for a, b in zip([0, *starts], [*starts, layers], strict=True))


def _even(
    layers: int, pp: int, each: int | None, looped: bool, front: int, back: int
) -> tuple[int, ...]:
    """
    Split as torchtitan does where nothing is said.

    torchtitan/distributed/pipeline_parallel.py of package 0.2.0, generate_llm_fqn_per_model_part:
    embedding and output count as layers, the first parts take what is left over.
    """
    count = -(-(layers + front + back) // each) if each else pp * (2 if looped else 1)
    if count > 100_000:
        return ()
    base, more = divmod(layers + front + back, max(1, count))
    sizes = [base + (part < more) for part in range(count)]
    sizes[0] -= front
    sizes[-1] -= back
    return tuple(sizes) if min(sizes) >= 0 else ()


def recomputation(notes: Notes, job: Job) -> None:
    """State what is recomputed."""
    mode = job.take("activation_checkpoint.mode") or job.take("activation_checkpoint.type")
    option = job.take("activation_checkpoint.selective_ac_option")
    word = notes.word(mode, ("none", "full", "selective", "memory_budget")) or "selective"
    if word in ("none", "full"):
        assert mode is not None
        notes.state("recompute", word, mode)
        if job.stages:
            held = job.stages if word == "full" else (0,) * len(job.stages)
            notes.state("recomputed_layers_per_stage", held, mode, literal=False)
        return
    source = option or mode or Entry("", None, "selective every 2nd layer unless set", 0)
    every = str(option.value).strip() if option else ("op" if job.python else "2")
    if word == "selective" and every.isdigit() and len(every) < 6:
        nth = int(every) or 1
        notes.state("recompute", "full", source, literal=False)
        if job.stages:
            again = tuple(layers // nth for layers in job.stages)
            notes.state("recomputed_layers_per_stage", again, source, literal=False)
        return
    if word == "selective" and every != "op":
        notes.fault(
            source, f"'{every[:40]}' is no choice here", 'write "op" or every how many layers'
        )
        return
    notes.state("recompute", "selective", source, literal=False)
    notes.remark(
        "torchtitan.selective",
        "warning",
        source.line,
        "selective recomputation by operator keeps other activations than the attention's core, "
        "which is what is priced",
        "take none or full for a price that fits, or read memory with care",
    )


def rest(notes: Notes, job: Job) -> None:
    """State sequence, precision, experts and sequence parallelism."""
    length = job.take("training.seq_len")
    if length is not None:
        notes.state("sequence_length", notes.whole(length), length)
    else:
        notes.assume("sequence_length", 2048, "seq_len is 2048 unless set")
    split = job.take("parallelism.enable_sequence_parallel")
    on = notes.flag(split)
    anchor = split or job.keys.get("parallelism.tensor_parallel_degree")
    if anchor is not None:
        notes.state("sequence_parallel", job.tp > 1 and on is not False, anchor, literal=False)
    notes.assume("flash_attention", True, "PyTorch's fused attention")
    notes.assume("context", "ring", "PyTorch's context parallelism")
    notes.assume("order", "data_inside", "pipeline ranks lie outside of data ranks")
    ep, etp = (job.take(f"parallelism.expert{x}_parallel_degree") for x in ("", "_tensor"))
    degree = notes.whole(ep) or 1
    if ep is not None:
        notes.state("ep", degree, ep)
    own = notes.whole(etp)
    if etp is not None and degree > 1:
        notes.state("etp", own, etp)
    else:
        same = degree == 1 and not job.python and job.moe(notes)
        notes.assume("etp", job.tp if same else 1, "experts are split as all else at ep 1")
    _precision(notes, job)


def _precision(notes: Notes, job: Job) -> None:
    """State the number format."""
    kind = job.take("training.mixed_precision_param")
    word = notes.word(kind, ("bfloat16", "float32"))
    converters = job.take("model.converters")
    old = job.take("float8.enable_float8_linear")
    eight = notes.flag(old) or (converters is not None and "float8" in str(converters.value))
    anchor = (converters or old) if eight else kind
    if anchor is not None:
        value = "fp8" if eight else "fp32" if word == "float32" else "bf16"
        notes.state("precision", value, anchor, literal=False)
    else:
        notes.assume("precision", "bf16", "mixed_precision_param is bfloat16 unless set")


def overlap(job: Job) -> tuple[str, ...]:
    """Return what runs behind computation: FSDP2 always does."""
    found = ["grad-reduce-overlap", "param-gather-overlap"]
    entry = job.take("parallelism.enable_async_tensor_parallel")
    if entry is not None and str(entry.value).lower() == "true":
        found.append("tp-overlap")
    return tuple(found)
