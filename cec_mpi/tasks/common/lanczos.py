"""The largest eigenvalues of a symmetric positive semidefinite matrix, from its products.

Thick-restarted Lanczos (Wu and Simon, SIAM Journal on Matrix Analysis and Applications 22, 2000).
Unlike ARPACK, it can be stopped after any product and continued from a basis and the projected
matrix.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cec_mpi.errors import InputError
from cec_mpi.tasks.common.checkpoint import Checkpoint, initial_vector, restore_state

_EXTRA_VECTORS = 20  # vectors in the basis, in addition to two for each wanted eigenvector
_ROUNDING = 8 * float(np.finfo(np.float64).eps)  # relative: smaller values may be 0
_BELOW_NOISE = 0.1  # residuals smaller than this fraction of the errors of products have converged
# What a random vector has of a direction, relative to its root mean square: at least this is relied
# on, and less where A has been seen to have repeated eigenvalues.
_MIN_COMPONENT, _MIN_COMPONENT_REPEATED = 0.3, 0.003
_EQUAL_TOLERANCE = 1e-8  # relative: eigenvalues that are no further apart may be the same

Array = NDArray[np.float64]


def lanczos_state(checkpoint: Checkpoint, size: int, k: int) -> dict[str, NDArray[Any]] | None:
    """Return the state of an earlier run and its ``exponent``, or None if there is none.

    Raises
    ------
    InputError
        The state does not fit.
    """
    state = restore_state(
        checkpoint,
        basis=(None, size),
        projected=(None, None),
        first=(),
        noise=(),
        repeated=(),
        iterations=(),
        exponent=(1,),
    )
    if state is None:
        return None
    initial_vector("basis", state["basis"])
    initial_vector("projected", state["projected"])
    rows, most = len(state["basis"]), _most_vectors(size, k)
    first = int(state["first"])
    whole = state["projected"].shape == (rows, rows) and (not first or k <= first < rows)
    if not (0 < rows <= most and whole):
        raise InputError(
            f"the checkpoint does not fit this task: found {rows} vectors and a matrix of shape "
            f"{state['projected'].shape}, expected at most {most} for k {k}"
        )
    return state


class Lanczos:
    """An orthonormal basis that grows by one vector per product, and is restarted when full.

    Parameters
    ----------
    size : int
        Number of rows of the matrix A.
    k : int
        Number of eigenvalues, below `size`.
    tol : float
        Converged when the residuals of all k are below ``max(tol**2, eps)`` times their
        eigenvalues, or as small as the errors of products.
    seed : int
    state : dict, optional
        State of an earlier run.

    Attributes
    ----------
    converged : bool
    iterations : int
        Number of products so far.
    residual : float
        The largest ``||A v - value v||`` of the k first vectors, relative to the first value.

    Notes
    -----
    ``projected`` has in its lower triangle what exact arithmetic would give: the values of the
    vectors that were kept, and couplings of each vector to those before. Its last row couples the
    basis to the next vector, so the norm of its product with an eigenvector of the rest is that
    one's residual. What a product has of earlier vectors beyond that is an error, of the product
    or of rounding.

    Each distinct eigenvalue is found once: another eigenvector of the same one only grows from
    rounding errors, and may come too late. So when k have converged, iterations from a random
    vector that is orthogonal to the whole basis look for an eigenvector that the first vector had
    no part in. If its eigenvalue is above the k-th, it shows after a few iterations.
    """

    def __init__(
        self, size: int, k: int, tol: float, seed: int, state: dict[str, NDArray[Any]] | None
    ) -> None:
        self.converged = False
        self.iterations = 0
        self.residual = 0.0
        self._size, self._k, self._seed = size, k, seed
        self._tol = max(tol**2, float(np.finfo(np.float64).eps))
        self._most = _most_vectors(size, k)
        self._noise = 0.0
        self._has_repeated_eigenvalues = False  # whether A seems to have repeated eigenvalues
        self._projected_count = 0  # vectors whose products are projected; one more is in the basis
        self._first = 0  # of the vectors that look for missed eigenvalues, if there are any
        self._basis = np.zeros((self._most, size))
        self._projected = np.zeros((self._most + 1, self._most + 1))
        if state is None:
            self._basis[0] = self._random_unit_vector()
            return
        rows = len(state["basis"])
        self._projected_count = rows - 1
        self._first = int(state["first"])
        self._noise = float(state["noise"])
        self._has_repeated_eigenvalues = bool(state["repeated"])
        self.iterations = int(state["iterations"])
        self._basis[:rows] = state["basis"]
        self._projected[:rows, :rows] = state["projected"]

    @property
    def noise(self) -> float:
        """The largest observed error of a product, in the units of the eigenvalues."""
        return self._noise

    @property
    def vector(self) -> Array:
        """The vector to multiply with A next."""
        vector: Array = self._basis[self._projected_count]
        return vector

    def state(self) -> dict[str, Any]:
        """Return the state from which a later run continues. The basis is a function."""
        rows = self._projected_count + 1
        basis = self._basis[:rows]  # these rows do not change: a restart makes another array
        return {
            "basis": lambda: basis,
            "projected": self._projected[:rows, :rows],
            "first": self._first,
            "noise": self._noise,
            "repeated": int(self._has_repeated_eigenvalues),
            "iterations": self.iterations,
        }

    def found(self) -> Array:
        """Return the converged ones of the first k eigenvectors, as columns."""
        if self.converged:
            return self._basis[: self._k].T
        values, turn, residuals = self._ritz_pairs()
        good = np.flatnonzero(residuals[: self._k] <= self._residual_limits(values[: self._k]))
        vectors: Array = self._basis[: self._projected_count].T @ turn[:, good]
        return vectors

    def advance(self, product: Array) -> None:
        """Process the product of A and `vector`."""
        new, first = self._projected_count, self._first
        along, rest = _project_out(product, self._basis[: new + 1])
        errors = along[first:new] - self._projected[new, first:new]
        self._noise = max(self._noise, float(np.abs(errors).max(initial=0.0)))
        self._projected[new, :first] = along[:first]
        self._projected[new, new] = along[new]
        self._projected_count = count = new + 1
        self.iterations += 1
        length = float(np.linalg.norm(rest))
        following = None  # the basis spans what A makes of it
        if length > self._new_direction_threshold() and count < self._size:
            following = rest / length
            self._projected[count, new] = length
        else:
            self._has_repeated_eigenvalues = True
        if first:
            self._search_missed_eigenvalues(following)
        else:
            self._restart_if_due(following)

    def _restart_if_due(self, following: Array | None) -> None:
        """Restart with the best vectors when the basis is full, and when they have converged."""
        values, turn, residuals = self._ritz_pairs()
        k, count = self._k, self._projected_count
        done = count >= k and (residuals[:k] <= self._residual_limits(values[:k])).all()
        self.residual = float(residuals[:k].max() / values[0]) if values[0] > 0 else 0.0
        if done or count == self._size:
            space = (self._most - k) // 2
            self._replace_basis(
                turn.T[: max(k, min(count, self._most - space))] @ self._basis[:count]
            )
            self._fill_diagonal(values)
            self._first = self._projected_count
            self.converged = k == 1 or count == self._size
            following = None
        elif count == self._most:
            better = (k + self._most) // 2
            coupling = self._projected[count, :count] @ turn[:, :better]
            self._replace_basis(turn.T[:better] @ self._basis[:count])
            self._fill_diagonal(values)
            self._projected[better, :better] = coupling
        if not self.converged:
            self._append(following)

    def _search_missed_eigenvalues(self, following: Array | None) -> None:
        """Accept the k eigenvectors, unless there is an eigenvalue above theirs."""
        k, first, count = self._k, self._first, self._projected_count
        values, turn = _eigenpairs(self._projected[k:count, k:count])
        kept_values = self._projected.diagonal()
        least = max(kept_values[k - 1], 0.0)
        if values[0] > least + max(self._tol * least, self._noise, self._new_direction_threshold()):
            missed = turn[:, 0] @ self._basis[k:count]
            values = kept_values[:k].copy()
            self._replace_basis(self._basis[:k])
            self._fill_diagonal(values)
            self._first = 0
            self._has_repeated_eigenvalues = True
            self._append(missed)
            return
        near = max(self._tol, _EQUAL_TOLERANCE) * kept_values[0]
        self._has_repeated_eigenvalues |= bool(
            (kept_values[: k - 1] - kept_values[1:k] <= near).any()
        )
        others, _ = _eigenpairs(self._projected[first:count, first:count])
        enough = _steps_to_detect(
            kept_values[k - 2],
            max(others[0], kept_values[first - 1]),
            math.sqrt(self._size)
            / (_MIN_COMPONENT_REPEATED if self._has_repeated_eigenvalues else _MIN_COMPONENT),
        )
        if following is None or count == self._most or count - first >= enough:
            self.converged = True
        else:
            self._append(following)

    def _replace_basis(self, vectors: Array) -> None:
        """Begin another basis with these vectors."""
        self._basis = np.zeros((self._most, self._size))
        self._projected_count = len(vectors)
        self._basis[: self._projected_count] = vectors
        self._projected[:] = 0

    def _fill_diagonal(self, values: Array) -> None:
        where = np.arange(self._projected_count)
        self._projected[where, where] = values[: self._projected_count]

    def _append(self, vector: Array | None) -> None:
        """Multiply with this vector next, or with a random one."""
        self._basis[self._projected_count] = (
            self._random_unit_vector() if vector is None else vector
        )

    def _ritz_pairs(self) -> tuple[Array, Array, Array]:
        """Eigenvalues and eigenvectors of A projected, the largest first, and their residuals."""
        count = self._projected_count
        values, turn = _eigenpairs(self._projected[:count, :count])
        return values, turn, np.abs(self._projected[count, :count] @ turn)

    def _residual_limits(self, values: Array) -> Array:
        """What residuals of converged eigenvectors are below."""
        return np.maximum(self._tol * values, _BELOW_NOISE * self._noise)

    def _new_direction_threshold(self) -> float:
        """The length above which the residual of a vector against the basis is a new direction."""
        largest = float(self._projected.diagonal()[: self._projected_count].max(initial=0.0))
        return max(_ROUNDING * largest, self._noise)

    def _random_unit_vector(self) -> Array:
        """A random unit vector that is orthogonal to the basis: always the same one."""
        random = np.random.default_rng([self._seed, self.iterations])
        _, rest = _project_out(
            random.standard_normal(self._size), self._basis[: self._projected_count]
        )
        return rest / np.linalg.norm(rest)


def _most_vectors(size: int, k: int) -> int:
    return min(size, 2 * k + _EXTRA_VECTORS)


def _project_out(vector: Array, basis: Array) -> tuple[Array, Array]:
    """Return the components of a vector in an orthonormal basis, and the rest."""
    along = basis @ vector
    rest = vector - along @ basis
    again = basis @ rest  # the first time leaves rounding errors
    return along + again, rest - again @ basis


def _eigenpairs(symmetric: Array) -> tuple[Array, Array]:
    """Eigenvalues, the largest first, and eigenvectors, by the lower triangle."""
    values, vectors = np.linalg.eigh(symmetric)
    return values[::-1], vectors[:, ::-1]


def _steps_to_detect(larger: float, smaller: float, tangent: float) -> float:
    """Return after how many steps from a vector an eigenvalue exceeds all others.

    The bound of Kaniel and Paige: with t the tangent of the angle between the vector and the
    eigenvector, and g the gap relative to the others, half of the gap is filled when
    ``T(1 + 2 g)**2 >= 2 t**2 / g``, T the Chebyshev polynomial of one degree less.
    """
    if smaller <= 0:
        return 1
    gap = (larger - smaller) / smaller
    if gap <= 0:
        return math.inf
    needed = max(1.0, math.sqrt(2 / gap) * tangent)
    return 1 + math.acosh(needed) / math.acosh(1 + 2 * gap)
