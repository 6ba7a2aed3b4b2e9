"""The few ways an input can be wrong, each with place, value and remedy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    """
    One thing that is wrong with an input.

    Parameters
    ----------
    place
        Where it stands: ``spec.yaml:7:31``, or ``--set tp`` for the command line; empty when
        unknown.
    path
        Which value it is, in dots: ``cluster.network``; empty for the input as a whole.
    problem
        What is wrong, quoting the value as it was written.
    remedy
        What would be right.
    """

    place: str
    path: str
    problem: str
    remedy: str

    def __str__(self) -> str:
        """Render as ``place: path: what is wrong; what would be right`` on one line."""
        head = "".join(f"{part}: " for part in (self.place, self.path) if part)
        text = f"{head}{self.problem}; {self.remedy}"
        return printable(text)


def printable(text: str) -> str:
    """Return a text on one line, whatever was in it: what does not print is told by its number."""
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)


class OptplanError(Exception):
    """Root of every error that optplan raises on purpose."""


class InputError(OptplanError):
    """
    The input is wrong; carries every fault that was found, not only the first.

    Parameters
    ----------
    faults
        At least one fault, in the order of the file.
    """

    def __init__(self, faults: tuple[Fault, ...] | list[Fault]) -> None:
        self.faults = tuple(faults)
        super().__init__("\n".join(map(str, self.faults)))


class QuantityError(OptplanError, ValueError):
    """A quantity cannot be read; the text says why and what would be right."""


class OwnFault(OptplanError):
    """
    Something that only a defect of optplan itself can cause.

    An answer that its own verifier refuses, or an engine that reports an invalid program, ends
    here.
    """


def chain(error: BaseException | None) -> Iterator[BaseException]:
    """Go from an error to what caused it, and so on."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def interrupting(error: BaseException) -> bool:
    """Tell whether an error is a person's Ctrl-C, or one that a library made of it."""
    return any(isinstance(one, KeyboardInterrupt) for one in chain(error))
