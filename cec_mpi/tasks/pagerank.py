"""PageRank."""

from __future__ import annotations

import os
from functools import partial, reduce
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cec_mpi.errors import InputError
from cec_mpi.tasks.common.centring import LinearMap
from cec_mpi.tasks.common.checkpoint import NO_CHECKPOINT, Checkpoint, restore_array, restore_state
from cec_mpi.tasks.common.options import (
    check_choice,
    check_fraction,
    check_integer,
    check_square,
    read_vector,
    warn_of_tolerance,
)
from cec_mpi.tasks.common.scaling import check_range, factors_of_division

_MIN_SUM_RATIO = 100  # smallest ratio of sums of links to rounding errors
_NEGATIVE_TOLERANCE = 1000  # times the error of a product; rounding errors of scores are smaller
_BAND_LOG2 = 512  # sums of links within a factor of 2**512 share a product
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
        Maximum number of iterations, with one product each; a resumed run performs at least one.
        One more product sums the links. If sums differ extremely, iterations need more, see Notes.
    personalization : (n,) array_like or path of an .npy file, optional
        Nonnegative weights of nodes as targets of a jump, not all 0. By default all are equal.
    links : {"rows", "columns"}
        Whether ``X[i, j]`` is the link from i to j ("rows") or from j to i ("columns"). Iterations
        are products with X' for "rows", and with X for "columns".
    checkpoint : Checkpoint
        Saves ``scores``, (n,), ``degrees``, (n,), ``product_error`` and ``iterations``. A later run
        performs the same iterations as an uninterrupted one.

    Returns
    -------
    dict
        ``result``: (n,) ndarray, the scores, with sum 1; ``change``: 1-norm of the change of the
        scores in the last iteration; ``dangling``: number of nodes without outgoing links;
        ``iterations``: number of iterations; ``converged``: whether `tol` was reached.

    Raises
    ------
    InputError
        X is not square, the sum of the links from or to a node is negative or may be a rounding
        error, sums of links are too large for float64, an option is out of range, or the checkpoint
        does not match.

    Warns
    -----
    ToleranceWarning
        `tol` is below ``X.attainable_tol``.

    Notes
    -----
    With A[i, j] the link from i to j, and p the personalization vector with sum 1, the scores x
    are the limit of ::

        s_i = sum_j A[i, j]
        x_j <- d * (sum_i A[i, j] x_i / s_i + p_j * sum of x_i with s_i = 0) + (1 - d) * p_j

    A node has no outgoing links if s_i is 0. An iteration makes one product for all nodes whose
    sums s_i are within a factor of ``2**512``. (In a store of copies, a sum below 1e-300 times the
    largest weight may be 0.)

    If `links` ("rows" or "columns") is not in ``X.accurate_along``, s_i may have an error of up
    to ``10 * X.product_error * max(s)``, and a node has no links if s_i is not above this bound.
    The bound is for the worst case, and may exceed sums of real links. The task therefore raises if
    the largest sum below the bound and the smallest sum above it differ by a factor of less than
    100. With ``links="columns"`` it also raises if any sum below the bound is not 0.

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
    state = restore_state(
        checkpoint, scores=(size,), degrees=(size,), product_error=(), iterations=()
    )
    if state:
        scores, degrees = restore_array("scores", state["scores"]), state["degrees"]
        done_iterations = int(state["iterations"])
        product_error = float(state["product_error"])
    else:
        with np.errstate(over="ignore", invalid="ignore"):
            degrees, done_iterations = sum_links(np.ones(size)), 0
        scores = np.broadcast_to(jump, size)
        check_range(f"the largest sum of the {links} of X", degrees, may_underflow=True)
        # Error of the sums of links, relative to the largest sum; small sums may be exact.
        has_exact_sums = links in getattr(X, "accurate_along", ())
        product_error = 0.0 if has_exact_sums else float(getattr(X, "product_error", 0.0))
    has_links = _links_mask(degrees, product_error, links, is_strict=hasattr(X, "accurate_along"))
    propagate = _make_propagator(X, np.where(has_links, degrees, 0.0), links)
    dangling = np.flatnonzero(~has_links)
    difference = np.empty(size)
    converged = False
    max_iterations = max(max_iterations, done_iterations + 1)
    while not converged and done_iterations < max_iterations:
        checkpoint.save(
            scores=partial(np.asarray, scores),  # the next iteration makes a new array
            degrees=lambda: degrees,
            product_error=np.float64(product_error),
            iterations=done_iterations,
        )
        previous, scores = scores, propagate(scores)
        _check_not_negative(X, scores, links)
        scores += previous[dangling].sum() * jump
        scores *= damping
        scores += (1 - damping) * jump
        np.maximum(scores, 0.0, out=scores)
        scores /= scores.sum()
        done_iterations += 1
        np.subtract(scores, previous, out=difference)
        change = float(np.abs(difference, out=difference).sum())
        checkpoint.progress(change=change)
        converged = change < tol
    return {
        "result": scores,
        "change": change,
        "dangling": len(dangling),
        "iterations": done_iterations,
        "converged": converged,
    }


def _jump_distribution(
    personalization: ArrayLike | os.PathLike[str] | None, size: int
) -> NDArray[np.float64] | float:
    """Return the probability of each node as the target of a jump; one number if all are equal."""
    if personalization is None:
        return 1 / size
    weights = read_vector("personalization", personalization, size)
    if weights.min() < 0 or not weights.any():
        raise InputError(
            f"personalization has weights from {weights.min()} to {weights.max()}, expected "
            "weights that are not negative and not all 0"
        )
    weights /= weights.max()  # prevents overflow of the sum
    return weights / weights.sum()  # type: ignore[no-any-return]


def _make_propagator(X: Any, degrees: NDArray[Any], links: str) -> LinearMap:
    """Return the function that propagates scores along links, ``A' (x / s)``.

    Nodes whose sums s are within a factor of ``2**_BAND_LOG2`` share a product, so that
    the division by a sum never underflows.
    """
    mantissas, exponents = np.frexp(degrees)
    has_links = degrees > 0
    max_exponent = int(exponents[has_links].max(initial=-_MAX_EXPONENT))
    bands = np.where(has_links, (max_exponent - exponents) // _BAND_LOG2, -1)
    multiply: LinearMap = X.rmatvec if links == "rows" else X.matvec
    factors: list[tuple[NDArray[Any], float]] = []  # of vectors and of products, by band
    for band in np.unique(bands[has_links]).tolist():
        exponent = max_exponent - _BAND_LOG2 * band
        is_in_band = bands == band
        weights = np.divide(1.0, mantissas, out=np.zeros(len(degrees)), where=is_in_band)
        weights = np.ldexp(weights, np.where(is_in_band, exponent - exponents, 0))
        input_factor, output_factor = factors_of_division(exponent)
        factors.append((weights * input_factor, output_factor))
    weighted = np.empty(len(degrees))

    def propagate(scores: NDArray[Any]) -> NDArray[Any]:
        terms = [
            output_factor * multiply(np.multiply(scores, input_factors, out=weighted))
            for input_factors, output_factor in factors
        ]
        return reduce(np.add, terms) if terms else np.zeros(len(scores))

    return propagate


def _check_not_negative(X: Any, propagated: NDArray[Any], links: str) -> None:
    """Raise if the links to a node have a negative sum beyond rounding errors."""
    product_error = max(float(getattr(X, "product_error", 0.0)), float(np.finfo(np.float64).eps))
    lowest_node = int(propagated.argmin())
    if propagated[lowest_node] < -_NEGATIVE_TOLERANCE * product_error * propagated.max():
        axis = "column" if links == "rows" else "row"
        raise InputError(
            f"{axis} {lowest_node} of X (counted from 0) holds negative weights, expected "
            "weights that are not negative"
        )


def _links_mask(
    degrees: NDArray[Any], product_error: float, links: str, is_strict: bool
) -> NDArray[np.bool_]:
    """Return a mask of the nodes with outgoing links, from the sums of their weights.

    If `is_strict`, the sums of columns without links must be exactly 0, as in a store.
    """
    largest = max(float(degrees.max()), 0.0)
    error = 10 * product_error * largest
    lowest_node = int(degrees.argmin())
    if degrees[lowest_node] < -error:
        raise InputError(
            f"{links[:-1]} {lowest_node} of X (counted from 0) has the sum "
            f"{degrees[lowest_node]}, expected weights that are not negative"
        )
    has_links = degrees > error
    smallest_sum = float(degrees[has_links].min(initial=np.inf))
    largest_ignored = float(np.abs(degrees[~has_links]).max(initial=0.0))
    if largest_ignored * _MIN_SUM_RATIO > smallest_sum or (
        largest_ignored and is_strict and links == "columns"
    ):
        raise InputError(
            f"the {links} of X have sums of {largest_ignored:.2g} and {smallest_sum:.2g}, and "
            f"rounding errors may reach {error:.2g}, so nodes without links cannot be recognised: "
            f"encode X with dtype float64 and scaling {'rows' if links == 'rows' else 'none'}"
        )
    return has_links
