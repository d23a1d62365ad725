"""Real-valued MDS codes: generator matrices and encoding.

Any L rows of an N x L MDS generator matrix G are invertible, so any L coded answers give
the L uncoded ones. Over the reals "invertible" is not enough: the condition number of
these L rows is the factor by which rounding errors grow in decoding, and no family of
matrices is the best everywhere. Codes are therefore measured when they are made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import comb

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from cec_mpi.core.conditioning import Conditioning, measure_conditioning
from cec_mpi.core.decoder import Decoder
from cec_mpi.errors import InfeasibleError, InputError

__all__ = ["FAMILIES", "MDSCode", "harmonics", "make_code"]

Floats = NDArray[np.float64]

# A store must give back at least this relative accuracy from its worst L shards.
_LEAST_ACCURACY = 1e-2
_MOST_MACHINES = 100_000
_DRAWS = 8  # random orthonormal matrices that are tried; the best is kept
_FIRST_LOOK = 2_000  # submatrices measured of every candidate, before the best two in full


class MDSCode:
    """A generator matrix with what was measured of it.

    Parameters
    ----------
    generator : (N, L) array_like of float
        Machine n stores ``sum(G[n - 1, l] * X_l for l in range(L))``.
    family : str
        Name of the construction, for people.
    systematic : bool
        Whether the first L machines store X_1 .. X_L as they are.
    conditioning : Conditioning, optional
        What an earlier measurement gave; measured now when left out.

    Raises
    ------
    InputError
        The matrix is not MDS: some L of its rows are singular to working precision.

    Examples
    --------
    >>> code = make_code(6, 3)
    >>> code.family, round(code.conditioning.worst, 1)
    ('fourier', 5.8)
    """

    def __init__(
        self,
        generator: ArrayLike,
        family: str = "custom",
        systematic: bool = False,
        conditioning: Conditioning | None = None,
    ) -> None:
        matrix = np.array(generator, dtype=np.float64)
        if matrix.ndim != 2 or not 1 <= matrix.shape[1] <= matrix.shape[0]:
            raise InputError(f"a generator of shape {matrix.shape}: expected (N, L), 1 <= L <= N")
        if not np.isfinite(matrix).all():
            raise InputError("the generator matrix holds NaN or infinity")
        matrix.flags.writeable = False
        self.generator: Floats = matrix
        self.family = family
        self.systematic = systematic
        self.conditioning = conditioning or measure_conditioning(matrix)
        if not self.conditioning.worst < 1 / np.finfo(np.float64).eps:
            raise InputError(
                f"the {family} generator for {self.machines} machines and recovery threshold "
                f"{self.recovery} is not MDS in float64: machines "
                f"{_short(self.conditioning.worst_machines)} have condition number "
                f"{self.conditioning.worst:.1e}"
            )

    @property
    def machines(self) -> int:
        """Machines, N."""
        return int(self.generator.shape[0])

    @property
    def recovery(self) -> int:
        """Recovery threshold, L."""
        return int(self.generator.shape[1])

    def check_precision(self, dtype: DTypeLike) -> None:
        """Refuse a dtype with which the worst L shards decode to noise.

        Raises
        ------
        InputError
            The worst condition number times the machine epsilon exceeds 1 %.
        """
        loss = self.conditioning.worst * float(np.finfo(dtype).eps)
        if not loss < _LEAST_ACCURACY:
            raise InputError(
                f"{np.dtype(dtype)} shards of the {self.family} code would decode to noise: "
                f"machines {_short(self.conditioning.worst_machines)} have condition number "
                f"{self.conditioning.worst:.1e}; use float64, another code, or fewer machines"
            )

    def encode(self, parts: NDArray[np.floating], out: NDArray[np.floating]) -> None:
        """Encode the same rows of all L parts of X: ``out[n] = sum(G[n, l] * parts[l])``.

        Parameters
        ----------
        parts : (L, ...) ndarray of float
            Rows of X_1 .. X_L, C-contiguous.
        out : (N, ...) ndarray of float
            Receives the rows of each machine's shard, C-contiguous, same dtype.
        """
        generator = self.generator.astype(parts.dtype, copy=False)
        flat = out.reshape(self.machines, -1)
        np.matmul(generator, parts.reshape(self.recovery, -1), out=flat)

    def decoder(self, machines: Sequence[int]) -> Decoder:
        """The decoder for the answers of L machines (numbers from 1)."""
        return Decoder(self.generator, machines)


def make_code(
    machines: int,
    recovery: int,
    family: str = "auto",
    *,
    systematic: bool = False,
    seed: int = 0,
    dtype: DTypeLike = np.float64,
) -> MDSCode:
    """A code of one of the `FAMILIES`, or with ``"auto"`` the best conditioned of them all.

    Parameters
    ----------
    machines : int
        Machines, N.
    recovery : int
        Recovery threshold, L.
    family : str
        ``fourier``: N equally spaced points of L real harmonics, best for small N;
        ``orthonormal``: L columns of a random orthogonal matrix, best for large N;
        ``gaussian``: independent normal entries; ``chebyshev``: Chebyshev polynomials at
        Chebyshev nodes; ``cauchy``: a Cauchy matrix; ``auto``: measure all, keep the one
        with the best worst case.
    systematic : bool
        Store X_1 .. X_L as they are on the first L machines.
    seed : int
        For the random families.
    dtype : dtype
        Of the shards: the generator's entries are numbers of this kind, so that what was
        encoded with is what is decoded with.

    Raises
    ------
    InputError
        Unknown family, or the matrix is not MDS in float64.
    InfeasibleError
        Fewer machines than the recovery threshold.

    Examples
    --------
    >>> make_code(5, 2, "cauchy", systematic=True).generator[:2]
    array([[1., 0.],
           [0., 1.]])
    """
    if recovery < 1:
        raise InputError(f"recovery threshold {recovery}: expected at least 1")
    if machines > _MOST_MACHINES:
        raise InputError(f"{machines} machines: expected at most {_MOST_MACHINES}")
    if machines < recovery:
        raise InfeasibleError(f"{machines} machines with recovery threshold {recovery}")
    if seed < 0:
        raise InputError(f"seed {seed}: expected at least 0")
    if family != "auto" and family not in FAMILIES:
        raise InputError(f"code {family!r}: expected one of auto, {', '.join(FAMILIES)}")
    best_draws = []
    for name in FAMILIES if family == "auto" else [family]:
        draws = [
            (measure_conditioning(matrix, _FIRST_LOOK), name, matrix)
            for plain in _matrices(name, machines, recovery, systematic, seed)
            for matrix in [plain.astype(dtype).astype(np.float64)]
        ]
        best_draws.extend(sorted(draws, key=_badness)[:1])
    if not best_draws:
        raise InputError(
            f"the {family} generator for {machines} machines and recovery threshold {recovery} "
            "is not MDS in float64: its first rows are singular"
        )
    finalists = [
        (measure_conditioning(matrix), name, matrix)
        for _, name, matrix in sorted(best_draws, key=_badness)[:2]
    ]
    conditioning, name, matrix = min(finalists, key=_badness)
    return MDSCode(matrix, name, systematic, conditioning)


def _badness(candidate: tuple[Conditioning, str, Floats]) -> tuple[float, float]:
    return candidate[0].worst, candidate[0].median


def _matrices(name: str, machines: int, recovery: int, systematic: bool, seed: int) -> list[Floats]:
    rng = np.random.default_rng(seed)
    draws = _DRAWS if name == "orthonormal" and comb(machines, recovery) > 1 else 1
    if systematic and name == "cauchy":
        return [_systematic_cauchy(machines, recovery)]
    plain = [FAMILIES[name](machines, recovery, rng) for _ in range(draws)]
    if not systematic:
        return plain
    return [matrix for matrix in map(_systematic, plain) if matrix is not None]


def harmonics(points: Floats, recovery: int) -> Floats:
    """Rows of L real harmonics at these points of the circle.

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
    return harmonics(2 * np.pi * np.arange(machines) / machines, recovery)


def _orthonormal(machines: int, recovery: int, rng: np.random.Generator) -> Floats:
    q, r = np.linalg.qr(rng.standard_normal((machines, recovery)))
    columns: Floats = q * np.sign(np.diag(r)) * np.sqrt(machines / recovery)
    return columns


def _gaussian(machines: int, recovery: int, rng: np.random.Generator) -> Floats:
    return rng.standard_normal((machines, recovery))


def _chebyshev(machines: int, recovery: int, rng: np.random.Generator) -> Floats:
    angles = (2 * np.arange(machines) + 1) * np.pi / (2 * machines)
    values: Floats = np.cos(np.outer(angles, np.arange(recovery)))
    return values


def _cauchy(machines: int, recovery: int, rng: np.random.Generator) -> Floats:
    """1 / (x_n - y_l) with Chebyshev nodes shared out: every minor is different from 0."""
    nodes = np.cos((2 * np.arange(machines + recovery) + 1) * np.pi / (2 * (machines + recovery)))
    taken = np.linspace(0, machines + recovery - 1, recovery).round().astype(int)
    matrix: Floats = 1 / (np.delete(nodes, taken)[:, None] - nodes[taken])
    return matrix


def _systematic_cauchy(machines: int, recovery: int) -> Floats:
    """[I; Cauchy]: MDS because every minor of a Cauchy matrix is different from 0."""
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


def _short(machines: Sequence[int]) -> str:
    listed = ", ".join(str(n) for n in machines[:10])
    return f"{listed}, ... ({len(machines)})" if len(machines) > 10 else listed


FAMILIES: dict[str, Callable[[int, int, np.random.Generator], Floats]] = {
    "fourier": _fourier,
    "orthonormal": _orthonormal,
    "gaussian": _gaussian,
    "chebyshev": _chebyshev,
    "cauchy": _cauchy,
}
