"""Which accelerators are here: asked in a process of its own, which may spoil itself by asking."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

from optplan.models.errors import Fault, InputError
from optplan.ranks.job import DEVICES, Device
from optplan.ranks.pool import Pool
from optplan.ranks.rank import Here

ASKING_SECONDS = 120.0


def count(here: Here, arguments: dict[str, Any]) -> dict[str, int]:
    """Count the devices of each kind that PyTorch can use."""
    import torch

    found = {"cuda": int(torch.cuda.device_count()) if torch.cuda.is_available() else 0, "npu": 0}
    try:
        import_module("torch_npu")
    except Exception:  # whatever an extension raises, it cannot be used
        return found
    found["npu"] = int(torch.npu.device_count()) if torch.npu.is_available() else 0
    return found


def chosen(device: str, processes: int | None, option: str = "--device") -> tuple[Device, int]:
    """
    Choose a kind of device and how many processes work on it.

    Parameters
    ----------
    device
        ``auto`` or a kind.
    processes
        How many are asked for; none for as many as there are devices, or processors, the next
        lower power of two.

    Raises
    ------
    InputError
        There is no such device, or not so many.
    """
    if device not in ("auto", *DEVICES):
        remedy = f"write auto, {', '.join(DEVICES)}"
        raise InputError([Fault("", option, f"'{device}' is no kind of device", remedy)])
    kind: Device = "cpu"
    here = os.cpu_count() or 1
    if device != "cpu":
        with Pool("cpu") as pool:
            ending = pool.run("optplan.ranks.devices:count", 1, {}, ASKING_SECONDS)
        counts = ending.results[0] if ending.outcome == "ok" else {"cuda": 0, "npu": 0}
        kinds: tuple[Device, ...] = ("cuda", "npu")
        asked = [one for one in kinds if device in ("auto", one) and counts[one]]
        if not asked and device != "auto":
            raise InputError([Fault("", option, f"PyTorch sees no {device} here", "write cpu")])
        if asked:
            kind, here = asked[0], counts[asked[0]]
            if processes is not None and processes > here:
                problem = f"{processes} processes, and {here} devices of kind {kind}"
                raise InputError([Fault("", "--processes", problem, f"at most {here}")])
    return kind, processes if processes is not None else 1 << (here.bit_length() - 1)
