"""Every point of a small program, and what the second face of each rule says of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from optplan.models.cost.estimate import estimate
from optplan.models.cost.price import Estimate
from optplan.models.expression import names, parse
from optplan.models.formulate import Formulation
from optplan.models.program import Table
from optplan.models.rules.limits import UserLimit
from optplan.models.rules.registry import Rule
from optplan.models.spec.plan import Plan
from optplan.solvers import exhaustive
from optplan.solvers.base import SolverConfig
from optplan.solvers.core import Clash
from tests.brute import equal_chunks, handed_out, points

LAID_OUT = ("pipeline.layers", "experts.world")
"""Rules without which a point has no price."""

MOST_PLANS = 250
"""Plans that are priced for one question; beyond that the exhaustive engine answers."""


class Wrong(AssertionError):
    """A core or a way out is not what it says."""


class Oracle:
    """
    Every point of a program, and what the second face of each rule says of it.

    Points without a price are left out, unless none has one: where layers or experts cannot be laid
    out there is no plan to ask anything of. Where the rule that says so is itself left away they
    are what is left.
    """

    def __init__(self, form: Formulation, routes: Counter[str]) -> None:
        self.form, self.routes = form, routes
        domain = form.program.domain
        tables = [s for s in form.program.statements if isinstance(s, Table) and s.gives]
        early = [t for t in tables if not t.spans and set(t.keys) <= set(domain)]
        every = list(points(form.program))
        priced = [p for p in every if all(tuple(p[k] for k in t.keys) in t.index for t in early)]
        self.every, self.points = every, priced or every
        self.freed = False
        self.plans = [form.decode(point) for point in self.points]
        self._price = estimate(form.problem, self.plans[0]) if self.plans else None
        self._known: dict[str, NDArray[np.bool_]] = {}

    def check(self, found: Clash) -> None:
        """
        Check that no point obeys a clash, and that without any one of its rules some point does.

        To be asked of clashes in their order.

        Raises
        ------
        Wrong
            It is no clash, or not a minimal one.
        """
        rules = [self._rule(name) for name in found.rules]
        if self._meets(rules) and not self._within_rounding(rules):
            raise Wrong(f"a plan obeys all of {found.rules}")
        for name in found.rules:
            others = [rule for rule in rules if rule.name != name.split("[")[0]]
            freed = self.freed or name in LAID_OUT
            if not (self._meets(others) or (freed and self._meets_unpriced(others))):
                raise Wrong(f"{found.rules} clash without {name}")
        # A further clash is what remains when the rules of this one are gone.
        self.freed = self.freed or not set(LAID_OUT).isdisjoint(found.rules)

    def _rule(self, name: str) -> Rule:
        return next(rule for rule in self.form.rules if rule.name == name.split("[")[0])

    def _obeys(self, rule: Rule) -> NDArray[np.bool_]:
        """Ask a rule that needs no price of every point."""
        if rule.name not in self._known:
            assert self._price is not None
            self._known[rule.name] = np.array(
                [_holds(self.form, rule, plan, self._price) for plan in self.plans], dtype=bool
            )
        return self._known[rule.name]

    def _meets(self, rules: Sequence[Rule]) -> bool:
        """Tell whether a plan obeys some rules, by asking them of every plan."""
        if sum(map(_of_recompute, rules)) > 1:
            # A plan that recomputes all its layers is also one that recomputes some; limits that
            # are asked one by one might each be told another.
            self.routes["asked of the exhaustive engine"] += 1
            return self._engine_meets(rules)
        priced = [rule for rule in rules if _needs_price(rule)]
        left = np.ones(len(self.points), dtype=bool)
        for rule in rules:
            if not _needs_price(rule) and len(left):
                left &= self._obeys(rule)
        if not priced or not left.any():
            self.routes["asked of every point, second faces"] += 1
            return bool(left.any())
        asked = [self._rule("pipeline.layers"), *priced]
        seen = 0
        for i in np.flatnonzero(left).tolist():
            for full in handed_out(self.form, self.points[i]):
                seen += 1
                if seen > MOST_PLANS:
                    self.routes["asked of the exhaustive engine"] += 1
                    return self._engine_meets(rules)
                plan = self.form.decode(full)
                if self.points[i]["schedule"] != 0 and not equal_chunks(plan):
                    continue
                price = estimate(self.form.problem, plan)
                if all(_holds(self.form, rule, plan, price) for rule in asked):
                    self.routes["asked of every plan, second faces"] += 1
                    return True
        self.routes["asked of every plan, second faces"] += 1
        return False

    def _meets_unpriced(self, rules: Sequence[Rule]) -> bool:
        """Tell whether a point that cannot be laid out obeys all rules that can be asked of it."""
        assert self._price is not None
        self.routes["asked of points that cannot be laid out"] += 1
        laid = {tuple(sorted(point.items())) for point in self.points}
        asked = [rule for rule in rules if not _needs_price(rule)]
        return any(
            all(_holds(self.form, rule, plan, self._price) for rule in asked)
            for point, plan in zip(self.every, map(self.form.decode, self.every), strict=True)
            if tuple(sorted(point.items())) not in laid or self.points is self.every
        )

    def _within_rounding(self, rules: Sequence[Rule]) -> bool:
        """Tell whether a plan that obeys limits on time does so by what the verifier is laxer."""
        timed = [r for r in rules if isinstance(r, UserLimit) and "step_seconds" in r.sentence]
        return bool(timed) and not self._engine_meets(rules)

    def _engine_meets(self, rules: Sequence[Rule]) -> bool:
        """Ask the exhaustive engine of the program without the other rules."""
        kept = {rule.name for rule in rules}
        program = self.form.program
        others = frozenset(n for n in program.constraints if n.split("[")[0] not in kept)
        return bool(exhaustive.solve(program.without(others), SolverConfig()).best)


def _of_recompute(rule: Rule) -> bool:
    """Tell whether a rule is a limit of the user's on recomputation."""
    return isinstance(rule, UserLimit) and "recompute" in names(parse(rule.sentence))


def _needs_price(rule: Rule) -> bool:
    """Tell whether a rule asks for time or memory."""
    if isinstance(rule, UserLimit):
        return bool({"step_seconds", "peak_memory"} & set(names(parse(rule.sentence))))
    return rule.name.startswith("capacity.")


def _holds(form: Formulation, rule: Rule, plan: Plan, price: Estimate) -> bool:
    """Ask the second face of one rule."""
    return all(finding.holds for finding in rule.holds(form.problem, plan, price))
