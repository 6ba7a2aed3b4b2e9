"""A bash script from options: what cannot be known on top, then the machine, then the options."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from optplan.models.spec.plan import Plan
from optplan.models.spec.problem import Problem

ASKED = {
    "DATA_PATH": "set it to the prefix of the training data, as preprocess_data.py wrote it",
    "TOKENIZER_TYPE": "set it to the kind of tokenizer, such as HuggingFaceTokenizer",
    "TOKENIZER_MODEL": "set it to the file or folder of the tokenizer",
    "CHECKPOINT_PATH": "set it to a folder for checkpoints",
    "TRAIN_ITERS": "set it to the number of optimizer steps",
    "LEARNING_RATE": "set it, such as 3e-4",
}
"""What no plan knows: variables that stop the script while they are empty, with what they hold."""

_SAFE = re.compile(r"[\w@%+=:,./-]+", re.ASCII)


@dataclass
class Draft:
    """
    A script on the way.

    Parameters
    ----------
    framework
        Name and version.
    program
        What torchrun starts, below ``home``.
    home
        Variable that holds the folder of the framework.
    environment
        Variables to export.
    nodes, node
        Nodes, and devices of each.
    sections
        Lists of options by the name of their array.
    notes
        Remarks for whoever reads the script.
    asked
        Variables that stop the script while they are empty, with what they hold.
    """

    framework: str
    program: str
    home: str
    environment: dict[str, str]
    nodes: int
    node: int
    sections: dict[str, list[tuple[str, ...]]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    asked: dict[str, str] = field(default_factory=lambda: dict(ASKED))


def render(draft: Draft, problem: Problem, plan: Plan) -> str:
    """Write a script."""
    work, cluster = problem.workload, problem.cluster
    name = _comment(work.architecture.name)
    device = _comment(cluster.accelerator.name)
    lines = [
        "#!/bin/bash",
        f"# {name} on {plan.devices} x {device}, for {draft.framework}. Written by optplan export.",
        f"# tp {plan.tp} pp {plan.pp} dp {plan.dp} cp {plan.cp} ep {plan.ep} etp {plan.etp}, "
        f"micro-batch {plan.micro_batch} x {plan.micro_batches}",
    ]
    lines += [f"# {_comment(note)}" for note in draft.notes]
    lines += ["set -euo pipefail", "", "# What no plan knows. Set these here or outside."]
    asked = {draft.home: f"set it to the folder of {draft.program}", **draft.asked}
    lines += [f'{name}="${{{name}:?{what}}}"' for name, what in asked.items()]
    lines += ["", "# Where the job runs; on each node, NODE_RANK counts from 0."]
    if draft.nodes > 1:
        lines.append('MASTER_ADDR="${MASTER_ADDR:?set it to the address of the first node}"')
        lines.append('NODE_RANK="${NODE_RANK:?set it to the number of this node}"')
    else:
        lines.append('MASTER_ADDR="${MASTER_ADDR:-localhost}"')
        lines.append('NODE_RANK="${NODE_RANK:-0}"')
    lines.append('MASTER_PORT="${MASTER_PORT:-6000}"')
    lines.append("")
    lines += [f"export {key}={value}" for key, value in draft.environment.items()]
    machine: list[tuple[str, ...]] = [
        ("--nproc_per_node", str(draft.node)),
        ("--nnodes", str(draft.nodes)),
        ("--node_rank", "$NODE_RANK"),
        ("--master_addr", "$MASTER_ADDR"),
        ("--master_port", "$MASTER_PORT"),
    ]
    sections = {"DISTRIBUTED_ARGS": machine, **draft.sections}
    for section, options in sections.items():
        lines += ["", f"{section}=("]
        lines += [f"    {' '.join(map(quoted, option))}" for option in options]
        lines.append(")")
    lines += ["", f'torchrun "${{DISTRIBUTED_ARGS[@]}}" "${draft.home}/{draft.program}" \\']
    names = list(draft.sections)
    lines += [f'    "${{{one}[@]}}"' + (" \\" if one != names[-1] else "") for one in names]
    return "\n".join(lines) + "\n"


def quoted(word: str) -> str:
    """Quote a word for the shell, variables left open."""
    if re.fullmatch(r"\$[A-Z_]+", word):
        return f'"{word}"'
    if _SAFE.fullmatch(word):
        return word
    return "'" + word.replace("'", "'\\''") + "'"


def joined(option: Sequence[str], quote: bool = True) -> str:
    """Write one option on a line."""
    return " ".join(map(quoted, option)) if quote else " ".join(option)


def _comment(text: str) -> str:
    """Keep a text on its line."""
    return "".join(c if c.isprintable() else " " for c in text)
