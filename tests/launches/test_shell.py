"""The shell reader: what a script would run, word by word, and where every word is decided."""

from __future__ import annotations

import random

import pytest

from optplan.launches.shell import Source, read_arguments, read_script
from optplan.models.errors import InputError

BITS = (
    "\" ' ` $( $(( ${ } ) ( <<E\nE\n \\\n # if then fi case in esac ;; && || A= A+= A=( $A [ [[ ]] "
    "\x00 \ue000 for do done { < > (( ${A[@]} ! export"
)


def words(text: str, **given: str) -> list[str]:
    """Every word of every command."""
    script = read_script(Source(text, given))
    return [word.text for command in script.commands for word in command.words]


def decided(text: str, last: str) -> str:
    """The characters of a script that decide a word."""
    found = [w for c in read_script(text).commands for w in c.words if w.text == last]
    return text[slice(*(found[-1].span or (0, 0)))]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("run --x 1 # no\n", ["run", "--x", "1"]),
        ("run \\\n --x \\\n 1\nnext", ["run", "--x", "1", "next"]),
        ("run \\\r\n --x 1\r\n", ["run", "--x", "1"]),
        ("A=4\nrun --x $A ${A} \"$A\" '$A' $A$A", ["run", "--x", "4", "4", "4", "$A", "44"]),
        ('A="--x 1 \\\n --y 2"\nrun $A', ["run", "--x", "1", "--y", "2"]),
        ('A="--x 1"\nrun "$A"', ["run", "--x 1"]),
        ("A=(--x 1 # why\n --y '2 3'\n)\nrun ${A[@]}", ["run", "--x", "1", "--y", "2", "3"]),
        ("A=(--x)\nA+=('2 3')\nrun \"${A[@]}\"", ["run", "--x", "2 3"]),
        ("run ${A:-7} ${B:=8} $B ${C:+9}", ["run", "7", "8", "8"]),
        ("A=2;B=3\nrun $((A*$B+1)) $(( (A+B)**2 % 7 ))", ["run", "7", "4"]),
        ("A=6\nrun $(expr $A / 2) `expr 4 + 1` $(echo \"$A * 2\" | bc)", ["run", "3", "5", "12"]),
        ("A=a/b.json\nrun ${A##*/} ${A%.json} ${A/b/c} ${A^^}",
         ["run", "b.json", "a/b", "a/c.json", "A/B.JSON"]),
        ("A=(1 2 3)\nrun ${#A[@]} ${A[1]}", ["run", "3", "2"]),
        ("if [ 1 -eq 1 ]; then A=1; else A=2; fi\nrun $A", ["run", "1"]),
        ("if [[ $X == a ]]; then A=1; elif [ -z \"$X\" ]; then A=2; fi\nrun $A", ["run", "2"]),
        ("case $X in a|b) A=1;; *) A=2;; esac\nrun $A", ["run", "2"]),
        ("X=b\ncase $X in a|b) A=1;; *) A=2;; esac\nrun $A", ["run", "1"]),
        ("[ -z \"$X\" ] && A=5\nrun $A", ["run", "5"]),
        ("A=5\n[ -n \"$X\" ] && A=6\nrun $A", ["run", "5"]),
        ("(( 2 > 1 )) && A=6\nrun $A", ["run", "6"]),
        ("for n in 4 8; do run $n; done", ["run", "4"]),
        ("f() {\n run 1\n}\n", ["run", "1"]),
        ("export A=4 B=$A\nrun $B", ["run", "4"]),
        ("A=2\nsrun -n 1 bash -c 'run $A'", ["srun", "-n", "1", "bash", "-c", "run", "2"]),
        ("run 1 > log 2>&1 &\n", ["run", "1"]),
        ("run 1 2>&1 | tee log", ["run", "1", "tee", "log"]),
        ("cd x && run 1 || stop", ["cd", "x", "run", "1"]),
        ("run $X-$Y ${HOME}/a", ["run", "${X}-${Y}", "${HOME}/a"]),
    ],
)  # fmt: skip
def test_a_script_gives_the_words_that_a_shell_would(text: str, expected: list[str]) -> None:
    assert words(text) == expected


@pytest.mark.parametrize(
    ("text", "word", "literal"),
    [
        ("TP=8\nrun $TP", "8", "8"),
        ("TP=${TP:-8}\nrun ${TP}", "8", "8"),
        ('A="--tp 16"\nrun $A', "16", "16"),
        ("A=(--tp '32')\nrun ${A[@]}", "32", "32"),
        ("A=1\nrun $((A+1))", "2", ""),
        ("A=64\nsrun bash -c 'run $A'", "64", "64"),
        ("srun bash -c 'run 65'", "65", "65"),
    ],
)
def test_a_word_knows_the_literal_that_decides_it(text: str, word: str, literal: str) -> None:
    assert decided(text, word) == literal


def test_what_is_worked_out_or_given_knows_its_expression() -> None:
    text = "A=2\nrun $((A * 3)) $NODES"
    sum_, nodes = read_script(Source(text, {"NODES": "4"})).commands[0].words[1:]
    assert (sum_.text, text[slice(*(sum_.written or (0, 0)))]) == ("6", "$((A * 3))")
    assert (nodes.text, text[slice(*(nodes.written or (0, 0)))]) == ("4", "$NODES")
    assert nodes.span is None
    assert nodes.known


def test_a_given_value_wins_and_an_unknown_one_is_named() -> None:
    assert words("TP=8\nrun $TP $1", TP="2", **{"1": "x"}) == ["run", "2", "x"]
    (word,) = read_script("run a$X").commands[0].words[1:]
    assert word.unknown == ("X",)
    assert not word.known


def test_a_text_written_to_a_file_keeps_its_places() -> None:
    text = 'B=4\ncat > ds.json <<EOF\n{"batch": $B}\nEOF\nrun'
    inline = read_script(text).files["ds.json"]
    assert (inline.text, inline.line) == ('{"batch": 4}\n', 3)
    first = inline.text.index("4")
    assert text[slice(*(inline.span(first, first + 1) or (0, 0)))] == "4"
    quoted = read_script("cat <<'E' > a\n$B\nE\n").files["a"]
    assert quoted.text == "$B\n"
    assert read_script("tee a <<-E\n\tx\n\tE\n").files["a"].text == "\tx\n"


def test_lines_and_environment() -> None:
    script = read_script("A=1\nexport B=2\nC=3 run \\\n  --x 1\n")
    command = script.commands[0]
    assert command.line == 3
    assert [word.line for word in command.words] == [3, 4, 4]
    assert {name: w.text for name, w in command.environment.items()} == {"B": "2", "C": "3"}


def test_arguments_alone() -> None:
    found = read_arguments("--tp 8\n--bf16 --x '1 2'\n")
    assert [w.text for w in found] == ["--tp", "8", "--bf16", "--x", "1 2"]


@pytest.mark.parametrize(
    ("text", "line", "why"),
    [
        ('A=1\nB="never', 2, "quote"),
        ("run 'never", 1, "quote"),
        ("\nA=(1 2", 2, "list"),
        ("run ${A", 1, "bracket"),
        ("run $((1+2)", 1, "bracket"),
        ("run `x", 1, "back quote"),
        ("cat > a <<EOF\nx", 1, "no end"),
        ("A=x\n" + "A=$A$A$A$A\n" * 40 + "run $A", 12, "grow"),
        ("run " + "${A:-" * 60 + "}" * 60, 1, "deeply"),
        ("if true; then\n" * 600, 502, "deeply"),
    ],
)
def test_a_script_that_cannot_be_read_says_where(text: str, line: int, why: str) -> None:
    with pytest.raises(InputError) as caught:
        read_script(text)
    (fault,) = caught.value.faults
    assert why in fault.problem
    assert fault.place == f"line {line}"


def test_broken_scripts_never_raise_anything_else() -> None:
    rng = random.Random(5)
    bits = BITS.split(" ")
    for _ in range(3000):
        text = rng.choice(["", " "]).join(rng.choice(bits) for _ in range(rng.randint(1, 40)))
        try:
            script = read_script(text)
        except InputError:
            continue
        for word in (w for c in script.commands for w in c.words if w.span):
            assert text.replace("\ue000", "\ufffd")[slice(*(word.span or ()))] == word.text
