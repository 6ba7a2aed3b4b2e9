"""
Spoilt launches, mended: random plans of small jobs, framework by framework.

    python -m tests.mends --count 40 [--framework megatron-core] [--seed 1]

A launch that was exported is spoilt at random: other numbers, lines lost, options that go together
with none of the others. What doctor offers in its place is then held to what it claims: neither
the nearest legal launch nor the best one has an error left, the patch makes the text, and the text
launches the plan that stands beside it.
"""

from __future__ import annotations

import argparse
import random
import re
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from optplan import catalogue
from optplan import findings as judged
from optplan.doctor import Diagnosis, doctor
from optplan.launches.dialects import dialect, known
from optplan.launches.job import prepare, with_values
from optplan.launches.launch import Launch
from optplan.models.cost.estimate import estimate
from optplan.models.errors import InputError
from optplan.models.formulate import formulate
from optplan.models.spec.plan import Plan
from optplan.models.spec.problem import Problem
from optplan.proposals import Proposal
from tests.launches.jobs import problem as small

ACCELERATORS = ("h100-sxm-80gb", "a100-sxm-80gb", "mi300x", "ascend-910b")
"""Machines that launches are examined on."""

PRICED = 0.5
"""Share of launches whose machine is named; the others are judged by structure alone."""

SECONDS = 10.0
"""Time limit of a search for the best launch."""

EXTRA: dict[str, tuple[str, ...]] = {
    "megatron-core": (
        "--sequence-parallel",
        "--overlap-param-gather",
        "--overlap-grad-reduce",
        "--use-distributed-optimizer",
        "--recompute-granularity full",
        "--recompute-granularity selective",
        "--recompute-method block --recompute-num-layers 1",
        "--num-layers-per-virtual-pipeline-stage 3",
        "--decoder-last-pipeline-num-layers 1",
        "--account-for-embedding-in-pipeline-split",
        "--tp-comm-overlap",
        "--no-overlap-p2p-communication",
        "--optimizer-cpu-offload",
        "--expert-tensor-parallel-size 3",
        "--cp-comm-type a2a",
        "--use-torch-fsdp2",
        "--defer-embedding-wgrad-compute",
        "--overlap-moe-expert-parallel-comm",
    ),
}
"""Options that are put in, by framework; others of the family take these too."""

EXTRA["mindspeed"] = EXTRA["megatron-core"]
EXTRA["megatron-deepspeed"] = (
    "--zero-stage 3",
    "--zero-stage 2",
    "--ds-sequence-parallel-size 2",
    "--sequence-parallel",
    "--no-pipeline-parallel",
    "--fp16",
    "--checkpoint-activations",
    "--use-distributed-optimizer",
)
EXTRA["nemo"] = (
    "trainer.strategy.sequence_parallel=True",
    "model.sequence_parallel=True",
    "trainer.strategy.virtual_pipeline_model_parallel_size=3",
    "model.virtual_pipeline_model_parallel_size=3",
    "model.config.recompute_granularity=full",
    "model.recompute_granularity=full",
    "ddp.overlap_param_gather=true",
    "trainer.strategy.expert_tensor_parallel_size=3",
)


def spoilt(text: str, launch: Launch, framework: str, rng: random.Random) -> str:
    """Spoil a launch in one to three places."""
    for _ in range(rng.randint(1, 3)):
        text = _spoilt(text, launch, framework, rng)
        try:
            launch = dialect(framework).read(text)
        except InputError:
            break
    return text


def _spoilt(text: str, launch: Launch, framework: str, rng: random.Random) -> str:
    """Spoil a launch in one place."""
    kind = rng.random()
    numbers = [
        one
        for one in launch.stated
        if one.span is not None and re.fullmatch(r"\d+", text[slice(*one.span)])
    ]
    stated = [one.line for one in launch.stated if one.line]
    extra = EXTRA.get(framework, ())
    if kind < 0.55 and numbers:
        one = rng.choice(numbers)
        assert one.span is not None
        old = int(text[slice(*one.span)])
        new = rng.choice((old + 1, max(1, old - 1), old * 2, old * 3, max(1, old // 2), 1, 2, 3, 7))
        return text[: one.span[0]] + str(new) + text[one.span[1] :]
    lines = text.split("\n")
    if kind < 0.7 and stated:
        row = rng.choice(stated) - 1
        return "\n".join([*lines[:row], *lines[row + 1 :]])
    exports = [i for i, line in enumerate(lines) if line.startswith("export ")]
    if kind < 0.8 and exports:
        row = rng.choice(exports)
        return "\n".join([*lines[:row], *lines[row + 1 :]])
    places = [i for i, line in enumerate(lines) if re.match(r"\s+(--|\w+\.\w)", line)]
    if extra and places:
        row = rng.choice(places)
        ended = "" if not lines[row].rstrip().endswith("\\") else " \\"
        option = rng.choice(extra)
        if not ended and row and not lines[row - 1].rstrip().endswith("\\"):
            return "\n".join([*lines[:row], f"  {option}", *lines[row:]])
        return "\n".join([*lines[:row], f"  {option} \\", *lines[row:]])
    flips = [i for i, line in enumerate(lines) if re.search(r"\b(true|false)\b", line, re.I)]
    if flips:
        row = rng.choice(flips)
        lines[row] = re.sub(
            r"\b(true|false)\b",
            lambda m: {"true": "false", "false": "true", "True": "False", "False": "True"}.get(
                m[0], m[0]
            ),
            lines[row],
            count=1,
            flags=re.I,
        )
    return "\n".join(lines)


def patched(source: str, patch: str) -> str:
    """Apply a unified diff."""
    old, new = source.splitlines(keepends=True), list[str]()
    at = 0
    for line in patch.splitlines(keepends=True)[2:]:
        head = re.match(r"@@ -(\d+)(?:,(\d+))? \+", line)
        if head:
            first = int(head[1]) - (head[2] != "0")
            new += old[at:first]
            at = first
        elif line.startswith("+"):
            new.append(line[1:])
        elif line.startswith("-"):
            assert old[at] == line[1:], "the patch takes out what is not there"
            at += 1
        else:
            assert old[at] == line[1:], "the patch keeps what is not there"
            new.append(line[1:])
            at += 1
    return "".join([*new, *old[at:]])


def faults(found: Diagnosis, framework: str, on: str) -> list[str]:
    """Hold both proposals of a diagnosis to what they claim."""
    wrong: list[str] = []
    for name, proposal in (("corrected", found.corrected), ("best", found.best)):
        if proposal is not None:
            wrong += [f"{name}: {one}" for one in _faults(found, proposal, framework, on)]
    return wrong


def _faults(found: Diagnosis, proposal: Proposal, framework: str, on: str) -> Iterator[str]:
    """Examine the text of a proposal."""
    if proposal.patch:
        try:
            made = patched(found.source, proposal.patch)
        except AssertionError as error:
            made = f"{error}"
        if made != proposal.text:
            yield "the patch does not make the text"
    elif proposal.text == found.source and proposal.changes:
        yield f"the text is as it was, though {proposal.changes} should change"
    # What the file leaves open stays open; the machine is that of the diagnosis.
    cluster = found.problem.cluster
    machine = {"nodes": cluster.nodes, "devices_per_node": cluster.devices_per_node}
    try:
        launch = with_values(dialect(framework).read(proposal.text), machine)
        again = prepare(launch, None, on, found.framework)
    except InputError as error:
        yield f"the text is refused: {error.faults[0]}"
        return
    rules, price = formulate(again.problem).rules, estimate(again.problem, again.plan)
    findings = list(judged.structural(again, rules, price))
    if again.priced and not any(one.rule == "degrees.world" for one in findings):
        findings += judged.priced(again, rules, price)
    for one in findings:
        if one.severity == "error":
            yield f"{one.rule}: {one.problem}; {one.remedy}"
    if again.plan != proposal.plan:
        yield "; ".join(
            f"{n}: {getattr(proposal.plan, n)} reads back as {getattr(again.plan, n)}"
            for n in type(again.plan).model_fields
            if getattr(again.plan, n) != getattr(proposal.plan, n)
        )


@dataclass
class Tally:
    """What came of many launches."""

    done: int = 0
    offered: Counter[str] = field(default_factory=Counter[str])
    refused: Counter[str] = field(default_factory=Counter[str])
    wrong: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """Each fault, with the text that was examined."""
    slowest: float = 0.0


SHAPES: tuple[dict[str, Any], ...] = (
    {},
    {"layers": 12, "heads": 12, "kv_heads": 4, "hidden": 768, "ffn": 2048},
    {"layers": 16, "kv_heads": 2, "tied_embeddings": True},
    {"layers": 6, "gated": False, "norm": "layernorm", "biases": "all"},
    {"layers": 32, "hidden": 4096, "heads": 32, "ffn": 14336, "vocabulary": 128256},
    {"experts": {"count": 8, "per_token": 2, "ffn": 512}},
)
"""Small networks, and one that does not fit everywhere."""


def launches(framework: str, rng: random.Random) -> Iterator[tuple[Problem, str]]:
    """Write random plans of small jobs, for ever."""
    versions = catalogue.versions(framework)
    while True:
        version, nodes = rng.choice(versions), rng.choice((1, 2, 2, 3, 4))
        shape = rng.choice(SHAPES)
        try:
            asked = small(f"{framework}@{version}", nodes, **shape)
            yield asked, dialect(framework).write(asked, _plan(asked, rng), version)
        except InputError:
            continue


def _plan(asked: Problem, rng: random.Random) -> Plan:
    """Draw a plan that fits the devices and the layers; a framework may refuse it."""
    layers, world = asked.workload.architecture.layers, asked.devices
    experts = asked.workload.architecture.experts is not None
    tp, pp = rng.choice((1, 1, 2, 4, 8)), rng.choice((1, 1, 2, 4))
    cp = rng.choice((1, 1, 1, 2))
    while world % (tp * pp * cp) or layers % pp:
        tp, pp, cp = rng.choice((1, 2, 4)), rng.choice((1, 2)), 1
    dp, micro = world // (tp * pp * cp), rng.choice((1, 1, 2, 4))
    vpp = rng.choice((1, 1, 2)) if pp > 1 and layers // pp % 2 == 0 else 1
    recompute = rng.choice(("none", "none", "selective", "full"))
    each = (layers // pp,) * pp
    count = pp * rng.choice((1, 2, 4))
    ep = rng.choice((1, 2, 4)) if experts and tp * cp * dp % 4 == 0 else 1
    values = {"tp": tp, "pp": pp, "dp": dp, "cp": cp, "vpp": vpp, "ep": ep, "etp": 1}
    values |= {"micro_batch": micro, "micro_batches": count, "global_batch": micro * count * dp}
    return Plan.model_validate(
        {
            **values,
            "schedule": "interleaved" if vpp > 1 else "1f1b",
            "sequence_parallel": tp > 1 and (experts or rng.random() < 0.6),
            "zero": rng.choice((0, 1, 1, 2, 3)) if dp * cp > 1 else 0,
            "recompute": recompute,
            "layers_per_stage": each,
            "recomputed_layers_per_stage": each if recompute == "full" else (0,) * pp,
            "context": rng.choice(("ring", "ulysses")),
        }
    )


def mended(framework: str, count: int, seed: int, priced: float = PRICED) -> Tally:
    """Spoil launches of a framework, have them mended, and look at what is offered."""
    rng = random.Random(f"{framework} {seed}")
    tally = Tally()
    speaks = dialect(framework)
    for problem, whole in launches(framework, rng):
        if tally.done >= count:
            return tally
        text = spoilt(whole, speaks.read(whole), framework, rng)
        on = rng.choice(ACCELERATORS) if rng.random() < priced else ""
        assert problem.framework is not None
        tally.done += 1
        began = time.monotonic()
        try:
            found = doctor(text + "\n", on=on, framework=problem.framework.name, time_limit=SECONDS)
        except InputError as error:
            tally.refused[error.faults[0].path or error.faults[0].problem[:40]] += 1
            continue
        tally.slowest = max(tally.slowest, time.monotonic() - began)
        broken = any(one.severity == "error" for one in found.findings)
        tally.offered["broken" if broken else "whole"] += 1
        tally.offered["corrected"] += found.corrected is not None
        tally.offered["best"] += found.best is not None
        for proposal in (found.corrected, found.best):
            anew = proposal is not None and not proposal.patch and proposal.text != found.source
            tally.offered["written anew"] += anew
        tally.wrong += [(one, f"{on}\n{text}") for one in faults(found, framework, on)]
    return tally


def main() -> None:
    """Try every framework."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--framework", default="")
    parser.add_argument("--show", action="store_true", help="print the launch of every fault")
    asked = parser.parse_args()
    failed = False
    for name in [asked.framework] if asked.framework else list(known()):
        tally = mended(name, asked.count, asked.seed)
        said = ", ".join(f"{what} {n}" for what, n in tally.offered.items())
        refused = ", ".join(f"{what} {n}" for what, n in tally.refused.most_common(5))
        print(
            f"{name}: {tally.done} launches ({said}; refused: {refused or 'none'}), "
            f"{len(tally.wrong)} faults, slowest {tally.slowest:.1f} s",
            flush=True,
        )
        for one, text in tally.wrong:
            print(f"  {one}")
            if asked.show:
                print(text)
        failed = failed or bool(tally.wrong)
    raise SystemExit(failed)


if __name__ == "__main__":
    main()
