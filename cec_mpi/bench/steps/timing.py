"""How long one of many steps takes."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

_UNCOUNTED = 3  # steps, the first ones


def median_step(step: Callable[[], object], steps: int) -> float:
    """Seconds of a step, the median of so many, which others come before."""
    ends = np.empty(1 + steps)
    for _ in range(_UNCOUNTED):
        step()
    ends[0] = time.perf_counter()
    for number in range(steps):
        step()
        ends[1 + number] = time.perf_counter()
    return float(np.median(np.diff(ends)))
