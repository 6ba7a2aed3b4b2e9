"""What a call returns: plan, estimate, certificate and explanation as frozen records."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from optplan.models.cost.price import Estimate
from optplan.models.record import Record
from optplan.models.spec.plan import Plan
from optplan.models.spec.problem import Problem
from optplan.sureness import Flips, Robust, WithinError

if TYPE_CHECKING:
    from optplan.tables import Table

FORMAT = 1
"""Version of the JSON form; keys are only ever added within one version."""


class Reply(Record):
    """The answer to a command."""

    def to_json(self) -> str:
        """Render as JSON, keys in a fixed order."""
        return json.dumps(self.model_dump(mode="json"), indent=1, allow_nan=False)

    def table(self) -> Table:
        """Return the rows of the answer, for a file, a notebook or a data frame."""
        from optplan.tables import table_of

        return table_of(self)


class Status(Record):
    """How a search ended."""

    termination: str
    """Why it stopped: proved, exhausted, time-limit, interrupted, unsupported or failed."""
    holding: str
    """What it holds: nothing, feasible or optimal."""


class Certificate(Record):
    """Why no better plan exists, in numbers that another machine can recompute."""

    fingerprint: str
    """Hash of the problem."""
    goal: float | None
    """Price of the plan in the goal's unit, in floats."""
    bound: float | None
    """No plan is cheaper than this, in the goal's unit."""
    unit: str
    """The goal's unit."""
    bound_seconds: float | None
    """The bound as seconds of a step at the plan's global batch; none for goals other than time."""
    gap: float | None
    """``(goal - bound) / goal``, rounding of the program's whole ticks included."""
    tick_seconds: float
    """What one unit of the program's time columns is worth."""
    points: int
    """Points of the space."""
    strategies_log10: float = 0.0
    """Decimal logarithm of the joint strategies: points, each with every way to hand out layers."""
    removed_by_rule: dict[str, int]
    """Points by the first rule that refused them; rules that refused none are left out."""
    removed_by_bound: int
    """Points whose bound exceeds the best plan, whatever rules were still to be asked of them."""
    left: int
    """Points the prover had to decide."""
    prunings: dict[str, int]
    """Points skipped by each declared fact (paper engine)."""
    priced: int
    """Points whose price was computed."""
    engine: str
    """Engine and version."""
    seed: int
    """Random seed of the engine."""


class Alternative(Record):
    """A next-best plan."""

    plan: Plan
    """The plan."""
    step_seconds: float
    """Its step time."""
    tokens_per_second_per_device: float
    """Its throughput."""
    peak_bytes: int
    """Its memory on the fullest device."""
    behind: float
    """Share by which its price exceeds the best plan's."""


class Costs(Record):
    """What a plan costs beside its time."""

    devices: int
    """Devices in use."""
    idle_devices: int
    """Devices of the cluster that are left idle."""
    held_devices: int
    """Devices that are paid for and powered, as ``cluster.held`` has it."""
    tokens_per_second: float
    """Throughput of the whole job."""
    money_per_billion_tokens: float | None = None
    """In units of the currency; none where no price is known."""
    currency: str | None = None
    """Three letters; none where no price is known."""
    joules_per_token: float | None = None
    """At most: data-sheet power of every held device, all the time; none where it is unknown."""


class FrontPoint(Record):
    """A plan that no other beats in every goal that was asked."""

    plan: Plan
    """The plan."""
    step_seconds: float
    """Its step time."""
    peak_bytes: int
    """Its memory on the fullest device."""
    costs: Costs
    """Its devices, money and energy."""
    values: dict[str, float]
    """Its value by goal: seconds, money and joules a sequence, bytes, devices; small is good."""
    proved: str
    """The goal that no plan within this point's memory and devices has smaller."""
    gap: float
    """Share by which such a plan could at most undercut it in that goal."""


class FrontClaim(Record):
    """What is claimed of a front as a whole."""

    complete: bool
    """Whether nothing is missing from it."""
    goals: tuple[str, ...]
    """The goals weighed."""
    alike: tuple[str, ...] = ()
    """Goals that move with another one on this cluster, so that they weigh nothing."""
    resolution_bytes: int
    """A plan that is missing from a complete front has no more than so much less memory than a
    point that is no worse in every other goal; 0 where it counts to the byte, or is no goal."""
    solves: int
    """Optima that were proved for it."""
    why: str = ""
    """Why it is not complete."""


class Reason(Record):
    """One rule of a clash."""

    rule: str
    """The rule's name."""
    sentence: str
    """What it demands."""
    text: str
    """How far the nearest plan misses it, in numbers, and what would be legal."""
    plan: Plan | None = None
    """The nearest plan: it breaks this rule alone, or of this clash this one alone."""
    details: tuple[str, ...] = ()
    """Of memory: what the nearest plan holds, and what the usual remedies would do to it."""


Kind = Literal[
    "choice", "limit", "framework", "memory", "workload", "devices", "accelerator", "several"
]
"""What a way out changes, cheapest first: the spec's own wishes, what is held, what is bought."""


class WayOut(Record):
    """A change that makes the problem solvable, and what it costs."""

    change: str
    """What to change."""
    kind: Kind = "several"
    """What sort of change that is."""
    edit: dict[str, Any] = Field(default_factory=dict)
    """
    The same as keys of the spec and their new values, none to leave a key out; ``limits`` lists
    the names of limits to drop.
    """
    note: str = ""
    """What was assumed."""
    step_seconds: float
    """Step time of the best plan after the change."""
    tokens_per_second_per_device: float
    """Its throughput."""
    plan: Plan
    """That plan."""


class Explanation(Record):
    """Why there is no plan."""

    core: tuple[Reason, ...] = ()
    """Rules that no plan obeys together; without any one of them the others can hold."""
    further: tuple[tuple[Reason, ...], ...] = ()
    """Clashes that remain when the core is resolved, each minimal too."""
    ways_out: tuple[WayOut, ...] = ()
    """Changes that help, each one solved."""
    complete: bool = True
    """Whether every change that was thought of was settled, rather than cut short by the clock."""


class Verdict(Record):
    """What the rules say of a plan, one by one."""

    holds: bool
    """All of them hold."""
    broken: dict[str, str]
    """Broken rules and the numbers behind."""
    kept: dict[str, str]
    """Rules that hold and the numbers behind."""


class Result(Reply):
    """The answer to ``solve``."""

    format: int = FORMAT
    """Version of this form."""
    status: Status
    """How the search ended."""
    plan: Plan | None
    """The best plan found."""
    estimate: Estimate | None
    """What it costs."""
    certificate: Certificate
    """Why nothing is better."""
    alternatives: tuple[Alternative, ...] = ()
    """Next-best plans at the same global batch, best first."""
    within_error: WithinError | None = None
    """Plans at the same global batch that the model's error cannot tell from the best; none where
    that error is unknown."""
    robust: Robust | None = None
    """The plan with the smallest worst-case regret, where it was asked for."""
    flips: Flips | None = None
    """Where the recommendation changes, where it was asked for."""
    explanation: Explanation = Explanation()
    """Why there is no plan, where there is none."""
    verdict: Verdict | None = None
    """The verifier's word on the plan."""
    costs: Costs | None = None
    """Devices, money and energy of the plan."""
    front: tuple[FrontPoint, ...] = ()
    """Where several goals were asked: every plan that none beats in all, first goal's best first.
    """
    front_claim: FrontClaim | None = None
    """What is claimed of the front."""
    warnings: tuple[str, ...] = ()
    """What a careful reader should know."""
    rules: tuple[str, ...] = ()
    """Names of the caller's own rules, which are not part of the problem."""
    digest: str = ""
    """Hash of everything above and of the problem, so that no single value changes unseen."""
    seconds: dict[str, float] = Field(default_factory=dict)
    """Where the time of this call went; not part of the answer."""
    problem: Problem
    """The question, with every catalogue name resolved."""

    @property
    def exit_code(self) -> int:
        """0 plan (and front) proven, 1 no plan exists, 3 nothing proven in time."""
        if self.status.holding == "optimal":
            return 3 if self.front_claim and not self.front_claim.complete else 0
        return 1 if self.status.termination in ("proved", "exhausted") else 3

    def _repr_html_(self) -> str:
        """Show a small card in a notebook."""
        from optplan.report.html.card import card

        return card(self)

    def computed_digest(self) -> str:
        """Hash everything but the digest itself and the time spent."""
        told = self.model_dump(mode="json", exclude={"digest", "seconds"})
        text = json.dumps(told, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    def sealed(self) -> Result:
        """Return the same result with its digest filled in."""
        return self.model_copy(update={"digest": self.computed_digest()})


class Evaluation(Reply):
    """The answer to ``evaluate``."""

    format: int = FORMAT
    """Version of this form."""
    plan: Plan
    """The plan, completed where it was partial."""
    chosen: tuple[str, ...]
    """Choices that the plan left open and that were made for it."""
    estimate: Estimate
    """What it costs."""
    verdict: Verdict
    """What the rules say."""
    optimum: Alternative | None
    """The best plan of the same spec."""
    behind: float | None
    """Share by which the plan's price exceeds the optimum's."""
    terms_behind: dict[str, float]
    """Seconds by term that the plan spends beyond the optimum, per step."""
    warnings: tuple[str, ...] = ()
    """What a careful reader should know."""
    problem: Problem
    """The question."""

    @property
    def exit_code(self) -> int:
        """0 every rule holds, 1 some rule is broken."""
        return 0 if self.verdict.holds else 1
