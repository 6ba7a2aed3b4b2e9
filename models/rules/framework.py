"""What the launcher can do, as rules that an explanation can name."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from optplan.models.domains import WORDS
from optplan.models.program import Integers
from optplan.models.rules.registry import Legal, code_of, rule
from optplan.models.rules.search import Listed
from optplan.models.spec.plan import Plan
from optplan.models.spec.problem import Problem


class Framed(Listed):
    """One choice that the framework narrows."""

    def __init__(self, problem: Problem, choice: str, values: tuple[int, ...]) -> None:
        assert problem.framework is not None
        super().__init__(choice, values)
        self.name = f"framework.{choice}"
        self.sentence = f"{problem.framework.name} launches {choice} in {self.words}"
        self.source = problem.framework.sources.get(choice, problem.framework.name)

    def shown(self, plan: Plan) -> object:
        """Name the code: what a plan calls full, a framework may launch as partial."""
        code = code_of(plan, self.choice)
        return WORDS[self.choice][code] if self.choice in WORDS else code


@rule
class ZeroWithPipeline(Legal):
    """Gradients that are shared among data ranks do not wait for a pipeline everywhere."""

    name = "framework.zero_with_pipeline"
    sentence = "with more than one stage the ZeRO stage is one that the framework allows there"
    source = "the framework's documentation, see optplan catalogue FRAMEWORK"
    keys = ("pp", "zero")

    def applies(self, problem: Problem) -> bool:
        """Ask the framework."""
        return problem.framework is not None and problem.framework.zero_with_pipeline < 3

    def legal(self, problem: Problem, *values: Integers) -> NDArray[np.bool_]:
        """Compare where there are stages."""
        assert problem.framework is not None
        most = problem.framework.zero_with_pipeline
        return np.asarray((values[0] == 1) | (values[1] <= most), dtype=bool)

    def why(self, problem: Problem, *values: int) -> str:
        """Name both and what is legal."""
        assert problem.framework is not None
        most = problem.framework.zero_with_pipeline
        text = f"zero {values[1]} at pp {values[0]}"
        ok = values[0] == 1 or values[1] <= most
        return (
            text
            if ok
            else f"{text}; {problem.framework.name} allows up to zero {most} there, or pp 1"
        )


@rule
class UnshardedAlone(Legal):
    """Plain data parallelism goes with nothing else where the framework says so."""

    name = "framework.unsharded_alone"
    sentence = "several data ranks without ZeRO go with no other parallelism in this framework"
    source = "the framework's documentation, see optplan catalogue FRAMEWORK"
    keys = ("tp", "pp", "dp", "cp", "zero")

    def applies(self, problem: Problem) -> bool:
        """Ask the framework."""
        return problem.framework is not None and problem.framework.unsharded_alone

    def legal(self, problem: Problem, *values: Integers) -> NDArray[np.bool_]:
        """Ask for one kind of parallelism."""
        tp, pp, dp, cp, zero = values
        return np.asarray((zero > 0) | (dp == 1) | (tp * pp * cp == 1), dtype=bool)

    def why(self, problem: Problem, *values: int) -> str:
        """Name the degrees and the way out."""
        tp, pp, dp, cp, zero = values
        text = f"zero {zero} with dp {dp}, tp {tp}, pp {pp}, cp {cp}"
        ok = zero > 0 or dp == 1 or tp * pp * cp == 1
        return text if ok else f"{text}; legal: zero 3, or tp = pp = cp = 1"


@rule
class ExpertTensor(Legal):
    """Some frameworks split experts as the dense layers, or not at all."""

    name = "framework.expert_tensor"
    sentence = "etp is one of the degrees that the framework gives experts"
    source = "the framework's documentation, see optplan catalogue FRAMEWORK"
    keys = ("tp", "etp")

    def applies(self, problem: Problem) -> bool:
        """Ask the framework, where there are experts."""
        known = problem.framework
        experts = problem.workload.architecture.experts
        return known is not None and experts is not None and known.expert_tensor_degrees != "any"

    def legal(self, problem: Problem, *values: Integers) -> NDArray[np.bool_]:
        """Compare."""
        assert problem.framework is not None
        tp, etp = values
        alone = etp == 1
        if problem.framework.expert_tensor_degrees == "one":
            return np.asarray(alone, dtype=bool)
        return np.asarray(alone | (etp == tp), dtype=bool)

    def why(self, problem: Problem, *values: int) -> str:
        """Name both and what is legal."""
        assert problem.framework is not None
        one = problem.framework.expert_tensor_degrees == "one"
        return f"tp {values[0]}, etp {values[1]}; legal: etp 1" + ("" if one else " or tp")


@rule
class ExpertsWithContext(Legal):
    """Old versions split either the sequence or the experts."""

    name = "framework.experts_with_context"
    sentence = "ep and cp are not both above 1 in this framework"
    source = "the framework's documentation, see optplan catalogue FRAMEWORK"
    keys = ("cp", "ep")

    def applies(self, problem: Problem) -> bool:
        """Ask the framework, where there are experts."""
        experts = problem.workload.architecture.experts
        known = problem.framework
        return known is not None and experts is not None and not known.experts_with_context

    def legal(self, problem: Problem, *values: Integers) -> NDArray[np.bool_]:
        """Ask for one of them."""
        return np.asarray((values[0] == 1) | (values[1] == 1), dtype=bool)

    def why(self, problem: Problem, *values: int) -> str:
        """Name both."""
        return f"cp {values[0]}, ep {values[1]}; legal: one of them 1, the other as it is"
