"""PageRank."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cec_mpi.errors import InputError
from cec_mpi.tasks.common.centring import Product
from cec_mpi.tasks.common.checkpoint import NO_CHECKPOINT, Checkpoint, initial_vector, restore_state
from cec_mpi.tasks.common.options import (
    check_choice,
    check_fraction,
    check_integer,
    check_square,
    read_vector,
    warn_of_tolerance,
)
from cec_mpi.tasks.common.units import divide_operator, rescale

_MIN_GAP = 100  # minimum ratio of sums of links to rounding errors
_NEGATIVE_TOLERANCE = 1000  # accuracies; scores further below 0 are not rounding errors
_BAND = 512  # powers of two
_MAX_EXPONENT = 1024  # of float64


def pagerank(
    X: Any,
    *,
    damping: float = 0.85,
    tol: float = 1e-6,
    iterations: int = 1000,
    personalization: ArrayLike | os.PathLike[str] | None = None,
    links: str = "rows",
    checkpoint: Checkpoint = NO_CHECKPOINT,
) -> dict[str, Any]:
    """Compute the PageRank of a graph by power iteration.

    Parameters
    ----------
    X : operator
        Nonnegative weights of links, shape (n, n).
    damping : float
        Probability d of following a link, from 0 to below 1.
    tol : float
        Iterations stop when the 1-norm of the change of the scores is below `tol`. Then the scores
        are within ``tol * d / (1 - d)`` of the limit.
    iterations : int
        Maximum number of iterations, with one product each; a resumed run makes at least one.
    personalization : (n,) array_like or path of an .npy file, optional
        Nonnegative weights of nodes as targets of a jump, not all 0. By default all are equal.
    links : {"rows", "columns"}
        Whether ``X[i, j]`` is the link from i to j ("rows") or from j to i ("columns"). Iterations
        are products with X' for "rows", and with X for "columns".
    checkpoint : Checkpoint
        Saves ``scores``, (n,), ``degrees``, (n,), ``accuracy`` and ``iterations``. A later run
        makes the same iterations as an uninterrupted one.

    Returns
    -------
    dict
        ``result``: (n,) ndarray, the scores, with sum 1; ``change``: 1-norm of the change of the
        scores in the last iteration; ``dangling``: number of nodes without outgoing links;
        ``iterations``: their number; ``converged``: whether `tol` was reached.

    Raises
    ------
    InputError
        X is not square, the sum of the links from or to a node is negative or may be a rounding
        error, sums of links are too large for float64, an option is out of range, or the checkpoint
        does not match.

    Warns
    -----
    ToleranceWarning
        `tol` is below ``X.attainable``.

    Notes
    -----
    With A[i, j] the link from i to j, and p the personalization vector with sum 1, the scores x
    are the limit of ::

        s_i = sum_j A[i, j]
        x_j <- d * (sum_i A[i, j] x_i / s_i + p_j * sum of x_i with s_i = 0) + (1 - d) * p_j

    A node has no outgoing links if s_i is 0. Sums may be of very different sizes: an iteration
    makes one product for each range of 512 powers of two with sums. (In a store of copies, a sum
    below 1e-300 times the largest weight may be 0.)

    If the rows or columns of a store are not in ``X.accurate_along``, s_i may have an error of up
    to ``10 * X.accuracy * max(s)``, and a node has no links if s_i is not above this bound. The
    bound is for the worst case, and may exceed sums of real links. So the task raises an error if
    the largest sum below the bound and the smallest sum above it differ by a factor of less than
    100, and for columns if any sum below it is not 0.

    Examples
    --------
    >>> from scipy.sparse.linalg import aslinearoperator
    >>> links = np.array([[0.0, 1.0, 1.0], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0]])
    >>> pagerank(aslinearoperator(links))["result"].round(3)
    array([0.198, 0.282, 0.521])
    """
    size = check_square("pagerank", X)
    damping = check_fraction("damping", damping, allow_zero=True)
    tol = check_fraction("tol", tol)
    max_iterations = check_integer("iterations", iterations, 1)
    links = check_choice("links", links, ("rows", "columns"))
    jump = _jump_distribution(personalization, size)
    warn_of_tolerance(X, "pagerank", tol)
    sum_links = X.matvec if links == "rows" else X.rmatvec
    state = restore_state(checkpoint, scores=(size,), degrees=(size,), accuracy=(), iterations=())
    if state:
        scores, degrees = initial_vector("scores", state["scores"]), state["degrees"]
        done_iterations = int(state["iterations"])
        accuracy = float(state["accuracy"])
    else:
        with np.errstate(over="ignore", invalid="ignore"):
            scores, degrees, done_iterations = jump, sum_links(np.ones(size)), 0
        rescale(f"the largest sum of the {links} of X", degrees, 0, {}, may_underflow=True)
        accuracy = _accuracy(X, links)  # of the sums of links
    linked = _has_links(degrees, accuracy, links, is_strict=hasattr(X, "accurate_along"))
    follow = _make_follow(X, np.where(linked, degrees, 0.0), links)
    converged = False
    max_iterations = max(max_iterations, done_iterations + 1)
    while not converged and done_iterations < max_iterations:
        checkpoint.save(
            scores=scores,
            degrees=degrees,
            accuracy=np.float64(accuracy),
            iterations=done_iterations,
        )
        before = scores
        followed = follow(scores)
        _check_not_negative(X, followed, links)
        followed += scores[~linked].sum() * jump
        scores = np.maximum(damping * followed + (1 - damping) * jump, 0.0)
        scores /= scores.sum()
        done_iterations += 1
        change = float(np.abs(scores - before).sum())
        checkpoint.progress(change=change)
        converged = change < tol
    return {
        "result": scores,
        "change": change,
        "dangling": int(size - linked.sum()),
        "iterations": done_iterations,
        "converged": converged,
    }


def _jump_distribution(
    personalization: ArrayLike | os.PathLike[str] | None, size: int
) -> NDArray[np.float64]:
    """Return the probability of each node as the target of a jump."""
    if personalization is None:
        return np.full(size, 1 / size)
    weights = read_vector("personalization", personalization, size)
    if weights.min() < 0 or not weights.any():
        raise InputError(
            f"personalization has weights from {weights.min()} to {weights.max()}, expected "
            "weights that are not negative and not all 0"
        )
    weights /= weights.max()  # prevents overflow of the sum
    return weights / weights.sum()  # type: ignore[no-any-return]


def _accuracy(X: Any, links: str) -> float:
    """Return the error of sums of links relative to the largest sum; 0 if small sums are exact."""
    if links in getattr(X, "accurate_along", ()):
        return 0.0
    return float(getattr(X, "accuracy", 0.0))


def _make_follow(X: Any, degrees: NDArray[Any], links: str) -> Product:
    """Return the function that propagates scores along links, ``A' (x / s)``.

    Nodes whose sums s are within a factor of ``2**_BAND`` share a product, so that the division by
    a sum never underflows.
    """
    mantissas, exponents = np.frexp(degrees)
    linked = degrees > 0
    top = int(exponents[linked].max(initial=-_MAX_EXPONENT))
    bands = np.where(linked, (top - exponents) // _BAND, -1)
    products: list[tuple[Product, NDArray[Any]]] = []
    for band in np.unique(bands[linked]).tolist():
        exponent = top - _BAND * band
        in_band = bands == band
        share = np.divide(1.0, mantissas, out=np.zeros(len(degrees)), where=in_band)
        operator = divide_operator(X, exponent)
        product = operator.rmatvec if links == "rows" else operator.matvec
        products.append((product, np.ldexp(share, np.where(in_band, exponent - exponents, 0))))

    def follow(scores: NDArray[Any]) -> NDArray[Any]:
        followed = np.zeros(len(scores))
        for product, share in products:
            followed += product(scores * share)
        return followed

    return follow


def _check_not_negative(X: Any, followed: NDArray[Any], links: str) -> None:
    """Raise if the links to a node have a negative sum beyond rounding errors."""
    accuracy = max(float(getattr(X, "accuracy", 0.0)), float(np.finfo(np.float64).eps))
    lowest = int(followed.argmin())
    if followed[lowest] < -_NEGATIVE_TOLERANCE * accuracy * followed.max():
        to = "column" if links == "rows" else "row"
        raise InputError(
            f"{to} {lowest} of X (counted from 0) holds negative weights, expected weights that "
            "are not negative"
        )


def _has_links(
    degrees: NDArray[Any], accuracy: float, links: str, is_strict: bool
) -> NDArray[np.bool_]:
    """Return a mask of the nodes with outgoing links, from the sums of their weights.

    If `is_strict`, the sums of columns without links must be exactly 0, as in a store.
    """
    largest = max(float(degrees.max()), 0.0)
    error = 10 * accuracy * largest
    lowest = int(degrees.argmin())
    if degrees[lowest] < -error:
        raise InputError(
            f"{links[:-1]} {lowest} of X has the sum {degrees[lowest]}, expected weights that are "
            "not negative"
        )
    linked = degrees > error
    above = float(degrees[linked].min(initial=np.inf))
    below = float(np.abs(degrees[~linked]).max(initial=0.0))
    if below * _MIN_GAP > above or (below and is_strict and links == "columns"):
        raise InputError(
            f"the {links} of X have sums of {below:.2g} and {above:.2g}, and rounding errors may "
            f"reach {error:.2g}, so nodes without links cannot be recognised: encode X with dtype "
            f"float64 and scaling {'rows' if links == 'rows' else 'none'}"
        )
    return linked
