"""What may be joined with what: sizes with sizes, times with times, words with their name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from optplan.models.expression.leaves import Part, Word, seconds
from optplan.models.expression.text import show
from optplan.models.expression.tree import (
    Binary,
    Comparison,
    Condition,
    ExpressionError,
    Greatest,
    Least,
    Name,
    Negative,
    Node,
    Number,
    Operation,
    Or,
    Relation,
    Value,
    bounded,
    children,
)
from optplan.models.expression.vocabulary import NAMES, WORDS, Dimension

_WITH_UNIT: Final = {
    Dimension.BYTES: "write 72 GB or 64 GiB",
    Dimension.SECONDS: "write 1.5 s or 200 ms",
}


def dimension_of(node: Value) -> Dimension:
    """Tell what a value measures."""
    match node:
        case Number(_, dimension):
            return dimension
        case Name(name):
            return NAMES[name].dimension
        case Negative(part) | Least((part, *_)) | Greatest((part, *_)):
            return dimension_of(part)
        case Binary(operation, left, right):
            # Asked once: twice at each level is 2^n times for a product of n.
            kind = dimension_of(left)
            scaled = operation is Operation.PRODUCT and kind is Dimension.NUMBER
            return dimension_of(right) if scaled else kind
    raise AssertionError(node)


def amount(part: Part) -> Value:
    """Return the node of a part that one can calculate with."""
    node = part.node
    if isinstance(node, Word):
        raise ExpressionError(part.column, f"{_of_word(node)}, not a value", _usage(node))
    if isinstance(node, Condition):
        remedy = "join conditions by and, or, not"
        raise ExpressionError(part.column, "a condition is not a number", remedy)
    if isinstance(node, Name) and (words := NAMES[node.name].words):
        problem = f"{node.name} is one of the words {', '.join(words)}, not a number"
        raise ExpressionError(part.column, problem, f"compare it, e.g. {node.name} == {words[-1]}")
    return node


def condition(part: Part) -> Condition:
    """Return the node of a condition; a name that is true or false is one."""
    node = part.node
    if isinstance(node, Condition):
        return node
    if isinstance(node, Word):
        raise ExpressionError(part.column, f"{_of_word(node)}, not a condition", _usage(node))
    kind = dimension_of(node)
    if isinstance(node, Name) and kind is Dimension.TRUTH:
        return Comparison(Relation.EQUAL, node, Number(1, kind))
    if isinstance(node, Name) and kind is Dimension.WORD:
        example = f"{node.name} == {NAMES[node.name].words[-1]}"
    elif kind is Dimension.BYTES:
        example = "peak_memory <= 72 GB"
    elif kind is Dimension.SECONDS:
        example = "step_seconds <= 2 s"
    else:
        example = f"{'tp' if isinstance(node, Number) else show(node)} <= 8"
    problem = f"{show(node)} is {kind.value}, not a condition"
    raise ExpressionError(part.column, problem, f"compare it, e.g. {example}")


def negative(part: Part, column: int = 0) -> Negative:
    """Change a sign."""
    return bounded(Negative(amount(part)), column)


def combine(operation: Operation, left: Part, right: Part, column: int = 0) -> Binary:
    """Join two values by arithmetic."""
    one, other = amount(left), amount(right)
    kinds = [dimension_of(one), dimension_of(other)]
    measured = [kind for kind in kinds if kind is not Dimension.NUMBER]
    sign = f"'{operation.value}'"
    if operation in (Operation.SUM, Operation.DIFFERENCE):
        _alike(kinds, sign, column)
    elif operation is Operation.PRODUCT:
        if len(measured) == 2:
            problem = f"{kinds[0].value} times {kinds[1].value} is nothing a limit can use"
            raise ExpressionError(column, problem, "multiply by a plain number")
    elif measured or not (_whole(one) and _whole(other)):
        works, not_on = ("plain", measured[0].value) if measured else ("whole", "decimals")
        problem = f"{sign} works on {works} numbers, not on {not_on}"
        raise ExpressionError(column, problem, "multiply the other side instead")
    return bounded(Binary(operation, one, other), column)


def extreme(word: str, parts: Sequence[Part], column: int) -> Least | Greatest:
    """Take the least of several values if the word is ``min``, else the greatest."""
    values = tuple(map(amount, parts))
    if len(values) < 2:
        raise ExpressionError(column, f"{word} has a single value", f"write {word}(a, b)")
    _alike([dimension_of(value) for value in values], word, column)
    return bounded(Least(values) if word == "min" else Greatest(values), column)


def compare(relation: Relation, left: Part, right: Part, column: int = 0) -> Comparison:
    """Compare two values, or a name with one of its words."""
    for side in (left, right):
        if isinstance(side.node, Condition):
            amount(side)
    if _wordy(left) or _wordy(right):
        return _compare_word(relation, left, right, column)
    one, other = amount(left), amount(right)
    if Dimension.SECONDS in (dimension_of(one), dimension_of(other)):
        one, other = _timed(one), _timed(other)
    kinds = (dimension_of(one), dimension_of(other))
    if kinds[0] is kinds[1]:
        return bounded(Comparison(relation, one, other), column)
    if Dimension.NUMBER not in kinds:
        problem = f"{kinds[0].value} is compared with {kinds[1].value}"
        raise ExpressionError(column, problem, "compare like with like")
    measured, kind, subject = one, kinds[0], "the left side"
    if kind is Dimension.NUMBER:
        measured, kind, subject = other, kinds[1], "the right side"
    if isinstance(measured, Name):
        subject = measured.name
    raise ExpressionError(column, f"{subject} is {kind.value}", _WITH_UNIT[kind])


def membership(left: Part, options: Sequence[Part], column: int = 0) -> Condition:
    """Say that a value is one of several; `column` is where their list begins."""
    if not options:
        raise ExpressionError(column, "the list is empty", "write at least one value")
    equal = [compare(Relation.EQUAL, left, option, option.column) for option in options]
    return equal[0] if len(equal) == 1 else bounded(Or(tuple(equal)), options[0].column)


def _compare_word(relation: Relation, left: Part, right: Part, column: int) -> Comparison:
    """Compare a name with one of its words, the name on the left."""
    name, word = (right, left) if isinstance(left.node, Word) else (left, right)
    if not isinstance(word.node, Word):
        owner = left.node if _wordy(left) else right.node
        assert isinstance(owner, Name)
        problem = f"{owner.name} is compared with something other than a word"
        raise ExpressionError(column, problem, _words(owner))
    if isinstance(name.node, Word):
        raise ExpressionError(left.column, "a word is compared with a word", _usage(word.node))
    if not isinstance(name.node, Name):
        problem = f"{_of_word(word.node)}, not a value"
        raise ExpressionError(word.column, problem, _usage(word.node))
    known, text = NAMES[name.node.name], word.node.text
    if text not in known.words:
        remedy = f"{name.node.name} is {known.dimension.value}; {text!r} is for {WORDS[text]}"
        if known.words:
            remedy = _words(name.node)
        problem = f"{name.node.name} knows no word {text!r}"
        raise ExpressionError(word.column, problem, remedy)
    if relation not in (Relation.EQUAL, Relation.UNEQUAL):
        raise ExpressionError(column, "words have no order", "use ==, != or in")
    return Comparison(relation, name.node, Number(known.words.index(text), known.dimension))


def _wordy(part: Part) -> bool:
    """Tell whether this is a word, or a name that has words."""
    node = part.node
    return isinstance(node, Word) or (isinstance(node, Name) and bool(NAMES[node.name].words))


def _of_word(word: Word) -> str:
    return f"{word.text!r} is a word for {WORDS[word.text]}"


def _usage(word: Word) -> str:
    return f"write {WORDS[word.text]} == {word.text}"


def _words(name: Name) -> str:
    return f"its words are {', '.join(NAMES[name.name].words)}"


def _timed(node: Value) -> Value:
    """Read a bare constant, which stands beside a time, as seconds."""
    match node:
        case Number(value, Dimension.NUMBER):
            return seconds(float(value))
        case Negative(part):
            return Negative(_timed(part))
    return node


def _whole(node: Node) -> bool:
    """Tell whether no decimals occur."""
    if isinstance(node, Number):
        return isinstance(node.value, int)
    return all(map(_whole, children(node)))


def _alike(kinds: Sequence[Dimension], what: str, column: int) -> None:
    """Refuse to mix dimensions."""
    for kind in kinds[1:]:
        if kind is not kinds[0]:
            unit = kinds[0] if kind is Dimension.NUMBER else kind
            problem = f"{what} mixes {kinds[0].value} and {kind.value}"
            raise ExpressionError(column, problem, _WITH_UNIT[unit])
