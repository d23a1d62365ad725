"""Families of generator matrices: any L of their N rows are invertible."""

from __future__ import annotations

from collections.abc import Callable
from math import comb

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_DRAWS = 8  # random orthonormal matrices that are tried; the best is kept


def harmonics(points: Floats, recovery: int) -> Floats:
    """Return rows of L real harmonics at points of the circle.

    Parameters
    ----------
    points : (n,) ndarray of float
        Angles t, in radians.
    recovery : int
        L.

    Returns
    -------
    (n, L) ndarray of float
        1/sqrt 2 (odd L only), then cos(j t) and sin(j t) for j = 1, 2, .. (odd L) or
        j = 1/2, 3/2, .. (even L).
    """
    constant = [np.full(len(points), np.sqrt(0.5))] if recovery % 2 else []
    orders = np.arange(recovery // 2) + (1 if recovery % 2 else 0.5)
    waves = [wave(j * points) for j in orders for wave in (np.cos, np.sin)]
    return np.column_stack(constant + waves)


def _fourier(machines: int, recovery: int, rng: np.random.Generator) -> Floats:
    """L real harmonics at N equally spaced points; best for small N."""
    return harmonics(2 * np.pi * np.arange(machines) / machines, recovery)


def _orthonormal(machines: int, recovery: int, rng: np.random.Generator) -> Floats:
    """L columns of a random orthogonal matrix; best for large N."""
    q, r = np.linalg.qr(rng.standard_normal((machines, recovery)))
    columns: Floats = q * np.sign(np.diag(r)) * np.sqrt(machines / recovery)
    return columns


def _gaussian(machines: int, recovery: int, rng: np.random.Generator) -> Floats:
    """Independent normal entries."""
    return rng.standard_normal((machines, recovery))


def _chebyshev(machines: int, recovery: int, rng: np.random.Generator) -> Floats:
    """Chebyshev polynomials at Chebyshev nodes."""
    angles = (2 * np.arange(machines) + 1) * np.pi / (2 * machines)
    values: Floats = np.cos(np.outer(angles, np.arange(recovery)))
    return values


def _cauchy(machines: int, recovery: int, rng: np.random.Generator) -> Floats:
    """1 / (x_n - y_l) with distinct Chebyshev nodes: no minor is 0."""
    nodes = np.cos((2 * np.arange(machines + recovery) + 1) * np.pi / (2 * (machines + recovery)))
    taken = np.linspace(0, machines + recovery - 1, recovery).round().astype(int)
    matrix: Floats = 1 / (np.delete(nodes, taken)[:, None] - nodes[taken])
    return matrix


def _systematic_cauchy(machines: int, recovery: int) -> Floats:
    """[I; Cauchy]: MDS because no minor of a Cauchy matrix is 0."""
    x = np.arange(recovery, machines, dtype=np.float64)
    parity = 1 / (x[:, None] + np.arange(recovery) + 1 - recovery)
    scale = np.abs(parity).max(axis=1, keepdims=True, initial=1.0)
    return np.vstack((np.eye(recovery), parity / scale))


def _systematic(matrix: Floats) -> Floats | None:
    recovery = matrix.shape[1]
    try:
        rest = np.linalg.solve(matrix[:recovery].T, matrix[recovery:].T).T
    except np.linalg.LinAlgError:
        return None
    return np.vstack((np.eye(recovery), rest))


FAMILIES: dict[str, Callable[[int, int, np.random.Generator], Floats]] = {
    "fourier": _fourier,
    "orthonormal": _orthonormal,
    "gaussian": _gaussian,
    "chebyshev": _chebyshev,
    "cauchy": _cauchy,
}


def matrices_of(
    name: str, machines: int, recovery: int, systematic: bool, seed: int
) -> list[Floats]:
    """Return candidates of a family, (N, L) each; empty if no systematic one exists."""
    rng = np.random.default_rng(seed)
    draws = _DRAWS if name == "orthonormal" and comb(machines, recovery) > 1 else 1
    if systematic and name == "cauchy":
        return [_systematic_cauchy(machines, recovery)]
    plain = [FAMILIES[name](machines, recovery, rng) for _ in range(draws)]
    if not systematic:
        return plain
    return [matrix for matrix in map(_systematic, plain) if matrix is not None]
