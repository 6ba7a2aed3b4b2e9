"""Megatron-LM and Megatron Core: scripts around ``pretrain_gpt.py``, argument lists and logs."""

from __future__ import annotations

import re
from collections.abc import Mapping

from optplan.launches.launch import Launch, Stated, Value
from optplan.launches.logs import entries, looks_like_log, measured
from optplan.launches.megatron_amend import amended
from optplan.launches.megatron_job import Groups, Job, Option
from optplan.launches.megatron_network import number_options, shape_options
from optplan.launches.megatron_options import SIGNS, Options, read_options
from optplan.launches.megatron_overlap import connections, overlap_of
from optplan.launches.megatron_reading import Layout
from optplan.launches.megatron_shape import read_shape
from optplan.launches.megatron_writing import job_of, overlap_options, plan_options
from optplan.launches.reading import Reading
from optplan.launches.script import Draft, render
from optplan.models.errors import Fault, InputError
from optplan.models.spec.plan import Plan
from optplan.models.spec.problem import Problem


class Megatron:
    """Reads, writes and amends launches of Megatron."""

    name = "megatron-core"

    def recognises(self, text: str) -> bool:
        """Tell whether a file has options of Megatron, at least two of those that it needs."""
        if looks_like_log(text):
            return sum(one.name in SIGNS for one in entries(text)) >= 2
        hits = {name for name in SIGNS if re.search(_flag_pattern(name), text)}
        return len(hits) >= 2

    def read(self, text: str) -> Launch:
        """
        Read a launch.

        Raises
        ------
        InputError
            Nothing in it launches Megatron, or a value cannot be read.
        """
        options = self.options(text)
        reading = Reading(options)
        self.shape(reading)
        layout = self.layout(reading)
        layout.read()
        overlap = overlap_of(reading, layout.vpp)
        self.surroundings(reading, layout)
        speed = measured(text) if options.kind == "log" else None
        if speed is not None:
            for name, value in (
                ("measured_step_seconds", speed.step_seconds),
                ("measured_tflops", speed.tflops),
            ):
                if value is not None:
                    reading.stated.append(
                        Stated(name=name, value=value, written=speed.written, line=speed.line)
                    )
        return reading.done(self.name, "", overlap)

    def options(self, text: str) -> Options:
        """Read options."""
        return read_options(text)

    def numbers(self, problem: Problem, job: Job) -> list[Option]:
        """Return number formats and attention."""
        return number_options(problem.workload, job)

    def shape(self, reading: Reading) -> None:
        """Read the network."""
        read_shape(reading)

    def layout(self, reading: Reading) -> Layout:
        """Return what reads the layout."""
        return Layout(reading)

    def surroundings(self, reading: Reading, layout: Layout) -> None:
        """Look at the environment."""
        connections(reading, layout.tp, layout.cp)

    def groups(self, plan: Plan, job: Job, faults: list[Fault]) -> Groups:
        """Return the options of a plan."""
        return plan_options(plan, job, faults)

    def workload(self, problem: Problem, job: Job, faults: list[Fault]) -> Groups:
        """Return the options of a workload."""
        work = problem.workload
        return shape_options(work.architecture, work, job, faults)

    def write(self, problem: Problem, plan: Plan, version: str) -> str:
        """
        Write a script that launches a plan.

        Raises
        ------
        InputError
            This version cannot launch it; names the fields and the nearest that it can.
        """
        faults: list[Fault] = []
        if problem.workload.lora is not None:
            reason = "adapters, which pretrain_gpt.py does not train"
            faults.append(Fault("", "workload.lora", reason, "export to nemo"))
        job = job_of(problem, plan, version, faults)
        groups = self.groups(plan, job, faults)
        work = self.workload(problem, job, faults)
        hidden, said = overlap_options(problem, plan, job)
        numbers = self.numbers(problem, job)
        if faults:
            raise InputError(faults)
        draft = self.draft(problem, plan, version, job)
        draft.notes += said
        model = draft.sections.setdefault("MODEL_ARGS", [])
        model += [o for some in work.values() for o in some]
        draft.sections["PARALLEL_ARGS"] = [
            o
            for name, some in groups.items()
            if name not in ("micro_batch", "global_batch", "recompute", "offload")
            for o in some
        ]
        draft.sections["TRAINING_ARGS"] = [
            *groups["micro_batch"],
            *groups["global_batch"],
            ("--seq-length", str(problem.workload.sequence_length)),
            *numbers,
            *groups["recompute"],
            *groups["offload"],
            *hidden,
            *_TRAINING,
        ]
        return render(draft, problem, plan)

    def draft(self, problem: Problem, plan: Plan, version: str, job: Job) -> Draft:
        """Begin a script."""
        fsdp = plan.zero > 1
        environment = {} if fsdp else {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}
        environment["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
        return Draft(
            framework=f"{self.name}@{version}",
            program="pretrain_gpt.py",
            home="MEGATRON_PATH",
            environment=environment,
            nodes=job.nodes,
            node=job.node,
        )

    def amend(self, text: str, changes: Mapping[str, Value]) -> str:
        """
        Return a script with some values changed, and nothing else touched.

        Raises
        ------
        InputError
            A change cannot be launched, or the text is no script.
        """
        return amended(text, self.options(text), self.read, changes, self.groups)


def _flag_pattern(name: str) -> str:
    """Match an option as people write it."""
    return "--" + name.replace("_", "[-_]") + r"(?![\w-])"


_TRAINING = (
    ("--train-iters", "$TRAIN_ITERS"),
    ("--lr", "$LEARNING_RATE"),
    ("--data-path", "$DATA_PATH"),
    ("--tokenizer-type", "$TOKENIZER_TYPE"),
    ("--tokenizer-model", "$TOKENIZER_MODEL"),
    ("--save", "$CHECKPOINT_PATH"),
    ("--load", "$CHECKPOINT_PATH"),
    ("--save-interval", "1000"),
    ("--log-interval", "1"),
    ("--log-throughput",),
)
"""What every launch needs and no plan says."""

DIALECT = Megatron()

__all__ = ["DIALECT", "Megatron"]
