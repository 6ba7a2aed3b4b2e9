"""What each rule writes into a program, as text."""

from __future__ import annotations

import pytest

from optplan.models.formulate import formulate
from optplan.models.rules.registry import rules
from tests.golden import Golden
from tests.models import samples
from tests.models.rules.triples import STRICT, launched

TINY = {
    "cluster.nodes": 2,
    "cluster.devices_per_node": 3,
    "workload.architecture.heads": 6,
    "workload.architecture.hidden": 48,
    "workload.architecture.kv_heads": 2,
    "workload.architecture.ffn": 64,
    "workload.architecture.layers": 2,
    "workload.sequence_length": 33,
    "search.global_batch": [2, 6],
}
"""Six devices on two nodes, where every rule refuses something."""

NARROW = {
    "search.cp": [1, 3],
    "search.dp": [1, 2],
    "search.zero": [0, 2],
    "search.context": "ring",
    "search.order": "data_inside",
    "search.vpp": [1, 2],
    "search.schedule": ["1f1b", "interleaved", "zb-v"],
}

PROBLEMS = (
    samples.problem(TINY, prices="paper"),
    samples.problem(
        TINY,
        NARROW,
        samples.EXPERTS,
        launched(**STRICT),
        {"cluster.host": {"memory": "1 GB", "link": "1 GB/s", "bandwidth": "1 GB/s"}},
        {"search.ep": [1, 2], "search.etp": [1, 3], "search.tp": [1, 3]},
    ),
)
"""The paper's world, and one with experts, a framework and a host."""

WIDE = ("degrees.hsdp", "degrees.zero", "pipeline.schedule", "pipeline.layers")
"""Rules that have little to say in the paper's world."""

LIMITS = ("tp * pp <= 4", "peak_memory <= 12 MB", "step_seconds <= 20 ms or zero == 1")


@pytest.mark.parametrize("name", [rule.name for rule in rules()])
def test_a_rule_writes_these_statements(name: str, golden: Golden) -> None:
    """The lines of a program that carry its name."""
    rule = next(known for known in rules() if known.name == name)
    order = reversed(PROBLEMS) if name in WIDE else PROBLEMS
    asked = next(problem for problem in order if rule.applies(problem))
    lines = str(formulate(asked).program).splitlines()
    own = [line for line in lines if line.startswith((f"{name}:", f"{name}["))]
    assert own
    golden(f"rules/{name}", "\n".join(own) + "\n")


@pytest.mark.parametrize("name", ["paper", "canonical"])
def test_a_whole_program_reads_so(name: str, golden: Golden) -> None:
    """A table of legal tuples, a row, and definitions from three limits, among everything else."""
    changes = {"prices": "paper"} if name == "paper" else {}
    asked = samples.problem(changes, limits=LIMITS)
    golden(f"rules/program-{name}", str(formulate(asked).program))
