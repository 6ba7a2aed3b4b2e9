"""Constraints of one's own on a live model: in Pyomo, in CP-SAT, and as a file for any solver."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pyomo.environ as pyo

import optplan

SPEC = Path(__file__).parent / "qwen3-30b-a3b-16-h100.yaml"

ROOM = 60 * 2**30
"""Bytes that a device shall use at most, so that a second job finds room."""


def in_pyomo(model: pyo.ConcreteModel) -> None:
    """Leave 20 GiB of every device, and have three micro-batches a stage or more."""
    model.second_job = pyo.Constraint(expr=model.peak_memory <= ROOM)
    model.full = pyo.Constraint(expr=model.micro_batches >= 3 * model.pp)


def in_cp_sat(model: Any) -> None:
    """Add the same to a CP-SAT model."""
    model.raw.add(model.columns["peak_bytes"] <= ROOM)
    model.raw.add(model.columns["micro_batches"] >= 3 * model.columns["pp"])


def main() -> None:
    """Solve with the constraints by both engines, then by hand in Pyomo, then write a file."""
    same = ["peak_memory <= 60 GiB", "micro_batches >= 3 * pp"]
    for engine, added in (("milp", in_pyomo), ("cp-sat", in_cp_sat)):
        result = optplan.solve(SPEC, engine=engine, constrain=added)
        assert result.estimate is not None
        print(f"{engine}: {result.estimate.step_seconds:.4f} s a step, {result.status.holding}")
    limited = optplan.solve(SPEC, limits=same)
    assert limited.estimate is not None
    print(f"as limits: {limited.estimate.step_seconds:.4f} s a step")

    # A model of all plans within 5 % of the best: what it proves up to there holds for all.
    model = optplan.pyomo_model(SPEC, within="5%")
    in_pyomo(model)
    product = optplan.of_choices(model, lambda at: at["tp"] * at["ep"])
    model.inside = pyo.Constraint(expr=product <= 8)
    ended = pyo.SolverFactory("appsi_highs").solve(model).solver.termination_condition
    print(f"by hand: {pyo.value(model.step_seconds):.4f} s a step, {ended}")
    plan = optplan.plan_in(model)
    print(f"tp {plan.tp} pp {plan.pp} dp {plan.dp} ep {plan.ep}, layers {plan.layers_per_stage}")

    with tempfile.TemporaryDirectory() as folder:
        written = optplan.write_model(SPEC, Path(folder) / "model.lp", within="2%")
        print(f"{written.variables:,} variables, {written.constraints:,} constraints as LP")


if __name__ == "__main__":
    main()
