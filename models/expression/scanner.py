"""From text to tokens."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from optplan.models.expression.tree import ExpressionError, Relation

LENGTH: Final = 1000
"""Characters a limit may have."""

KEYWORDS: Final = frozenset(("and", "or", "not", "in", "min", "max"))
RELATIONS: Final = {relation.value: relation for relation in Relation}

_SIGNS: Final = frozenset(("+", "-", "*", "//", "%", "(", ")", "[", "]", ",", *RELATIONS))
_TOKEN: Final = re.compile(
    r"(?P<named>1f1b|zb-(?:h1|h2|v))\b"
    r"|(?P<number>[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)"
    r"|(?P<word>[A-Za-z_][A-Za-z0-9_]*)"
    r"|(?P<blank>\s+)"
    r"|(?P<sign>\*\*|//|==|!=|<=|>=|<>|=>|=<|&&|\|\||.)",
    re.ASCII,
)
_REMEDIES: Final = {
    "=": "write == to compare",
    "/": "write // for whole division, or multiply the other side",
    "**": "write the product out, e.g. tp * tp",
    "^": "write the product out, e.g. tp * tp",
    "<>": "write !=",
    "=>": "write >= for at least, or 'not a or b' for a implies b",
    "=<": "write <=",
    "&&": "write and",
    "&": "write and",
    "||": "write or",
    "|": "write or",
    "!": "write not",
    "~": "write not",
    "≤": "write <=",
    "≥": "write >=",
    "≠": "write !=",
    "\u00d7": "write *",
    ".": "write a digit on both sides of the point, e.g. 0.5",
    "'": "write names and words without quotes",
    '"': "write names and words without quotes",
}
_REMEDY: Final = "use names, numbers, + - * // %, comparisons, and, or, not, in"


@dataclass(frozen=True, slots=True)
class Token:
    """A number, word or sign as it was written, or the end; and where it begins."""

    kind: str
    text: str
    column: int


def scan(text: str) -> list[Token]:
    """
    Split the text; the last token is the end.

    Raises
    ------
    ExpressionError
        For a text that is too long or has a sign that the language lacks.
    """
    if len(text) > LENGTH:
        problem = f"this has more than {LENGTH} characters"
        raise ExpressionError(LENGTH, problem, "split it into several limits")
    tokens = []
    for match in _TOKEN.finditer(text):
        kind, found, column = str(match.lastgroup), match.group(), match.start()
        # Words of the field that are no identifiers: no name, sum or quantity looks like them.
        kind = "word" if kind == "named" else kind
        if kind == "blank":
            continue
        if kind == "sign" and found not in _SIGNS:
            remedy = _REMEDIES.get(found, _REMEDY)
            raise ExpressionError(column, f"{found!r} is not part of the language", remedy)
        if kind == "word" and found.lower() in KEYWORDS and found not in KEYWORDS:
            raise ExpressionError(column, f"{found!r} is not known", f"write {found.lower()}")
        tokens.append(Token(kind, found, column))
    return [*tokens, Token("end", "", len(text))]
