"""A launch examined: what is wrong with it, the nearest legal one, and the best for its job."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from optplan.findings import DoctorFinding, priced, products, speed, structural
from optplan.launches.dialects import dialect, known, recognise
from optplan.launches.job import Prepared, parted, prepare, with_values
from optplan.launches.launch import Dialect, Stated
from optplan.launches.shell_text import Source
from optplan.models.cost.estimate import estimate
from optplan.models.cost.price import Estimate
from optplan.models.errors import Fault, InputError
from optplan.models.formulate import formulate
from optplan.models.spec.plan import Plan
from optplan.models.spec.problem import Problem
from optplan.nearest_launch import nearest_plan
from optplan.planner import Spec, problem_of, solve
from optplan.proposals import Proposal, best, corrected
from optplan.result import FORMAT, Reply
from optplan.solvers.base import Progress
from optplan.source import read_text

LARGEST = 2**24
"""Bytes that a launch may have; of a longer log the beginning is enough."""

NEXT = 6
"""Next-best plans that are looked at where the best cannot be launched as it is."""

ORDER = {"error": 0, "warning": 1, "note": 2}
"""Findings by how bad they are."""


class Diagnosis(Reply):
    """The answer to ``doctor``."""

    format: int = FORMAT
    """Version of this form."""
    framework: str
    """Framework and version that the launch was read as."""
    findings: tuple[DoctorFinding, ...]
    """What is wrong, worst first, and what is worth to know."""
    plan: Plan
    """The plan that it launches, as far as its values go."""
    groups: tuple[str, ...]
    """Products of the groups, and defaults that were applied."""
    estimate: Estimate | None
    """What the plan costs; none without a machine."""
    corrected: Proposal | None = None
    """The nearest legal launch, where something is broken."""
    best: Proposal | None = None
    """The best launch for the same job."""
    stated: tuple[Stated, ...]
    """Values that were read."""
    assumed: tuple[Stated, ...]
    """Defaults of the framework that were applied."""
    taken: tuple[str, ...] = ()
    """What was taken from the spec, the catalogue or the usual machine."""
    lacks: tuple[str, ...] = ()
    """What to add to learn more."""
    unread: tuple[str, ...] = ()
    """Options that mean nothing to a plan."""
    source: str = ""
    """The file that was read."""
    problem: Problem
    """The job."""

    @property
    def exit_code(self) -> int:
        """0 nothing is wrong, 1 something is."""
        return int(any(one.severity != "note" for one in self.findings))

    def mended(self) -> str:
        """
        Return the mended launch: the corrected one, the best one, or the file as it was.

        Raises
        ------
        InputError
            Something is broken and nothing legal was found.
        """
        broken = _broken(self.findings)
        if self.corrected is not None:
            return self.corrected.text
        if broken:
            problem = "no legal launch was found, so nothing is written"
            raise InputError([Fault("--output", "", problem, "see the findings without it")])
        return self.best.text if self.best is not None else self.source


def doctor(
    launch: str | Path,
    spec: Spec | None = None,
    *,
    on: str = "",
    framework: str = "",
    sets: Sequence[str] = (),
    measured_seconds: float | None = None,
    time_limit: float | None = None,
    progress: Callable[[Progress], None] | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> Diagnosis:
    """
    Examine a launch.

    Parameters
    ----------
    launch
        Path of a script, a configuration or a log; or its text, with a line break in it.
    spec
        A spec whose cluster, limits and workload fill what the launch leaves out.
    on
        Accelerator of the catalogue that it runs on; without one (and without a spec) memory and
        time are left out.
    framework
        Framework and version, such as ``megatron-core@0.12``, where the file does not tell.
    sets
        ``NNODES=4`` for a variable of the script, ``tp=8`` for a value of the launch,
        ``cluster.network=400 Gb/s`` for the spec.
    measured_seconds
        Seconds of a step as measured.
    time_limit
        Seconds for the search of the best launch.
    progress, say
        Told of what is going on.

    Raises
    ------
    InputError
        The file cannot be read as a launch, or what no plan can do without is told nowhere.
    """
    if measured_seconds is not None and not 0 < measured_seconds < 1e9:
        problem_ = f"{measured_seconds:g} s is no time that a step takes"
        raise InputError([Fault("--measured-seconds", "", problem_, "write seconds, such as 12.5")])
    variables, values, specs = parted(sets)
    text, place = _text(launch, variables)
    speaks = _dialect(text, framework, place)
    try:
        read = with_values(speaks.read(text), values)
    except InputError as error:
        raise InputError([_placed(fault, place) for fault in error.faults]) from None
    problem = None if spec is None else problem_of(spec)
    known_version = framework if "@" in framework else ""
    prepared = prepare(read, problem, on, known_version, specs)
    return _examined(prepared, speaks, str(text), measured_seconds, time_limit, progress, say)


def _examined(
    prepared: Prepared,
    speaks: Dialect,
    source: str,
    measured_seconds: float | None,
    time_limit: float | None,
    progress: Callable[[Progress], None] | None,
    say: Callable[[str], None],
) -> Diagnosis:
    """Examine a launch that was read."""
    say("asking the rules")
    problem, plan, launch = prepared.problem, prepared.plan, prepared.launch
    rules = formulate(problem).rules
    price = estimate(problem, plan)
    found = list(structural(prepared, rules, price))
    whole = not any(one.rule == "degrees.world" for one in found)
    if prepared.priced and whole:
        found += priced(prepared, rules, price)
        found += speed(launch, problem, price, measured_seconds)
    found.sort(key=lambda one: ORDER.get(one.severity, 0))
    broken = _broken(found)
    nearest = other = None
    if broken:
        say("looking for the nearest legal launch")
        legal = nearest_plan(prepared)
        if legal is None:
            found.insert(0, _impossible(problem))
        else:
            nearest = corrected(prepared, speaks, source, found, legal)
            if nearest is None:
                found.append(_BY_HAND)
    if prepared.priced:
        say("looking for the best launch")
        answer = solve(problem, top=NEXT, time_limit=time_limit, progress=progress)
        plans = [] if answer.plan is None else [answer.plan]
        plans += [one.plan for one in answer.alternatives]
        plans += [nearest.plan] if nearest is not None else []
        plans += [] if broken else [plan]
        proven = answer.status.holding == "optimal"
        other = best(prepared, speaks, source, plans, proven)
    assert problem.framework is not None
    return Diagnosis(
        framework=problem.framework.name,
        findings=tuple(found),
        plan=plan,
        groups=products(launch, problem, plan),
        estimate=price if prepared.priced and whole else None,
        corrected=nearest,
        best=other,
        stated=launch.stated,
        assumed=launch.assumed,
        taken=prepared.taken,
        lacks=prepared.lacks,
        unread=launch.unread,
        source=source,
        problem=problem,
    )


def _broken(findings: Iterable[DoctorFinding]) -> bool:
    """Tell whether anything is wrong that another launch could mend; a measurement is not."""
    return any(one.severity == "error" and one.rule != "speed.impossible" for one in findings)


_BY_HAND = DoctorFinding(
    rule="launch.by-hand",
    severity="note",
    line=0,
    problem="no other layout mends the errors above",
    remedy="mend them by hand, and ask again",
)


def _impossible(problem: Problem) -> DoctorFinding:
    """Say that no launch of this job is legal on its machine."""
    return DoctorFinding(
        rule="launch.impossible",
        severity="error",
        line=0,
        problem=f"no layout of {problem.devices} devices is legal for this job",
        remedy="give it more, as in --set nodes=16; optplan size tells the fewest",
    )


def _text(launch: str | Path, variables: dict[str, str]) -> tuple[Source, str]:
    """Read the file."""
    if isinstance(launch, str) and "\n" in launch:
        return Source(launch.removeprefix("\ufeff"), variables), ""
    path = Path(launch)
    faults: list[Fault] = []
    text = read_text(path, str(launch), faults, LARGEST)
    if text is None:
        raise InputError(faults)
    if not text.strip():
        remedy = "name a launch script, a configuration or a log"
        raise InputError([Fault(str(launch), "", "the file is empty", remedy)])
    return Source(text, variables, str(path.parent)), str(launch)


def _dialect(text: str, framework: str, place: str) -> Dialect:
    """Find who can read a file."""
    if framework:
        return dialect(framework)
    found = recognise(text)
    if found is None:
        listed = ", ".join(sorted(known()))
        problem = "this is no launch that is known here"
        remedy = f"name a launch of {listed}, or say which one it is with --framework"
        raise InputError([Fault(place, "", problem, remedy)])
    return found


def _placed(fault: Fault, place: str) -> Fault:
    """Put the file's name in front of a line."""
    word, _, number = fault.place.partition("line ")
    if place and not word and number:
        return Fault(f"{place}:{number}", fault.path, fault.problem, fault.remedy)
    return (
        fault if fault.place or not place else Fault(place, fault.path, fault.problem, fault.remedy)
    )
