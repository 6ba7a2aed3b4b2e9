"""The screens of ``explain`` and ``size``."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from optplan.explain import Answer
from optplan.models.units import bytes_text, seconds_text
from optplan.report.layouts import plain_table, short
from optplan.report.sizes import at_hand_text, cheapest_table
from optplan.report.sure import flips_text
from optplan.report.terminal import show_evaluation, show_result
from optplan.size import Sizing


def show_answer(console: Console, answer: Answer) -> None:
    """Print the answer to ``explain``."""
    show_result(console, answer.result, 0, False, answer.more_ways_out)
    if answer.worth:
        table = plain_table(
            "What one change would buy, each one solved",
            "change",
            "step",
            "tokens/s/device",
            "saved a sequence",
            "layout",
            right=("step", "tokens/s/device", "saved a sequence"),
        )
        for one in answer.worth:
            if one.plan is None or one.step_seconds is None or one.saved is None:
                table.add_row(Text(one.change), "", "", "not settled", "")
                continue
            rate = one.tokens_per_second_per_device or 0.0
            saved = f"{one.saved:.2%}" if one.binds else "nothing"
            table.add_row(
                Text(one.change, "" if one.binds else "dim"),
                seconds_text(one.step_seconds),
                f"{rate:,.0f}",
                saved,
                short(one.plan) if one.binds else "",
            )
        console.print(table)
    if answer.flips is not None:
        console.print(flips_text(answer.flips))
    if answer.why_not is not None:
        console.print(Text("\nThe plan that was asked about", "bold"))
        show_evaluation(console, answer.why_not)


def show_sizing(console: Console, sizing: Sizing) -> None:
    """Print the answer to ``size``."""
    workload = sizing.problem.workload
    table = plain_table(
        f"Fewest devices for {workload.architecture.name}, sequence {workload.sequence_length}, "
        f"{workload.precision}",
        "accelerator",
        "devices",
        "nodes",
        "step",
        "peak memory",
        "layout",
        right=("devices", "nodes", "step", "peak memory"),
    )
    for one in (sizing.fewest, *sizing.others):
        if one.devices is None or one.estimate is None or one.plan is None:
            table.add_row(Text(one.accelerator), "none", "", "", "", Text(one.why))
            continue
        memory = one.estimate.memory
        proved = "" if one.proved else f"not proved: {one.why}; "
        table.add_row(
            Text(one.accelerator),
            f"{one.devices:,}",
            f"{one.nodes:,}",
            seconds_text(one.estimate.step_seconds),
            f"{bytes_text(memory.peak_bytes)} of {bytes_text(memory.capacity_bytes)}",
            Text(f"{proved}{short(one.plan)}"),
        )
    console.print(table)
    found = (sizing.fewest, *sizing.others)
    if all(one.proved for one in found) and any(one.devices for one in found):
        console.print(Text("  proved: on one device less no plan exists", "dim"))
    if sizing.cheapest is not None:
        console.print(cheapest_table((sizing.cheapest, *sizing.cheapest_others)))
    if sizing.at_hand is not None:
        console.print(at_hand_text(sizing.at_hand))
