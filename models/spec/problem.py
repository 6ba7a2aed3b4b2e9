"""Everything one call needs, resolved and checked: the instance that is formulated."""

from __future__ import annotations

import hashlib
import json
from typing import Annotated, Literal, get_args

from pydantic import Discriminator, Field, Tag, model_validator

from optplan.models.cost.calibration import Calibration, Lump
from optplan.models.record import Record
from optplan.models.spec.cluster import Cluster
from optplan.models.spec.framework import Feature, Framework
from optplan.models.spec.space import Limit, Search, kind_of_value
from optplan.models.spec.surcharge import Surcharge
from optplan.models.spec.workload import Workload

Prices = Literal["canonical", "paper"]

GoalName = Literal["fastest", "cheapest", "least-energy", "most-headroom", "fewest-devices"]
"""What a plan can be best at."""

GOALS: tuple[GoalName, ...] = get_args(GoalName)

TIMED: tuple[GoalName, ...] = ("fastest", "cheapest", "least-energy")
"""Goals that are a time, or a time by the devices that are held meanwhile."""

Goals = Annotated[
    Annotated[GoalName, Tag("value")]
    | Annotated[
        Annotated[tuple[GoalName, ...], Field(min_length=1, max_length=len(GOALS))], Tag("list")
    ],
    Discriminator(kind_of_value),
]
"""One goal, or a list of goals to weigh against each other."""


class Problem(Record):
    """A workload, a cluster, what may be chosen and what must hold."""

    workload: Workload
    """What is to be trained."""
    cluster: Cluster
    """Where it is to be trained."""
    search: Search
    """What may be chosen."""
    limits: tuple[Limit, ...] = Field(default=(), max_length=200)
    """The user's own constraints."""
    surcharges: tuple[Surcharge, ...] = Field(default=(), max_length=20)
    """Seconds that the user's own reckoning adds to every step."""
    framework: Framework | None = None
    """What the launcher can do, or its name and version; left out: whatever any launcher can."""
    overlap: tuple[Feature, ...] | None = None
    """Overlaps that are switched on; left out: as the calibration found them."""
    goal: Goals = "fastest"
    """What the best plan is best at; a list asks for every plan that no other beats in all of
    them, and the first of the list is what the one plan shown is best at."""
    prices: Prices = "canonical"
    """``canonical``: every term; ``paper``: Eq. 1 of arXiv 2501.00254 literally."""
    calibration: Calibration
    """The measured constants, or the name of a shipped set; left out: the accelerator's own."""

    @model_validator(mode="after")
    def _consistent(self) -> Problem:
        peak = self.cluster.accelerator.peak
        if self.workload.precision not in peak:
            raise ValueError(
                f"precision {self.workload.precision} has no peak on accelerator "
                f"{self.cluster.accelerator.name}; known there: {', '.join(peak)}"
            )
        missing = [
            f for f in self.overlap or () if self.framework and f not in self.framework.features
        ]
        if missing and self.framework:
            raise ValueError(
                f"{self.framework.name} has no {', '.join(missing)}; it has "
                f"{', '.join(self.framework.features) or 'none'}"
            )
        self._check_goals()
        if self.surcharges and self.prices == "paper":
            raise ValueError(
                "surcharges are no part of Eq. 1; leave them out, or take prices: canonical"
            )
        for kind, named in (("limits", self.limits), ("surcharges", self.surcharges)):
            names = [one.name for one in named]
            twice = sorted({name for name in names if names.count(name) > 1})
            if twice:
                raise ValueError(f"{kind} share the name {', '.join(twice)}; give each its own")
        return self

    def _check_goals(self) -> None:
        """Refuse goals that cannot be weighed, or whose prices are missing."""
        goals, cluster = self.goals, self.cluster
        twice = sorted({goal for goal in goals if goals.count(goal) > 1})
        if twice:
            raise ValueError(f"goal names {', '.join(twice)} twice; name each once")
        if goals[0] == "fewest-devices":
            raise ValueError(
                "goal fewest-devices stands after another goal, as in [fastest, fewest-devices]; "
                "'optplan size' finds the fewest devices alone"
            )
        if "cheapest" in goals and cluster.device_price is None:
            raise ValueError(
                "goal cheapest needs the price of a device; "
                "add it under cluster, such as 'price: 2.50 USD/h'"
            )
        if "least-energy" in goals and cluster.accelerator.power is None:
            raise ValueError(
                f"goal least-energy needs the power of accelerator {cluster.accelerator.name}, "
                "which is not known; name another goal, or write the accelerator out with its "
                "power, such as 'power: 700 W'"
            )

    @property
    def goals(self) -> tuple[GoalName, ...]:
        """All goals, the first one first."""
        return (self.goal,) if isinstance(self.goal, str) else self.goal

    @property
    def main_goal(self) -> GoalName:
        """What the one plan that is shown is best at."""
        return self.goals[0]

    @property
    def devices(self) -> int:
        """Accelerators in all."""
        return self.cluster.devices

    def with_cluster(self, **changed: object) -> Problem:
        """Return the same problem on a changed cluster, which is not checked anew."""
        cluster = self.cluster.model_copy(update=changed)
        return self.model_copy(update={"cluster": cluster})

    def with_accelerator(self, **changed: object) -> Problem:
        """Return the same problem on changed devices, which are not checked anew."""
        return self.with_cluster(accelerator=self.cluster.accelerator.model_copy(update=changed))

    def with_calibration(self, **changed: object) -> Problem:
        """Return the same problem under changed constants, which are not checked anew."""
        calibration = self.calibration.model_copy(update=changed)
        return self.model_copy(update={"calibration": calibration})

    @property
    def accuracy(self) -> Calibration | Lump:
        """Whose held-out error holds for these prices: Eq. 1's own fit or the whole calibration."""
        lump = self.calibration.lump
        return lump if self.prices == "paper" and lump is not None else self.calibration

    @property
    def fingerprint(self) -> str:
        """Hash of everything that the plan depends on; equal problems have equal fingerprints."""
        whole = self.model_dump(mode="json", exclude={"calibration": {"intervals"}})
        if not self.surcharges:
            del whole["surcharges"]
        text = json.dumps(whole, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()
