"""Which rows of some tables a fit takes: those with a time, of one accelerator and one stack."""

from __future__ import annotations

from collections import Counter

from optplan import catalogue
from optplan.models.cost.calibration import Calibration
from optplan.models.errors import Fault, InputError
from optplan.models.numbers import counted, listed
from optplan.places import Refusal
from optplan.runs.express import Expressed, Inexpressible, express, stack_of
from optplan.runs.table import Run


def expressed_of(run: Run, start: Calibration | None, reasons: Counter[str]) -> list[Expressed]:
    """Express a run that can be fitted; note why another cannot."""
    try:
        found = express(run, start)
    except Inexpressible as reason:
        reasons[str(reason)] += 1
        return []
    if run.outcome == "oom":
        reasons["out of memory"] += 1
    elif found.step_seconds is None:
        reasons["no step time, throughput, TFLOP/s or MFU"] += 1
    else:
        return [found]
    return []


def of_one(
    found: list[Expressed], accelerator: str | None, stack: str | None, reasons: Counter[str]
) -> list[Expressed]:
    """Keep the runs of one accelerator and one stack."""
    wanted = None if accelerator is None else _devices(accelerator, found)
    kept = []
    for x in found:
        if wanted is not None and x.problem.cluster.accelerator.name not in wanted:
            reasons["another accelerator"] += 1
        elif stack is not None and stack_of(x.run) != stack:
            reasons["another software stack"] += 1
        else:
            kept.append(x)
    devices = sorted({x.problem.cluster.accelerator.name for x in kept})
    stacks = sorted({stack_of(x.run) for x in kept})
    if not kept:
        why = "; ".join(f"{counted(n, 'row')}: {reason}" for reason, n in reasons.most_common(3))
        remedy = "give rows with a configuration and a time, of that accelerator and stack"
        raise InputError([Fault("", "", f"no row can be fitted ({why or 'none'})", remedy)])
    if len(devices) > 1 and wanted is None:
        problem = f"the rows are of several accelerators, {listed(devices)}"
        raise InputError([Fault("", "--accelerator", problem, "name the one to fit")])
    if len(stacks) > 1:
        problem = f"the rows are of several software stacks, {listed(stacks)}"
        raise InputError([Fault("", "--stack", problem, "name the one to fit")])
    return kept


def _devices(names: str, found: list[Expressed]) -> set[str]:
    """Return the devices that a person names; one must be in the catalogue or in some row."""
    wanted: set[str] = set()
    faults: list[Fault] = []
    for name in (part.strip() for part in names.split(",")):
        try:
            wanted.add(catalogue.accelerator(name).name)
        except Refusal as refusal:
            wanted.add(name)
            faults.append(Fault("", "--accelerator", refusal.problem, refusal.remedy))
    if faults and not any(x.problem.cluster.accelerator.name in wanted for x in found):
        raise InputError(faults)
    return wanted
