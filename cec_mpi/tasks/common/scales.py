"""Whether columns of X are alike in scale, for solvers that do badly where they are not."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from cec_mpi.errors import ScaleWarning
from cec_mpi.tasks.common.units import divided

_PROBES = 7  # random vectors: with 3, one of 25 to 40 wide X was warned of for nothing
_FAR_APART = 300.0  # of scales, from where on solvers are slow or end too early
_CONSTANT = 100.0  # accuracies of products: what varies less is rounding


def warn_of_scales(X: Any, task: str, *, centred: bool, exponent: int) -> None:
    """Warn where columns of X differ in scale: one step, with a block of eight vectors.

    Parameters
    ----------
    X : operator
        Shape (q, r).
    task : str
        For whom.
    centred : bool
        Whether a constant is fitted too: then a column is as large as it deviates from its
        mean, and a mean that is far larger is warned of as well.
    exponent : int
        Of the power of two that is about as large as X.

    Warns
    -----
    ScaleWarning
        The scales are estimated, within a factor of about 4 each.

    Notes
    -----
    For v of random signs the mean of ``(X' v)_j**2`` is ``||x_j||**2``; without its part along
    the vector of ones v sees what is left of a column without its mean.
    """
    rows, columns = X.shape
    probes = np.empty((rows, _PROBES + 1))
    probes[:, 0] = 1 / rows
    signs = np.random.default_rng(0).choice((-1.0, 1.0), (rows, _PROBES))
    probes[:, 1:] = (signs - signs.mean(axis=0) if centred else signs) / np.sqrt(rows)
    found = np.asarray(divided(X, exponent).rmatmat(probes)).reshape(columns, _PROBES + 1)
    means, scales = np.abs(found[:, 0]), np.sqrt((found[:, 1:] ** 2).mean(axis=1))
    accuracy = max(getattr(X, "accuracy", 0.0), np.finfo(np.float64).eps)
    varies = np.isfinite(scales) & (scales > _CONSTANT * accuracy * means) & (scales > 0)
    if not varies.any():
        return
    names = np.flatnonzero(varies)
    least, most = names[scales[varies].argmin()], names[scales[varies].argmax()]
    sizes, centres = np.ldexp(scales, exponent), np.ldexp(means, exponent)
    advice = "with columns of mean 0 and standard deviation 1 it is faster and more exact"
    if scales[most] > _FAR_APART * scales[least]:
        _warn(
            f"{task}: column {least} of X (from 0) has a scale of about {sizes[least]:.0e}, "
            f"column {most} of {sizes[most]:.0e}: {advice}"
        )
    elif centred and (means > _FAR_APART * scales)[varies].any():
        worst = names[(means[varies] / scales[varies]).argmax()]
        _warn(
            f"{task}: column {worst} of X (from 0) has a mean of about {centres[worst]:.0e} and "
            f"varies by {sizes[worst]:.0e}: {advice}"
        )


def _warn(text: str) -> None:
    warnings.warn(text, ScaleWarning, stacklevel=4)
