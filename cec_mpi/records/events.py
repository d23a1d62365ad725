"""What can happen to machines, as records name it and people are told: a line for each kind."""

from __future__ import annotations

from typing import NamedTuple


class Kind(NamedTuple):
    """A kind of event.

    Attributes
    ----------
    kind : str
        In the records.
    words : str
        What happened to a machine.
    one, several : str
        What a number of them is a number of.
    colour, dark : str
        By day and by night.
    mark : str
        Its shape in charts.
    """

    kind: str
    words: str
    one: str
    several: str
    colour: str
    dark: str
    mark: str


_TAKEN, _NOT_TAKEN = ("taken over", "taken over"), ("not taken over", "not taken over")
_LEFT, _ASKED = "left on a warning", "asked no more"
KINDS = (
    Kind("lost", "was lost", "lost", "lost", "#b3261e", "#ff8a80", "x"),
    Kind("joined", "joined", "joined", "joined", "#1b6e3c", "#7bd99b", "+"),
    Kind("given up", "was given up", "given up", "given up", "#7d1f5c", "#f2a1d4", "d"),
    Kind("leaving", _LEFT, _LEFT, _LEFT, "#8a5200", "#ffc26b", "v"),
    Kind("excluded", f"is {_ASKED}", _ASKED, _ASKED, "#5c4033", "#d7b8a8", "!"),
    Kind("late", "answered late", "late answer", "late answers", "#6b5b00", "#e6d15c", "o"),
    Kind("wrong", "answered wrongly", "wrong answer", "wrong answers", "#8b0000", "#ff6e6e", "s"),
    Kind("adopted", "took over a shard", *_TAKEN, "#00695c", "#80e0d0", ">"),
    Kind("not adopted", "could not take over a shard", *_NOT_TAKEN, "#455a64", "#b0bec5", "<"),
    Kind("rebuilt", "rebuilt rows", "rebuilt", "rebuilt", "#005a8c", "#80cfff", "^"),
)
"""The one table; records may have others, which are told under their own names."""

KIND_OF = {each.kind: each for each in KINDS}
