"""A Megatron-DeepSpeed job while it is read, and what it says of its batches."""

from __future__ import annotations

from dataclasses import dataclass, field

from optplan.launches.commands import Start
from optplan.launches.documents import Entry, Page
from optplan.launches.notes import Notes


@dataclass
class Job:
    """
    A job while it is read.

    Parameters
    ----------
    flags
        Options of the program, by name with underscores.
    json
        Values of DeepSpeed's configuration, by path.
    """

    version: str = ""
    flags: dict[str, Entry] = field(default_factory=dict)
    json: dict[str, Entry] = field(default_factory=dict)
    page: Page | None = None
    start: Start | None = None
    taken: set[str] = field(default_factory=set)

    def flag(self, name: str) -> Entry | None:
        """Return an option, which is then read."""
        self.taken.add(f"--{name}")
        return self.flags.get(name)

    def own(self, path: str) -> Entry | None:
        """Return a value of the configuration, which is then read; auto and null are none."""
        self.taken.add(path)
        found = self.json.get(path)
        return None if found is None or found.value in (None, "auto") else found

    def left(self) -> list[str]:
        """Return what nobody asked for."""
        every = [*(f"--{name}" for name in self.flags), *self.json]
        return [path for path in every if path not in self.taken]


def batches(notes: Notes, job: Job, dp: int | None) -> None:
    """State micro-batch, accumulation and global batch, and hold all statements to each other."""
    pairs = {
        "micro_batch": ("micro_batch_size", "train_micro_batch_size_per_gpu"),
        "global_batch": ("global_batch_size", "train_batch_size"),
    }
    known: dict[str, int] = {}
    for ours, (name, path) in pairs.items():
        flag, own = job.flag(name), job.own(path)
        one, other = notes.whole(flag), notes.whole(own)
        entry, value = (flag, one) if flag is not None else (own, other)
        if entry is not None and value is not None:
            notes.state(ours, value, entry)
            known[ours] = value
        if one is not None and other is not None and one != other:
            assert flag is not None
            notes.remark(
                f"deepspeed.{ours.replace('_', '-')}",
                "error",
                flag.line,
                f"--{name.replace('_', '-')} {one}, but {path} {other} in the configuration",
                f"write {one} in both, or {other}",
            )
    steps = job.own("gradient_accumulation_steps")
    count = notes.whole(steps)
    if steps is not None and count is not None:
        notes.state("micro_batches", count, steps)
    micro, whole = known.get("micro_batch"), known.get("global_batch")
    if whole is None and micro and dp and (count or job.flags):
        # --global-batch-size is micro-batch x data ranks unless given (megatron/arguments.py).
        notes.assume("global_batch", micro * dp * (count or 1), "micro-batch x steps x data ranks")
        return
    if not (micro and whole and dp):
        return
    unit = micro * dp
    if count is None and whole % unit == 0:
        notes.assume("micro_batches", whole // unit, "global batch / (micro-batch x data ranks)")
    elif whole != unit * (count or max(1, whole // unit)):
        _contradiction(notes, job, whole, micro, count, dp)


def _contradiction(
    notes: Notes, job: Job, whole: int, micro: int, count: int | None, dp: int
) -> None:
    """Say that a batch does not come out, and which near ones do (OpenRLHF issue 346)."""
    unit = micro * dp
    near = whole // unit * unit
    entry = job.json.get("train_batch_size") or job.flags.get("global_batch_size")
    steps = count or max(1, whole // unit)
    legal = f"{near} or {near + unit}" if near else f"{unit}"
    low = max(1, near // unit)
    notes.remark(
        "deepspeed.batch",
        "error",
        entry.line if entry else 0,
        f"train_batch_size {whole} is not micro-batch {micro} x accumulation {steps} x data ranks "
        f"{dp} = {unit * steps}; DeepSpeed asserts it",
        f"write {legal} with gradient_accumulation_steps {low} or {low + 1}"
        if whole % unit
        else f"write gradient_accumulation_steps {whole // unit}",
    )
