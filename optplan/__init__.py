"""The fastest way to lay out a transformer's training, proved under a stated cost model."""

from __future__ import annotations

import sys
from importlib import import_module, metadata
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from optplan.calibrate import calibrate
    from optplan.compare import compare
    from optplan.doctor import doctor
    from optplan.evaluate import evaluate
    from optplan.explain import explain
    from optplan.export import export
    from optplan.flips import flips
    from optplan.live import cp_model, of_choices, plan_in, pyomo_model
    from optplan.load import load
    from optplan.measuring.measure import measure
    from optplan.models.builder import Builder
    from optplan.models.cost.calibration import Calibration
    from optplan.models.cost.price import Estimate
    from optplan.models.errors import Fault, InputError, OptplanError, OwnFault, QuantityError
    from optplan.models.expression import choice
    from optplan.models.rules.registry import Finding, Rule
    from optplan.models.spec.cluster import Accelerator, Cluster
    from optplan.models.spec.plan import Plan
    from optplan.models.spec.problem import Problem
    from optplan.models.spec.space import Limit, Search
    from optplan.models.spec.workload import Architecture, Workload
    from optplan.own_rules import installed_rules, read_rules
    from optplan.planner import solve
    from optplan.profiling.profile import profile
    from optplan.report import report
    from optplan.result import Result
    from optplan.robust import robust
    from optplan.size import size
    from optplan.solvers.base import Holding, SolverConfig, Termination
    from optplan.sweep import Sweep, read_sweep, sweep
    from optplan.tables import Table
    from optplan.validate import validate
    from optplan.verify import verify
    from optplan.written import write_model

    __version__: str

__all__ = [
    "Accelerator",
    "Architecture",
    "Builder",
    "Calibration",
    "Cluster",
    "Estimate",
    "Fault",
    "Finding",
    "Holding",
    "InputError",
    "Limit",
    "OptplanError",
    "OwnFault",
    "Plan",
    "Problem",
    "QuantityError",
    "Result",
    "Rule",
    "Search",
    "SolverConfig",
    "Sweep",
    "Table",
    "Termination",
    "Workload",
    "__version__",
    "calibrate",
    "choice",
    "compare",
    "cp_model",
    "doctor",
    "evaluate",
    "explain",
    "export",
    "flips",
    "installed_rules",
    "load",
    "measure",
    "of_choices",
    "plan_in",
    "profile",
    "pyomo_model",
    "read_rules",
    "read_sweep",
    "report",
    "robust",
    "size",
    "solve",
    "sweep",
    "validate",
    "verify",
    "write_model",
]

_HOMES = {
    "Accelerator": "optplan.models.spec.cluster",
    "Architecture": "optplan.models.spec.workload",
    "Builder": "optplan.models.builder",
    "Calibration": "optplan.models.cost.calibration",
    "Cluster": "optplan.models.spec.cluster",
    "Estimate": "optplan.models.cost.price",
    "Fault": "optplan.models.errors",
    "Finding": "optplan.models.rules.registry",
    "Holding": "optplan.solvers.base",
    "InputError": "optplan.models.errors",
    "Limit": "optplan.models.spec.space",
    "OptplanError": "optplan.models.errors",
    "OwnFault": "optplan.models.errors",
    "Plan": "optplan.models.spec.plan",
    "Problem": "optplan.models.spec.problem",
    "QuantityError": "optplan.models.errors",
    "Result": "optplan.result",
    "Rule": "optplan.models.rules.registry",
    "Search": "optplan.models.spec.space",
    "SolverConfig": "optplan.solvers.base",
    "Sweep": "optplan.sweep",
    "Table": "optplan.tables",
    "Termination": "optplan.solvers.base",
    "Workload": "optplan.models.spec.workload",
    "calibrate": "optplan.calibrate",
    "choice": "optplan.models.expression",
    "compare": "optplan.compare",
    "cp_model": "optplan.live",
    "doctor": "optplan.doctor",
    "evaluate": "optplan.evaluate",
    "explain": "optplan.explain",
    "export": "optplan.export",
    "flips": "optplan.flips",
    "installed_rules": "optplan.own_rules",
    "load": "optplan.load",
    "measure": "optplan.measuring.measure",
    "of_choices": "optplan.live",
    "plan_in": "optplan.live",
    "profile": "optplan.profiling.profile",
    "pyomo_model": "optplan.live",
    "read_rules": "optplan.own_rules",
    "read_sweep": "optplan.sweep",
    "report": "optplan.report",
    "robust": "optplan.robust",
    "size": "optplan.size",
    "solve": "optplan.planner",
    "sweep": "optplan.sweep",
    "validate": "optplan.validate",
    "verify": "optplan.verify",
    "write_model": "optplan.written",
}
"""Where each public name lives; it is imported when first asked for."""


if not TYPE_CHECKING:  # a checker knows the names above, and shall refuse any other

    def __getattr__(name: str) -> object:
        """Import a public name when first asked for it, so that ``import optplan`` is light."""
        if name == "__version__":
            return _version()
        if name not in _HOMES:
            raise AttributeError(f"module 'optplan' has no attribute {name!r}")
        value = getattr(import_module(_HOMES[name]), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted(__all__)


def _version() -> str:
    """Version of the installed distribution, or ``0+uninstalled`` when run from a bare checkout."""
    try:
        return metadata.version("optplan")
    except metadata.PackageNotFoundError:
        return "0+uninstalled"


class _Package(ModuleType):
    """
    Keep ``optplan.load`` and its like the functions, though modules of these names exist.

    Importing a submodule binds it on its package and would hide the function of the same name,
    depending on who imported what first. Here the function is bound instead. The module stays
    reachable by ``from optplan.load import ...``.
    """

    def __setattr__(self, name: str, value: object) -> None:
        if isinstance(value, ModuleType) and _HOMES.get(name) == value.__name__:
            value = getattr(value, name)
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
