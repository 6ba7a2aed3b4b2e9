"""The page of an answer: whole, escaped, bounded, the same every time, and refused when forged."""

from __future__ import annotations

import base64
import hashlib
import re
import subprocess
import sys
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest

import optplan
from optplan.models.cost.price import NEW_TERMS, PARTS, PHASES, TERMS
from optplan.models.units import bytes_text, seconds_text
from optplan.report.html import solved
from optplan.report.html.spec import HEAD
from optplan.result import Reply
from tests.optplan import answers
from tests.optplan.command import ROOT, script

KINDS = (*answers.SPECS, "evaluation", "over", "answer", "sizing", "comparison")
VOID = {"meta", "link", "br", "img", "input", "hr"}
SPEC_405B = ROOT / "examples" / "llama-3.1-405b-16384-h100.yaml"
LARGEST = 300_000
"""Bytes that the page of a plan of sixteen stages may have."""


class Page(HTMLParser):
    """What a test wants to know of a page; an unbalanced tag fails."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.stack: list[str] = []
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.words: list[str] = []
        self.raw: dict[str, list[str]] = {"script": [], "style": [], "pre": []}
        self.feed(text)
        self.close()
        assert not self.stack, self.stack
        self.text = " ".join(" ".join(self.words).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a tag."""
        self.tags.append((tag, {name: value or "" for name, value in attrs}))
        if tag in self.raw:
            self.raw[tag].append("")
        if tag not in VOID:
            self.stack.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a tag that closes itself."""
        self.tags.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        """Close the tag that is open."""
        assert self.stack, f"</{tag}> closes nothing"
        assert self.stack[-1] == tag, f"</{tag}> closes <{self.stack[-1]}>"
        self.stack.pop()

    def handle_data(self, data: str) -> None:
        """Note a text."""
        within = self.stack[-1] if self.stack else ""
        if within in self.raw:
            self.raw[within][-1] += data
        if within not in ("script", "style"):
            self.words.append(data)

    def all(self, tag: str) -> list[dict[str, str]]:
        """Attributes of every such tag."""
        return [attributes for name, attributes in self.tags if name == tag]


def made(name: str) -> tuple[str, Page]:
    """A page, as text and as read."""
    text = optplan.report(answers.every()[name])
    return text, Page(text)


@pytest.mark.parametrize("name", KINDS)
def test_every_page_is_sound(name: str) -> None:
    """Balanced, one main heading, every link inside leads somewhere, every table has heads."""
    _, page = made(name)
    names = [tag for tag, _ in page.tags]
    assert names.count("h1") == 1
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    for _, attributes in page.tags:
        for where in ("href", "src"):
            if where in attributes:
                assert attributes[where] == "data:," or attributes[where][1:] in ids
        if "aria-labelledby" in attributes:
            assert attributes["aria-labelledby"] in ids
    assert names.count("table") == names.count("caption") == names.count("thead")
    assert all(head.get("scope") in ("col", "row") for head in page.all("th"))
    assert all("aria-label" in one for one in page.all("svg") if one.get("role") == "img")
    levels = [int(tag[1]) for tag in names if re.fullmatch("h[1-6]", tag)]
    assert all(below <= above + 1 for above, below in pairwise(levels))


@pytest.mark.parametrize("name", KINDS)
def test_a_page_needs_nothing_outside(name: str) -> None:
    """No address but its own, a policy that allows its own style and script and nothing else."""
    text, page = made(name)
    policy = next(m["content"] for m in page.all("meta") if "http-equiv" in m)
    rules = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    assert rules["default-src"] == "'none'"
    ours = [
        code for code, tag in zip(page.raw["script"], page.all("script"), strict=True) if not tag
    ]
    for code, rule in ((ours[0], "script-src"), (page.raw["style"][0], "style-src")):
        digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
        assert rules[rule] == f"'sha256-{digest}'"
    assert len(ours) == len(page.raw["style"]) == 1
    assert not [a for _, a in page.tags if "style" in a or any(n.startswith("on") for n in a)]
    assert set(re.findall(r"url\(([^)]*)\)", text)) <= {"#hatch"}
    assert "@import" not in text
    # The one address in it is the name of SVG, in the script and nowhere else.
    outside = set(re.findall(r"https?://[^\s\"'<]+", text.replace(ours[0], "")))
    assert outside <= {"https://huggingface.co"} or not outside


@pytest.mark.parametrize("name", ["small", "evaluation", "answer", "sizing"])
def test_names_that_are_markup_show_as_text(name: str) -> None:
    """Nothing of a name becomes a tag, an attribute, a piece of script or of a template."""
    text, page = made(name)
    assert answers.SCRIPT in page.text
    if name != "sizing":  # whose heading does not name the machine
        assert answers.CLOSING in page.text
    assert not page.all("img")
    assert "{{7*7}}" in page.text
    kinds = [tag.get("type", "") for tag in page.all("script")]
    assert sorted(kinds) in (["", "application/json"], [""])
    assert "alert(" not in "".join(page.raw["script"])
    assert "<script>alert" not in text


def test_the_first_screen_says_the_answer() -> None:
    result = answers.result("deep")
    assert result.plan is not None
    assert result.estimate is not None
    text, page = made("deep")
    head = Page(text[text.index("<header>") : text.index("</header>") + 9]).text
    assert "llama-2-70b on 128 \u00d7 h100-sxm-80gb" in head
    for word in ("tp 4", "pp 16", f"dp {result.plan.dp}", "Proven optimal", "7.1% off"):
        assert word in head
    assert seconds_text(result.estimate.step_seconds) in head
    assert bytes_text(result.estimate.memory.peak_bytes) in head
    for warning in result.warnings:
        assert warning in head
    assert page.text.index("Step time") < page.text.index("Where a step goes")


def test_the_page_says_what_the_answer_holds() -> None:
    """Terms, parts, phases, counts of the proof, error, digest: every one is there."""
    result = answers.result("deep")
    assert result.estimate is not None
    _, page = made("deep")
    shown = [name for name in TERMS if result.estimate.terms[name] or name not in NEW_TERMS]
    for word in (*shown, *PARTS, *PHASES):
        assert word in page.text
    certificate = result.certificate
    for count in (certificate.points, *certificate.removed_by_rule.values(), certificate.left):
        assert f"{count:,}" in page.text
    assert certificate.fingerprint in page.text
    assert result.digest in page.text
    assert result.problem.accuracy.error in page.text
    assert result.verdict is not None
    assert all(name in page.text for name in list(result.verdict.kept)[:100])
    for use in result.estimate.memory.stages:
        assert bytes_text(use.peak_bytes) in page.text


def test_without_a_plan_the_clash_and_the_ways_out_come_first() -> None:
    result = answers.result("clash")
    text, page = made("clash")
    head = Page(text[text.index("<header>") : text.index("</header>") + 9]).text
    assert "No plan exists" in head
    assert result.explanation.core
    for reason in result.explanation.core:
        assert reason.rule in head
        assert reason.text in head
    for way in result.explanation.ways_out:
        assert way.change in page.text
    assert "time-line" not in text
    assert "Where a step goes" not in page.text


def test_the_spec_on_the_page_is_the_problem() -> None:
    """What a reader copies from the page solves the very same problem."""
    for name in answers.SPECS:
        problem = answers.result(name).problem
        specs = [text for text in made(name)[1].raw["pre"] if text.startswith(HEAD)]
        assert len(specs) == 2
        for spec in specs:
            assert optplan.load(spec).fingerprint == problem.fingerprint
    assert any("architecture: llama-2-70b" in text for text in made("deep")[1].raw["pre"])


def test_a_page_of_sixteen_stages_is_small() -> None:
    text, _ = made("deep")
    assert len(text.encode()) <= LARGEST


def test_no_plan_makes_a_page_large() -> None:
    """126 stages on 16,384 devices with thousands of micro-batches: what is too much is told."""
    problem = optplan.load(SPEC_405B, sets=["global_batch=8192"])
    layers = (1,) * 126
    plan = optplan.Plan(
        tp=8,
        pp=126,
        dp=2,
        cp=8,
        micro_batch=1,
        micro_batches=4096,
        global_batch=8192,
        layers_per_stage=layers,
        recomputed_layers_per_stage=layers,
        recompute="full",
    )
    text = optplan.report(answers.planned(problem, plan))
    assert len(text.encode()) <= LARGEST
    words = Page(text).text
    assert "of 4,096 micro-batches" in words
    assert "of 126 stages in the middle are left out" in words
    assert "the first 16 of 2,048 nodes" in words


@pytest.mark.parametrize("name", ["small", "clash"])
def test_equal_answers_give_equal_pages(name: str, tmp_path: Path) -> None:
    """Twice in one process, and in another one that shuffles its sets otherwise."""
    path = answers.written(tmp_path, answers.result(name))
    first = optplan.report(answers.result(name))
    assert optplan.report(answers.result(name)) == first
    code = script(
        "import pathlib, optplan\nfrom optplan.report.html.read import read_answer\n"
        f"page = optplan.report(read_answer({str(path)!r})[1])\n"
        f"pathlib.Path({str(tmp_path / 'page.html')!r}).write_text(page, encoding='utf-8')"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONHASHSEED": "7"})
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == first


def test_what_was_asked_besides_shows() -> None:
    for name in ("Trade-offs", "The robust plan", "What would change the answer"):
        assert name not in made("small")[1].text
    page = Page(optplan.report(answers.fuller()))
    assert {"front", "flips", "robust"} <= {section["id"] for section in page.all("section")}
    for word in ("EUR a billion tokens", "network efficiency", "optima were proved", "holds from"):
        assert word in page.text
    assert "within-error" in {section["id"] for section in made("deep")[1].all("section")}


def test_a_launch_shows_where_one_can_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "torchrun pretrain.py --name '</pre><script>'"
    monkeypatch.setattr(solved, "launch_text", lambda result: text)
    page = Page(optplan.report(answers.result("small")))
    assert page.raw["pre"][0] == text
    assert "The launch" in page.text


def test_a_notebook_shows_a_card() -> None:
    result = answers.result("small")
    assert result.estimate is not None
    card = Page(result._repr_html_())
    assert answers.SCRIPT in card.text
    assert "Proven optimal" in card.text
    assert seconds_text(result.estimate.step_seconds) in card.text
    assert not card.all("script")
    none = Page(answers.result("clash")._repr_html_())
    assert "No plan exists" in none.text
    assert answers.result("clash").explanation.core[0].rule in none.text


def test_what_has_no_page_is_refused() -> None:
    with pytest.raises(optplan.InputError, match="a Reply has no page"):
        optplan.report(Reply())


def test_a_result_that_stopped_early_says_so() -> None:
    held = answers.result("small")
    early = held.model_copy(
        update={
            "status": held.status.model_copy(
                update={"termination": "time-limit", "holding": "feasible"}
            ),
            "alternatives": (),
        }
    )
    words = Page(optplan.report(early)).text
    assert "Best so far" in words
    assert "time ran out" in words
    assert "a better plan may exist" in words
    nothing = early.model_copy(update={"plan": None, "estimate": None, "verdict": None})
    nothing = nothing.model_copy(
        update={
            "status": held.status.model_copy(
                update={"termination": "time-limit", "holding": "nothing"}
            )
        }
    )
    words = Page(optplan.report(nothing)).text
    assert "Nothing found" in words
