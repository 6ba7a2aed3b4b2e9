"""A session with the doctor: a launch that loses layers, its nearest mend, and the best one."""

from __future__ import annotations

from pathlib import Path

import optplan

LAUNCH = Path(__file__).parent / "llama-3-8b-16-h100.sh"


def main() -> None:
    """Examine, mend, and examine what was mended."""
    found = optplan.doctor(LAUNCH, on="h100-sxm-80gb")
    for finding in found.findings:
        place = f", line {finding.line}" if finding.line else ""
        print(f"{finding.severity} {finding.rule}{place}: {finding.problem}")

    assert found.corrected is not None
    # The patch fits the file: `patch launch.sh < mend.diff`. It is empty where a launch had to be
    # written anew; `found.corrected.text` is the whole file either way.
    print(found.corrected.patch)

    again = optplan.doctor(found.corrected.text, on="h100-sxm-80gb")
    errors = [one for one in again.findings if one.severity == "error"]
    assert again.estimate is not None
    print(f"mended: {len(errors)} errors, {again.estimate.step_seconds:.1f} s a step")
    if again.best is not None and again.best.gain is not None:
        print(f"the best for the same job saves {again.best.gain:.0%} of the step")


if __name__ == "__main__":
    main()
