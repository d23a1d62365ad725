"""Rows that have the same answers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cec_mpi.core.code.decoder import Decoder


class Segment:
    """Rows ``start <= row < stop`` that have the same answers throughout."""

    __slots__ = (
        *("decoded", "decoder", "enough", "expected", "given"),
        *("needed", "seen", "start", "stop", "used"),
    )

    def __init__(self, start: int, stop: int, enough: int) -> None:
        self.start, self.stop = start, stop
        self.enough = enough  # answers that agree: L, or more where they are compared
        self.needed = enough  # answers, before they are looked at
        self.used: tuple[int, ...] = ()  # machines whose answers were decoded
        self.decoder: Decoder | None = None  # of these
        self.seen = 0  # answers that these were chosen from
        self.expected: set[int] = set()
        self.given: dict[int, NDArray[np.floating]] = {}
        self.decoded = False

    @property
    def is_doubtful(self) -> bool:
        """Whether its answers disagree."""
        return not self.decoded and self.needed > self.enough
