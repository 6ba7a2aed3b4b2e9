"""A plan for a network that may be slower than promised, and where the advice would change."""

from __future__ import annotations

import optplan

SPEC = {
    "workload": {"architecture": "llama-3-70b", "sequence_length": 8192},
    "cluster": {"accelerator": "h100-sxm-80gb", "nodes": 8, "network": "400 Gb/s"},
    "search": {
        # Few choices are left open, so that this takes seconds; left out, all are.
        "global_batch": 128,
        "micro_batch": 1,
        "zero": 1,
        "recompute": ["none", "selective"],
        "sequence_parallel": True,
        "idle_devices": False,
    },
}


def shown(plan: optplan.Plan) -> str:
    """Name what matters of a plan."""
    layers = ",".join(map(str, plan.layers_per_stage))
    degrees = f"tp {plan.tp} pp {plan.pp} dp {plan.dp} cp {plan.cp}"
    return f"{degrees}, {plan.schedule}, layers {layers}"


def main() -> None:
    """Compare the fastest plan with the one that regrets least, then look for flip points."""
    fastest = optplan.solve(SPEC)
    assert fastest.plan is not None
    print(f"fastest today: {shown(fastest.plan)}")

    # The share of its data-sheet speed that the network may reach, from 30 % to all of it, and
    # the links inside a node. Left out, the box is what the calibration does not know for sure.
    box = {"network_efficiency": (0.3, 1.0), "link_efficiency": (0.4, 1.0)}
    robust = optplan.robust(SPEC, box=box)
    assert robust.plan is not None
    assert robust.worst_regret is not None
    print(f"least regret over the box: {shown(robust.plan)}")
    regret = robust.nominal_regret
    nominal = "is impossible somewhere" if regret is None else f"may regret {regret:.1%}"
    print(f"it regrets {robust.worst_regret:.1%} at most; the fastest plan {nominal}")
    if not robust.proved:
        print(f"not proved: {robust.why}")

    # Where else does the fastest plan change: how fast must the network be for another one?
    for along in optplan.flips(SPEC, only=["network"]).along:
        for side, flip in (("below", along.falls), ("above", along.rises)):
            if flip is None:
                print(f"{along.parameter}: no other plan {side} {along.now}, looked at to its end")
            else:
                changes = ", ".join(f"{name} {change}" for name, change in flip.changes.items())
                print(f"{along.parameter}: {side} {flip.at}: {changes or 'no plan fits'}")


if __name__ == "__main__":
    main()
