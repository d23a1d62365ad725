"""A picture as boxes and words, whatever it is written as; colours by what they stand for.

Units are pixels, x to the right and y down.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

BLOCKS = 8  # colours of blocks, used again and again

# Of each role: on light paper, and on dark. Blocks are light on both, since black letters stand
# on them; they differ for the colour-blind (Paul Tol's light scheme), and letters name them.
COLOURS: dict[str, tuple[str, str]] = {
    "paper": ("#ffffff", "#15181d"),
    "ink": ("#1f2328", "#e6e9ee"),
    "faint": ("#59636e", "#a8b1bd"),
    "stored": ("#e8ebee", "#2d333b"),
    "left": ("#b6bec7", "#59636e"),  # of a load
    "away": ("#ffffff", "#15181d"),  # hatched in `faint`
    "new": ("#101010", "#101010"),
    "on block": ("#101010", "#101010"),
    "block 0": ("#77aadd", "#77aadd"),
    "block 1": ("#ee8866", "#ee8866"),
    "block 2": ("#eedd88", "#eedd88"),
    "block 3": ("#44bb99", "#44bb99"),
    "block 4": ("#ffaabb", "#ffaabb"),
    "block 5": ("#bbcc33", "#bbcc33"),
    "block 6": ("#99ddff", "#99ddff"),
    "block 7": ("#aaaa00", "#aaaa00"),
}
HATCHED = "away"
OUTLINE = ("#3b424a", "#15181d")

_WIDTH_OF_LETTER = 0.6  # in sizes, of most fonts


def text_width(text: str, size: float) -> float:
    """About how wide a text will be."""
    return len(text) * size * _WIDTH_OF_LETTER


def letter(number: int) -> str:
    """The letter of block f: a for f = 1, .. z, aa, ab, ..

    Examples
    --------
    >>> letter(1), letter(26), letter(27), letter(703)
    ('a', 'z', 'aa', 'aaa')
    """
    letters = ""
    while number > 0:
        number, rest = divmod(number - 1, 26)
        letters = chr(ord("a") + rest) + letters
    return letters


def role_of(number: int) -> str:
    """The role of block f in `COLOURS`."""
    return f"block {(number - 1) % BLOCKS}"


@dataclass(frozen=True)
class Box:
    """A rectangle; `role` is a key of `COLOURS`."""

    x: float
    y: float
    width: float
    height: float
    role: str
    outlined: bool = False


@dataclass(frozen=True)
class Words:
    """A line of text whose baseline is at y."""

    x: float
    y: float
    text: str
    size: float = 13
    role: str = "ink"
    anchor: Literal["start", "middle", "end"] = "start"
    bold: bool = False


@dataclass(frozen=True)
class Scene:
    """A picture: boxes from the bottom up, then words.

    Attributes
    ----------
    title, description : str
        What it is, and what it shows, for who cannot see it.
    """

    width: float
    height: float
    title: str
    description: str
    boxes: Sequence[Box]
    words: Sequence[Words]
