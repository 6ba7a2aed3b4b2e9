"""Where experts go: products and divisibility of their own two degrees."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from optplan.models.numbers import divisors, listed
from optplan.models.program import Integers
from optplan.models.rules.registry import Legal, rule
from optplan.models.spec.problem import Problem


class _WithExperts(Legal):
    """A rule that a workload without experts has no use for."""

    def applies(self, problem: Problem) -> bool:
        """Ask for experts."""
        return problem.workload.architecture.experts is not None


@rule
class Count(_WithExperts):
    """Every expert rank holds as many experts."""

    name = "experts.count"
    sentence = "ep divides the experts, etp their width"
    source = "Megatron-LM, training/arguments.py: number of experts divisible by the expert degree"
    keys = ("ep", "etp")

    def legal(self, problem: Problem, *values: Integers) -> NDArray[np.bool_]:
        """Divide."""
        experts = problem.workload.architecture.experts
        assert experts is not None
        return np.asarray((experts.count % values[0] == 0) & (experts.ffn % values[1] == 0), bool)

    def why(self, problem: Problem, *values: int) -> str:
        """Name counts and legal degrees."""
        experts = problem.workload.architecture.experts
        assert experts is not None
        text = f"ep {values[0]} of {experts.count} experts, etp {values[1]} of width {experts.ffn}"
        if experts.count % values[0]:
            return f"{text}; legal: ep in {listed(divisors(experts.count))}; or raise etp or pp"
        if experts.ffn % values[1]:
            return f"{text}; legal: etp in {listed(divisors(experts.ffn))}; or raise ep or pp"
        return text


@rule
class World(_WithExperts):
    """Experts and dense layers divide the same devices of a pipeline stage, each in its own way."""

    name = "experts.world"
    sentence = "ep * etp divides tp * cp * dp, the devices of a pipeline stage"
    source = (
        "Megatron-LM, core/parallel_state.py: world = pp tp cp dp = pp etp ep edp, with the "
        "expert data degree whatever is left"
    )
    keys = ("tp", "cp", "dp", "ep", "etp")

    def legal(self, problem: Problem, *values: Integers) -> NDArray[np.bool_]:
        """Divide."""
        tp, cp, dp, ep, etp = values
        return np.equal(tp * cp * dp % (ep * etp), 0)

    def why(self, problem: Problem, *values: int) -> str:
        """Print the group products."""
        tp, cp, dp, ep, etp = values
        dense, expert = tp * cp * dp, ep * etp
        text = (
            f"dense tp {tp} * cp {cp} * dp {dp} = {dense}, experts ep {ep} * etp {etp} = {expert}"
        )
        known = problem.framework
        if known is not None and not known.expert_tensor and tp > 1:
            text += f" (etp = tp, the default of {known.name})"
        if dense % expert == 0:
            return f"{text} * expert dp {dense // expert}"
        legal = [d for d in divisors(dense) if dense % (d * etp) == 0]
        if not legal:
            return f"{text}; legal at ep {ep}: etp in {listed(divisors(dense))}; or a larger dp"
        return f"{text}; legal at etp {etp}: ep in {listed(legal)}; or another etp or dp"


@rule
class Tensor(_WithExperts):
    """Without a tensor degree of their own, experts are split as everything else is."""

    name = "experts.etp"
    sentence = "etp is tp where the framework has no tensor degree for experts alone"
    source = "the framework's documentation, see optplan catalogue FRAMEWORK"
    keys = ("tp", "etp")

    def applies(self, problem: Problem) -> bool:
        """Ask the framework."""
        known = problem.framework
        return super().applies(problem) and known is not None and not known.expert_tensor

    def legal(self, problem: Problem, *values: Integers) -> NDArray[np.bool_]:
        """Compare."""
        return np.equal(values[0], values[1])

    def why(self, problem: Problem, *values: int) -> str:
        """Name both, and the default that was applied."""
        tp, etp = values
        text = f"tp {tp}, etp {etp}; the framework sets etp = tp"
        return text if tp == etp else f"{text}; legal: etp {tp}; or tp {etp}, or a larger ep"


@rule
class Sequence(_WithExperts):
    """Tokens are sent to experts from a sequence that the tensor group has split."""

    name = "experts.sequence_parallel"
    sentence = "experts with tp >= 2 need sequence parallelism"
    source = (
        "Megatron-LM, core/transformer/moe/moe_layer.py: refuses experts with tp but without it"
    )
    keys = ("tp", "sequence_parallel")

    def legal(self, problem: Problem, *values: Integers) -> NDArray[np.bool_]:
        """Ask both."""
        return np.asarray((values[0] == 1) | (values[1] == 1), dtype=bool)

    def why(self, problem: Problem, *values: int) -> str:
        """Name both."""
        tp, on = values
        return f"tp {tp}, sequence parallelism {'on' if on else 'off'}" + (
            "" if tp == 1 or on else "; legal: on, or tp 1 with a larger ep"
        )
