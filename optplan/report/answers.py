"""The screen of ``explain``."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from optplan.answers import Answer
from optplan.models.units import seconds_text
from optplan.report.layouts import plain_table, short
from optplan.report.terminal import show_evaluation, show_result, ways_table


def show_answer(console: Console, answer: Answer) -> None:
    """Print the answer to ``explain``."""
    show_result(console, answer.result, 0, False)
    if answer.more_ways_out:
        console.print(ways_table("What else could give way, solved too", answer.more_ways_out))
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
    if answer.why_not is not None:
        console.print(Text("\nThe plan that was asked about", "bold"))
        show_evaluation(console, answer.why_not)
