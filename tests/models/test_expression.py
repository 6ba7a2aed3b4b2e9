"""The language of limits: what it accepts, and what it refuses and where."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optplan.models.expression import (
    ALIASES,
    And,
    Comparison,
    Dimension,
    ExpressionError,
    Formula,
    Name,
    Not,
    Number,
    Or,
    Relation,
    Term,
    choice,
    names,
    parse,
    show,
)

GOOD = [
    ("tp*pp<=32", "tp * pp <= 32"),
    ("2<=t<=8", "2 <= tp <= 8"),
    ("2 <= tp and tp <= 8", "2 <= tp <= 8"),
    ("2 < tp < 8 and pp > 1", "2 < tp < 8 and pp > 1"),
    ("G == d*b*m", "global_batch == dp * micro_batch * micro_batches"),
    ("tp in [1, 2]", "tp in [1, 2]"),
    ("tp in [4]", "tp == 4"),
    ("tp not in [1, 2]", "tp not in [1, 2]"),
    ("tp not in [4]", "not tp == 4"),
    ("recompute == full", "recompute == full"),
    ("full != recompute", "recompute != full"),
    ("recompute in [none, full]", "recompute in [none, full]"),
    ("cp * ep <= etp * vpp", "cp * ep <= etp * vpp"),
    ("schedule == zb-v", "schedule == zb-v"),
    ("schedule in [1f1b, zb-h1]", "schedule in [1f1b, zb-h1]"),
    ("ring != context", "context != ring"),
    ("order == data_inside or hsdp", "order == data_inside or hsdp == true"),
    ("not offload and zero == 3", "not offload == true and zero == 3"),
    ("sequence_parallel", "sequence_parallel == true"),
    ("not sequence_parallel", "not sequence_parallel == true"),
    ("peak_memory <= 72 GB", "peak_memory <= 72 GB"),
    ("peak_memory <= 72.5GiB", "peak_memory <= 72.5 GiB"),
    ("2 * peak_memory <= 72 GB", "2 * peak_memory <= 72 GB"),
    ("step_seconds <= 2", "step_seconds <= 2 s"),
    ("-1 < step_seconds", "-1 s < step_seconds"),
    ("step_seconds in [1, 200 ms]", "step_seconds in [1 s, 0.2 s]"),
    ("step_seconds < 2 min", "step_seconds < 120 s"),
    ("1.50 * tp <= 4.0", "1.5 * tp <= 4"),
    ("tp - (pp - dp) - 1 > --zero", "tp - (pp - dp) - 1 > --zero"),
    ("(tp + pp) * -(dp // 2) % 3 == 0", "(tp + pp) * -(dp // 2) % 3 == 0"),
    ("((tp)) > (1)", "tp > 1"),
    ("min(tp, pp, 3) < max(dp, 2)", "min(tp, pp, 3) < max(dp, 2)"),
    ("not (tp > 1 or pp > 1) and devices > 8", "not (tp > 1 or pp > 1) and devices > 8"),
    ("tp > 1 or\n\tpp > 1 and dp > 1", "tp > 1 or pp > 1 and dp > 1"),
]

BAD = [
    ("", 0, "the limit is empty"),
    ("   ", 0, "the limit is empty"),
    ("peak_memory <= 72", 12, "peak_memory is a size in bytes; write 72 GB or 64 GiB"),
    ("72 >= 2 * peak_memory", 3, "the right side is a size in bytes; write 72 GB"),
    ("step_seconds <= tp", 13, "step_seconds is a time in seconds; write 1.5 s"),
    ("step_seconds <= peak_memory", 13, "a time in seconds is compared with a size in bytes"),
    ("peak_memory + 1 < 3 GB", 12, "'+' mixes a size in bytes and a number; write 72 GB"),
    ("min(tp, peak_memory) < 3", 0, "min mixes a number and a size in bytes"),
    ("peak_memory * peak_memory < 3", 12, "multiply by a plain number"),
    ("peak_memory // 2 < 3 GB", 12, "not on a size in bytes; multiply the other side"),
    ("5 % step_seconds < 3", 2, "not on a time in seconds; multiply the other side"),
    ("tp // 1.5 < 3", 3, "not on decimals; multiply the other side"),
    ("tp", 0, "tp is a number, not a condition; compare it, e.g. tp <= 8"),
    ("pp > 1 and tp + 1", 11, "tp + 1 is a number, not a condition; compare it, e.g. tp + 1 <= 8"),
    ("not 7", 4, "7 is a number, not a condition; compare it, e.g. tp <= 8"),
    ("peak_memory", 0, "e.g. peak_memory <= 72 GB"),
    ("recompute", 0, "e.g. recompute == full"),
    ("full", 0, "'full' is a word for recompute, not a condition; write recompute == full"),
    (
        "recompute == true",
        13,
        "recompute knows no word 'true'; its words are none, selective, partial, full",
    ),
    ("sequence_parallel != full", 21, "its words are false, true"),
    ("schedule == ring", 12, "its words are 1f1b, gpipe, interleaved, zb-h1, zb-h2, zb-v"),
    ("context == 1", 8, "its words are ring, ulysses"),
    ("zb-v < schedule", 5, "words have no order; use ==, != or in"),
    ("recompute in [none, true]", 20, "its words are none, selective, partial, full"),
    ("tp == full", 6, "tp knows no word 'full'; tp is a number"),
    ("tp + 1 == full", 10, "'full' is a word for recompute, not a value"),
    ("tp + full == 2", 5, "'full' is a word for recompute, not a value"),
    ("none == full", 0, "a word is compared with a word"),
    ("recompute < full", 10, "words have no order; use ==, != or in"),
    ("recompute == 1", 10, "its words are none, selective, partial, full"),
    ("1 == sequence_parallel", 2, "its words are false, true"),
    ("tp + sequence_parallel > 1", 5, "one of the words false, true, not a number"),
    ("(tp > 1) + 1 > 2", 0, "a condition is not a number"),
    ("tp == (pp > 1)", 6, "a condition is not a number"),
    ("(tp > 1) in [1]", 0, "a condition is not a number"),
    ("-(tp > 1) < 2", 1, "a condition is not a number"),
    ("max(1, tp > 1) < 2", 10, "'>' cannot stand here"),
    ("g == 1", 0, "'g' is not a name; did you mean G?"),
    ("1 < ppp", 4, "'ppp' is not a name; did you mean pp?"),
    ("peakmemory < 1 GB", 0, "did you mean peak_memory?"),
    ("nonsense < 1", 0, "known are tp, pp"),
    ("sequence_parallel == True", 21, "did you mean true?"),
    ("tp > 1 AND pp > 1", 7, "'AND' is not known; write and"),
    ("tp = 2", 3, "'=' is not part of the language; write =="),
    ("tp / 2 == 1", 3, "write // for whole division, or multiply the other side"),
    ("tp ** 2 < 4", 3, "write the product out"),
    ("tp ^ 2 < 4", 3, "write the product out"),
    ("tp <> 2", 3, "write !="),
    ("tp => 2", 3, "write >= for at least"),
    ("tp =< 2", 3, "write <="),
    ("tp > 1 && pp > 1", 7, "write and"),
    ("tp > 1 || pp > 1", 7, "write or"),
    ("!sequence_parallel", 0, "write not"),
    ("tp ≤ 2", 3, "write <="),
    ("recompute == 'full'", 13, "without quotes"),
    (".5 < tp", 0, "a digit on both sides"),
    ("5. < tp", 1, "a digit on both sides"),
    ("tp.real < 1", 2, "a digit on both sides"),
    ("tp < 1; pp", 6, "use names, numbers"),
    ("tp < ٣", 5, "use names, numbers"),
    ("1_000 < tp", 1, "write the digits only"),
    ("1e3 < tp", 0, "write the digits out"),
    ("2 tp > 1", 2, "'tp' is not a unit; write 2 * tp"),
    ("2 d > 1", 2, "write 2 * d"),
    ("tp == 2 full", 8, "'full' is not a unit"),
    ("peak_memory <= 72 gb", 15, "write it as 72 GB"),
    ("peak_memory <= 0 B", 15, "is zero"),
    ("step_seconds <= 2 weeks", 16, "cannot read '2 weeks'"),
    ("tp < 1234567890123456789", 5, "more than 18 digits"),
    ("(tp > 1", 0, "'(' is not closed; add )"),
    ("tp in [1, 2", 6, "'[' is not closed; add ]"),
    ("tp > 1)", 6, "')' closes nothing"),
    ("(tp in [1, 2)", 12, "')' closes nothing"),
    ("tp <", 4, "a value is missing at the end"),
    ("* tp < 2", 0, "a value is missing before '*'"),
    ("tp > 1 and or pp > 1", 11, "a value is missing before 'or'"),
    ("tp pp < 1", 3, "'pp' follows without an operator"),
    ("tp(3) < 1", 2, "'(' cannot stand here"),
    ("tp < not pp", 5, "'not' stands inside a value"),
    ("tp not 3", 3, "write 'not in'"),
    ("tp in (1, 2)", 6, "'in' needs a list; write e.g. tp in [1, 2, 4]"),
    ("tp in []", 6, "the list is empty"),
    ("tp in [1,]", 9, "a value is missing before ']'"),
    ("1 < tp in [2]", 7, "'in' cannot stand here"),
    ("tp in [1, 2] == 3", 13, "'==' cannot stand here"),
    ("min(tp) < 1", 0, "min has a single value"),
    ("min < 1", 0, "min has no values"),
    ("max() < 1", 4, "a value is missing before ')'"),
    ("(" * 51 + "tp" + ")" * 51 + " > 1", 50, "nests more than 50 levels"),
    ("not " * 51 + "tp > 1", 200, "nests more than 50 levels"),
    ("-" * 51 + "tp > 1", 50, "nests more than 50 levels"),
    ("+".join(["tp"] * 60) + " > 1", 149, "nests more than 50 levels"),
    ("tp > 1 " + " " * 1000, 1000, "more than 1000 characters"),
    ("__import__('os')", 11, "without quotes"),
]


@pytest.mark.parametrize(("text", "shown"), GOOD)
def test_good_text_is_read(text: str, shown: str) -> None:
    """It is shown in the standard form, which means the same."""
    assert show(parse(text)) == shown
    assert parse(shown) == parse(text)


@pytest.mark.parametrize(("text", "column", "words"), BAD)
def test_bad_text_is_refused(text: str, column: int, words: str) -> None:
    """The error has the column of the culprit and a remedy."""
    with pytest.raises(ExpressionError) as caught:
        parse(text)
    error = caught.value
    assert words in str(error)
    assert error.column == column
    assert str(error) == f"{error.problem}; {error.remedy}"
    assert error.remedy


def test_tree_of_a_text() -> None:
    """Chains, lists, aliases and quantities leave no trace but their meaning."""
    tp = Name("tp")
    low, high = (
        Comparison(Relation.LESS, Number(1), tp),
        Comparison(Relation.AT_MOST, tp, Number(8)),
    )
    assert parse("1 < t <= 8") == And((low, high))
    equal = [Comparison(Relation.EQUAL, tp, Number(i)) for i in (1, 2)]
    assert parse("t not in [1, 2]") == Not(Or(tuple(equal)))
    memory = Number(72 * 10**9, Dimension.BYTES)
    assert parse("peak_memory < 72 GB") == Comparison(Relation.LESS, Name("peak_memory"), memory)
    assert names(parse("G % d == 0 or recompute == full")) == {"global_batch", "dp", "recompute"}
    assert {"t": "tp", "G": "global_batch"}.items() <= ALIASES.items()


@given(st.text(max_size=60) | st.text("tpd0 1.<=+-*/%()[],!not in and or GBs", max_size=60))
def test_any_text_gives_a_tree_or_an_error(text: str) -> None:
    """Nothing but ExpressionError escapes, and its column lies in the text."""
    place = 0
    try:
        node = parse(text)
    except ExpressionError as error:
        place = error.column
    else:
        assert parse(show(node)) == node
    assert 0 <= place <= len(text)


# -- limits built in Python ------------------------------------------------------------------------

tp, pp = choice("tp"), choice("p")


@pytest.mark.parametrize(
    ("built", "text"),
    [
        (tp * pp <= 32, "tp * pp <= 32"),
        (2 * tp - 1 > -pp, "2 * tp - 1 > -pp"),
        ((1 + tp) // pp % 3 == 0, "(1 + tp) // pp % 3 == 0"),
        (7 // tp + 9 % pp != 8 - pp, "7 // tp + 9 % pp != 8 - pp"),
        (0.5 * tp < Fraction(5, 2), "0.5 * tp < 2.5"),
        (tp > -3, "tp > -3"),
        (choice("peak_memory") <= "72 GB", "peak_memory <= 72 GB"),
        (choice("step_seconds") <= 0.1, "step_seconds <= 0.1 s"),
        (choice("recompute") == "full", "recompute == full"),
        (choice("sequence_parallel") != True, "sequence_parallel != true"),  # noqa: E712
        (tp.among([1, pp]), "tp in [1, pp]"),
        (~choice("sequence_parallel") & (tp > 1), "not sequence_parallel and tp > 1"),
        ((tp > 1) | choice("sequence_parallel"), "tp > 1 or sequence_parallel"),
        (choice("sequence_parallel") | (tp > 1), "sequence_parallel or tp > 1"),
        (choice("sequence_parallel") & (tp > 1), "sequence_parallel and tp > 1"),
        ((tp > 1) & (pp > 1) & (tp > pp), "tp > 1 and pp > 1 and tp > pp"),
        (~((tp > 1) | (pp > 1) | (tp > pp)), "not (tp > 1 or pp > 1 or tp > pp)"),
    ],
)
def test_python_builds_the_tree_of_the_text(built: Formula, text: str) -> None:
    """Operators build what the text says."""
    assert built.node == parse(text)
    assert parse(str(built)) == built.node


def test_python_is_refused_like_text() -> None:
    """The same checks hold, and truth values are not taken silently."""
    with pytest.raises(ExpressionError, match="write 72 GB or 64 GiB"):
        _ = choice("peak_memory") <= 72
    with pytest.raises(ExpressionError, match="did you mean G"):
        choice("g")
    with pytest.raises(ExpressionError, match="join limits by & and"):
        _ = 1 < tp < 3
    with pytest.raises(ExpressionError, match="join limits by & and"):
        _ = choice("sequence_parallel") and tp > 1
    with pytest.raises(ExpressionError, match="is not a number"):
        _ = tp < float("inf")
    with pytest.raises(ExpressionError, match="endless decimals"):
        _ = tp < Fraction(1, 3)
    with pytest.raises(ExpressionError, match="more than 18 digits"):
        _ = tp < 10**18
    with pytest.raises(ExpressionError, match="the list is empty"):
        tp.among([])
    with pytest.raises(ExpressionError, match="not a condition"):
        _ = ~tp
    assert str(-tp) == "-tp"
    with pytest.raises(ExpressionError, match="this "):
        _squared(60)


def _squared(times: int) -> Term:
    """Double the tree each time, which only a bound on its size can stop."""
    term = tp
    for _ in range(times):
        term = term * term
    return term
