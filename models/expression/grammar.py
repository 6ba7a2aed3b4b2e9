"""From tokens to the tree, by recursive descent; Python's own reader takes no part."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from typing import NoReturn

from optplan.models.expression.dimensions import (
    amount,
    combine,
    compare,
    condition,
    dimension_of,
    extreme,
    membership,
    negative,
)
from optplan.models.expression.leaves import Part, Word, few_digits, literal, named, quantity
from optplan.models.expression.scanner import KEYWORDS, RELATIONS, Token, scan
from optplan.models.expression.spans import span
from optplan.models.expression.tree import (
    DEPTH,
    And,
    Condition,
    ExpressionError,
    Not,
    Operation,
    Or,
    Value,
    bounded,
    names,
    too_deep,
)
from optplan.models.expression.vocabulary import NAMES, WORDS, Dimension


def parse(text: str) -> Condition:
    """
    Read one limit.

    Raises
    ------
    ExpressionError
        With the column and the remedy, for everything that is not a condition of this language.
    """
    if not text.strip():
        raise ExpressionError(0, "the limit is empty", "write a condition, e.g. tp * pp <= 32")
    return condition(_whole(text, _Parser.either))


def parse_time(text: str) -> Value:
    """
    Read a time that choices make up, such as ``2 us * dp * tp``, and that never is below zero.

    Raises
    ------
    ExpressionError
        With the column and the remedy, for everything else.
    """
    if not text.strip():
        raise ExpressionError(0, "the time is empty", "write one, e.g. 40 ms or 2 us * dp * tp")
    node = amount(_whole(text, _Parser.sum))
    for name in sorted(names(node)):
        if name == "devices":
            raise ExpressionError(0, "devices may be idle", "write tp * pp * dp * cp")
        if NAMES[name].dimension is not Dimension.NUMBER:
            problem = f"{name} depends on the time itself, or is no number of ranks or batches"
            raise ExpressionError(0, problem, "use tp, pp, dp and other choices that are numbers")
    kind = dimension_of(node)
    if kind is not Dimension.SECONDS:
        remedy = "multiply by a time, e.g. 2 us * dp"
        raise ExpressionError(0, f"this is {kind.value}, not a time", remedy)
    if span(node)[0] < 0:
        remedy = "write max(0 s, ...) around what may be less"
        raise ExpressionError(0, "this may be less than nothing", remedy)
    return node


def operand(text: str) -> Part:
    """Read one value or word, as it may stand beside a comparison."""
    return _whole(text, _Parser.sum)


def _whole(text: str, read: Callable[[_Parser], Part]) -> Part:
    """Read the text to its end."""
    parser = _Parser(scan(text))
    part = read(parser)
    if parser.next.kind != "end":
        parser.unexpected()
    return part


class _Parser:
    """Each method reads one level of binding, the loosest first."""

    def __init__(self, tokens: list[Token]) -> None:
        self.tokens = tokens
        self.place = 0
        self.depth = 0

    @property
    def next(self) -> Token:
        return self.tokens[self.place]

    def take(self, *texts: str) -> Token | None:
        """Take the next token if it is one of these."""
        token = self.next
        if token.text not in texts:
            return None
        self.place += 1
        return token

    @contextmanager
    def nested(self, token: Token) -> Iterator[None]:
        """Read one level deeper, if that is not too deep."""
        self.depth += 1
        if self.depth > DEPTH:
            raise too_deep(token.column)
        yield
        self.depth -= 1

    def close(self, opened: Token, sign: str) -> None:
        if self.take(sign):
            return
        if self.next.kind == "end":
            raise ExpressionError(opened.column, f"{opened.text!r} is not closed", f"add {sign}")
        self.unexpected()

    def unexpected(self) -> NoReturn:
        """Say why the next token cannot follow what was read."""
        token = self.next
        if token.text in (")", "]"):
            problem, remedy = "closes nothing", "remove it"
        elif token.kind == "sign" or token.text in ("in", "not"):
            problem, remedy = "cannot stand here", "use parentheses, or remove it"
        else:
            problem = "follows without an operator"
            remedy = "put an operator such as *, <= or and before it"
        raise ExpressionError(token.column, f"{token.text!r} {problem}", remedy)

    def either(self) -> Part:
        return self.joined("or", self.both, Or)

    def both(self) -> Part:
        return self.joined("and", self.negated, And)

    def joined(self, word: str, read: Callable[[], Part], kind: type[And | Or]) -> Part:
        first = read()
        if self.next.text != word:
            return first
        parts = [condition(first)]
        while self.take(word):
            parts.append(condition(read()))
        return Part(bounded(kind(tuple(parts)), first.column), first.column)

    def negated(self) -> Part:
        token = self.take("not")
        if token is None:
            return self.comparison()
        with self.nested(token):
            node = Not(condition(self.negated()))
        return Part(bounded(node, token.column), token.column)

    def comparison(self) -> Part:
        first = left = self.sum()
        parts: list[Condition] = []
        while token := self.take(*RELATIONS):
            right = self.sum()
            parts.append(compare(RELATIONS[token.text], left, right, token.column))
            left = right
        if parts:
            node = parts[0] if len(parts) == 1 else bounded(And(tuple(parts)), first.column)
            return Part(node, first.column)
        turned = self.take("not")
        if self.take("in"):
            listed = self.members(first)
            return Part(bounded(Not(listed), first.column) if turned else listed, first.column)
        if turned:
            remedy = "write 'not in', or put not before it"
            raise ExpressionError(turned.column, "'not' follows a value", remedy)
        return first

    def members(self, left: Part) -> Condition:
        if isinstance(left.node, Condition):
            amount(left)
        opened = self.take("[")
        if opened is None:
            remedy = "write e.g. tp in [1, 2, 4]"
            raise ExpressionError(self.next.column, "'in' needs a list", remedy)
        parts = [] if self.take("]") else self.listed(opened, "]")
        return membership(left, parts, opened.column)

    def listed(self, opened: Token, end: str) -> list[Part]:
        parts = [self.sum()]
        while self.take(","):
            parts.append(self.sum())
        self.close(opened, end)
        return parts

    def sum(self) -> Part:
        return self.chain(("+", "-"), self.product)

    def product(self) -> Part:
        return self.chain(("*", "//", "%"), self.signed)

    def chain(self, signs: tuple[str, ...], read: Callable[[], Part]) -> Part:
        left = read()
        while token := self.take(*signs):
            node = combine(Operation(token.text), left, read(), token.column)
            left = Part(node, left.column)
        return left

    def signed(self) -> Part:
        token = self.take("-")
        if token is None:
            return self.atom()
        with self.nested(token):
            return Part(negative(self.signed(), token.column), token.column)

    def atom(self) -> Part:
        token = self.next
        if token.kind == "number":
            return self.number()
        if self.take("("):
            with self.nested(token):
                inner = self.either()
                self.close(token, ")")
            return Part(inner.node, token.column)
        if self.take("min", "max"):
            return self.extreme(token)
        if token.kind == "word" and token.text not in KEYWORDS:
            self.place += 1
            node = Word(token.text) if token.text in WORDS else named(token.text, token.column)
            return Part(node, token.column)
        if token.text == "not":
            remedy = "put not before the comparison"
            raise ExpressionError(token.column, "'not' stands inside a value", remedy)
        where = f"before {token.text!r}" if token.kind != "end" else "at the end"
        remedy = "write a name, a number or parentheses"
        raise ExpressionError(token.column, f"a value is missing {where}", remedy)

    def extreme(self, token: Token) -> Part:
        opened = self.take("(")
        if opened is None:
            remedy = f"write {token.text}(a, b)"
            raise ExpressionError(token.column, f"{token.text} has no values", remedy)
        with self.nested(opened):
            parts = self.listed(opened, ")")
        return Part(extreme(token.text, parts, token.column), token.column)

    def number(self) -> Part:
        token = self.next
        self.place += 1
        unit = self.next
        # "2 min" is two minutes, while "2 min(a, b)" lacks an operator.
        minutes = unit.text == "min" and self.tokens[self.place + 1].text != "("
        if unit.kind == "word" and (minutes or unit.text not in KEYWORDS):
            self.place += 1
            node = quantity(token.text, unit.text, (token.column, unit.column))
            return Part(node, token.column)
        if "e" in token.text.lower():
            problem = f"{token.text} has an exponent but no unit"
            raise ExpressionError(token.column, problem, "write the digits out")
        few_digits(token.text, token.column)
        return Part(literal(Fraction(token.text), token.column), token.column)
