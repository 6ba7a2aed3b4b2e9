"""Profile a machine, plan for it, train every layout, and compare: all of it in a few minutes."""

from __future__ import annotations

import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import optplan

SPEC = """\
workload:
  architecture: {{name: small, layers: 4, hidden: {hidden}, heads: 4, ffn: {ffn}, vocabulary: 2048}}
  sequence_length: 128
  precision: fp32
cluster: {{accelerator: machine.yaml, nodes: 1}}   # as the profile describes it
calibration: machine.yaml                         # as the profile fitted it
search:
  global_batch: 8
  schedule: 1f1b
  cp: 1
  recompute: none
  zero: 0
  sequence_parallel: false
  layers_per_stage: even
  idle_devices: false
"""

PROCESSES = 2


def main(brief: bool, folder: Path) -> None:
    """Profile, solve, measure, validate; about six minutes on two processors, brief two."""
    machine, spec, runs = folder / "machine.yaml", folder / "spec.yaml", folder / "runs.csv"

    profiled = optplan.profile(
        machine, device="cpu", processes=PROCESSES, budget=40.0 if brief else 150.0
    )
    print(f"profile: {profiled.timed} samples, {profiled.calibration.error}")

    hidden, ffn = (128, 352) if brief else (256, 704)
    spec.write_text(SPEC.format(hidden=hidden, ffn=ffn), encoding="utf-8")
    result = optplan.solve(spec)
    assert result.plan is not None
    assert result.estimate is not None
    best = result.plan
    print(
        f"solve: tp {best.tp} pp {best.pp} dp {best.dp} micro-batch {best.micro_batch}, "
        f"{1e3 * result.estimate.step_seconds:.0f} ms a step in the model"
    )

    chosen = "random:3" if brief else "all"
    measured = optplan.measure(spec, runs, plans=chosen, steps=2 if brief else 5, warm_up=1)
    for one in measured.measurements:
        step = "" if one.step_seconds is None else f"{1e3 * one.step_seconds:.0f} ms"
        print(
            f"measure: {one.layout}: {one.outcome}, {1e3 * one.predicted_step_seconds:.0f} ms "
            f"predicted, {step} measured"
        )

    score = optplan.validate([runs], calibration=machine).all.score
    error, order = score.time.mean_abs_pct, score.ranking
    if error is not None and order.kendall_tau is not None and order.top1_regret_pct is not None:
        print(
            f"validate: mean error {error:.1f} %, Kendall tau {order.kendall_tau:.2f}, "
            f"top-1 regret {order.top1_regret_pct:.1f} %"
        )


if __name__ == "__main__":
    if find_spec("torch") is None:
        print('this example trains on PyTorch: pip install "optplan[profile]"')
    else:
        with tempfile.TemporaryDirectory() as name:
            main("--brief" in sys.argv, Path(name))
