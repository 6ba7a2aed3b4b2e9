"""Whole-number arithmetic of a shell, ``$((A * B))``, worked out without a shell."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable

LARGEST = 2**62
"""Results beyond this are not worked out; a shell would wrap around."""

_TOKEN = re.compile(r"\s*(?:(\d+)|\$?\{?([A-Za-z_]\w*)\}?|(\*\*|<=|>=|==|!=|&&|\|\||[-+*/%()<>!]))")
_LEVELS: tuple[tuple[str, ...], ...] = (
    ("||",),
    ("&&",),
    ("==", "!="),
    ("<", "<=", ">", ">="),
    ("+", "-"),
    ("*", "/", "%"),
)
_MEANING: dict[str, Callable[[int, int], int]] = {
    "||": lambda a, b: int(bool(a or b)),
    "&&": lambda a, b: int(bool(a and b)),
    "==": lambda a, b: int(a == b),
    "!=": lambda a, b: int(a != b),
    "<": lambda a, b: int(a < b),
    "<=": lambda a, b: int(a <= b),
    ">": lambda a, b: int(a > b),
    ">=": lambda a, b: int(a >= b),
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": lambda a, b: abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1),
    "%": lambda a, b: abs(a) % abs(b) * (1 if a >= 0 else -1),
}


def work_out(text: str, value_of: Callable[[str], str | None]) -> int | None:
    """
    Work out an expression; None where it cannot be.

    Parameters
    ----------
    text
        Whole numbers, names, ``+ - * / % **``, comparisons and brackets.
    value_of
        Value of a name as the script has it, or none.
    """
    tokens: list[str] = []
    at = 0
    text = text.rstrip()
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None or len(tokens) > 200:
            return None
        number, name, sign = found.groups()
        if name is not None:
            value = value_of(name)
            if value is None or not re.fullmatch(r"\s*-?\d{1,18}\s*", value):
                return None
            number = value.strip()
        tokens.append(number if number is not None else sign)
        at = found.end()
    try:
        sum_ = _Sum(tokens)
        result = sum_.level(0)
    except (IndexError, ValueError, ZeroDivisionError, OverflowError):
        return None
    return result if sum_.at == len(tokens) and abs(result) <= LARGEST else None


class _Sum:
    """An expression on the way."""

    def __init__(self, tokens: list[str]) -> None:
        self.tokens, self.at, self.depth = tokens, 0, 0

    def _peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def level(self, depth: int) -> int:
        """Read operators that bind no weaker than a level, left to right."""
        if depth == len(_LEVELS):
            return self._power()
        left = self.level(depth + 1)
        while self._peek() in _LEVELS[depth]:
            sign = self.tokens[self.at]
            self.at += 1
            left = _MEANING[sign](left, self.level(depth + 1))
            if abs(left) > LARGEST:
                raise OverflowError
        return left

    def _power(self) -> int:
        base = self._single()
        if self._peek() != "**":
            return base
        self.at += 1
        power = self._power()
        if power < 0 or power * max(1, abs(base).bit_length()) > 128:
            raise OverflowError
        return int(base**power)

    def _single(self) -> int:
        token = self.tokens[self.at]
        self.at += 1
        self.depth += 1
        if self.depth > 500:
            raise OverflowError
        if token == "(":
            inner = self.level(0)
            if self._peek() != ")":
                raise ValueError(token)
            self.at += 1
            return inner
        if token in ("+", "-", "!"):
            value = self._single()
            return -value if token == "-" else int(not value) if token == "!" else value
        return int(token)
