"""A device that nobody has published runs of: two runs of one's own, and what they teach.

No such device exists. Its runs, the two that are fitted and the three that are not, were priced by
optplan itself under constants that the fit does not see, and moved by up to 3 % as real ones
would be. With a real device, write down what the trainer's log says.
"""

from __future__ import annotations

import csv
import random
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

import optplan
from optplan import catalogue

DEVICE = "next-gpu"
SHEET = {"devices_per_node": 8, "peak_bf16_tflops": 1200, "hbm_gb": 96, "intra_bw_gbs": 600}
SHEET |= {"inter_bw_gbs": 100}
"""What the data sheet says: dense peak, memory, links and network of a device, one direction."""

HIDDEN = {"utilization_peak": 0.58, "hbm_efficiency": 0.45, "link_efficiency": 0.6}
"""What the data sheet does not say."""

SPEC = {
    "workload": {"architecture": "llama-2-7b", "sequence_length": 4096},
    "cluster": {
        "accelerator": {
            "name": DEVICE,
            "peak": {"bf16": "1200 TFLOP/s"},
            "hbm": "96 GB",
            "hbm_bandwidth": "4 TB/s",
            "link": {"kind": "switch", "bandwidth": "600 GB/s"},
            "domain": 8,
            "network": "800 Gb/s",
        },
        "nodes": 2,
    },
    "search": {"global_batch": 128},
    "calibration": "generic",
}

FIRST = ({"tp": 2, "pp": 1, "micro_batch": 2}, {"tp": 4, "pp": 2, "micro_batch": 1})
"""Layouts of the two runs that are fitted; what is left out is chosen, or fixed in `runs`."""

LATER = ({"tp": 1, "pp": 4}, {"tp": 8, "pp": 1, "micro_batch": 4}, {"tp": 2, "pp": 4})
"""Layouts of the three runs that are kept aside to score the fit."""


def runs(layouts: Iterable[Mapping[str, int]], path: Path) -> Path:
    """
    Make up a run of each layout, and write them as a table.

    With a real device this table is all there is to write, by hand or from a log: a row for each
    run, what it trained, on what, how it was laid out, and the seconds of a step. Cells that are
    not known stay empty.
    """
    problem = optplan.load(SPEC).with_calibration(**HIDDEN)
    shape, draw, rows = problem.workload.architecture, random.Random(1), []
    for layout in layouts:
        fixed = {"zero": 1, "recompute": "none", "vpp": 1, "cp": 1}
        found = optplan.evaluate(problem, {**layout, **fixed})
        assert found.plan is not None
        assert found.estimate is not None
        chosen = found.plan
        row = {"accelerator": DEVICE, "num_devices": chosen.devices, "framework": "Megatron-LM"}
        row |= {"num_layers": shape.layers, "hidden_size": shape.hidden, "num_heads": shape.heads}
        row |= {"ffn_hidden_size": shape.ffn, "gated_mlp": "true", "vocab_size": shape.vocabulary}
        row |= {"seq_len": problem.workload.sequence_length, "precision": "bf16"}
        row |= {
            "tp": chosen.tp,
            "pp": chosen.pp,
            "dp": chosen.dp,
            "vpp": chosen.vpp,
            "cp": chosen.cp,
        }
        row |= {"micro_batch": chosen.micro_batch, "global_batch": chosen.global_batch}
        row |= {"zero_stage": chosen.zero, "recompute": chosen.recompute, "flash_attention": "true"}
        row |= {"seq_parallel": str(chosen.sequence_parallel).lower(), "outcome": "ok"}
        row |= {"step_time_s": found.estimate.step_seconds * draw.uniform(0.97, 1.03)}
        rows.append(row | SHEET)
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, list(rows[0]))
        table.writeheader()
        table.writerows(rows)
    return path


def main(folder: Path) -> None:
    """Fit to two runs, and score three others with the fit and without."""
    # On the command line: optplan calibrate first.csv --prior generic -o next-gpu.yaml
    first, later = runs(FIRST, folder / "first.csv"), runs(LATER, folder / "later.csv")
    fit = optplan.calibrate([first], prior="generic", name=DEVICE)
    for one in fit.constants:
        if one.learned > 0.1:
            print(f"{one.name}: {one.prior:.3g} -> {one.value:.3g}, {one.learned:.0%} learned")
    # optplan validate later.csv --calibration next-gpu.yaml
    for name, calibration in (
        ("data sheet alone", catalogue.calibration("generic")),
        ("with two runs", fit.calibration),
    ):
        score = optplan.validate([later], calibration=calibration).all.score
        print(f"{name}: three other runs missed by {score.time.mean_abs_pct:.1f} % in the mean")
    best = optplan.solve({**SPEC, "calibration": fit.calibration.model_dump(mode="json")})
    assert best.plan is not None
    print(f"best layout: tp {best.plan.tp} pp {best.plan.pp} dp {best.plan.dp}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        main(Path(name))
