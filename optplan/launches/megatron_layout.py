"""The layout language of Megatron Core: ``Et*3|(tt|)*29m|L``, what every chunk of it holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

LETTERS = "EtmL"
"""Embedding, transformer layer, multi-token prediction, loss."""

MOST = 100_000
"""Letters of a layout written out."""


class LayoutError(ValueError):
    """A layout that cannot be read; the text says why."""


@dataclass(frozen=True)
class Chunk:
    """
    What one chunk of the pipeline holds.

    Parameters
    ----------
    layers
        Transformer layers.
    predictions
        Blocks of multi-token prediction.
    embedding, loss
        Whether it holds an end of the network.
    """

    layers: int
    predictions: int = 0
    embedding: bool = False
    loss: bool = False


def parse(text: str) -> tuple[Chunk, ...]:
    """
    Read a layout, first chunk to last.

    Chunks go around the stages: with four stages the fifth chunk lies on the first stage again.

    Raises
    ------
    LayoutError
        It is no layout, or one that Megatron Core refuses.

    Examples
    --------
    >>> [chunk.layers for chunk in parse("Et*3|(tt|)*2,m|L")]
    [3, 2, 2, 0, 0]
    """
    letters = _Letters(text.replace(",", "").replace(" ", ""))
    flat = letters.group("")
    if letters.at < len(letters.text):
        raise LayoutError("a bracket ) is closed that was never opened")
    order = [letter for letter in flat if letter != "|"]
    if order.count("E") != 1 or order[0] != "E":
        raise LayoutError("it must begin with the embedding, E, and hold no other")
    if order.count("L") != 1 or order[-1] != "L":
        raise LayoutError("it must end with the loss, L, and hold no other")
    if "m" in order and "t" in order[order.index("m") :]:
        raise LayoutError("layers of prediction, m, come after all others, t")
    parts = flat.split("|")
    return tuple(Chunk(p.count("t"), p.count("m"), "E" in p, "L" in p) for p in parts)


class _Letters:
    """A layout on the way to letters alone."""

    def __init__(self, text: str) -> None:
        self.text, self.at, self.inside = text, 0, False

    def group(self, closing: str) -> str:
        """Write out letters and brackets up to a closing bracket."""
        parts: list[str] = []
        size = 0
        while self.at < len(self.text) and self.text[self.at] != ")":
            parts.append(self._one())
            size += len(parts[-1])
            if size > MOST:
                raise LayoutError(f"it has more than {MOST} layers")
        if closing and self.at >= len(self.text):
            raise LayoutError("a bracket ( is never closed")
        return "".join(parts)

    def _one(self) -> str:
        """Write out one letter or bracket with its multiplier."""
        letter = self.text[self.at]
        self.at += 1
        if letter == "(":
            inner = self._inside()
        elif letter in LETTERS or letter == "|":
            inner = letter
        else:
            raise LayoutError(f"'{letter}' is none of {', '.join(LETTERS)}, |, *, ( and )")
        if not self.text.startswith("*", self.at):
            return inner
        end = self.at + 1
        while end < len(self.text) and self.text[end].isdigit() and end - self.at < 8:
            end += 1
        number = self.text[self.at + 1 : end]
        if not number:
            raise LayoutError("a number must follow *")
        self.at = end
        if len(inner) * int(number) > MOST:
            raise LayoutError(f"it has more than {MOST} layers")
        return inner * int(number)

    def _inside(self) -> str:
        """Write out what brackets hold."""
        if self.inside:
            raise LayoutError("brackets inside brackets")
        self.inside = True
        inner = self.group(")")
        self.inside = False
        self.at += 1
        return inner


def write(chunks: Sequence[int], predictions: int = 0) -> str:
    """
    Write a layout of chunks with these numbers of layers.

    Parameters
    ----------
    chunks
        Layers of every chunk, first to last.
    predictions
        Blocks of multi-token prediction, on the last chunk.

    Examples
    --------
    >>> write([3, 4, 4, 4, 2])
    'Et*3|(t*4|)*3t*2L'
    """
    bodies = [_times("t", n) for n in chunks]
    bodies[0] = "E" + bodies[0]
    bodies[-1] += _times("m", predictions) + "L"
    text, at = "", 0
    while at < len(bodies):
        same = at
        # The last chunk has no bar behind it, so it stands outside a repetition.
        while same + 1 < len(bodies) - 1 and bodies[same + 1] == bodies[at]:
            same += 1
        count = same - at + 1
        bar = "|" if same < len(bodies) - 1 else ""
        text += f"({bodies[at]}|)*{count}" if count > 1 else bodies[at] + bar
        at = same + 1
    return text


def _times(letter: str, count: int) -> str:
    """Write a letter several times."""
    return f"{letter}*{count}" if count > 3 else letter * count


def stages(chunks: Sequence[Chunk], pp: int) -> tuple[int, ...]:
    """
    Count the layers of every stage; chunks go around them.

    Raises
    ------
    LayoutError
        The stages do not divide the chunks.
    """
    if len(chunks) % pp:
        raise LayoutError(f"{len(chunks)} chunks are no multiple of {pp} stages")
    return tuple(sum(chunk.layers for chunk in chunks[i::pp]) for i in range(pp))
