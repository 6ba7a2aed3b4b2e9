"""Is PyTorch here: asked without importing it, refused with the remedy."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

from optplan.models.errors import Fault, InputError


def require_torch(command: str) -> str:
    """
    Return the version of PyTorch.

    Parameters
    ----------
    command
        What needs it, as a person typed it.

    Raises
    ------
    InputError
        It is not installed.
    """
    try:
        if find_spec("torch") is None:
            raise PackageNotFoundError("torch")
        return version("torch")
    except PackageNotFoundError:
        problem = f"{command} runs on PyTorch, which is not installed here"
        remedy = 'install the extra: pip install "optplan[profile]"'
        raise InputError([Fault("", "", problem, remedy)]) from None
