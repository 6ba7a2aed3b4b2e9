"""Memory of a process: a limit on it, the most it ever held, and kills for want of it."""

from __future__ import annotations

import contextlib
from pathlib import Path

OOM_WORDS = (
    "out of memory",
    "can't allocate memory",
    "cannot allocate memory",
    "bad_alloc",
    "not enough memory",
)
"""What allocators say when memory runs out, in lower case."""


def limit_memory(count: int) -> None:
    """Let this process allocate no more than so many bytes, where the system can be told so."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_DATA, (count, count))


LIMITED_WORDS = ("resource temporarily unavailable", "can't start new thread")
"""What a process says that has no memory left for the stack of a thread."""


def is_out_of_memory(error: BaseException, limited: bool = False) -> bool:
    """
    Tell whether an error says that memory ran out.

    Parameters
    ----------
    limited
        Whether the process had a limit of its own, which threads may hit too.
    """
    words = (*OOM_WORDS, *(LIMITED_WORDS if limited else ()))
    cause: BaseException | None = error
    while cause is not None:
        text = str(cause).lower()
        if isinstance(cause, MemoryError) or any(word in text for word in words):
            return True
        cause = cause.__cause__ or cause.__context__
    return False


def reset_peak() -> bool:
    """Forget the most memory that this process held so far; False where that cannot be done."""
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        return False
    return True


def peak_bytes() -> int:
    """Most memory that was resident since the last reset, or since the process began."""
    found = _status("VmHWM")
    if found is not None:
        return found
    import resource
    import sys

    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


def resident_bytes() -> int:
    """Memory that is resident now; 0 where the system does not tell."""
    return _status("VmRSS") or 0


def _status(key: str) -> int | None:
    """Read one line of the process's status, in bytes."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    for line in lines:
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) * 1024
    return None


def kernel_kills() -> int:
    """Count the processes of this control group that the kernel killed for want of memory."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        own = Path("/proc/self/cgroup").read_text(encoding="ascii").splitlines()
        path = next(line.split(":", 2)[2] for line in own if line.startswith("0:"))
        events = Path(f"/sys/fs/cgroup{path}/memory.events").read_text(encoding="ascii")
        for line in events.splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return 0
