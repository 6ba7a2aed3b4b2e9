"""What each rule writes into a program, as text."""

from __future__ import annotations

import pytest

from optplan.models.formulate import formulate
from optplan.models.rules.registry import rules
from tests.golden import Golden
from tests.models import samples

TINY = samples.problem(
    {
        "cluster.nodes": 2,
        "cluster.devices_per_node": 3,
        "workload.architecture.heads": 6,
        "workload.architecture.hidden": 48,
        "workload.architecture.kv_heads": 2,
        "workload.architecture.ffn": 64,
        "workload.architecture.layers": 2,
        "workload.sequence_length": 33,
        "search.global_batch": [2, 6],
        "prices": "paper",
    }
)
"""Six devices on two nodes, where every rule refuses something."""

LIMITS = ("tp * pp <= 4", "peak_memory <= 12 MB", "step_seconds <= 20 ms or zero == 1")


@pytest.mark.parametrize("name", [rule.name for rule in rules()])
def test_a_rule_writes_these_statements(name: str, golden: Golden) -> None:
    """The lines of the program that carry its name."""
    lines = str(formulate(TINY).program).splitlines()
    own = [line for line in lines if line.startswith((f"{name}:", f"{name}["))]
    assert own
    golden(f"rules/{name}", "\n".join(own) + "\n")


def test_a_whole_program_reads_so(golden: Golden) -> None:
    """A table of legal tuples, a row, and definitions from three limits, among everything else."""
    golden("rules/program", str(formulate(samples.problem(limits=LIMITS)).program))
