"""How small a wrong answer the parity checks of a code can see.

The weights of some codes are so small that rounding hides any error. So the smallest error that can
be seen is measured, like conditioning. Units are those of `rounding`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, combinations, islice
from math import comb

import numpy as np
from numpy.typing import DTypeLike, NDArray

from cec_mpi.core.accuracy.rounding import answer_error
from cec_mpi.core.checks.parity import checking_error
from cec_mpi.core.code.conditioning import sample_subsets

Floats = NDArray[np.float64]

_WORK = 4e8  # subsets times L**2 N: a few seconds
_LEAST_SAMPLE = 32
_MOST_SUBSETS = 200_000
_BATCH = 2_000_000  # numbers in one batch of subsets


@dataclass(frozen=True)
class Sensitivity:
    """The errors of an answer that a code can see.

    Attributes
    ----------
    median : float
        The median of `detectable` over sets of L machines.
    detectable : float
        An error larger than this, in units of S times the machine epsilon of the shards, is
        seen by any L + 1 machines; infinite where there are no L + 1 machines, or where some
        of them see nothing.
    locatable : float
        From here on any L + 3 machines name the wrong one, if not more than two are wrong;
        infinite where there are none.
    least_weight : float
        The smallest weight of a machine among L + 1.
    machines : tuple of int
        The machines that see least, from 1; the first is the one whose error they miss.
    measured : int
        How many sets of L machines were measured, each with any further machine.
    complete : bool
        Whether that is all of them. Otherwise `detectable` and `locatable` are
        underestimates.
    """

    median: float
    detectable: float
    locatable: float
    least_weight: float
    machines: tuple[int, ...]
    measured: int
    complete: bool

    def unseen(self, dtype: DTypeLike, columns: int) -> float:
        """Return the largest error of an answer that L + 1 machines may miss, relative to X w.

        Parameters
        ----------
        dtype : dtype
            Of the shards.
        columns : int
            Of X, r.

        Returns
        -------
        float
            `detectable`, with r terms of changing sign and like size in each row: they add up
            to about ``S / sqrt(r)``.
        """
        return self.detectable * float(np.finfo(dtype).eps) * float(columns**0.5)


def measure_sensitivity(
    generator: Floats,
    dtype: DTypeLike,
    columns: int,
    badly_conditioned: Sequence[int] | None = None,
    largest: int = _MOST_SUBSETS,
    arithmetic: DTypeLike = "float64",
) -> Sensitivity:
    """Measure what any L + 1 machines detect, and any L + 3 locate.

    Parameters
    ----------
    generator : (N, L) ndarray of float
    dtype : dtype
        Of the shards.
    columns : int
        Of X, r.
    badly_conditioned : (L,) sequence of int, optional
        A set of machines to measure in any case: the worst of `Conditioning`.
    largest : int
        How many sets of L machines are few: all are measured up to here, and of more a
        sample, the same each time.
    arithmetic : dtype
        In which products are computed.

    Returns
    -------
    Sensitivity

    Notes
    -----
    Let W be L machines, n a further one and ``h = g_n inv(G_W)``. The only check of W and n
    is ``(-h, 1) / sqrt(1 + norm(h)**2)``, so n has weight ``p = 1 / sqrt(1 + norm(h)**2)``.
    An error E of n makes ``norm(C a) >= p E - t S`` with t the tolerance, and fails if that
    exceeds t S. So E is seen if ``E > 2 t S / p``.

    Examples
    --------
    >>> from cec_mpi.core.code.mds import make_code
    >>> found = measure_sensitivity(make_code(6, 3).generator, np.float32, columns=100)
    >>> round(found.least_weight, 3), round(found.detectable)
    (0.236, 51)
    """
    machines, recovery = generator.shape
    if machines <= recovery:
        return Sensitivity(np.inf, np.inf, np.inf, 0.0, (), 0, True)
    errors = answer_error(generator, dtype, arithmetic, columns)
    sizes = np.abs(generator).sum(axis=1)
    every = comb(machines, recovery)
    budget = max(_LEAST_SAMPLE, int(_WORK / (recovery**2 * machines)))
    complete = every <= min(largest, max(budget, machines))
    subsets: Iterator[tuple[int, ...]] = combinations(range(machines), recovery)
    if not complete:
        worst_ones = [] if badly_conditioned is None else [badly_conditioned]
        always = [tuple(sorted(n - 1 for n in numbers)) for numbers in worst_ones]
        count = min(largest, budget, 2_000) - len(always)
        subsets = chain(always, sample_subsets(machines, recovery, count))
    worst, where, least_weight = -1.0, (0,) * (recovery + 1), 1.0
    sizes_seen: list[Floats] = []
    while batch := list(islice(subsets, max(1, _BATCH // (recovery * machines)))):
        chosen = np.array(batch)
        weights = _weights(generator, chosen)
        inside = np.zeros(weights.shape, dtype=bool)
        np.put_along_axis(inside, chosen, True, axis=1)
        squares = (errors[chosen] ** 2).sum(axis=1)[:, None] + errors**2
        computing = (sizes[chosen] ** 2).sum(axis=1)[:, None] + sizes**2
        tolerance = np.sqrt(squares) + checking_error(recovery + 1, recovery) * np.sqrt(computing)
        size = _detectable(weights, tolerance)
        size[inside] = 0.0
        sizes_seen.append(size.max(axis=1))
        least_weight = min(least_weight, float(weights[~inside].min()))
        if size.max() > worst:
            worst = float(size.max())
            row, n = divmod(int(size.argmax()), machines)
            where = (n, *batch[row])
    found = np.concatenate(sizes_seen) / float(np.finfo(dtype).eps)
    detectable = float(found.max())
    return Sensitivity(
        median=float(np.median(found)),
        detectable=detectable,
        locatable=detectable if machines >= recovery + 3 else np.inf,
        least_weight=least_weight,
        machines=tuple(n + 1 for n in where),
        measured=found.size,
        complete=complete,
    )


def _weights(generator: Floats, chosen: NDArray[np.int64]) -> Floats:
    """Return the weights of all machines with each set of L machines."""
    matrices = generator[chosen]
    with np.errstate(all="ignore"):
        try:
            inverses = np.linalg.inv(matrices)
        except np.linalg.LinAlgError:  # singular: with these no error is seen
            inverses = np.linalg.pinv(matrices)
            singular = np.linalg.matrix_rank(matrices) < generator.shape[1]
            inverses[singular] = np.inf
        squares = 1 + ((generator @ inverses) ** 2).sum(axis=2)
        weights = 1 / np.sqrt(squares)
    found: Floats = np.nan_to_num(weights, nan=0.0)
    return found


def _detectable(weights: Floats, tolerance: Floats) -> Floats:
    """Return the smallest errors that are always seen, ``2 t / p``; infinite for weight 0."""
    sizes = np.full(weights.shape, np.inf)
    np.divide(2 * tolerance, weights, out=sizes, where=weights > 0)
    return sizes
