"""The README's scoreboard from the measured runs: ``python -m tests.scoreboard --measured DIR``."""

from __future__ import annotations

import argparse
import math
import random
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from scipy.stats import spearmanr

from optplan import catalogue
from optplan.models.cost.calibration import Calibration
from optplan.models.cost.estimate import estimate
from optplan.models.spec.problem import Problem
from optplan.runs.chosen import expressed_of
from optplan.runs.express import Expressed, stack_of
from optplan.runs.fit import Point, fit, log_errors
from optplan.runs.points import point_of
from optplan.runs.table import read_runs
from optplan.validate import ABLATIONS, FLAT, Validation, validate
from tests.calibrations import SHIPPED
from tests.sweep_384 import LAYOUTS, plan_of, problem_of

README = Path(__file__).resolve().parent.parent / "README.md"

KORTHIKANTI = {f"megatron_lm_papers:{i:04d}" for i in range(58, 66)}
"""Table 5 of arXiv 2205.05198: four sizes, each with full and with selective recomputation."""

SEVENTEEN = KORTHIKANTI | {f"megatron_lm_papers:{i:04d}" for i in (*range(48, 54), 55, 56, 57)}
"""All published runs of Megatron-LM whose micro-batch is known, MT-NLG taken at 1."""

DRAWS = 10
"""Pairs of runs that a left-out accelerator is introduced by, drawn at random."""

SMALL = 64
"""Devices up to which a run counts as small."""


def tables(measured: Path, half: str) -> list[Path]:
    """Return the tables of one half, sorted."""
    return sorted((measured / half).glob("*.csv"))


# -- by table -------------------------------------------------------------------------------------


def by_table(found: Validation) -> str:
    """Render every table of the validation half."""
    lines = [
        "| table | runs | mean | median | max | bias | memory | OOM | groups | tau | regret |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name, one in found.files.items():
        time, memory = one.score.time, one.score.memory
        oom, ranks = one.score.oom, one.score.ranking
        said = f"{oom.foretold} of {oom.labels}, {oom.false_alarms} false" if oom.labels else ""
        cells = (
            f"`{name}`",
            f"{time.n}",
            *(_pct(v) for v in (time.mean_abs_pct, time.median, time.max)),
            "" if time.bias is None else f"{time.bias:+.1f}",
            f"{_pct(memory.mean_abs_pct)} ({memory.n})" if memory.n else "",
            said,
            f"{ranks.groups or ''}",
            "" if ranks.kendall_tau is None else f"{ranks.kendall_tau:.2f}",
            _pct(ranks.top1_regret_pct),
        )
        lines.append("| " + " | ".join(cells) + " |")
    means = [one.score.time.mean_abs_pct for one in found.files.values()]
    median = float(np.median([m for m in means if m is not None]))
    lines.append(f"\nMedian over tables of the mean error: {median:.1f} %.")
    return "\n".join(lines) + "\n"


def _pct(value: float | None) -> str:
    """Write a percentage that may be missing."""
    return "" if value is None else f"{value:.1f}"


# -- beside the peers -----------------------------------------------------------------------------


def beside_peers(found: Validation) -> str:
    """Render our errors beside those of the peers on the same runs."""
    rows = {p.source_id: p for p in found.rows}
    eight = [rows[name].error or 0.0 for name in sorted(KORTHIKANTI)]
    seventeen = [rows[name].error or 0.0 for name in sorted(SEVENTEEN)]
    files = found.files
    single, multi = files["vtrain_single"].score, files["vtrain_multi"].score
    rank, regret, alarms = sweep()
    lines = [
        "| runs | what | here | peers |",
        "| --- | --- | ---: | --- |",
        f"| arXiv 2205.05198, table 5, 8 runs | mean / max error | {_both(eight)} "
        "| Calculon 3.65 / 8.87 %, SimuMax 6.4 / 15.4 %, llm-analysis 25.9 / 70.9 % |",
        f"| 17 Megatron-LM runs with a known micro-batch | mean / max error | {_both(seventeen)} "
        "| SimuMax 8.6 / 18.0 %, Calculon 11.6 / 33.2 % |",
        f"| vTrain, several nodes, 109 runs | mean error | {_pct(multi.time.mean_abs_pct)} % "
        "| llm-analysis 17.8 %, Calculon 20.7 %, SimuMax 26.1 %, vTrain itself 14.7 % |",
        "| vTrain, one node, 720 runs not fitted | mean error | "
        f"{_pct(single.time.mean_abs_pct)} % "
        "| SimuMax 22.7 % (9.4 % with a floor of 3.8 ms a layer), Calculon 38.9 % (12.5 %), "
        "vTrain itself 8.4 % |",
        f"| the same | regret of the chosen layout | {_pct(single.ranking.top1_regret_pct)} % "
        "| 6.2 % |",
        "| bigscience, A100, 63 runs not fitted | mean error | "
        f"{_pct(files['bigscience_a100'].score.time.mean_abs_pct)} % | 10.2 % |",
        "| bigscience, 19 layouts of one job on 384 A100 | Spearman, regret, OOM | "
        f"{rank:.2f}, {regret:.1f} %, {alarms} | none published |",
    ]
    return "\n".join(lines) + "\n"


def _both(errors: Sequence[float]) -> str:
    """Write mean and maximum of the absolute error."""
    size = np.abs(errors) * 100
    return f"{size.mean():.1f} / {size.max():.1f} %"


def sweep() -> tuple[float, float, str]:
    """Rank correlation, regret in percent, and OOM outcomes of the sweep of layouts."""
    problem = problem_of()
    times, right = [], 0
    for layout in LAYOUTS:
        price = estimate(problem, plan_of(layout))
        right += price.memory.fits == (layout.seconds is not None)
        if layout.seconds is not None:
            scale = layout.global_batch
            times.append((price.step_seconds / scale, layout.seconds / scale))
    rank = float(spearmanr([p for p, _ in times], [m for _, m in times]).statistic)
    picked = min(times)[1]
    regret = 100 * (picked / min(m for _, m in times) - 1)
    return rank, regret, f"{right} of {len(LAYOUTS)} right"


# -- what was never seen --------------------------------------------------------------------------


def by_accelerator(measured: Path, half: str) -> dict[str, list[Expressed]]:
    """Collect the timed Megatron-like runs of a half by accelerator."""
    found: dict[str, list[Expressed]] = {}
    for path in tables(measured, half):
        if path.stem == "megatron_ci_tiny":
            continue
        for run in read_runs([path]):
            for one in expressed_of(run, None, Counter()) if stack_of(run) == "megatron" else ():
                device = one.problem.cluster.accelerator.name
                found.setdefault(KINDS.get(device, device), []).append(one)
    return found


KINDS = {
    "a100-sxm-40gb": "A100",
    "a100-sxm-80gb": "A100",
    "a800-sxm-80gb": "A100",
    "h100-sxm-80gb": "H100",
    "v100-sxm-32gb": "V100",
    "ascend-910b": "Ascend 910B",
}
"""Devices that count as one accelerator."""


def _error(points: Sequence[Point], calibration: Calibration) -> float:
    """Mean over tables of the mean absolute error, percent."""
    if not points:
        return math.nan
    errors = np.abs(np.expm1(log_errors(points, calibration)))
    by = {p.source for p in points}
    each = [float(errors[[p.source == name for p in points]].mean()) for name in by]
    return 100 * float(np.mean(each))


def flat(points: Sequence[Point]) -> list[Point]:
    """Return the same runs with the shape of products left out of their price."""
    change: Callable[[Problem], Problem] = ABLATIONS["constant rho"]
    return [replace(p, problem=change(p.problem)) for p in points]


def _flat(calibration: Calibration) -> Calibration:
    """Return a calibration without what depends on shape."""
    return calibration.model_copy(update=FLAT)


def left_out_accelerators(measured: Path) -> str:
    """Introduce each accelerator by its data sheet and two runs, to fits of the others."""
    halves = [by_accelerator(measured, half) for half in ("calibration", "validation")]
    fits = {kind: catalogue.calibration(name) for kind, name in FITTED.items()}
    lines = [
        "| accelerator | runs | data sheet alone | and two runs | constant rho | other half "
        "| data sheet alone | and two runs |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    means = []
    for kind in FITTED:
        prior = _median([fits[other] for other in FITTED if other != kind])
        points, others = ([point_of(x, prior) for x in half.get(kind, [])] for half in halves)
        draw = random.Random(7)
        errors = []
        for _ in range(DRAWS):
            two = draw.sample(points, 2)
            rest = [p for p in points if p not in two]
            learned = fit(two, prior, ["utilization_peak"]).calibration
            plain = fit(flat(two), _flat(prior), ["utilization_peak"]).calibration
            errors.append(
                (_error(rest, learned), _error(flat(rest), plain), _error(others, learned))
            )
        own, constant, other = np.mean(errors, axis=0)
        means.append(float(own))
        far = (f"{_error(others, prior):.1f} %", f"{other:.1f} %") if others else ("", "")
        lines.append(
            f"| {kind} | {len(points)} | {_error(points, prior):.1f} % | {own:.1f} % "
            f"| {constant:.1f} % | {len(others) or ''} | {far[0]} | {far[1]} |"
        )
    lines.append(f"| mean | | | {np.mean(means):.1f} % | | | | |")
    return "\n".join(lines) + "\n"


FITTED = {"V100": "v100", "A100": "a100", "H100": "h100", "Ascend 910B": "ascend-910b"}
"""Accelerators with a fit of their own, and its name."""


def _median(others: Sequence[Calibration]) -> Calibration:
    """Return the prior with the medians of some fits in place of what fits move."""
    names = ("utilization_peak", "attention_loss", "link_efficiency", "hbm_efficiency")
    middle = {n: float(np.median([getattr(o, n) for o in others])) for n in names}
    return catalogue.calibration("generic").model_copy(update=middle)


def left_out_families(measured: Path) -> str:
    """Leave out each family of models in turn, where an accelerator has several."""
    lines = [
        "| calibration | family left out | runs | error | constant rho |",
        "| --- | --- | ---: | ---: | ---: |",
    ]
    for one, points, prior in _fits(measured):
        families = sorted({p.family for p in points})
        if len(families) < 2:
            continue
        for family in families:
            inside = [p for p in points if p.family != family]
            outside = [p for p in points if p.family == family]
            lines.append(_line(one, family, inside, outside, prior))
    return "\n".join(lines) + "\n"


def small_to_large(measured: Path) -> str:
    """Fit on small clusters, score on large ones."""
    lines = [
        f"| calibration | | runs of more than {SMALL} devices | error | constant rho |",
        "| --- | --- | ---: | ---: | ---: |",
    ]
    for one, points, prior in _fits(measured):
        inside = [p for p in points if p.problem.devices <= SMALL]
        outside = [p for p in points if p.problem.devices > SMALL]
        if inside and outside:
            lines.append(_line(one, f"{len(inside)} small runs", inside, outside, prior))
    return "\n".join(lines) + "\n"


Named = tuple[str, tuple[str, ...], Mapping[str, float]]


def _fits(measured: Path) -> Iterable[tuple[Named, list[Point], Calibration]]:
    """Give every fitted calibration's points and its prior."""
    for one in SHIPPED:
        if not one.tables:
            continue
        devices = set(one.accelerator.split(","))
        prior = catalogue.calibration(one.name)
        points = []
        for table in one.tables:
            for run in read_runs([measured / "calibration" / f"{table}.csv"]):
                if stack_of(run) != one.stack or not one.keep(run):
                    continue
                family = re.split(r"[-\d]", run.model_name + "-")[0] or run.model_name
                points += [
                    replace(point_of(expressed, prior), family=family)
                    for expressed in expressed_of(run, None, Counter())
                    if expressed.problem.cluster.accelerator.name in devices
                ]
        yield (one.name, one.fit, one.spreads), points, prior


def _line(
    named: Named,
    word: str,
    inside: Sequence[Point],
    outside: Sequence[Point],
    prior: Calibration,
) -> str:
    """Fit inside, score outside, with and without the shape of products."""
    name, constants, spreads = named
    start = prior.model_copy(update={c: getattr(_base(), c) or 0.62 for c in constants})
    learned = fit(inside, start, constants, spreads).calibration
    plain = fit(flat(inside), _flat(start), constants, spreads).calibration
    return (
        f"| `{name}` | {word} | {len(outside)} | {_error(outside, learned):.1f} % "
        f"| {_error(flat(outside), plain):.1f} % |"
    )


def _base() -> Calibration:
    """Return the generic prior."""
    return catalogue.calibration("generic")


# -- the README -----------------------------------------------------------------------------------


def ablations(found: Validation) -> str:
    """Render what parts of the model are worth, every table weighing the same."""
    files = [one for name, one in found.files.items() if one.score.time.n]
    names = list(found.all.ablations)
    whole = np.mean([one.score.time.mean_abs_pct or 0.0 for one in files])
    cells = [np.mean([one.ablations[n].mean_abs_pct or 0.0 for one in files]) for n in names]
    return (
        "| whole model | " + " | ".join(names) + " |\n"
        "| ---: |" + " ---: |" * len(names) + "\n"
        f"| {whole:.1f} % | " + " | ".join(f"{cell:.1f} %" for cell in cells) + " |\n"
    )


def parts(measured: Path, quick: bool) -> dict[str, str]:
    """Make every part of the scoreboard; ``quick`` leaves out those that fit anew."""
    found = validate(tables(measured, "validation"))
    made = {
        "peers": beside_peers(found),
        "tables": by_table(found),
        "ablations": ablations(found),
    }
    if not quick:
        made["accelerators"] = left_out_accelerators(measured)
        made["families"] = left_out_families(measured)
        made["sizes"] = small_to_large(measured)
    return made


def main() -> int:
    """Write the scoreboard into the README."""
    from tests.readme import part

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--measured", type=Path, required=True, help="folder of measured runs")
    parser.add_argument("--quick", action="store_true", help="leave out what fits anew")
    chosen = parser.parse_args()
    text = README.read_text(encoding="utf-8")
    for name, made in parts(chosen.measured, chosen.quick).items():
        print(f"\n{name}\n{made}", flush=True)
        old = part(text, name)
        text = text.replace(
            f"<!-- {name} -->\n{old}<!-- /{name} -->", f"<!-- {name} -->\n{made}<!-- /{name} -->"
        )
    README.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
