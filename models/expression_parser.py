"""From text to the tree of `optplan.models.expression`, and what may be joined with what."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, NoReturn, TypeVar

from optplan.models import units
from optplan.models.errors import QuantityError
from optplan.models.expression import (
    ALIASES,
    DIGITS,
    NAMES,
    WORDS,
    And,
    Binary,
    Comparison,
    Condition,
    Dimension,
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
    show,
)

LENGTH = 1000
"""Characters a limit may have."""

DEPTH = 50
"""Levels a limit may nest; every walk over a tree may recurse because of this."""

NODES = 10_000
"""Parts a limit may have once chains and lists are written out."""

_N = TypeVar("_N", bound=Node)

_WITH_UNIT: Final = {
    Dimension.BYTES: "write 72 GB or 64 GiB",
    Dimension.SECONDS: "write 1.5 s or 200 ms",
}
_EXAMPLE: Final = {
    Dimension.NUMBER: "8",
    Dimension.BYTES: "72 GB",
    Dimension.SECONDS: "2 s",
}

_KEYWORDS: Final = frozenset(("and", "or", "not", "in", "min", "max"))


# -- what may be joined with what ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Word:
    """A word such as ``full`` before it is clear whose it is."""

    text: str
    column: int = 0


def dimension_of(node: Value) -> Dimension:
    """Tell what a value measures."""
    match node:
        case Number(_, dimension):
            return dimension
        case Name(name):
            return NAMES[name].dimension
        case Negative(part) | Least((part, *_)) | Greatest((part, *_)):
            return dimension_of(part)
        case Binary(Operation.PRODUCT, left, right) if dimension_of(left) is Dimension.NUMBER:
            return dimension_of(right)
        case Binary(_, left, _):
            return dimension_of(left)
    raise AssertionError(node)


def bounded(node: _N, column: int = 0) -> _N:
    """Return the node itself if walks over it stay cheap and shallow."""
    level: list[Node] = [node]
    depth = total = 0
    while level:
        depth, total = depth + 1, total + len(level)
        if depth > DEPTH or total > NODES:
            raise ExpressionError(
                column,
                f"the limit nests more than {DEPTH} levels"
                if depth > DEPTH
                else f"the limit has more than {NODES} parts",
                "split it into several limits",
            )
        level = [child for parent in level for child in children(parent)]
    return node


def named(name: str, column: int = 0) -> Name:
    """Return the node of a name or an alias."""
    full = ALIASES.get(name, name)
    if full in NAMES:
        return Name(full)
    known = [*NAMES, *ALIASES, *sorted(WORDS)]
    near = [k for k in known if k.lower() == name.lower()] or difflib.get_close_matches(
        name, known, n=1, cutoff=0.7
    )
    remedy = f"did you mean {near[0]}?" if near else f"known are {', '.join(NAMES)}"
    raise ExpressionError(column, f"{name!r} is not a name", remedy)


def literal(value: Fraction, column: int = 0) -> Number:
    """Return the node of a plain number that can be written down."""
    if 10 ** value.denominator.bit_length() % value.denominator:
        problem = f"{value} has endless decimals"
        raise ExpressionError(column, problem, "multiply the other side instead")
    node = Number(int(value) if value.denominator == 1 else value)
    _few_digits(show(node), column)
    return node


def _few_digits(text: str, column: int) -> None:
    if sum(c.isdigit() for c in text) > DIGITS:
        problem = f"a number has more than {DIGITS} digits"
        raise ExpressionError(column, problem, "write a shorter number")


def _seconds(value: float) -> Number:
    """Return a time as exactly the decimal that its float is printed as."""
    exact = Fraction(repr(value))
    whole = exact.denominator == 1
    return Number(int(exact) if whole else exact, Dimension.SECONDS)


def amount(operand: Node | Word, column: int = 0) -> Value:
    """Return the operand if one can calculate with it."""
    if isinstance(operand, Word):
        raise ExpressionError(operand.column, _of_word(operand.text), _usage(operand.text))
    if isinstance(operand, Name) and NAMES[operand.name].words:
        words = NAMES[operand.name].words
        problem = f"{operand.name} is one of the words {', '.join(words)}, not a number"
        raise ExpressionError(column, problem, f"compare it, e.g. {operand.name} == {words[-1]}")
    if isinstance(operand, Condition):
        raise ExpressionError(
            column, "a condition is not a number", "join conditions by and, or, not"
        )
    return operand


def _of_word(word: str) -> str:
    return f"{word!r} is a word for {_owner(word)}, not a value"


def _usage(word: str) -> str:
    return f"write {_owner(word)} == {word}"


def _owner(word: str) -> str:
    return next(name for name, known in NAMES.items() if word in known.words)


def negative(part: Node | Word, column: int = 0) -> Negative:
    """Change a sign."""
    return bounded(Negative(amount(part, column)), column)


def combine(operation: Operation, left: Node | Word, right: Node | Word, column: int = 0) -> Binary:
    """Join two values by arithmetic."""
    one, other = amount(left, column), amount(right, column)
    kinds = (dimension_of(one), dimension_of(other))
    plain = [kind is Dimension.NUMBER for kind in kinds]
    sign = operation.value
    if operation is Operation.PRODUCT:
        if not any(plain):
            problem = f"{kinds[0].value} times {kinds[1].value} is nothing a limit can use"
            raise ExpressionError(column, problem, "multiply by a plain number")
    elif operation in (Operation.SUM, Operation.DIFFERENCE):
        _alike(kinds, f"'{sign}'", column)
    elif not all(plain):
        kind = kinds[0] if not plain[0] else kinds[1]
        problem = f"'{sign}' works on plain numbers, not on {kind.value}"
        raise ExpressionError(column, problem, "multiply the other side instead")
    elif not (_whole(one) and _whole(other)):
        problem = f"'{sign}' works on whole numbers, not on decimals"
        raise ExpressionError(column, problem, "multiply the other side instead")
    return bounded(Binary(operation, one, other), column)


def _whole(node: Node) -> bool:
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


def compare(
    relation: Relation, left: Node | Word, right: Node | Word, column: int = 0
) -> Comparison:
    """Compare two values, or a name with one of its words."""
    if any(
        isinstance(side, Word) or (isinstance(side, Name) and NAMES[side.name].words)
        for side in (left, right)
    ):
        return _compare_word(relation, left, right, column)
    one, other = amount(left, column), amount(right, column)
    kinds = (dimension_of(one), dimension_of(other))
    if kinds[0] is not kinds[1]:
        one, other = _timed(one, kinds[1]), _timed(other, kinds[0])
    if dimension_of(one) is not dimension_of(other):
        if Dimension.NUMBER not in kinds:
            problem = f"{kinds[0].value} is compared with {kinds[1].value}"
            raise ExpressionError(column, problem, "compare like with like")
        measured = kinds[0] is Dimension.NUMBER
        side = (one, other)[measured]
        what = side.name if isinstance(side, Name) else f"the {('left', 'right')[measured]} side"
        kind = kinds[measured]
        raise ExpressionError(column, f"{what} is {kind.value}", _WITH_UNIT[kind])
    return bounded(Comparison(relation, one, other), column)


def _timed(node: Value, beside: Dimension) -> Value:
    """Read a bare constant beside a time as seconds."""
    if beside is Dimension.SECONDS:
        if isinstance(node, Number) and node.dimension is Dimension.NUMBER:
            return _seconds(float(node.value))
        if isinstance(node, Negative):
            return Negative(_timed(node.part, beside))
    return node


def _compare_word(
    relation: Relation, left: Node | Word, right: Node | Word, column: int
) -> Comparison:
    """Compare a name with one of its words, the name on the left."""
    name, word = (right, left) if isinstance(left, Word) else (left, right)
    if isinstance(left, Word) and isinstance(right, Word):
        raise ExpressionError(left.column, "a word is compared with a word", _usage(left.text))
    if not isinstance(word, Word):
        if not (isinstance(name, Name) and NAMES[name.name].words):
            name = word
        assert isinstance(name, Name)
        words = ", ".join(NAMES[name.name].words)
        problem = f"{name.name} is compared with something other than a word"
        raise ExpressionError(column, problem, f"its words are {words}")
    if not isinstance(name, Name):
        raise ExpressionError(word.column, _of_word(word.text), _usage(word.text))
    known = NAMES[name.name]
    if word.text not in known.words:
        remedy = (
            f"its words are {', '.join(known.words)}"
            if known.words
            else f"{name.name} is {known.dimension.value}; {word.text!r} is for {_owner(word.text)}"
        )
        raise ExpressionError(word.column, f"{name.name} knows no word {word.text!r}", remedy)
    if relation not in (Relation.EQUAL, Relation.UNEQUAL):
        raise ExpressionError(column, "words have no order", "use ==, != or in")
    code = Number(known.words.index(word.text), known.dimension)
    return Comparison(relation, name, code)


def membership(
    left: Node | Word, options: Sequence[Node | Word], columns: Sequence[int] = ()
) -> Condition:
    """Say that a value is one of several."""
    if not options:
        raise ExpressionError(0, "the list is empty", "write at least one value")
    places = columns or [0] * len(options)
    equal = [
        compare(Relation.EQUAL, left, option, place)
        for option, place in zip(options, places, strict=True)
    ]
    return equal[0] if len(equal) == 1 else bounded(Or(tuple(equal)), places[0])


def condition(node: Node | Word, column: int = 0) -> Condition:
    """Return the node if it is a condition; a name that is true or false is one."""
    if isinstance(node, Condition):
        return node
    if isinstance(node, Name) and NAMES[node.name].dimension is Dimension.TRUTH:
        return Comparison(Relation.EQUAL, node, Number(1, Dimension.TRUTH))
    if isinstance(node, Word):
        problem = f"{node.text!r} is a word for {_owner(node.text)}, not a condition"
        raise ExpressionError(node.column, problem, _usage(node.text))
    kind = dimension_of(node)
    if isinstance(node, Name) and NAMES[node.name].words:
        example = f"{node.name} == {NAMES[node.name].words[-1]}"
    else:
        subject = "tp" if isinstance(node, Number) and kind is Dimension.NUMBER else show(node)
        subject = {Dimension.BYTES: "peak_memory", Dimension.SECONDS: "step_seconds"}.get(
            kind, subject
        )
        example = f"{subject} <= {_EXAMPLE[kind]}"
    problem = f"{show(node)} is {kind.value}, not a condition"
    raise ExpressionError(column, problem, f"compare it, e.g. {example}")


# -- tokens ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    column: int


_TOKEN: Final = re.compile(
    r"(?P<number>[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)"
    r"|(?P<word>[A-Za-z_][A-Za-z0-9_]*)"
    r"|(?P<sign>\*\*|//|==|!=|<=|>=|<>|=>|=<|&&|\|\||[^\sA-Za-z0-9_])"
    r"|(?P<blank>\s+)"
    r"|(?P<other>.)",
    re.ASCII | re.DOTALL,
)
_SIGNS: Final = frozenset(("+", "-", "*", "//", "%", "(", ")", "[", "]", ","))
_RELATIONS: Final = {relation.value: relation for relation in Relation}
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


def _scan(text: str) -> list[_Token]:
    """Split the text; the last token is the end."""
    if len(text) > LENGTH:
        raise ExpressionError(
            LENGTH, f"the limit has more than {LENGTH} characters", "split it into several limits"
        )
    tokens = []
    for match in _TOKEN.finditer(text):
        kind, found, column = str(match.lastgroup), match.group(), match.start()
        if kind == "blank":
            continue
        if kind == "other" or (kind == "sign" and found not in _SIGNS and found not in _RELATIONS):
            remedy = _REMEDIES.get(
                found, "use names, numbers, + - * // %, comparisons, and, or, not, in"
            )
            raise ExpressionError(column, f"{found!r} is not part of the language", remedy)
        if kind == "word" and found.lower() in _KEYWORDS and found not in _KEYWORDS:
            raise ExpressionError(column, f"{found!r} is not known", f"write {found.lower()}")
        tokens.append(_Token(kind, found, column))
    return [*tokens, _Token("end", "", len(text))]


# -- grammar ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Part:
    """What was read, and where it begins."""

    node: Node | Word
    column: int


def parse(text: str) -> Condition:
    """Read one limit; see `optplan.models.expression.parse`."""
    if not text.strip():
        raise ExpressionError(0, "the limit is empty", "write a condition, e.g. tp * pp <= 32")
    parser = _Parser(_scan(text))
    part = parser.either()
    parser.finish()
    return condition(part.node, part.column)


def operand(text: str) -> Value | Word:
    """Read one value or word, as it may stand beside a comparison."""
    parser = _Parser(_scan(text))
    part = parser.sum()
    parser.finish()
    return part.node if isinstance(part.node, Word | Name) else amount(part.node, part.column)


class _Parser:
    """Recursive descent; each method reads one level of binding, the loosest first."""

    def __init__(self, tokens: list[_Token]) -> None:
        self.tokens = tokens
        self.place = 0
        self.depth = 0

    @property
    def next(self) -> _Token:
        return self.tokens[self.place]

    def take(self, *texts: str) -> _Token | None:
        """Take the next token if it is one of these."""
        token = self.next
        if token.kind in ("end", "number") or token.text not in texts:
            return None
        self.place += 1
        return token

    def deeper(self, column: int) -> None:
        self.depth += 1
        if self.depth > DEPTH:
            raise ExpressionError(
                column,
                f"the limit nests more than {DEPTH} levels",
                "split it into several limits",
            )

    def close(self, opened: _Token, sign: str) -> None:
        if self.take(sign):
            return
        if self.next.kind == "end":
            raise ExpressionError(opened.column, f"{opened.text!r} is not closed", f"add {sign}")
        self.unexpected()

    def finish(self) -> None:
        """Refuse whatever follows."""
        if self.next.kind != "end":
            self.unexpected()

    def unexpected(self) -> NoReturn:
        token = self.next
        if token.text in (")", "]"):
            raise ExpressionError(token.column, f"{token.text!r} closes nothing", "remove it")
        if token.kind == "sign" or token.text in ("in", "not"):
            raise ExpressionError(
                token.column, f"{token.text!r} cannot stand here", "use parentheses, or remove it"
            )
        raise ExpressionError(
            token.column,
            f"{token.text!r} follows without an operator",
            "put an operator such as *, <= or and before it",
        )

    def either(self) -> _Part:
        return self._joined("or", self.both, Or)

    def both(self) -> _Part:
        return self._joined("and", self.negated, And)

    def _joined(self, word: str, read: Callable[[], _Part], kind: type[And | Or]) -> _Part:
        first = read()
        if self.next.text != word:
            return first
        parts = [condition(first.node, first.column)]
        while self.take(word):
            part = read()
            parts.append(condition(part.node, part.column))
        return _Part(bounded(kind(tuple(parts)), first.column), first.column)

    def negated(self) -> _Part:
        token = self.take("not")
        if token is None:
            return self.comparison()
        self.deeper(token.column)
        part = self.negated()
        self.depth -= 1
        node = Not(condition(part.node, part.column))
        return _Part(bounded(node, token.column), token.column)

    def comparison(self) -> _Part:
        first = left = self.sum()
        parts: list[Condition] = []
        while token := self.take(*_RELATIONS):
            right = self.sum()
            parts.append(self._compare(_RELATIONS[token.text], left, right, token.column))
            left = right
        if parts:
            node = parts[0] if len(parts) == 1 else bounded(And(tuple(parts)), first.column)
            return _Part(node, first.column)
        turned = self.take("not")
        if self.take("in"):
            listed = self.members(first)
            return _Part(bounded(Not(listed), first.column) if turned else listed, first.column)
        if turned:
            raise ExpressionError(
                turned.column, "'not' follows a value", "write 'not in', or put not before it"
            )
        return first

    def _compare(self, relation: Relation, left: _Part, right: _Part, column: int) -> Comparison:
        for side in (left, right):
            if isinstance(side.node, Condition):
                amount(side.node, side.column)
        return compare(relation, left.node, right.node, column)

    def members(self, left: _Part) -> Condition:
        if isinstance(left.node, Condition):
            amount(left.node, left.column)
        opened = self.take("[")
        if opened is None:
            raise ExpressionError(
                self.next.column, "'in' needs a list", "write e.g. tp in [1, 2, 4]"
            )
        if self.next.text == "]":
            raise ExpressionError(opened.column, "the list is empty", "write at least one value")
        parts = self.listed(opened, "]")
        return membership(left.node, [p.node for p in parts], [p.column for p in parts])

    def listed(self, opened: _Token, end: str) -> list[_Part]:
        parts = [self.sum()]
        while self.take(","):
            parts.append(self.sum())
        self.close(opened, end)
        return parts

    def sum(self) -> _Part:
        return self._chain(("+", "-"), lambda: self._chain(("*", "//", "%"), self.signed))

    def _chain(self, signs: tuple[str, ...], read: Callable[[], _Part]) -> _Part:
        left = read()
        while token := self.take(*signs):
            right = read()
            for side in (left, right):
                amount(side.node, side.column)
            node = combine(Operation(token.text), left.node, right.node, token.column)
            left = _Part(node, left.column)
        return left

    def signed(self) -> _Part:
        token = self.take("-")
        if token is None:
            return self.atom()
        self.deeper(token.column)
        part = self.signed()
        self.depth -= 1
        amount(part.node, part.column)
        return _Part(negative(part.node, token.column), token.column)

    def atom(self) -> _Part:
        token = self.next
        if token.kind == "number":
            return self.quantity()
        if opened := self.take("("):
            self.deeper(opened.column)
            inner = self.either()
            self.close(opened, ")")
            self.depth -= 1
            return _Part(inner.node, opened.column)
        if token.kind == "word" and token.text not in ("and", "or", "not", "in"):
            self.place += 1
            if token.text in ("min", "max"):
                return self.extreme(token)
            if token.text in WORDS:
                return _Part(Word(token.text, token.column), token.column)
            return _Part(named(token.text, token.column), token.column)
        if token.text == "not":
            raise ExpressionError(
                token.column, "'not' stands inside a value", "put not before the comparison"
            )
        where = f"before {token.text!r}" if token.kind != "end" else "at the end"
        raise ExpressionError(
            token.column, f"a value is missing {where}", "write a name, a number or parentheses"
        )

    def extreme(self, token: _Token) -> _Part:
        opened = self.take("(")
        if opened is None:
            raise ExpressionError(
                token.column, f"{token.text} has no values", f"write {token.text}(a, b)"
            )
        self.deeper(opened.column)
        parts = self.listed(opened, ")")
        self.depth -= 1
        values = tuple(amount(part.node, part.column) for part in parts)
        if len(values) < 2:
            raise ExpressionError(
                token.column, f"{token.text} has a single value", f"write {token.text}(a, b)"
            )
        _alike([dimension_of(value) for value in values], token.text, token.column)
        node = Least(values) if token.text == "min" else Greatest(values)
        return _Part(bounded(node, token.column), token.column)

    def quantity(self) -> _Part:
        token = self.next
        self.place += 1
        unit = self.next
        # "2 min" is two minutes, while "2 min(a, b)" lacks an operator.
        minutes = unit.text == "min" and self.tokens[self.place + 1].text != "("
        if unit.kind == "word" and (minutes or unit.text not in _KEYWORDS):
            self.place += 1
            return _Part(_quantity(token, unit), token.column)
        if "e" in token.text.lower():
            problem = f"{token.text} has an exponent but no unit"
            raise ExpressionError(token.column, problem, "write the digits out")
        _few_digits(token.text, token.column)
        return _Part(literal(Fraction(token.text), token.column), token.column)


def _quantity(number: _Token, unit: _Token) -> Number:
    """Read a number and the word after it as bytes or seconds."""
    if unit.text in NAMES or unit.text in ALIASES or unit.text in WORDS:
        remedy = "remove one" if unit.text in WORDS else f"write {number.text} * {unit.text}"
        raise ExpressionError(unit.column, f"{unit.text!r} is not a unit", remedy)
    if unit.text.startswith("_"):
        raise ExpressionError(unit.column, "'_' stands inside a number", "write the digits only")
    text = f"{number.text} {unit.text}"
    try:
        if unit.text.lower().endswith(("b", "bytes", "byte")):
            return Number(units.parse(text, "bytes"), Dimension.BYTES)
        return _seconds(units.parse(text, "seconds"))
    except QuantityError as error:
        problem, _, remedy = str(error).rpartition("; ")
        raise ExpressionError(number.column, problem, remedy) from error
