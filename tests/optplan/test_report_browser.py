"""Pages opened in a headless Chromium: nothing clipped, nothing overlaps, everything works."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import optplan
from tests.optplan import answers
from tests.optplan.browser import Browser, browser, program

needs_chromium = pytest.mark.skipif(
    program() is None,
    reason="no Chromium on this machine (apt-get install chromium, or name one in "
    "OPTPLAN_CHROMIUM)",
)
pytestmark = needs_chromium

WIDTHS = {"desktop": 1280, "tablet": 768, "phone": 390}
SCHEMES = ("light", "dark")

LOOK = """
(() => {
  const found = [];
  const wide = document.documentElement.clientWidth;
  document.querySelectorAll('details').forEach(one => { one.open = true; });
  if (document.documentElement.scrollWidth > wide)
    found.push(`the page is ${document.documentElement.scrollWidth} wide, the window ${wide}`);
  const seen = [];
  const cut = (box, element) => {
    // What is left of a box inside everything that clips it; scrolled out of sight is no fault.
    let b = { left: box.left, right: box.right, top: box.top, bottom: box.bottom, scrolls: false };
    for (let up = element; up && up !== document.documentElement; up = up.parentElement) {
      const style = getComputedStyle(up);
      if (style.overflowX === 'visible' && style.overflowY === 'visible') continue;
      if (up.namespaceURI !== 'http://www.w3.org/1999/xhtml') continue;
      const edge = up.getBoundingClientRect();
      const scrolls = ['auto', 'scroll'].includes(style.overflowX);
      if (!scrolls && (b.right > edge.right + 1 || b.left < edge.left - 1)) return 'clipped';
      b.scrolls = b.scrolls || scrolls;
      b.left = Math.max(b.left, edge.left); b.right = Math.min(b.right, edge.right);
      b.top = Math.max(b.top, edge.top); b.bottom = Math.min(b.bottom, edge.bottom);
    }
    return b;
  };
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const node = walk.currentNode, parent = node.parentElement;
    const text = node.textContent.trim();
    if (!text || parent.closest('script, style, [hidden], defs, title')) continue;
    if (getComputedStyle(parent).visibility === 'hidden') continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    const boxes = parent.namespaceURI.endsWith('svg')
      ? [parent.getBoundingClientRect()] : Array.from(range.getClientRects());
    for (const box of boxes) {
      if (box.width < 1 || box.height < 1) continue;
      const left = cut(box, parent);
      if (left === 'clipped') { found.push(`clipped: ${text.slice(0, 60)}`); continue; }
      if (left.right <= left.left || left.bottom <= left.top) continue;
      if (!left.scrolls && (left.left < -1 || left.right > wide + 1))
        found.push(`outside the window: ${text.slice(0, 60)}`);
      seen.push({ text, node, ...left });
    }
  }
  seen.sort((a, b) => a.top - b.top);
  for (let i = 0; i < seen.length; i++) {
    for (let j = i + 1; j < seen.length && seen[j].top < seen[i].bottom - 2; j++) {
      const a = seen[i], b = seen[j];
      if (a.node === b.node) continue;
      const across = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const down = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      if (across > 2 && down > 3)
        found.push(`overlap: ${a.text.slice(0, 40)} | ${b.text.slice(0, 40)}`);
    }
  }
  document.querySelectorAll('.node g').forEach(device => {
    const box = device.querySelector('rect').getBoundingClientRect();
    device.querySelectorAll('text').forEach(text => {
      const at = text.getBoundingClientRect();
      if (at.left < box.left - 1 || at.right > box.right + 1)
        found.push(`wider than its box: ${text.textContent}`);
    });
  });
  return { found: Array.from(new Set(found)), texts: seen.length };
})()
"""
"""Lists texts that are clipped, leave the window, or lie on each other."""

CONTRAST = """
(() => {
  const rgb = text => (text.match(/[\\d.]+/g) || [0, 0, 0, 0]).map(Number);
  const light = colour => {
    const [r, g, b] = colour.slice(0, 3).map(v => {
      v /= 255;
      return v <= 0.03928 ? v / 12.92 : Math.pow((v + 0.055) / 1.055, 2.4);
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const under = element => {
    const device = element.closest('.node g');
    if (device) {
      const fill = getComputedStyle(device.querySelector('rect')).fill;
      if (fill !== 'none') return rgb(fill);
    }
    for (let up = element; up; up = up.parentElement) {
      const colour = rgb(getComputedStyle(up).backgroundColor);
      if (colour.length < 4 || colour[3] > 0) return colour;
    }
    return [255, 255, 255];
  };
  const worst = {};
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  let looked = 0;
  while (walk.nextNode()) {
    const parent = walk.currentNode.parentElement;
    if (!walk.currentNode.textContent.trim() || parent.closest('script, style, [hidden]')) continue;
    const style = getComputedStyle(parent);
    const ink = rgb(parent.namespaceURI.endsWith('svg') ? style.fill : style.color);
    const [a, b] = [light(ink), light(under(parent))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    looked++;
    if (ratio < 4.5) worst[parent.className.baseVal || parent.className || parent.tagName] = ratio;
  }
  return { worst, looked };
})()
"""
"""Lists texts whose contrast is below 4.5 to 1."""


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as found:
        yield found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every page, written once."""
    place = tmp_path_factory.mktemp("pages")
    for name, answer in answers.every().items():
        (place / f"{name}.html").write_text(optplan.report(answer), encoding="utf-8")
    return place


def settled(chromium: Browser, page: Path) -> None:
    """Nothing went wrong so far, and nothing was asked for but the page itself."""
    chromium.run("new Promise(done => requestAnimationFrame(() => setTimeout(done, 0)))")
    assert chromium.complaints() == []
    assert chromium.requests() == [page.resolve().as_uri()]


@pytest.mark.parametrize("width", WIDTHS.values(), ids=WIDTHS)
@pytest.mark.parametrize(
    "name", [*answers.SPECS, "evaluation", "over", "answer", "sizing", "comparison"]
)
def test_nothing_is_clipped_or_overlaps(
    chromium: Browser, folder: Path, name: str, width: int
) -> None:
    """In both schemes: no complaint, no request, every text whole, apart and readable."""
    page = folder / f"{name}.html"
    for scheme in SCHEMES:
        chromium.open(page, width, scheme)
        told = chromium.run(LOOK)
        assert told["texts"] > 20
        assert told["found"] == [], scheme
        contrast = chromium.run(CONTRAST)
        assert contrast["looked"] > 20
        assert contrast["worst"] == {}, scheme
        settled(chromium, page)


def test_the_checks_above_can_fail(chromium: Browser, tmp_path: Path) -> None:
    """A page that clips, overlaps, leaves the window, is pale and asks for things is found out."""
    page = tmp_path / "bad.html"
    page.write_text(
        "<!doctype html><title>x</title><body style='color:#aaa;background:#fff'>"
        "<div style='width:40px;overflow:hidden;white-space:nowrap'>this text is clipped</div>"
        "<p style='position:absolute;top:200px;left:0'>one text</p>"
        "<p style='position:absolute;top:200px;left:0'>on another</p>"
        "<div style='width:3000px'>wide</div><script>console.error('x')</script>"
        "<img src='https://example.invalid/x.png'>",
        encoding="utf-8",
    )
    chromium.open(page, 390, "light")
    found = " ".join(chromium.run(LOOK)["found"])
    for word in ("clipped: this text", "overlap: one text | on another", "the page is 3"):
        assert word in found
    assert chromium.run(CONTRAST)["worst"]
    assert chromium.complaints()
    assert len(chromium.requests()) == 2


@pytest.mark.parametrize("width", WIDTHS.values(), ids=WIDTHS)
def test_tables_sort_by_value(chromium: Browser, folder: Path, width: int) -> None:
    page = folder / "deep.html"
    chromium.open(page, width, "light")
    chromium.run("document.querySelectorAll('details').forEach(one => { one.open = true; })")
    assert chromium.run("document.querySelectorAll('table[data-sortable]').length") >= 5
    click = """
    (name => {
      const table = document.querySelector('#memory table[data-sortable]');
      const heads = Array.from(table.tHead.rows[0].cells);
      const i = heads.findIndex(head => head.textContent.trim() === name);
      heads[i].querySelector('button').click();
      return [heads[i].getAttribute('aria-sort'),
        Array.from(table.tBodies[0].rows).map(row => Number(row.cells[i].dataset.key))];
    })
    """
    for name in ("peak", "stage", "activations"):
        for way in ("ascending", "descending"):
            told, numbers = chromium.run(f"{click}({name!r})")
            assert told == way
            assert len(numbers) == 16
            assert len(set(numbers)) > 1
            assert numbers == sorted(numbers, reverse=way == "descending")
    settled(chromium, page)


TIP = "document.getElementById('tip').hidden ? '' : document.getElementById('tip').textContent"


def point(chromium: Browser, choose: str) -> str:
    """Put the pointer in the middle of an element, and read what the page says of it."""
    middle = f"""
    (() => {{
      const one = {choose};
      one.scrollIntoView({{ block: 'center', behavior: 'instant' }});
      const box = one.getBoundingClientRect();
      return [box.left + box.width / 2, box.top + box.height / 2];
    }})()
    """
    x, y = chromium.run(middle)
    chromium.run("new Promise(done => requestAnimationFrame(() => setTimeout(done, 30)))")
    chromium.move(x - 1, y)
    chromium.move(x, y)
    said: str = chromium.run(TIP)
    return said


@pytest.mark.parametrize("width", WIDTHS.values(), ids=WIDTHS)
def test_hover_tells_more(chromium: Browser, folder: Path, width: int) -> None:
    """Terms, parts of a bar, passes, devices: plain words where the pointer is."""
    page = folder / "deep.html"
    chromium.open(page, width, "dark")
    assert "drains" in point(
        chromium,
        "Array.from(document.querySelectorAll('.term')).find(t => t.textContent === 'TB')",
    )
    assert "stage 0, gradients:" in point(
        chromium, "document.querySelector('.bars rect.gradients')"
    )
    view = "document.querySelector('#timeline-drawing [data-boxes]')"
    assert "of micro-batch" in point(chromium, view)
    device = "document.querySelector('#cluster-drawing g')"
    assert "rank 0: tp 0" in point(chromium, device)
    assert chromium.run("document.querySelectorAll('#cluster-drawing .peer').length") == 4
    chromium.move(1, 1)
    assert chromium.run(TIP) == ""
    settled(chromium, page)


def test_keys_reach_what_the_pointer_reaches(chromium: Browser, folder: Path) -> None:
    page = folder / "deep.html"
    chromium.open(page, 1280, "light")
    chromium.run("document.querySelector('#timeline-drawing .view').focus()")
    for key in ("ArrowRight", "ArrowRight", "ArrowDown"):
        chromium.key(key)
    status = "document.querySelector('[data-zoom-tools] [role=status]').textContent"
    assert "stage 1, " in chromium.run(status)
    chromium.run("document.querySelector('#cluster-drawing g').focus()")
    chromium.key("ArrowRight")
    assert "rank 1:" in chromium.run("document.activeElement.dataset.tip")
    chromium.run("document.querySelector('.term').focus()")
    settled(chromium, page)


def test_the_time_line_zooms_and_says_what_is_there(chromium: Browser, folder: Path) -> None:
    """Every pass that is drawn can be pointed at, and is called what the simulation calls it."""
    page = folder / "small.html"
    chromium.open(page, 1280, "light")
    drawn = "document.querySelector('#timeline-drawing .view > svg').getBoundingClientRect().width"
    narrow = chromium.run(drawn)
    chromium.run("document.querySelector('[data-zoom=in]').click()")
    chromium.run("document.querySelector('[data-zoom=in]').click()")
    assert chromium.run(drawn) == pytest.approx(4 * narrow, rel=0.01)
    assert chromium.run("document.documentElement.scrollWidth") <= 1280
    ticks = "document.querySelectorAll('#timeline-drawing .tick:not([visibility=hidden])').length"
    assert chromium.run(ticks) >= 10
    assert chromium.run(LOOK)["found"] == []
    chromium.run("document.querySelector('[data-zoom=fit]').click()")
    assert chromium.run(drawn) == pytest.approx(narrow, rel=0.01)
    result = answers.result("small")
    assert result.plan is not None
    box = "document.querySelector('#timeline-drawing .view > svg').getBoundingClientRect()"
    chromium.run("document.querySelector('#timeline').scrollIntoView({behavior: 'instant'})")
    chromium.run("new Promise(done => requestAnimationFrame(() => setTimeout(done, 30)))")
    left, top, wide = chromium.run(f"[{box}.left, {box}.top, {box}.width]")
    chromium.move(left + 3, top + 10)
    chromium.move(left + 2, top + 10)
    assert chromium.run(TIP).startswith("stage 0, forward of micro-batch 0: ")
    chromium.move(left + wide - 3, top + 10)
    last = result.plan.micro_batches - 1
    assert chromium.run(TIP).startswith(f"stage 0, backward of micro-batch {last}: ")
    settled(chromium, page)


def test_what_is_folded_prints(chromium: Browser, folder: Path) -> None:
    page = folder / "deep.html"
    chromium.open(page, 1280, "dark")
    told = chromium.call("Page.printToPDF", printBackground=True)
    assert len(told["data"]) > 10_000
    chromium.call("Emulation.setEmulatedMedia", media="print")
    look = "getComputedStyle(document.querySelector('nav')).display"
    assert chromium.run(look) == "none"
    pale = "getComputedStyle(document.body).backgroundColor"
    assert chromium.run(pale) in ("rgb(255, 255, 255)", "rgba(0, 0, 0, 0)")
    chromium.run("window.dispatchEvent(new Event('beforeprint'))")
    assert chromium.run("document.querySelectorAll('details:not([open])').length") == 0
    chromium.run("window.dispatchEvent(new Event('afterprint'))")
    assert chromium.run("document.querySelectorAll('details:not([open])').length") > 0
    chromium.call("Emulation.setEmulatedMedia", media="")
    settled(chromium, page)


def test_a_page_reads_without_its_script(chromium: Browser, folder: Path) -> None:
    """A reader that runs no script still sees the drawings and the numbers."""
    page = folder / "deep.html"
    chromium.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        chromium.open(page, 390, "light")
        chromium.call("DOM.enable")
        chromium.call("DOM.getDocument")
        told = chromium.call(
            "DOM.performSearch", query="#timeline-drawing path", includeUserAgentShadowDOM=False
        )
        assert told["resultCount"] >= 2
    finally:
        chromium.call("Emulation.setScriptExecutionDisabled", value=False)
    settled(chromium, page)
