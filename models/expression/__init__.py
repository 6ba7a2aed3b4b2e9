"""The language of a user's own limits, such as ``tp * pp <= 32`` or ``peak_memory <= 72 GB``."""

from optplan.models.expression.grammar import parse, parse_time
from optplan.models.expression.meaning import amount_of, evaluate, reals_of
from optplan.models.expression.python import Formula, Term, choice
from optplan.models.expression.text import show
from optplan.models.expression.tree import (
    And,
    Binary,
    Comparison,
    Condition,
    ExpressionError,
    Greatest,
    Least,
    Name,
    Negative,
    Node,
    Not,
    Number,
    Operation,
    Or,
    Relation,
    Value,
    children,
    names,
)
from optplan.models.expression.vocabulary import ALIASES, NAMES, WORDS, Dimension, Known

__all__ = [
    "ALIASES",
    "NAMES",
    "WORDS",
    "And",
    "Binary",
    "Comparison",
    "Condition",
    "Dimension",
    "ExpressionError",
    "Formula",
    "Greatest",
    "Known",
    "Least",
    "Name",
    "Negative",
    "Node",
    "Not",
    "Number",
    "Operation",
    "Or",
    "Relation",
    "Term",
    "Value",
    "amount_of",
    "children",
    "choice",
    "evaluate",
    "names",
    "parse",
    "parse_time",
    "reals_of",
    "show",
]
