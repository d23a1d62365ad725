"""Rows that have the same answers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cec_mpi.core.code.decoder import Decoder


class Segment:
    """Rows ``start <= row < stop`` that have the same answers throughout."""

    __slots__ = (
        *("decoded", "decoder", "enough", "expected", "given"),
        *("needed", "seen", "start", "stop", "used", "wanted"),
    )

    def __init__(self, start: int, stop: int, enough: int) -> None:
        self.start, self.stop = start, stop
        # Without so many machines L answers have to be left: 1 where answers are compared,
        self.enough = enough
        self.needed = enough  # and as many before they are looked at.
        self.wanted: set[int] = set()  # those to be looked at with the others, if they come
        self.used: tuple[int, ...] = ()  # machines whose answers were decoded
        self.decoder: Decoder | None = None  # of these
        self.seen = 0  # answers that these were chosen from
        self.expected: set[int] = set()
        self.given: dict[int, NDArray[np.floating]] = {}
        self.decoded = False

    def cut(self, row: int, columns: int) -> Segment:
        """Keep the rows before this one; returns those from it on."""
        size = (row - self.start) * columns
        after = Segment(row, self.stop, self.enough)
        after.needed, after.used = self.needed, self.used
        after.expected, after.wanted = set(self.expected), set(self.wanted)
        after.given = {machine: values[size:] for machine, values in self.given.items()}
        after.decoded, after.decoder, after.seen = self.decoded, self.decoder, self.seen
        self.stop = row
        self.given = {machine: values[:size] for machine, values in self.given.items()}
        return after

    @property
    def is_doubtful(self) -> bool:
        """Whether its answers disagree."""
        return not self.decoded and self.needed > self.enough
