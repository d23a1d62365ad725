"""Medians of a few numbers."""

from __future__ import annotations

import numpy as np

from cec_mpi.core.plan.assignment import Ints
from cec_mpi.core.speeds.given import Floats

DEVIATION = 1.4826
"""Standard deviation of normal numbers over their median deviation."""


def median(values: Floats) -> float:
    """The median: five times as fast as NumPy's where there are few values."""
    ordered, half = np.sort(values), values.size // 2
    return float(ordered[half] if values.size % 2 else (ordered[half - 1] + ordered[half]) / 2)


def upper_median(values: Floats, held: Ints) -> Floats:
    """The median of each row, of which the `held` smallest count; of two, the larger."""
    middle: Floats = np.sort(values, axis=1)[np.arange(len(values)), held // 2]
    return middle
