"""A bound derived anew in whole numbers, straight from the factored tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import product

from optplan.models.columns import FULL, PARTIAL
from optplan.models.program import Fits, Pipeline, Program, Statement, Table, follows
from optplan.solvers.settle import Point, Settler

EARLY = (("context", "ep", "etp", "recompute"), ("zero", "hsdp", "offload"))
"""Free choices by what they decide: first those of what a layer takes, then those of its states."""


@dataclass(frozen=True)
class Recheck:
    """
    What came of it.

    Parameters
    ----------
    better
        A plan whose goal is smaller than what was claimed; None where there is none.
    nodes
        Partial plans that were looked at.
    done
        Whether every point was accounted for.
    """

    better: Point | None
    nodes: int
    done: bool


def recheck(program: Program, claim: Fraction, most: int = 3_000_000) -> Recheck | None:
    """
    Look for a plan below a claimed bound, in whole numbers and fractions of them.

    Choices are made known one group after the other, straight from the factored tables. Whatever
    part of the space is at least as dear as the claim, whichever way its layers are handed out, is
    left there; the few points that remain have their layers handed out exactly, which is all that
    this has in common with the search.

    Parameters
    ----------
    claim
        No plan is said to have a smaller goal, in program units.
    most
        Partial plans to look at before giving up.

    Returns
    -------
    Recheck or None
        None where this cannot be told: goals other than time, and limits that ask for slowness.
    """
    if program.goal.of != "step_ticks" or program.pipeline is None:
        return None
    walk = _Walk(program, claim, most)
    if walk.settler.late.hard:
        return None
    return walk.run()


class _Walk:
    """A walk through the space, depth first."""

    def __init__(self, program: Program, claim: Fraction, most: int) -> None:
        self.program, self.claim, self.most = program, claim, most
        self.settler = Settler(program)
        self.pipeline = self.settler.pipeline
        self.nodes = 0
        spans = [s for s in program.statements if isinstance(s, Table) and s.spans]
        spanned = {key for table in spans for key in table.keys}
        free = {n: v for n, v in program.domain.items() if n not in spanned}
        single = {n: v[0] for n, v in free.items() if len(v) == 1}
        groups = [[n for n in group if n in free and n not in single] for group in EARLY]
        early = {n for group in EARLY for n in group}
        rest = [n for n in free if n not in single and n not in early]
        self.start: dict[str, int] = single
        self.levels: list[_Level] = []
        known = set(single)
        steps: list[Table | list[str]] = [spans[0], *spans[1:2], *groups, *spans[2:], rest]
        for step in steps:
            names = step.keys if isinstance(step, Table) else tuple(step)
            if not names:
                continue
            self.levels.append(_Level(step, names, tuple(n for n in names if n in known), program))
            known |= set(names)
        self._place_statements()

    def _place_statements(self) -> None:
        """Give every statement to the first level at which all that it reads is known."""
        late = self.settler.late
        waiting: list[Statement] = [
            s
            for s in self.program.statements
            if not isinstance(s, Pipeline | Fits)
            and s not in late
            and not (isinstance(s, Table) and s.spans)
        ]
        known = set(self.start)
        for level in self.levels:
            known |= set(level.names)
            rest: list[Statement] = []
            for statement in waiting:
                if set(statement.reads) <= known:
                    level.statements.append(statement)
                    known |= set(statement.defines)
                else:
                    rest.append(statement)
            waiting = rest

    def run(self) -> Recheck:
        """Walk."""
        try:
            better = self._below(dict(self.start), 0)
        except TimeoutError:
            return Recheck(None, self.nodes, False)
        return Recheck(better, self.nodes, True)

    def _below(self, at: dict[str, int], depth: int) -> Point | None:
        """Look below a partial plan."""
        if depth == len(self.levels):
            if self._too_large(at):
                return None
            full = self.settler.settle(at, self.claim)
            if full is not None and self.settler.goal(full) < self.claim:
                return full
            return None
        level = self.levels[depth]
        for more in level.rows(at):
            self.nodes += 1
            if self.nodes > self.most:
                raise TimeoutError
            known = at | more
            if not follows(level.statements, known) or self._as_dear(known):
                continue
            better = self._below(known, depth + 1)
            if better is not None:
                return better
        return None

    def _as_dear(self, at: Mapping[str, int]) -> bool:
        """Tell whether no plan below a partial one can undercut the claim."""
        if "layer_busy" not in at or "micro_batches" not in at:
            return False
        if self.program.goal.times and self.program.goal.times not in at:
            return False
        p, m, layers = at["pp"], at["micro_batches"], self.pipeline.layers
        # Stages are at best perfectly even; what is hidden is never more than what is exchanged.
        layer = at.get("layer", at["layer_busy"])
        layer += at["again"] if at["recompute"] == FULL else 0
        ends = min(0, at.get("front", at["front_busy"])) + min(0, at.get("back", at["back_busy"]))
        ticks = m * (layers * layer + ends)
        if "once_layer" in at:
            once = layers * at["once_layer"] + p * at["once_fixed"]
            ticks += once + p * min(0, at["once_front"]) + p * min(0, at["once_back"])
        if "hop_steady" in at:
            ticks += p * (at["hop_fill"] + m * at["hop_steady"])
        if not at.get("free", 1):
            ticks = max(ticks, p * self._chunks(at))
        ticks = min(ticks, p * self.pipeline.most)
        per = self.program.goal.divisor(at)
        return (
            ticks * self.claim.denominator * per.denominator
            >= self.claim.numerator * p * per.numerator
        )

    def _too_large(self, at: Mapping[str, int]) -> bool:
        """Tell whether all that a plan holds is more than all its stages have room for."""
        held = at["kept"] - (at["saved"] if at["recompute"] >= PARTIAL else 0)
        held = self.pipeline.layers * (held + at["weights_layer"] + at["optimizer_layer"])
        for end in ("front", "back"):
            held += at[f"weights_{end}"] + at[f"optimizer_{end}"] + at[f"kept_{end}"]
        return held > at["pp"] * (self.settler.room - at["fetched"])

    def _chunks(self, at: Mapping[str, int]) -> int:
        """Ticks of equal chunks, none or all of whose layers are computed again, parts aside."""
        m, q, chunk = at["micro_batches"], at["pp"] - 1, at["chunk"]
        again = at["again"] if at["recompute"] == FULL else 0
        busy = m * at["vpp"] * chunk * (at["layer"] + again)
        forward, weight = chunk * at["forward"], chunk * at["weight"]
        inputs = chunk * (at["layer"] + again) - forward - weight
        idle = 0
        for f1, f0, b1, b0, w1, w0 in self.pipeline.idle[at["schedule"]]:
            form = (f1 * q + f0) * forward + (b1 * q + b0) * inputs + (w1 * q + w0) * weight
            idle = max(idle, form)
        ends = m * (at["over_front"] + at["over_back"])
        if "hop_steady" in at:
            ends += m * at["hop_steady"] + at["hop_fill"]
        return busy + idle + ends + at.get("once_fixed", 0)


class _Level:
    """Choices that are made known together."""

    def __init__(
        self,
        step: Table | list[str],
        names: tuple[str, ...],
        shared: tuple[str, ...],
        program: Program,
    ) -> None:
        self.names = names
        self.shared = shared
        self.statements: list[Statement] = []
        self._by_key: dict[tuple[int, ...], list[dict[str, int]]] = {}
        rows = (
            step.rows.tolist()
            if isinstance(step, Table)
            else product(*(program.domain[name] for name in names))
        )
        domains = [set(program.domain[name]) for name in names]
        for row in rows:
            if all(number in domain for number, domain in zip(row, domains, strict=True)):
                found = dict(zip(names, row, strict=True))
                key = tuple(found[name] for name in shared)
                self._by_key.setdefault(key, []).append(found)

    def rows(self, at: Mapping[str, int]) -> Iterator[dict[str, int]]:
        """Yield what may follow a partial plan."""
        yield from self._by_key.get(tuple(at[name] for name in self.shared), ())
