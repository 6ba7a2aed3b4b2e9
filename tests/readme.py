"""
The generated parts of the README: ``python -m tests.readme`` writes them anew.

``--picture`` takes the picture anew, too; it needs a Chromium.
"""

from __future__ import annotations

import argparse
import io
import re
import tempfile
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from optplan import catalogue, report, solve
from optplan.report.rulebook import markdown
from optplan.report.terminal import show_result
from tests.optplan.browser import browser

README = Path(__file__).resolve().parent.parent / "README.md"
FIRST_EXAMPLE = README.parent / "examples" / "paper" / "baichuan2-7b.yaml"


def calibrations() -> str:
    """Render the shipped calibrations as a table."""
    lines = [
        "| calibration | u_peak | in FP8 | hbm | links | launch | attention | reserve | error |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |",
    ]
    for name in catalogue.names("calibrations"):
        one = catalogue.calibration(name)
        kind = "" if one.measured else "prior: "
        narrow = "" if one.utilization_fp8 is None else f"{one.utilization_fp8:g}"
        lines.append(
            f"| `{name}` | {one.utilization_peak:g} | {narrow} | {one.hbm_efficiency:g} "
            f"| {one.link_efficiency:g} | {1e6 * one.launch_seconds:g} us "
            f"| {one.attention_loss:g} | {one.reserve / 2**30:.2g} GiB | {kind}{one.error} |"
        )
    return "\n".join(lines) + "\n"


def screen() -> str:
    """Print the first example as a terminal of 118 columns shows it."""
    file = io.StringIO()
    show_result(Console(file=file, width=118, highlight=False), solve(FIRST_EXAMPLE), 5, False)
    lines = [line.rstrip() for line in file.getvalue().splitlines()]
    return "```text\n" + "\n".join(lines).strip() + "\n```\n"


def whole(example: str) -> Callable[[], str]:
    """Return what shows a file of the examples whole."""
    path = FIRST_EXAMPLE.parents[1] / example
    kind = {".py": "python", ".yaml": "yaml"}[path.suffix]
    return lambda: f"```{kind}\n{path.read_text(encoding='utf-8')}```\n"


WHOLE = {
    "custom_rule": "custom_rule.py",
    "own-cluster": "own-cluster.yaml",
    "own_engine": "own_engine.py",
}
"""Name of a part: the example that it shows."""

PARTS = {
    "rules": markdown,
    "calibrations": calibrations,
    "screen": screen,
    **{name: whole(example) for name, example in WHOLE.items()},
}
"""Name of a generated part: what writes it."""


def part(text: str, name: str) -> str:
    """Read a generated part out of the README."""
    found = re.search(rf"<!-- {name} -->\n(.*?)<!-- /{name} -->", text, re.DOTALL)
    assert found, f"the README has no part {name}"
    return found[1]


PICTURE = README.parent / "examples" / "llama-3-70b-64-h100.png"
"""The page of an example as a picture: its head and the parts named."""

CUT = """
for (const one of document.querySelectorAll("section")) {
  if (!["memory", "timeline"].includes(one.id)) one.style.display = "none";
}
for (const one of document.querySelectorAll("nav, details, footer, .warnings, .note")) {
  one.style.display = "none";
}
"""


def take_picture() -> None:
    """Open the page of an example, cut it down, and save it as a picture."""
    with tempfile.TemporaryDirectory() as folder, browser() as page:
        written = Path(folder) / "report.html"
        written.write_text(report(solve(PICTURE.with_suffix(".yaml"))), encoding="utf-8")
        page.open(written, 1000, "light")
        page.run(CUT)
        page.picture(PICTURE)


def main() -> None:
    """Write every part anew."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--picture", action="store_true", help="take the picture anew")
    if parser.parse_args().picture:
        take_picture()
    text = README.read_text(encoding="utf-8")
    for name, write in PARTS.items():
        old = part(text, name)
        text = text.replace(
            f"<!-- {name} -->\n{old}<!-- /{name} -->",
            f"<!-- {name} -->\n{write()}<!-- /{name} -->",
        )
    README.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
