"""The proof in words, where every layout went, and what the rules said."""

from __future__ import annotations

from optplan.models.rules.registry import rules
from optplan.models.units import bytes_text, seconds_text
from optplan.report.html.tables import Cell, Column, Table, cells, columns
from optplan.report.html.words import ENDED
from optplan.result import Certificate, Result, Verdict


def status(result: Result) -> tuple[str, str, str]:
    """Say in a word, a note and a tone what is known."""
    gap = result.certificate.gap
    within = "" if gap is None else f"gap {gap:.1e}" if 0 < gap < 0.01 else f"gap {gap:.1%}"
    if result.plan is None:
        if result.exit_code == 1:
            return "No plan exists", "proved; the clash is below", "bad"
        return "Nothing found", ENDED.get(result.status.termination, ""), "bad"
    if result.status.holding == "optimal":
        every = f"{result.certificate.points:,}"
        return "Proven optimal", f"of {every} layouts none is better; {within}", "good"
    why = ENDED.get(result.status.termination, result.status.termination)
    return "Best so far", f"{why}, {within}", ""


def sentences(result: Result) -> list[str]:
    """Tell the proof."""
    told = result.certificate
    broken = sum(told.removed_by_rule.values())
    said = [
        f"The space holds {told.points:,} layouts (10^{told.strategies_log10:.1f} with every way "
        "to hand out their layers to stages)."
    ]
    if broken:
        said.append(f"{broken:,} of them break a rule.")
    if told.removed_by_bound:
        said.append(
            f"{told.removed_by_bound:,} cannot beat the plan: even what they cost at the very "
            "least is more."
        )
    pruned = sum(told.prunings.values())
    if pruned:
        said.append(f"{pruned:,} were skipped by what is known to rise or fall.")
    done = result.exit_code in (0, 1)
    if told.left:
        noun = "was" if told.left == 1 else "were"
        said.append(
            f"{told.left:,} {noun} left and decided one by one."
            if done
            else f"{told.left:,} {noun} left and not settled."
        )
    if result.plan is not None:
        said += _bounds(told, result.status.holding == "optimal")
    elif done:
        said.append("Nothing is left, so no plan exists.")
    return said


def _bounds(told: Certificate, optimal: bool) -> list[str]:
    """Set price and bound side by side."""
    said = []
    if told.bound_seconds is not None:
        said.append(f"So no layout takes less than {told.bound_seconds:.6g} s a step.")
    elif told.bound is not None and told.unit == "bytes":
        said.append(f"So no layout needs less than {bytes_text(told.bound)} on a device.")
    if told.gap is not None:
        word = "nothing that the numbers can tell apart" if told.gap < 1e-6 else f"{told.gap:.2%}"
        said.append(f"A better one could save {word}." if told.bound is not None else "")
    if not optimal:
        said.append("The search stopped before it was done, so a better plan may exist.")
    return [text for text in said if text]


def census(certificate: Certificate, done: bool) -> Table:
    """Show where every point of the space went."""
    heads = (
        Column("layouts", True),
        Column("share", True),
        Column("went by"),
        Column("which says"),
    )
    texts = {rule.name: rule.sentence for rule in rules()}

    def line(count: int, what: str, why: str, code: bool = True) -> tuple[Cell, ...]:
        share = count / max(1, certificate.points)
        tone = "code" if code else ""
        return cells(
            Cell(f"{count:,}", count),
            Cell(f"{share:.1%}", share, bar=share),
            Cell(what, tone=tone),
            why,
        )

    rows = [
        line(count, name, texts.get(name.split("[")[0], "a limit or rule of the user's own"))
        for name, count in certificate.removed_by_rule.items()
    ]
    rows += [
        line(count, name, "a fact of the paper's search: what rises or falls with it")
        for name, count in certificate.prunings.items()
        if count
    ]
    if certificate.removed_by_bound:
        why = "their least possible price exceeds that of the best plan"
        rows.append(line(certificate.removed_by_bound, "bound", why, False))
    last = "decided one by one by the engine" if done else "not settled"
    rows.append(line(certificate.left, "left", last, False))
    return Table(f"Where {certificate.points:,} layouts went", heads, tuple(rows))


def record(result: Result) -> Table:
    """List what it takes to check or repeat the proof."""
    told = result.certificate
    goal = "" if told.goal is None else f"{told.goal:.9g} {told.unit}"
    bound = "" if told.bound is None else f"{told.bound:.9g} {told.unit}"
    spent = sum(result.seconds.values())
    rows = [
        ("goal of the plan", goal),
        ("bound", bound),
        ("gap", "" if told.gap is None else f"{told.gap:.3e}"),
        ("one tick", seconds_text(told.tick_seconds)),
        ("layouts priced", f"{told.priced:,}"),
        ("ended", f"{result.status.termination}, {result.status.holding}"),
        ("engine", told.engine),
        ("seed", f"{told.seed}"),
        ("time spent", seconds_text(spent) if spent else ""),
        ("rules of the caller's own", ", ".join(result.rules)),
        ("fingerprint of the problem", told.fingerprint),
        ("digest of the answer", result.digest),
    ]
    shown = tuple(cells(name, Cell(text, tone="code")) for name, text in rows if text)
    return Table("The certificate", columns("what", "value"), shown, sortable=False)


MOST_FINDINGS = 120
"""Rules shown that hold; those that are broken are all shown."""


def verdict(found: Verdict) -> Table:
    """List what every rule said of the plan."""
    texts = {rule.name: rule.sentence for rule in rules()}

    def once(name: str) -> Cell:  # of rules that are asked of every stage
        return Cell(texts.pop(name.split("[")[0], ""), tone="dim")

    kept = list(found.kept.items())[:MOST_FINDINGS]
    rows = [
        cells(
            Cell(name, tone="code"),
            Cell(word, tone=tone),
            text,
            once(name),
        )
        for word, tone, group in (("broken", "bad", found.broken.items()), ("holds", "", kept))
        for name, text in group
    ]
    heads = columns("rule", "verdict", "numbers", "what it demands")
    title, left = "What every rule says of the plan", len(found.kept) - len(kept)
    title += f"; {left} more that hold are not shown" if left else ""
    return Table(title, heads, tuple(rows))
