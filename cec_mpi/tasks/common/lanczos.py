"""The largest eigenvalues of a symmetric positive semidefinite matrix, by a Lanczos method.

Thick-restarted Lanczos (Wu and Simon, SIAM Journal on Matrix Analysis and Applications 22, 2000).
Unlike ARPACK, it can be stopped after any product and resumed from the basis and the projected
matrix.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cec_mpi.errors import InputError
from cec_mpi.tasks.common.checkpoint import Checkpoint, restore_array, restore_state

_EXTRA_VECTORS = 20  # of the basis, in addition to two for each eigenvector
_ROUNDING = 8 * float(np.finfo(np.float64).eps)  # relative; smaller norms may be rounding errors
_NOISE_FRACTION = 0.1  # of the errors of products, below which residuals have converged
# Assumed component of a random vector in a given direction, relative to its root mean square; a
# smaller one if A seems to have repeated eigenvalues.
_MIN_COMPONENT, _MIN_COMPONENT_REPEATED = 0.3, 0.003
_EQUAL_TOLERANCE = 1e-8  # relative distance of eigenvalues that may be equal

Array = NDArray[np.float64]


def restore_lanczos(checkpoint: Checkpoint, size: int, k: int) -> dict[str, NDArray[Any]] | None:
    """Return the validated state of an earlier run, or None.

    Raises
    ------
    InputError
        The state does not match these sizes.
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
    for name in ("basis", "projected"):
        restore_array(name, state[name])  # raises if entries are too large
    count, limit = len(state["basis"]), _max_basis_size(size, k)
    search_start = int(state["first"])
    is_square = state["projected"].shape == (count, count)
    if not 0 < count <= limit or not is_square or (search_start and not k <= search_start < count):
        raise InputError(
            f"the checkpoint does not fit this task: found {count} vectors and a matrix of shape "
            f"{state['projected'].shape}, expected at most {limit} vectors for k {k}"
        )
    return state


class Lanczos:
    """Thick-restarted Lanczos iteration for the k largest eigenvalues of a matrix A.

    Parameters
    ----------
    size : int
        Number of rows of A.
    k : int
        Number of eigenvalues, at most `size`.
    tol : float
        Converged when all k residuals are below ``max(tol**2, eps)`` times their eigenvalues, or
        below a tenth of the largest observed error of a product.
    seed : int
    state : dict, optional
        State of an earlier run.

    Attributes
    ----------
    converged : bool
    iterations : int
        Number of products so far.
    residual : float
        The largest ``||A v - value v||`` of the first k eigenpairs, relative to the first value.
    noise : float
        The largest observed error of a product, in the units of the eigenvalues.

    Notes
    -----
    The lower triangle of ``projected`` has the projection in exact arithmetic: the eigenvalues of
    the retained vectors, and the couplings of each vector to the previous vectors. Its last row
    couples the basis to the next vector, so the absolute value of its product with an eigenvector
    of the other rows is the residual of that eigenvector. All other components of a product along
    previous vectors are errors, of the product or of rounding; the largest of them is the noise.

    The iteration finds each distinct eigenvalue once: other eigenvectors of a repeated eigenvalue
    grow only from rounding errors. So after k eigenvectors have converged, the iteration continues
    from a random vector that is orthogonal to the basis, to find eigenvectors that are orthogonal
    to the first vector. If their eigenvalue exceeds the k-th, a few iterations show it.
    """

    def __init__(
        self, size: int, k: int, tol: float, seed: int, state: dict[str, NDArray[Any]] | None
    ) -> None:
        self.converged = False
        self.iterations = 0
        self.residual = 0.0
        self.noise = 0.0
        self._size, self._k, self._seed = size, k, seed
        self._tol = max(tol**2, float(np.finfo(np.float64).eps))
        self._max_vectors = _max_basis_size(size, k)
        self._has_repeated_eigenvalues = False
        self._projected_count = 0  # projected vectors; the basis has one more
        self._search_start = 0  # first vector of the search for missed eigenvalues, or 0
        self._basis = np.zeros((self._max_vectors, size))
        self._projected = np.zeros((self._max_vectors + 1, self._max_vectors + 1))
        if state is None:
            self._basis[0] = self._random_unit_vector()
            return
        count = len(state["basis"])
        self._projected_count = count - 1
        self._search_start = int(state["first"])
        self.noise = float(state["noise"])
        self._has_repeated_eigenvalues = bool(state["repeated"])
        self.iterations = int(state["iterations"])
        self._basis[:count] = state["basis"]
        self._projected[:count, :count] = state["projected"]

    @property
    def vector(self) -> Array:
        """The next vector to multiply by A."""
        vector: Array = self._basis[self._projected_count]
        return vector

    def state(self) -> dict[str, Any]:
        """Return the state for a checkpoint; the basis is a function that returns an array."""
        count = self._projected_count + 1
        basis = self._basis[:count]  # never changed in place: a restart allocates a new array
        return {
            "basis": lambda: basis,
            "projected": self._projected[:count, :count],
            "first": self._search_start,
            "noise": self.noise,
            "repeated": int(self._has_repeated_eigenvalues),
            "iterations": self.iterations,
        }

    def converged_vectors(self) -> Array:
        """Return the converged eigenvectors among the first k, as columns."""
        if self.converged:
            return self._basis[: self._k].T
        values, rotation, residuals = self._ritz_pairs()
        limits = self._residual_limits(values[: self._k])
        converged = np.flatnonzero(residuals[: self._k] <= limits)
        vectors: Array = self._basis[: self._projected_count].T @ rotation[:, converged]
        return vectors

    def advance(self, product: Array) -> None:
        """Process the product of A and `vector`."""
        index, search_start = self._projected_count, self._search_start
        components, remainder = _project_out(product, self._basis[: index + 1])
        errors = components[search_start:index] - self._projected[index, search_start:index]
        self.noise = max(self.noise, float(np.abs(errors).max(initial=0.0)))
        self._projected[index, :search_start] = components[:search_start]
        self._projected[index, index] = components[index]
        self._projected_count = count = index + 1
        self.iterations += 1
        norm = float(np.linalg.norm(remainder))
        next_vector = None  # if the basis spans an invariant subspace
        if norm > self._new_direction_threshold() and count < self._size:
            next_vector = remainder / norm
            self._projected[count, index] = norm
        else:
            self._has_repeated_eigenvalues = True
        if search_start:
            self._check_missed_eigenvalues(next_vector)
        else:
            self._check_convergence_and_restart(next_vector)

    def _check_convergence_and_restart(self, next_vector: Array | None) -> None:
        """Restart with the best vectors if they have converged or the basis is full."""
        values, rotation, residuals = self._ritz_pairs()
        k, count = self._k, self._projected_count
        has_converged = count >= k and (residuals[:k] <= self._residual_limits(values[:k])).all()
        self.residual = float(residuals[:k].max() / values[0]) if values[0] > 0 else 0.0
        if has_converged or count == self._size:
            search_size = (self._max_vectors - k) // 2
            retained_count = max(k, min(count, self._max_vectors - search_size))
            self._replace_basis(rotation.T[:retained_count] @ self._basis[:count])
            self._fill_diagonal(values)
            self._search_start = self._projected_count
            self.converged = k == 1 or count == self._size
            next_vector = None
        elif count == self._max_vectors:
            retained_count = (k + self._max_vectors) // 2
            coupling = self._projected[count, :count] @ rotation[:, :retained_count]
            self._replace_basis(rotation.T[:retained_count] @ self._basis[:count])
            self._fill_diagonal(values)
            self._projected[retained_count, :retained_count] = coupling
        if not self.converged:
            self._append(next_vector)

    def _check_missed_eigenvalues(self, next_vector: Array | None) -> None:
        """Accept the k eigenvectors, unless the search has found an eigenvalue above the k-th."""
        k, search_start, count = self._k, self._search_start, self._projected_count
        values, rotation = _eigenpairs(self._projected[k:count, k:count])
        eigenvalues = self._projected.diagonal()
        smallest = max(eigenvalues[k - 1], 0.0)
        margin = max(self._tol * smallest, self.noise, self._new_direction_threshold())
        if values[0] > smallest + margin:
            missed_vector = rotation[:, 0] @ self._basis[k:count]
            values = eigenvalues[:k].copy()
            self._replace_basis(self._basis[:k])
            self._fill_diagonal(values)
            self._search_start = 0
            self._has_repeated_eigenvalues = True
            self._append(missed_vector)
            return
        tolerance = max(self._tol, _EQUAL_TOLERANCE) * eigenvalues[0]
        gaps = eigenvalues[: k - 1] - eigenvalues[1:k]
        self._has_repeated_eigenvalues |= bool((gaps <= tolerance).any())
        search_values, _ = _eigenpairs(self._projected[search_start:count, search_start:count])
        component = _MIN_COMPONENT_REPEATED if self._has_repeated_eigenvalues else _MIN_COMPONENT
        steps_to_detect = _steps_to_detect(
            eigenvalues[k - 2],
            max(search_values[0], eigenvalues[search_start - 1]),
            math.sqrt(self._size) / component,
        )
        is_done = count == self._max_vectors or count - search_start >= steps_to_detect
        if next_vector is None or is_done:
            self.converged = True
        else:
            self._append(next_vector)

    def _replace_basis(self, vectors: Array) -> None:
        """Start a new basis with these vectors."""
        self._basis = np.zeros((self._max_vectors, self._size))
        self._projected_count = len(vectors)
        self._basis[: self._projected_count] = vectors
        self._projected[:] = 0

    def _fill_diagonal(self, values: Array) -> None:
        indices = np.arange(self._projected_count)
        self._projected[indices, indices] = values[: self._projected_count]

    def _append(self, vector: Array | None) -> None:
        """Append a vector to the basis, or a random one if it is None."""
        self._basis[self._projected_count] = (
            self._random_unit_vector() if vector is None else vector
        )

    def _ritz_pairs(self) -> tuple[Array, Array, Array]:
        """Return eigenvalues of the projected A, descending, eigenvectors, and residuals."""
        count = self._projected_count
        values, rotation = _eigenpairs(self._projected[:count, :count])
        return values, rotation, np.abs(self._projected[count, :count] @ rotation)

    def _residual_limits(self, values: Array) -> Array:
        """Return the largest residuals of converged eigenvectors."""
        return np.maximum(self._tol * values, _NOISE_FRACTION * self.noise)

    def _new_direction_threshold(self) -> float:
        """Return the norm above which the part outside the basis is a new direction."""
        largest = float(self._projected.diagonal()[: self._projected_count].max(initial=0.0))
        return max(_ROUNDING * largest, self.noise)

    def _random_unit_vector(self) -> Array:
        """Return a reproducible random unit vector that is orthogonal to the basis."""
        rng = np.random.default_rng([self._seed, self.iterations])
        vector = rng.standard_normal(self._size)
        _, remainder = _project_out(vector, self._basis[: self._projected_count])
        return remainder / np.linalg.norm(remainder)


def _max_basis_size(size: int, k: int) -> int:
    return min(size, 2 * k + _EXTRA_VECTORS)


def _project_out(vector: Array, basis: Array) -> tuple[Array, Array]:
    """Return the components of a vector in an orthonormal basis, and the remainder."""
    components = basis @ vector
    remainder = vector - components @ basis
    correction = basis @ remainder  # a second pass removes rounding errors
    return components + correction, remainder - correction @ basis


def _eigenpairs(matrix: Array) -> tuple[Array, Array]:
    """Return eigenvalues, descending, and eigenvectors, from the lower triangle."""
    values, vectors = np.linalg.eigh(matrix)
    return values[::-1], vectors[:, ::-1]


def _steps_to_detect(larger: float, smaller: float, tangent: float) -> float:
    """Return the number of Lanczos steps after which a larger eigenvalue exceeds the others.

    This is the bound of Kaniel and Paige: with t the tangent of the angle between the start vector
    and the eigenvector, and g the relative gap, n steps bridge half of the gap if
    ``T(1 + 2 g)**2 >= 2 t**2 / g``, where T is the Chebyshev polynomial of degree n - 1.
    """
    if smaller <= 0:
        return 1
    gap = (larger - smaller) / smaller
    if gap <= 0:
        return math.inf
    required = max(1.0, math.sqrt(2 / gap) * tangent)
    return 1 + math.acosh(required) / math.acosh(1 + 2 * gap)
