"""torchtitan: TOML job files, scripts that start them, and modules of configurations."""

from __future__ import annotations

import re
from collections.abc import Mapping

from optplan.launches import torchtitan_text
from optplan.launches.amend import amended
from optplan.launches.commands import Start, flags, machines, page_of, starts
from optplan.launches.documents import Entry, Page, toml
from optplan.launches.launch import Launch, Value
from optplan.launches.notes import Notes
from optplan.launches.shell import Script, Word, read_script
from optplan.launches.torchtitan_amend import insert, keys_for, literal, resolved
from optplan.launches.torchtitan_shape import ARGUMENTS, arguments, known, values_of
from optplan.launches.torchtitan_steps import Job, batches, overlap, pipeline, recomputation, rest
from optplan.models.spec.plan import Plan
from optplan.models.spec.problem import Problem

NAME = "torchtitan"

OLD = {
    "training.batch_size": "training.local_batch_size",
    "training.data_parallel_degree": "parallelism.data_parallel_shard_degree",
    "training.data_parallel_replicate_degree": "parallelism.data_parallel_replicate_degree",
    "training.data_parallel_shard_degree": "parallelism.data_parallel_shard_degree",
    "training.tensor_parallel_degree": "parallelism.tensor_parallel_degree",
    "training.fsdp_reshard_after_forward": "parallelism.fsdp_reshard_after_forward",
    "experimental.enable_async_tensor_parallel": "parallelism.enable_async_tensor_parallel",
    "compile.enable_async_tensor_parallel": "parallelism.enable_async_tensor_parallel",
    "training.compile": "compile.enable",
} | {
    f"{section}.{key}": f"parallelism.{key}"
    for section in ("training", "experimental")
    for key in (
        "context_parallel_degree",
        "pipeline_parallel_degree",
        "pipeline_parallel_schedule",
        "pipeline_parallel_split_points",
        "pipeline_parallel_microbatches",
        "pipeline_parallel_microbatch_size",
        "pipeline_parallel_layers_per_stage",
    )
}
"""Keys that moved: configuration files of pytorch/torchtitan before 0.1, and compile's of 0.3."""

SECTIONS = {
    "TrainingConfig": "training",
    "ParallelismConfig": "parallelism",
    "CompileConfig": "compile",
}
_PYTHON = {
    **SECTIONS,
    **{name: name for name in (*ARGUMENTS, "MoEArgs")},
    "llama3_network": "llama3_network",
    "qwen3_network": "qwen3_network",
    "Trainer.Config": "",
}
_HEADER = re.compile(r"^[ \t]*\[[A-Za-z_.]+\][ \t]*(?:#.*)?$", re.MULTILINE)
_VERSION = re.compile(r"^# Written for torchtitan@([\d.]+):", re.MULTILINE)
_CALL = re.compile(r"\b(?:ParallelismConfig|TrainingConfig)\s*\(")
_MARKS = re.compile(
    r"torchtitan|data_parallel_(?:shard|replicate)_degree|^\s*flavor\s*=", re.MULTILINE
)


def _runs(program: str) -> bool:
    """Tell whether a command's program is torchtitan's trainer."""
    return "torchtitan" in program or program.rsplit("/", 1)[-1] in (
        "run_train.sh",
        "run_llama_train.sh",
        "train.py",
    )


class Torchtitan:
    """torchtitan, from before 0.1 to 0.3."""

    name = NAME

    def recognises(self, text: str) -> bool:
        """Look for torchtitan's name, or sections and keys that only it has."""
        toml_like = bool(_HEADER.search(text)) and bool(_MARKS.search(text))
        return toml_like or "torchtitan.train" in text or bool(_CALL.search(text))

    def read(self, text: str) -> Launch:
        """
        Read a job file, a script or a module.

        Raises
        ------
        InputError
            It cannot be read as one.
        """
        notes = Notes()
        job = _job(text, notes)
        sizes = machines(notes, text, job.start) if job.start else (None, None)
        _shape(notes, job)
        _data(notes, job, sizes)
        batches(notes, job)
        pipeline(notes, job)
        recomputation(notes, job)
        rest(notes, job)
        return notes.done(NAME, job.version, overlap(job), job.left())

    def write(self, problem: Problem, plan: Plan, version: str) -> str:
        """
        Write a script with everything in it.

        Raises
        ------
        InputError
            This version cannot launch the plan.
        """
        return torchtitan_text.write(problem, plan, version)

    def amend(self, text: str, changes: Mapping[str, Value]) -> str:
        """
        Return the job with some values changed.

        Raises
        ------
        InputError
            The job cannot be read, or a value has no key of its own in it.
        """
        job = _job(text, Notes())
        return amended(
            text,
            self.read,
            changes,
            job.keys,
            lambda values: resolved(job, keys_for(values)),
            literal,
            lambda missing: insert(text, job, missing),
            frozenset({"sequence_length"}),
        )


def _job(text: str, notes: Notes) -> Job:
    """Find the keys of a launch, wherever it has them."""
    version = _VERSION.search(text)
    job = Job(version[1] if version else "")
    plain = text.lstrip("\ufeff")
    script = plain.startswith("#!") or "torchrun" in text or "run_train.sh" in text
    if not script and _HEADER.search(text):
        _add(job, toml(Page(text), notes.faults))
        return job
    if not script and _CALL.search(text):
        _python(job, Page(text), notes)
        return job
    read = read_script(text)
    found = starts(read, _runs)
    if not found:
        notes.fault(
            Entry("", None, "", 1),
            "no job of torchtitan is in this file",
            "name a TOML file, or a script that runs torchtitan.train",
        )
        return job
    job.start = _with_environment(found[-1], read)
    given = flags(job.start.arguments)
    environment = job.start.command.environment
    for entry in given:
        if entry.path in ("job.config_file", "config") or entry.path == "job.config-file":
            _open(job, read, str(entry.value), notes)
    config = environment.get("CONFIG_FILE") or read.variables.get("CONFIG_FILE")
    if config is not None and not any(e.path.startswith("job.config") for e in given):
        _open(job, read, config.text, notes)
    for inline in read.files.values():
        if inline.name.endswith(".py"):
            _python(job, Page(inline.text, inline.line, inline.at, inline.name), notes)
    _add(job, given)
    return job


def _with_environment(start: Start, script: Script) -> Start:
    """Take devices per node from ``NGPU``, as torchtitan's own run_train.sh does."""
    known: dict[str, Word] = {**script.variables, **start.command.environment}
    options = dict(start.options)
    for name, theirs in (("NGPU", "nproc_per_node"), ("NNODE", "nnodes"), ("NNODES", "nnodes")):
        word = known.get(name)
        if word is not None and not start.launcher and theirs not in options:
            options[theirs] = Entry(theirs, word.text, f"{name}={word.text}", word.line, word.span)
    return Start(
        start.launcher or ("run_train.sh" if options else ""),
        options,
        start.program,
        start.arguments,
        start.command,
    )


def _open(job: Job, script: Script, name: str, notes: Notes) -> None:
    """Read the configuration that a script names, where the script writes it itself."""
    page = page_of(script, name)
    if page is not None:
        _add(job, toml(page, notes.faults))
    elif name.endswith(".toml"):
        line = job.start.command.line if job.start else 0
        notes.remark(
            "torchtitan.file-apart",
            "warning",
            line,
            f"most of the job is in {name}, which is not in this script",
            "name that file instead, or as well",
        )


def _python(job: Job, page: Page, notes: Notes) -> None:
    """Read a module of configurations, or one that adds a flavor."""
    found = arguments(page, _PYTHON, notes.faults)
    sections = [e for e in found if e.path.partition(".")[0] in SECTIONS.values()]
    paths = [e.path for e in sections]
    if len(set(paths)) < len(paths):
        twice = next(e for e in sections if paths.count(e.path) > 1)
        notes.fault(twice, "the module holds several configurations", "keep one of them")
    for entry in found:
        if entry.path == "activation_checkpoint":
            word = "full" if "FullAC" in str(entry.value) else "selective"
            word = "none" if entry.value is None else word
            path = "activation_checkpoint.mode"
            job.keys[path] = Entry(path, word, entry.written, entry.line)
    if _CALL.search(page.text):
        job.python = True
        for call in re.finditer(r"(\w+)\.model_registry\(\s*[\"'](\w[\w.-]*)[\"']", page.text):
            module = re.search(rf"import torchtitan\.models\.(\w+) as {call[1]}\b", page.text)
            line, span = page.line_of(call.start(2)), page.span(*call.span(2))
            job.keys["model.flavor"] = Entry("model.flavor", call[2], call[0], line, span)
            name = module[1] if module else call[1]
            job.keys["model.name"] = Entry("model.name", name, call[0], line)
        if re.search(r"Float8LinearConverter", page.text):
            line = page.line_of(page.text.index("Float8LinearConverter"))
            path = "model.converters"
            job.keys[path] = Entry(path, ["float8"], "Float8LinearConverter", line)
    _add(job, [e for e in found if e.path.partition(".")[0] in SECTIONS.values()])
    job.calls += [e for e in found if e.path[:1].isupper() or "_network." in e.path]


def _add(job: Job, entries: list[Entry]) -> None:
    """Take keys in; older ones under their newer name, later ones in the place of earlier."""
    for entry in entries:
        path = entry.path.replace("-", "_")
        job.keys[OLD.get(path, path)] = entry
        job.moved[OLD.get(path, path)] = path


def _shape(notes: Notes, job: Job) -> None:
    """State the network."""
    name, flavor = job.take("model.name"), job.take("model.flavor")
    own = values_of(job.calls, notes.faults)
    if own:
        for ours, (value, entry) in own.items():
            notes.state(ours, value, entry, literal=entry.value == value)
        job.layers = own["layers"][0] if "layers" in own else None
        return
    if name is None and flavor is None:
        return
    model = str(name.value) if name else "llama3"
    anchor = flavor or name
    assert anchor is not None
    shape = known(model, str(flavor.value) if flavor else "debugmodel")
    if shape is None:
        notes.remark(
            "torchtitan.network-unknown",
            "warning",
            anchor.line,
            f"the sizes of {model} {flavor.value if flavor else 'debugmodel'} are not known here",
            "say which workload it is",
        )
        return
    for ours, value in shape.items():
        notes.state(ours, value, anchor, literal=False)
    job.layers = shape["layers"]


def _data(notes: Notes, job: Job, sizes: tuple[int | None, int | None]) -> None:
    """State degrees, and how data ranks share."""
    section = "parallelism."
    degree: dict[str, int] = {}
    for ours, key in (
        ("tp", "tensor_parallel_degree"),
        ("cp", "context_parallel_degree"),
        ("pp", "pipeline_parallel_degree"),
        ("copies", "data_parallel_replicate_degree"),
    ):
        entry = job.take(section + key)
        degree[ours] = notes.whole(entry) or 1
        if ours != "copies":
            if entry is not None:
                notes.state(ours, degree[ours], entry)
            else:
                notes.assume(ours, 1, f"{key} is 1 unless set")
    job.tp, job.cp, job.pp = degree["tp"], degree["cp"], degree["pp"]
    shard = job.take(section + "data_parallel_shard_degree")
    shards = notes.whole(shard, least=-1) if shard is not None else -1
    world = sizes[0] * sizes[1] if sizes[0] and sizes[1] else None
    rest = job.tp * job.cp * job.pp * degree["copies"]
    if shards is not None and shards < 1:
        if shard is not None and shards == 0:
            notes.fault(shard, "'0' shards", "write -1 for the devices left, or 1 for none")
        shards = None
        if world is not None and world % rest == 0:
            shards = world // rest
        elif world is not None:
            notes.remark(
                "torchtitan.world",
                "error",
                shard.line if shard else 0,
                f"{world} devices are no multiple of {rest}, the product of the other degrees",
                "change a degree or the number of devices",
            )
    elif shards is not None and world is not None and shards * rest != world:
        notes.remark(
            "torchtitan.world",
            "error",
            shard.line if shard else 0,
            f"degrees multiply to {shards * rest}, the launcher starts {world} processes",
            "write data_parallel_shard_degree = -1, or the degrees of these devices",
        )
    job.dp = shards * degree["copies"] if shards else None
    anchor = shard or Entry("", None, "data_parallel_shard_degree is -1: the devices left", 0)
    if job.dp is not None:
        notes.state("dp", job.dp, anchor, literal=degree["copies"] == 1 and anchor.value == job.dp)
    _sharing(notes, job, shards, degree["copies"], anchor)


def _sharing(notes: Notes, job: Job, shards: int | None, copies: int, anchor: Entry) -> None:
    """State the ZeRO stage and what is on the host."""
    policy = job.take("parallelism.fsdp_reshard_after_forward")
    word = notes.word(policy, ("default", "always", "never")) or "default"
    zero = 3 if word == "always" or (word == "default" and job.pp == 1) else 2
    sharded = None if shards is None else shards * job.cp > 1
    if sharded is False:
        zero = 0
    if policy is not None or shards is not None:
        notes.state("zero", zero, policy or anchor, literal=False)
    else:
        notes.assume("zero", zero, "FSDP2 over the devices left, unless there is one data rank")
    notes.state("hsdp", copies > 1 and sharded is not False, anchor, literal=False)
    if word == "default" and sharded and job.pp > 1:
        notes.remark(
            "torchtitan.reshard",
            "warning",
            policy.line if policy else 0,
            f"at pp {job.pp} the default of fsdp_reshard_after_forward keeps every stage's whole "
            "weights in memory between its passes (zero 2)",
            'write "always" where memory is short; it gathers them for each micro-batch',
        )
    if copies > 1 and sharded is False and job.tp * job.pp > 1:
        notes.remark(
            "torchtitan.ddp-alone",
            "error",
            anchor.line,
            f"data_parallel_replicate_degree {copies} without shards is DDP, which goes with no "
            f"other parallelism; tp is {job.tp}, pp {job.pp}",
            "write data_parallel_shard_degree = -1 and replicate 1",
        )
    offload = job.take("training.enable_cpu_offload")
    on = notes.flag(offload) or False
    if offload is not None:
        notes.state("offload", on, offload)
    if on and sharded is False:
        notes.remark(
            "torchtitan.offload-alone",
            "warning",
            offload.line if offload else 0,
            "enable_cpu_offload does nothing without FSDP",
            "shard over two ranks or more, or leave it out",
        )


DIALECT = Torchtitan()
