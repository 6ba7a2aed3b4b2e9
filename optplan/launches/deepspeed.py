"""Megatron-DeepSpeed: scripts with Megatron's options, and DeepSpeed's JSON in or beside them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from optplan.launches import deepspeed_text
from optplan.launches.amend import amended
from optplan.launches.commands import flags, machines, page_of, starts
from optplan.launches.deepspeed_amend import insert, keys_for, literal
from optplan.launches.deepspeed_shape import network, precision
from optplan.launches.deepspeed_steps import Job, batches
from optplan.launches.documents import Entry, Page, json_page
from optplan.launches.launch import Launch, Value
from optplan.launches.notes import Notes
from optplan.launches.shell import read_script
from optplan.models.spec.plan import Plan
from optplan.models.spec.problem import Problem

NAME = "megatron-deepspeed"

BARE = frozenset(
    [
        "deepspeed",
        "no_pipeline_parallel",
        "sequence_parallel",
        "checkpoint_activations",
        "cpu_optimizer",
        "bf16",
        "fp16",
        "deepspeed_activation_checkpointing",
        "swiglu",
        "disable_bias_linear",
        "use_rotary_position_embeddings",
        "untie_embeddings_and_output_weights",
        "use_flash_attn",
        "use_flash_attn_v1",
        "use_flash_attn_v2",
        "use_flash_attn_triton",
        "use_flash_attn_builder",
        "disable_moe_token_dropping",
        "fp8_hybrid",
        "fp8_e4m3",
        "enable_expert_tensor_parallelism",
        "no_position_embedding",
        "recompute_activations",
        "enable_zbh1_pipeline",
        "create_moe_param_group",
    ]
)
"""Options that take no value, deepspeedai/Megatron-DeepSpeed, megatron/arguments.py."""

_JSON = re.compile(r'"(?:train_micro_batch_size_per_gpu|train_batch_size|zero_optimization)"\s*:')
_VERSION = re.compile(r"^# Written for megatron-deepspeed@([\d.]+):", re.MULTILINE)
_UNSET = re.compile(r"\$\{\w+\}|\$\w+")
_SIGNS = re.compile(r"--deepspeed(?:[-_]config)?\b|--zero-stage\b|--ds-sequence-parallel-size\b")
_MEGATRON = re.compile(r"--(?:num-layers|micro-batch-size|tensor-model-parallel-size)\b")


class DeepSpeed:
    """Megatron-DeepSpeed on DeepSpeed 0.10.2 and later."""

    name = NAME

    def recognises(self, text: str) -> bool:
        """Look for options or keys that only DeepSpeed has."""
        script = bool(_SIGNS.search(text)) and bool(_MEGATRON.search(text))
        return script or (text.lstrip("\ufeff \r\n\t")[:1] == "{" and bool(_JSON.search(text)))

    def read(self, text: str) -> Launch:
        """
        Read a script or a configuration.

        Raises
        ------
        InputError
            It cannot be read as one.
        """
        notes = Notes()
        job = _job(text, notes)
        sizes = machines(notes, text, job.start) if job.start else (None, None)
        if job.flags:
            network(notes, job.flag)
        _layout(notes, job, sizes)
        precision(notes, job.flag, job.own)
        job.taken |= {"--deepspeed", "--deepspeed_config", "zero_optimization.overlap_comm"}
        entry = job.json.get("zero_optimization.overlap_comm")
        hidden = ("grad-reduce-overlap",) if entry and entry.value is True else ()
        return notes.done(NAME, job.version, hidden if entry else None, job.left())

    def write(self, problem: Problem, plan: Plan, version: str) -> str:
        """
        Write a script with everything in it.

        Raises
        ------
        InputError
            Megatron-DeepSpeed cannot launch the plan.
        """
        return deepspeed_text.write(problem, plan, version)

    def amend(self, text: str, changes: Mapping[str, Value]) -> str:
        """
        Return the job with some values changed.

        Raises
        ------
        InputError
            The job cannot be read, or a value has no key of its own in it.
        """
        job = _job(text, Notes())
        entries = {f"--{name}": entry for name, entry in job.flags.items()} | job.json
        return amended(
            text,
            self.read,
            changes,
            entries,
            lambda values: keys_for(values, set(entries)),
            literal,
            lambda missing: insert(text, entries, missing),
            frozenset({"sequence_length"}),
        )


def _job(text: str, notes: Notes) -> Job:
    """Find options and configuration of a job."""
    version = _VERSION.search(text)
    job = Job(version[1] if version else "")
    if text.lstrip("\ufeff \r\n\t")[:1] == "{":
        job.page = Page(text)
        job.json = {e.path: e for e in json_page(job.page, notes.faults)}
        return job
    script = read_script(text)
    found = starts(script, lambda program: program.rsplit("/", 1)[-1].startswith("pretrain"))
    found = found or starts(script, lambda program: program.endswith(".py"), "deepspeed")
    if not found:
        notes.fault(
            Entry("", None, "", 1),
            "no job of Megatron-DeepSpeed is in this file",
            "name a script that runs pretrain_gpt.py, or a configuration of DeepSpeed",
        )
        return job
    job.start = found[-1]
    job.flags = {entry.path: entry for entry in flags(job.start.arguments, BARE)}
    named = job.flags.get("deepspeed_config")
    if named is None:
        return job
    page = page_of(script, str(named.value))
    if page is None:
        notes.remark(
            "deepspeed.file-apart",
            "warning",
            named.line,
            f"the configuration {named.value} is not in this script",
            "name that file too, to compare both",
        )
        return job
    # A variable that nobody sets stands for a value that is not known.
    plain = _UNSET.sub(lambda m: "null".ljust(len(m[0]))[: max(4, len(m[0]))], page.text)
    job.page = replace(page, text=plain) if len(plain) == len(page.text) else page
    job.json = {entry.path: entry for entry in json_page(job.page, notes.faults)}
    return job


def _layout(notes: Notes, job: Job, sizes: tuple[int | None, int | None]) -> None:
    """State degrees, ZeRO stage, recomputation and batches."""
    degrees: dict[str, int] = {}
    for ours, name in (
        ("tp", "tensor_model_parallel_size"),
        ("pp", "pipeline_model_parallel_size"),
        ("cp", "ds_sequence_parallel_size"),
    ):
        entry = job.flag(name)
        degrees[ours] = notes.whole(entry) or 1
        if entry is not None:
            notes.state(ours, degrees[ours], entry)
        elif job.flags:
            notes.assume(ours, 1, f"--{name.replace('_', '-')} is 1 unless given")
    world = sizes[0] * sizes[1] if sizes[0] and sizes[1] else None
    product = degrees["tp"] * degrees["pp"] * degrees["cp"]
    dp = None
    if world is not None and world % product == 0:
        dp = world // product
        anchor = job.flags.get("tensor_model_parallel_size") or Entry("", None, "devices left", 0)
        notes.state("dp", dp, replace(anchor, written="the devices left"), literal=False)
    elif world is not None:
        notes.remark(
            "deepspeed.world",
            "error",
            0,
            f"{world} devices are no multiple of tp {degrees['tp']} x pp {degrees['pp']} x cp "
            f"{degrees['cp']} = {product}",
            "change a degree or the number of devices",
        )
    off = job.flag("no_pipeline_parallel")
    if off is not None and degrees["pp"] > 1:
        notes.remark(
            "deepspeed.no-pipeline",
            "error",
            off.line,
            f"--no-pipeline-parallel with pipeline-model-parallel-size {degrees['pp']} is refused",
            "leave one of them out",
        )
    split = job.flag("sequence_parallel")
    notes.state("sequence_parallel", degrees["tp"] > 1, split, literal=False) if split else None
    if split is not None and degrees["cp"] > 1:
        notes.remark(
            "deepspeed.two-sequence-splits",
            "error",
            split.line,
            "--sequence-parallel cannot be combined with --ds-sequence-parallel-size",
            "keep one of them",
        )
    if split is None:
        notes.assume("sequence_parallel", False, "no --sequence-parallel")
    notes.assume("context", "ulysses", "DeepSpeed Ulysses, its only way to split sequences")
    notes.assume("order", "data_inside", "pipeline ranks lie outside of data ranks")
    notes.assume("schedule", "1f1b", "DeepSpeed's TrainSchedule")
    if job.flag("enable_zbh1_pipeline"):
        notes.state("schedule", "zb-h1", job.flags["enable_zbh1_pipeline"], literal=False)
    _experts(notes, job, degrees["tp"])
    _zero(notes, job, degrees["pp"])
    _recompute(notes, job, degrees["pp"])
    notes.even_stages(degrees["pp"])
    batches(notes, job, dp)


def _experts(notes: Notes, job: Job, tp: int) -> None:
    """State how experts are split."""
    ep, own = job.flag("moe_expert_parallel_size"), job.flag("enable_expert_tensor_parallelism")
    if ep is not None:
        notes.state("ep", notes.whole(ep), ep)
    if own is not None:
        notes.state("etp", tp, own, literal=False)
    else:
        notes.assume("etp", 1, "no --enable-expert-tensor-parallelism")


def _zero(notes: Notes, job: Job, pp: int) -> None:
    """State the ZeRO stage; options and configuration must agree, and the pipeline bear it."""
    flag, own = job.flag("zero_stage"), job.own("zero_optimization.stage")
    stage, other = notes.whole(own, least=0), notes.whole(flag, least=0)
    entry = own or flag
    found = stage if own else other
    if entry is not None:
        notes.state("zero", found, entry)
    else:
        notes.assume("zero", 0, "neither zero_optimization.stage nor --zero-stage")
    if stage is not None and other is not None and stage != other:
        assert flag is not None
        notes.remark(
            "deepspeed.zero-stage",
            "error",
            flag.line,
            f"--zero-stage {other}, but zero_optimization.stage {stage} in the JSON, which "
            "DeepSpeed follows",
            f"write --zero-stage {stage}, or stage {other}",
        )
    if found is not None and found > 1 and pp > 1:
        assert entry is not None
        notes.remark(
            "deepspeed.zero-with-pipeline",
            "error",
            entry.line,
            f"zero {found} at pp {pp}: PipelineEngine refuses ZeRO-2 and ZeRO-3",
            "write stage 1, or pp 1 with --no-pipeline-parallel",
        )
    device, old = (
        job.own("zero_optimization.offload_optimizer.device"),
        job.own("zero_optimization.cpu_offload"),
    )
    job.taken |= {p for p in job.json if p.startswith("zero_optimization.offload_")}
    switch = job.flag("cpu_optimizer")
    inside = bool(device and device.value in ("cpu", "nvme")) or bool(old and old.value is True)
    anchor = device or old or switch
    if anchor is not None:
        notes.state(
            "offload", inside or (switch is not None and not job.json), anchor, literal=False
        )
    else:
        notes.assume("offload", False, "no offload_optimizer")
    if switch is not None and job.json and not inside:
        notes.remark(
            "deepspeed.cpu-optimizer",
            "warning",
            switch.line,
            "--cpu-optimizer without offload_optimizer in the JSON leaves the states where "
            "they are",
            'add "offload_optimizer": {"device": "cpu"}',
        )


def _recompute(notes: Notes, job: Job, pp: int) -> None:
    """State what is recomputed."""
    plain, own = job.flag("checkpoint_activations"), job.flag("deepspeed_activation_checkpointing")
    kind, short = job.flag("recompute_granularity"), job.flag("recompute_activations")
    word = notes.word(kind, ("full", "selective")) if kind else None
    if plain is not None:
        notes.state("recompute", "full", plain, literal=False)
    elif word is not None and kind is not None:
        notes.state("recompute", word, kind)
    elif short is not None:
        notes.state("recompute", "selective", short, literal=False)
    else:
        notes.assume("recompute", "none", "no --checkpoint-activations")
    if own is not None and plain is None:
        notes.remark(
            "deepspeed.checkpointing-off",
            "warning",
            own.line,
            "--deepspeed-activation-checkpointing alone recomputes nothing",
            "add --checkpoint-activations",
        )
    if pp > 1 and plain is not None and own is None:
        notes.remark(
            "deepspeed.checkpointing-in-pipeline",
            "warning",
            plain.line,
            "the pipeline recomputes by DeepSpeed's own means, which nothing switches on",
            "add --deepspeed-activation-checkpointing",
        )
    for path in job.json:
        if path.startswith("activation_checkpointing."):
            job.taken.add(path)


DIALECT = DeepSpeed()
