"""Whether a tolerance can be met with the products that X has."""

from __future__ import annotations

import warnings
from typing import Any

from cec_mpi.errors import ToleranceWarning


def warn_of_tolerance(X: Any, task: str, tol: float) -> None:
    """Warn where a tolerance is smaller than what products of X can differ by.

    Parameters
    ----------
    X : operator
        With an attribute ``attainable``, or nothing is known of it.
    task : str
        For whom.
    tol : float
        Relative; 0 asks for the best there is, whatever that is.

    Warns
    -----
    ToleranceWarning
        Once, where `tol` is below ``X.attainable``.
    """
    attainable = float(getattr(X, "attainable", 0.0))
    if 0 < tol < attainable:
        text = (
            f"{task}: tol {tol:.0e} is below {attainable:.0e}, by which products of X differ from "
            "each other: it may not be met, or not hold when other machines are available (a "
            "store of float64 has more digits)"
        )
        warnings.warn(text, ToleranceWarning, stacklevel=3)
