"""Real-valued MDS codes: generator matrices and encoding.

Any L rows of an N x L MDS generator matrix G are invertible, so any L coded answers determine the L
uncoded ones. In floating point, decoding amplifies rounding errors by the condition number of these
L rows, so the conditioning of every new code is measured.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from cec_mpi.core.code.conditioning import Conditioning, measure_conditioning
from cec_mpi.core.code.decoder import Decoder
from cec_mpi.core.code.families import FAMILIES, default_family, make_generator
from cec_mpi.errors import InfeasibleError, InputError
from cec_mpi.text import plural, truncate

Floats = NDArray[np.float64]

_MAX_DECODING_ERROR = 1e-2  # relative, from the worst L shards
_MAX_MACHINES = 100_000


class MDSCode:
    """An MDS code: a generator matrix and its measured conditioning.

    Parameters
    ----------
    generator : (N, L) array_like of float
        Machine n stores ``sum(G[n - 1, l - 1] * X_l for l in range(1, L + 1))``.
    family : str
        Name of the construction.
    systematic : bool
        Whether the first L machines store X_1 .. X_L.
    conditioning : Conditioning, optional
        Measured by default.

    Raises
    ------
    InputError
        The shape is not (N, L) with 1 <= L <= N, an entry is not finite, or the matrix is not MDS:
        some L of its rows are singular to working precision.

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
            raise InputError("the generator matrix contains NaN or infinity")
        matrix.flags.writeable = False
        self.generator: Floats = matrix
        self.family = family
        self.systematic = systematic
        self.conditioning = conditioning or measure_conditioning(matrix)
        if not self.conditioning.worst < 1 / np.finfo(np.float64).eps:
            raise InputError(
                f"the {family} generator for {plural(self.machines, 'machine')} and recovery "
                f"threshold {self.recovery} is not MDS in float64: machines "
                f"{truncate(self.conditioning.worst_machines, 10)} have condition number "
                f"{self.conditioning.worst:.1e}"
            )

    def __repr__(self) -> str:
        return f"<MDSCode of {self.summary}>"

    @property
    def summary(self) -> str:
        """A short description of the code."""
        systematic = "systematic " if self.systematic else ""
        return f"any {self.recovery} of {self.machines} machines, {systematic}{self.family} code"

    @property
    def machines(self) -> int:
        """Number of machines, N."""
        return int(self.generator.shape[0])

    @property
    def recovery(self) -> int:
        """Recovery threshold, L."""
        return int(self.generator.shape[1])

    def check_precision(self, dtype: DTypeLike) -> None:
        """Raise if decoding from the worst L shards of this dtype would return noise.

        Raises
        ------
        InputError
            The worst measured condition number times the machine epsilon is at least 1 %.
        """
        error = self.conditioning.worst * float(np.finfo(dtype).eps)
        if not error < _MAX_DECODING_ERROR:
            raise InputError(
                f"{np.dtype(dtype)} shards of the {self.family} code would decode to noise: "
                f"machines {truncate(self.conditioning.worst_machines, 10)} have the condition "
                f"number {self.conditioning.worst:.1e}; use float64, another code or fewer machines"
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
        shards = out.reshape(self.machines, -1)
        np.matmul(generator, parts.reshape(self.recovery, -1), out=shards)

    def make_decoder(self, machines: Sequence[int] | NDArray[np.integer]) -> Decoder:
        """Return the decoder for the answers of L machines (counted from 1)."""
        return Decoder(self.generator, machines)


def make_code(
    machines: int,
    recovery: int,
    family: str | None = None,
    *,
    systematic: bool = False,
    seed: int = 0,
    dtype: DTypeLike = np.float64,
) -> MDSCode:
    """Return a code from one of the `FAMILIES`.

    Parameters
    ----------
    machines : int
        Number of machines, N.
    recovery : int
        Recovery threshold, L.
    family : str, optional
        One of `FAMILIES`; by default ``orthonormal`` with `systematic` or more than 24
        machines, otherwise ``fourier``.
    systematic : bool
        Whether the first L machines store X_1 .. X_L.
    seed : int
        Seed of random families.
    dtype : dtype
        Dtype of the shards. The entries of the generator are exact in it.

    Raises
    ------
    InputError
        A number is out of range, the family is unknown, or the matrix is not MDS in float64.
    InfeasibleError
        Fewer machines than the recovery threshold.

    Examples
    --------
    >>> make_code(5, 2, systematic=True).generator[:2]
    array([[1., 0.],
           [0., 1.]])
    """
    if recovery < 1:
        raise InputError(f"recovery threshold {recovery}: expected at least 1")
    if machines > _MAX_MACHINES:
        raise InputError(f"{plural(machines, 'machine')}: expected at most {_MAX_MACHINES}")
    if machines < recovery:
        raise InfeasibleError(
            f"recovery threshold {recovery} for {plural(machines, 'machine')}: expected at most "
            f"{machines}"
        )
    if seed < 0:
        raise InputError(f"seed {seed}: expected at least 0")
    if family is None:
        family = default_family(machines, systematic)
    if family not in FAMILIES:
        raise InputError(f"code {family!r}: expected one of {', '.join(FAMILIES)}")
    try:
        generator = make_generator(family, machines, recovery, systematic, seed)
    except np.linalg.LinAlgError:
        raise InputError(
            f"the {family} generator for {plural(machines, 'machine')} and recovery threshold "
            f"{recovery} is not MDS in float64: its first rows are singular"
        ) from None
    return MDSCode(generator.astype(dtype), family, systematic)
