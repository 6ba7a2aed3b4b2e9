"""Tests in a script: ``[ ... ]`` and ``[[ ... ]]``."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable

from optplan.launches.shell_sums import work_out


def holds(words: list[str], known: Callable[[str], str | None]) -> bool:
    """Decide ``[ ... ]``; what nobody sets is empty."""
    words = [re.sub(r"\$\{[^}]*\}", "", w) for w in words]
    words = [w for w in words[1:] if w not in ("]", "]]")]
    for sign, every in (("||", False), ("-o", False), ("&&", True), ("-a", True)):
        if sign in words:
            cut = words.index(sign)
            halves = (holds(["[", *words[:cut]], known), holds(["[", *words[cut + 1 :]], known))
            return all(halves) if every else any(halves)
    if words[:1] == ["!"]:
        return not holds(words, known)
    if len(words) == 1:
        return bool(words[0])
    if len(words) == 2:
        return {"-z": not words[1], "-n": bool(words[1])}.get(words[0], False)
    if len(words) == 3:
        left, sign, right = words
        if sign in ("=", "=="):
            return fnmatch.fnmatchcase(left, right)
        if sign == "!=":
            return not fnmatch.fnmatchcase(left, right)
        if sign == "=~":
            return False
        signs = {"-eq": "==", "-ne": "!=", "-lt": "<", "-le": "<=", "-gt": ">", "-ge": ">="}
        if sign in signs:
            text = f"({left or 0}) {signs[sign]} ({right or 0})"
            return bool(work_out(text, known))
    return False
