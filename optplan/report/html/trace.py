"""A simulated pipeline as a trace that Chrome's tracing page and Perfetto open."""

from __future__ import annotations

import json

from optplan.models.spec.plan import Plan
from optplan.models.spec.problem import Problem
from optplan.report.html.facts import heading
from optplan.report.html.pipeline import Run
from optplan.report.html.words import KINDS
from optplan.report.layouts import short


def trace_json(problem: Problem, plan: Plan, run: Run) -> str:
    """
    Write complete events ("ph": "X") in microseconds, one thread a stage.

    The form is the JSON array format of Chrome's Trace Event Format, in its object form with
    ``traceEvents`` and ``otherData``; Perfetto reads it too.
    """
    events: list[dict[str, object]] = [
        {"ph": "M", "name": "process_name", "pid": 0, "args": {"name": heading(problem)}}
    ]
    for stage in range(plan.pp):
        named = {"name": f"stage {stage}"}
        events.append({"ph": "M", "name": "thread_name", "pid": 0, "tid": stage, "args": named})
        order = {"sort_index": stage}
        events.append(
            {"ph": "M", "name": "thread_sort_index", "pid": 0, "tid": stage, "args": order}
        )
    for one in run.passes:
        events.append(
            {
                "ph": "X",
                "name": f"{one.kind}{one.micro_batch}",
                "cat": KINDS[one.kind],
                "pid": 0,
                "tid": one.device,
                "ts": round(1e6 * float(one.start), 3),
                "dur": round(1e6 * float(one.end - one.start), 3),
                "args": {"micro_batch": one.micro_batch, "chunk": one.chunk},
            }
        )
    told = {
        "layout": short(plan),
        "micro_batches": run.of,
        "micro_batches_simulated": run.micro_batches,
        "left_out": "transfers between stages, exchange of gradients, optimizer step",
    }
    whole = {"displayTimeUnit": "ms", "otherData": told, "traceEvents": events}
    return json.dumps(whole, separators=(",", ":"), allow_nan=False) + "\n"
