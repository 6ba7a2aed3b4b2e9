"""How sure an answer is: plans within the error, the robust plan, flip points, as records."""

from __future__ import annotations

from optplan.models.cost.price import Estimate
from optplan.models.record import Record
from optplan.models.spec.plan import Plan


class Neighbour(Record):
    """A plan that the model's error cannot tell from the best."""

    plan: Plan
    """The plan."""
    step_seconds: float
    """Its step time."""
    behind: float
    """Share by which its price exceeds the best plan's."""
    differs: dict[str, str]
    """Choices in which it differs from the best plan, as ``2 -> 4``."""


class WithinError(Record):
    """Plans whose price is closer to the best plan's than the model's error on runs left out."""

    error: float
    """That error, a share of the step time."""
    calibration: str
    """Whose error it is."""
    shapes: int
    """Shapes within it, the best plan's own among them: plans that share degrees, virtual stages,
    micro-batch and schedule are one shape."""
    complete: bool
    """Whether nothing was left uncounted; else there are more."""
    values: dict[str, tuple[str, ...]]
    """Values that each choice takes among all plans within it, where the spec left it open."""
    common: dict[str, str]
    """Choices among those in which all these plans agree."""
    apart: tuple[Neighbour, ...] = ()
    """Plans among them that differ most from the best plan and from each other."""


class Axis(Record):
    """One side of the box: a constant of the calibration and the interval it may lie in."""

    constant: str
    """Field of the calibration."""
    low: float
    """Lower end; seconds or bytes where the constant has a unit."""
    value: float
    """Present value, inside."""
    high: float
    """Upper end."""
    origin: str
    """Where the interval is from."""


class Corner(Record):
    """A plan at one corner of the box, beside the best plan there."""

    constants: dict[str, float]
    """Values of the constants of the box."""
    step_seconds: float
    """Step time of the plan there."""
    best_seconds: float
    """Step time of the best plan there."""
    best: Plan
    """That plan."""
    regret: float
    """Share by which the plan's price there exceeds the best one's."""


class Robust(Record):
    """
    The plan whose largest regret over a box of constants is smallest.

    The regret of a plan under some constants is the share by which its price exceeds that of the
    best plan under them. All corners of the box and the present constants count.
    """

    box: tuple[Axis, ...]
    """Constants that move; all others stay."""
    scenarios: int
    """Corners of the box, and the present constants."""
    solved: int
    """How many of them were solved."""
    plan: Plan | None = None
    """The plan; none where no plan is possible at every corner, or none was found in time."""
    estimate: Estimate | None = None
    """What it costs under the present constants."""
    behind: float | None = None
    """Share by which its price exceeds the fastest plan's under the present constants."""
    worst_regret: float | None = None
    """Its largest regret, rounded up by what the optimum of a corner is not known to."""
    bound: float | None = None
    """No plan has a smaller largest regret."""
    proved: bool = False
    """Whether every plan was looked at or ruled out, so that the bound holds."""
    worst: Corner | None = None
    """Where its regret is largest."""
    nominal_regret: float | None = None
    """Largest regret of the plan that is best under the present constants; none where it is
    impossible at some corner."""
    nominal_worst: Corner | None = None
    """Where that is."""
    candidates: int = 0
    """Choices, layers apart, that no corner ruled out before their layers were handed out."""
    priced: int = 0
    """Plans that were priced at the corners."""
    inside: int = 0
    """Points inside of the box that were solved besides, drawn at random."""
    inside_regret: float | None = None
    """Largest regret of the plan at those."""
    why: str = ""
    """Why there is no plan, or why nothing is proved."""


class Flip(Record):
    """A value of one parameter at which another plan becomes the recommendation."""

    at: str
    """The value as it prints; right to its last digit."""
    value: float
    """The same in SI units, as the parameter is kept."""
    below: float
    """A value half a unit of the last digit below, where a problem was solved."""
    above: float
    """One half a unit above."""
    changes: dict[str, str]
    """Choices that change, as ``4 -> 8``; layers per stage may change besides."""
    plan: Plan | None
    """The plan beyond; none where no plan exists there."""


class Along(Record):
    """One parameter: where the recommendation changes first on either side of its value."""

    parameter: str
    """Its name in words."""
    now: str
    """Its present value as it prints."""
    low: str
    """Lowest value looked at."""
    high: str
    """Highest value looked at."""
    falls: Flip | None = None
    """Nearest change below the present value."""
    rises: Flip | None = None
    """Nearest change above it."""
    solved: int = 0
    """Problems that were solved along it."""
    complete: bool = True
    """Whether both sides were settled in time."""
    why: str = ""
    """What was not settled."""


class Flips(Record):
    """Flip points of all parameters that were looked at, one moved at a time."""

    along: tuple[Along, ...]
    """What was looked at."""
    untouched: tuple[str, ...] = ()
    """Parameters that move no price of any plan near the best, and were not looked at."""
    left: tuple[str, ...] = ()
    """Parameters for which the time was up."""
