"""An Ascend job from plan to launch: Qwen-14B on two servers of 910B, under MindSpeed-LLM."""

from __future__ import annotations

import optplan

SPEC = {
    "workload": {"architecture": "qwen-14b", "sequence_length": 4096, "precision": "bf16"},
    "cluster": {"accelerator": "ascend-910b", "nodes": 2},
    "framework": "mindspeed",
    "search": {"global_batch": 256, "micro_batch": {"max": 4}, "recompute": ["none", "full"]},
}


def main() -> None:
    """Solve, say how sure it is, write the launch script, and read it back."""
    result = optplan.solve(SPEC)
    assert result.plan is not None
    assert result.estimate is not None
    plan, price = result.plan, result.estimate
    print(f"tp {plan.tp} pp {plan.pp} dp {plan.dp}, {price.step_seconds:.1f} s a step")
    print(f"fullest device {price.memory.peak_bytes / 2**30:.1f} GiB, gap {result.certificate.gap}")
    print(f"the model's error: {result.problem.calibration.error}")

    launch = optplan.export(result, "mindspeed").text
    print("\n".join(line for line in launch.splitlines() if "parallel-size" in line))
    # The script asks its environment which node it runs on; reading it needs that told.
    again = optplan.doctor(launch, on="ascend-910b", sets=["NODE_RANK=0"])
    print(f"read back as the same plan: {again.plan == plan}")
    for finding in again.findings:
        print(f"{finding.severity} {finding.rule}: {finding.problem}")


if __name__ == "__main__":
    main()
