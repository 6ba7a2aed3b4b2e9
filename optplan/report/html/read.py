"""Answers read from their JSON, and refused where they are not as optplan wrote them."""

from __future__ import annotations

from pathlib import Path

from optplan.compare import Comparison
from optplan.explain import Answer
from optplan.models.cost.estimate import estimate
from optplan.models.cost.price import Estimate
from optplan.models.errors import Fault, InputError
from optplan.models.spec.plan import Plan
from optplan.models.spec.problem import Problem
from optplan.read_back import as_record, named, read_json
from optplan.result import FORMAT, Evaluation, Reply, Result
from optplan.size import Sizing
from optplan.verify import alike

TAKES = (
    "the JSON that optplan solve, explain, evaluate, size or compare writes with --json, or the "
    "table of optplan sweep"
)
"""What a page is made from."""

KINDS: tuple[tuple[str, frozenset[str], type[Reply]], ...] = (
    ("solve", frozenset({"certificate", "status", "problem"}), Result),
    ("explain", frozenset({"result", "worth"}), Answer),
    ("evaluate", frozenset({"estimate", "verdict", "chosen", "problem"}), Evaluation),
    ("size", frozenset({"fewest", "problem"}), Sizing),
    ("compare", frozenset({"engines", "agree"}), Comparison),
)
"""Commands, the keys that tell their answers apart, and their records."""


def read_answer(path: str | Path) -> tuple[str, Reply]:
    """
    Read an answer and check it: its digest, and the price of its plan.

    Returns
    -------
    tuple
        The command that it answers, and the answer.

    Raises
    ------
    InputError
        The file is missing, no JSON, no answer that a page can show, or changed since it was
        written.
    """
    data = read_json(path, f"take {TAKES}")
    keys = frozenset(data) if isinstance(data, dict) else frozenset()
    known = next(((name, kind) for name, needed, kind in KINDS if needed <= keys), None)
    if known is None:
        problem = "this is no answer that a page can show"
        raise InputError([Fault(named(path), "", problem, f"take {TAKES}")])
    name, kind = known
    if data.get("format", FORMAT) != FORMAT:
        remedy = f"take a file with format {FORMAT}, written by this version of optplan"
        raise InputError([Fault(named(path), "format", "this is of another version", remedy)])
    answer = as_record(path, data, kind)
    check(answer, named(path))
    return name, answer


def check(answer: Reply, place: str) -> None:
    """
    Refuse an answer whose digest or prices are not its own.

    A digest tells that a file was changed, and an answer priced anew that its figures were made
    up; ``optplan verify`` proves far more.

    Raises
    ------
    InputError
        It is not as optplan wrote it.
    """
    if isinstance(answer, Answer):
        _sealed(answer.result, place, "result.")
        if answer.why_not is not None:
            why = answer.why_not
            _priced(why.problem, why.plan, why.estimate, place, "why_not.")
    elif isinstance(answer, Result):
        _sealed(answer, place, "")
    elif isinstance(answer, Evaluation):
        _priced(answer.problem, answer.plan, answer.estimate, place, "")
    elif isinstance(answer, Sizing):
        one = answer.fewest
        if one.plan is not None and one.estimate is not None and one.nodes is not None:
            held = answer.problem.with_cluster(nodes=one.nodes)
            _priced(held, one.plan, one.estimate, place, "fewest.")


def _sealed(result: Result, place: str, path: str) -> None:
    """Check a result's digest, fingerprint and price."""
    remedy = "take the file as optplan wrote it, or solve again"
    if result.computed_digest() != result.digest:
        problem = "the file was changed after it was written: its digest is another"
        raise InputError([Fault(place, f"{path}digest", problem, remedy)])
    if result.problem.fingerprint != result.certificate.fingerprint:
        problem = "the proof is of another problem: its fingerprint is another"
        raise InputError([Fault(place, f"{path}certificate.fingerprint", problem, remedy)])
    if result.plan is not None and result.estimate is not None:
        _priced(result.problem, result.plan, result.estimate, place, path)


def _priced(problem: Problem, plan: Plan, told: Estimate, place: str, path: str) -> None:
    """Price a plan anew and compare."""
    own = estimate(problem, plan)
    if alike(own, told):
        return
    problem_ = (
        f"priced anew the plan takes {own.step_seconds:.9g} s and {own.memory.peak_bytes} bytes; "
        f"the file says {told.step_seconds:.9g} s and {told.memory.peak_bytes} bytes, or differs "
        "in a term or a stage"
    )
    remedy = "it was changed, or is of another version of optplan; solve again"
    raise InputError([Fault(place, f"{path}estimate", problem_, remedy)])
